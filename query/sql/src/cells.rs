//! An Arrow array as rows of a column.

use arrow::{
    array::{Array, ArrayRef, AsArray},
    buffer::Buffer,
    compute::{CastOptions, cast_with_options},
    datatypes::{DataType, Float32Type, Int32Type},
};
use forebay_format::{Column, ColumnData, DType, Dim, OwnedValues};
use half::bf16;

use crate::{Error, Result, float8, links, types};

/// The rows of `array` as a column holds them. Values are converted if that loses nothing but what the column's type can't
/// hold; numbers out of range, lists of another length and nulls where none may be are errors.
///
/// # Errors
/// [`Error::Value`] with the column's name.
pub(crate) fn cells(column: &Column, array: &ArrayRef) -> Result<ColumnData> {
    let rows = array.len();
    let array = cast(column, array)?;
    let nulls = array.logical_nulls().filter(|nulls| nulls.null_count() > 0);
    if let Some(row) = nulls.as_ref().and_then(|nulls| (0..rows).find(|row| nulls.is_null(*row)))
        && !column.nullable
    {
        return Err(value(column, format!("row {row} is null, and the column is declared NOT NULL")));
    }
    let validity = nulls.as_ref().map(|nulls| {
        let mut bits = vec![0_u8; rows.div_ceil(8)];
        (0..rows).filter(|row| nulls.is_valid(*row)).for_each(|row| bits[row / 8] |= 1 << (row % 8));
        bits
    });
    let is_null = |row: usize| nulls.as_ref().is_some_and(|nulls| nulls.is_null(row));
    let values = match (column.dtype, types::elements(&column.shape)) {
        (DType::Utf8 | DType::Json, _) => {
            let texts = array.as_string::<i64>();
            if column.dtype == DType::Json {
                for row in (0..rows).filter(|row| !is_null(*row)) {
                    if let Err(error) = serde_json::from_str::<serde::de::IgnoredAny>(texts.value(row)) {
                        return Err(value(column, format!("row {row} is no JSON: {error}")));
                    }
                }
            }
            lengths(rows, |row| if is_null(row) { &[] } else { texts.value(row).as_bytes() })
        }
        (DType::Link, _) => {
            let texts = array.as_string::<i64>();
            let link = |row| if is_null(row) { Ok(Vec::new()) } else { links::cell(column, row, texts.value(row)) };
            let links = (0..rows).map(link).collect::<Result<Vec<_>>>()?;
            lengths(rows, |row| &links[row])
        }
        (DType::Bytes, _) => {
            let bytes = array.as_binary::<i64>();
            lengths(rows, |row| if is_null(row) { &[] } else { bytes.value(row) })
        }
        (dtype, Some(1)) if column.shape.is_empty() => {
            let mut bytes = elements(dtype, &array);
            let item = dtype.item_size().unwrap_or(1);
            // What lies under a null is anything; a lake holds zeros there.
            (0..rows).filter(|row| is_null(*row)).for_each(|row| bytes[row * item..(row + 1) * item].fill(0));
            OwnedValues::Fixed(bytes)
        }
        (dtype, Some(length)) => {
            let lists = array.as_fixed_size_list();
            let all = lists.values().slice(lists.value_offset(0) as usize, rows * length);
            no_null_elements(column, &all, length, is_null)?;
            let mut bytes = elements(dtype, &all);
            let row_bytes = length * dtype.item_size().unwrap_or(1);
            (0..rows).filter(|row| is_null(*row)).for_each(|row| bytes[row * row_bytes..(row + 1) * row_bytes].fill(0));
            OwnedValues::Fixed(bytes)
        }
        (dtype, None) => ragged(column, dtype, &array, rows, is_null)?,
    };
    Ok(ColumnData { rows, values, validity })
}

fn value(column: &Column, reason: String) -> Error {
    Error::Value { column: column.name.clone(), reason }
}

fn no_null_elements(column: &Column, all: &ArrayRef, length: usize, is_null: impl Fn(usize) -> bool) -> Result<()> {
    let Some(nulls) = all.nulls() else { return Ok(()) };
    match (0..all.len()).find(|place| nulls.is_null(*place) && !is_null(place / length.max(1))) {
        None => Ok(()),
        Some(place) => Err(value(column, format!("an element of row {} is null; a tensor has none", place / length))),
    }
}

