//! What is done with a lake as a whole: collections, pins, copies; and rows that differ, some at a time.

use std::{sync::Mutex, time::Duration};

use forebay_format::CommitId;
use forebay_versioning::{
    BranchState, CopyReport, GcOptions, GcReport, Lake, Loss, PurgeReport, RowDiff, RowId, Rows, Selection, Snapshot,
};
use pyo3::{prelude::*, types::PyDict};

use crate::{
    access::Access,
    error::{Error, Result},
    session::{Session, lock, version},
    wait::block_on,
};

fn seconds(value: f64, name: &str) -> Result<Duration> {
    Duration::try_from_secs_f64(value)
        .map_err(|error| Error::argument(format!("{name} of {value} seconds can't be: {error}")))
}

/// Tells Python how far something is, every so often, and lets it raise: the work then ends.
struct Progress {
    callback: Option<Py<PyAny>>,
    raised: Option<PyErr>,
}

impl Progress {
    fn new(callback: Option<Py<PyAny>>) -> Self {
        Self { callback, raised: None }
    }

    fn tell(&mut self, done: u64, total: u64) {
        if let (Some(callback), None) = (&self.callback, &self.raised) {
            self.raised = Python::attach(|py| callback.call1(py, (done, total)).err());
        }
    }

    /// What a callback raised comes before what the work gave.
    fn end<T>(self, result: Result<T>) -> Result<T> {
        match self.raised {
            Some(error) => Err(error.into()),
            None => result,
        }
    }
}

/// Collects garbage: grace and retention in seconds. `how` is whether to expire and whether it is a dry run.
#[pyfunction]
pub(crate) fn gc<'py>(
    py: Python<'py>,
    session: &Session,
    grace: f64,
    retention: f64,
    how: (bool, bool),
    progress: Option<Py<PyAny>>,
) -> Result<Bound<'py, PyDict>> {
    let lake = session.lake(py)?;
    let mut options = GcOptions::default();
    (options.grace, options.retention) = (seconds(grace, "a grace")?, seconds(retention, "a retention")?);
    (options.expire, options.dry_run) = how;
    let mut progress = Progress::new(progress);
    let done = block_on(py, || lake.gc(&options, |report| progress.tell(report.deleted, report.garbage)));
    let GcReport { epoch, commits, expired, pins, kept, young, garbage, garbage_bytes, deleted, .. } =
        progress.end(done)?;
    let report = PyDict::new(py);
    for (name, value) in [
        ("epoch", epoch),
        ("commits", commits),
        ("expired", expired),
        ("pins", pins),
        ("kept", kept),
        ("young", young),
        ("garbage", garbage),
        ("garbage_bytes", garbage_bytes),
        ("deleted", deleted),
    ] {
        report.set_item(name, value)?;
    }
    Ok(report)
}

/// A pin that is held.
#[pyclass(frozen, module = "forebay._forebay")]
pub(crate) struct Pin(Mutex<Option<forebay_versioning::Pin>>);

#[pymethods]
impl Pin {
    /// Pins the commit that a session's reads see.
    #[new]
    fn new(py: Python<'_>, session: &Session, lease: f64, holder: &str) -> Result<Self> {
        let (lake, lease) = (session.lake(py)?, seconds(lease, "a lease")?);
        let at = session.seen();
        let (_, pin) = block_on(py, || lake.pin(&at, lease, holder))?;
        Ok(Self(Mutex::new(Some(pin))))
    }

    /// Ends it; once is enough.
    fn release(&self, py: Python<'_>) -> Result<()> {
        match lock(&self.0).take() {
            Some(pin) => block_on(py, || async {
                pin.release().await;
                Ok::<_, Error>(())
            }),
            None => Ok(()),
        }
    }

    /// Whether it is held.
    #[getter]
    fn held(&self) -> bool {
        lock(&self.0).is_some()
    }
}

fn counts<'py>(py: Python<'py>, report: &CopyReport) -> Result<Bound<'py, PyDict>> {
    let counts = PyDict::new(py);
    counts.set_item("commits", report.commits)?;
    counts.set_item("objects", report.objects)?;
    counts.set_item("bytes", report.bytes)?;
    Ok(counts)
}

/// Copies a branch to another lake (`push`) or from it. `branches` are those of the source and of the target.
#[pyfunction]
pub(crate) fn copy<'py>(
    py: Python<'py>,
    session: &Session,
    push: bool,
    other: (String, Access),
    branches: (String, String),
    progress: Option<Py<PyAny>>,
) -> Result<Bound<'py, PyDict>> {
    let lake = session.lake(py)?;
    let other = other.1.open(&other.0)?;
    let mut progress = Progress::new(progress);
    let copied = block_on(py, || async {
        let other = Lake::open(other).await?;
        let (source, target) = if push { (&lake, &other) } else { (&other, &lake) };
        let tell = |report: &CopyReport| progress.tell(report.bytes, report.total_bytes);
        Ok::<(Snapshot, CopyReport), Error>(source.push(&branches.0, target, &branches.1, tell).await?)
    });
    let (_, report) = progress.end(copied)?;
    counts(py, &report)
}

