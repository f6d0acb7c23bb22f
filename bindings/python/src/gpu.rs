//! What CUDA there is, for Python.

use forebay_gpu::{CacheStats, CudaLoaderDevice, Stats};
use pyo3::{prelude::*, types::PyDict};

use crate::{error::Result, wait::detached};

/// Looks for a CUDA driver and its devices.
#[pyfunction]
pub(crate) fn gpu_info(py: Python<'_>) -> Result<Bound<'_, PyDict>> {
    let report = detached(py, || Ok(forebay_gpu::discover()))?;
    let info = PyDict::new(py);
    let driver = report.driver.as_ref().map(|driver| {
        let entry = PyDict::new(py);
        entry.set_item("library", &driver.library)?;
        entry.set_item("cuda", driver.cuda)?;
        Ok::<_, PyErr>(entry)
    });
    info.set_item("driver", driver.transpose()?)?;
    let devices = report.devices.iter().map(|device| {
        let entry = PyDict::new(py);
        entry.set_item("ordinal", device.ordinal)?;
        entry.set_item("name", &device.name)?;
        entry.set_item("compute", device.compute)?;
        entry.set_item("memory", device.memory)?;
        Ok::<_, PyErr>(entry)
    });
    info.set_item("devices", devices.collect::<Result<Vec<_>, _>>()?)?;
    info.set_item("missing", report.missing.iter().map(ToString::to_string).collect::<Vec<_>>())?;
    Ok(info)
}

/// Says how many bytes devices that are opened from now on may register, and take of their own for batches; gives both.
#[pyfunction]
#[pyo3(signature = (registered=None, device_memory=None))]
pub(crate) fn gpu_configure(registered: Option<u64>, device_memory: Option<u64>) -> (u64, u64) {
    CudaLoaderDevice::configure(registered, device_memory)
}

/// Counts of a device since it was opened.
pub(crate) fn stats<'py>(py: Python<'py>, stats: &Stats, cache: Option<&CacheStats>) -> Result<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("batches", stats.batches)?;
    dict.set_item("bytes", stats.bytes)?;
    dict.set_item("waited", stats.waited.as_secs_f64())?;
    dict.set_item("busy", stats.busy.as_secs_f64())?;
    dict.set_item("registered_bytes", stats.registered)?;
    dict.set_item("device_bytes", stats.device)?;
    dict.set_item("batch_copy", stats.batch_copy)?;
    let columns = PyDict::new(py);
    for (name, column) in &stats.columns {
        let entry = PyDict::new(py);
        entry.set_item("route", column.route.to_string())?;
        entry.set_item("refused", column.refused.as_deref())?;
        entry.set_item("rows", column.rows)?;
        entry.set_item("bytes", column.bytes)?;
        entry.set_item("copied", column.copied)?;
        columns.set_item(name, entry)?;
    }
    dict.set_item("columns", columns)?;
    if let Some(cache) = cache {
        let entry = PyDict::new(py);
        entry.set_item("budget", cache.budget)?;
        entry.set_item("bytes", cache.bytes)?;
        entry.set_item("rows", cache.rows)?;
        entry.set_item("hits", cache.hits)?;
        entry.set_item("misses", cache.misses)?;
        entry.set_item("full", cache.full.as_deref())?;
        dict.set_item("cache", entry)?;
    }
    Ok(dict)
}
