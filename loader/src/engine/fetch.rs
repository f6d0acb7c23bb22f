//! Brings blocks into the arena.

use std::{
    iter,
    ops::Range,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, PoisonError, atomic::Ordering},
};

use forebay_storage::Storage;
use forebay_versioning::OpenFile;
use futures::FutureExt as _;
use tokio::sync::{Semaphore, SemaphorePermit, watch};

use super::{
    Job, Shared,
    atom::{Atom, Block},
    cache::{Failure, Slot},
    kept::Kept,
};
use crate::{
    Error, Result,
    device::{ArenaBuffer, ArenaRegion},
    error::RowsOf,
    ledger::Reservation,
};

/// Neighbouring atoms of a column that one request brings.
#[derive(Debug)]
pub(crate) struct Extent {
    pub(crate) column: Arc<str>,
    /// Where the file is kept.
    pub(crate) storage: Storage,
    pub(crate) file: Arc<OpenFile>,
    /// The column's place in the file.
    pub(crate) position: usize,
    pub(crate) range: Range<u64>,
    /// The rows that lie in it, for errors.
    pub(crate) rows: Range<u32>,
    pub(crate) parts: Vec<Part>,
    pub(crate) reservation: Mutex<Reservation>,
    /// Whether it is for the first batch, which waits for nothing else.
    pub(crate) urgent: bool,
}

/// Neighbouring atoms that share memory: it is free again when the last of their rows was delivered.
pub(crate) type Part = Vec<(Atom, Arc<Slot>)>;

/// The bytes between two parts.
fn gap(part: &Part, next: &Part) -> usize {
    let (end, start) = (part.last().map(|(atom, _)| atom.stored.end), next.first().map(|(atom, _)| atom.stored.start));
    start.zip(end).map_or(0, |(start, end)| start.saturating_sub(end) as usize)
}

/// An atom that arrived damaged: its part, and its place in that.
type Bad = (usize, usize);

/// Who may fetch and decode at once.
#[derive(Debug)]
pub(crate) struct Limits {
    /// Requests in flight. One of the first batch takes one permit, any other one [`LATER`].
    pub(crate) requests: Semaphore,
    /// Requests of the first batch that weren't answered yet. The others, which are large, wait until there are none.
    pub(crate) urgent: watch::Sender<usize>,
    /// Threads that decode.
    pub(crate) decoders: Semaphore,
}

/// How many requests of the first batch, which are small, may be in flight for one of the others.
pub(crate) const LATER: u32 = 2;

impl Limits {
    /// Waits until a request may be sent.
    async fn turn(&self, urgent: bool) -> Option<SemaphorePermit<'_>> {
        if !urgent {
            // Its sender is here, so it goes on.
            let _ = self.urgent.subscribe().wait_for(|count| *count == 0).await;
        }
        // The semaphores are never closed.
        self.requests.acquire_many(if urgent { 1 } else { LATER }).await.ok()
    }
}

impl Extent {
    /// Fetches, decodes and hands over, or hands over why not.
    pub(crate) async fn run(self, job: Arc<Job>, shared: Arc<Shared>, limits: Arc<Limits>) {
        let this = Arc::new(self);
        let mut stop = shared.stop.subscribe();
        // What panics, the code of a store perhaps, is not to keep the others waiting.
        let work = AssertUnwindSafe(this.bring(&job, &shared, &limits)).catch_unwind();
        let brought = tokio::select! {
            // A cancelled epoch has nobody who waits for its slots.
            _ = stop.wait_for(|stop| *stop) => return,
            brought = work => brought.unwrap_or(Err(Error::Died { thread: "fetch" })),
        };
        if this.urgent {
            limits.urgent.send_modify(|count| *count -= 1);
        }
        if let Err(error) = brought {
            let failure = Failure::new(error);
            for (_, slot) in this.parts.iter().flatten() {
                slot.fail(&failure);
            }
        }
        shared.answered.fetch_add(1, Ordering::SeqCst);
        shared.requested.fetch_sub(1, Ordering::SeqCst);
        shared.signal.raise();
    }

