//! What a batch needs: how each column comes, and where its parts lie in the slot's memory.

use std::{ops::Range, sync::Arc};

use forebay_loader::finish::{Prepared, Window};

use super::{
    cache::{DeviceCache, RowKey},
    region::Region,
    route::choose,
};
use crate::{Error, Result, Route, cuda::FinishLaunch};

/// A column of a batch to be gathered.
#[derive(Clone, Copy, Debug)]
pub struct Column<'a> {
    /// Its name, for [`Stats`](crate::Stats).
    pub name: &'a str,
    /// What `places` point into.
    pub regions: &'a [Region],
    /// Where each row is, in order of the batch.
    pub places: &'a [Place],
    /// How long the rows are.
    pub rows: Rows<'a>,
    /// What is done to the rows on the device; `None` delivers them as they are.
    pub finishing: Option<Finishing<'a>>,
    /// A cache to take rows from and keep rows in, for rows of fixed length. Rows of up to [`SMALL`] bytes are never kept.
    pub cached: Option<Cached<'a>>,
}

/// Rows of at most this many bytes come packed by the CPU, and aren't kept in a cache.
pub const SMALL: usize = super::route::PACKED as usize;

/// A column's rows in a cache.
#[derive(Clone, Copy, Debug)]
pub struct Cached<'a> {
    /// The cache.
    pub cache: &'a Arc<DeviceCache>,
    /// Names each row.
    pub keys: &'a [RowKey],
    /// What [`DeviceCache::find`] gave for them. If all were found, their places don't matter.
    pub found: &'a [u64],
    /// Whether, if all were found, the consumer's own copy ([`DeviceBuffer::copy_all`](super::DeviceBuffer::copy_all)) is to
    /// take them from the cache, instead of from memory that they were brought together in.
    pub deferred: bool,
}

impl Cached<'_> {
    /// Whether every row was found.
    pub(super) fn complete(&self) -> bool {
        self.found.iter().all(|address| *address != 0)
    }
}

/// Where a row is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The region, by its place among the column's.
    pub region: u32,
    /// The row's first byte in it.
    pub offset: u64,
}

/// How long rows are.
#[derive(Clone, Copy, Debug)]
pub enum Rows<'a> {
    /// All the same.
    Fixed {
        /// Bytes of one.
        bytes: usize,
    },
    /// Each its own length.
    Ragged {
        /// Where each row starts in the output, and where the last ends, in bytes, from 0 on: one more than rows.
        offsets: &'a [u64],
    },
}

/// What is done to the rows of a column on the device.
#[derive(Clone, Copy, Debug)]
pub struct Finishing<'a> {
    /// What is done.
    pub prepared: &'a Prepared,
    /// The part of each row that is taken.
    pub windows: &'a [Window],
}

