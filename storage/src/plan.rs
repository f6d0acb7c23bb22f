//! Which reads to make for a list of byte ranges: pure arithmetic, no IO.
//!
//! An object store answers few large requests faster than many small ones, and several middling ones at once faster than
//! one huge one. So ranges that lie close together become one read, and a read that is too large becomes several.

use std::ops::Range;

use bytes::{Bytes, BytesMut};

/// The two numbers that decide a [`Plan`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Ranges with at most this many bytes between them become one read; the bytes between are read and dropped.
    pub gap: u64,
    /// No read is longer than this; 0 means no limit.
    pub max: u64,
}

/// A part of one read that belongs to a requested range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// Which of [`Plan::reads`].
    pub read: usize,
    /// The bytes of that read, counted from its own start.
    pub bytes: Range<usize>,
}

/// The reads for a list of ranges, and how their bytes make up the ranges again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Ascending, without overlap, none empty.
    pub reads: Vec<Range<u64>>,
    /// For each requested range, in the order given, the pieces that make it up.
    pub pieces: Vec<Vec<Piece>>,
}

impl Plan {
    /// Plans the reads for `ranges`, which may overlap, repeat, be empty and come in any order.
    ///
    /// A range whose end does not lie after its start counts as empty.
    pub fn new(ranges: &[Range<u64>], limits: Limits) -> Self {
        let max = if limits.max == 0 { u64::MAX } else { limits.max };
        let mut order: Vec<usize> = (0..ranges.len()).filter(|&i| ranges[i].start < ranges[i].end).collect();
        order.sort_unstable_by_key(|&i| (ranges[i].start, ranges[i].end));

        let mut runs: Vec<Range<u64>> = Vec::new();
        for &i in &order {
            let range = &ranges[i];
            match runs.last_mut() {
                Some(run) if joins(run, range, limits.gap, max) => run.end = run.end.max(range.end),
                _ => runs.push(range.clone()),
            }
        }

        let reads: Vec<Range<u64>> = runs.into_iter().flat_map(|run| split(run, max)).collect();
        let pieces = ranges.iter().map(|range| pieces_of(range, &reads)).collect();
        Self { reads, pieces }
    }

    /// Puts the requested ranges together from the bytes of the reads, copying only what spans several reads.
    ///
    /// `reads` holds the bytes of each of [`Plan::reads`], of exactly that length.
    pub fn assemble(&self, reads: &[Bytes]) -> Vec<Bytes> {
        self.pieces
            .iter()
            .map(|pieces| match pieces.as_slice() {
                [] => Bytes::new(),
                [one] => reads[one.read].slice(one.bytes.clone()),
                several => {
                    let mut whole = BytesMut::with_capacity(several.iter().map(|p| p.bytes.len()).sum());
                    several.iter().for_each(|p| whole.extend_from_slice(&reads[p.read][p.bytes.clone()]));
                    whole.freeze()
                }
            })
            .collect()
    }
}

/// Whether `next`, which does not start before `run`, is to be read together with it.
///
/// Overlapping ranges always are, so that no byte is read twice; ranges apart only while the read stays within `max`.
fn joins(run: &Range<u64>, next: &Range<u64>, gap: u64, max: u64) -> bool {
    next.start <= run.end || (next.start - run.end <= gap && next.end - run.start <= max)
}

/// Cuts a run into parts of at most `max` bytes that differ by at most one.
fn split(run: Range<u64>, max: u64) -> impl Iterator<Item = Range<u64>> {
    let length = run.end - run.start;
    let parts = length.div_ceil(max);
    let (each, longer) = (length / parts, length % parts);
    let start_of = move |part: u64| run.start + each * part + part.min(longer);
    (0..parts).map(move |part| start_of(part)..start_of(part + 1))
}

/// The pieces of `reads` (ascending, covering `range`) that make up `range`.
fn pieces_of(range: &Range<u64>, reads: &[Range<u64>]) -> Vec<Piece> {
    let first = reads.partition_point(|read| read.end <= range.start);
    reads[first..]
        .iter()
        .enumerate()
        .take_while(|(_, read)| read.start < range.end && range.start < range.end)
        .map(|(i, read)| {
            let (start, end) = (range.start.max(read.start), range.end.min(read.end));
            Piece { read: first + i, bytes: (start - read.start) as usize..(end - read.start) as usize }
        })
        .collect()
}
