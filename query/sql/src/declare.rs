//! What a declaration in SQL makes: `id SERIAL PRIMARY KEY`, `pixels TENSOR(uint8, 224, 224, 3)`.

use arrow::datatypes::{DataType as Arrow, Field, TimeUnit};
use datafusion::sql::sqlparser::ast::{ArrayElemTypeDef, ColumnDef, ColumnOption, DataType, ExactNumberInfo};
use forebay_format::{Column, DType, Dim, Kind};

use crate::{Error, Result, parse::Names, select::normal, types};

/// The kind of a column whose values are given by the engine.
pub(crate) const SERIAL: &str = "serial";

/// A column, and whether it belongs to the key.
pub(crate) struct Declared {
    pub(crate) column: Column,
    pub(crate) primary: bool,
}

/// Types that can be declared, for messages.
const TYPES: &str = "BOOL, TINYINT, SMALLINT, INT, BIGINT and their UNSIGNED forms, REAL, DOUBLE, HALF, BFLOAT16, TEXT, BLOB, TIMESTAMP, JSONB, \
    LINK, SERIAL, VECTOR(n), TENSOR(dtype, dims) and IMAGE";

/// The column that a definition declares. It may be null unless it says `NOT NULL` or belongs to the key.
pub(crate) fn declared(def: &ColumnDef, names: &Names) -> Result<Declared> {
    let name = normal(&def.name);
    let unknown = |reason: String| {
        let at = names.place(&name);
        Error::Sql { message: format!("column {name}: {reason}"), line: at.line, column: at.column, hint: None }
    };
    let (dtype, shape, kind) = kind_of(&def.data_type).map_err(unknown)?;
    let mut column = Column::new(&name, dtype, shape)?;
    column.nullable = kind != SERIAL;
    if !kind.is_empty() {
        let metadata = if kind == "image" {
            [("encoding", "mixed"), ("layout", "HWC")].map(|(key, value)| (key.to_owned(), value.to_owned())).into()
        } else {
            std::collections::BTreeMap::new()
        };
        column.kind = Kind { name: kind.to_owned(), metadata };
    }
    let mut primary = false;
    for option in &def.options {
        match &option.option {
            ColumnOption::Null => column.nullable = true,
            ColumnOption::NotNull => column.nullable = false,
            ColumnOption::PrimaryKey(_) => (primary, column.nullable) = (true, false),
            other => return Err(unknown(format!("'{other}' is not kept; NULL, NOT NULL and PRIMARY KEY are"))),
        }
    }
    Ok(Declared { column, primary })
}

