//! `forebay._forebay`: the native half of the Python package `forebay`.
//!
//! It is thin: classes that hold what the crates below made, and conversions. Names, defaults, docs and the checks of what users pass are in the Python half.
//!
//! | module | is |
//! |---|---|
//! | `session` | a lake opened at a version; what waits for a commit (`append`) |
//! | `keep` | collections, pins, copies of whole lakes, rows that differ |
//! | `link` | links, and where they may lead |
//! | `rows`, `filter` | rows of a table, by number or by what a function says |
//! | `loader`, `report`, `transform` | epochs of batches; what is known of them; what is done to their images |
//! | `dlpack`, `array` | memory of Rust as tensors of Python, without a copy |
//! | `fork`, `wait` | what holds after a fork; waiting without the GIL |

mod access;
mod append;
mod array;
mod batch;
mod change;
mod dlpack;
mod error;
mod exceptions;
mod filter;
mod fork;
mod gpu;
mod keep;
mod link;
mod loader;
mod report;
mod rows;
mod schema;
mod session;
mod tables;
mod transform;
mod values;
mod wait;

use std::ffi::OsString;

use pyo3::prelude::*;

/// Runs the command `forebay` with these arguments, the program's name first. Gives its exit status.
#[pyfunction]
fn run_cli(py: Python<'_>, arguments: Vec<OsString>) -> error::Result<i32> {
    wait::detached(py, || Ok(forebay_cli::run(arguments)))
}

/// The module.
#[pymodule]
fn _forebay(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<session::Session>()?;
    module.add_class::<rows::Rows>()?;
    module.add_class::<link::Link>()?;
    module.add_class::<keep::Pin>()?;
    module.add_class::<keep::Differences>()?;
    module.add_function(wrap_pyfunction!(link::find_links, module)?)?;
    module.add_function(wrap_pyfunction!(keep::gc, module)?)?;
    module.add_function(wrap_pyfunction!(keep::copy, module)?)?;
    module.add_function(wrap_pyfunction!(keep::purge, module)?)?;
    module.add_function(wrap_pyfunction!(keep::purges, module)?)?;
    module.add_function(wrap_pyfunction!(keep::assess, module)?)?;
    module.add_function(wrap_pyfunction!(keep::clone_lake, module)?)?;
    module.add_class::<loader::Loader>()?;
    module.add_class::<loader::Batches>()?;
    module.add_class::<dlpack::Tensor>()?;
    module.add_function(wrap_pyfunction!(dlpack::copy_on_device, module)?)?;
    module.add_function(wrap_pyfunction!(gpu::gpu_info, module)?)?;
    module.add_function(wrap_pyfunction!(gpu::gpu_configure, module)?)?;
    module.add_function(wrap_pyfunction!(run_cli, module)?)
}
