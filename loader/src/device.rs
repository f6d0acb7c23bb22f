//! The seam between the loader and what holds its batches: host memory here, a GPU in another crate.
//!
//! The loader never copies rows itself. It keeps [`Region`]s and hands a device a [`GatherPlan`] for each batch, which
//! says where every row lies; the device answers with [`Gathered`] columns in memory of its own kind.

use std::{any::Any, fmt, ops::Range, sync::Arc};

use forebay_format::{DType, FieldId};
use forebay_versioning::{OpenFile, Verify};

use crate::{
    HostBuffer, Result,
    finish::{Prepared, Window},
    ledger::Reservation,
};

/// Gathers rows into batches.
///
/// An epoch has at most [`concurrency`](Self::concurrency) calls of [`gather`](Self::gather) under way; with one, they come
/// in order of the batches. Several epochs may run at once. A device may copy after `gather` has returned as long as it keeps the plan: the plan owns what it reads from.
pub trait Device: Send + Sync + fmt::Debug {
    /// What it is, for people: `host (2 threads)`.
    fn name(&self) -> String;

    /// How many batches of an epoch it gathers at once; never more than are built ahead.
    fn concurrency(&self) -> usize {
        1
    }

    /// How many threads of an epoch look up where the rows of its batches are: at least as many as it gathers at once.
    fn planners(&self) -> usize {
        self.concurrency()
    }

    /// Of columns whose rows have so many bytes each: the bytes of this device's memory that a row takes on its way into a batch. That is
    /// less than it has where the device keeps all `rows` rows of every such column already, and needs to be told only where they are.
    fn bytes_on_the_way(&self, rows: u64, row_bytes: &[usize]) -> Vec<usize> {
        let _ = rows;
        row_bytes.to_vec()
    }

    /// Gathers a batch. One [`Gathered`] a column of the plan, in order.
    ///
    /// # Errors
    /// [`Error::Read`](crate::Error::Read) if a row of a mapped file can't be read or its checksum is wrong;
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory), [`Error::Device`](crate::Error::Device).
    fn gather(&self, plan: GatherPlan) -> Result<Vec<Gathered>>;

    /// Whether it [adopts](Self::adopt) what needn't be gathered.
    fn adopts(&self) -> bool {
        false
    }

    /// A column whose rows are all of an arena buffer of this device, side by side in order of the batch: the buffer becomes the
    /// batch's. The column's regions are left out.
    ///
    /// # Errors
    /// As [`gather`](Self::gather); [`Error::Device`](crate::Error::Device) where it adopts nothing.
    fn adopt(&self, column: &ColumnPlan, buffer: Box<dyn ArenaBuffer>) -> Result<Gathered> {
        let (name, bytes) = (&column.name, buffer.bytes().len());
        Err(crate::Error::Device { reason: format!("{bytes} bytes of column '{name}' have to be gathered") })
    }

    /// Memory for bytes that come from a store or a decoder, from which this device gathers well. The loader accounts for
    /// it before it asks.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory), [`Error::Device`](crate::Error::Device).
    fn arena(&self, bytes: usize) -> Result<Box<dyn ArenaBuffer>>;
}

/// Host memory that the loader fills and a device reads.
pub trait ArenaBuffer: Any + Send + Sync + fmt::Debug {
    /// Its bytes.
    fn bytes(&self) -> &[u8];
    /// Its bytes, to be filled.
    fn bytes_mut(&mut self) -> &mut [u8];
}

impl ArenaBuffer for HostBuffer {
    fn bytes(&self) -> &[u8] {
        self
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        self
    }
}

/// Memory that rows are gathered from.
#[derive(Clone, Debug)]
pub enum Region {
    /// A fixed-shape, uncompressed column of a mapped local file. [`Source::at`] is the row.
    Mapped(MappedColumn),
    /// Checked and decoded bytes in an arena buffer. [`Source::at`] is a byte offset.
    Arena(Arc<ArenaRegion>),
}

/// A column of a mapped local file whose rows are addressable in place.
#[derive(Clone, Debug)]
pub struct MappedColumn {
    /// The file. A device registers its map once, by the address of [`OpenFile::map`]'s bytes.
    pub file: Arc<OpenFile>,
    /// The column's place in the file's index.
    pub column: usize,
    /// When its blocks are checked.
    pub verify: Verify,
}

impl MappedColumn {
    /// Where a row's bytes lie in the map; `None` if the column isn't addressable in place or has no such row. A device that
    /// reads them there calls [`OpenFile::verify_rows`] first.
    #[must_use]
    pub fn bytes_of(&self, row: u32) -> Option<Range<usize>> {
        let column = self.file.index().columns().get(self.column)?;
        let start = column.row_offset(row)? as usize;
        Some(start..start + column.direct()?)
    }
}

impl MappedColumn {
    /// A row's bytes in the map, which nobody may have verified yet.
    pub(crate) fn bytes(&self, row: u32) -> Option<&[u8]> {
        self.file.map()?.as_slice().get(self.bytes_of(row)?)
    }
}

