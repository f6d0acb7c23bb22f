//! Gathers batches in order, as their blocks arrive.

use std::{
    collections::HashMap,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use crossbeam_channel::{Receiver, Sender};
use forebay_versioning::OpenFile;

use super::{
    Job, JobColumn, Shared,
    atom::Block,
    cache::{Failure, Slot},
    turn::{EndOnPanic, Turn},
};
use crate::{
    Batch, BatchColumn, BatchValues, Error, Result,
    device::{ColumnPlan, Finishing, GatherPlan, Gathered, MappedColumn, PlanLayout, Region, Source},
    finish::Prepared,
};

/// A batch whose rows are known and on their way.
#[derive(Debug)]
pub(crate) struct Planned {
    pub(crate) step: u64,
    pub(crate) positions: Vec<u64>,
    pub(crate) rows: Vec<u64>,
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
}

/// Builds batches. Several builders of an epoch take turns: each builds its batch beside the others and hands it over
/// when it is its turn, so that the device's threads find the next batch while the last rows of one are copied.
#[derive(Clone, Debug)]
pub(crate) struct Builder {
    job: Arc<Job>,
    shared: Arc<Shared>,
    plans: Receiver<(u64, Result<Planned>)>,
    batches: Sender<Result<Batch>>,
    turn: Arc<Turn>,
}

/// Why a batch could not be built.
#[derive(Debug)]
enum Cause {
    Error(Error),
    /// A request failed, perhaps for an earlier batch as well, whose error it then is.
    Request(Failure),
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
    fn into_error(self) -> Error {
        match self {
            Self::Error(error) => error,
            Self::Request(failure) => failure.into_error(),
        }
    }
}

/// How often a waiting thread looks whether it was cancelled or has waited too long.
const TICK: Duration = Duration::from_millis(200);

impl Builder {
    pub(crate) fn new(
        job: Arc<Job>,
        shared: Arc<Shared>,
        plans: Receiver<(u64, Result<Planned>)>,
        batches: Sender<Result<Batch>>,
    ) -> Self {
        Self { job, shared, plans, batches, turn: Arc::default() }
    }

    /// Until the last batch, the first error, or until nobody wants more.
    pub(crate) fn run(self) {
        let _guard = EndOnPanic(&self.turn);
        for (step, planned) in &self.plans {
            let built = planned.map_err(Cause::from).and_then(|planned| self.build(planned));
            self.shared.planned.fetch_sub(1, Ordering::SeqCst);
            self.shared.signal.raise();
            if !self.turn.wait(step) {
                return;
            }
            let failed = built.is_err();
            if failed || self.shared.is_cancelled() {
                // What comes after a failed batch isn't delivered.
                self.turn.end();
            }
            if self.batches.send(built.map_err(Cause::into_error)).is_err() || failed {
                self.turn.end();
                return;
            }
            self.turn.pass(step + 1);
        }
    }

    fn build(&self, planned: Planned) -> Result<Batch, Cause> {
        self.wait(&planned)?;
        let rows = planned.rows.len();
        let mut plan = GatherPlan { rows, columns: Vec::with_capacity(planned.columns.len()) };
        for (column, places) in self.job.columns.iter().zip(&planned.columns) {
            let mut column_plan = self.column_plan(column, places)?;
            if let Some(finish) = &column.finish {
                column_plan.finishing = Some(self.finishing(finish, &planned.positions, &column_plan.layout)?);
            }
            plan.columns.push(column_plan);
        }
        drop(planned.columns);
        let layouts: Vec<_> = plan.columns.iter().map(|column| column.layout.clone()).collect();
        let bytes: usize = plan.columns.iter().map(ColumnPlan::delivered).sum();
        let started = Instant::now();
        let gathered = self.job.device.gather(plan)?;
        self.shared.counters.gathered(started.elapsed());
        self.shared.counters.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        if gathered.len() != layouts.len() {
            let reason = format!("{} columns instead of {}", gathered.len(), layouts.len());
            return Err(Error::Device { reason }.into());
        }
        let columns = self.job.columns.iter().zip(gathered.into_iter().zip(layouts));
        let columns = columns.map(|(column, (gathered, layout))| batch_column(column, rows, gathered, layout));
        let columns = columns.collect::<Result<_>>()?;
        Ok(Batch { step: planned.step, positions: planned.positions, rows: planned.rows, columns })
    }

    /// Waits until all blocks of a batch are there.
    fn wait(&self, planned: &Planned) -> Result<(), Cause> {
        let slots = || planned.columns.iter().flat_map(|places| &places.rows).flat_map(Place::slots);
        let mut missing: Vec<&Slot> = slots().map(|slot| &**slot).collect();
        let (mut answered, mut since) = (self.shared.answered.load(Ordering::SeqCst), Instant::now());
        loop {
            let seen = self.shared.signal.now();
            let mut still = Vec::new();
            for slot in missing {
                if slot.get()?.is_none() {
                    still.push(slot);
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
                return Err(self.stalled(&missing).into());
            }
            self.shared.signal.wait(seen, TICK.min(self.job.options.stall_timeout));
        }
    }

    fn stalled(&self, missing: &[&Slot]) -> Error {
        let mut waiting: Vec<String> = missing.iter().map(|slot| slot.request().to_owned()).collect();
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
            }
        }
        Ok(draft.finish(column))
    }

    /// The part of each row of a batch that is taken.
    fn finishing(&self, finish: &Arc<Prepared>, positions: &[u64], layout: &PlanLayout) -> Result<Finishing> {
        let window = |(row, position): (usize, &u64)| {
            let size = match (finish.size(), layout) {
                (Some(size), _) => size,
                (None, PlanLayout::Ragged { shapes, .. }) => {
                    let rank = shapes.len() / positions.len();
                    finish.size_of(&shapes[row * rank..(row + 1) * rank])
                }
                (None, PlanLayout::Fixed { .. }) => [0, 0],
            };
            finish.window(self.job.order.sample_seed(*position), size)
        };
        let windows = positions.iter().enumerate().map(window).collect::<Result<_>>()?;
        Ok(Finishing { prepared: finish.clone(), windows })
    }
}