    async fn bring(self: &Arc<Self>, job: &Arc<Job>, shared: &Shared, limits: &Limits) -> Result<()> {
        let raw = |part: &Part| part.iter().map(|(atom, _)| atom.raw as usize).sum();
        let in_place = self.parts.iter().flatten().all(|(atom, _)| atom.in_place);
        let mut buffers = Vec::with_capacity(self.parts.len());
        let mut stored = None;
        if self.file.map().is_none() {
            let _turn = limits.turn(self.urgent).await;
            shared.counters.requests.fetch_add(1, Ordering::Relaxed);
            let (storage, path) = (&self.storage, self.file.path());
            if in_place {
                for part in &self.parts {
                    buffers.push(job.device.arena(raw(part))?);
                }
                // What lies between two parts is read and dropped.
                let mut padding: Vec<Vec<u8>> =
                    self.parts.windows(2).map(|two| vec![0; gap(&two[0], &two[1])]).collect();
                let mut padding = padding.iter_mut();
                let memory = buffers
                    .iter_mut()
                    .flat_map(|buffer| iter::once(buffer.bytes_mut()).chain(padding.next().map(Vec::as_mut_slice)));
                let read = storage.read_into(path, self.range.start, memory.collect()).await;
                read.map_err(|source| self.error(&self.rows, source.into()))?;
            } else {
                let got = storage.get_ranges(path, std::slice::from_ref(&self.range)).await;
                stored = got.map_err(|source| self.error(&self.rows, source.into()))?.pop();
            }
            shared.counters.fetched.fetch_add(self.range.end - self.range.start, Ordering::Relaxed);
        }
        let bad = {
            let _permit = limits.decoders.acquire().await;
            let (job, this) = (job.clone(), self.clone());
            let work = move || {
                let mut bad = Vec::new();
                for part in buffers.len()..this.parts.len() {
                    let mut buffer = job.device.arena(raw(&this.parts[part]))?;
                    bad.extend(this.decode(part, stored.as_deref(), buffer.bytes_mut())?);
                    buffers.push(buffer);
                }
                Ok(this.hand_over(buffers, bad, job.kept.as_deref()))
            };
            tokio::task::spawn_blocking(work).await.unwrap_or(Err(Error::Died { thread: "decoder" }))?
        };
        // A block may have been damaged on its way: it is asked for once more, alone, before it counts as damaged.
        if !bad.is_empty() && self.file.map().is_none() {
            self.storage.distrust(self.file.path());
        }
        for (part, atom) in bad {
            let slot = &self.parts[part][atom].1;
            shared.counters.refetched.fetch_add(1, Ordering::Relaxed);
            if let Err(error) = self.again(part, atom, job, shared, limits).await {
                slot.fail(&Failure::new(error));
            }
        }
        Ok(())
    }

    /// Brings one atom once more.
    async fn again(&self, part: usize, atom: usize, job: &Job, shared: &Shared, limits: &Limits) -> Result<()> {
        let (atom, slot) = &self.parts[part][atom];
        let mut buffer = job.device.arena(atom.raw as usize)?;
        let stored = match self.file.map() {
            Some(map) => {
                let mut stored = vec![0; (atom.stored.end - atom.stored.start) as usize];
                let read = map.read_at(atom.stored.start, &mut stored);
                read.map_err(|source| self.error(&atom.rows, source.into()))?;
                stored.into()
            }
            None => {
                let _turn = limits.turn(self.urgent).await;
                let got = self.storage.get_ranges(self.file.path(), std::slice::from_ref(&atom.stored)).await;
                let mut got = got.map_err(|source| self.error(&atom.rows, source.into()))?;
                got.pop().unwrap_or_default()
            }
        };
        shared.counters.requests.fetch_add(1, Ordering::Relaxed);
        shared.counters.fetched.fetch_add(stored.len() as u64, Ordering::Relaxed);
        self.decode_atom(atom, &stored, buffer.bytes_mut())?;
        let region = Arc::new(ArenaRegion { buffer, _reservation: shared.ledger.overdraw(atom.raw) });
        slot.arrive(self.check(atom, &region, 0)?);
        Ok(())
    }

