//! Device memory that batches are in, used again once nobody uses it.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use super::{
    budget::{Budget, Share},
    buffer::{Content, DeviceBuffer, InCache},
};
use crate::{
    Result,
    cuda::{Context, DeviceMemory, Event, StreamRef, capturing},
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

/// Memory, and whose work on it may not be done yet.
#[derive(Debug)]
struct Piece {
    memory: DeviceMemory,
    after: After,
    _share: Share,
}

/// What comes before memory is written again.
#[derive(Debug, Default)]
pub(super) struct After {
    /// All that these streams were asked to do until the memory came back.
    pub(super) users: Vec<StreamRef>,
    /// These points.
    pub(super) points: Vec<Arc<Event>>,
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
        piece.after.users.push(writer);
        self.budget.hold(size as u64);
        Ok(Unfilled { length, piece: Held { piece: Some(piece), outputs: Arc::clone(self) } })
    }

    /// A free piece of this size. One whose users include a stream that is being captured is left: no event can be
    /// recorded there that others may wait for.
    fn reuse(&self, size: usize, writer: StreamRef) -> Result<Option<Piece>> {
        let Some(mut piece) = self.pop(size)? else { return Ok(None) };
        let after = std::mem::take(&mut piece.after);
        for user in after.users.into_iter().filter(|user| *user != writer) {
            let done = Event::new(&self.context)?;
            done.record(user)?;
            done.hold_back(writer)?;
        }
        for point in after.points {
            point.hold_back(writer)?;
        }
        Ok(Some(piece))
    }

    fn pop(&self, size: usize) -> Result<Option<Piece>> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(pieces) = free.get_mut(&size) else { return Ok(None) };
        for index in 0..pieces.len() {
            let mut busy = false;
            for user in &pieces[index].after.users {
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
            Ok(Piece { memory: DeviceMemory::new(&self.context, size)?, after: After::default(), _share: share })
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
pub(super) struct Held {
    /// `None` only while dropped.
    piece: Option<Piece>,
    outputs: Arc<Outputs>,
}

impl Held {
    pub(super) fn address(&self) -> u64 {
        self.piece.as_ref().map_or(0, |piece| piece.memory.address())
    }

    pub(super) fn context(&self) -> &Arc<Context> {
        &self.outputs.context
    }

    /// Puts `after` before what will be written there next.
    pub(super) fn give_back_after(&mut self, after: After) {
        if let Some(piece) = &mut self.piece {
            piece.after.users.extend(after.users);
            piece.after.points.extend(after.points);
        }
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
        DeviceBuffer::new(self.length, ready, Content::Bytes(self.piece))
    }

    /// The memory as the addresses of `rows`, which are there once `ready` is reached.
    pub(crate) fn fill_with_addresses(self, ready: &Arc<Event>, rows: InCache) -> DeviceBuffer {
        DeviceBuffer::new(rows.bytes(), ready, Content::Rows { addresses: self.piece, rows })
    }
}
