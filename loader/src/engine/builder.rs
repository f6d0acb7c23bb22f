//! Gathers batches in order, as their blocks arrive.

use std::{
    ops::Range,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use crossbeam_channel::{Receiver, Sender};
use forebay_versioning::OpenFile;

use super::{
    Job, JobColumn, Shared,
    cache::{Failure, Slot},
    direct::Scratch,
    draft::{Draft, batch_column},
    turn::{EndOnPanic, Gate, Turn},
};
use crate::{
    Batch, Error, Fault, Result,
    device::{ArenaRegion, ColumnPlan, Finishing, GatherPlan, Gathered, MappedColumn, PlanLayout, Region, Source},
    finish::{Prepared, Window},
    stats::Stage,
};

/// Batches that are built as one.
#[derive(Debug)]
pub(crate) struct Work {
    /// Which it is, from 0.
    pub(crate) number: u64,
    pub(crate) steps: Range<u64>,
    /// Where the rows are; `None` if that is found out by the builder.
    pub(crate) planned: Result<Option<Planned>>,
}

/// A batch whose rows are known and on their way.
#[derive(Debug)]
pub(crate) struct Planned {
    pub(crate) steps: Range<u64>,
    pub(crate) positions: Vec<u64>,
    pub(crate) rows: Vec<u64>,
    /// The source of each row.
    pub(crate) sources: Vec<u32>,
    /// Whether each row counts.
    pub(crate) mask: Vec<bool>,
    /// The rows of each column.
    pub(crate) columns: Vec<Places>,
}

/// Where the rows of a column are or will be.
#[derive(Debug, Default)]
pub(crate) struct Places {
    /// The mapped files among them, and the column's place in each. A row names its file by number: to count its holders row
    /// by row, on two threads at once, would take most of the time that planning takes.
    pub(crate) files: Vec<(Arc<OpenFile>, usize)>,
    /// The rows, in order of the batch.
    pub(crate) rows: Vec<Place>,
}

/// Where a row of a column is or will be.
#[derive(Debug)]
pub(crate) enum Place {
    /// In a mapped file.
    Mapped {
        /// The file, by its place in [`Places::files`].
        file: u32,
        /// The row in it.
        row: u32,
    },
    /// In a block.
    Fetched {
        /// The row in the block's file.
        row: u32,
        /// The values; `None` for rows without bytes.
        values: Option<Arc<Slot>>,
        /// For a nullable column the bitmap; `None` if all rows around are valid.
        validity: Option<Arc<Slot>>,
    },
    /// In a buffer that isn't a block.
    Held(Held),
    /// As [`Held`](Self::Held), and not decoded yet: what a link leads to.
    Linked(Held),
    /// Zeros, empty or null.
    Masked,
    /// Nowhere: its file can't be opened.
    Failed(Failure),
}

/// A row's value in a buffer, perhaps beside others.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) region: Arc<ArenaRegion>,
    /// Where in the buffer it begins.
    pub(crate) at: usize,
    pub(crate) length: usize,
    pub(crate) shape: Vec<u32>,
    pub(crate) valid: bool,
    /// The part of it that is taken, if that is known already: it was decoded for it alone.
    pub(crate) window: Option<Window>,
}

/// Builds batches. Several builders of an epoch take turns: each builds its batch beside the others and hands it over
/// when it is its turn, so that the device's threads find the next batch while the last rows of one are copied.
#[derive(Clone, Debug)]
pub(crate) struct Builder {
    pub(super) job: Arc<Job>,
    pub(super) shared: Arc<Shared>,
    plans: Receiver<Work>,
    batches: Sender<Result<Batch>>,
    pub(super) turn: Arc<Turn>,
    /// How many builders may be at work on batches at once.
    window: u64,
    /// Where as many may be as gather at once.
    gathering: Arc<Gate>,
}

/// Why a batch could not be built.
#[derive(Debug)]
pub(super) enum Cause {
    Error(Error),
    /// A request failed, perhaps for an earlier batch as well, whose error it then is.
    Request(Failure),
    /// A value of a row of the batch is at fault, in this column.
    Row {
        row: usize,
        column: usize,
        error: Error,
    },
}

