//! Python's values as parameters, and its tables as tables.

use std::{collections::BTreeMap, sync::Arc};

use arrow::{
    array::{Array as _, AsArray as _},
    datatypes::DataType,
    ffi_stream::{ArrowArrayStreamReader, FFI_ArrowArrayStream},
    record_batch::RecordBatchReader as _,
};
use forebay_sql::{Computed, Parameter, Parameters};
use numpy::PyReadonlyArray1;
use pyo3::{
    prelude::*,
    types::{IntoPyDict as _, PyBool, PyBytes, PyCapsule, PyFloat, PyInt, PyString},
};

use crate::error::{Error, Result};

/// Values by name.
pub(crate) fn parameters(given: BTreeMap<String, Bound<'_, PyAny>>) -> Result<Parameters> {
    given.into_iter().map(|(name, value)| Ok((name.clone(), parameter(&name, &value)?))).collect()
}

fn parameter(name: &str, value: &Bound<'_, PyAny>) -> Result<Parameter> {
    let failed = |reason: String| Error::Sql(forebay_sql::Error::Parameter { name: format!("${name}"), reason });
    if value.is_none() {
        return Ok(Parameter::Null);
    }
    if value.is_instance_of::<PyBool>() {
        return Ok(Parameter::Bool(value.extract()?));
    }
    if value.is_instance_of::<PyInt>() {
        return match (value.extract::<i64>(), value.extract::<u64>()) {
            (Ok(number), _) => Ok(Parameter::Int(number)),
            (_, Ok(number)) => Ok(Parameter::Uint(number)),
            _ => Err(failed(format!("{value} needs more than 64 bits"))),
        };
    }
    if value.is_instance_of::<PyFloat>() {
        return Ok(Parameter::Float(value.extract()?));
    }
    if value.is_instance_of::<PyString>() {
        return Ok(Parameter::Text(value.extract()?));
    }
    if value.is_instance_of::<PyBytes>() {
        return Ok(Parameter::Bytes(value.extract()?));
    }
    // datetime: as the microseconds that it stands for, in UTC if it says nothing else.
    if let Ok(stamp) = value.call_method0("timestamp") {
        let utc = value.py().import("datetime")?.getattr("timezone")?.getattr("utc")?;
        let naive = value.getattr("tzinfo").is_ok_and(|zone| zone.is_none());
        let stamp = if naive {
            value
                .call_method("replace", (), Some(&[("tzinfo", utc)].into_py_dict(value.py())?))?
                .call_method0("timestamp")?
        } else {
            stamp
        };
        return Ok(Parameter::Timestamp((stamp.extract::<f64>()? * 1e6).round() as i64));
    }
    // A vector, as it mostly comes.
    if let Ok(vector) = value.extract::<PyReadonlyArray1<'_, f32>>() {
        return Ok(Parameter::List(
            vector.as_array().iter().map(|value| Parameter::Float(f64::from(*value))).collect(),
        ));
    }
    // NumPy's scalars and arrays, and torch's tensors, know how to become plain values.
    if let Ok(plain) = value.call_method0("tolist") {
        return parameter(name, &plain);
    }
    match value.try_iter() {
        Ok(items) => Ok(Parameter::List(items.map(|item| parameter(name, &item?)).collect::<Result<_>>()?)),
        Err(_) => Err(failed(format!("SQL has no type for {}", value.get_type().name()?))),
    }
}

/// The batches of an object that exports Arrow's C stream: an Arrow table, a Polars or pandas frame, another answer.
pub(crate) fn batches(
    name: &str,
    value: &Bound<'_, PyAny>,
) -> Result<(arrow::datatypes::SchemaRef, Vec<arrow::array::RecordBatch>)> {
    let failed = |reason: String| Error::Argument { reason: format!("table '{name}': {reason}") };
    let exported = value
        .call_method0("__arrow_c_stream__")
        .map_err(|error| failed(format!("{} is no Arrow table, frame or path ({error})", value.get_type())))?;
    let capsule = exported.cast::<PyCapsule>().map_err(|error| failed(error.to_string()))?;
    let pointer = capsule.pointer_checked(Some(c"arrow_array_stream"))?;
    // SAFETY: a capsule of this name holds a stream (Arrow's PyCapsule interface); reading it moves it out and marks it released.
    #[expect(unsafe_code, reason = "the C stream interface is made of pointers")]
    let stream = unsafe { FFI_ArrowArrayStream::from_raw(pointer.cast::<FFI_ArrowArrayStream>().as_ptr()) };
    let reader = ArrowArrayStreamReader::try_new(stream).map_err(|error| failed(error.to_string()))?;
    let schema = reader.schema();
    let batches = reader.collect::<Result<Vec<_>, _>>().map_err(|error| failed(error.to_string()))?;
    Ok((Arc::clone(&schema), batches))
}

/// A column that a selection computed: its name, NumPy's name of its type, its values, and which are valid if it may have nulls.
pub(crate) type Plain<'py> = (String, &'static str, Bound<'py, PyBytes>, Option<Bound<'py, PyBytes>>);

/// A computed column for NumPy; nulls are zeros.
pub(crate) fn plain<'py>(py: Python<'py>, column: &Computed) -> Result<Plain<'py>> {
    let values = &column.values;
    let (name, width) = match values.data_type() {
        DataType::Boolean => ("bool", 1),
        DataType::Int8 => ("int8", 1),
        DataType::Int16 => ("int16", 2),
        DataType::Int32 => ("int32", 4),
        DataType::Int64 => ("int64", 8),
        DataType::UInt8 => ("uint8", 1),
        DataType::UInt16 => ("uint16", 2),
        DataType::UInt32 => ("uint32", 4),
        DataType::UInt64 => ("uint64", 8),
        DataType::Float16 => ("float16", 2),
        DataType::Float32 => ("float32", 4),
        DataType::Float64 => ("float64", 8),
        other => {
            return Err(Error::Argument { reason: format!("column '{}' is computed, of type {other}", column.name) });
        }
    };
    let mut bytes = match values.as_boolean_opt() {
        Some(flags) => flags.values().iter().map(u8::from).collect(),
        None => {
            let data = values.to_data();
            data.buffers()[0].as_slice()[data.offset() * width..][..data.len() * width].to_vec()
        }
    };
    let valid =
        column.nullable.then(|| (0..values.len()).map(|row| u8::from(values.is_valid(row))).collect::<Vec<_>>());
    for (row, _) in valid.iter().flatten().enumerate().filter(|(_, valid)| **valid == 0) {
        bytes[row * width..(row + 1) * width].fill(0);
    }
    Ok((column.name.clone(), name, PyBytes::new(py, &bytes), valid.map(|valid| PyBytes::new(py, &valid))))
}
