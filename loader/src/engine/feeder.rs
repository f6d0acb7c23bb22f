//! Plans batches ahead, and requests what they need.
//!
//! Neighbouring rows travel together and nothing twice; [`Ahead`] says which.

use std::{
    collections::{BTreeSet, HashSet},
    iter::repeat_n,
    num::NonZeroU64,
    ops::Range,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use crossbeam_channel::Sender;
use forebay_format::FieldId;
use forebay_storage::Storage;
use forebay_versioning::{Location, OpenFile, Table};
use tokio::{
    runtime::Handle,
    sync::{Semaphore, watch},
};

use super::{
    Job, Shared,
    ahead::Ahead,
    atom::Atom,
    builder::{Place, Places, Planned, Work},
    cache::{Cache, Failure, Slot},
    direct::Direct,
    fetch::{Extent, LATER, Limits},
    join::{coalesce, part},
    sources::Spot,
};
use crate::{Batch, Error, LoaderOptions, Result, ledger::Reservation, stats::Route};

/// How many plans may wait to be gathered: enough for the requests in flight to find work, also with small batches.
pub(crate) fn lookahead(options: &LoaderOptions) -> usize {
    options.prefetch + (4 * options.io_concurrency / options.batch_size).max(4)
}

#[derive(Debug)]
pub(crate) struct Feeder {
    job: Arc<Job>,
    shared: Arc<Shared>,
    runtime: Handle,
    limits: Arc<Limits>,
    cache: Cache,
    ahead: Ahead,
    /// What would be read, if nothing is to be requested.
    foreseen: Option<Vec<Foreseen>>,
    /// By column and fragment. Files that can't be opened are kept if that is put up with.
    files: Vec<Vec<Option<Result<FileColumn, Failure>>>>,
    /// Files of columns that were opened.
    opened: usize,
    /// Whether any column has rows that aren't in mapped files.
    fetches: bool,
    /// The files of the epoch, if builders could find rows in them by themselves, once that was asked.
    plain: Option<Option<Vec<usize>>>,
}

/// A column in a data file.
#[derive(Clone, Debug)]
pub(super) struct FileColumn {
    pub(super) file: Arc<OpenFile>,
    pub(super) position: usize,
    /// Whether its rows are gathered from the map.
    pub(super) mapped: bool,
    storage: Storage,
}

/// A read that is to come.
#[derive(Debug)]
pub(crate) struct Foreseen {
    pub(crate) storage: Storage,
    pub(crate) file: Arc<OpenFile>,
    pub(crate) range: Range<u64>,
}

/// How long to wait before looking again whether the epoch was cancelled.
const TICK: Duration = Duration::from_millis(200);

/// What a step gives: nothing once the epoch is cancelled.
type Step<T> = Result<Option<T>>;

impl Feeder {
    pub(crate) fn new(job: Arc<Job>, shared: Arc<Shared>, runtime: Handle) -> Self {
        let limits = Limits {
            requests: Semaphore::new(
                job.options.io_concurrency.saturating_mul(LATER as usize).min(Semaphore::MAX_PERMITS),
            ),
            urgent: watch::Sender::new(0),
            decoders: Semaphore::new(job.options.cores()),
        };
        let files = vec![vec![None; job.sources.files()]; job.columns.len()];
        let ahead = Ahead::new(job.course.clone(), job.shard, job.run_rows);
        let (limits, cache) = (Arc::new(limits), Cache::default());
        Self {
            job,
            shared,
            runtime,
            limits,
            cache,
            ahead,
            foreseen: None,
            files,
            opened: 0,
            fetches: false,
            plain: None,
        }
    }

    /// Until the last batch, the first error, or until nobody wants more.
    pub(crate) fn run(mut self, plans: &Sender<Work>) {
        let batches = self.job.shard.batches();
        let (mut first, mut number) = (0, 0);
        while first < batches {
            // The first comes alone, and groups grow from there, so that the consumer soon has something to do.
            let count = self.job.group.map_or(1, NonZeroU64::get).min(first.max(1));
            let steps = first..(first + count).min(batches);
            let padded = self.job.shard.padding(steps.end - 1) > 0;
            let planned = if self.is_direct() && !padded {
                Ok(None)
            } else {
                let Some(planned) = self.plan(steps.clone()).transpose() else { return };
                planned.map(Some)
            };
            let failed = planned.is_err();
            self.shared.planned.fetch_add(1, Ordering::SeqCst);
            let started = Instant::now();
            (first, number) = (steps.end, number + 1);
            if plans.send(Work { number: number - 1, steps, planned }).is_err() || failed {
                return;
            }
            self.shared.counters.ahead(started.elapsed());
        }
    }

    /// What the epoch reads, in order, as long as memory is not short; requests nothing but what opening files takes.
    pub(crate) fn foresee(mut self) -> Step<Vec<Foreseen>> {
        self.foreseen = Some(Vec::new());
        for step in 0..self.job.shard.batches() {
            if self.shared.is_cancelled() || self.plan(step..step + 1)?.is_none() {
                return Ok(None);
            }
        }
        Ok(self.foreseen)
    }

    /// Whether builders find rows by themselves: every file of the epoch is open and mapped, and no row that is at fault is put up with.
    fn is_direct(&mut self) -> bool {
        if self.shared.direct.get().is_some() {
            return true;
        }
        if self.opened == 0 || self.fetches || self.job.options.faults.tolerates() {
            return false;
        }
        let sources = &self.job.sources;
        let Some(plain) = self.plain.get_or_insert_with(|| sources.plain()) else { return false };
        if self.opened < plain.len() * self.job.columns.len() {
            return false;
        }
        let Some(direct) = Direct::new(sources, plain, &self.files) else { return false };
        // Nobody else sets it.
        let _ = self.shared.direct.set(direct);
        true
    }

    fn plan(&mut self, steps: Range<u64>) -> Step<Planned> {
        let positions: Vec<u64> = steps.clone().flat_map(|step| self.job.shard.positions(step)).collect();
        let indexes = self.job.course.indexes(&positions);
        let spots = self.locate(&indexes)?;
        let open = self.open_files(&spots)?;
        if open.is_none() || (self.fetches && self.request_batch(steps.start, &positions, &indexes)?.is_none()) {
            return Ok(None);
        }
        let mut columns: Vec<Places> =
            (0..self.job.columns.len()).map(|column| self.places(column, &spots)).collect::<Result<_>>()?;
        let (mut positions, mut mask) = (positions, vec![true; indexes.len()]);
        let (mut rows, mut sources) = spots.iter().map(|spot| (spot.row, spot.source)).collect::<(Vec<_>, Vec<_>)>();
        let padding = self.job.shard.padding(steps.end - 1);
        positions.extend(repeat_n(Batch::NO_ROW, padding));
        rows.extend(repeat_n(Batch::NO_ROW, padding));
        sources.extend(repeat_n(0, padding));
        mask.extend(repeat_n(false, padding));
        for places in &mut columns {
            places.rows.extend((0..padding).map(|_| Place::Masked));
        }
        Ok(Some(Planned { steps, positions, rows, sources, mask, columns }))
    }

    fn locate(&self, indexes: &[u64]) -> Result<Vec<Spot>> {
        indexes.iter().map(|index| self.job.sources.spot(*index)).collect()
    }

    /// Opens the files that these rows are in, many at once.
    fn open_files(&mut self, spots: &[Spot]) -> Step<()> {
        let job = self.job.clone();
        let mut sources = BTreeSet::new();
        for number in 0..job.columns.len() {
            let cells = spots.iter().map(|spot| job.sources.cell(number, spot).fragment);
            sources.extend(cells.filter(|source| self.files[number][*source].is_none()).map(|source| (source, number)));
        }
        if sources.is_empty() {
            return Ok(Some(()));
        }
        // By table, whose files are opened together.
        let mut wanted: Vec<(&Table, Vec<(usize, FieldId)>)> = Vec::new();
        for (source, number) in &sources {
            let (table, source, field) = job.sources.file(*source, *number)?;
            match wanted.last_mut() {
                Some((last, files)) if std::ptr::eq(*last, table) => files.push((source, field)),
                _ => wanted.push((table, vec![(source, field)])),
            }
        }
        let names: Vec<String> = wanted.iter().flat_map(|(table, files)| indexes_of(table, files)).take(8).collect();
        let open = futures::future::try_join_all(wanted.into_iter().map(|(table, files)| table.open_files(files)));
        let mut stop = self.shared.stop.subscribe();
        let opened = self.runtime.block_on(async {
            tokio::select! {
                _ = stop.wait_for(|stop| *stop) => None,
                opened = tokio::time::timeout(job.options.stall_timeout, open) => Some(opened),
            }
        });
        match opened {
            None => return Ok(None),
            Some(Ok(Err(error))) if !job.options.faults.tolerates() => return Err(error.into()),
            // If one of them is damaged, that is found below, where it is known which.
            Some(Ok(_)) => {}
            Some(Err(_)) => return Err(Error::Stalled { after: job.options.stall_timeout, waiting: names }),
        }
        for (source, number) in sources {
            let opened = match self.open_file(source, number) {
                Err(error) if job.options.faults.tolerates() && error.is_of_row() => Err(Failure::new(error)),
                opened => Ok(opened?),
            };
            self.fetches |= opened.as_ref().is_ok_and(|file| !file.mapped);
            self.files[number][source] = Some(opened);
            self.opened += 1;
        }
        Ok(Some(()))
    }

    /// Opens the file of a column in a source, which is mostly open already.
    fn open_file(&self, source: usize, number: usize) -> Result<FileColumn> {
        let (table, source, field) = self.job.sources.file(source, number)?;
        let column = &self.job.columns[number];
        let file = self.runtime.block_on(table.file(source, field))?;
        let known = file.position(field).map(|position| (position, &file.index().columns()[position]));
        let Some((position, index)) = known else {
            let reason = format!("it lacks column '{}'", column.name);
            return Err(forebay_versioning::Error::Inconsistent { path: file.path().to_owned(), reason }.into());
        };
        let local = file.map().is_some();
        let mapped = local && index.direct().is_some() && !column.column.nullable;
        let route = match (mapped, local) {
            _ if column.linked => Route::Linked,
            (true, _) => Route::Mapped,
            (false, true) => Route::Decoded,
            (false, false) => Route::Fetched,
        };
        self.shared.counters.route(number, route);
        Ok(FileColumn { file, position, mapped, storage: table.storage().clone() })
    }

    /// Requests what a batch needs and wasn't requested before, and what travels with it.
    fn request_batch(&mut self, step: u64, positions: &[u64], indexes: &[u64]) -> Step<()> {
        if step == 0 {
            let Some(needs) = self.needs(indexes)? else { return Ok(None) };
            return self.request(needs, true);
        }
        let mut alone = Vec::new();
        for (position, index) in positions.iter().zip(indexes) {
            let mut due = self.ahead.due(*position, *index);
            if self.ahead.in_runs() && !due.is_empty() {
                let Some(needs) = self.needs(&due)? else { return Ok(None) };
                match self.has_room(&needs) {
                    None => return Ok(None),
                    Some(true) if self.request(needs, false)?.is_none() => return Ok(None),
                    Some(true) => continue,
                    Some(false) => self.ahead.fall_back(*index),
                }
                due = self.ahead.due(*position, *index);
            }
            if due.len() < 2 {
                alone.extend(due);
                continue;
            }
            let Some(needs) = self.needs(&due)? else { return Ok(None) };
            if self.request(needs, false)?.is_none() {
                return Ok(None);
            }
        }
        let Some(needs) = self.needs(&alone)? else { return Ok(None) };
        self.request(needs, false)
    }

    /// The blocks that these rows need, of each column: one for each use.
    fn needs(&mut self, indexes: &[u64]) -> Step<Vec<Vec<Atom>>> {
        let spots = self.locate(indexes)?;
        if self.open_files(&spots)?.is_none() {
            return Ok(None);
        }
        let mut needs = vec![Vec::new(); self.job.columns.len()];
        for (column, needs) in needs.iter_mut().enumerate() {
            for spot in &spots {
                let cell = self.job.sources.cell(column, spot);
                if let Ok(file) = self.file(column, cell.fragment)?
                    && !file.mapped
                {
                    needs.extend(file.atoms(column, cell));
                }
            }
        }
        Ok(Some(needs))
    }

    /// Announces the uses, and requests the blocks that nobody has requested.
    fn request(&mut self, needs: Vec<Vec<Atom>>, urgent: bool) -> Step<()> {
        for (column, atoms) in needs.into_iter().enumerate() {
            let uses = atoms.len();
            let mut missing: Vec<Atom> = atoms.into_iter().filter(|atom| self.cache.announce(atom)).collect();
            if let Some(kept) = &self.job.kept {
                missing.retain(|atom| match kept.get(&atom.key) {
                    Some(block) => {
                        self.cache.requested(&atom.key, Slot::holding(block));
                        false
                    }
                    None => true,
                });
            }
            if self.foreseen.is_none() {
                self.shared.counters.blocks(missing.len(), uses - missing.len());
            }
            missing.sort_unstable_by_key(|atom| (atom.key.fragment, atom.stored.start));
            for atoms in coalesce(missing) {
                if self.send(column, atoms, urgent)?.is_none() {
                    return Ok(None);
                }
            }
        }
        Ok(Some(()))
    }

    /// Whether there is memory for these blocks beside all that is held for later, once the requests in flight are
    /// answered; `None` once the epoch is cancelled.
    fn has_room(&mut self, needs: &[Vec<Atom>]) -> Option<bool> {
        if self.foreseen.is_some() {
            return Some(true);
        }
        let mut known = HashSet::new();
        let is_held = |atom: &Atom| {
            self.cache.holds(&atom.key) || self.job.kept.as_ref().is_some_and(|kept| kept.holds(&atom.key))
        };
        let missing = needs.iter().flatten().filter(|atom| !is_held(atom) && known.insert(atom.key));
        let cost = missing.map(Atom::cost).sum();
        loop {
            let seen = self.shared.signal.now();
            if self.shared.is_cancelled() {
                return None;
            }
            if self.shared.ledger.free() >= cost {
                return Some(true);
            }
            if self.cache.evict() {
                continue;
            }
            if self.shared.requested.load(Ordering::SeqCst) == 0 {
                return Some(false);
            }
            self.shared.signal.wait(seen, TICK);
        }
    }

    /// Sends one request, once there is memory for what it brings.
    fn send(&mut self, column: usize, atoms: Vec<Atom>, urgent: bool) -> Step<()> {
        let Some((first, last)) = atoms.first().zip(atoms.last()) else { return Ok(Some(())) };
        let range = first.stored.start..last.stored.end;
        let rows = first.rows.start..last.rows.end.max(first.rows.end);
        let Ok(FileColumn { file, position, storage, .. }) = self.file(column, first.key.fragment as usize)? else {
            return Err(Error::Died { thread: "feeder" });
        };
        if let Some(foreseen) = &mut self.foreseen {
            foreseen.push(Foreseen { storage, file, range });
            let nowhere = Slot::new("".into());
            atoms.iter().for_each(|atom| self.cache.requested(&atom.key, nowhere.clone()));
            return Ok(Some(()));
        }
        let label: Arc<str> = format!("{} bytes {}..{}", file.path(), range.start, range.end).into();
        let cost = atoms.iter().map(Atom::cost).sum();
        let Some(reservation) = self.reserve(cost) else { return Ok(None) };
        let cache = &mut self.cache;
        let parts = part(atoms, |atom| {
            let slot = Slot::new(label.clone());
            cache.requested(&atom.key, slot.clone());
            // A block that is kept for rows to come keeps no memory but its own.
            (slot, cache.wanted_whole(&atom.key))
        });
        let name = self.job.columns[column].name.clone();
        let extent = Extent {
            column: name,
            storage,
            file,
            position,
            range,
            rows,
            parts,
            reservation: reservation.into(),
            urgent,
        };
        self.shared.requested.fetch_add(1, Ordering::SeqCst);
        if urgent {
            self.limits.urgent.send_modify(|count| *count += 1);
        }
        self.runtime.spawn(extent.run(self.job.clone(), self.shared.clone(), self.limits.clone()));
        Ok(Some(()))
    }

    /// Waits for its turn and for memory; `None` once the epoch is cancelled.
    fn reserve(&mut self, bytes: u64) -> Option<Reservation> {
        loop {
            let seen = self.shared.signal.now();
            if self.shared.is_cancelled() {
                return None;
            }
            let turn = self.shared.requested.load(Ordering::SeqCst) < 4 * self.job.options.io_concurrency;
            if turn {
                if let Some(reservation) = self.shared.ledger.try_reserve(bytes) {
                    return Some(reservation);
                }
                if self.cache.evict() {
                    continue;
                }
                if self.shared.planned.load(Ordering::SeqCst) == 0 {
                    // Nothing is left that could free memory: without this request the next batch would never come.
                    return Some(self.shared.ledger.overdraw(bytes));
                }
            }
            let started = Instant::now();
            self.shared.signal.wait(seen, TICK);
            if turn {
                self.shared.counters.short_of_memory(started.elapsed());
            }
        }
    }

    /// Where the rows of a batch are, of one column.
    fn places(&mut self, column: usize, spots: &[Spot]) -> Result<Places> {
        let mut places = Places { files: Vec::new(), rows: Vec::with_capacity(spots.len()) };
        let nullable = self.job.columns[column].column.nullable;
        let mut numbers: Vec<Option<u32>> = vec![None; self.files[column].len()];
        for spot in spots {
            let cell = self.job.sources.cell(column, spot);
            let row = cell.row;
            if let Some(file) = numbers[cell.fragment] {
                places.rows.push(Place::Mapped { file, row });
                continue;
            }
            let file = match self.file(column, cell.fragment)? {
                Ok(file) => file,
                Err(failure) => {
                    places.rows.push(Place::Failed(failure));
                    continue;
                }
            };
            if file.mapped {
                let number = places.files.len() as u32;
                numbers[cell.fragment] = Some(number);
                places.files.push((file.file, file.position));
                places.rows.push(Place::Mapped { file: number, row });
                continue;
            }
            let (values, validity) = file.atoms_of(column, cell, nullable);
            let mut take = |atom: Option<Atom>| match atom {
                None => Ok(None),
                Some(atom) => self.cache.take(&atom.key).map(Some).ok_or(Error::Died { thread: "feeder" }),
            };
            places.rows.push(Place::Fetched { row, values: take(values)?, validity: take(validity)? });
        }
        Ok(places)
    }

    fn file(&self, column: usize, source: usize) -> Result<Result<FileColumn, Failure>> {
        self.files[column][source].clone().ok_or(Error::Died { thread: "feeder" })
    }
}

impl FileColumn {
    fn atoms_of(&self, column: usize, location: Location, nullable: bool) -> (Option<Atom>, Option<Atom>) {
        let index = &self.file.index().columns()[self.position];
        let (column, fragment) = (column as u32, location.fragment as u32);
        let validity = if nullable { Atom::validity(column, fragment, index, location.row) } else { None };
        (Atom::values(column, fragment, index, location.row), validity)
    }

    fn atoms(&self, column: usize, location: Location) -> impl Iterator<Item = Atom> + use<> {
        let nullable = self.file.index().columns()[self.position].nullable();
        let (values, validity) = self.atoms_of(column, location, nullable);
        values.into_iter().chain(validity)
    }
}

/// What is read when these files are opened, for people.
fn indexes_of(table: &Table, files: &[(usize, FieldId)]) -> Vec<String> {
    let fragments = files.iter().filter_map(|(source, _)| table.fragments().get(*source));
    fragments.flat_map(|fragment| &fragment.files).map(|file| format!("the index of data/{}", file.id)).collect()
}
