//! The bytes that a device holds: counted before they are allocated, given back when they are freed.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use crate::{Error, Result};

/// Bytes of one kind, and the most there may be.
#[derive(Debug)]
pub(crate) struct Budget {
    kind: &'static str,
    limit: u64,
    used: AtomicU64,
    /// Of those in use, the bytes of batches that a consumer holds.
    held: AtomicU64,
}

impl Budget {
    pub(crate) fn new(kind: &'static str, limit: u64) -> Arc<Self> {
        Arc::new(Self { kind, limit, used: AtomicU64::new(0), held: AtomicU64::new(0) })
    }

    /// Takes `bytes` out of what is left.
    pub(crate) fn take(self: &Arc<Self>, bytes: u64) -> Result<Share> {
        let within = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= self.limit);
        match self.used.fetch_update(Ordering::SeqCst, Ordering::SeqCst, within) {
            Ok(_) => Ok(Share { budget: Arc::clone(self), bytes }),
            Err(used) => {
                let held = self.held.load(Ordering::Relaxed);
                Err(Error::Budget { kind: self.kind, needed: bytes, used, held, budget: self.limit })
            }
        }
    }

    /// Takes `bytes` without which nothing goes, whatever is left: they count, and others get less.
    pub(crate) fn take_anyway(self: &Arc<Self>, bytes: u64) -> Share {
        self.used.fetch_add(bytes, Ordering::SeqCst);
        Share { budget: Arc::clone(self), bytes }
    }

    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::SeqCst)
    }

    pub(crate) fn hold(&self, bytes: u64) {
        self.held.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn release(&self, bytes: u64) {
        self.held.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Bytes taken out of a budget until this is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    budget: Arc<Budget>,
    bytes: u64,
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_is_taken_never_passes_the_limit_and_comes_back() {
        let budget = Budget::new("device", 100);
        let first = budget.take(60).unwrap();
        budget.hold(50);
        let refused = budget.take(41).unwrap_err();
        assert!(matches!(refused, Error::Budget { needed: 41, used: 60, held: 50, budget: 100, .. }), "{refused}");
        drop(budget.take(40).unwrap());
        drop(budget.take_anyway(70));
        drop(first);
        assert_eq!(budget.used(), 0);
    }
}
