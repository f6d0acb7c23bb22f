//! A part of a batch, as consumers get it.
#![allow(unsafe_code)]

use std::{
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
};

use super::{
    cache::DeviceCache,
    output::{After, Held},
};
use crate::{
    Error, Result,
    cuda::{
        Context, DeviceMemory, Event, GatherLaunch, Kernels, Stream, StreamRef, capturing, copy_on_device, copy_to_host,
    },
};

/// A part of a batch on a device, complete once its event is reached.
///
/// There are two ways to its bytes. [`copy_all`](Self::copy_all) copies them to memory of the consumer's own, in the order of
/// the consumer's stream: that memory is then like any other, and this value may be dropped at once. Or the consumer reads
/// them in place, at [`address`](Self::address), after [`order`](Self::order).
///
/// Dropping it gives the memory back at once; it is written again only after those copies, and after the work that the
/// streams named to `order` had been asked to do by then. A consumer that reads in place and hands the memory on to further
/// streams joins them into one of the named ones before it drops this.
#[derive(Debug)]
pub struct DeviceBuffer {
    length: usize,
    ready: Arc<Event>,
    after: Mutex<After>,
    content: Content,
}

/// Where the bytes are.
#[derive(Debug)]
pub(super) enum Content {
    /// Side by side in memory that is theirs, 256-byte aligned.
    Bytes(Held),
    /// In rows all over a cache.
    Rows {
        /// The address of each.
        addresses: Held,
        rows: InCache,
    },
}

/// Rows in a cache.
#[derive(Debug)]
pub(super) struct InCache {
    pub(super) row_bytes: usize,
    pub(super) count: u32,
    pub(super) kernels: Arc<Kernels>,
    /// Keeps the rows.
    pub(super) _cache: Arc<DeviceCache>,
}

impl InCache {
    pub(super) fn bytes(&self) -> usize {
        self.row_bytes * self.count as usize
    }
}

impl DeviceBuffer {
    pub(super) fn new(length: usize, ready: &Arc<Event>, content: Content) -> Self {
        Self { length, ready: Arc::clone(ready), after: Mutex::default(), content }
    }

    fn held(&self) -> &Held {
        match &self.content {
            Content::Bytes(held) | Content::Rows { addresses: held, .. } => held,
        }
    }

    fn context(&self) -> &Arc<Context> {
        self.held().context()
    }

    /// Its address on the device; `None` for rows of a cache that were asked for to be copied.
    #[must_use]
    pub fn address(&self) -> Option<u64> {
        match &self.content {
            Content::Bytes(held) => Some(held.address()),
            Content::Rows { .. } => None,
        }
    }

    /// Bytes of it.
    #[must_use]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The device, by its ordinal.
    #[must_use]
    pub fn device(&self) -> u32 {
        self.context().ordinal()
    }

    /// Makes whatever `stream` is asked from now on wait until the bytes are there. The thread doesn't wait.
    ///
    /// # Safety
    /// `stream` is a stream of this device that lives until this buffer's memory was used again or its [`CudaDevice`] is
    /// gone, or one of the driver's own: 0 or 1 for the legacy stream, 2 for the calling thread's.
    ///
    /// # Errors
    /// [`Error::Call`](crate::Error::Call).
    ///
    /// [`CudaDevice`]: crate::CudaDevice
    pub unsafe fn order(&self, stream: usize) -> Result<()> {
        // SAFETY: the caller's promise.
        let stream = unsafe { StreamRef::from_handle(stream) };
        let mut after = self.after.lock().unwrap_or_else(PoisonError::into_inner);
        if !after.users.contains(&stream) {
            after.users.push(stream);
        }
        self.ready.hold_back(stream)
    }

