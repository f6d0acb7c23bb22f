//! What a loader did, in numbers.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU8, AtomicU64, Ordering},
    },
    time::Duration,
};

/// Counts of one epoch so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Batches handed to the consumer.
    pub batches: u64,
    /// Rows handed to the consumer.
    pub rows: u64,
    /// Bytes of batches built.
    pub bytes: u64,
    /// Requests made for rows. File indexes are not among them.
    pub requests: u64,
    /// Stored bytes that those requests brought.
    pub fetched: u64,
    /// Blocks that rows needed and that were there, or on their way, already.
    pub hits: u64,
    /// Blocks that had to be requested.
    pub misses: u64,
    /// Blocks that arrived damaged and were requested once more.
    pub refetched: u64,
    /// Rows that were at fault, and were masked or replaced.
    pub faults: u64,
    /// How often the consumer had to wait.
    pub waits: u64,
    /// How long, all together.
    pub waited: Duration,
    /// The part of that in which the next batch was not planned yet: files were opened, or memory was short.
    pub waited_for_plans: Duration,
    /// The part in which its blocks were on their way.
    pub waited_for_blocks: Duration,
    /// The part in which the device gathered it.
    pub waited_for_device: Duration,
    /// How long the planning waited for memory.
    pub short_of_memory: Duration,
    /// How long the planning waited because it was as far ahead as it may be.
    pub ahead: Duration,
    /// Batches that are planned and not gathered yet.
    pub planned: usize,
    /// Requests in flight.
    pub in_flight: usize,
    /// Batches that are there and were not taken yet.
    pub ready: usize,
    /// How long the device gathered, batches beside each other counted each.
    pub gathering: Duration,
    /// The most bytes of fetched rows held at once.
    pub peak_bytes: u64,
    /// Bytes of rows that are kept for the epochs to come.
    pub kept_bytes: u64,
    /// How each column's rows come: its name and its route.
    pub routes: Vec<(String, Route)>,
}

/// How rows of a column come to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Route {
    /// Gathered from mapped local files: one copy a byte.
    Mapped,
    /// Fetched by ranged requests into the arena.
    Fetched,
    /// Read from local files and decoded into the arena.
    Decoded,
    /// Read from where links lead to.
    Linked,
}

impl Route {
    /// Its name: `mapped`, `fetched`, `decoded` or `linked`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Mapped => "mapped",
            Self::Fetched => "fetched",
            Self::Decoded => "decoded",
            Self::Linked => "linked",
        }
    }
}

/// Where the threads of an epoch count.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) batches: AtomicU64,
    pub(crate) rows: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) requests: AtomicU64,
    pub(crate) fetched: AtomicU64,
    pub(crate) waits: AtomicU64,
    pub(crate) refetched: AtomicU64,
    hits: AtomicU64,
    misses: AtomicU64,
    waited: AtomicU64,
    waited_for: [AtomicU64; 3],
    short_of_memory: AtomicU64,
    ahead: AtomicU64,
    gathering: AtomicU64,
    routes: Mutex<Vec<Option<Route>>>,
}

impl Counters {
    /// The consumer waited for a batch, which was at this stage when it began to.
    pub(crate) fn waited(&self, time: Duration, stage: Stage) {
        self.waits.fetch_add(1, Ordering::Relaxed);
        self.waited.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
        self.waited_for[stage as usize].fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
    }

    pub(crate) fn blocks(&self, missing: usize, held: usize) {
        self.misses.fetch_add(missing as u64, Ordering::Relaxed);
        self.hits.fetch_add(held as u64, Ordering::Relaxed);
    }

    pub(crate) fn short_of_memory(&self, time: Duration) {
        self.short_of_memory.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
    }

    pub(crate) fn ahead(&self, time: Duration) {
        self.ahead.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
    }

    pub(crate) fn gathered(&self, time: Duration) {
        self.gathering.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
    }

    /// Notes how column `column` comes; the slowest route of its files counts.
    pub(crate) fn route(&self, column: usize, route: Route) {
        let mut routes = self.routes.lock().unwrap_or_else(PoisonError::into_inner);
        if routes.len() <= column {
            routes.resize(column + 1, None);
        }
        if routes[column].is_none_or(|known| known == Route::Mapped) {
            routes[column] = Some(route);
        }
    }

    pub(crate) fn snapshot<'a>(&self, names: impl Iterator<Item = &'a str>, peak_bytes: u64) -> Stats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let time = |counter: &AtomicU64| Duration::from_nanos(get(counter));
        let routes = self.routes.lock().unwrap_or_else(PoisonError::into_inner);
        Stats {
            batches: get(&self.batches),
            rows: get(&self.rows),
            bytes: get(&self.bytes),
            requests: get(&self.requests),
            fetched: get(&self.fetched),
            hits: get(&self.hits),
            misses: get(&self.misses),
            refetched: get(&self.refetched),
            waits: get(&self.waits),
            waited: time(&self.waited),
            waited_for_plans: time(&self.waited_for[0]),
            waited_for_blocks: time(&self.waited_for[1]),
            waited_for_device: time(&self.waited_for[2]),
            short_of_memory: time(&self.short_of_memory),
            ahead: time(&self.ahead),
            gathering: time(&self.gathering),
            peak_bytes,
            routes: names
                .zip(routes.iter())
                .filter_map(|(name, route)| route.map(|route| (name.to_owned(), route)))
                .collect(),
            ..Stats::default()
        }
    }
}

/// How far a batch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Stage {
    /// It isn't planned yet.
    Planning,
    /// Its blocks are on their way.
    Fetching,
    /// The device gathers it.
    Gathering,
}

/// How far the next batches are; no more of them are under way than this has places.
#[derive(Debug)]
pub(crate) struct Stages([AtomicU8; 64]);

impl Default for Stages {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU8::new(Stage::Planning as u8)))
    }
}

impl Stages {
    pub(crate) fn set(&self, step: u64, stage: Stage) {
        self.0[step as usize % self.0.len()].store(stage as u8, Ordering::Relaxed);
    }

    pub(crate) fn get(&self, step: u64) -> Stage {
        match self.0[step as usize % self.0.len()].load(Ordering::Relaxed) {
            0 => Stage::Planning,
            1 => Stage::Fetching,
            _ => Stage::Gathering,
        }
    }
}
