//! What a loader says about itself, as dicts.

use forebay_loader::{Fault, Remedy, State, Stats};
use pyo3::{prelude::*, types::PyDict};

use crate::error::Result;

/// Counts of an epoch.
pub(crate) fn stats(py: Python<'_>, stats: Stats) -> Result<Bound<'_, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("batches", stats.batches)?;
    dict.set_item("rows", stats.rows)?;
    dict.set_item("bytes", stats.bytes)?;
    dict.set_item("requests", stats.requests)?;
    dict.set_item("fetched", stats.fetched)?;
    dict.set_item("refetched", stats.refetched)?;
    dict.set_item("hits", stats.hits)?;
    dict.set_item("misses", stats.misses)?;
    dict.set_item("faults", stats.faults)?;
    dict.set_item("waits", stats.waits)?;
    dict.set_item("waited", stats.waited.as_secs_f64())?;
    dict.set_item("waited_for_plans", stats.waited_for_plans.as_secs_f64())?;
    dict.set_item("waited_for_blocks", stats.waited_for_blocks.as_secs_f64())?;
    dict.set_item("waited_for_device", stats.waited_for_device.as_secs_f64())?;
    dict.set_item("short_of_memory", stats.short_of_memory.as_secs_f64())?;
    dict.set_item("ahead", stats.ahead.as_secs_f64())?;
    dict.set_item("planned", stats.planned)?;
    dict.set_item("in_flight", stats.in_flight)?;
    dict.set_item("ready", stats.ready)?;
    dict.set_item("gathering", stats.gathering.as_secs_f64())?;
    dict.set_item("peak_bytes", stats.peak_bytes)?;
    let routes = PyDict::new(py);
    for (column, route) in stats.routes {
        routes.set_item(column, route.name())?;
    }
    dict.set_item("routes", routes)?;
    Ok(dict)
}

/// Rows at fault.
pub(crate) fn faults<'py>(py: Python<'py>, faults: &[Fault]) -> Result<Vec<Bound<'py, PyDict>>> {
    let fault = |fault: &Fault| {
        let dict = PyDict::new(py);
        dict.set_item("commit", &fault.commit)?;
        dict.set_item("position", fault.position)?;
        dict.set_item("row", fault.row)?;
        dict.set_item("column", &fault.column)?;
        dict.set_item("cause", &fault.cause)?;
        let by = match fault.remedy {
            Remedy::Masked => None,
            Remedy::Replaced { by } => Some(by),
        };
        dict.set_item("substitute", by)?;
        Ok(dict)
    };
    faults.iter().map(fault).collect()
}

/// A state: a dict of texts and whole numbers.
pub(crate) fn state<'py>(py: Python<'py>, state: &State) -> Result<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("version", state.version)?;
    dict.set_item("commit", &state.commit)?;
    dict.set_item("selection", &state.selection)?;
    dict.set_item("shuffle", &state.shuffle)?;
    dict.set_item("seed", state.seed)?;
    dict.set_item("epoch", state.epoch)?;
    dict.set_item("position", state.position)?;
    dict.set_item("checksum", &state.checksum)?;
    Ok(dict)
}

/// A state that a user hands back.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct PlainState {
    version: u32,
    commit: String,
    selection: String,
    shuffle: String,
    seed: u64,
    epoch: u64,
    position: u64,
    checksum: String,
}

impl From<PlainState> for State {
    fn from(state: PlainState) -> Self {
        let PlainState { version, commit, selection, shuffle, seed, epoch, position, checksum } = state;
        Self { version, commit, selection, shuffle, seed, epoch, position, checksum }
    }
}
