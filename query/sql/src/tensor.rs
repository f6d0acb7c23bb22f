//! Lists as tensors.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, AsArray, FixedSizeListArray, Int32Array, LargeListArray, StructArray},
    buffer::OffsetBuffer,
    compute::{CastOptions, cast_with_options},
    datatypes::{DataType, Field, FieldRef},
};
use forebay_format::{Column, Dim};

use crate::{Error, Result, types};

/// Nested lists, one level a dimension, or flat ones, as a tensor of fixed shape: flat in C order.
pub(crate) fn flattened(column: &Column, array: &ArrayRef, item: &FieldRef, length: i32) -> Result<ArrayRef> {
    let rows = array.len();
    let lists = nested(column, array)?;
    let fits = |row: usize| array.is_null(row) || lists[row].1.len() == length as usize;
    if let Some(row) = (0..rows).find(|row| !fits(*row)) {
        let reason = format!("row {row} has {} elements instead of {length}", lists[row].1.len());
        return Err(Error::Value { column: column.name.clone(), reason });
    }
    for (row, (shape, _)) in lists.iter().enumerate().filter(|(row, _)| !array.is_null(*row)) {
        check_shape(column, row, shape)?;
    }
    let empty = arrow::array::new_null_array(item.data_type(), length as usize);
    let parts: Vec<ArrayRef> = lists
        .iter()
        .enumerate()
        .map(|(row, (_, values))| if array.is_null(row) { empty.clone() } else { values.clone() })
        .collect();
    let values = joined(&parts, item.data_type())?;
    Ok(Arc::new(FixedSizeListArray::try_new_with_length(item.clone(), length, values, array.logical_nulls(), rows)?))
}

/// Nested lists as a tensor of free shape.
pub(crate) fn with_shapes(column: &Column, array: &ArrayRef) -> Result<ArrayRef> {
    let rank = column.shape.len();
    let fields = types::ragged(column.dtype, rank);
    let DataType::LargeList(item) = fields[0].data_type().clone() else {
        return Err(Error::unsupported("a list was expected"));
    };
    let lists = nested(column, array)?;
    let mut lengths = Vec::with_capacity(lists.len() * rank);
    for (row, (shape, _)) in lists.iter().enumerate() {
        let null = array.is_null(row);
        if !null {
            check_shape(column, row, shape)?;
        }
        lengths.extend((0..rank).map(|dim| if null { 0 } else { shape[dim] as i32 }));
    }
    let parts: Vec<ArrayRef> = lists.into_iter().map(|(_, values)| values).collect();
    let offsets = OffsetBuffer::from_lengths(parts.iter().map(|part| part.len()));
    let data = LargeListArray::try_new(item.clone(), offsets, joined(&parts, item.data_type())?, None)?;
    let length = Arc::new(Field::new_list_field(DataType::Int32, true));
    let shape = FixedSizeListArray::try_new_with_length(
        length,
        rank as i32,
        Arc::new(Int32Array::from(lengths)),
        None,
        parts.len(),
    )?;
    Ok(Arc::new(StructArray::try_new(fields.into(), vec![Arc::new(data), Arc::new(shape)], array.logical_nulls())?))
}

fn check_shape(column: &Column, row: usize, shape: &[usize]) -> Result<()> {
    let flat = shape.len() == 1 && types::elements(&column.shape) == Some(shape[0]);
    let fits = shape.len() == column.shape.len()
        && shape
            .iter()
            .zip(&column.shape)
            .all(|(found, dim)| !matches!(dim, Dim::Fixed(length) if *length as usize != *found));
    if flat || fits {
        return Ok(());
    }
    Err(Error::Value {
        column: column.name.clone(),
        reason: format!("row {row} has shape {shape:?}, which is none of {column}"),
    })
}

/// Shape and flat elements of each row.
fn nested(column: &Column, array: &ArrayRef) -> Result<Vec<(Vec<usize>, ArrayRef)>> {
    let wanted = types::element(column.dtype);
    let strict = CastOptions { safe: false, ..CastOptions::default() };
    (0..array.len())
        .map(|row| {
            let Some(mut values) = items(array, row) else {
                return Ok((Vec::new(), arrow::array::new_empty_array(&wanted)));
            };
            let mut shape = vec![values.len()];
            while let Some(rows) = (0..values.len()).map(|row| items(&values, row)).collect::<Option<Vec<_>>>() {
                if !is_list(values.data_type()) {
                    break;
                }
                let lengths: Vec<usize> = rows.iter().map(|row| row.len()).collect();
                if lengths.windows(2).any(|pair| pair[0] != pair[1]) {
                    let reason = format!("row {row} is no tensor: its parts have lengths {lengths:?}");
                    return Err(Error::Value { column: column.name.clone(), reason });
                }
                shape.push(lengths.first().copied().unwrap_or(0));
                values = if rows.is_empty() {
                    arrow::array::new_empty_array(&wanted)
                } else {
                    joined(&rows, rows[0].data_type())?
                };
            }
            let values = cast_with_options(&values, &wanted, &strict)
                .map_err(|error| Error::Value { column: column.name.clone(), reason: format!("row {row}: {error}") })?;
            Ok((shape, values))
        })
        .collect()
}

fn is_list(data_type: &DataType) -> bool {
    matches!(data_type, DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..))
}

/// A row's items, if it is a list and not null.
fn items(array: &ArrayRef, row: usize) -> Option<ArrayRef> {
    if array.is_null(row) {
        return None;
    }
    match array.data_type() {
        DataType::List(_) => Some(array.as_list::<i32>().value(row)),
        DataType::LargeList(_) => Some(array.as_list::<i64>().value(row)),
        DataType::FixedSizeList(..) => Some(array.as_fixed_size_list().value(row)),
        _ => None,
    }
}

fn joined(parts: &[ArrayRef], data_type: &DataType) -> Result<ArrayRef> {
    let parts: Vec<&dyn Array> = parts.iter().map(AsRef::as_ref).collect();
    if parts.is_empty() { Ok(arrow::array::new_empty_array(data_type)) } else { Ok(arrow::compute::concat(&parts)?) }
}
