//! What a device did, in numbers.

use std::{collections::BTreeMap, fmt, time::Duration};

/// Counts of a device since it was opened.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Batches asked for.
    pub batches: u64,
    /// Bytes that were brought to the device.
    pub bytes: u64,
    /// How long batches waited for one before them to be there: the link, or the device, was the limit.
    pub waited: Duration,
    /// How long the CPU was busy with plans, packing and calls.
    pub busy: Duration,
    /// Bytes of registered and pinned host memory.
    pub registered: u64,
    /// Bytes of device memory.
    pub device: u64,
    /// The function of the driver that copies batches of rows, if it has one.
    pub batch_copy: Option<&'static str>,
    /// Each column by name.
    pub columns: BTreeMap<String, ColumnStats>,
}

/// What a cache holds and did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheStats {
    /// Bytes that it may take.
    pub budget: u64,
    /// Bytes that it took.
    pub bytes: u64,
    /// Rows that it holds.
    pub rows: u64,
    /// Rows that were asked for and there.
    pub hits: u64,
    /// Rows that were asked for and not there.
    pub misses: u64,
    /// Why it takes no more rows.
    pub full: Option<String>,
}

/// How a column's rows came.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ColumnStats {
    /// The route of its last batch.
    pub route: Route,
    /// Why some of its last batch's memory wasn't registered: the CPU copies the rows that lie there.
    pub refused: Option<String>,
    /// Rows.
    pub rows: u64,
    /// Bytes brought.
    pub bytes: u64,
    /// Bytes that the CPU copied for that: because rows are small, or their memory wasn't registered.
    pub copied: u64,
}

impl ColumnStats {
    pub(crate) fn new(route: Route) -> Self {
        Self { route, refused: None, rows: 0, bytes: 0, copied: 0 }
    }
}

/// How the rows of a column come to the device, fastest for its rows first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Route {
    /// A kernel reads the rows from a cache in device memory.
    Cached,
    /// The device's copy engines fetch each row from registered host memory: one call a batch.
    BatchCopy,
    /// A kernel reads the rows from registered host memory.
    Kernel,
    /// The CPU packs the rows into one pinned slab, because they are small.
    Packed,
    /// The CPU copies the rows into a pinned slab, because none of their memory is registered.
    Slab,
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cached => "device-cache",
            Self::BatchCopy => "batch-copy",
            Self::Kernel => "kernel",
            Self::Packed => "packed",
            Self::Slab => "slab",
        })
    }
}
