//! What CUDA there is, for Python.

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
