//! What a loader says about itself, as dicts.

use forebay_loader::{Fault, Remedy, State, Stats};
use forebay_storage::Storage;
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
    dict.set_item("kept_bytes", stats.kept_bytes)?;
    let routes = PyDict::new(py);
    for (column, route) in stats.routes {
        routes.set_item(column, route.name())?;
    }
    dict.set_item("routes", routes)?;
    Ok(dict)
}

/// What each storage has read in this process so far, by its URL.
pub(crate) fn storages<'py>(py: Python<'py>, storages: &[Storage]) -> Result<Bound<'py, PyDict>> {
    let all = PyDict::new(py);
    for storage in storages {
        all.set_item(storage.url(), self::storage(py, &storage.stats())?)?;
    }
    Ok(all)
}

fn storage<'py>(py: Python<'py>, stats: &forebay_storage::Stats) -> Result<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("requests", stats.requests)?;
    dict.set_item("bytes", stats.bytes)?;
    dict.set_item("retries", stats.retries)?;
    dict.set_item("throttled", stats.throttled)?;
    dict.set_item("timeouts", stats.timeouts)?;
    dict.set_item("hedges", stats.hedges)?;
    dict.set_item("hedges_won", stats.hedges_won)?;
    dict.set_item("hedged_bytes", stats.hedged_bytes)?;
    dict.set_item("fell_back", stats.fell_back)?;
    dict.set_item("limit", stats.limit)?;
    dict.set_item("in_flight", stats.in_flight)?;
    dict.set_item("pace", stats.pace)?;
    let cache = stats.cache.as_ref().map(|stats| {
        let dict = PyDict::new(py);
        dict.set_item("memory_hits", stats.memory_hits)?;
        dict.set_item("disk_hits", stats.disk_hits)?;
        dict.set_item("misses", stats.misses)?;
        dict.set_item("hit_bytes", stats.hit_bytes)?;
        dict.set_item("stored", stats.stored)?;
        dict.set_item("evicted", stats.evicted)?;
        dict.set_item("damaged", stats.damaged)?;
        dict.set_item("not_stored", stats.not_stored)?;
        Ok::<_, PyErr>(dict)
    });
    dict.set_item("cache", cache.transpose()?)?;
    let mirror = |stats: &forebay_storage::MirrorStats| {
        let dict = PyDict::new(py);
        dict.set_item("url", &stats.url)?;
        dict.set_item("reads", stats.reads)?;
        dict.set_item("failures", stats.failures)?;
        dict.set_item("distrusted", stats.distrusted)?;
        dict.set_item("healthy", stats.healthy)?;
        dict.set_item("latency", stats.latency.map(|latency| latency.as_secs_f64()))?;
        Ok::<_, PyErr>(dict)
    };
    dict.set_item("mirrors", stats.mirrors.iter().map(mirror).collect::<Result<Vec<_>, _>>()?)?;
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