    fn decode_atom(&self, atom: &Atom, stored: &[u8], here: &mut [u8]) -> Result<()> {
        if atom.in_place {
            here.copy_from_slice(stored);
        } else {
            let decoded = atom.decode(&self.file, self.position, stored, here);
            decoded.map_err(|source| self.error(&atom.rows, source))?;
        }
        Ok(())
    }

    /// Checks what lies in a region.
    fn check(&self, atom: &Atom, region: &Arc<ArenaRegion>, start: usize) -> Result<Arc<Block>> {
        let bytes = &region.buffer().bytes()[start..start + atom.raw as usize];
        let content = atom.content(&self.file, self.position, bytes);
        let content = content.map_err(|source| self.error(&atom.rows, source))?;
        Ok(Arc::new(Block::new(atom, region.clone(), start, content)))
    }

    /// Decodes the atoms of a part one behind the other; without `stored`, from the mapped file. Gives those that can't be.
    fn decode(&self, part: usize, stored: Option<&[u8]>, mut memory: &mut [u8]) -> Result<Vec<Bad>> {
        let (mut read, mut bad) = (Vec::new(), Vec::new());
        for (number, (atom, _)) in self.parts[part].iter().enumerate() {
            let (here, rest) = std::mem::take(&mut memory).split_at_mut(atom.raw as usize);
            memory = rest;
            let length = (atom.stored.end - atom.stored.start) as usize;
            let stored = match (stored, self.file.map()) {
                (Some(stored), _) => {
                    let start = (atom.stored.start - self.range.start) as usize;
                    stored.get(start..start + length).unwrap_or_default()
                }
                (None, Some(map)) if atom.in_place => {
                    map.read_at(atom.stored.start, here).map_err(|source| self.error(&self.rows, source.into()))?;
                    continue;
                }
                (None, Some(map)) => {
                    read.resize(length, 0);
                    map.read_at(atom.stored.start, &mut read)
                        .map_err(|source| self.error(&self.rows, source.into()))?;
                    &read
                }
                (None, None) => return Err(Error::Died { thread: "fetch" }),
            };
            if self.decode_atom(atom, stored, here).is_err() {
                bad.push((part, number));
            }
        }
        Ok(bad)
    }

    /// Checks what lies in the buffers, one for each part, and hands it to those who wait for it, but for the atoms that
    /// `undecoded` names. What there is room for is kept. Gives all that are bad.
    fn hand_over(&self, buffers: Vec<Box<dyn ArenaBuffer>>, undecoded: Vec<Bad>, kept: Option<&Kept>) -> Vec<Bad> {
        let mut bad = undecoded;
        let known = bad.len();
        let mut reservation = self.reservation.lock().unwrap_or_else(PoisonError::into_inner);
        for ((number, part), buffer) in self.parts.iter().enumerate().zip(buffers) {
            let bytes = buffer.bytes().len() as u64;
            let held = reservation.split(bytes);
            let (keeper, _reservation) = match kept.and_then(|kept| Some((kept, kept.reserve(bytes)?))) {
                Some((kept, room)) => (Some(kept), room),
                None => (None, held),
            };
            let region = Arc::new(ArenaRegion { buffer, _reservation });
            let mut start = 0;
            for (place, (atom, slot)) in part.iter().enumerate() {
                let here = (number, place);
                if !bad[..known].contains(&here) {
                    match self.check(atom, &region, start) {
                        Ok(block) => {
                            keeper.into_iter().for_each(|kept| kept.put(atom.key, block.clone()));
                            slot.arrive(block);
                        }
                        Err(_) => bad.push(here),
                    }
                }
                start += atom.raw as usize;
            }
        }
        // What was reserved for bytes that weren't decoded yet.
        let rest = reservation.remaining();
        drop(reservation.split(rest));
        bad
    }

    fn error(&self, rows: &Range<u32>, source: forebay_versioning::Error) -> Error {
        Error::Read {
            column: self.column.to_string(),
            rows: RowsOf { path: self.file.path().to_owned(), rows: rows.clone() },
            source: Box::new(source),
        }
    }
}
