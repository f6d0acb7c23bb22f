//! Schemas on their way between Python's plain tuples and the format's types.

use std::collections::BTreeMap;

use forebay_format::{Codec, Column, Compression, DType, Dim, Kind, Schema};

use crate::error::{Error, Result};

/// A column in plain types: name, dtype, shape, nullable, codec, level, byte shuffle, kind, metadata.
pub(crate) type Plain =
    (String, String, Vec<Option<u32>>, bool, Option<String>, i32, bool, String, BTreeMap<String, String>);

/// The format's schema of columns in plain types, with new identities.
pub(crate) fn from_plain(columns: Vec<Plain>) -> Result<Schema> {
    let columns = columns.into_iter().map(column).collect::<Result<Vec<_>>>()?;
    Ok(Schema::new(columns)?)
}

fn column((name, dtype, shape, nullable, codec, level, shuffle, kind, metadata): Plain) -> Result<Column> {
    let shape: Vec<Dim> = shape.into_iter().map(|dim| dim.map_or(Dim::Free, Dim::Fixed)).collect();
    let mut column = Column::new(name, dtype.parse::<DType>()?, shape)?;
    let codec = match codec.as_deref() {
        None => Codec::None,
        Some("lz4") => Codec::Lz4,
        Some("zstd") => Codec::Zstd { level },
        Some(name) => return Err(Error::UnknownCodec { name: name.to_owned() }),
    };
    column.nullable = nullable;
    column.compression = Compression { codec, shuffle };
    column.kind = Kind { name: kind, metadata };
    Ok(column)
}

/// A schema in plain types.
pub(crate) fn to_plain(schema: &Schema) -> Result<Vec<Plain>> {
    let plain = |column: &Column| {
        let shape = column.shape.iter().map(|dim| match dim {
            Dim::Fixed(length) => Some(*length),
            Dim::Free => None,
        });
        let (codec, level) = match column.compression.codec {
            Codec::None => (None, 0),
            Codec::Lz4 => (Some("lz4"), 0),
            Codec::Zstd { level } => (Some("zstd"), level),
            _ => return Err(Error::UnknownCodec { name: format!("{:?}", column.compression.codec) }),
        };
        Ok((
            column.name.clone(),
            column.dtype.name().to_owned(),
            shape.collect(),
            column.nullable,
            codec.map(str::to_owned),
            level,
            column.compression.shuffle,
            column.kind.name.clone(),
            column.kind.metadata.clone(),
        ))
    };
    schema.columns.iter().map(plain).collect()
}

/// Whether two schemas say the same, identities aside.
pub(crate) fn same(left: &Schema, right: &Schema) -> bool {
    left.columns.len() == right.columns.len()
        && left
            .columns
            .iter()
            .zip(&right.columns)
            .all(|(left, right)| &Column { field: right.field, ..left.clone() } == right)
}

/// The columns of a schema, one a line, for messages.
pub(crate) fn lines(schema: &Schema) -> String {
    schema.columns.iter().map(|column| format!("  {column}")).collect::<Vec<_>>().join("\n")
}
