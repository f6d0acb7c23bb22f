//! Epochs of batches over a selection.

mod budget;

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::Ordering},
    time::{Duration, Instant},
};

use crossbeam_channel::{RecvTimeoutError, TryRecvError};
use forebay_format::{Column, DType, Dim};
use forebay_storage::Storage;
use forebay_versioning::Selection;

use budget::Memory;

use crate::{
    Batch, BatchField, Error, Fault, LoaderOptions, Pixels, Result, State, Stats,
    device::Device,
    engine::{Epoch, Job, JobColumn, Kept, Sources, foresight, group},
    order::{Course, Grain, Key, Mixture, Order, Shard, Shuffle, Stop, Window},
    stage::Chain,
};

/// Turns a selection into batches, epoch after epoch.
///
/// Building one does no IO. Each [`iter`](Self::iter) is an epoch with threads of its own; several may run at once.
#[derive(Debug)]
pub struct Loader {
    sources: Sources,
    /// How several sources are mixed.
    mix: Option<Mix>,
    columns: Vec<JobColumn>,
    chain: Chain,
    options: LoaderOptions,
    device: Arc<dyn Device>,
    /// What is kept from one epoch to the next.
    kept: Option<Arc<Kept>>,
    /// The epoch and the position in it that the next iteration starts at.
    next: Mutex<(u64, u64)>,
    memory: Memory,
    /// The positions of an epoch.
    positions: u64,
    process: u32,
}

/// How several sources are mixed.
#[derive(Clone, Debug)]
struct Mix {
    weights: Vec<f64>,
    stop: Stop,
}

impl Loader {
    /// A loader of a selection's rows into memory of `device`.
    ///
    /// # Errors
    /// [`Error::Option`] for an option that makes no sense; [`Error::Data`] for a column that isn't there;
    /// [`Error::Finish`] for a finish that doesn't fit its column;
    /// [`Error::Budget`] if the memory budget doesn't hold this rank's share of the shuffle window and the prefetched
    /// batches.
    pub fn new(selection: Selection, options: LoaderOptions, device: Arc<dyn Device>) -> Result<Self> {
        Self::of(vec![selection], None, options, device)
    }

    /// A loader of several selections, of one table, lake or several, with columns alike, mixed in proportion to their weights
    /// until `stop`. Each is shuffled for itself, and anew when it begins anew.
    ///
    /// # Errors
    /// As [`new`](Self::new); [`Error::Mix`] if there is no source, one has no rows, a weight isn't above 0, a column differs, or rows
    /// are to be drawn by weight as well.
    pub fn mix(
        sources: Vec<(Selection, f64)>,
        stop: Stop,
        options: LoaderOptions,
        device: Arc<dyn Device>,
    ) -> Result<Self> {
        let fail = |reason: String| Err(Error::Mix { reason });
        if sources.is_empty() {
            return fail("there is no source".to_owned());
        }
        for (number, (selection, weight)) in sources.iter().enumerate() {
            if selection.is_empty() {
                return fail(format!("source {number}, table '{}', has no rows", selection.table().name()));
            }
            if !weight.is_finite() || *weight <= 0.0 {
                return fail(format!("the weight of source {number} is {weight}: it is above 0 and finite"));
            }
        }
        if options.sampling.is_some() {
            return fail("rows are drawn by weight from one table only".to_owned());
        }
        let (selections, weights) = sources.into_iter().collect::<(Vec<_>, Vec<_>)>();
        Self::of(selections, Some(Mix { weights, stop }), options, device)
    }