impl Place {
    fn slots(&self) -> impl Iterator<Item = &Arc<Slot>> {
        let (values, validity) = match self {
            Self::Mapped { .. } => (None, None),
            Self::Fetched { values, validity, .. } => (values.as_ref(), validity.as_ref()),
        };
        values.into_iter().chain(validity)
    }
}

/// A column plan in the making.
struct Draft {
    regions: Vec<Region>,
    /// Regions by the address of their arena buffer.
    known: HashMap<usize, u32>,
    last: Option<(usize, u32)>,
    sources: Vec<Source>,
    validity: Option<Vec<u8>>,
    ragged: bool,
    offsets: Vec<u64>,
    shapes: Vec<u32>,
}

impl Draft {
    fn new(column: &JobColumn, rows: usize) -> Self {
        let ragged = matches!(column.column.layout(), forebay_format::Layout::Ragged { .. });
        Self {
            regions: Vec::new(),
            known: HashMap::new(),
            last: None,
            sources: Vec::with_capacity(rows),
            validity: column.column.nullable.then(|| Vec::with_capacity(rows)),
            ragged,
            offsets: if ragged { vec![0] } else { Vec::new() },
            shapes: Vec::new(),
        }
    }

    fn region(&mut self, address: usize, make: impl FnOnce() -> Region) -> u32 {
        if let Some((last, region)) = self.last
            && last == address
        {
            return region;
        }
        let next = self.regions.len() as u32;
        let region = *self.known.entry(address).or_insert(next);
        if region == next {
            self.regions.push(make());
        }
        self.last = Some((address, region));
        region
    }

    /// Adds a row of a block, or one without bytes.
    fn fetched(&mut self, row: u32, block: Option<&Block>) {
        let Some(block) = block else {
            self.sources.push(Source::NOWHERE);
            return;
        };
        let arena = block.region();
        let region = self.region(Arc::as_ptr(arena) as usize, || Region::Arena(arena.clone()));
        let place = block.place(row);
        self.sources.push(Source { region, at: place.start as u64 });
        if self.ragged {
            let end = self.offsets.last().copied().unwrap_or(0) + place.len() as u64;
            self.offsets.push(end);
            self.shapes.extend(block.shape(row));
        }
    }

    fn finish(self, column: &JobColumn) -> ColumnPlan {
        let layout = match column.column.layout() {
            forebay_format::Layout::Fixed { row_bytes } => {
                PlanLayout::Fixed { row_bytes, shape: fixed_shape(&column.column) }
            }
            forebay_format::Layout::Ragged { .. } => PlanLayout::Ragged { offsets: self.offsets, shapes: self.shapes },
        };
        ColumnPlan {
            name: column.name.clone(),
            field: column.column.field,
            dtype: column.column.dtype,
            layout,
            regions: self.regions,
            sources: self.sources,
            validity: self.validity,
            finishing: None,
        }
    }
}

fn fixed_shape(column: &forebay_format::Column) -> Arc<[usize]> {
    let length = |dim: &forebay_format::Dim| match dim {
        forebay_format::Dim::Fixed(length) => *length as usize,
        forebay_format::Dim::Free => 0,
    };
    column.shape.iter().map(length).collect()
}

fn batch_column(column: &JobColumn, rows: usize, gathered: Gathered, layout: PlanLayout) -> Result<BatchColumn> {
    let dtype = column.finish.as_ref().map_or(column.column.dtype, |finish| finish.number().dtype());
    let finished = column.finish.as_ref().map(|finish| finish.shape());
    let values = match (layout, gathered.offsets) {
        (_, _) if finished.is_some() => {
            let shape = std::iter::once(rows).chain(finished.into_iter().flatten()).collect();
            BatchValues::Fixed { shape, buffer: gathered.values }
        }
        (PlanLayout::Fixed { shape, .. }, _) => {
            let shape = std::iter::once(rows).chain(shape.iter().copied()).collect();
            BatchValues::Fixed { shape, buffer: gathered.values }
        }
        (PlanLayout::Ragged { shapes, .. }, Some(offsets)) => {
            BatchValues::Ragged { offsets, shapes, bytes: gathered.values }
        }
        (PlanLayout::Ragged { .. }, None) => {
            return Err(Error::Device { reason: format!("no offsets for column '{}'", column.name) });
        }
    };
    Ok(BatchColumn { name: column.name.clone(), dtype, values, validity: gathered.validity })
}