/// The array in the type that shows the column.
fn cast(column: &Column, array: &ArrayRef) -> Result<ArrayRef> {
    let wanted = types::field(column).data_type().clone();
    if *array.data_type() == wanted {
        return Ok(array.clone());
    }
    let strict = CastOptions { safe: false, ..CastOptions::default() };
    let failed = |error: arrow::error::ArrowError| {
        value(column, format!("{} doesn't become {column}: {error}", array.data_type()))
    };
    if let (DataType::Struct(_), DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..)) =
        (&wanted, array.data_type())
    {
        return crate::tensor::with_shapes(column, array);
    }
    if let DataType::FixedSizeList(item, length) = &wanted
        && matches!(array.data_type(), DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..))
        && column.shape.len() > 1
    {
        return crate::tensor::flattened(column, array, item, *length);
    }
    let narrowed = cast_with_options(array, &wanted, &strict).map_err(failed)?;
    // Floats are cut to whole numbers by a cast: say so rather than do so.
    if array.data_type().is_floating() && wanted.is_integer() {
        let back = cast_with_options(&narrowed, array.data_type(), &strict).map_err(failed)?;
        if back.to_data() != array.to_data() {
            return Err(value(column, format!("a value is no whole number: round it for {column}")));
        }
    }
    Ok(narrowed)
}

/// Texts and bytes.
fn lengths<'a>(rows: usize, row: impl Fn(usize) -> &'a [u8]) -> OwnedValues {
    let (mut offsets, mut bytes) = (Vec::with_capacity(rows + 1), Vec::new());
    offsets.push(0);
    for index in 0..rows {
        bytes.extend_from_slice(row(index));
        offsets.push(bytes.len() as u64);
    }
    OwnedValues::Ragged { offsets, shapes: Vec::new(), bytes }
}

/// The elements of a flat array, little-endian; anything where it is null.
fn elements(dtype: DType, array: &ArrayRef) -> Vec<u8> {
    let floats = |of: &dyn Fn(f32) -> u8| array.as_primitive::<Float32Type>().values().iter().map(|v| of(*v)).collect();
    match dtype {
        DType::Bool => array.as_boolean().values().iter().map(u8::from).collect(),
        DType::BF16 => {
            let values = array.as_primitive::<Float32Type>().values();
            values.iter().flat_map(|value| bf16::from_f32(*value).to_le_bytes()).collect()
        }
        DType::F8E4M3 => floats(&|value| float8::nearest(value, 0x7E, 0x7F, float8::e4m3)),
        DType::F8E5M2 => floats(&|value| float8::nearest(value, 0x7B, 0x7C, float8::e5m2)),
        _ => {
            let data = array.to_data();
            let item = dtype.item_size().unwrap_or(1);
            let buffer: &Buffer = &data.buffers()[0];
            buffer.as_slice()[data.offset() * item..(data.offset() + data.len()) * item].to_vec()
        }
    }
}

fn ragged(
    column: &Column,
    dtype: DType,
    array: &ArrayRef,
    rows: usize,
    is_null: impl Fn(usize) -> bool,
) -> Result<OwnedValues> {
    let parts = array.as_struct();
    let (data, shape) = (parts.column(0).as_list::<i64>(), parts.column(1).as_fixed_size_list());
    let lengths = shape.values().as_primitive::<Int32Type>();
    let rank = column.shape.len();
    let (mut offsets, mut shapes, mut bytes) = (vec![0_u64], Vec::with_capacity(rows * rank), Vec::new());
    for row in 0..rows {
        let null = is_null(row);
        for (dim, wanted) in column.shape.iter().enumerate() {
            let found = if null { 0 } else { lengths.value((shape.value_offset(row) as usize) + dim) as u32 };
            match wanted {
                Dim::Fixed(fixed) if null => shapes.push(*fixed),
                Dim::Fixed(fixed) if *fixed != found => {
                    let reason = format!("row {row} has length {found} in dimension {dim} instead of {fixed}");
                    return Err(value(column, reason));
                }
                _ => shapes.push(found),
            }
        }
        if !null {
            let elements_of_row = data.value(row);
            no_null_elements(column, &elements_of_row, elements_of_row.len(), |_| false)?;
            bytes.extend(elements(dtype, &elements_of_row));
        }
        offsets.push(bytes.len() as u64);
    }
    Ok(OwnedValues::Ragged { offsets, shapes, bytes })
}
