//! The library behind `forebay.execute`, `query` and `where`: SQL for the Python package `forebay`.
//!
//! It is a library of its own, since DataFusion is several times as large as everything else. The two share no memory: this
//! one opens a lake by its URL, and gives back row numbers, or Arrow's C stream.

/// As the package `forebay` has it: the same dict, and credentials from the same callable.
#[path = "../../python/src/access.rs"]
mod access;
mod answer;
mod convert;
mod engine;
mod error;
mod wait;

use pyo3::prelude::*;

/// The native half of `forebay_sql`.
#[pymodule(name = "_sql")]
fn sql(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<engine::Engine>()?;
    module.add_class::<answer::Answer>()?;
    module.add_function(wrap_pyfunction!(engine::create_lake, module)?)
}