impl Column<'_> {
    /// Where row `row` goes in the gathered bytes.
    pub(super) fn output(&self, row: usize) -> Range<u64> {
        match self.rows {
            Rows::Fixed { bytes } => (row * bytes) as u64..((row + 1) * bytes) as u64,
            Rows::Ragged { offsets } => offsets[row]..offsets[row + 1],
        }
    }

    /// Bytes of row `row`.
    pub(super) fn length(&self, row: usize) -> u64 {
        let output = self.output(row);
        output.end - output.start
    }

    /// The rows in those regions that are marked, without those that have no bytes and those that a cache has.
    fn rows_in(&self, marked: &[bool]) -> Vec<u32> {
        let is_in = |row: &u32| {
            let place = self.places[*row as usize];
            let row = *row as usize;
            marked.get(place.region as usize) == Some(&true)
                && self.length(row) > 0
                && self.address_in_cache(row).is_none()
        };
        (0..self.places.len() as u32).filter(is_in).collect()
    }

    /// Where a row is in the cache, if it was found there.
    pub(super) fn address_in_cache(&self, row: usize) -> Option<u64> {
        self.cached.and_then(|cached| cached.found.get(row).copied()).filter(|address| *address != 0)
    }

    /// Where a row can be read by the device.
    pub(super) fn device_address(&self, row: usize) -> Option<u64> {
        self.address_in_cache(row).or_else(|| {
            let place = self.places[row];
            self.regions.get(place.region as usize)?.device_address(place.offset)
        })
    }

    /// Bytes of all its rows.
    pub(super) fn bytes(&self) -> u64 {
        match self.rows {
            Rows::Fixed { bytes } => (self.places.len() * bytes) as u64,
            Rows::Ragged { offsets } => offsets.last().copied().unwrap_or(0),
        }
    }

    /// Bytes of its longest row.
    pub(super) fn longest(&self) -> u64 {
        match self.rows {
            Rows::Fixed { bytes } => bytes as u64,
            Rows::Ragged { offsets } => offsets.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0),
        }
    }

    /// Bytes of all its rows once they are finished.
    pub(super) fn delivered(&self) -> u64 {
        match &self.finishing {
            None => self.bytes(),
            Some(finishing) => (self.places.len() * finishing.prepared.out_row_bytes()) as u64,
        }
    }

    /// Checks that every row is inside its region, and that the parts of the column fit each other.
    fn check(&self, column: usize) -> Result<()> {
        let rows = self.places.len();
        let out_of_bounds = |row: usize, offset: u64, bytes: u64, length: u64| {
            Err(Error::OutOfBounds { column, row, offset, bytes, length })
        };
        if let Rows::Ragged { offsets } = self.rows {
            if offsets.len() != rows + 1 || offsets[0] != 0 {
                return out_of_bounds(
                    rows,
                    offsets.first().copied().unwrap_or(0),
                    offsets.len() as u64,
                    rows as u64 + 1,
                );
            }
            if let Some(row) = offsets.windows(2).position(|pair| pair[0] > pair[1]) {
                return out_of_bounds(row, offsets[row], 0, offsets[row + 1]);
            }
        }
        if let Some(cached) = &self.cached
            && (cached.keys.len() != rows || cached.found.len() != rows || !matches!(self.rows, Rows::Fixed { .. }))
        {
            return out_of_bounds(rows, 0, cached.keys.len() as u64, cached.found.len() as u64);
        }
        let in_memory = if self.cached.is_some_and(|cached| cached.complete()) { &[] } else { self.places };
        let lengths: Vec<u64> = self.regions.iter().map(|region| region.len() as u64).collect();
        for (row, place) in in_memory.iter().enumerate() {
            let bytes = self.length(row);
            let length = lengths.get(place.region as usize).copied().unwrap_or(0);
            if place.offset.checked_add(bytes).is_none_or(|end| end > length) {
                return out_of_bounds(row, place.offset, bytes, length);
            }
        }
        let Some(finishing) = &self.finishing else { return Ok(()) };
        if finishing.windows.len() != rows {
            return Err(Error::Finish { reason: format!("{rows} rows and {} windows", finishing.windows.len()) });
        }
        for (row, window) in finishing.windows.iter().enumerate() {
            let output = self.output(row);
            let needed = finishing.prepared.row_bytes(window);
            if output.end - output.start != needed as u64 || !finishing.prepared.fits(window) {
                let bytes = output.end - output.start;
                let reason = format!(
                    "row {row} of the batch has {bytes} bytes, and an image of {needed} is needed, with its part inside"
                );
                return Err(Error::Finish { reason });
            }
        }
        Ok(())
    }
}

/// Where the parts of one column lie in the slot's memory, in bytes.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) route: Route,
    /// Whether the rows stay in the cache until the consumer copies them.
    pub(super) deferred: bool,
    /// In the plan: the device address of each row, for the kernel; behind it if the rows stay in the cache.
    pub(super) addresses: Range<usize>,
    /// In the plan: where each row goes, for ragged rows and the kernel.
    pub(super) offsets: Range<usize>,
    /// In the plan: the windows of a finish.
    pub(super) windows: Range<usize>,
    /// In the pinned memory: rows that the CPU copies.
    pub(super) packed: Range<usize>,
    /// The rows that the CPU copies, in order of the batch, if they are not all: those whose region isn't registered. The
    /// device fetches them from `packed` like the others from where they are.
    pub(super) by_cpu: Vec<u32>,
    /// In the staging memory: rows that wait for their finish.
    pub(super) staged: Range<usize>,
}

