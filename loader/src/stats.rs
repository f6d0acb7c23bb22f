//! What a loader did, in numbers.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
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
    /// How often the consumer had to wait.
    pub waits: u64,
    /// How long, all together.
    pub waited: Duration,
    /// How long the device gathered, batches beside each other counted each.
    pub gathering: Duration,
    /// The most bytes of fetched rows held at once.
    pub peak_bytes: u64,
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
}

impl Route {
    /// Its name: `mapped`, `fetched` or `decoded`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Mapped => "mapped",
            Self::Fetched => "fetched",
            Self::Decoded => "decoded",
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
    waited: AtomicU64,
    gathering: AtomicU64,
    routes: Mutex<Vec<Option<Route>>>,
}

impl Counters {
    pub(crate) fn waited(&self, time: Duration) {
        self.waits.fetch_add(1, Ordering::Relaxed);
        self.waited.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
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
        let routes = self.routes.lock().unwrap_or_else(PoisonError::into_inner);
        Stats {
            batches: get(&self.batches),
            rows: get(&self.rows),
            bytes: get(&self.bytes),
            requests: get(&self.requests),
            fetched: get(&self.fetched),
            waits: get(&self.waits),
            waited: Duration::from_nanos(get(&self.waited)),
            gathering: Duration::from_nanos(get(&self.gathering)),
            peak_bytes,
            routes: names
                .zip(routes.iter())
                .filter_map(|(name, route)| route.map(|route| (name.to_owned(), route)))
                .collect(),
        }
    }
}
