//! Host memory for batches: aligned, recycled, and safe to hand to other runtimes by address.
//!
//! This is the only module of the crate with `unsafe` code: it owns raw allocations, and copies past the caches.
#![allow(unsafe_code)]

use std::{
    alloc::{Layout, alloc_zeroed, dealloc},
    collections::BTreeMap,
    fmt,
    ops::{Deref, DerefMut},
    ptr::NonNull,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use crate::{Error, Result};

/// Buffers start at multiples of this.
pub const ALIGNMENT: usize = 64;
/// Buffers of at least this many bytes start at a multiple of it, and the system is asked for huge pages: the first
/// touch of a batch then costs one page fault in 512.
const HUGE: usize = 2 << 20;
/// Buffers of at least this many bytes are pages of their own: the system zeroes them, and nobody again.
const PAGES: usize = 128 << 10;
/// The most bytes that may lie idle in the buffers of a pool that are in use, for buffers that are larger than what they serve by more
/// than a quarter.
const SPARE: usize = 32 << 20;

/// Memory that is recycled: a buffer goes back when it is dropped, and the last that came back is the first to go out,
/// while it may still be in the processor's caches.
///
/// Pages that the system hands out anew are cleared first, and on a virtual machine may have to be found by its host: that
/// can take longer than to fill them.
#[derive(Clone)]
pub struct HostPool {
    shared: Arc<Shared>,
}

struct Shared {
    /// Free allocations by size.
    free: Mutex<Free>,
    /// The most bytes to keep.
    keep: usize,
    /// Whether more is kept, as long as all of it is no more than was in use at once.
    keep_most: bool,
}

#[derive(Default)]
struct Free {
    by_size: BTreeMap<usize, Vec<Allocation>>,
    bytes: usize,
    /// Bytes in use, now and at most.
    used: usize,
    most: usize,
    /// Bytes in use that nobody asked for: ends of buffers that are larger than what they serve.
    spare: usize,
}

impl Free {
    /// Takes out the smallest buffer of `size` bytes or up to a quarter more, so that batches of ragged rows, no two of which are
    /// of one size, find each other's. Where a new one would be of new pages it may be twice as large, as long as no more than
    /// `spare` bytes lie idle in all that are in use.
    fn fitting(&mut self, size: usize, spare: usize) -> Option<Allocation> {
        let twice = if size >= PAGES { size.min(spare.saturating_sub(self.spare)) } else { 0 };
        let most = size + twice.max(size / 4);
        let (_, list) = self.by_size.range_mut(size..=most).find(|(_, list)| !list.is_empty())?;
        let found = list.pop()?;
        self.bytes -= found.layout.size();
        Some(found)
    }

    /// Frees buffers of other sizes than `size` until at most `keep` bytes are left; whether that was reached. The largest go first: for
    /// one that fits nobody any more, a hundred small ones would have to go, which are needed again soon.
    fn shrink(&mut self, keep: usize, size: usize) -> bool {
        while self.bytes > keep {
            let Some(other) = self.by_size.keys().copied().rfind(|other| *other != size) else { return false };
            let Some(list) = self.by_size.get_mut(&other) else { return false };
            if list.pop().is_some() {
                self.bytes -= other;
            } else {
                self.by_size.remove(&other);
            }
        }
        true
    }
}

impl HostPool {
    /// A pool that keeps at most `keep` bytes of buffers that nobody uses.
    #[must_use]
    pub fn new(keep: usize) -> Self {
        Self { shared: Arc::new(Shared { free: Mutex::default(), keep, keep_most: false }) }
    }

    /// A pool that keeps `keep` bytes or more: what it keeps and what is in use are together at most what was in use at once.
    pub(crate) fn keeping_most(keep: usize) -> Self {
        Self { shared: Arc::new(Shared { free: Mutex::default(), keep, keep_most: true }) }
    }

    /// A buffer of `len` bytes, whose contents are whatever was there: zeros or an earlier batch.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if the system has no more memory.
    pub fn take(&self, len: usize) -> Result<HostBuffer> {
        let size = size_class(len);
        let recycled = {
            let mut free = self.shared.free.lock().unwrap_or_else(PoisonError::into_inner);
            let allocation = free.fitting(size, SPARE.min(self.shared.keep));
            let spare = allocation.as_ref().map_or(0, |found| found.layout.size() - size);
            let size = size + spare;
            free.spare += spare;
            free.used += size;
            free.most = free.most.max(free.used);
            let keep = self.shared.room(&free);
            free.shrink(keep, size);
            allocation
        };
        let allocation = match recycled {
            Some(allocation) => allocation,
            None => Allocation::new(size, len).ok_or_else(|| {
                self.shared.free.lock().unwrap_or_else(PoisonError::into_inner).used -= size;
                Error::OutOfMemory { bytes: size as u64 }
            })?,
        };
        Ok(HostBuffer { allocation: Some(allocation), len, pool: Arc::downgrade(&self.shared) })
    }
}

impl Shared {
    /// The most bytes to keep beside what is in use.
    fn room(&self, free: &Free) -> usize {
        if self.keep_most { self.keep.max(free.most - free.used) } else { self.keep }
    }
}

impl fmt::Debug for HostPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let free = self.shared.free.lock().unwrap_or_else(PoisonError::into_inner).bytes;
        f.debug_struct("HostPool").field("keep", &self.shared.keep).field("free", &free).finish()
    }
}