impl Part {
    /// Whether the rows, or what stands for them, are copied from the slot's pinned memory as they are.
    pub(super) fn uploaded(&self) -> bool {
        self.deferred || matches!(self.route, Route::Packed | Route::Slab)
    }
}

/// Where everything of a batch lies in the slot's memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Layout {
    pub(super) parts: Vec<Part>,
    /// In the pinned memory: bytes given by the caller.
    pub(super) extras: Vec<Range<usize>>,
    /// Bytes that go to the device as they are, from the start of the pinned memory on.
    pub(super) plan: usize,
    /// Bytes of pinned memory.
    pub(super) pinned: usize,
    /// Bytes of staging memory.
    pub(super) staging: usize,
}

const ALIGNMENT: usize = 256;

fn reserve(total: &mut usize, bytes: usize) -> Range<usize> {
    let start = total.next_multiple_of(ALIGNMENT);
    *total = start + bytes;
    start..start + bytes
}

/// Checks a batch, chooses the routes of its columns and lays it out.
pub(super) fn lay_out(
    columns: &[Column<'_>],
    extras: &[&[u8]],
    batch_copy: bool,
    only: Option<Route>,
) -> Result<Layout> {
    let mut layout = Layout::default();
    for (index, column) in columns.iter().enumerate() {
        column.check(index)?;
        let rows = column.places.len();
        let mean = column.bytes() / rows.max(1) as u64;
        // Looked at once: a region may be registered at any time.
        let refused: Vec<bool> = column.regions.iter().map(|region| region.refused().is_some()).collect();
        let registered = refused.is_empty() || refused.contains(&false);
        let complete = column.cached.filter(|cached| rows > 0 && cached.complete());
        let route = if complete.is_some() { Route::Cached } else { choose(mean, registered, batch_copy, only) };
        let deferred = complete.is_some_and(|cached| cached.deferred) && column.finishing.is_none();
        let kernel = matches!(route, Route::Kernel | Route::Cached);
        let ragged = matches!(column.rows, Rows::Ragged { .. });
        let addresses = reserve(&mut layout.plan, if kernel && !deferred { rows * 8 } else { 0 });
        let offsets = reserve(&mut layout.plan, if kernel && ragged { (rows + 1) * 8 } else { 0 });
        let windows =
            reserve(&mut layout.plan, if column.finishing.is_some() { rows * FinishLaunch::WINDOW } else { 0 });
        let staged = if column.finishing.is_some() { column.bytes() as usize } else { 0 };
        let staged = reserve(&mut layout.staging, staged);
        let in_place = matches!(route, Route::Kernel | Route::BatchCopy);
        let by_cpu = if in_place && refused.contains(&true) { column.rows_in(&refused) } else { Vec::new() };
        layout.parts.push(Part { route, deferred, addresses, offsets, windows, packed: 0..0, by_cpu, staged });
    }
    layout.pinned = layout.plan;
    for (part, column) in layout.parts.iter_mut().zip(columns) {
        let packed = match part.route {
            Route::Packed | Route::Slab => column.bytes(),
            _ => part.by_cpu.iter().map(|row| column.length(*row as usize)).sum(),
        };
        part.packed = reserve(&mut layout.pinned, packed as usize);
        if part.deferred {
            part.addresses = reserve(&mut layout.pinned, column.places.len() * 8);
        }
    }
    for extra in extras {
        layout.extras.push(reserve(&mut layout.pinned, extra.len()));
    }
    Ok(layout)
}
