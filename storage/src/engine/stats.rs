//! What a storage has done so far.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::cache::CacheStats;

/// What a storage has read in this process so far, and how it went: see [`Storage::stats`](crate::Storage::stats).
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Stats {
    /// Requests for bytes, those tried again and second ones left out.
    pub requests: u64,
    /// Bytes that came and were handed on.
    pub bytes: u64,
    /// Requests tried again after a wait.
    pub retries: u64,
    /// Answers that asked for patience (503, 429).
    pub throttled: u64,
    /// Requests given up because their answer was not whole in time.
    pub timeouts: u64,
    /// Second requests sent because the answer to the first one was late.
    pub hedges: u64,
    /// How many of those were answered first.
    pub hedges_won: u64,
    /// Bytes asked for by second requests; below 2% of all.
    pub hedged_bytes: u64,
    /// Requests sent to another source at once because one failed.
    pub fell_back: u64,
    /// Requests that may be in flight at once, at this moment.
    pub limit: usize,
    /// Requests in flight, at this moment.
    pub in_flight: usize,
    /// Requests a second that are sent at most, while a store asks for patience.
    pub pace: Option<f64>,
    /// What the caches did, if there are some.
    pub cache: Option<CacheStats>,
    /// The storage itself and its mirrors, in the order given.
    pub mirrors: Vec<MirrorStats>,
}

/// One of several sources of the same objects.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct MirrorStats {
    /// Its URL.
    pub url: String,
    /// Reads that it answered.
    pub reads: u64,
    /// Reads that failed there.
    pub failures: u64,
    /// Objects whose bytes from there were wrong.
    pub distrusted: u64,
    /// Whether it is asked, at this moment.
    pub healthy: bool,
    /// How long its answers take to begin, of late; `None` before the first.
    pub latency: Option<Duration>,
}

/// The counters behind [`Stats`].
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) requests: AtomicU64,
    pub(super) bytes: AtomicU64,
    pub(super) retries: AtomicU64,
    pub(super) throttled: AtomicU64,
    pub(super) timeouts: AtomicU64,
    pub(super) hedges: AtomicU64,
    pub(super) hedges_won: AtomicU64,
    pub(super) fell_back: AtomicU64,
}

impl Counts {
    pub(super) fn stats(&self) -> Stats {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Stats {
            requests: of(&self.requests),
            bytes: of(&self.bytes),
            retries: of(&self.retries),
            throttled: of(&self.throttled),
            timeouts: of(&self.timeouts),
            hedges: of(&self.hedges),
            hedges_won: of(&self.hedges_won),
            fell_back: of(&self.fell_back),
            ..Stats::default()
        }
    }
}