impl From<Error> for Cause {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl From<Failure> for Cause {
    fn from(failure: Failure) -> Self {
        Self::Request(failure)
    }
}

impl Cause {
    pub(super) fn into_error(self) -> Error {
        match self {
            Self::Error(error) => error,
            Self::Request(failure) => failure.into_error(),
            Self::Row { error, .. } => error,
        }
    }
}

/// How often a waiting thread looks whether it was cancelled or has waited too long.
pub(super) const TICK: Duration = Duration::from_millis(200);

impl Builder {
    pub(crate) fn new(
        job: Arc<Job>,
        shared: Arc<Shared>,
        plans: Receiver<Work>,
        batches: Sender<Result<Batch>>,
        window: u64,
        gathering: usize,
    ) -> Self {
        Self { job, shared, plans, batches, turn: Arc::default(), window, gathering: Arc::new(Gate::new(gathering)) }
    }

    /// Until the last batch, the first error, or until nobody wants more.
    pub(crate) fn run(self) {
        let _guard = EndOnPanic(&self.turn);
        let mut scratch = Scratch::default();
        for Work { number, steps, planned } in &self.plans {
            let first = steps.start;
            let built = match planned {
                Ok(Some(mut planned)) => match self.fetch_linked(number, &mut planned).transpose() {
                    Some(fetched) if self.turn.near(number, self.window) => fetched.and_then(|()| self.build(planned)),
                    // Nobody wants it any more: those behind it needn't wait.
                    _ => return self.turn.end(),
                },
                Ok(None) => match self.build_direct(number, steps, &mut scratch) {
                    Some(built) => built,
                    None => return,
                },
                Err(error) => Err(error.into()),
            };
            self.shared.planned.fetch_sub(1, Ordering::SeqCst);
            self.shared.signal.raise();
            if !self.turn.wait(number) {
                return;
            }
            self.shared.stages.set(first, Stage::Planning);
            // In order, so that it is always the same fault that is one too many.
            let built = built.and_then(|(batch, faults)| {
                self.shared.note(faults, self.job.faults_allowed)?;
                Ok(batch)
            });
            let failed = built.is_err();
            if failed || self.shared.is_cancelled() {
                // What comes after a failed batch isn't delivered.
                self.turn.end();
            }
            if self.batches.send(built.map_err(Cause::into_error)).is_err() || failed {
                self.turn.end();
                return;
            }
            self.turn.pass(number + 1);
            // The next one may wait for memory, which it gets by its turn.
            self.shared.signal.raise();
        }
    }

    /// Plans a batch, all of whose rows lie in mapped files, and gathers it when its turn is near; `None` if that never is.
    fn build_direct(
        &self,
        number: u64,
        steps: Range<u64>,
        scratch: &mut Scratch,
    ) -> Option<Result<(Batch, Vec<Fault>), Cause>> {
        let direct = self.shared.direct.get()?;
        let first = steps.start;
        let planned = self.plan_direct(direct, steps, scratch);
        if !self.turn.near(number, self.window) {
            return None;
        }
        self.shared.stages.set(first, Stage::Gathering);
        let built = planned.and_then(|(planned, plan)| {
            let layouts: Vec<_> = plan.columns.iter().map(|column| column.layout.clone()).collect();
            let gathered = self.gather(plan)?;
            Ok((self.batch(planned, gathered, layouts)?, Vec::new()))
        });
        Some(built)
    }

    pub(super) fn gather(&self, plan: GatherPlan) -> Result<Vec<Gathered>> {
        if plan.columns.is_empty() {
            return Ok(Vec::new());
        }
        let bytes: usize = plan.columns.iter().map(ColumnPlan::delivered).sum();
        let inside = self.gathering.enter();
        let started = Instant::now();
        let gathered = self.job.device.gather(plan);
        drop(inside);
        self.shared.counters.gathered(started.elapsed());
        if gathered.is_ok() {
            self.shared.counters.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        }
        gathered
    }

