//! Device memory and pinned host memory.
#![allow(unsafe_code)]

use std::{ffi::c_void, ptr, slice, sync::Arc};

use cust::sys;

use super::{
    context::{Context, check},
    stream::{Stream, StreamRef},
};
use crate::Result;

const PORTABLE: u32 = 1;

/// Memory of a device, aligned to 256 bytes and padded to a multiple of 16.
#[derive(Debug)]
pub(crate) struct DeviceMemory {
    address: u64,
    length: usize,
    context: Arc<Context>,
}

impl DeviceMemory {
    pub(crate) fn new(context: &Arc<Context>, length: usize) -> Result<Self> {
        let _entered = context.enter()?;
        let mut address = 0;
        // SAFETY: the function writes one address. A length of 0 is refused by the driver, so 16 bytes stand for it.
        check("cuMemAlloc", unsafe { sys::cuMemAlloc_v2(&raw mut address, length.next_multiple_of(16).max(16)) })?;
        Ok(Self { address, length, context: Arc::clone(context) })
    }

    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    pub(crate) fn length(&self) -> usize {
        self.length
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        if let Ok(_entered) = self.context.enter() {
            // SAFETY: the memory is this value's alone. `cuMemFree` waits for the device's work, so no copy or kernel
            // still uses it.
            let _ = unsafe { sys::cuMemFree_v2(self.address) };
        }
    }
}

/// Page-locked host memory, which a device reads at the rate of the link. It is not write-combined: the CPU reads it.
#[derive(Debug)]
pub(crate) struct Pinned {
    start: *mut u8,
    length: usize,
    context: Arc<Context>,
}

// SAFETY: the memory is plain bytes, reached through `&` and `&mut` of this value alone.
unsafe impl Send for Pinned {}
// SAFETY: as above; nothing is written through `&self`.
unsafe impl Sync for Pinned {}

impl Pinned {
    pub(crate) fn new(context: &Arc<Context>, length: usize) -> Result<Self> {
        let _entered = context.enter()?;
        let mut start: *mut c_void = ptr::null_mut();
        // SAFETY: the function writes one pointer.
        check("cuMemHostAlloc", unsafe { sys::cuMemHostAlloc(&raw mut start, length.max(16), PORTABLE) })?;
        // SAFETY: the allocation is at least `length` bytes long, and new, so nobody else writes it.
        unsafe { ptr::write_bytes(start.cast::<u8>(), 0, length) };
        Ok(Self { start: start.cast(), length, context: Arc::clone(context) })
    }

    pub(crate) fn length(&self) -> usize {
        self.length
    }

    pub(crate) fn address(&self) -> *const u8 {
        self.start
    }

    /// Where devices see it: with one address space for all, as 64-bit systems have it, where the host does.
    pub(crate) fn device_address(&self) -> u64 {
        self.start as u64
    }

    /// The bytes, to be written. No copy from this memory may be under way.
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the memory is `length` initialised bytes, and `&mut self` is the only way to them in this process. A
        // device that still reads them would read torn bytes, which the slots' events prevent; it writes none.
        unsafe { slice::from_raw_parts_mut(self.start, self.length) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if let Ok(_entered) = self.context.enter() {
            // SAFETY: the memory is this value's alone; the driver waits for copies from it.
            let _ = unsafe { sys::cuMemFreeHost(self.start.cast()) };
        }
    }
}

/// Copies device memory, to which nothing is being written, into new host memory.
pub(crate) fn copy_to_host(context: &Arc<Context>, address: u64, length: usize) -> Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    if length == 0 {
        return Ok(bytes);
    }
    let stream = Stream::new(context)?;
    let _entered = context.enter()?;
    // SAFETY: the vector is `length` bytes long and isn't touched until the stream has run the copy, below.
    check("cuMemcpyDtoHAsync", unsafe {
        sys::cuMemcpyDtoHAsync_v2(bytes.as_mut_ptr().cast(), address, length, stream.handle().raw())
    })?;
    stream.synchronize()?;
    Ok(bytes)
}

/// Asks `stream` to copy `length` bytes of pinned memory, from `offset` on, to the device memory at `to`.
///
/// # Safety
/// The pinned bytes aren't written, and the device memory is there, until the stream has run the copy.
pub(crate) unsafe fn upload(
    context: &Context,
    to: u64,
    pinned: &Pinned,
    offset: usize,
    length: usize,
    stream: StreamRef,
) -> Result<()> {
    if length == 0 {
        return Ok(());
    }
    let _entered = context.enter()?;
    let from = pinned.address().wrapping_add(offset);
    debug_assert!(offset + length <= pinned.length());
    // SAFETY: the range is inside the pinned memory; the caller vouches for the rest.
    check("cuMemcpyHtoDAsync", unsafe { sys::cuMemcpyHtoDAsync_v2(to, from.cast(), length, stream.raw()) })
}

/// Asks `stream` to copy `length` bytes of device memory.
///
/// # Safety
/// Both ranges are device memory that stays until the stream has run the copy, and nothing else writes them meanwhile.
pub(crate) unsafe fn copy_on_device(
    context: &Context,
    to: u64,
    from: u64,
    length: usize,
    stream: StreamRef,
) -> Result<()> {
    if length == 0 {
        return Ok(());
    }
    let _entered = context.enter()?;
    // SAFETY: the caller's promise.
    check("cuMemcpyDtoDAsync", unsafe { sys::cuMemcpyDtoDAsync_v2(to, from, length, stream.raw()) })
}
