//! What the links of a batch lead to: read ahead of the batch's turn, within the budget.

use std::sync::{Arc, atomic::Ordering};

use bytes::Bytes;
use forebay_format::Column;
use forebay_versioning::{Error as LakeError, Linked};
use futures::{StreamExt as _, stream::FuturesUnordered};

use super::{
    Job,
    builder::{Builder, Cause, Held, Place, Planned, TICK},
    cache::Failure,
};
use crate::{Error, LoaderOptions, Result, device::ArenaRegion, ledger::Reservation, stats::Stage};

/// How many batches of links are read at once: as many as requests may be in flight need, and some.
pub(super) fn batches(job: &Job) -> usize {
    let LoaderOptions { prefetch, io_concurrency, batch_size, .. } = job.options;
    let linked = job.columns.iter().any(|column| column.linked);
    if linked { (prefetch + (2 * io_concurrency).div_ceil(batch_size)).min(MOST) } else { 0 }
}

/// The most threads that wait for links.
const MOST: usize = 32;

/// A value of a batch: its column and row.
type Cell = (usize, usize);

impl Builder {
    /// Reads what the links of a batch lead to, if it has some. Rows whose links are broken become failed ones. `None` if the batch's
    /// turn will never come.
    pub(super) fn fetch_linked(&self, number: u64, planned: &mut Planned) -> Result<Option<()>, Cause> {
        if self.job.columns.iter().all(|column| !column.linked) {
            return Ok(Some(()));
        }
        self.shared.stages.set(planned.steps.start, Stage::Fetching);
        self.wait(planned)?;
        let (cells, links) = self.follow(planned)?;
        let bytes: u64 = links.iter().map(Linked::length).sum();
        // Each byte is there twice for a while: as it comes, and where it is gathered from.
        let Some(mut reservation) = self.reserve(number, 2 * bytes) else { return Ok(None) };
        let Some(read) = self.read(&links)? else { return Ok(None) };
        for (cell, read) in cells.into_iter().zip(read) {
            let place = match read {
                Ok(bytes) => Place::Linked(self.keep(&bytes, reservation.split(bytes.len() as u64))?),
                Err(error) => self.failed(planned, cell, error)?,
            };
            planned.columns[cell.0].rows[cell.1] = place;
        }
        Ok(Some(()))
    }

    /// Where the links lead that arrived.
    fn follow(&self, planned: &mut Planned) -> Result<(Vec<Cell>, Vec<Linked>), Cause> {
        let (mut cells, mut links) = (Vec::new(), Vec::new());
        for (number, column) in self.job.columns.iter().enumerate().filter(|(_, column)| column.linked) {
            let tables = self.job.sources.selections().map(|selection| selection.table());
            let tables = tables.map(|table| Ok((table, table.schema().column(&column.name)?)));
            let tables: Vec<(_, &Column)> = tables.collect::<Result<_>>()?;
            for row in 0..planned.positions.len() {
                // Rows that didn't arrive are dealt with when all are there.
                let Ok(value) = planned.columns[number].rows[row].fetched() else { continue };
                let place = match value {
                    None => continue,
                    Some(None) => Place::Masked,
                    Some(Some(value)) => {
                        let (table, column) = tables[planned.sources[row] as usize];
                        match table.follow(column, value) {
                            Ok(linked) => {
                                cells.push((number, row));
                                links.push(linked);
                                continue;
                            }
                            Err(error) => self.failed(planned, (number, row), error)?,
                        }
                    }
                };
                planned.columns[number].rows[row] = place;
            }
        }
        Ok((cells, links))
    }

    /// A row whose link is broken; others than broken links end the epoch.
    fn failed(&self, planned: &Planned, (column, row): Cell, error: LakeError) -> Result<Place, Cause> {
        let column = self.job.columns[column].name.to_string();
        let error = Error::Link { column, row: planned.rows[row], source: Box::new(error) };
        if error.is_of_row() { Ok(Place::Failed(Failure::new(error))) } else { Err(error.into()) }
    }

    /// Waits for memory. The batch whose turn it is gets it in any case, since those behind it may hold all there is; `None` once
    /// nobody wants the batch any more.
    fn reserve(&self, number: u64, bytes: u64) -> Option<Reservation> {
        loop {
            let seen = self.shared.signal.now();
            if self.shared.is_cancelled() || self.turn.is_over() {
                return None;
            }
            if let Some(reservation) = self.shared.ledger.try_reserve(bytes) {
                return Some(reservation);
            }
            if self.turn.has_come(number) {
                return Some(self.shared.ledger.overdraw(bytes));
            }
            self.shared.signal.wait(seen, TICK);
        }
    }

    /// What links lead to, many read at once; `None` if the epoch was cancelled.
    fn read(&self, links: &[Linked]) -> Result<Option<Vec<Result<Bytes, LakeError>>>> {
        let shared = &self.shared;
        let mut found: Vec<Option<Result<Bytes, LakeError>>> = links.iter().map(|_| None).collect();
        let read = |group: Vec<usize>| async {
            // It is never closed.
            let _turn = shared.links.acquire().await;
            let members: Vec<&Linked> = group.iter().map(|place| &links[*place]).collect();
            let read = Linked::read(&members).await;
            shared.counters.requests.fetch_add(1, Ordering::Relaxed);
            shared.answered.fetch_add(1, Ordering::SeqCst);
            (group, read)
        };
        let work = async {
            let mut stop = shared.stop.subscribe();
            let mut reads: FuturesUnordered<_> = Linked::by_object(links).into_iter().map(read).collect();
            loop {
                let next = tokio::time::timeout(self.job.options.stall_timeout, reads.next());
                let next = tokio::select! {
                    _ = stop.wait_for(|stop| *stop) => return Ok(false),
                    next = next => next,
                };
                match next {
                    Ok(None) => return Ok(true),
                    Ok(Some((group, read))) => {
                        for (place, read) in group.into_iter().zip(read?) {
                            let length = read.as_ref().map_or(0, |bytes| bytes.len() as u64);
                            shared.counters.fetched.fetch_add(length, Ordering::Relaxed);
                            found[place] = Some(read);
                        }
                    }
                    Err(_) => {
                        let missing = links.iter().zip(&found).filter(|(_, found)| found.is_none());
                        let names = missing.map(|(linked, _)| linked.link().url.clone()).collect();
                        return Err(self.stalled(names));
                    }
                }
            }
        };
        let whole = forebay_storage::runtime()?.block_on(work)?;
        Ok(whole.then(|| found.into_iter().flatten().collect()))
    }

    fn keep(&self, bytes: &[u8], reservation: Reservation) -> Result<Held> {
        let mut buffer = self.job.device.arena(bytes.len())?;
        buffer.bytes_mut().copy_from_slice(bytes);
        let region = Arc::new(ArenaRegion { buffer, _reservation: reservation });
        Ok(Held { region, at: 0, length: bytes.len(), shape: Vec::new(), valid: true, window: None })
    }
}
