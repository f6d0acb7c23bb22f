//! Rows that were read, as Python objects.

use std::sync::Arc;

use forebay_format::{Column, ColumnData, DType, Dim, OwnedValues};
use pyo3::{
    prelude::*,
    types::{PyBytes, PyList, PyString},
};

use crate::{
    array,
    dlpack::Memory,
    error::{Error, Result},
    link::Link,
};

/// The lengths of a fixed row's dimensions.
pub(crate) fn fixed_shape(column: &Column) -> Option<Vec<usize>> {
    let fixed = |dim: &Dim| match dim {
        Dim::Fixed(length) => Some(*length as usize),
        Dim::Free => None,
    };
    column.shape.iter().map(fixed).collect()
}

/// One byte a row, 1 for valid, from one bit a row.
pub(crate) fn unpack(bits: &[u8], rows: usize) -> Vec<u8> {
    (0..rows).map(|row| bits[row / 8] >> (row % 8) & 1).collect()
}

fn is_valid(validity: Option<&[u8]>, row: usize) -> bool {
    validity.is_none_or(|bits| bits[row / 8] >> (row % 8) & 1 == 1)
}

/// The values of some rows: an array of numbers of fixed shape, else a list with None for nulls.
pub(crate) fn to_python<'py>(py: Python<'py>, column: &Column, data: ColumnData) -> Result<Bound<'py, PyAny>> {
    let ColumnData { rows, values, validity } = data;
    match values {
        OwnedValues::Fixed(bytes) => {
            let mut shape = fixed_shape(column).ok_or_else(|| misfit(column))?;
            shape.insert(0, rows);
            Ok(array::over(py, Arc::new(Memory::of_vec(bytes)), 0, column.dtype, &shape)?)
        }
        OwnedValues::Ragged { offsets, shapes, bytes } => {
            let rows = Ragged { offsets: &offsets, shapes: &shapes, validity: validity.as_deref(), rows };
            rows.to_list(py, column, &Arc::new(Memory::of_vec(bytes)))
        }
    }
}

/// Which rows are valid, bool [rows], for a nullable column of fixed shape; lists have None for nulls.
pub(crate) fn validity_of<'py>(
    py: Python<'py>,
    column: &Column,
    data: &ColumnData,
) -> Result<Option<Bound<'py, PyAny>>> {
    if !column.nullable || !matches!(data.values, OwnedValues::Fixed(_)) {
        return Ok(None);
    }
    let bytes = data.validity.as_ref().map_or_else(|| vec![1; data.rows], |bits| unpack(bits, data.rows));
    Ok(Some(array::over(py, Arc::new(Memory::of_vec(bytes)), 0, DType::Bool, &[data.rows])?))
}

/// One row: an array or a NumPy scalar, a text, bytes, or None.
pub(crate) fn one_to_python<'py>(py: Python<'py>, column: &Column, data: ColumnData) -> Result<Bound<'py, PyAny>> {
    if !is_valid(data.validity.as_deref(), 0) {
        return Ok(py.None().into_bound(py));
    }
    to_python(py, column, data)?.get_item(0).map_err(Into::into)
}

/// Rows of different lengths over one piece of memory.
pub(crate) struct Ragged<'a> {
    pub(crate) offsets: &'a [u64],
    pub(crate) shapes: &'a [u32],
    pub(crate) validity: Option<&'a [u8]>,
    pub(crate) rows: usize,
}

impl Ragged<'_> {
    /// A list with an object a row: a text, bytes, a link, or an array over the memory; None for nulls.
    pub(crate) fn to_list<'py>(
        &self,
        py: Python<'py>,
        column: &Column,
        memory: &Arc<Memory>,
    ) -> Result<Bound<'py, PyAny>> {
        let rank = self.shapes.len().checked_div(self.rows).unwrap_or(0);
        let list = PyList::empty(py);
        for row in 0..self.rows {
            if !is_valid(self.validity, row) {
                list.append(py.None())?;
                continue;
            }
            let (start, end) = (self.offsets[row] as usize, self.offsets[row + 1] as usize);
            match column.dtype {
                DType::Utf8 | DType::Json => {
                    let text = std::str::from_utf8(bytes(memory, start, end)?);
                    list.append(PyString::new(py, text.map_err(|_| misfit(column))?))?;
                }
                DType::Bytes => list.append(PyBytes::new(py, bytes(memory, start, end)?))?,
                DType::Link => list.append(Bound::new(py, Link::read(column, bytes(memory, start, end)?)?)?)?,
                _ => {
                    let shape = &self.shapes[row * rank..(row + 1) * rank];
                    let shape: Vec<usize> = shape.iter().map(|length| *length as usize).collect();
                    list.append(array::over(py, memory.clone(), start, column.dtype, &shape)?)?;
                }
            }
        }
        Ok(list.into_any())
    }
}

fn bytes(memory: &Memory, start: usize, end: usize) -> Result<&[u8]> {
    memory.as_slice().get(start..end).ok_or_else(|| Error::internal("a row is longer than its block"))
}

fn misfit(column: &Column) -> Error {
    Error::internal(format!("rows of column {column} were read as another type"))
}
