//! What a loader delivers.

use std::sync::Arc;

use forebay_format::{DType, Dim};

use crate::device::Buffer;

/// A batch: some rows of the selected columns, in memory of the loader's device. With
/// [`LoaderOptions::group_bytes`](crate::LoaderOptions::group_bytes), several batches side by side.
#[derive(Debug)]
pub struct Batch {
    /// The step within the iteration, from 0; of the first, if it is several batches.
    pub step: u64,
    /// How many batches it is: each has [`LoaderOptions::batch_size`](crate::LoaderOptions::batch_size) rows, but the last of an
    /// epoch, which may have fewer.
    pub count: u64,
    /// The epoch's positions of its rows; [`NO_ROW`](Self::NO_ROW) for those that fill it up.
    pub positions: Vec<u64>,
    /// The table's row numbers of its rows; [`NO_ROW`](Self::NO_ROW) for those that fill it up.
    pub rows: Vec<u64>,
    /// In a mixture, the number of the source of each row.
    pub sources: Option<Vec<u32>>,
    /// If rows may be masked, by [`Tail::Pad`](crate::Tail::Pad) or [`OnFault::Skip`](crate::OnFault::Skip): for each row whether
    /// it counts. Those that don't are zeros, empty, or null.
    pub mask: Option<Vec<bool>>,
    /// The columns, in the order asked for.
    pub columns: Vec<BatchColumn>,
}

impl Batch {
    /// Stands for the row, and the position, of what only fills a batch up.
    pub const NO_ROW: u64 = u64::MAX;
}

/// What a column of every batch is, known before the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchField {
    /// Its name.
    pub name: Arc<str>,
    /// Its element type.
    pub dtype: DType,
    /// The shape of one row.
    pub shape: Vec<Dim>,
    /// Whether a validity comes with it.
    pub nullable: bool,
}

/// A column of a batch.
#[derive(Debug)]
pub struct BatchColumn {
    /// Its name.
    pub name: Arc<str>,
    /// Its element type.
    pub dtype: DType,
    /// Its rows.
    pub values: BatchValues,
    /// For a nullable column one byte a row: 1 if it is valid, 0 if it is null (and zero-filled or empty).
    pub validity: Option<Buffer>,
}

impl BatchValues {
    /// How many rows there are.
    #[must_use]
    pub fn rows(&self) -> usize {
        match self {
            Self::Fixed { shape, .. } => shape.first().copied().unwrap_or_default(),
            Self::Ragged { offsets, .. } => (offsets.len() / size_of::<i64>()).saturating_sub(1),
        }
    }
}

/// The rows of a column of a batch.
#[derive(Debug)]
pub enum BatchValues {
    /// Rows of one shape: a C-order, little-endian array.
    Fixed {
        /// Its shape, rows first.
        shape: Vec<usize>,
        /// The array.
        buffer: Buffer,
    },
    /// Rows of different lengths: ragged tensors, text, bytes, JSON.
    Ragged {
        /// Byte offsets of the rows in `bytes`: `rows + 1` little-endian `i64`.
        offsets: Buffer,
        /// Lengths of the dimensions of each row, in order of the rows; for text, bytes and JSON empty, or the decoded shapes
        /// of encoded media.
        shapes: Vec<u32>,
        /// The rows, one behind the other.
        bytes: Buffer,
    },
}