type Type = (DType, Vec<Dim>, &'static str);

fn kind_of(data_type: &DataType) -> Result<Type, String> {
    let plain = |dtype| Ok((dtype, Vec::new(), ""));
    match data_type {
        DataType::Bool | DataType::Boolean => plain(DType::Bool),
        DataType::TinyInt(_) => plain(DType::I8),
        DataType::SmallInt(_) | DataType::Int2(_) => plain(DType::I16),
        DataType::Int(_) | DataType::Integer(_) | DataType::Int4(_) => plain(DType::I32),
        DataType::BigInt(_) | DataType::Int8(_) => plain(DType::I64),
        DataType::TinyIntUnsigned(_) => plain(DType::U8),
        DataType::SmallIntUnsigned(_) => plain(DType::U16),
        DataType::IntUnsigned(_) | DataType::IntegerUnsigned(_) => plain(DType::U32),
        DataType::BigIntUnsigned(_) => plain(DType::U64),
        DataType::Real | DataType::Float4 => plain(DType::F32),
        DataType::Double(_) | DataType::DoublePrecision | DataType::Float8 | DataType::Float(ExactNumberInfo::None) => {
            plain(DType::F64)
        }
        DataType::Text | DataType::String(_) | DataType::Varchar(_) | DataType::CharacterVarying(_) => {
            plain(DType::Utf8)
        }
        DataType::Blob(_) | DataType::Bytea | DataType::Binary(_) | DataType::Varbinary(_) => plain(DType::Bytes),
        DataType::Timestamp(..) | DataType::Datetime(_) => plain(DType::Timestamp),
        DataType::JSON | DataType::JSONB => plain(DType::Json),
        DataType::Array(ArrayElemTypeDef::SquareBracket(item, length)) => {
            let (dtype, shape, _) = kind_of(item)?;
            if !shape.is_empty() || dtype.item_size().is_none() {
                return Err(format!("{data_type} is no tensor: write TENSOR(dtype, dims)"));
            }
            Ok((dtype, vec![length.map_or(Dim::Free, |length| Dim::Fixed(length as u32))], ""))
        }
        DataType::Custom(name, modifiers) => custom(&name.to_string().to_lowercase(), modifiers),
        other => Err(format!("there is no type {other}; there are {TYPES}")),
    }
}

fn custom(name: &str, modifiers: &[String]) -> Result<Type, String> {
    let dims = |dims: &[String]| dims.iter().map(|text| dim(text)).collect::<Result<Vec<_>, _>>();
    match (name, modifiers) {
        ("serial" | "bigserial", []) => Ok((DType::I64, Vec::new(), SERIAL)),
        ("link", []) => Ok((DType::Link, Vec::new(), "")),
        ("image", []) => Ok((DType::Bytes, Vec::new(), "image")),
        ("half" | "float16", []) => Ok((DType::F16, Vec::new(), "")),
        ("bfloat16", []) => Ok((DType::BF16, Vec::new(), "")),
        ("jsonb" | "json", []) => Ok((DType::Json, Vec::new(), "")),
        ("vector", [length]) => match dim(length)? {
            Dim::Fixed(length) => Ok((DType::F32, vec![Dim::Fixed(length)], "embedding")),
            Dim::Free => Err("a VECTOR has a fixed length".to_owned()),
        },
        ("tensor", [dtype, rest @ ..]) => {
            let dtype: DType = dtype.trim_matches('\'').to_lowercase().parse().map_err(|error| format!("{error}"))?;
            Ok((dtype, dims(rest)?, ""))
        }
        _ => Err(format!("there is no type {name}; there are {TYPES}")),
    }
}

fn dim(text: &str) -> Result<Dim, String> {
    match text.trim_matches('\'') {
        "?" | "any" | "ANY" => Ok(Dim::Free),
        number => {
            number.parse().map(Dim::Fixed).map_err(|_| format!("'{number}' is no length: write a number, or any"))
        }
    }
}

/// The column that holds what a field of a query's result shows.
pub(crate) fn shown(field: &Field) -> Result<Column> {
    let (dtype, shape) = of_arrow(field, field.data_type()).ok_or_else(|| {
        Error::unsupported(format!(
            "column '{}' of type {} has no place in a table: cast it",
            field.name(),
            field.data_type()
        ))
    })?;
    // What was a column keeps its dtype, if Arrow shows that as this type.
    let before = field.metadata().get(types::DTYPE).and_then(|name| name.parse::<DType>().ok());
    let dtype = before.filter(|before| types::element(*before) == types::element(dtype)).unwrap_or(dtype);
    let mut column = Column::new(field.name(), dtype, shape)?;
    column.nullable = field.is_nullable();
    if let Some(kind) = field.metadata().get(types::KIND).filter(|kind| *kind != SERIAL) {
        column.kind.name.clone_from(kind);
    }
    Ok(column)
}

fn of_arrow(field: &Field, data_type: &Arrow) -> Option<(DType, Vec<Dim>)> {
    let plain = |dtype| Some((dtype, Vec::new()));
    match data_type {
        Arrow::Boolean => plain(DType::Bool),
        Arrow::Int8 => plain(DType::I8),
        Arrow::Int16 => plain(DType::I16),
        Arrow::Int32 => plain(DType::I32),
        Arrow::Int64 => plain(DType::I64),
        Arrow::UInt8 => plain(DType::U8),
        Arrow::UInt16 => plain(DType::U16),
        Arrow::UInt32 => plain(DType::U32),
        Arrow::UInt64 => plain(DType::U64),
        Arrow::Float16 => plain(DType::F16),
        Arrow::Float32 => plain(DType::F32),
        Arrow::Float64 | Arrow::Decimal128(..) => plain(DType::F64),
        Arrow::Utf8 | Arrow::LargeUtf8 | Arrow::Utf8View => plain(DType::Utf8),
        Arrow::Binary | Arrow::LargeBinary | Arrow::BinaryView => plain(DType::Bytes),
        Arrow::Timestamp(
            TimeUnit::Second | TimeUnit::Millisecond | TimeUnit::Microsecond | TimeUnit::Nanosecond,
            _,
        )
        | Arrow::Date32
        | Arrow::Date64 => plain(DType::Timestamp),
        Arrow::FixedSizeList(item, length) => {
            let (dtype, inner) = of_arrow(item, item.data_type())?;
            let dims = shape_of(field).unwrap_or_else(|| vec![Dim::Fixed(*length as u32)]);
            (inner.is_empty() && dtype.item_size().is_some()).then_some((dtype, dims))
        }
        Arrow::List(item) | Arrow::LargeList(item) => {
            let (dtype, inner) = of_arrow(item, item.data_type())?;
            (inner.is_empty() && dtype.item_size().is_some()).then(|| (dtype, vec![Dim::Free]))
        }
        Arrow::Struct(fields) => match &fields[..] {
            [data, shape] if data.name() == "data" && shape.name() == "shape" => {
                match (data.data_type(), shape.data_type()) {
                    (Arrow::LargeList(item) | Arrow::List(item), Arrow::FixedSizeList(_, rank)) => {
                        let (dtype, _) = of_arrow(item, item.data_type())?;
                        Some((dtype, vec![Dim::Free; *rank as usize]))
                    }
                    _ => None,
                }
            }
            _ => None,
        },
        Arrow::Dictionary(_, values) => of_arrow(field, values),
        _ => None,
    }
}

/// The shape that a field says its flat rows have.
fn shape_of(field: &Field) -> Option<Vec<Dim>> {
    let metadata = field.metadata().get("ARROW:extension:metadata")?;
    let parsed: serde_json::Value = serde_json::from_str(metadata).ok()?;
    let dims = parsed.get("shape")?.as_array()?;
    dims.iter().map(|dim| Some(Dim::Fixed(dim.as_u64()?.try_into().ok()?))).collect()
}
