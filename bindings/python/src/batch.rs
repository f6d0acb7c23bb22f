//! Batches as Python gets them: for each column a tuple (name, values, offsets, shapes, valid).
//!
//! `values` is a [`Tensor`] of shape [rows, ...] for numbers of fixed shape; a list for texts, bytes and JSON; a [`Tensor`] [elements] for
//! numbers of free shape, with `offsets`, i64 [rows + 1] in elements, and `shapes`, i64 [rows, rank]. `valid`, bool [rows], comes with
//! nullable columns. A loader for a device gives tensors in its memory; there `offsets` count bytes, and `shapes` stay in main memory.
#![allow(unsafe_code)]

use std::{any::Any, sync::Arc};

use forebay_format::{Column, ColumnData, DType, OwnedValues};
use forebay_gpu::DeviceBuffer;
use forebay_loader::{Batch, BatchColumn, BatchValues, Buffer, HostBuffer, order::Course};
use pyo3::prelude::*;

use crate::{
    dlpack::{Memory, Tensor},
    error::{Error, Result},
    values::{Ragged, fixed_shape, unpack},
};

/// A column on its way to Python.
pub(crate) type Delivered<'py> =
    (String, Bound<'py, PyAny>, Option<Bound<'py, Tensor>>, Option<Bound<'py, Tensor>>, Option<Bound<'py, Tensor>>);

/// What the weights of a batch's rows are called: 1 for those that count, 0 for masked ones.
const SAMPLE_WEIGHT: &str = "sample_weight";

/// What the seeds of a batch's rows are called.
const SAMPLE_SEED: &str = "sample_seed";
/// What the places of a batch's rows in the selection are called: -1 for masked ones.
const SAMPLE_INDEX: &str = "sample_index";
/// What the numbers of the sources of a mixture's rows are called.
const SOURCE: &str = "source";

fn host(buffer: Buffer) -> Result<HostBuffer> {
    buffer.into_host().ok_or_else(|| Error::internal("texts came in memory of a device"))
}

/// A loader's buffer, which goes back to its pool when the last tensor over it is gone.
fn memory(buffer: Buffer) -> Result<Arc<Memory>> {
    match buffer {
        Buffer::Host(buffer) => Ok(host_memory(buffer)),
        Buffer::Device(buffer) => {
            let buffer: Box<dyn Any> = buffer;
            let buffer = buffer.downcast::<DeviceBuffer>();
            let buffer = buffer.map_err(|_| Error::internal("a batch came from an unknown device"))?;
            Ok(Arc::new(Memory::of_device(*buffer)))
        }
    }
}

fn host_memory(buffer: HostBuffer) -> Arc<Memory> {
    let (start, length) = (buffer.as_ptr().cast_mut(), buffer.len());
    // SAFETY: a host buffer's bytes stay where they are when it moves, are initialised, and belong to it alone until it is dropped; it
    // is dropped with the `Memory`.
    Arc::new(unsafe { Memory::owned_by(start, length, Box::new(buffer)) })
}

fn tensor<'py>(py: Python<'py>, memory: Arc<Memory>, dtype: DType, shape: Vec<usize>) -> Result<Bound<'py, Tensor>> {
    let made = Tensor::new(memory, dtype, shape).ok_or_else(|| Error::internal("a buffer is shorter than its rows"))?;
    Ok(Bound::new(py, made)?)
}

/// The columns of a loader's batch.
pub(crate) fn of_loader<'py>(
    py: Python<'py>,
    batch: Batch,
    columns: &[Column],
    seeds: Option<&Course>,
    places: Option<&Course>,
) -> Result<Vec<Delivered<'py>>> {
    let rows = batch.rows.len();
    let delivered = batch.columns.into_iter().zip(columns);
    let mut delivered: Vec<_> =
        delivered.map(|(delivered, column)| of_column(py, delivered, column, rows)).collect::<Result<_>>()?;
    let mut numbers = |name: &str, numbers: Vec<i64>| -> Result<()> {
        let numbers = tensor(py, Arc::new(Memory::of_i64(numbers)), DType::I64, vec![rows])?;
        delivered.push((name.to_owned(), numbers.into_any(), None, None, None));
        Ok(())
    };
    if let Some(sources) = batch.sources {
        numbers(SOURCE, sources.into_iter().map(i64::from).collect())?;
    }
    if let Some(course) = seeds {
        // Without the sign bit: a seed is a number that every library takes.
        numbers(SAMPLE_SEED, batch.positions.iter().map(|at| (course.sample_seed(*at) >> 1) as i64).collect())?;
    }
    if let Some(course) = places {
        let counts = |row: usize| batch.mask.as_ref().is_none_or(|mask| mask[row]);
        let place =
            |(row, at): (usize, &u64)| course.index(*at).filter(|_| counts(row)).map_or(-1, |index| index as i64);
        numbers(SAMPLE_INDEX, batch.positions.iter().enumerate().map(place).collect())?;
    }
    if let Some(mask) = batch.mask {
        let weights = mask.iter().flat_map(|counts| f32::from(u8::from(*counts)).to_le_bytes()).collect();
        let weights = tensor(py, Arc::new(Memory::of_vec(weights)), DType::F32, vec![rows])?;
        delivered.push((SAMPLE_WEIGHT.to_owned(), weights.into_any(), None, None, None));
    }
    Ok(delivered)
}

