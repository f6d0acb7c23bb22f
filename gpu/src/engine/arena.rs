//! Host memory for bytes that come from a store or a decoder, from which a device gathers as from a mapped file.
#![allow(unsafe_code)]

use std::{
    collections::BTreeMap,
    ptr, slice,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use super::{budget::Budget, region::Region};
use crate::{Error, Result, cuda::Context};

/// Blocks are carved out of slabs of this many bytes at most, or of one block, because registering one costs as much as filling a megabyte.
const SLAB: usize = 16 << 20;
/// Blocks have a multiple of so many bytes.
const LEAST: usize = 4 << 10;

/// Blocks of registered memory that are used again and again. Slabs stay until the last block of theirs and the device are
/// gone; there are as many as were in use at once.
#[derive(Debug)]
pub(super) struct Arenas {
    context: Arc<Context>,
    registered: Arc<Budget>,
    /// Free blocks by size.
    free: Mutex<BTreeMap<usize, Vec<Block>>>,
}

impl Arenas {
    pub(super) fn new(context: &Arc<Context>, registered: &Arc<Budget>) -> Arc<Self> {
        let (context, registered) = (Arc::clone(context), Arc::clone(registered));
        Arc::new(Self { context, registered, free: Mutex::default() })
    }

    /// A block for `length` bytes, whatever is in it.
    pub(super) fn take(self: &Arc<Self>, length: usize) -> Result<Arena> {
        let size = size_class(length);
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let blocks = free.entry(size).or_default();
        if blocks.is_empty() {
            self.carve(size, blocks)?;
        }
        let block = blocks.pop();
        Ok(Arena { block, length, arenas: Arc::downgrade(self) })
    }

    fn carve(&self, size: usize, blocks: &mut Vec<Block>) -> Result<()> {
        let count = (SLAB / size).max(1);
        let pages = Arc::new(Pages::new(count * size, self.context.numa_node())?);
        // SAFETY: the pages live as long as the `Arc` that goes along. They are written only through an `Arena`, whose owner
        // hands it to a device only once it is filled and keeps it as it is while a batch reads from it.
        let region =
            unsafe { Region::new(&self.context, &self.registered, pages.bytes(), Arc::<Pages>::clone(&pages)) };
        region.register()?;
        // The last is the first to be used.
        let block = |index| Block { region: region.clone(), pages: Arc::clone(&pages), offset: index * size, size };
        blocks.extend((0..count).rev().map(block));
        Ok(())
    }

    fn put(&self, block: Block) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.entry(block.size).or_default().push(block);
    }
}

/// The bytes of a block for `length`: a quarter more at most, but for small ones. Each size has slabs of its own.
fn size_class(length: usize) -> usize {
    let step = length.next_power_of_two() / 8;
    length.max(1).next_multiple_of(step.max(LEAST))
}

/// A part of a slab.
#[derive(Debug)]
struct Block {
    region: Region,
    pages: Arc<Pages>,
    offset: usize,
    size: usize,
}

/// Memory to be filled and gathered from; it is used again once it is dropped.
#[derive(Debug)]
pub(crate) struct Arena {
    /// `None` only while dropped.
    block: Option<Block>,
    length: usize,
    arenas: Weak<Arenas>,
}

impl Arena {
    /// The region that it is in, and where it starts in that.
    pub(crate) fn place(&self) -> Option<(&Region, u64)> {
        self.block.as_ref().map(|block| (&block.region, block.offset as u64))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.block.as_ref().map_or(&[], |block| {
            // SAFETY: the block is inside the pages, is this arena's alone, and is written only through `&mut self`.
            unsafe { slice::from_raw_parts(block.pages.start.cast::<u8>().add(block.offset), self.length) }
        })
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        let length = self.length;
        self.block.as_mut().map_or(&mut [], |block| {
            // SAFETY: as above; a device reads it only while a batch keeps the arena, and then there is no `&mut`.
            unsafe { slice::from_raw_parts_mut(block.pages.start.cast::<u8>().add(block.offset), length) }
        })
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        if let (Some(block), Some(arenas)) = (self.block.take(), self.arenas.upgrade()) {
            arenas.put(block);
        }
    }
}

/// Anonymous pages, zero at first, which a forked child doesn't get: the driver pins them.
#[derive(Debug)]
struct Pages {
    start: *mut libc::c_void,
    length: usize,
}

// SAFETY: the pages are plain bytes; who may write them is the arena's business.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

/// A mask of nodes has so many bits, more than Linux allows nodes.
const NODES: usize = 2048;

impl Pages {
    /// Pages of the host's memory at `node`, as long as there are free ones.
    fn new(length: usize, node: Option<u32>) -> Result<Self> {
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new anonymous mapping of a length above 0 touches nothing that exists.
        let start = unsafe { libc::mmap(ptr::null_mut(), length, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(Error::OutOfMemory { bytes: length as u64 });
        }
        // SAFETY: the range is the mapping just made. Advice that the system doesn't take changes nothing.
        unsafe {
            libc::madvise(start, length, libc::MADV_DONTFORK);
            libc::madvise(start, length, libc::MADV_HUGEPAGE);
        }
        let pages = Self { start, length };
        if let Some(node) = node.filter(|node| (*node as usize) < NODES - 1) {
            pages.prefer(node as usize);
        }
        Ok(pages)
    }

    fn prefer(&self, node: usize) {
        let mut nodes = [0_u64; NODES / 64];
        nodes[node / 64] = 1 << (node % 64);
        // SAFETY: the range is this value's mapping, of which no page was touched; the mask has as many bits as it is said to. Where the
        // system refuses (in some containers), pages come from wherever it takes them.
        unsafe {
            libc::syscall(libc::SYS_mbind, self.start, self.length, libc::MPOL_PREFERRED, nodes.as_ptr(), NODES, 0);
        }
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping is that long, and its bytes are initialised.
        unsafe { slice::from_raw_parts(self.start.cast(), self.length) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // In a forked child the pages aren't mapped, and another mapping may be there.
        if crate::fork::check().is_ok() {
            // SAFETY: the mapping is this value's alone.
            unsafe { libc::munmap(self.start, self.length) };
        }
    }
}
