//! The byte ledger: what the loader holds, reserved before it is requested.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use crate::signal::Signal;

/// Bytes that may be held at once, and those that are.
#[derive(Debug)]
pub(crate) struct Ledger {
    limit: u64,
    used: AtomicU64,
    peak: AtomicU64,
    /// Raised whenever bytes are given back.
    pub(crate) freed: Arc<Signal>,
}

impl Ledger {
    pub(crate) fn new(limit: u64, freed: Arc<Signal>) -> Arc<Self> {
        Arc::new(Self { limit, used: AtomicU64::new(0), peak: AtomicU64::new(0), freed })
    }

    /// Takes `bytes` if they are within the limit.
    pub(crate) fn try_reserve(self: &Arc<Self>, bytes: u64) -> Option<Reservation> {
        let within = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= self.limit);
        let before = self.used.fetch_update(Ordering::SeqCst, Ordering::SeqCst, within).ok()?;
        self.peak.fetch_max(before + bytes, Ordering::Relaxed);
        Some(Reservation { ledger: self.clone(), bytes })
    }

    /// Takes `bytes` whatever the limit: for rows without which nothing could go on.
    pub(crate) fn overdraw(self: &Arc<Self>, bytes: u64) -> Reservation {
        let before = self.used.fetch_add(bytes, Ordering::SeqCst);
        self.peak.fetch_max(before + bytes, Ordering::Relaxed);
        Reservation { ledger: self.clone(), bytes }
    }

    /// Bytes that may still be taken.
    pub(crate) fn free(&self) -> u64 {
        self.limit.saturating_sub(self.used.load(Ordering::SeqCst))
    }

    /// The most bytes that were held at once.
    pub(crate) fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }

    /// Bytes that are held.
    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::SeqCst)
    }
}

/// Bytes taken from a ledger, given back when dropped.
#[derive(Debug)]
pub(crate) struct Reservation {
    ledger: Arc<Ledger>,
    bytes: u64,
}

impl Reservation {
    /// The bytes that it still is of.
    pub(crate) fn remaining(&self) -> u64 {
        self.bytes
    }

    /// Takes `bytes` of this reservation out as one of their own; at most all of them.
    pub(crate) fn split(&mut self, bytes: u64) -> Self {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        Self { ledger: self.ledger.clone(), bytes }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.ledger.used.fetch_sub(self.bytes, Ordering::SeqCst);
            self.ledger.freed.raise();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_is_reserved_never_passes_the_limit_and_comes_back() {
        let ledger = Ledger::new(100, Arc::default());
        let mut first = ledger.try_reserve(60).unwrap();
        assert!(ledger.try_reserve(41).is_none());
        let second = ledger.try_reserve(40).unwrap();
        let part = first.split(10);
        drop(first);
        assert_eq!(ledger.used(), 50);
        drop((part, second));
        assert_eq!((ledger.used(), ledger.peak()), (0, 100));
        drop(ledger.overdraw(200));
        assert_eq!((ledger.used(), ledger.peak()), (0, 200));
    }
}