    fn of(
        selections: Vec<Selection>,
        mix: Option<Mix>,
        options: LoaderOptions,
        device: Arc<dyn Device>,
    ) -> Result<Self> {
        options.check()?;
        let first = selections.first().ok_or(Error::Mix { reason: "there is no source".to_owned() })?;
        let schema = first.table().schema();
        let mut columns: Vec<_> = match &options.columns {
            None => schema.columns.clone(),
            Some(names) => names.iter().map(|name| schema.column(name).cloned()).collect::<Result<_, _>>()?,
        };
        let mut sources = Vec::new();
        for (number, selection) in selections.iter().enumerate() {
            let mut fields = Vec::new();
            for column in &mut columns {
                let theirs = selection.table().schema().column(&column.name)?;
                if (theirs.dtype, &theirs.shape) != (column.dtype, &column.shape) {
                    let name = &column.name;
                    return Err(Error::Mix {
                        reason: format!("column '{name}' of source {number} differs from the first's"),
                    });
                }
                // A batch says of each row whether it is valid if any source's may be null.
                column.nullable |= theirs.nullable;
                fields.push(theirs.field);
            }
            sources.push((selection.clone(), fields));
        }
        if let Some(sampling) = &options.sampling
            && let Some(reason) = sampling.odd(first.len())
        {
            let value = format!("{} weights for {} rows", sampling.weights.len(), first.len());
            return Err(Error::Option { option: "sampling", value, reason });
        }
        if let Some(name) = options.finishes.keys().find(|name| !columns.iter().any(|column| column.name == **name)) {
            let reason = "a column that isn't delivered has a finish";
            return Err(Error::Option { option: "finishes", value: name.clone(), reason });
        }
        if let Some(name) = options.decode.keys().find(|name| !columns.iter().any(|column| column.name == **name)) {
            let reason = "a column that isn't delivered is to be decoded";
            return Err(Error::Option { option: "decode", value: name.clone(), reason });
        }
        let job_column = |mut column: Column| {
            let linked = column.dtype == DType::Link;
            if linked {
                column.dtype = DType::Bytes;
            }
            let pixels = options.decode.get(&column.name).copied();
            let column = pixels.map_or(Ok(column.clone()), |pixels| decoded(&column, pixels))?;
            let finish = options.finishes.get(&column.name).map(|finish| finish.prepare(&column)).transpose()?;
            let finish = finish.map(Arc::new);
            Ok(JobColumn { name: column.name.as_str().into(), finish, column, linked, pixels })
        };
        let columns = columns.into_iter().map(job_column).collect::<Result<Vec<_>>>()?;
        let chain = Chain::new(options.stages.clone(), columns.iter().map(JobColumn::delivered).collect())?;
        if let Shuffle::Windowed(window) = options.shuffle
            && window.lanes % options.world != 0
        {
            tracing::warn!(
                lanes = window.lanes,
                world = options.world,
                "lanes are not a multiple of the world's size: ranks read some of each other's bytes; choose such a multiple"
            );
        }
        let mut loader = Self {
            next: Mutex::new((options.epoch, 0)),
            memory: Memory::default(),
            positions: 0,
            process: std::process::id(),
            sources: Sources::new(sources),
            mix,
            columns,
            chain,
            kept: Kept::new(options.host_cache),
            options,
            device,
        };
        loader.positions = match (&loader.mix, &loader.options.sampling) {
            (None, None) => loader.sources.rows(),
            (None, Some(sampling)) => sampling.len(),
            (Some(_), _) => loader.order(0).rows(),
        };
        loader.memory = loader.check_budget()?;
        let remote = loader.sources.selections().any(|selection| selection.table().storage().local().is_none());
        if loader.options.shuffle == Shuffle::Global && remote && loader.memory.run_rows.is_none() {
            tracing::warn!(
                "a global shuffle of more than the memory budget holds reads single rows from the store: expect io_concurrency \
                 rows a round trip; a windowed shuffle reads runs of them"
            );
        }
        Ok(loader)
    }

    /// The rows that it loads: one selection, or those that it mixes.
    #[must_use]
    pub fn selections(&self) -> impl ExactSizeIterator<Item = &Selection> + Clone {
        self.sources.selections()
    }