    fn build(&self, mut planned: Planned) -> Result<(Batch, Vec<Fault>), Cause> {
        let step = planned.steps.start;
        self.shared.stages.set(step, Stage::Fetching);
        self.wait(&planned)?;
        self.shared.stages.set(step, Stage::Gathering);
        let tolerates = self.job.options.faults.tolerates();
        let mut faults = Vec::new();
        if tolerates {
            self.mend_failed(&mut planned, &mut faults)?;
        }
        self.decode(&mut planned, &mut faults)?;
        let (gathered, layouts) = loop {
            let mut plan = match self.plan(&planned) {
                Err(Cause::Row { row, column, error }) if tolerates => {
                    self.mend(&mut planned, row, &[(column, error.to_string())], &mut faults)?;
                    continue;
                }
                other => other?,
            };
            let layouts: Vec<_> = plan.columns.iter().map(|column| column.layout.clone()).collect();
            let apart = self.set_apart(&mut plan);
            match self.gather(plan) {
                Err(error) if tolerates && error.is_of_row() => {
                    if !self.mend_mapped(&mut planned, &mut faults)? {
                        return Err(error.into());
                    }
                }
                gathered => {
                    let mut gathered = gathered?;
                    self.put_back(apart, &mut planned, &mut gathered)?;
                    break (gathered, layouts);
                }
            }
        };
        Ok((self.batch(planned, gathered, layouts)?, faults))
    }

    /// What is delivered of what a device gathered.
    fn batch(&self, planned: Planned, gathered: Vec<Gathered>, layouts: Vec<PlanLayout>) -> Result<Batch> {
        let rows = planned.positions.len();
        if gathered.len() != layouts.len() {
            let reason = format!("{} columns instead of {}", gathered.len(), layouts.len());
            return Err(Error::Device { reason });
        }
        let columns = self.job.columns.iter().zip(gathered.into_iter().zip(layouts));
        let columns = columns.map(|(column, (gathered, layout))| batch_column(column, rows, gathered, layout));
        let columns = columns.collect::<Result<_>>()?;
        let Planned { steps, positions, rows, sources, mask, .. } = planned;
        let sources = (self.job.sources.len() > 1).then_some(sources);
        let (step, count) = (steps.start, steps.end - steps.start);
        let batch = Batch { step, count, positions, rows, sources, mask: self.job.masks().then_some(mask), columns };
        self.job.chain.apply(batch, &self.job.course)
    }

    /// Where all rows of a batch are, and what is done to them.
    fn plan(&self, planned: &Planned) -> Result<GatherPlan, Cause> {
        let rows = planned.positions.len();
        let mut plan = GatherPlan { rows, columns: Vec::with_capacity(planned.columns.len()) };
        for (number, (column, places)) in self.job.columns.iter().zip(&planned.columns).enumerate() {
            let mut column_plan = self.column_plan(column, places)?;
            self.add_finishing(number, &planned.positions, &places.rows, &mut column_plan)?;
            plan.columns.push(column_plan);
        }
        Ok(plan)
    }

    /// What is done to the rows of a column, if anything is. `places` may be left out if none of them is held.
    pub(super) fn add_finishing(
        &self,
        column: usize,
        positions: &[u64],
        places: &[Place],
        plan: &mut ColumnPlan,
    ) -> Result<(), Cause> {
        if let Some(finish) = &self.job.columns[column].finish {
            let finishing = self.finishing(finish, positions, places, &plan.layout);
            plan.finishing = Some(finishing.map_err(|(row, error)| Cause::Row { row, column, error })?);
        }
        Ok(())
    }

    /// Waits until all blocks of a batch are there.
    pub(super) fn wait(&self, planned: &Planned) -> Result<(), Cause> {
        let slots = || planned.columns.iter().flat_map(|places| &places.rows).flat_map(Place::slots);
        let mut missing: Vec<&Slot> = slots().map(|slot| &**slot).collect();
        let tolerates = self.job.options.faults.tolerates();
        let (mut answered, mut since) = (self.shared.answered.load(Ordering::SeqCst), Instant::now());
        loop {
            let seen = self.shared.signal.now();
            let mut still = Vec::new();
            for slot in missing {
                match slot.get() {
                    Ok(Some(_)) => {}
                    Ok(None) => still.push(slot),
                    // It is dealt with when all have arrived or failed.
                    Err(failure) if tolerates && failure.cause().is_some() => {}
                    Err(failure) => return Err(failure.into()),
                }
            }
            missing = still;
            if missing.is_empty() {
                return Ok(());
            }
            if self.shared.is_cancelled() {
                return Err(Error::Died { thread: "builder" }.into());
            }
            let now = self.shared.answered.load(Ordering::SeqCst);
            if now != answered {
                (answered, since) = (now, Instant::now());
            }
            if since.elapsed() >= self.job.options.stall_timeout {
                let names = missing.iter().map(|slot| slot.request().to_owned());
                return Err(self.stalled(names.collect()).into());
            }
            self.shared.signal.wait(seen, TICK.min(self.job.options.stall_timeout));
        }
    }

