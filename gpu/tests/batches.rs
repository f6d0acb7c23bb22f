//! Batches that tests gather: random rows of random memory, and what must come out.
#![allow(unsafe_code)]

use std::sync::Arc;

use forebay_gpu::{Column, CudaDevice, Finishing, Gathered, Place, Region, Result, Rows};
use forebay_loader::finish::{Prepared, Scratch, Window};
use proptest::prelude::*;

use crate::driver::{self, Pages};

/// Bytes that differ from their neighbours and from those of another seed.
pub(crate) fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..length)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        })
        .collect()
}

/// A column's memory and the places of its rows.
#[derive(Clone)]
pub(crate) struct Source {
    pub(crate) memory: Vec<Arc<Pages>>,
    pub(crate) places: Vec<Place>,
    /// The offsets of ragged rows, or the bytes of each.
    pub(crate) rows: Result<usize, Vec<u64>>,
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let memory: Vec<_> = self.memory.iter().map(|pages| pages.bytes().len()).collect();
        f.debug_struct("Source")
            .field("memory", &memory)
            .field("places", &self.places)
            .field("rows", &self.rows)
            .finish()
    }
}

impl Source {
    /// `count` rows of `bytes` each, in two files, at any alignment.
    pub(crate) fn fixed(count: usize, bytes: usize, seed: u64) -> Self {
        let memory = [1, 2].map(|file| driver::mapped(&noise(bytes * 8 + 977, seed + file)));
        let draws = noise(count * 8, seed + 3);
        let places = draws.chunks_exact(8).map(|draw| {
            let at = u32::from_le_bytes([draw[0], draw[1], draw[2], draw[3]]) as usize;
            Place { region: u32::from(draw[4] & 1), offset: (at % (memory[0].bytes().len() - bytes + 1)) as u64 }
        });
        let places = places.collect();
        Self { memory: memory.to_vec(), places, rows: Ok(bytes) }
    }

    /// Rows of these lengths.
    pub(crate) fn ragged(lengths: &[usize], seed: u64) -> Self {
        let longest = lengths.iter().copied().max().unwrap_or(0);
        let mut source = Self::fixed(lengths.len(), longest.max(1), seed);
        let mut offsets = vec![0];
        offsets.extend(lengths.iter().scan(0, |end, length| {
            *end += *length as u64;
            Some(*end)
        }));
        source.rows = Err(offsets);
        source
    }

    /// What is gathered, by the plainest means.
    pub(crate) fn expected(&self) -> Vec<u8> {
        let mut all = Vec::new();
        for (row, place) in self.places.iter().enumerate() {
            let bytes = match &self.rows {
                Ok(bytes) => *bytes,
                Err(offsets) => (offsets[row + 1] - offsets[row]) as usize,
            };
            let from = place.offset as usize;
            all.extend_from_slice(&self.memory[place.region as usize].bytes()[from..from + bytes]);
        }
        all
    }

    /// What is gathered and finished.
    pub(crate) fn finished(&self, prepared: &Prepared, windows: &[Window]) -> Vec<u8> {
        let rows = self.expected();
        let (mut rest, mut all) = (&rows[..], Vec::new());
        for window in windows {
            let (row, behind) = rest.split_at(prepared.row_bytes(window));
            rest = behind;
            let mut out = vec![0; prepared.out_row_bytes()];
            prepared.run(row, window, &mut out, &mut Scratch::default()).unwrap();
            all.extend_from_slice(&out);
        }
        all
    }

    pub(crate) fn regions(&self, device: &CudaDevice) -> Vec<Region> {
        self.memory.iter().map(|pages| driver::region(device, pages)).collect()
    }

    /// Its memory, of which only the first file is registered.
    pub(crate) fn half_registered(&self, device: &CudaDevice) -> Vec<Region> {
        let file = |(index, pages): (usize, &Arc<Pages>)| match index {
            0 => driver::region(device, pages),
            // SAFETY: the pages never change, and live as long as the `Arc` that goes along.
            _ => unsafe { device.unregistered(pages.bytes(), pages.clone()) },
        };
        self.memory.iter().enumerate().map(file).collect()
    }

    pub(crate) fn column<'a>(&'a self, regions: &'a [Region], finishing: Option<Finishing<'a>>) -> Column<'a> {
        let rows = match &self.rows {
            Ok(bytes) => Rows::Fixed { bytes: *bytes },
            Err(offsets) => Rows::Ragged { offsets },
        };
        Column { name: "rows", regions, places: &self.places, rows, finishing, cached: None }
    }

    /// Gathers it as a batch of its own, from memory registered for it.
    pub(crate) fn gather(&self, device: &CudaDevice) -> Result<Gathered> {
        device.gather(&[self.column(&self.regions(device), None)], &[], Box::new(()))
    }
}

/// Any rows: of one length or ragged, short, long and empty.
pub(crate) fn sources() -> impl Strategy<Value = Source> {
    let length = prop_oneof![0_usize..40, 500_usize..1100, 2000_usize..9000];
    let fixed = (0_usize..20, length.clone(), any::<u32>())
        .prop_map(|(count, bytes, seed)| Source::fixed(count, bytes, u64::from(seed)));
    let ragged = (prop::collection::vec(length, 0..20), any::<u32>())
        .prop_map(|(lengths, seed)| Source::ragged(&lengths, u64::from(seed)));
    prop_oneof![fixed, ragged]
}