    /// Asks `stream` to copy these bytes of each buffer, whole rows, to the address beside them. The thread doesn't wait; the buffers
    /// may be dropped at once.
    ///
    /// # Safety
    /// At each address are as many bytes of device memory as are to be copied, which nobody else uses until `stream` has
    /// done this. `stream` is a stream of the buffers' device, or one of the driver's own, and lives during the call.
    ///
    /// # Errors
    /// [`Error::Capturing`] while a graph is captured from `stream`: the copies would be part of the graph, and the bytes
    /// gone when it is replayed. Nothing was asked then. [`Error::Call`].
    pub unsafe fn copy_all(buffers: &[(&Self, Range<usize>, u64)], stream: usize) -> Result<()> {
        let Some((first, ..)) = buffers.first() else { return Ok(()) };
        // SAFETY: the caller's promise.
        let stream = unsafe { StreamRef::from_handle(stream) };
        let context = first.context();
        let _entered = context.enter()?;
        if capturing(context, stream)? {
            return Err(Error::Capturing);
        }
        let mut waited: Option<&Arc<Event>> = None;
        for (buffer, bytes, to) in buffers {
            if !waited.is_some_and(|event| Arc::ptr_eq(event, &buffer.ready)) {
                buffer.ready.hold_back(stream)?;
                waited = Some(&buffer.ready);
            }
            // SAFETY: the target is the caller's promise; the source is complete when the stream comes to this, and is not
            // written before the point below.
            unsafe { buffer.copy_behind(bytes.clone(), *to, stream) }?;
        }
        let point = Arc::new(Event::new(context)?);
        point.record(stream)?;
        for (buffer, ..) in buffers {
            buffer.after.lock().unwrap_or_else(PoisonError::into_inner).points.push(Arc::clone(&point));
        }
        Ok(())
    }

    /// # Safety
    /// As for [`copy_all`](Self::copy_all), and the stream is behind `ready`.
    unsafe fn copy_behind(&self, bytes: Range<usize>, to: u64, stream: StreamRef) -> Result<()> {
        let (start, end) = (bytes.start.min(self.length), bytes.end.min(self.length));
        let length = end.saturating_sub(start);
        match &self.content {
            // SAFETY: the bytes are inside the piece; the rest is the caller's promise.
            Content::Bytes(held) => unsafe {
                copy_on_device(held.context(), to, held.address() + start as u64, length, stream)
            },
            Content::Rows { addresses, rows } => {
                let (first, count) = (start / rows.row_bytes, length / rows.row_bytes);
                let addresses = addresses.address() + (first * size_of::<u64>()) as u64;
                let launch = GatherLaunch::fixed(addresses, count as u32, rows.row_bytes as u64, to);
                // SAFETY: the addresses are those of rows in the cache, which is kept and frees nothing before the
                // device is done.
                unsafe { rows.kernels.gather_on_device(launch, stream) }
            }
        }
    }

    /// Blocks this thread until the bytes are there.
    ///
    /// # Errors
    /// [`Error::Call`](crate::Error::Call), also for an earlier failure on the device.
    pub fn wait(&self) -> Result<()> {
        self.ready.wait()
    }

    /// Whether the bytes are there.
    ///
    /// # Errors
    /// As for [`wait`](Self::wait).
    pub fn ready(&self) -> Result<bool> {
        self.ready.reached()
    }

    /// Waits for the bytes and copies them to the host.
    ///
    /// # Errors
    /// As for [`wait`](Self::wait).
    pub fn to_host(&self) -> Result<Vec<u8>> {
        self.wait()?;
        if let Some(address) = self.address() {
            return copy_to_host(self.context(), address, self.length);
        }
        let (memory, stream) = (DeviceMemory::new(self.context(), self.length)?, Stream::new(self.context())?);
        // SAFETY: the memory is this function's own, and lives until the stream is done, below.
        unsafe { self.copy_behind(0..self.length, memory.address(), stream.handle()) }?;
        stream.synchronize()?;
        copy_to_host(self.context(), memory.address(), self.length)
    }
}

impl Drop for DeviceBuffer {
    fn drop(&mut self) {
        let after = std::mem::take(self.after.get_mut().unwrap_or_else(PoisonError::into_inner));
        match &mut self.content {
            Content::Bytes(held) | Content::Rows { addresses: held, .. } => held.give_back_after(after),
        }
    }
}