    pub(super) fn stalled(&self, mut waiting: Vec<String>) -> Error {
        waiting.sort_unstable();
        waiting.dedup();
        let more = waiting.len().saturating_sub(8);
        waiting.truncate(8);
        if more > 0 {
            waiting.push(format!("{more} more"));
        }
        Error::Stalled { after: self.job.options.stall_timeout, waiting }
    }

    fn column_plan(&self, column: &JobColumn, places: &Places) -> Result<ColumnPlan, Cause> {
        let mut draft = Draft::new(column, places.rows.len());
        // These are the first regions, so that a mapped row's file is its region.
        draft.regions.extend(places.files.iter().map(|(file, position)| {
            let (file, verify) = (file.clone(), self.job.options.verify);
            Region::Mapped(MappedColumn { file, column: *position, verify })
        }));
        for place in &places.rows {
            match place {
                Place::Mapped { file, row } => draft.sources.push(Source { region: *file, at: u64::from(*row) }),
                Place::Fetched { row, values, validity } => {
                    let block = match values {
                        Some(slot) => Some(slot.get()?.ok_or(Error::Died { thread: "fetch" })?),
                        None => None,
                    };
                    draft.fetched(*row, block);
                    let valid = match validity {
                        Some(slot) => slot.get()?.ok_or(Error::Died { thread: "fetch" })?.is_valid(*row),
                        None => true,
                    };
                    if let Some(validity) = &mut draft.validity {
                        validity.push(u8::from(valid));
                    }
                }
                Place::Held(held) | Place::Linked(held) => {
                    draft.held(&held.region, held.at, held.length, &held.shape);
                    if let Some(validity) = &mut draft.validity {
                        validity.push(u8::from(held.valid));
                    }
                }
                Place::Masked => {
                    match self.zeros(column)? {
                        Some((region, length, shape)) => draft.held(&region, 0, length, &shape),
                        None => draft.nothing(),
                    }
                    if let Some(validity) = &mut draft.validity {
                        validity.push(0);
                    }
                }
                Place::Failed(failure) => return Err(failure.clone().into()),
            }
        }
        Ok(draft.finish(column))
    }

    /// The part of each row of a batch that is taken; or which row has none.
    fn finishing(
        &self,
        finish: &Arc<Prepared>,
        positions: &[u64],
        places: &[Place],
        layout: &PlanLayout,
    ) -> Result<Finishing, (usize, Error)> {
        let window = |(row, position): (usize, &u64)| {
            if let Some(Place::Held(Held { window: Some(window), .. })) = places.get(row) {
                return Ok(*window);
            }
            let size = match (finish.size(), layout) {
                (Some(size), _) => size,
                (None, PlanLayout::Ragged { shapes, .. }) => {
                    let rank = shapes.len() / positions.len();
                    finish.size_of(&shapes[row * rank..(row + 1) * rank])
                }
                (None, PlanLayout::Fixed { .. }) => [0, 0],
            };
            finish.window(self.job.course.sample_seed(*position), size).map_err(|error| (row, error))
        };
        let windows = positions.iter().enumerate().map(window).collect::<Result<_, _>>()?;
        Ok(Finishing { prepared: finish.clone(), windows })
    }
}

impl Held {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.region.buffer().bytes()[self.at..self.at + self.length]
    }
}

impl Place {
    pub(super) fn slots(&self) -> impl Iterator<Item = &Arc<Slot>> {
        let (values, validity) = match self {
            Self::Fetched { values, validity, .. } => (values.as_ref(), validity.as_ref()),
            Self::Mapped { .. } | Self::Held(_) | Self::Linked(_) | Self::Masked | Self::Failed(_) => (None, None),
        };
        values.into_iter().chain(validity)
    }

    /// The value of a row that was fetched, or `Some(None)` for null; `None` if the row is elsewhere.
    pub(super) fn fetched(&self) -> Result<Option<Option<&[u8]>>, Cause> {
        let Self::Fetched { row, values, validity } = self else { return Ok(None) };
        let died = || Error::Died { thread: "fetch" };
        if let Some(slot) = validity
            && !slot.get()?.ok_or_else(died)?.is_valid(*row)
        {
            return Ok(Some(None));
        }
        let block = values.as_ref().ok_or_else(died)?.get()?.ok_or_else(died)?;
        Ok(Some(Some(&block.region().buffer().bytes()[block.place(*row)])))
    }
}
