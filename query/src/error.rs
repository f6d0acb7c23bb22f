//! What can go wrong while rows are chosen.

use std::ops::Range;

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why rows could not be chosen.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No column was named, so there is nothing to choose by.
    #[error("table '{table}': name at least one column to choose rows by; it has {}", known.join(", "))]
    NoColumns {
        /// The table.
        table: String,
        /// Its columns.
        known: Vec<String>,
    },
    /// A predicate gave another number of answers than it got rows.
    #[error("the predicate gave {found} answers for the {} rows {}..{} of table '{table}'", rows.end - rows.start, rows.start, rows.end)]
    Mask {
        /// The table.
        table: String,
        /// The rows that it was asked about.
        rows: Range<u64>,
        /// How many answers came.
        found: usize,
    },
    /// A predicate failed.
    #[error("the predicate failed on rows {}..{} of table '{table}': {source}", rows.start, rows.end)]
    Predicate {
        /// The table.
        table: String,
        /// The rows that it was asked about.
        rows: Range<u64>,
        /// What it said.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The table could not be read.
    #[error(transparent)]
    Lake(#[from] forebay_versioning::Error),
}
