//! Memory that rows are gathered from.
#![allow(unsafe_code)]

use std::{any::Any, ops::Range, slice, sync::Arc};

use super::budget::{Budget, Share};
use crate::{
    Error, Result,
    cuda::{Context, Registered, register},
};

/// Host memory that rows are gathered from: registered with the driver once, or read by the CPU if that was refused.
///
/// Clones share the registration, which lasts until the last is dropped and no batch reads from it.
#[derive(Clone, Debug)]
pub struct Region(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    // In this order: the registration ends before its memory does.
    registered: Option<Registered>,
    _share: Option<Share>,
    refused: Option<String>,
    start: usize,
    length: usize,
    _owner: Owner,
}

struct Owner {
    _owner: Arc<dyn Any + Send + Sync>,
}

impl std::fmt::Debug for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("..")
    }
}

impl Region {
    /// # Safety
    /// `memory` stays mapped and unchanged while `owner` lives.
    pub(super) unsafe fn new(
        context: &Arc<Context>,
        budget: &Arc<Budget>,
        memory: &[u8],
        owner: Arc<dyn Any + Send + Sync>,
    ) -> Result<Self> {
        let try_register = || {
            let share = budget.take(memory.len() as u64)?;
            // SAFETY: the memory stays as long as `owner`, which outlives the registration here.
            Ok((unsafe { register(context, memory) }?, share))
        };
        let (registered, share, refused) = match try_register() {
            _ if memory.is_empty() => (None, None, None),
            Ok((registered, share)) => (Some(registered), Some(share), None),
            Err(refused @ (Error::Call { .. } | Error::Budget { .. })) => (None, None, Some(refused.to_string())),
            Err(error) => return Err(error),
        };
        Ok(Self(Arc::new(Inner {
            registered,
            _share: share,
            refused,
            start: memory.as_ptr() as usize,
            length: memory.len(),
            _owner: Owner { _owner: owner },
        })))
    }

    /// Bytes of it.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.length
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.length == 0
    }

    /// Why its memory isn't registered, if it isn't: devices then get its rows by way of the CPU.
    #[must_use]
    pub fn refused(&self) -> Option<&str> {
        self.0.refused.as_deref()
    }

    /// Some of the bytes, which a row is in.
    pub(super) fn bytes(&self, range: Range<usize>) -> &[u8] {
        let range = range.start.min(self.0.length)..range.end.min(self.0.length);
        // SAFETY: the range is inside the memory, which stays mapped while the owner lives, and `self` keeps it; a row's bytes
        // don't change while a batch with it is gathered.
        unsafe { slice::from_raw_parts((self.0.start as *const u8).add(range.start), range.len()) }
    }

    /// The device address of byte `offset`, if the memory is registered.
    pub(super) fn device_address(&self, offset: u64) -> Option<u64> {
        let registered = self.0.registered.as_ref()?;
        Some(registered.device_address(self.0.start as *const u8).wrapping_add(offset))
    }

    /// Whether both are one.
    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}
