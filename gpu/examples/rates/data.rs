//! A file of noise in the page cache, and orders of its rows.

use std::{fs::File, io::Write, path::Path, sync::Arc};

use forebay_gpu::{CudaDevice, Place, Region};
use memmap2::{Mmap, MmapOptions};

use crate::Result;

pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z ^ (z >> 29)
    }

    pub(crate) fn below(&mut self, count: usize) -> usize {
        (self.next() % count.max(1) as u64) as usize
    }
}

pub(crate) fn map(path: &Path, bytes: usize) -> Result<Arc<Mmap>> {
    let mut file = File::create(path)?;
    let mut random = Random(1);
    let mut block = Vec::with_capacity(8 << 20);
    for _ in 0..bytes.div_ceil(8 << 20) {
        block.clear();
        block.extend((0..1 << 20).flat_map(|_| random.next().to_le_bytes()));
        file.write_all(&block)?;
    }
    // SAFETY: the file is this program's own, and no longer written.
    Ok(Arc::new(unsafe { MmapOptions::new().populate().map(&File::open(path)?)? }))
}

pub(crate) fn region(device: &CudaDevice, memory: &Arc<Mmap>) -> Result<Region> {
    // SAFETY: the mapping lives as long as the `Arc` that goes along, and nobody writes its file.
    Ok(unsafe { device.region(memory, memory.clone())? })
}

/// All rows of `bytes` each, in a random order.
pub(crate) fn shuffled(length: usize, bytes: usize) -> Vec<Place> {
    let mut places: Vec<_> = (0..length / bytes).map(|row| Place { region: 0, offset: (row * bytes) as u64 }).collect();
    let mut random = Random(7);
    for last in (1..places.len()).rev() {
        places.swap(last, random.below(last + 1));
    }
    places
}
