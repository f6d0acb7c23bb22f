//! One epoch under way: a feeder plans batches and requests bytes ahead, builders gather them and hand them over in order.
//!
//! ```text
//!  feeder thread            IO tasks                 builder threads            consumer
//!  order -> rows -> blocks  ranged reads, checks     waits for a batch's        takes batches,
//!  reserve, request    ---> decode into the arena -> blocks; device.gather ---> in order
//!        |                                                  ^
//!        +---- plans, in order -----------------------------+
//! ```
//! Once every file of the epoch is open and all rows lie in maps, the builders plan as well, each its own batch.
//!
//! The feeder is the only one who knows which blocks are held and how often each will still be used; a plan holds what
//! it needs by reference count, so nothing else has to be told when a batch is done.

mod ahead;
mod atom;
mod builder;
mod cache;
mod direct;
mod draft;
mod feeder;
mod fetch;
pub(crate) mod foresight;
mod join;
mod kept;
mod linked;
mod mend;
mod pixels;
mod sources;
mod turn;

pub(crate) use kept::Kept;
pub(crate) use sources::Sources;

use std::{
    num::NonZeroU64,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    thread::JoinHandle,
};

use crossbeam_channel::{Receiver, bounded};
use forebay_format::{Column, Dim, Layout};
use tokio::sync::{Semaphore, watch};

use crate::{
    Batch, BatchField, Error, Fault, LoaderOptions, OnFault, Pixels, Result,
    device::Device,
    faults::Faults,
    finish::Prepared,
    ledger::Ledger,
    order::{Course, Shard, Tail},
    signal::Signal,
    stage::Chain,
    stats::{Counters, Stages},
};

/// What an epoch is to do. It doesn't change.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) sources: Sources,
    pub(crate) columns: Vec<JobColumn>,
    /// What batches go through when they were gathered.
    pub(crate) chain: Chain,
    pub(crate) course: Course,
    pub(crate) shard: Shard,
    pub(crate) options: LoaderOptions,
    pub(crate) device: Arc<dyn Device>,
    /// What is left of the budget for fetched bytes.
    pub(crate) arena_bytes: u64,
    /// The rows of a run that is fetched at once, if memory is expected to hold all that is fetched.
    pub(crate) run_rows: Option<u64>,
    /// What is kept from one epoch to the next.
    pub(crate) kept: Option<Arc<Kept>>,
    /// How many faulty rows are put up with.
    pub(crate) faults_allowed: u64,
    /// How many batches are built as one; `None` if one alone is more than the device asks for at once.
    pub(crate) group: Option<NonZeroU64>,
}

impl Job {
    /// Whether rows may be masked.
    pub(crate) fn masks(&self) -> bool {
        self.options.tail == Tail::Pad || self.options.faults.on_fault == OnFault::Skip
    }
}

/// A column to deliver.
#[derive(Clone, Debug)]
pub(crate) struct JobColumn {
    pub(crate) name: Arc<str>,
    /// As it is delivered. Of a column of links it is what they lead to.
    pub(crate) column: Column,
    /// Whether its rows are links to what is delivered.
    pub(crate) linked: bool,
    /// What its images are decoded to; then `column` is what they are once they were.
    pub(crate) pixels: Option<Pixels>,
    /// What is done to its rows.
    pub(crate) finish: Option<Arc<Prepared>>,
}

impl JobColumn {
    /// The bytes of a row of it in a batch; `None` if they differ from row to row.
    pub(crate) fn delivered_bytes(&self) -> Option<usize> {
        match (&self.finish, self.column.layout()) {
            (Some(finish), _) => Some(finish.out_row_bytes()),
            (None, Layout::Fixed { row_bytes }) => Some(row_bytes),
            (None, Layout::Ragged { .. }) => None,
        }
    }

    /// What is delivered of it.
    pub(crate) fn delivered(&self) -> BatchField {
        let (dtype, shape) = match &self.finish {
            None => (self.column.dtype, self.column.shape.clone()),
            Some(finish) => (finish.number().dtype(), finish.shape().map(|length| Dim::Fixed(length as u32)).to_vec()),
        };
        BatchField { name: self.name.clone(), dtype, shape, nullable: self.column.nullable }
    }
}

/// Of rows that the device keeps, batches are built as one, whatever their bytes: at most so many batches and rows.
const KEPT_GROUP: u64 = 16;
const KEPT_ROWS: u64 = 4096;

/// How many batches of `rows` rows are built as one; `None` if one alone is more than the device asks for at once.
pub(crate) fn group(
    columns: &[JobColumn],
    rows: u64,
    options: &LoaderOptions,
    device: &dyn Device,
) -> Option<NonZeroU64> {
    // A stage is given one batch.
    if !options.stages.is_empty() {
        return None;
    }
    let most = options.group_bytes.min(options.memory_budget / 16);
    let batches = |row: &[usize]| {
        let row = row.iter().sum::<usize>() as u64;
        most / row.saturating_mul(options.batch_size as u64).max(1)
    };
    let delivered = columns.iter().map(JobColumn::delivered_bytes).collect::<Option<Vec<_>>>()?;
    let mut group = batches(&delivered);
    // What is finished takes its whole length.
    if columns.iter().all(|column| column.finish.is_none()) {
        let kept = (KEPT_ROWS / options.batch_size as u64).clamp(1, KEPT_GROUP);
        group = group.max(batches(&device.bytes_on_the_way(rows, &delivered)).min(kept));
    }
    NonZeroU64::new(group)
}

