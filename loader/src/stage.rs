//! Code of the user's own that batches go through on the threads that build them.

use std::{
    error::Error as StdError,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use crate::{Batch, BatchColumn, BatchField, Error, Result, order::Course};

/// What a stage fails with.
pub type StageError = Box<dyn StdError + Send + Sync>;

/// Changes batches before they are delivered: augments, tokenises, adds columns, leaves some out.
///
/// The threads of an epoch that build its batches call it, several at once and in no order, each with a batch of its own; batches
/// are delivered in their order all the same. Two runs are alike if it draws what is random from [`Samples::seeds`] alone.
pub trait Stage: Send + Sync + fmt::Debug {
    /// What it is called in errors.
    fn name(&self) -> &str;

    /// The columns that it makes of such as these. Asked once, when a loader is made; by default they stay what they are.
    ///
    /// # Errors
    /// If it can't work on such columns.
    fn fields(&self, fields: Vec<BatchField>) -> Result<Vec<BatchField>, StageError> {
        Ok(fields)
    }

    /// The columns of a batch as they are to be delivered. Their values lie where the loader's device has put them, and each
    /// column still has a row for each of `samples`.
    ///
    /// # Errors
    /// Anything: it ends the epoch.
    fn apply(&self, columns: Vec<BatchColumn>, samples: &Samples<'_>) -> Result<Vec<BatchColumn>, StageError>;
}

/// The rows of a batch that a stage is given.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Samples<'a> {
    /// The step within the iteration.
    pub step: u64,
    /// As [`Batch::positions`].
    pub positions: &'a [u64],
    /// As [`Batch::rows`].
    pub rows: &'a [u64],
    /// As [`Batch::sources`].
    pub sources: Option<&'a [u32]>,
    /// As [`Batch::mask`].
    pub mask: Option<&'a [bool]>,
    course: &'a Course,
}

impl Samples<'_> {
    /// What is random about each row is drawn from this: a hash of seed, epoch and position, the same on any number of ranks and
    /// after any resume.
    pub fn seeds(&self) -> impl ExactSizeIterator<Item = u64> + '_ {
        self.positions.iter().map(|position| self.course.sample_seed(*position))
    }
}

/// The stages of a loader, in their order, and what they deliver.
#[derive(Clone, Debug)]
pub(crate) struct Chain {
    stages: Vec<Arc<dyn Stage>>,
    /// What goes into each of them, and what comes out of the last.
    fields: Vec<Vec<BatchField>>,
}

impl Chain {
    pub(crate) fn new(stages: Vec<Arc<dyn Stage>>, gathered: Vec<BatchField>) -> Result<Self> {
        let mut fields = vec![gathered];
        for stage in &stages {
            let before = fields.last().cloned().unwrap_or_default();
            fields.push(guarded(&**stage, || stage.fields(before))?);
        }
        Ok(Self { stages, fields })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.stages.is_empty()
    }

    /// What is delivered.
    pub(crate) fn fields(&self) -> &[BatchField] {
        self.fields.last().map_or(&[], Vec::as_slice)
    }

    pub(crate) fn apply(&self, mut batch: Batch, course: &Course) -> Result<Batch> {
        for (stage, fields) in self.stages.iter().zip(&self.fields[1..]) {
            let columns = std::mem::take(&mut batch.columns);
            let samples = Samples {
                step: batch.step,
                positions: &batch.positions,
                rows: &batch.rows,
                sources: batch.sources.as_deref(),
                mask: batch.mask.as_deref(),
                course,
            };
            batch.columns = guarded(&**stage, || {
                let columns = stage.apply(columns, &samples)?;
                check(&columns, fields, samples.rows.len())?;
                Ok(columns)
            })?;
        }
        Ok(batch)
    }
}

/// Calls a stage; what it fails with says which it was, and a panic is a failure.
fn guarded<T>(stage: &dyn Stage, call: impl FnOnce() -> Result<T, StageError>) -> Result<T> {
    let failed = |source| Error::Stage { stage: stage.name().to_owned(), source };
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(done) => done.map_err(failed),
        Err(panic) => {
            let said = panic.downcast_ref::<String>().map(String::as_str);
            let said = said.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("something else than text");
            Err(failed(format!("it panicked: {said}").into()))
        }
    }
}

/// Whether columns are what a stage said that it would make.
fn check(columns: &[BatchColumn], fields: &[BatchField], rows: usize) -> Result<(), StageError> {
    let said: Vec<_> = fields.iter().map(|field| (&field.name, field.dtype)).collect();
    let made: Vec<_> = columns.iter().map(|column| (&column.name, column.dtype)).collect();
    if said != made {
        return Err(format!("it said that it would make {said:?}, and made {made:?}").into());
    }
    match columns.iter().find(|column| column.values.rows() != rows) {
        Some(column) => Err(format!("column '{}' has {} rows of {rows}", column.name, column.values.rows()).into()),
        None => Ok(()),
    }
}
