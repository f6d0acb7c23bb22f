//! How to load.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use forebay_versioning::Verify;

use crate::{
    Error, FaultPolicy, Pixels, Result, Stage,
    finish::Finish,
    order::{Sampling, Shuffle, Tail},
};

/// How a [`Loader`](crate::Loader) loads. Start from the default and change what matters:
///
/// ```
/// # use forebay_loader::{LoaderOptions, order::Shuffle};
/// let options = LoaderOptions { batch_size: 256, shuffle: Shuffle::Global, ..LoaderOptions::default() };
/// ```
#[derive(Clone, Debug)]
pub struct LoaderOptions {
    /// The columns to deliver, in this order; `None` for all.
    pub columns: Option<Vec<String>>,
    /// Columns of encoded images (JPEG, PNG, WebP) that are decoded, by name, and to what. Then they are columns of images of u8,
    /// `[height, width, channels]`, and may be finished.
    pub decode: BTreeMap<String, Pixels>,
    /// Whether a JPEG that its finish makes smaller is decoded at the least of 1/8, 1/4 and 1/2 of its size that is as large as what
    /// it, or the part that is taken, becomes; what is left is resized as always. That takes less time than to decode all of it,
    /// and pixels are averages where they would be every second, fourth or eighth. Parts are those of the full size, but for
    /// their edges, which fall on whole pixels of the smaller image. Without it the whole size is decoded first.
    pub shrink_on_load: bool,
    /// What is done to columns of images on their way into a batch, by name.
    pub finishes: BTreeMap<String, Finish>,
    /// What batches go through before they are delivered, in this order.
    pub stages: Vec<Arc<dyn Stage>>,
    /// Rows of a batch on this rank.
    pub batch_size: usize,
    /// How rows are mixed.
    pub shuffle: Shuffle,
    /// Draws rows by weight; then `shuffle` is [`Shuffle::Off`], since the order is part of the draw.
    pub sampling: Option<Sampling>,
    /// What the order depends on, besides the epoch.
    pub seed: u64,
    /// The first epoch.
    pub epoch: u64,
    /// Which of the ranks this is.
    pub rank: u32,
    /// How many ranks share an epoch.
    pub world: u32,
    /// What happens to rows that don't fill a batch.
    pub tail: Tail,
    /// Batches built ahead of the consumer.
    pub prefetch: usize,
    /// Small batches that follow each other are gathered, and delivered, as one of at most this many bytes; 0 for none but the
    /// batch itself. The first batch comes alone, and groups grow from there. Columns of free shape are never grouped; of rows that the
    /// device keeps, up to 16 batches and 4,096 rows are, however large. Where there are stages, none are.
    pub group_bytes: u64,
    /// Threads that check and decode what was fetched, and, up to `prefetch`, run stages; 0 for one a core. The device has its own for copying.
    pub threads: usize,
    /// Requests in flight; twice as many for the first batch, which waits for nothing else. The storage has a limit of
    /// its own.
    pub io_concurrency: usize,
    /// Bytes of memory for fetched rows and prefetched batches. Mapped files don't count.
    pub memory_budget: u64,
    /// Bytes of fetched or decoded rows that are kept for the epochs to come, in memory that the device gathers from, on top of
    /// `memory_budget`; 0 for none. What came first stays. Mapped files don't need it.
    pub host_cache: u64,
    /// When blocks of mapped local files are checked.
    pub verify: Verify,
    /// What happens to rows that are damaged.
    pub faults: FaultPolicy,
    /// An epoch ends with an error when its consumer has waited this long and nothing arrived.
    pub stall_timeout: Duration,
}

impl Default for LoaderOptions {
    fn default() -> Self {
        Self {
            columns: None,
            decode: BTreeMap::new(),
            shrink_on_load: true,
            finishes: BTreeMap::new(),
            stages: Vec::new(),
            batch_size: 1,
            shuffle: Shuffle::Off,
            sampling: None,
            seed: 0,
            epoch: 0,
            rank: 0,
            world: 1,
            tail: Tail::Short,
            prefetch: 2,
            group_bytes: 0,
            threads: 0,
            io_concurrency: 128,
            memory_budget: 4 << 30,
            host_cache: 0,
            verify: Verify::First,
            faults: FaultPolicy::default(),
            stall_timeout: Duration::from_secs(120),
        }
    }
}

impl LoaderOptions {
    /// The threads that check and decode.
    pub(crate) fn cores(&self) -> usize {
        if self.threads > 0 { self.threads } else { std::thread::available_parallelism().map_or(1, usize::from) }
    }

    pub(crate) fn check(&self) -> Result<()> {
        let fail =
            |option, value: &dyn ToString, reason| Err(Error::Option { option, value: value.to_string(), reason });
        if self.batch_size == 0 {
            return fail("batch_size", &self.batch_size, "a batch needs a row");
        }
        if self.batch_size > u32::MAX as usize {
            return fail("batch_size", &self.batch_size, "a batch has less than 2^32 rows");
        }
        if self.world == 0 {
            return fail("world", &self.world, "an epoch needs a rank");
        }
        if self.rank >= self.world {
            return fail("rank", &self.rank, "ranks count from 0 and stay below world");
        }
        if self.prefetch == 0 {
            return fail("prefetch", &self.prefetch, "at least one batch is built ahead");
        }
        if self.io_concurrency == 0 {
            return fail("io_concurrency", &self.io_concurrency, "at least one request must be allowed");
        }
        if self.sampling.is_some() && self.shuffle != Shuffle::Off {
            return fail(
                "shuffle",
                &format!("{:?}", self.shuffle),
                "rows that are drawn by weight have an order already",
            );
        }
        if !(0.0..=1.0).contains(&self.faults.max_rate) {
            return fail("faults.max_rate", &self.faults.max_rate, "it is a share of the rows, 0 to 1");
        }
        if let Some(columns) = &self.columns {
            if columns.is_empty() {
                return fail("columns", &"[]", "a batch needs a column");
            }
            for (index, name) in columns.iter().enumerate() {
                if columns[..index].contains(name) {
                    return fail("columns", name, "a column is named twice");
                }
            }
        }
        if let Shuffle::Windowed(window) = self.shuffle
            && (window.lanes == 0 || window.window == 0 || window.unit_bytes == 0)
        {
            return fail("shuffle", &format!("{window:?}"), "lanes, window and unit_bytes are at least 1");
        }
        if self.shuffle == Shuffle::Buffer(0) {
            return fail("shuffle", &"Buffer(0)", "a buffer holds a row");
        }
        Ok(())
    }
}
