//! Device memory that batches are in, used again once nobody uses it.
#![allow(unsafe_code)]

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use super::budget::{Budget, Share};
use crate::{
    Result,
    cuda::{Context, DeviceMemory, Event, StreamRef, capturing, copy_to_host},
};

/// Sizes are rounded up to a multiple of this, so that batches of nearly one size share memory.
const GRAIN: usize = 4096;

/// Where the memory of batches comes from and goes back to.
#[derive(Debug)]
pub(crate) struct Outputs {
    context: Arc<Context>,
    budget: Arc<Budget>,
    free: Mutex<BTreeMap<usize, Vec<Piece>>>,
}

/// Memory, and the streams whose work on it may not be done yet.
#[derive(Debug)]
struct Piece {
    memory: DeviceMemory,
    users: Vec<StreamRef>,
    _share: Share,
}

impl Outputs {
    pub(crate) fn new(context: &Arc<Context>, budget: &Arc<Budget>) -> Arc<Self> {
        Arc::new(Self { context: Arc::clone(context), budget: Arc::clone(budget), free: Mutex::default() })
    }

    /// Memory for `length` bytes, which `writer` may write: whatever its last users do to it comes first.
    pub(crate) fn take(self: &Arc<Self>, length: usize, writer: StreamRef) -> Result<Unfilled> {
        let size = length.next_multiple_of(GRAIN).max(GRAIN);
        let mut piece = match self.reuse(size, writer)? {
            Some(piece) => piece,
            None => self.allocate(size)?,
        };
        piece.users.push(writer);
        self.budget.hold(size as u64);
        Ok(Unfilled { length, piece: Held { piece: Some(piece), outputs: Arc::clone(self) } })
    }

    /// A free piece of this size. One whose users include a stream that is being captured is left: no event can be
    /// recorded there that others may wait for.
    fn reuse(&self, size: usize, writer: StreamRef) -> Result<Option<Piece>> {
        let Some(mut piece) = self.pop(size)? else { return Ok(None) };
        for user in std::mem::take(&mut piece.users).into_iter().filter(|user| *user != writer) {
            let done = Event::new(&self.context)?;
            done.record(user)?;
            done.hold_back(writer)?;
        }
        Ok(Some(piece))
    }

    fn pop(&self, size: usize) -> Result<Option<Piece>> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(pieces) = free.get_mut(&size) else { return Ok(None) };
        for index in 0..pieces.len() {
            let mut busy = false;
            for user in &pieces[index].users {
                busy |= capturing(&self.context, *user)?;
            }
            if !busy {
                return Ok(Some(pieces.remove(index)));
            }
        }
        Ok(None)
    }

    /// New memory; free pieces of other sizes make room if there is none.
    fn allocate(&self, size: usize) -> Result<Piece> {
        let make = || {
            let share = self.budget.take(size as u64)?;
            Ok(Piece { memory: DeviceMemory::new(&self.context, size)?, users: Vec::new(), _share: share })
        };
        make().or_else(|refused| if self.trim() { make() } else { Err(refused) })
    }

    /// Frees what is free; whether that was anything.
    pub(crate) fn trim(&self) -> bool {
        let free = std::mem::take(&mut *self.free.lock().unwrap_or_else(PoisonError::into_inner));
        // Freeing device memory waits for the device's work, so for that of the users too.
        !free.is_empty()
    }

    fn put(&self, piece: Piece) {
        self.budget.release(piece.memory.length() as u64);
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.entry(piece.memory.length()).or_default().push(piece);
    }
}

/// A piece that goes back to its pool when dropped.
#[derive(Debug)]
struct Held {
    /// `None` only while dropped.
    piece: Option<Piece>,
    outputs: Arc<Outputs>,
}

impl Held {
    fn address(&self) -> u64 {
        self.piece.as_ref().map_or(0, |piece| piece.memory.address())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(piece) = self.piece.take() {
            self.outputs.put(piece);
        }
    }
}

/// Memory that a batch is being written to.
#[derive(Debug)]
pub(crate) struct Unfilled {
    length: usize,
    piece: Held,
}

impl Unfilled {
    pub(crate) fn address(&self) -> u64 {
        self.piece.address()
    }

    /// The memory as part of a batch that is complete once `ready` is reached.
    pub(crate) fn fill(self, ready: &Arc<Event>) -> DeviceBuffer {
        DeviceBuffer { length: self.length, ready: Arc::clone(ready), users: Mutex::default(), piece: self.piece }
    }
}

/// A part of a batch in device memory: 256-byte aligned, and complete once its event is reached.
///
/// Dropping it gives the memory back at once; it is written again only after the work that the streams named to
/// [`order`](Self::order) had been asked to do by then. A consumer that hands the memory on to further streams joins them
/// into one of the named ones before it drops this.
#[derive(Debug)]
pub struct DeviceBuffer {
    length: usize,
    ready: Arc<Event>,
    users: Mutex<Vec<StreamRef>>,
    piece: Held,
}

impl DeviceBuffer {
    /// Its address on the device.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.piece.address()
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
        self.piece.outputs.context.ordinal()
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
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        if !users.contains(&stream) {
            users.push(stream);
        }
        self.ready.hold_back(stream)
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
        copy_to_host(&self.piece.outputs.context, self.address(), self.length)
    }
}

impl Drop for DeviceBuffer {
    fn drop(&mut self) {
        let users = std::mem::take(self.users.get_mut().unwrap_or_else(PoisonError::into_inner));
        if let Some(piece) = &mut self.piece.piece {
            piece.users.extend(users);
        }
    }
}
