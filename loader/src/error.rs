//! What can go wrong on the way from a selection to batches.

use std::{fmt, ops::Range, time::Duration};

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a loader could not be built, or an epoch ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An option has a value that makes no sense.
    #[error("{option} = {value}: {reason}")]
    Option {
        /// The option.
        option: &'static str,
        /// Its value.
        value: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The memory budget is too small for what has to be held at once.
    #[error(
        "memory_budget = {budget} bytes is too small: this rank's share of the shuffle window and {prefetch} prefetched \
         batches need {needed} bytes; raise the budget to that, or choose a smaller window, batch or prefetch"
    )]
    Budget {
        /// The budget.
        budget: u64,
        /// The batches to be built ahead.
        prefetch: usize,
        /// The least budget that is accepted.
        needed: u64,
    },
    /// What is to be done to a column's images on their way into a batch doesn't fit its rows.
    #[error("column '{column}' can't be finished: {reason}")]
    Finish {
        /// The column.
        column: String,
        /// What doesn't fit.
        reason: String,
    },
    /// Rows could not be read, or a checksum is wrong.
    #[error("column '{column}', {rows}: {source}")]
    Read {
        /// The column.
        column: String,
        /// The object and its rows.
        rows: RowsOf,
        /// What went wrong.
        source: Box<forebay_versioning::Error>,
    },
    /// What a link leads to can't be had, or may not be read.
    #[error("column '{column}', row {row}: {source}")]
    Link {
        /// The column.
        column: String,
        /// The row, as its table numbers it.
        row: u64,
        /// What is wrong.
        source: Box<forebay_versioning::Error>,
    },
    /// An image can't be decoded.
    #[error("column '{column}' can't be decoded: {reason}")]
    Decode {
        /// The column.
        column: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A stage of the user's failed.
    #[error("stage '{stage}': {source}")]
    Stage {
        /// Its name.
        stage: String,
        /// What it said.
        source: crate::StageError,
    },
    /// Sources can't be mixed.
    #[error("these sources can't be mixed: {reason}")]
    Mix {
        /// Why.
        reason: String,
    },
    /// A state doesn't fit the loader, or was damaged.
    #[error("the state doesn't fit this loader: its {field} is {found}, here it is {expected}")]
    State {
        /// The field that differs.
        field: &'static str,
        /// What the state says.
        found: String,
        /// What would fit.
        expected: String,
    },
    /// More rows are damaged than the policy puts up with.
    #[error("{faults} rows are faulty and {allowed} are allowed (max_faults, max_fault_rate); the last: {last}")]
    TooManyFaults {
        /// How many, on this rank and in this iteration.
        faults: u64,
        /// How many are allowed.
        allowed: u64,
        /// The last of them.
        last: Box<crate::Fault>,
    },
    /// Nothing has arrived for so long that waiting seems pointless.
    #[error("nothing arrived for {} s; waiting for {}", after.as_secs_f32(), waiting.join(", "))]
    Stalled {
        /// How long.
        after: Duration,
        /// The requests that the next batch waits for.
        waiting: Vec<String>,
    },
    /// The process was forked after the loader was made: its threads stayed behind.
    #[error(
        "the loader was made before this process was forked, and its threads stayed behind: open the lake again in the child"
    )]
    Forked,
    /// A thread of the loader died.
    #[error("the loader's {thread} thread died: please report this with the log")]
    Died {
        /// Which.
        thread: &'static str,
    },
    /// The system refused threads.
    #[error("threads could not be started: {source}")]
    Threads {
        /// What it said.
        source: std::io::Error,
    },
    /// The system refused memory.
    #[error("the system refused {bytes} bytes of memory")]
    OutOfMemory {
        /// How many bytes were asked for.
        bytes: u64,
    },
    /// A device failed.
    #[error("device: {reason}")]
    Device {
        /// What it said.
        reason: String,
    },
    /// The schema has no such column, or a file contradicts it.
    #[error(transparent)]
    Data(#[from] forebay_format::Error),
    /// The lake could not be read.
    #[error(transparent)]
    Lake(#[from] forebay_versioning::Error),
    /// The store could not be used.
    #[error(transparent)]
    Storage(#[from] forebay_storage::Error),
}

/// Rows of an object, as errors name them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowsOf {
    /// The object.
    pub path: String,
    /// The rows in it.
    pub rows: Range<u32>,
}

impl fmt::Display for RowsOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rows.len() {
            1 => write!(f, "row {} of {}", self.rows.start, self.path),
            _ => write!(f, "rows {}..{} of {}", self.rows.start, self.rows.end, self.path),
        }
    }
}
