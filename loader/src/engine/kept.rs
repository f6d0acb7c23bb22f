//! Fetched blocks that are kept from one epoch to the next, on top of what an epoch may hold.
//!
//! Who came first stays. Every row comes once an epoch, so that one part of a set is worth as much as any other, and a part that
//! changes is worth less.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::atom::{AtomKey, Block};
use crate::ledger::{Ledger, Reservation};

/// The blocks that a loader keeps.
#[derive(Debug)]
pub(crate) struct Kept {
    ledger: Arc<Ledger>,
    blocks: Mutex<HashMap<AtomKey, Arc<Block>>>,
}

impl Kept {
    /// Room for so many bytes; `None` for none.
    pub(crate) fn new(bytes: u64) -> Option<Arc<Self>> {
        let kept = || Arc::new(Self { ledger: Ledger::new(bytes, Arc::default()), blocks: Mutex::default() });
        (bytes > 0).then(kept)
    }

    /// Room for `bytes`, for as long as what this gives lives, if there is some.
    pub(crate) fn reserve(&self, bytes: u64) -> Option<Reservation> {
        self.ledger.try_reserve(bytes)
    }

    /// Keeps a block whose memory [`reserve`](Self::reserve) gave room for.
    pub(crate) fn put(&self, key: AtomKey, block: Arc<Block>) {
        self.blocks().entry(key).or_insert(block);
    }

    pub(crate) fn get(&self, key: &AtomKey) -> Option<Arc<Block>> {
        self.blocks().get(key).cloned()
    }

    pub(crate) fn holds(&self, key: &AtomKey) -> bool {
        self.blocks().contains_key(key)
    }

    /// The bytes that are kept.
    pub(crate) fn bytes(&self) -> u64 {
        self.ledger.used()
    }

    fn blocks(&self) -> MutexGuard<'_, HashMap<AtomKey, Arc<Block>>> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