/// An arena buffer, and its entry in the loader's ledger: it is accounted for until the last plan that reads it is gone.
#[derive(Debug)]
pub struct ArenaRegion {
    pub(crate) buffer: Box<dyn ArenaBuffer>,
    pub(crate) _reservation: Reservation,
}

impl ArenaRegion {
    /// The buffer.
    #[must_use]
    pub fn buffer(&self) -> &dyn ArenaBuffer {
        &*self.buffer
    }
}

/// Where a row is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// The region's place in [`ColumnPlan::regions`].
    pub region: u32,
    /// The row in a mapped column, the first byte in an arena buffer.
    pub at: u64,
}

impl Source {
    /// Where a row without bytes is.
    pub const NOWHERE: Self = Self { region: u32::MAX, at: 0 };
}

/// A batch to be gathered.
#[derive(Clone, Debug)]
pub struct GatherPlan {
    /// How many rows.
    pub rows: usize,
    /// The columns.
    pub columns: Vec<ColumnPlan>,
}

/// One column of a batch to be gathered.
#[derive(Clone, Debug)]
pub struct ColumnPlan {
    /// The column's name.
    pub name: Arc<str>,
    /// Its identity.
    pub field: FieldId,
    /// Its element type.
    pub dtype: DType,
    /// How its rows are laid out behind each other.
    pub layout: PlanLayout,
    /// What `sources` point into.
    pub regions: Vec<Region>,
    /// Where each row is, in order of the batch.
    pub sources: Vec<Source>,
    /// For a nullable column one byte a row: 1 if it is valid, 0 if it is null.
    pub validity: Option<Vec<u8>>,
    /// What is done to the rows on the way; `None` delivers them as they are.
    pub finishing: Option<Finishing>,
}

/// What is done to the rows of a column as they are gathered.
#[derive(Clone, Debug)]
pub struct Finishing {
    /// What is done. The output is a C-order array `[rows, *shape]` of its shape and numbers.
    pub prepared: Arc<Prepared>,
    /// The part of each row that is taken, in order of the batch.
    pub windows: Vec<Window>,
}

/// The layout of a gathered column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanLayout {
    /// Rows of one shape: the output is a C-order array `[rows, *shape]`.
    Fixed {
        /// Bytes of a row.
        row_bytes: usize,
        /// Its shape.
        shape: Arc<[usize]>,
    },
    /// Rows of different lengths, side by side.
    Ragged {
        /// Where each row starts in the output, in bytes, and where the last ends: `rows + 1` offsets.
        offsets: Vec<u64>,
        /// The lengths of the dimensions of each row, `rank` a row.
        shapes: Vec<u32>,
    },
}

impl ColumnPlan {
    /// The bytes that are delivered of its rows, all together.
    #[must_use]
    pub fn delivered(&self) -> usize {
        match &self.finishing {
            None => self.bytes(),
            Some(finishing) => finishing.prepared.out_row_bytes() * self.sources.len(),
        }
    }

    /// The bytes of its rows, all together, before they are finished.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match &self.layout {
            PlanLayout::Fixed { row_bytes, .. } => row_bytes * self.sources.len(),
            PlanLayout::Ragged { offsets, .. } => offsets.last().map_or(0, |end| *end as usize),
        }
    }

    /// The bytes that row `row` takes among the rows, before they are finished.
    #[must_use]
    pub fn output(&self, row: usize) -> Range<usize> {
        match &self.layout {
            PlanLayout::Fixed { row_bytes, .. } => row * row_bytes..(row + 1) * row_bytes,
            PlanLayout::Ragged { offsets, .. } => offsets[row] as usize..offsets[row + 1] as usize,
        }
    }
}

/// A gathered column.
#[derive(Debug)]
pub struct Gathered {
    /// The rows' bytes.
    pub values: Buffer,
    /// For a ragged column: where each row starts in `values`, `rows + 1` little-endian `i64`.
    pub offsets: Option<Buffer>,
    /// For a nullable column: one byte a row, 1 if it is valid.
    pub validity: Option<Buffer>,
}

/// Memory that holds part of a batch.
#[derive(Debug)]
pub enum Buffer {
    /// Host memory.
    Host(HostBuffer),
    /// Memory of another device, for those who know it.
    Device(Box<dyn DeviceBuffer>),
}

impl Buffer {
    /// The host buffer, if it is one.
    #[must_use]
    pub fn host(&self) -> Option<&HostBuffer> {
        match self {
            Self::Host(buffer) => Some(buffer),
            Self::Device(_) => None,
        }
    }

    /// The host buffer, if it is one.
    #[must_use]
    pub fn into_host(self) -> Option<HostBuffer> {
        match self {
            Self::Host(buffer) => Some(buffer),
            Self::Device(_) => None,
        }
    }

    /// How many bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Host(buffer) => buffer.len(),
            Self::Device(buffer) => buffer.len(),
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Memory of a device other than the host. Downcast it ([`Any`]) to what that device's crate defines.
pub trait DeviceBuffer: Any + Send + Sync + fmt::Debug {
    /// How many bytes.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
