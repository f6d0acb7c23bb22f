//! What the CPU does for a batch: the addresses of its rows, and the bytes of rows that it copies itself.

use super::{
    plan::{Column, Layout, Part, Rows},
    region::Region,
};
use crate::{Error, cuda::FinishLaunch};

/// One thread copies up to this many bytes.
const PER_THREAD: usize = 4 << 20;

/// Writes the plan and the packed rows into the slot's pinned memory, which devices see at `address`.
pub(super) fn fill(
    columns: &[Column<'_>],
    extras: &[&[u8]],
    layout: &Layout,
    pinned: &mut [u8],
    address: u64,
    threads: usize,
) {
    for (column, part) in columns.iter().zip(&layout.parts) {
        write_plan(column, part, pinned, address);
        let packed = &mut pinned[part.packed.clone()];
        if !part.by_cpu.is_empty() {
            pack(column, &part.by_cpu, packed, threads);
        } else if !packed.is_empty() {
            pack(column, &(0..column.places.len() as u32).collect::<Vec<_>>(), packed, threads);
        }
    }
    for (extra, range) in extras.iter().zip(&layout.extras) {
        pinned[range.clone()].copy_from_slice(extra);
    }
}

/// Where the device finds each row that the CPU copied to the slot's pinned memory at `address`; rows are asked for in order.
fn copied<'a>(column: &'a Column<'_>, part: &'a Part, address: u64) -> impl FnMut(usize) -> Option<u64> + use<'a> {
    let mut rows = part.by_cpu.iter().peekable();
    let mut next = address + part.packed.start as u64;
    move |row| {
        rows.next_if(|copied| **copied as usize == row)?;
        let at = next;
        next += column.length(row);
        Some(at)
    }
}

fn write_plan(column: &Column<'_>, part: &Part, pinned: &mut [u8], address: u64) {
    let mut copied = copied(column, part, address);
    for (row, to) in pinned[part.addresses.clone()].chunks_exact_mut(8).enumerate() {
        // A row without bytes may be nowhere.
        let address = copied(row).or_else(|| column.device_address(row)).unwrap_or(0);
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

/// Copies these rows side by side into `out`, by several threads if they are many bytes.
fn pack(column: &Column<'_>, rows: &[u32], out: &mut [u8], threads: usize) {
    let workers = threads.min(out.len() / PER_THREAD).clamp(1, rows.len().max(1));
    if workers == 1 {
        return copy(column, rows, out);
    }
    std::thread::scope(|scope| {
        let mut rest = out;
        for rows in rows.chunks(rows.len().div_ceil(workers)) {
            let bytes: u64 = rows.iter().map(|row| column.length(*row as usize)).sum();
            let (mine, behind) = rest.split_at_mut(bytes as usize);
            rest = behind;
            scope.spawn(move || copy(column, rows, mine));
        }
    });
}

fn copy(column: &Column<'_>, rows: &[u32], mut out: &mut [u8]) {
    for row in rows {
        let (place, bytes) = (column.places[*row as usize], column.length(*row as usize) as usize);
        let (mine, rest) = out.split_at_mut(bytes);
        if bytes > 0 {
            let from = place.offset as usize;
            mine.copy_from_slice(column.regions[place.region as usize].bytes(from..from + bytes));
        }
        out = rest;
    }
}

/// The pieces of one batched copy.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    pub(super) to: Vec<u64>,
    pub(super) from: Vec<u64>,
    pub(super) bytes: Vec<usize>,
}

/// The copies that bring a column's rows to device memory at `out`, those that the CPU copied from the slot's pinned memory at
/// `pinned`. Rows that lie side by side in one region are one copy.
pub(super) fn pieces(column: &Column<'_>, index: usize, part: &Part, pinned: u64, out: u64) -> Result<Pieces, Error> {
    let mut pieces = Pieces::default();
    let mut copied = copied(column, part, pinned);
    let mut last = None;
    for (row, place) in column.places.iter().enumerate() {
        let output = column.output(row);
        let bytes = output.end - output.start;
        if bytes == 0 {
            continue;
        }
        let by_cpu = copied(row);
        let Some(from) = by_cpu.or_else(|| column.device_address(row)) else {
            let length = column.regions.get(place.region as usize).map_or(0, Region::len) as u64;
            return Err(Error::OutOfBounds { column: index, row, offset: place.offset, bytes, length });
        };
        // Two rows of a cache aren't one copy even side by side: they may be in two slabs.
        let in_region = by_cpu.is_none() && column.address_in_cache(row).is_none();
        let near = in_region.then_some((place.region, place.offset));
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
