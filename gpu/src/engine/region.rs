//! Memory that rows are gathered from.
#![allow(unsafe_code)]

use std::{
    any::Any,
    ops::Range,
    slice,
    sync::{Arc, OnceLock},
};

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
    registered: OnceLock<Result<(Registered, Share), String>>,
    context: Arc<Context>,
    budget: Arc<Budget>,
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
    /// Memory that isn't registered yet.
    ///
    /// # Safety
    /// `memory` stays mapped and unchanged while `owner` lives.
    pub(super) unsafe fn new(
        context: &Arc<Context>,
        budget: &Arc<Budget>,
        memory: &[u8],
        owner: Arc<dyn Any + Send + Sync>,
    ) -> Self {
        Self(Arc::new(Inner {
            registered: OnceLock::new(),
            context: Arc::clone(context),
            budget: Arc::clone(budget),
            start: memory.as_ptr() as usize,
            length: memory.len(),
            _owner: Owner { _owner: owner },
        }))
    }

    /// Registers it, if the driver and the budget allow that: a refusal is no error. Batches may be gathered meanwhile.
    ///
    /// # Errors
    /// [`Error::Missing`] in a forked child.
    pub fn register(&self) -> Result<()> {
        let inner = &*self.0;
        if inner.length == 0 || inner.registered.get().is_some() {
            return Ok(());
        }
        let try_register = || {
            let share = inner.budget.take(inner.length as u64)?;
            // SAFETY: the memory stays as long as the owner, which outlives the registration here.
            Ok((unsafe { register(&inner.context, self.bytes(0..inner.length)) }?, share))
        };
        let outcome = match try_register() {
            Ok(registered) => Ok(registered),
            Err(refused @ (Error::Call { .. } | Error::Budget { .. })) => Err(refused.to_string()),
            Err(error) => return Err(error),
        };
        // Who comes second gives its registration back.
        let _ = inner.registered.set(outcome);
        Ok(())
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
        match self.0.registered.get() {
            Some(Ok(_)) => None,
            Some(Err(refused)) => Some(refused),
            None if self.is_empty() => None,
            None => Some("its registration is under way"),
        }
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
        let (registered, _) = self.0.registered.get()?.as_ref().ok()?;
        Some(registered.device_address(self.0.start as *const u8).wrapping_add(offset))
    }
}
