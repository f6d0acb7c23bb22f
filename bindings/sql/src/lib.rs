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
/// As the package `forebay` has it: the same classes for the same errors.
#[path = "../../python/src/exceptions.rs"]
mod exceptions;
/// As the package `forebay` has it: Ctrl-C ends a wait, and a panic is an error.
#[path = "../../python/src/wait.rs"]
mod wait;

use pyo3::prelude::*;

/// The native half of `forebay_sql`.
#[pymodule(name = "_sql")]
fn sql(module: &Bound<'_, PyModule>) -> PyResult<()> {
    // A thread for each core, for queries compute on them. It starts with the first query; nobody started it before us.
    let cores = std::thread::available_parallelism().map_or(2, usize::from).max(2);
    forebay_storage::configure_runtime(cores).map_err(error::Error::from)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<engine::Engine>()?;
    module.add_class::<answer::Answer>()?;
    module.add_function(wrap_pyfunction!(engine::create_lake, module)?)
}