/// What the threads and tasks of an epoch share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) counters: Counters,
    pub(crate) ledger: Arc<Ledger>,
    /// Raised when anything changed that a thread may wait for.
    signal: Arc<Signal>,
    cancelled: AtomicBool,
    stop: watch::Sender<bool>,
    /// Plans that were sent and not gathered yet.
    planned: AtomicUsize,
    /// Requests that were made and not answered yet.
    requested: AtomicUsize,
    /// Requests answered so far.
    answered: AtomicU64,
    /// Where the next batches are.
    pub(crate) stages: Stages,
    faults: Mutex<Faults>,
    /// Where all rows are, once that is known without the feeder.
    direct: OnceLock<direct::Direct>,
    /// Turns to read what links lead to.
    links: Semaphore,
}

impl Shared {
    fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::SeqCst)
    }

    /// Notes what was at fault in the next batch.
    fn note(&self, faults: Vec<Fault>, allowed: u64) -> Result<()> {
        if faults.is_empty() {
            return Ok(());
        }
        self.faults.lock().unwrap_or_else(PoisonError::into_inner).add(faults, allowed)
    }

    /// What was at fault so far, in order.
    pub(crate) fn faults(&self) -> Vec<Fault> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner).list().to_vec()
    }

    /// Rows that were at fault so far; plans that wait for their blocks or the device; requests in flight.
    pub(crate) fn depths(&self) -> (u64, usize, usize) {
        let faults = self.faults.lock().unwrap_or_else(PoisonError::into_inner).rows();
        (faults, self.planned.load(Ordering::SeqCst), self.requested.load(Ordering::SeqCst))
    }
}

/// A running epoch.
#[derive(Debug)]
pub(crate) struct Epoch {
    pub(crate) shared: Arc<Shared>,
    kept: Option<Arc<Kept>>,
    batches: Option<Receiver<Result<Batch>>>,
    threads: Vec<JoinHandle<()>>,
    process: u32,
}

impl Epoch {
    /// Starts the threads. `next` is the epoch that follows, if what is read is to be foreseen.
    pub(crate) fn start(job: Arc<Job>, next: Option<Job>) -> Result<Self> {
        let runtime = forebay_storage::runtime()?;
        let signal = Arc::new(Signal::default());
        let shared = Arc::new(Shared {
            counters: Counters::default(),
            ledger: Ledger::new(job.arena_bytes, signal.clone()),
            signal,
            cancelled: AtomicBool::new(false),
            stop: watch::Sender::new(false),
            planned: AtomicUsize::new(0),
            requested: AtomicUsize::new(0),
            answered: AtomicU64::new(0),
            stages: Stages::default(),
            faults: Mutex::default(),
            direct: OnceLock::new(),
            links: Semaphore::new(job.options.io_concurrency.min(Semaphore::MAX_PERMITS)),
        });
        let (plan_sender, plans) = bounded(feeder::lookahead(&job.options));
        // Each builder whose turn is near holds a batch that is ready, the channel the rest.
        let concurrency = job.device.concurrency().max(1);
        // Groups are small: all that the device gathers at once may be under way, however few batches are made ahead.
        let window = if job.group.is_some() {
            concurrency
        } else if job.chain.is_empty() || concurrency == 1 {
            concurrency.min(job.options.prefetch)
        } else {
            // Batches go through stages on as many threads as there are, also where the device gathers fewer at once.
            job.options.cores().min(job.options.prefetch)
        };
        // Those who read what links lead to mostly wait.
        let builders = job.device.planners().max(window).max(linked::batches(&job));
        let (batch_sender, batches) = bounded(job.options.prefetch.saturating_sub(window));
        let mut epoch = Self {
            shared: shared.clone(),
            kept: job.kept.clone(),
            batches: Some(batches),
            threads: Vec::new(),
            process: std::process::id(),
        };
        if let Some(next) = next {
            let (now, shared, runtime) = (job.clone(), shared.clone(), runtime.clone());
            epoch.spawn("foresight", move || foresight::announce(&now, &Arc::new(next), &shared, &runtime))?;
        }
        let feeder = feeder::Feeder::new(job.clone(), shared.clone(), runtime);
        epoch.spawn("feeder", move || feeder.run(&plan_sender))?;
        let builder = builder::Builder::new(job, shared, plans, batch_sender, window as u64, concurrency);
        for _ in 1..builders {
            let builder = builder.clone();
            epoch.spawn("builder", move || builder.run())?;
        }
        epoch.spawn("builder", move || builder.run())?;
        Ok(epoch)
    }

    fn spawn(&mut self, name: &str, work: impl FnOnce() + Send + 'static) -> Result<()> {
        let thread = std::thread::Builder::new().name(format!("forebay-{name}")).spawn(work);
        self.threads.push(thread.map_err(|source| Error::Threads { source })?);
        Ok(())
    }

    /// Whether this is the process that the threads are in.
    pub(crate) fn is_here(&self) -> bool {
        self.process == std::process::id()
    }

    /// The bytes that are kept for the epochs to come.
    pub(crate) fn kept_bytes(&self) -> u64 {
        self.kept.as_ref().map_or(0, |kept| kept.bytes())
    }

    pub(crate) fn batches(&self) -> Option<&Receiver<Result<Batch>>> {
        self.batches.as_ref()
    }

    /// Stops everything and waits until it has stopped.
    fn cancel(&mut self) {
        self.shared.cancelled.store(true, Ordering::SeqCst);
        self.shared.stop.send_replace(true);
        // A builder that waits for room finds nobody at the other end.
        self.batches = None;
        self.shared.signal.raise();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a loader thread panicked");
            }
        }
    }
}

impl Drop for Epoch {
    fn drop(&mut self) {
        if self.is_here() {
            self.cancel();
        } else {
            // The threads stayed in the parent; joining them here would wait forever.
            self.threads.drain(..).for_each(std::mem::forget);
        }
    }
}
