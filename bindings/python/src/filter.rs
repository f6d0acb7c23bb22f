//! Rows chosen by a Python function.

use forebay_query::{NamedColumn, ScanOptions, select};
use forebay_versioning::{Selection, Table};
use numpy::PyReadonlyArray1;
use pyo3::{prelude::*, types::PyList};

use crate::{
    error::{Error, Result},
    values::{to_python, validity_of},
    wait::block_on,
};

/// The rows of a table for which `ask` says true. It gets a list with the values and validity of each column for a batch of rows, as
/// `Rows.read` gives them, and returns a boolean array.
pub(crate) fn filter(py: Python<'_>, table: &Table, columns: &[String], ask: &Py<PyAny>) -> Result<Selection> {
    let names: Vec<&str> = columns.iter().map(String::as_str).collect();
    let predicate = |batch: &[NamedColumn<'_>]| Python::attach(|py| answer(py, batch, ask));
    let chosen = block_on(py, || select(table, &names, ScanOptions::default(), predicate));
    match chosen {
        // What the function raised is raised as it is.
        Err(Error::Query(forebay_query::Error::Predicate { table, rows, source })) => {
            match source.downcast::<PyErr>() {
                Ok(raised) => Err(Error::Python(*raised)),
                Err(source) => Err(forebay_query::Error::Predicate { table, rows, source }.into()),
            }
        }
        chosen => chosen,
    }
}

fn answer(py: Python<'_>, batch: &[NamedColumn<'_>], ask: &Py<PyAny>) -> Result<Vec<bool>, PyErr> {
    let values = batch.iter().map(|NamedColumn { column, data }| {
        let valid = validity_of(py, column, data)?;
        Ok((to_python(py, column, (*data).clone())?, valid))
    });
    let values = PyList::new(py, values.collect::<Result<Vec<_>>>()?)?;
    let mask: PyReadonlyArray1<'_, bool> = ask.bind(py).call1((values,))?.extract()?;
    Ok(mask.as_array().iter().copied().collect())
}
