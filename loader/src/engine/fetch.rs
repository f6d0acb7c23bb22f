//! Brings blocks into the arena.

use std::{
    ops::Range,
    sync::{Arc, atomic::Ordering},
};

use forebay_versioning::OpenFile;
use tokio::sync::Semaphore;

use super::{
    Job, Shared,
    atom::{Atom, Block},
    cache::{Failure, Slot},
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
    pub(crate) file: Arc<OpenFile>,
    /// The column's place in the file.
    pub(crate) position: usize,
    pub(crate) range: Range<u64>,
    /// The rows that lie in it, for errors.
    pub(crate) rows: Range<u32>,
    pub(crate) parts: Vec<Part>,
    pub(crate) reservation: Reservation,
    /// Whether it is for the first batch, which waits for nothing else.
    pub(crate) urgent: bool,
}

/// Neighbouring atoms that share memory: it is free again when the last of their rows was delivered.
pub(crate) type Part = Vec<(Atom, Arc<Slot>)>;

/// Who may fetch and decode at once.
#[derive(Debug)]
pub(crate) struct Limits {
    /// Requests in flight. One of the first batch takes one permit, any other one [`LATER`]; who asks first is served
    /// first, so that others wait until the first batch needs less than all.
    pub(crate) requests: Semaphore,
    /// Threads that decode.
    pub(crate) decoders: Semaphore,
}

/// How many requests of the first batch, which are small, may be in flight for one of the others.
pub(crate) const LATER: u32 = 2;
impl Extent {
    /// Fetches, decodes and hands over, or hands over why not.
    pub(crate) async fn run(self, job: Arc<Job>, shared: Arc<Shared>, limits: Arc<Limits>) {
        let slots: Vec<_> = self.parts.iter().flatten().map(|(_, slot)| slot.clone()).collect();
        let mut stop = shared.stop.subscribe();
        let work = self.bring(&job, &shared, &limits);
        let brought = tokio::select! {
            // A cancelled epoch has nobody who waits for its slots.
            _ = stop.wait_for(|stop| *stop) => return,
            brought = work => brought,
        };
        if let Err(error) = brought {
            let failure = Failure::new(error);
            for slot in slots {
                slot.fail(&failure);
            }
        }
        shared.answered.fetch_add(1, Ordering::SeqCst);
        shared.requested.fetch_sub(1, Ordering::SeqCst);
        shared.signal.raise();
    }

    async fn bring(self, job: &Arc<Job>, shared: &Shared, limits: &Limits) -> Result<()> {
        let raw = |part: &Part| part.iter().map(|(atom, _)| atom.raw as usize).sum();
        let in_place = self.parts.iter().flatten().all(|(atom, _)| atom.in_place);
        let mut buffers = Vec::with_capacity(self.parts.len());
        let mut stored = None;
        if self.file.map().is_none() {
            // The semaphores are never closed.
            let _permit = limits.requests.acquire_many(if self.urgent { 1 } else { LATER }).await;
            shared.counters.requests.fetch_add(1, Ordering::Relaxed);
            let (storage, path) = (job.selection.table().storage(), self.file.path());
            if in_place {
                for part in &self.parts {
                    buffers.push(job.device.arena(raw(part))?);
                }
                let memory = buffers.iter_mut().map(|buffer| buffer.bytes_mut()).collect();
                let read = storage.read_into(path, self.range.start, memory).await;
                read.map_err(|source| self.error(&self.rows, source.into()))?;
            } else {
                let got = storage.get_ranges(path, std::slice::from_ref(&self.range)).await;
                stored = got.map_err(|source| self.error(&self.rows, source.into()))?.pop();
            }
            shared.counters.fetched.fetch_add(self.range.end - self.range.start, Ordering::Relaxed);
        }
        let _permit = limits.decoders.acquire().await;
        let job = job.clone();
        let work = move || {
            for part in &self.parts[buffers.len()..] {
                let mut buffer = job.device.arena(raw(part))?;
                self.decode(part, stored.as_deref(), buffer.bytes_mut())?;
                buffers.push(buffer);
            }
            self.hand_over(buffers)
        };
        tokio::task::spawn_blocking(work).await.unwrap_or(Err(Error::Died { thread: "decoder" }))
    }

    /// Decodes the atoms of a part one behind the other; without `stored`, from the mapped file.
    fn decode(&self, part: &Part, stored: Option<&[u8]>, mut memory: &mut [u8]) -> Result<()> {
        let mut read = Vec::new();
        for (atom, _) in part {
            let (here, rest) = std::mem::take(&mut memory).split_at_mut(atom.raw as usize);
            memory = rest;
            let length = (atom.stored.end - atom.stored.start) as usize;
            let stored = match (stored, self.file.map()) {
                (Some(stored), _) => {
                    let start = (atom.stored.start - self.range.start) as usize;
                    stored.get(start..start + length).unwrap_or_default()
                }
                (None, Some(map)) => {
                    read.resize(length, 0);
                    map.read_at(atom.stored.start, &mut read)
                        .map_err(|source| self.error(&self.rows, source.into()))?;
                    &read
                }
                (None, None) => return Err(Error::Died { thread: "fetch" }),
            };
            if atom.in_place {
                here.copy_from_slice(stored);
            } else {
                let raw = atom.decode(&self.file, self.position, stored);
                here.copy_from_slice(&raw.map_err(|source| self.error(&atom.rows, source))?);
            }
        }
        Ok(())
    }

    /// Checks what lies in the buffers, one for each part, and hands it to those who wait for it.
    fn hand_over(mut self, buffers: Vec<Box<dyn ArenaBuffer>>) -> Result<()> {
        for (part, buffer) in std::mem::take(&mut self.parts).into_iter().zip(buffers) {
            let _reservation = self.reservation.split(buffer.bytes().len() as u64);
            let region = Arc::new(ArenaRegion { buffer, _reservation });
            let mut start = 0;
            for (atom, slot) in part {
                let bytes = &region.buffer().bytes()[start..start + atom.raw as usize];
                let content = atom.content(&self.file, self.position, bytes);
                let content = content.map_err(|source| self.error(&atom.rows, source))?;
                slot.arrive(Block::new(&atom, region.clone(), start, content));
                start += atom.raw as usize;
            }
        }
        Ok(())
    }

    fn error(&self, rows: &Range<u32>, source: forebay_versioning::Error) -> Error {
        Error::Read {
            column: self.column.to_string(),
            rows: RowsOf { path: self.file.path().to_owned(), rows: rows.clone() },
            source: Box::new(source),
        }
    }
}
