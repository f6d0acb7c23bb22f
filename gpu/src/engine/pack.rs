//! What the CPU does for a batch: the addresses of its rows, and the bytes of rows that it copies itself.

use super::{
    plan::{Column, Layout, Part, Rows},
    region::Region,
};
use crate::{Error, cuda::FinishLaunch};

/// One thread copies up to this many bytes.
const PER_THREAD: usize = 4 << 20;

/// Writes the plan and the packed rows into the slot's pinned memory.
pub(super) fn fill(columns: &[Column<'_>], extras: &[&[u8]], layout: &Layout, pinned: &mut [u8], threads: usize) {
    for (column, part) in columns.iter().zip(&layout.parts) {
        write_plan(column, part, pinned);
        pack(column, &mut pinned[part.packed.clone()], threads);
    }
    for (extra, range) in extras.iter().zip(&layout.extras) {
        pinned[range.clone()].copy_from_slice(extra);
    }
}

fn write_plan(column: &Column<'_>, part: &Part, pinned: &mut [u8]) {
    for (row, to) in pinned[part.addresses.clone()].chunks_exact_mut(8).enumerate() {
        // The route is the kernel's only if every region is registered; a row without bytes may have none.
        let address = column.device_address(row).unwrap_or(0);
        to.copy_from_slice(&address.to_le_bytes());
    }
    if let Rows::Ragged { offsets } = column.rows {
        for (offset, to) in offsets.iter().zip(pinned[part.offsets.clone()].chunks_exact_mut(8)) {
            to.copy_from_slice(&offset.to_le_bytes());
        }
    }
    if let Some(finishing) = &column.finishing {
        let windows = pinned[part.windows.clone()].chunks_exact_mut(FinishLaunch::WINDOW);
        for ((row, window), to) in finishing.windows.iter().enumerate().zip(windows) {
            to.copy_from_slice(&FinishLaunch::encode(window, column.output(row).start));
        }
    }
}

/// Copies rows side by side into `out`, by several threads if they are many bytes.
fn pack(column: &Column<'_>, out: &mut [u8], threads: usize) {
    let rows = column.places.len();
    let workers = threads.min(out.len() / PER_THREAD).min(rows).max(1);
    if out.is_empty() {
        return;
    }
    if workers == 1 {
        return copy(column, 0, out);
    }
    std::thread::scope(|scope| {
        let (mut rest, mut row) = (out, 0);
        for worker in 0..workers {
            let end = rows * (worker + 1) / workers;
            let bytes = column.output(end - 1).end - column.output(row).start;
            let (mine, behind) = rest.split_at_mut(bytes as usize);
            rest = behind;
            let first = row;
            scope.spawn(move || copy(column, first, mine));
            row = end;
        }
    });
}

/// Copies the rows from `first` on until `out` is full.
fn copy(column: &Column<'_>, first: usize, mut out: &mut [u8]) {
    let mut row = first;
    while !out.is_empty() {
        let (place, output) = (column.places[row], column.output(row));
        let bytes = (output.end - output.start) as usize;
        let (mine, rest) = out.split_at_mut(bytes);
        if bytes > 0 {
            let from = place.offset as usize;
            mine.copy_from_slice(column.regions[place.region as usize].bytes(from..from + bytes));
        }
        out = rest;
        row += 1;
    }
}

/// The pieces of one batched copy.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    pub(super) to: Vec<u64>,
    pub(super) from: Vec<u64>,
    pub(super) bytes: Vec<usize>,
}

/// The copies that bring a column's rows to device memory at `out`. Rows that lie side by side in one region are one copy.
pub(super) fn pieces(column: &Column<'_>, index: usize, out: u64) -> Result<Pieces, Error> {
    let mut pieces = Pieces::default();
    let mut last = None;
    for (row, place) in column.places.iter().enumerate() {
        let output = column.output(row);
        let bytes = output.end - output.start;
        if bytes == 0 {
            continue;
        }
        let Some(from) = column.device_address(row) else {
            let length = column.regions.get(place.region as usize).map_or(0, Region::len) as u64;
            return Err(Error::OutOfBounds { column: index, row, offset: place.offset, bytes, length });
        };
        // Two rows of a cache aren't one copy even side by side: they may be in two slabs.
        let near = (column.address_in_cache(row).is_none()).then_some((place.region, place.offset));
        match pieces.bytes.last_mut() {
            Some(before) if near.is_some() && last == near => *before += bytes as usize,
            _ => {
                pieces.to.push(out + output.start);
                pieces.from.push(from);
                pieces.bytes.push(bytes as usize);
            }
        }
        last = near.map(|(region, offset)| (region, offset + bytes));
    }
    Ok(pieces)
}
