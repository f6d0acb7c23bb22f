//! A column's type in SQL: which Arrow field shows it, and which declaration makes it.

use std::{collections::HashMap, sync::Arc};

use arrow::datatypes::{DataType, Field, Schema as ArrowSchema, SchemaRef, TimeUnit};
use forebay_format::{Column, DType, Dim, Schema};

/// The key under which a field carries its dtype, since Arrow has fewer.
pub(crate) const DTYPE: &str = "forebay.dtype";
/// The key under which a field carries its column's kind.
pub(crate) const KIND: &str = "forebay.kind";
const EXTENSION: &str = "ARROW:extension:name";
const EXTENSION_METADATA: &str = "ARROW:extension:metadata";

/// The Arrow type of one element. `bfloat16` and `float8` are shown as `float32`, which holds each of their values.
pub(crate) fn element(dtype: DType) -> DataType {
    match dtype {
        DType::Bool => DataType::Boolean,
        DType::I8 => DataType::Int8,
        DType::I16 => DataType::Int16,
        DType::I32 => DataType::Int32,
        DType::I64 => DataType::Int64,
        DType::U8 => DataType::UInt8,
        DType::U16 => DataType::UInt16,
        DType::U32 => DataType::UInt32,
        DType::U64 => DataType::UInt64,
        DType::F16 => DataType::Float16,
        DType::BF16 | DType::F8E4M3 | DType::F8E5M2 | DType::F32 => DataType::Float32,
        DType::F64 => DataType::Float64,
        DType::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, None),
        // Links are shown as documents.
        DType::Utf8 | DType::Json | DType::Link => DataType::LargeUtf8,
        // Bytes, and whatever comes later.
        _ => DataType::LargeBinary,
    }
}

/// The elements of a row, for a shape that is fixed in every dimension.
pub(crate) fn elements(shape: &[Dim]) -> Option<usize> {
    shape.iter().try_fold(1_usize, |all, dim| match dim {
        Dim::Fixed(length) => all.checked_mul(*length as usize),
        Dim::Free => None,
    })
}

/// The field that shows a column: a tensor of fixed shape is a `FixedSizeList`, flat in C order; one of free shape a struct
/// of `data` (flat) and `shape`. The first is Arrow's canonical extension; that of the other has no long lists, and is not used.
pub(crate) fn field(column: &Column) -> Field {
    let mut metadata = HashMap::from([(DTYPE.to_owned(), column.dtype.name().to_owned())]);
    if !column.kind.name.is_empty() {
        metadata.insert(KIND.to_owned(), column.kind.name.clone());
    }
    let item = || Arc::new(Field::new_list_field(element(column.dtype), true));
    let data_type = if column.shape.is_empty() {
        if matches!(column.dtype, DType::Json | DType::Link) {
            metadata.insert(EXTENSION.to_owned(), "arrow.json".to_owned());
        }
        element(column.dtype)
    } else if let Some(length) = elements(&column.shape) {
        metadata.insert(EXTENSION.to_owned(), "arrow.fixed_shape_tensor".to_owned());
        let shape: Vec<_> = column.shape.iter().map(ToString::to_string).collect();
        metadata.insert(EXTENSION_METADATA.to_owned(), format!("{{\"shape\":[{}]}}", shape.join(",")));
        DataType::FixedSizeList(item(), length as i32)
    } else {
        DataType::Struct(ragged(column.dtype, column.shape.len()).into())
    };
    Field::new(&column.name, data_type, column.nullable).with_metadata(metadata)
}

/// The parts of a tensor of free shape.
pub(crate) fn ragged(dtype: DType, rank: usize) -> Vec<Field> {
    let item = Arc::new(Field::new_list_field(element(dtype), true));
    let length = Arc::new(Field::new_list_field(DataType::Int32, true));
    vec![
        Field::new("data", DataType::LargeList(item), false),
        Field::new("shape", DataType::FixedSizeList(length, rank as i32), false),
    ]
}

/// The schema that SQL sees of a table.
pub(crate) fn schema(schema: &Schema) -> SchemaRef {
    Arc::new(ArrowSchema::new(schema.columns.iter().map(field).collect::<Vec<_>>()))
}

/// About how many bytes a row of a column takes: what is small is read before what is large.
pub(crate) fn row_bytes(column: &Column) -> usize {
    match (column.layout(), column.dtype) {
        (forebay_format::Layout::Fixed { row_bytes }, _) => row_bytes,
        (_, DType::Utf8 | DType::Json | DType::Link) => 64,
        _ => 64 << 10,
    }
}