    /// Where these rows are: each storage once.
    #[must_use]
    pub fn storages(&self) -> Vec<Storage> {
        let mut storages: Vec<Storage> = Vec::new();
        for selection in self.selections() {
            let storage = selection.table().storage();
            if !storages.iter().any(|known| known.url() == storage.url()) {
                storages.push(storage.clone());
            }
        }
        storages
    }

    /// How it loads.
    #[must_use]
    pub fn options(&self) -> &LoaderOptions {
        &self.options
    }

    /// What every batch holds, column by column.
    #[must_use]
    pub fn schema(&self) -> Vec<BatchField> {
        self.chain.fields().to_vec()
    }

    /// The columns as they are read: decoded, but not finished.
    pub fn columns(&self) -> impl Iterator<Item = &Column> {
        self.columns.iter().map(|column| &column.column)
    }

    /// The batches of an epoch, on this rank.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.shard().batches()
    }

    /// Whether this rank has no batches.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The rows of an epoch, on this rank.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.shard().delivered()
    }

    /// The epoch that the next [`iter`](Self::iter) reads.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.next().0
    }

    /// Sets the epoch that the next [`iter`](Self::iter) reads, from its start; or, if [`resume`](Self::resume) named a position in
    /// this very epoch, from there. Epochs that are under way go on.
    pub fn set_epoch(&self, epoch: u64) {
        let mut next = self.next();
        if next.0 != epoch {
            *next = (epoch, 0);
        }
    }

    fn next(&self) -> MutexGuard<'_, (u64, u64)> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state in which `position` samples of an epoch were delivered, on all ranks together.
    #[must_use]
    pub fn state(&self, epoch: u64, position: u64) -> State {
        let mut commits: Vec<_> =
            self.selections().map(|selection| selection.table().snapshot().id().to_string()).collect();
        commits.dedup();
        let mut shuffle = match (self.options.shuffle, &self.options.sampling) {
            (_, Some(sampling)) => {
                format!("weighted({}, {}, {})", sampling.digest(), sampling.replacement, sampling.len())
            }
            (Shuffle::Off, _) => "off".to_owned(),
            (Shuffle::Global, _) => "global".to_owned(),
            (Shuffle::Buffer(rows), _) => format!("buffer({rows})"),
            (Shuffle::Windowed(Window { lanes, window, unit_bytes }), _) => {
                format!("windowed({lanes}, {window}, {unit_bytes})")
            }
        };
        let selection = match &self.mix {
            None => self.sources.selection(0).digest(),
            Some(Mix { weights, stop }) => {
                let mut hash = blake3::Hasher::new_derive_key("forebay 2026 mixture of selections");
                self.selections().for_each(|selection| {
                    hash.update(&selection.digest());
                });
                weights.iter().for_each(|weight| {
                    hash.update(&weight.to_le_bytes());
                });
                shuffle = format!("mix({} sources, {stop:?}, {shuffle})", weights.len());
                *hash.finalize().as_bytes()
            }
        };
        State {
            version: State::VERSION,
            commit: commits.join(" "),
            selection: selection.iter().map(|byte| format!("{byte:02x}")).collect(),
            shuffle,
            seed: self.options.seed,
            epoch,
            position,
            checksum: String::new(),
        }
        .seal()
    }

    /// Lets the next [`iter`](Self::iter) go on where `state` was taken, whatever the number of ranks, threads and rows of a batch
    /// were there.
    ///
    /// # Errors
    /// [`Error::State`], which names the field, if the state was damaged or is of other rows or another order; then nothing changes.
    pub fn resume(&self, state: &State) -> Result<()> {
        state.check(&self.state(0, 0), self.positions)?;
        *self.next() = (state.epoch, state.position);
        Ok(())
    }

    /// The order of an epoch.
    #[must_use]
    pub fn order(&self, epoch: u64) -> Course {
        let seed = self.options.seed;
        let Some(Mix { weights, stop }) = &self.mix else { return Course::one(self.order_of(0, seed, epoch)) };
        let lengths: Vec<u64> = self.selections().map(Selection::len).collect();
        let mixture = Mixture::new(&lengths, weights, *stop, seed, epoch);
        let (shuffle, rows) = (self.options.shuffle, lengths.clone());
        let grains: Vec<Grain> = self.selections().map(budget::grain).collect();
        Course::mixed(mixture, &lengths, seed, epoch, move |source, pass| {
            let key = Key::new("forebay 2026 pass over a source", &[seed, epoch, source as u64, pass]);
            Order::new(rows[source], grains[source], shuffle, key.drawn(), epoch)
        })
    }

    /// The order of a source alone.
    fn order_of(&self, source: u32, seed: u64, epoch: u64) -> Order {
        if let Some(sampling) = &self.options.sampling {
            return Order::drawn(sampling, seed, epoch);
        }
        let selection = self.sources.selection(source);
        Order::new(selection.len(), budget::grain(selection), self.options.shuffle, seed, epoch)
    }

    /// The part of an epoch that this rank reads.
    #[must_use]
    pub fn shard(&self) -> Shard {
        let options = &self.options;
        Shard::new(self.positions, options.batch_size as u64, options.rank, options.world, options.tail)
    }

    fn job(&self, epoch: u64, shard: Shard) -> Job {
        Job {
            sources: self.sources.clone(),
            columns: self.columns.clone(),
            chain: self.chain.clone(),
            course: self.order(epoch),
            shard,
            options: self.options.clone(),
            device: self.device.clone(),
            kept: self.kept.clone(),
            arena_bytes: self.memory.arena_bytes,
            run_rows: self.memory.run_rows,
            faults_allowed: self.options.faults.allowed(shard.delivered()),
            group: group(&self.columns, self.sources.rows(), &self.options, &*self.device),
        }
    }

    /// Starts an epoch, or goes on with the one that [`resume`](Self::resume) named.
    ///
    /// # Errors
    /// [`Error::Forked`] in a child process; [`Error::Threads`] or [`Error::Storage`] if threads can't be started.
    pub fn iter(&self) -> Result<Batches> {
        if std::process::id() != self.process {
            return Err(Error::Forked);
        }
        let (epoch, position) = {
            let mut next = self.next();
            let start = *next;
            next.1 = 0;
            start
        };
        let shard = self.shard().from(position);
        let job = self.job(epoch, shard);
        let foresees = shard.delivered() <= foresight::MOST_ROWS && self.storages().iter().any(Storage::foresees);
        let next = foresees.then(|| self.job(epoch.saturating_add(1), self.shard()));
        Ok(Batches {
            epoch: Epoch::start(Arc::new(job), next)?,
            number: epoch,
            shard,
            columns: self.columns.clone(),
            total: shard.batches(),
            delivered: 0,
            ended: false,
            complete: false,
        })
    }
}

