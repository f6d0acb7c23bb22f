//! Brings blocks into the arena.

use std::{
    ops::Range,
    sync::{Arc, atomic::Ordering},
};

use bytes::Bytes;
use forebay_versioning::OpenFile;
use tokio::sync::Semaphore;

use super::{
    Job, Shared,
    atom::{Atom, Block},
    cache::{Failure, Slot},
};
use crate::{Error, Result, error::RowsOf, ledger::Reservation};

/// Neighbouring atoms that one request brings.
#[derive(Debug)]
pub(crate) struct Extent {
    pub(crate) column: Arc<str>,
    pub(crate) file: Arc<OpenFile>,
    /// The column's place in the file.
    pub(crate) position: usize,
    pub(crate) range: Range<u64>,
    /// The rows that lie in it, for errors.
    pub(crate) rows: Range<u32>,
    pub(crate) atoms: Vec<(Atom, Arc<Slot>)>,
    pub(crate) reservation: Reservation,
    /// Whether it is for the first batch, which waits for nothing else.
    pub(crate) urgent: bool,
}

/// Who may fetch and decode at once.
#[derive(Debug)]
pub(crate) struct Limits {
    /// Requests in flight.
    pub(crate) requests: Semaphore,
    /// Requests of the first batch in flight.
    pub(crate) urgent: Semaphore,
    /// Threads that decode.
    pub(crate) decoders: Semaphore,
}

/// Ranges above this are fetched in parts.
const LARGE: u64 = 16 << 20;

impl Extent {
    /// Fetches, decodes and hands over, or hands over why not.
    pub(crate) async fn run(self, job: Arc<Job>, shared: Arc<Shared>, limits: Arc<Limits>) {
        let slots: Vec<_> = self.atoms.iter().map(|(_, slot)| slot.clone()).collect();
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
        let stored = if self.file.map().is_some() {
            None
        } else {
            // The semaphores are never closed.
            let _permit = if self.urgent { limits.urgent.acquire().await } else { limits.requests.acquire().await };
            Some(self.fetch(job, shared).await?)
        };
        let _permit = limits.decoders.acquire().await;
        let job = job.clone();
        let decoded = tokio::task::spawn_blocking(move || self.decode(&job, stored.as_ref()));
        decoded.await.unwrap_or(Err(Error::Died { thread: "decoder" }))
    }

    async fn fetch(&self, job: &Job, shared: &Shared) -> Result<Bytes> {
        let storage = job.selection.table().storage();
        shared.counters.requests.fetch_add(1, Ordering::Relaxed);
        let length = self.range.end - self.range.start;
        let bytes = if length > LARGE {
            let got = storage.get_ranges(self.file.path(), std::slice::from_ref(&self.range)).await;
            got.map(|mut parts| parts.pop().unwrap_or_default())
        } else {
            storage.get_range(self.file.path(), self.range.clone()).await
        };
        let bytes = bytes.map_err(|source| self.error(source.into()))?;
        shared.counters.fetched.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(bytes)
    }

    fn decode(mut self, job: &Job, stored: Option<&Bytes>) -> Result<()> {
        let mut scratch = Vec::new();
        for (atom, slot) in std::mem::take(&mut self.atoms) {
            let stored = match (stored, self.file.map()) {
                (Some(bytes), _) => {
                    let start = (atom.stored.start - self.range.start) as usize;
                    let length = (atom.stored.end - atom.stored.start) as usize;
                    bytes.get(start..start + length)
                }
                (None, Some(map)) => {
                    scratch.resize((atom.stored.end - atom.stored.start) as usize, 0);
                    map.read_at(atom.stored.start, &mut scratch).map_err(|source| self.error(source.into()))?;
                    Some(&scratch[..])
                }
                (None, None) => None,
            };
            let reservation = self.reservation.split(atom.raw);
            let block = self.decode_atom(job, &atom, stored.unwrap_or_default(), reservation)?;
            slot.arrive(block);
        }
        Ok(())
    }

    fn decode_atom(&self, job: &Job, atom: &Atom, stored: &[u8], reservation: Reservation) -> Result<Block> {
        let arena = job.device.arena(atom.raw as usize)?;
        let decoded = atom.decode(&self.file, self.position, stored, arena, reservation);
        decoded.map_err(|source| Error::Read {
            column: self.column.to_string(),
            rows: RowsOf { path: self.file.path().to_owned(), rows: atom.rows.clone() },
            source: Box::new(source),
        })
    }

    fn error(&self, source: forebay_versioning::Error) -> Error {
        Error::Read {
            column: self.column.to_string(),
            rows: RowsOf { path: self.file.path().to_owned(), rows: self.rows.clone() },
            source: Box::new(source),
        }
    }
}