/// Copies a whole lake.
#[pyfunction]
pub(crate) fn clone_lake<'py>(
    py: Python<'py>,
    source: (String, Access),
    target: (String, Access),
    progress: Option<Py<PyAny>>,
) -> Result<Bound<'py, PyDict>> {
    let (source, target) = (source.1.open(&source.0)?, target.1.open(&target.0)?);
    let mut progress = Progress::new(progress);
    let copied = block_on(py, || async {
        let lake = Lake::open(source).await?;
        let tell = |report: &CopyReport| progress.tell(report.bytes, report.total_bytes);
        Ok::<_, Error>(lake.clone_to(target, tell).await?.1)
    });
    counts(py, &progress.end(copied)?)
}

/// Erases rows, by their numbers, of a table at the commit that a session's reads see; without a table, finishes purges that were
/// stopped.
#[pyfunction]
pub(crate) fn purge<'py>(
    py: Python<'py>,
    session: &Session,
    rows: Option<(String, Vec<u64>)>,
    reason: &str,
    author: &str,
) -> Result<Vec<Bound<'py, PyDict>>> {
    let (lake, at) = (session.lake(py)?, session.seen());
    let reports = block_on(py, || async {
        let Some((table, rows)) = rows else { return Ok(lake.finish_purges(|_| {}).await?) };
        let table = lake.snapshot(&at).await?.table(&table).await?;
        let rows = Selection::new(table, Rows::List(rows.into()))?;
        Ok::<_, Error>(vec![lake.purge(&rows, author, reason, |_| {}).await?])
    })?;
    let counts = |PurgeReport { rows, fragments, files, bytes, unreachable, .. }| {
        let counts = PyDict::new(py);
        for (name, value) in
            [("rows", rows), ("fragments", fragments), ("files", files), ("bytes", bytes), ("unreachable", unreachable)]
        {
            counts.set_item(name, value)?;
        }
        Ok::<_, Error>(counts)
    };
    reports.into_iter().map(counts).collect()
}

/// The records of all purges: author, reason, microseconds since 1970, rows.
#[pyfunction]
pub(crate) fn purges(py: Python<'_>, session: &Session) -> Result<Vec<(String, String, i64, u64)>> {
    let lake = session.lake(py)?;
    let purges = block_on(py, || lake.purges())?;
    Ok(purges.into_iter().map(|purge| (purge.author, purge.reason, purge.time, purge.rows)).collect())
}

/// What is wrong with an object: its path, and why.
type Fault = (String, String);
type Lost = (String, Option<String>, u64, Vec<String>);
type State = (String, Option<String>, Option<String>, Vec<Lost>, Vec<String>, u64);

/// Reads every byte: what is wrong, by object; and of each branch its newest commit, the newest whole one, what the newest lost
/// (table, column, rows, objects), the commits that are lost, and how many entries of its log are.
#[pyfunction]
pub(crate) fn assess(
    py: Python<'_>,
    session: &Session,
    progress: Option<Py<PyAny>>,
) -> Result<(Vec<Fault>, Vec<State>)> {
    let lake = session.lake(py)?;
    let mut progress = Progress::new(progress);
    let done = block_on(py, || lake.assess(|found| progress.tell(found.bytes, found.total.max(found.bytes))));
    let damage = progress.end(done)?;
    let faults = damage.verification.faults.into_iter().map(|fault| (fault.path, fault.reason)).collect();
    let lost = |loss: Loss| (loss.table, loss.column, loss.rows, loss.objects);
    let state = |state: BranchState| {
        let name = |commit: Option<CommitId>| commit.map(|commit| commit.to_string());
        let losses = state.losses.into_iter().map(lost).collect();
        let commits = state.commits_lost.iter().map(ToString::to_string).collect();
        (state.branch, name(state.newest), name(state.whole), losses, commits, state.entries_lost)
    };
    Ok((faults, damage.branches.into_iter().map(state).collect()))
}

/// Rows that differ, some at a time.
#[pyclass(frozen, module = "forebay._forebay")]
pub(crate) struct Differences(Mutex<Option<RowDiff>>);

type Changed = (String, String, Vec<String>);
type Changes = (Vec<String>, Vec<String>, Vec<Changed>);

#[pymethods]
impl Differences {
    /// Those of a table between a version and the commit that a session's reads see.
    #[new]
    fn new(py: Python<'_>, session: &Session, before: (String, String), table: &str) -> Result<Self> {
        let (lake, after) = (session.lake(py)?, session.seen());
        let before = version((&before.0, before.1))?;
        let diff = block_on(py, || lake.diff_rows(&before, &after, table))?;
        Ok(Self(Mutex::new(Some(diff))))
    }

    /// More of them: added, deleted, and changed (before, after, columns); None at the end.
    fn next(&self, py: Python<'_>) -> Result<Option<Changes>> {
        let Some(mut diff) = lock(&self.0).take() else { return Ok(None) };
        let Some(changes) = block_on(py, || diff.next())? else { return Ok(None) };
        *lock(&self.0) = Some(diff);
        let names = |rows: Vec<RowId>| rows.iter().map(ToString::to_string).collect();
        let changed = changes.changed.into_iter();
        let changed = changed.map(|(old, new, columns)| (old.to_string(), new.to_string(), columns)).collect();
        Ok(Some((names(changes.added), names(changes.deleted), changed)))
    }
}