/// What a column of encoded images is once they are decoded.
fn decoded(column: &Column, pixels: Pixels) -> Result<Column> {
    if column.dtype != DType::Bytes {
        let (option, value) = ("decode", column.name.clone());
        return Err(Error::Option {
            option,
            value,
            reason: "only images that are stored encoded, as bytes, are decoded",
        });
    }
    let shape = [Dim::Free, Dim::Free, Dim::Fixed(pixels.channels())];
    let mut made = Column::new(&column.name, DType::U8, shape)?;
    made.field = column.field;
    made.nullable = column.nullable;
    made.kind.name.clone_from(&column.kind.name);
    made.kind.metadata.insert("layout".to_owned(), "HWC".to_owned());
    Ok(made)
}

/// The batches of an epoch, in order. Dropping it stops the epoch.
#[derive(Debug)]
pub struct Batches {
    epoch: Epoch,
    number: u64,
    shard: Shard,
    columns: Vec<JobColumn>,
    total: u64,
    delivered: u64,
    ended: bool,
    /// Whether it came to its end without an error.
    complete: bool,
}

/// What a bounded wait for a batch gave.
#[derive(Debug)]
pub enum Next {
    /// The next batch.
    Batch(Batch),
    /// It isn't there yet.
    Pending,
    /// There are no more.
    End,
}

