//! What the CPU does for a batch: the addresses of its rows, and the bytes of rows that it copies itself.

use std::ops::Range;

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
            pack(column, Packed::Some(&part.by_cpu), packed, threads);
        } else if !packed.is_empty() {
            pack(column, Packed::All(0, column.places.len()), packed, threads);
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
    let found = column.cached.map_or(&[][..], |cached| cached.found);
    // Looked at once, not for each row: a row without bytes may be nowhere.
    let bases: Vec<Option<u64>> = column.regions.iter().map(|region| region.device_address(0)).collect();
    for (row, to) in pinned[part.addresses.clone()].as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let address = match found.get(row) {
            Some(address) if *address != 0 => *address,
            _ => copied(row).unwrap_or_else(|| {
                let place = column.places[row];
                let base = bases.get(place.region as usize).copied().flatten();
                base.map_or(0, |base| base.wrapping_add(place.offset))
            }),
        };
        *to = address.to_le_bytes();
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
fn pack(column: &Column<'_>, rows: Packed<'_>, out: &mut [u8], threads: usize) {
    let workers = threads.min(out.len() / PER_THREAD).clamp(1, rows.len().max(1));
    if workers == 1 {
        return copy(column, rows, out);
    }
    std::thread::scope(|scope| {
        let (mut rest, each, mut first) = (out, rows.len().div_ceil(workers), 0);
        while first < rows.len() {
            let mine = rows.part(first..(first + each).min(rows.len()));
            let bytes: u64 = (0..mine.len()).map(|index| column.length(mine.row(index))).sum();
            let (to, behind) = rest.split_at_mut(bytes as usize);
            rest = behind;
            first += each;
            scope.spawn(move || copy(column, mine, to));
        }
    });
}

/// Rows that the CPU copies.
#[derive(Clone, Copy)]
enum Packed<'a> {
    /// These, in order.
    Some(&'a [u32]),
    /// So many from this one on.
    All(usize, usize),
}

impl Packed<'_> {
    fn len(&self) -> usize {
        match self {
            Self::Some(rows) => rows.len(),
            Self::All(_, count) => *count,
        }
    }

    fn row(&self, index: usize) -> usize {
        match self {
            Self::Some(rows) => rows[index] as usize,
            Self::All(first, _) => first + index,
        }
    }

    fn part(self, range: Range<usize>) -> Self {
        match self {
            Self::Some(rows) => Self::Some(&rows[range]),
            Self::All(first, _) => Self::All(first + range.start, range.len()),
        }
    }
}

fn copy(column: &Column<'_>, rows: Packed<'_>, out: &mut [u8]) {
    match (column.rows, rows) {
        (Rows::Fixed { bytes: 1 }, Packed::All(first, count)) => copy_small::<1>(column, first..first + count, out),
        (Rows::Fixed { bytes: 2 }, Packed::All(first, count)) => copy_small::<2>(column, first..first + count, out),
        (Rows::Fixed { bytes: 4 }, Packed::All(first, count)) => copy_small::<4>(column, first..first + count, out),
        (Rows::Fixed { bytes: 8 }, Packed::All(first, count)) => copy_small::<8>(column, first..first + count, out),
        _ => copy_any(column, rows, out),
    }
}

/// Rows of `BYTES` each: labels and numbers, of which there may be many more than of anything else that is packed.
fn copy_small<const BYTES: usize>(column: &Column<'_>, rows: Range<usize>, out: &mut [u8]) {
    for (place, to) in column.places[rows].iter().zip(out.as_chunks_mut::<BYTES>().0) {
        let from = place.offset as usize;
        if let Some(bytes) = column.regions[place.region as usize].bytes(from..from + BYTES).first_chunk() {
            *to = *bytes;
        }
    }
}

fn copy_any(column: &Column<'_>, rows: Packed<'_>, mut out: &mut [u8]) {
    for row in (0..rows.len()).map(|index| rows.row(index)) {
        let (place, bytes) = (column.places[row], column.length(row) as usize);
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