fn of_column<'py>(py: Python<'py>, delivered: BatchColumn, column: &Column, rows: usize) -> Result<Delivered<'py>> {
    let name = delivered.name.to_string();
    let (values, offsets, shapes) = match delivered.values {
        BatchValues::Fixed { shape, buffer } => {
            (tensor(py, memory(buffer)?, delivered.dtype, shape)?.into_any(), None, None)
        }
        BatchValues::Ragged { offsets: Buffer::Device(offsets), shapes, bytes } => {
            on_device(py, column, rows, Buffer::Device(offsets), &shapes, bytes)?
        }
        BatchValues::Ragged { offsets, shapes, bytes } => {
            let offsets: Vec<u64> = host(offsets)?.chunks_exact(8).map(le_u64).collect();
            let bits = delivered.validity.as_ref().and_then(Buffer::host).map(|valid| pack(valid));
            ragged(py, column, rows, &offsets, &shapes, bits.as_deref(), host_memory(host(bytes)?))?
        }
    };
    let valid = delivered.validity.map(|valid| tensor(py, memory(valid)?, DType::Bool, vec![rows])).transpose()?;
    Ok((name, values, offsets, shapes, valid))
}

/// Rows that were read by number.
pub(crate) fn of_rows<'py>(py: Python<'py>, data: ColumnData, column: &Column) -> Result<Delivered<'py>> {
    let ColumnData { rows, values, validity } = data;
    let (values, offsets, shapes) = match values {
        OwnedValues::Fixed(bytes) => {
            let mut shape = fixed_shape(column).unwrap_or_default();
            shape.insert(0, rows);
            (tensor(py, Arc::new(Memory::of_vec(bytes)), column.dtype, shape)?.into_any(), None, None)
        }
        OwnedValues::Ragged { offsets, shapes, bytes } => {
            ragged(py, column, rows, &offsets, &shapes, validity.as_deref(), Arc::new(Memory::of_vec(bytes)))?
        }
    };
    let valid = if column.nullable {
        let bytes = validity.map_or_else(|| vec![1; rows], |bits| unpack(&bits, rows));
        Some(tensor(py, Arc::new(Memory::of_vec(bytes)), DType::Bool, vec![rows])?)
    } else {
        None
    };
    Ok((column.name.clone(), values, offsets, shapes, valid))
}

type RaggedParts<'py> = (Bound<'py, PyAny>, Option<Bound<'py, Tensor>>, Option<Bound<'py, Tensor>>);

fn ragged<'py>(
    py: Python<'py>,
    column: &Column,
    rows: usize,
    offsets: &[u64],
    shapes: &[u32],
    validity: Option<&[u8]>,
    bytes: Arc<Memory>,
) -> Result<RaggedParts<'py>> {
    let Some(item) = column.dtype.item_size() else {
        let list = Ragged { offsets, shapes, validity, rows }.to_list(py, column, &bytes)?;
        return Ok((list, None, None));
    };
    let elements = bytes.len() / item;
    let starts: Vec<i64> = offsets.iter().map(|offset| *offset as i64 / item as i64).collect();
    let lengths: Vec<i64> = shapes.iter().map(|length| i64::from(*length)).collect();
    Ok((
        tensor(py, bytes, column.dtype, vec![elements])?.into_any(),
        Some(tensor(py, Arc::new(Memory::of_i64(starts)), DType::I64, vec![rows + 1])?),
        Some(tensor(py, Arc::new(Memory::of_i64(lengths)), DType::I64, vec![rows, column.shape.len()])?),
    ))
}

/// As [`ragged`], in a device's memory: `offsets` count bytes.
fn on_device<'py>(
    py: Python<'py>,
    column: &Column,
    rows: usize,
    offsets: Buffer,
    shapes: &[u32],
    bytes: Buffer,
) -> Result<RaggedParts<'py>> {
    let item = column.dtype.item_size().ok_or_else(|| Error::internal("texts came in memory of a device"))?;
    let elements = bytes.len() / item;
    let lengths: Vec<i64> = shapes.iter().map(|length| i64::from(*length)).collect();
    Ok((
        tensor(py, memory(bytes)?, column.dtype, vec![elements])?.into_any(),
        Some(tensor(py, memory(offsets)?, DType::I64, vec![rows + 1])?),
        Some(tensor(py, Arc::new(Memory::of_i64(lengths)), DType::I64, vec![rows, column.shape.len()])?),
    ))
}

fn le_u64(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// One bit a row, from one byte a row.
fn pack(valid: &[u8]) -> Vec<u8> {
    valid.chunks(8).map(|eight| eight.iter().rev().fold(0, |byte, valid| byte << 1 | (*valid & 1))).collect()
}