/// Sizes that serve `len`: an eighth of waste at most, so that batches of ragged rows find each other's buffers.
fn size_class(len: usize) -> usize {
    let step = (len.max(1).next_power_of_two() / 16).max(ALIGNMENT);
    len.max(1).next_multiple_of(step)
}

/// Bytes of host memory at a fixed, 64-byte-aligned address. Goes back to its pool when dropped.
pub struct HostBuffer {
    /// Taken only by `drop`.
    allocation: Option<Allocation>,
    len: usize,
    pool: Weak<Shared>,
}

impl HostBuffer {
    /// The address of the first byte. It doesn't change while the buffer lives, also when the buffer is moved.
    #[must_use]
    pub fn as_ptr(&self) -> *const u8 {
        self.allocation.as_ref().map_or(NonNull::<u8>::dangling().as_ptr(), |allocation| allocation.start.as_ptr())
    }

    /// How many bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Deref for HostBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the allocation holds at least `len` bytes, all initialised since it was made, and is ours alone until
        // the buffer is dropped.
        unsafe { std::slice::from_raw_parts(self.as_ptr(), self.len) }
    }
}

impl DerefMut for HostBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`; `&mut self` says that nobody else looks at the bytes.
        unsafe { std::slice::from_raw_parts_mut(self.as_ptr().cast_mut(), self.len) }
    }
}

impl Drop for HostBuffer {
    fn drop(&mut self) {
        let (Some(allocation), Some(pool)) = (self.allocation.take(), self.pool.upgrade()) else { return };
        let mut free = pool.free.lock().unwrap_or_else(PoisonError::into_inner);
        let size = allocation.layout.size();
        free.used -= size;
        free.spare -= size - size_class(self.len);
        // When it's full, sizes that are no longer asked for make way.
        let keep = pool.room(&free);
        if size > keep || !free.shrink(keep - size, size) {
            return;
        }
        free.bytes += size;
        free.by_size.entry(size).or_default().push(allocation);
    }
}

impl fmt::Debug for HostBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostBuffer").field("len", &self.len).finish_non_exhaustive()
    }
}

/// Copies `from` to `to`, which is as long, past the caches where the processor can: for batches that are larger than the
/// caches, and whose consumer reads them once.
///
/// An ordinary copy reads each line of the destination before it writes it, unless it is cached still. With three batches
/// of 38 MB in turn, as a loader has them, that costs a fifth of the rate.
pub(crate) fn copy_streaming(to: &mut [u8], from: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    if to.len() == from.len() {
        let head = to.as_ptr().align_offset(LINE).min(to.len());
        let (to_head, to) = to.split_at_mut(head);
        let (from_head, from) = from.split_at(head);
        to_head.copy_from_slice(from_head);
        let (lines, rest) = to.split_at_mut(to.len() / LINE * LINE);
        let (from, from_rest) = from.split_at(lines.len());
        stream_lines(lines, from);
        rest.copy_from_slice(from_rest);
        return;
    }
    to.copy_from_slice(from);
}

/// Bytes of a cache line.
#[cfg(target_arch = "x86_64")]
const LINE: usize = 64;

/// Copies whole lines to an address that is a multiple of [`LINE`].
#[cfg(target_arch = "x86_64")]
fn stream_lines(to: &mut [u8], from: &[u8]) {
    if std::arch::is_x86_feature_detected!("avx512f") {
        // SAFETY: the processor has what the function is compiled for.
        unsafe { stream_whole_lines(to, from) };
    } else {
        stream_quarter_lines(to, from);
    }
    // SAFETY: a fence; it orders the stores above before whatever tells another thread of them.
    unsafe { std::arch::x86_64::_mm_sfence() }
}

/// A line at a time: an eighth faster than four stores of a quarter on an AMD Zen 5.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn stream_whole_lines(to: &mut [u8], from: &[u8]) {
    use std::arch::x86_64::{__m512i, _mm512_loadu_si512, _mm512_stream_si512};
    for (to, from) in to.chunks_exact_mut(LINE).zip(from.chunks_exact(LINE)) {
        let (to, from) = (to.as_mut_ptr().cast::<__m512i>(), from.as_ptr().cast::<__m512i>());
        // SAFETY: both chunks have LINE = 64 bytes; the store needs 64-byte alignment, which `to` has; the load needs none.
        unsafe { _mm512_stream_si512(to, _mm512_loadu_si512(from)) };
    }
}

#[cfg(target_arch = "x86_64")]
fn stream_quarter_lines(to: &mut [u8], from: &[u8]) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};
    for (to, from) in to.chunks_exact_mut(LINE).zip(from.chunks_exact(LINE)) {
        let (to, from) = (to.as_mut_ptr().cast::<__m128i>(), from.as_ptr().cast::<__m128i>());
        // SAFETY: both chunks have LINE = 4 * 16 bytes; stores need 16-byte alignment, which `to` has; loads need none.
        // Every x86-64 processor has SSE2.
        unsafe {
            let line = [
                _mm_loadu_si128(from),
                _mm_loadu_si128(from.add(1)),
                _mm_loadu_si128(from.add(2)),
                _mm_loadu_si128(from.add(3)),
            ];
            _mm_stream_si128(to, line[0]);
            _mm_stream_si128(to.add(1), line[1]);
            _mm_stream_si128(to.add(2), line[2]);
            _mm_stream_si128(to.add(3), line[3]);
        }
    }
}

/// Memory from the system.
struct Allocation {
    start: NonNull<u8>,
    layout: Layout,
}

impl Allocation {
    /// `size` bytes, of which `len` are used at first.
    fn new(size: usize, len: usize) -> Option<Self> {
        let align = if size >= HUGE { HUGE } else { ALIGNMENT };
        let layout = Layout::from_size_align(size, align).ok()?;
        #[cfg(target_os = "linux")]
        if size >= PAGES {
            return Some(Self { start: pages::map(size, len)?, layout });
        }
        // SAFETY: `size_class` never gives zero.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some(Self { start, layout })
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        #[cfg(target_os = "linux")]
        if self.layout.size() >= PAGES {
            pages::unmap(self.start, self.layout.size());
            return;
        }
        // SAFETY: it was allocated with this layout, and nobody else frees it.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}

/// Pages from the system, which are zero and cost nothing until they are touched. An allocator would zero them again
/// where more than its usual alignment is asked for.
#[cfg(target_os = "linux")]
mod pages {
    use std::ptr::NonNull;

    use super::HUGE;

    /// `size` bytes, of which `len` are used at first; from a multiple of [`HUGE`] if there are so many.
    pub(super) fn map(size: usize, len: usize) -> Option<NonNull<u8>> {
        let size = size.checked_next_multiple_of(4096)?;
        let slack = if size >= HUGE { HUGE } else { 0 };
        let whole = size.checked_add(slack)?;
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new anonymous mapping at an address of the system's choice touches nothing that exists.
        let address = unsafe { libc::mmap(std::ptr::null_mut(), whole, protection, flags, -1, 0) };
        if address == libc::MAP_FAILED {
            return None;
        }
        let address = NonNull::new(address.cast::<u8>())?;
        if slack == 0 {
            let used = len.next_multiple_of(4096).min(size);
            // SAFETY: the range is ours. Advice to make its pages at once; a refusal changes nothing.
            unsafe { libc::madvise(address.as_ptr().cast(), used, libc::MADV_POPULATE_WRITE) };
            return Some(address);
        }
        let head = address.as_ptr().align_offset(HUGE);
        // SAFETY: `head` is less than HUGE, and `size + HUGE` bytes were mapped.
        let (start, end) = unsafe { (address.add(head), address.add(head + size)) };
        unmap(address, head);
        unmap(end, HUGE - head);
        // SAFETY: the range is ours. This is advice about pages; a refusal changes nothing.
        unsafe { libc::madvise(start.as_ptr().cast(), size, libc::MADV_HUGEPAGE) };
        Some(start)
    }

    /// Gives pages back that [`map`] mapped and nobody points to any more.
    pub(super) fn unmap(start: NonNull<u8>, size: usize) {
        let size = size.next_multiple_of(4096);
        if size > 0 {
            // SAFETY: as promised by the callers in this file, which own the range.
            let failed = unsafe { libc::munmap(start.as_ptr().cast(), size) };
            debug_assert_eq!(failed, 0);
        }
    }
}

// SAFETY: an allocation is plain memory with one owner; shared access goes through `&HostBuffer`, which only reads.
unsafe impl Send for Allocation {}
// SAFETY: as above.
unsafe impl Sync for Allocation {}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn buffers_are_aligned_and_as_long_as_asked() {
        let pool = HostPool::new(1 << 30);
        for len in [0, 1, 63, 64, 65, 4096, 150_528, HUGE, HUGE + 1, 5 * HUGE + 77] {
            let mut buffer = pool.take(len).unwrap();
            assert_eq!(buffer.len(), len);
            assert_eq!(buffer.as_ptr() as usize % ALIGNMENT, 0);
            buffer.fill(7);
            assert!(buffer.iter().all(|byte| *byte == 7));
        }
    }

    #[test]
    fn the_last_buffer_that_came_back_goes_out_first() {
        let pool = HostPool::new(1 << 20);
        let (first, second) = (pool.take(1000).unwrap(), pool.take(1000).unwrap());
        let address = second.as_ptr();
        drop(first);
        drop(second);
        assert_eq!(pool.take(990).unwrap().as_ptr(), address);
    }

    #[test]
    fn a_full_pool_lets_go_of_the_largest_first() {
        let pool = HostPool::new(100_000);
        let small: Vec<_> = (0..4).map(|_| pool.take(10_000).unwrap()).collect();
        let addresses: Vec<_> = small.iter().map(HostBuffer::as_ptr).collect();
        let large = pool.take(50_000).unwrap();
        drop((small, large));
        drop(pool.take(30_000).unwrap());
        let again: Vec<_> = (0..4).map(|_| pool.take(10_000).unwrap()).collect();
        assert!(again.iter().all(|buffer| addresses.contains(&buffer.as_ptr())));
    }

    #[test]
    fn a_buffer_serves_who_asks_for_somewhat_less() {
        let pool = HostPool::new(1 << 20);
        let buffer = pool.take(100_000).unwrap();
        let address = buffer.as_ptr();
        drop(buffer);
        assert_ne!(pool.take(60_000).unwrap().as_ptr(), address);
        let less = pool.take(90_000).unwrap();
        assert_eq!((less.as_ptr(), less.len()), (address, 90_000));
        drop(less);
        assert_eq!(pool.take(100_000).unwrap().as_ptr(), address, "it is as long as it was");
    }

    #[test]
    fn a_buffer_of_many_pages_serves_who_asks_for_half_while_little_lies_idle() {
        let pool = HostPool::new(1 << 30);
        let large: Vec<_> = (0..8).map(|_| pool.take(16 << 20).unwrap()).collect();
        let addresses: Vec<_> = large.iter().map(HostBuffer::as_ptr).collect();
        drop(large);
        let half: Vec<_> = (0..8).map(|_| pool.take(8 << 20).unwrap()).collect();
        let recycled = half.iter().filter(|buffer| addresses.contains(&buffer.as_ptr())).count();
        assert_eq!(recycled, SPARE / (8 << 20));
        drop(half);
        assert_eq!(pool.shared.free.lock().unwrap().spare, 0);
        assert!(!addresses.contains(&pool.take(7 << 20).unwrap().as_ptr()), "one of its own size comes first");
    }

    #[test]
    fn a_streaming_copy_copies_every_byte_and_no_other() {
        let from: Vec<u8> = (0..700).map(|byte| byte as u8 ^ 0x5a).collect();
        for start in 0..70 {
            for length in [0, 1, 15, 63, 64, 65, 128, 200, 600] {
                for offset in [0, 1, 9] {
                    let mut to = vec![0xee; 800];
                    copy_streaming(&mut to[start..start + length], &from[offset..offset + length]);
                    assert_eq!(to[start..start + length], from[offset..offset + length]);
                    assert!(to[..start].iter().chain(&to[start + length..]).all(|byte| *byte == 0xee));
                }
            }
        }
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn lines_are_streamed_alike_by_processors_of_all_kinds() {
        let from: Vec<u8> = (0..LINE * 9 + 5).map(|byte| byte as u8 ^ 0x5a).collect();
        let pool = HostPool::new(0);
        for stream in [stream_lines, stream_quarter_lines] {
            let mut to = pool.take(LINE * 9).unwrap();
            stream(&mut to, &from[5..]);
            assert_eq!(&to[..], &from[5..]);
        }
    }

    #[test]
    fn a_pool_keeps_no_more_than_it_may() {
        let pool = HostPool::new(10_000);
        let buffers: Vec<_> = (0..20).map(|index| pool.take(500 + index * 100).unwrap()).collect();
        drop(buffers);
        assert!(pool.shared.free.lock().unwrap().bytes <= 10_000);
        drop(pool.take(20_000).unwrap());
        assert!(pool.shared.free.lock().unwrap().bytes <= 10_000);
    }

    #[test]
    fn a_pool_may_keep_what_was_in_use_at_once_and_no_more() {
        let pool = HostPool::keeping_most(10_000);
        let size = size_class(50_000);
        let buffers: Vec<_> = (0..4).map(|_| pool.take(50_000).unwrap()).collect();
        drop(buffers);
        let held = |pool: &HostPool| {
            let free = pool.shared.free.lock().unwrap();
            (free.used, free.bytes)
        };
        assert_eq!(held(&pool), (0, 4 * size), "all that was in use");
        let half = pool.take(2 * size).unwrap();
        assert_eq!(held(&pool), (2 * size, 2 * size), "buffers of another size make way");
        drop(half);
        assert_eq!(held(&pool), (0, 4 * size));
        let most: Vec<_> = (0..6).map(|_| pool.take(50_000).unwrap()).collect();
        assert_eq!(held(&pool), (6 * size, 0));
        drop(most);
        assert_eq!(held(&pool), (0, 6 * size));
    }

    #[test]
    fn a_buffer_outlives_its_pool() {
        let pool = HostPool::new(1 << 20);
        let buffer = pool.take(100).unwrap();
        drop(pool);
        assert_eq!(buffer.len(), 100);
    }
}