impl Batches {
    /// Waits for the next batch, at most `timeout`: for callers that must look after something else now and then.
    ///
    /// # Errors
    /// What ended the epoch early; after an error there is only [`Next::End`].
    pub fn next_within(&mut self, timeout: Duration) -> Result<Next> {
        if self.ended || (self.delivered == self.total && self.epoch.is_here()) {
            self.complete |= !self.ended;
            self.ended = true;
            return Ok(Next::End);
        }
        let next = self.receive(timeout);
        match &next {
            Ok(Next::Batch(batch)) => {
                self.delivered += batch.count;
                self.epoch.shared.counters.batches.fetch_add(batch.count, Ordering::Relaxed);
                self.epoch.shared.counters.rows.fetch_add(batch.rows.len() as u64, Ordering::Relaxed);
            }
            Ok(_) => {}
            Err(_) => self.ended = true,
        }
        next
    }

    fn receive(&self, timeout: Duration) -> Result<Next> {
        if !self.epoch.is_here() {
            return Err(Error::Forked);
        }
        let died = Error::Died { thread: "builder" };
        let Some(batches) = self.epoch.batches() else { return Err(died) };
        match batches.try_recv() {
            Ok(batch) => return batch.map(Next::Batch),
            Err(TryRecvError::Disconnected) => return Err(died),
            Err(TryRecvError::Empty) => {}
        }
        let (started, stage) = (Instant::now(), self.epoch.shared.stages.get(self.delivered));
        let received = batches.recv_timeout(timeout);
        self.epoch.shared.counters.waited(started.elapsed(), stage);
        match received {
            Ok(batch) => batch.map(Next::Batch),
            Err(RecvTimeoutError::Timeout) => Ok(Next::Pending),
            Err(RecvTimeoutError::Disconnected) => Err(died),
        }
    }

    /// The batches that were not delivered yet.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        if self.ended { 0 } else { self.total - self.delivered }
    }

    /// What was done so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let names = self.columns.iter().map(|column| &*column.name);
        let stats = self.epoch.shared.counters.snapshot(names, self.epoch.shared.ledger.peak());
        let (faults, planned, in_flight) = self.epoch.shared.depths();
        let ready = self.epoch.batches().map_or(0, crossbeam_channel::Receiver::len);
        Stats { faults, planned, in_flight, ready, kept_bytes: self.epoch.kept_bytes(), ..stats }
    }

    /// The epoch, and how many samples of it all ranks together have delivered once each has taken as many batches as this one:
    /// what [`Loader::state`] takes. After the last batch that is the start of the next epoch, and also once a rank that has no last
    /// batch was told so.
    #[must_use]
    pub fn progress(&self) -> (u64, u64) {
        self.progress_before(0)
    }

    /// As [`progress`](Self::progress) `count` batches ago: for who hands on one by one what came as a group.
    #[must_use]
    pub fn progress_before(&self, count: u64) -> (u64, u64) {
        match self.shard.after(self.delivered.saturating_sub(count)) {
            Some(position) if !self.complete => (self.number, position),
            _ => (self.number.saturating_add(1), 0),
        }
    }

    /// The rows that were at fault so far, in order of the batches.
    #[must_use]
    pub fn faults(&self) -> Vec<Fault> {
        self.epoch.shared.faults()
    }
}

impl Iterator for Batches {
    type Item = Result<Batch>;

    /// Waits for the next batch. After an error there are no more.
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.next_within(Duration::from_secs(3600)) {
                Ok(Next::Batch(batch)) => return Some(Ok(batch)),
                Ok(Next::Pending) => {}
                Ok(Next::End) => return None,
                Err(error) => return Some(Err(error)),
            }
        }
    }
}
