//! Rows of a column as an Arrow array.

use std::sync::Arc;

use arrow::array::ArrayData;
use arrow::{
    array::{
        ArrayRef, BooleanArray, FixedSizeListArray, Float32Array, Int32Array, LargeBinaryArray, LargeListArray,
        LargeStringArray, StructArray, make_array,
    },
    buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer},
    datatypes::{DataType, Field},
    error::ArrowError,
};
use forebay_format::{Column, ColumnData, DType, Layout, OwnedValues};
use half::bf16;

use crate::{Result, float8, links, types};

/// An array of these rows.
///
/// # Errors
/// What Arrow says of text that isn't UTF-8, and [`Error::Value`](crate::Error::Value) for bytes that are no link.
pub(crate) fn array(column: &Column, data: ColumnData) -> Result<ArrayRef> {
    let ColumnData { rows, values, validity } = data;
    let nulls = validity.map(|bits| NullBuffer::new(BooleanBuffer::new(Buffer::from_vec(bits), 0, rows)));
    let nulls = nulls.filter(|nulls| nulls.null_count() > 0);
    match values {
        OwnedValues::Fixed(bytes) => fixed(column, rows, Buffer::from_vec(bytes), nulls),
        OwnedValues::Ragged { offsets, shapes, bytes } => {
            let offsets = OffsetBuffer::new(ScalarBuffer::<i64>::from(Buffer::from_vec(offsets)));
            let values = Buffer::from_vec(bytes);
            Ok(match column.dtype {
                DType::Utf8 | DType::Json => Arc::new(LargeStringArray::try_new(offsets, values, nulls)?),
                DType::Link => Arc::new(links::shown(column, &offsets, &values, nulls.as_ref())?),
                DType::Bytes => Arc::new(LargeBinaryArray::try_new(offsets, values, nulls)?),
                _ => ragged(column, &offsets, shapes, values, nulls)?,
            })
        }
    }
}

/// An array of rows of fixed shape whose bytes lie in `bytes`, which may be a map of a file.
///
/// # Errors
/// As [`array`].
pub(crate) fn fixed(column: &Column, rows: usize, bytes: Buffer, nulls: Option<NullBuffer>) -> Result<ArrayRef> {
    let Layout::Fixed { .. } = column.layout() else {
        return Err(ArrowError::SchemaError(format!("column {column} has no fixed shape")).into());
    };
    if column.shape.is_empty() {
        return primitive(column.dtype, rows, bytes, nulls);
    }
    let length = types::elements(&column.shape).unwrap_or(0);
    let values = primitive(column.dtype, rows * length, bytes, None)?;
    let item = Arc::new(Field::new_list_field(types::element(column.dtype), true));
    Ok(Arc::new(FixedSizeListArray::try_new_with_length(item, length as i32, values, nulls, rows)?))
}

fn ragged(
    column: &Column,
    offsets: &OffsetBuffer<i64>,
    shapes: Vec<u32>,
    bytes: Buffer,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef> {
    let (rank, item) = (column.shape.len(), column.dtype.item_size().unwrap_or(1));
    let rows = offsets.len() - 1;
    let values = primitive(column.dtype, bytes.len() / item, bytes, None)?;
    let offsets: Vec<i64> = offsets.iter().map(|offset| offset / item as i64).collect();
    let fields = types::ragged(column.dtype, rank);
    let DataType::LargeList(item) = fields[0].data_type() else {
        return Err(ArrowError::SchemaError("a list was expected".to_owned()).into());
    };
    let data = LargeListArray::try_new(item.clone(), OffsetBuffer::new(offsets.into()), values, None)?;
    let lengths = Int32Array::from_iter_values(shapes.into_iter().map(|length| length as i32));
    let length = Arc::new(Field::new_list_field(DataType::Int32, true));
    let shape = FixedSizeListArray::try_new_with_length(length, rank as i32, Arc::new(lengths), None, rows)?;
    Ok(Arc::new(StructArray::try_new(fields.into(), vec![Arc::new(data), Arc::new(shape)], nulls)?))
}

/// `count` elements that lie one behind the other.
fn primitive(dtype: DType, count: usize, bytes: Buffer, nulls: Option<NullBuffer>) -> Result<ArrayRef> {
    let widened = |of: &dyn Fn(usize) -> f32| -> ArrayRef {
        let values: ScalarBuffer<f32> = (0..count).map(of).collect();
        Arc::new(Float32Array::new(values, nulls.clone()))
    };
    Ok(match dtype {
        DType::Bool => {
            let bits = BooleanBuffer::collect_bool(count, |place| bytes[place] != 0);
            Arc::new(BooleanArray::new(bits, nulls))
        }
        DType::BF16 => widened(&|place| bf16::from_le_bytes([bytes[2 * place], bytes[2 * place + 1]]).to_f32()),
        DType::F8E4M3 => widened(&|place| float8::e4m3(bytes[place])),
        DType::F8E5M2 => widened(&|place| float8::e5m2(bytes[place])),
        _ => {
            let data = ArrayData::builder(types::element(dtype)).len(count).add_buffer(bytes).nulls(nulls);
            // Bytes from a file may lie anywhere; Arrow wants elements where the machine does.
            make_array(data.align_buffers(true).build()?)
        }
    })
}
