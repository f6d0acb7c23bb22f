//! Numbers of a tensor's elements: norm, mean, sum, extremes, shape, one element.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, AsArray, Float64Array, Int64Builder, ListBuilder},
    compute::cast,
    datatypes::{DataType, Field, FieldRef, Float64Type, Int32Type, Int64Type},
};
use datafusion::{
    common::Result as DfResult,
    logical_expr::{ColumnarValue, Signature, Volatility},
};

use super::{Scalar, array, failed, result, rows_of, shared};

pub(super) fn functions() -> Vec<Scalar> {
    let one = || Signature::any(1, Volatility::Immutable);
    let number = || DataType::Float64;
    let shape = DataType::List(Arc::new(Field::new_list_field(DataType::Int64, true)));
    vec![
        Scalar::new("l2_norm", one(), number(), |args, _, rows| {
            fold(args, rows, |v| Some(v.iter().map(|x| x * x).sum::<f64>().sqrt()))
        }),
        Scalar::new("tensor_sum", one(), number(), |args, _, rows| fold(args, rows, |v| Some(v.iter().sum()))),
        Scalar::new("tensor_mean", one(), number(), |args, _, rows| {
            fold(args, rows, |v| (!v.is_empty()).then(|| v.iter().sum::<f64>() / v.len() as f64))
        }),
        Scalar::new("tensor_min", one(), number(), |args, _, rows| {
            fold(args, rows, |v| v.iter().copied().reduce(f64::min))
        }),
        Scalar::new("tensor_max", one(), number(), |args, _, rows| {
            fold(args, rows, |v| v.iter().copied().reduce(f64::max))
        }),
        Scalar::new("tensor_shape", one(), shape, shapes),
        Scalar::new("tensor_get", Signature::variadic_any(Volatility::Immutable), number(), element),
    ]
}

/// The flat elements of a row; none for null.
fn elements(array: &ArrayRef, row: usize) -> DfResult<Option<Vec<f64>>> {
    if array.is_null(row) {
        return Ok(None);
    }
    let values = match array.data_type() {
        DataType::FixedSizeList(..) => array.as_fixed_size_list().value(row),
        DataType::List(_) => array.as_list::<i32>().value(row),
        DataType::LargeList(_) => array.as_list::<i64>().value(row),
        DataType::Struct(_) => array.as_struct().column(0).as_list::<i64>().value(row),
        other => return Err(failed(format!("a tensor is needed, not {other}"))),
    };
    let values = cast(&values, &DataType::Float64)?;
    Ok(Some(values.as_primitive::<Float64Type>().values().to_vec()))
}

fn fold(arguments: &[ColumnarValue], rows: usize, of: impl Fn(&[f64]) -> Option<f64>) -> DfResult<ColumnarValue> {
    let rows = rows_of(arguments, rows);
    let tensors = array(&arguments[0], rows)?;
    let numbers = (0..rows).map(|row| Ok(elements(&tensors, row)?.as_deref().and_then(&of)));
    result(arguments, shared(numbers.collect::<DfResult<Float64Array>>()?))
}

/// A row's shape: that of its field for a fixed one, its own for a free one.
fn shape(tensors: &ArrayRef, field: &FieldRef, row: usize) -> DfResult<Vec<i64>> {
    match tensors.data_type() {
        DataType::Struct(_) => {
            let lengths = tensors.as_struct().column(1).as_fixed_size_list().value(row);
            Ok(lengths.as_primitive::<Int32Type>().values().iter().map(|length| i64::from(*length)).collect())
        }
        DataType::FixedSizeList(_, length) => {
            let metadata = field.metadata().get("ARROW:extension:metadata");
            let parsed: Option<serde_json::Value> = metadata.and_then(|text| serde_json::from_str(text).ok());
            let dims = parsed.as_ref().and_then(|value| value.get("shape")?.as_array());
            Ok(dims.map_or_else(
                || vec![i64::from(*length)],
                |dims| dims.iter().filter_map(serde_json::Value::as_i64).collect(),
            ))
        }
        DataType::List(_) => Ok(vec![tensors.as_list::<i32>().value(row).len() as i64]),
        DataType::LargeList(_) => Ok(vec![tensors.as_list::<i64>().value(row).len() as i64]),
        other => Err(failed(format!("a tensor is needed, not {other}"))),
    }
}

fn shapes(arguments: &[ColumnarValue], fields: &[FieldRef], rows: usize) -> DfResult<ColumnarValue> {
    let rows = rows_of(arguments, rows);
    let tensors = array(&arguments[0], rows)?;
    let mut lists = ListBuilder::new(Int64Builder::new());
    for row in 0..rows {
        if tensors.is_null(row) {
            lists.append_null();
        } else {
            lists.values().append_slice(&shape(&tensors, &fields[0], row)?);
            lists.append(true);
        }
    }
    result(arguments, shared(lists.finish()))
}

/// `tensor_get(tensor, i, j, ...)`: the element at these places, from 0; null past the end.
fn element(arguments: &[ColumnarValue], fields: &[FieldRef], rows: usize) -> DfResult<ColumnarValue> {
    let rows = rows_of(arguments, rows);
    let Some((tensors, places)) = arguments.split_first() else {
        return Err(failed("tensor_get takes a tensor and places".to_owned()));
    };
    let tensors = array(tensors, rows)?;
    let places =
        places.iter().map(|place| Ok(cast(&array(place, rows)?, &DataType::Int64)?)).collect::<DfResult<Vec<_>>>()?;
    let get = |row: usize| -> DfResult<Option<f64>> {
        let Some(elements) = elements(&tensors, row)? else { return Ok(None) };
        let shape = shape(&tensors, &fields[0], row)?;
        if shape.len() != places.len() {
            return Err(failed(format!("tensor_get needs {} places for shape {shape:?}", shape.len())));
        }
        let mut flat = 0;
        for (length, place) in shape.iter().zip(&places) {
            let place = place.as_primitive::<Int64Type>();
            if place.is_null(row) || !(0..*length).contains(&place.value(row)) {
                return Ok(None);
            }
            flat = flat * length + place.value(row);
        }
        Ok(elements.get(flat as usize).copied())
    };
    result(arguments, shared((0..rows).map(get).collect::<DfResult<Float64Array>>()?))
}
