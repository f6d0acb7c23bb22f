//! What a table holds: columns, their types, shapes and meanings.

use std::{collections::BTreeMap, fmt};

use crate::{DType, Error, FieldId, Result, link::is_name};

/// One dimension of a column's rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dim {
    /// The same length in every row.
    Fixed(u32),
    /// A length that each row chooses.
    Free,
}

/// How blocks of a column are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Codec {
    /// Stored as they are.
    #[default]
    None,
    /// LZ4 raw blocks without a size prefix.
    Lz4,
    /// Zstandard frames at the given level, 1 to 19.
    Zstd {
        /// The compression level. Readers ignore it.
        level: i32,
    },
}

/// How a column's bytes are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Compression {
    /// The codec of each block.
    pub codec: Codec,
    /// Whether the bytes of a block's elements are transposed before compression (byte shuffle). Needs a codec.
    pub shuffle: bool,
}

/// What a column means, beyond its dtype and shape: a name from the table below and metadata of that kind.
///
/// `image` (`encoding`: raw, jpeg, png, webp or mixed; `layout`: HWC or CHW), `label` (`names`: a JSON list),
/// `embedding`, `boxes` (`format`: xyxy, xywh or cxcywh), `mask`, `video`, `audio` (`sample_rate`), `text`, `json`,
/// or an application's own. A column of links has the kind of what they lead to, and may have a `base`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Kind {
    /// The kind's name; empty for plain data.
    pub name: String,
    /// Its metadata.
    pub metadata: BTreeMap<String, String>,
}

/// How rows of a column lie in a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layout {
    /// Every row has `row_bytes` bytes: a chunk is a C-order array.
    Fixed {
        /// Bytes of one row.
        row_bytes: usize,
    },
    /// Rows of different lengths: blocks hold offsets, shapes and values.
    Ragged {
        /// The number of dimensions whose length each row stores: all of them, or none for text and bytes.
        rank: usize,
    },
}

/// One column of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name, unique in the table.
    pub name: String,
    /// Its identity.
    pub field: FieldId,
    /// Its element type.
    pub dtype: DType,
    /// The shape of one row; empty for a scalar.
    pub shape: Vec<Dim>,
    /// Whether rows may be null.
    pub nullable: bool,
    /// How it is stored.
    pub compression: Compression,
    /// What it means.
    pub kind: Kind,
}

impl Column {
    /// A plain, uncompressed, non-nullable column with a new identity.
    ///
    /// # Errors
    /// [`Error::InvalidSchema`] if the name is empty, `dtype` is text, bytes, JSON or a link and `shape` isn't empty, there are
    /// more than 8 dimensions, or a fixed row would take more than 1 GiB.
    pub fn new(name: impl Into<String>, dtype: DType, shape: impl Into<Vec<Dim>>) -> Result<Self> {
        let column = Self {
            name: name.into(),
            field: FieldId::random(),
            dtype,
            shape: shape.into(),
            nullable: false,
            compression: Compression::default(),
            kind: Kind::default(),
        };
        column.check()?;
        Ok(column)
    }

    /// How its rows lie in a chunk.
    #[must_use]
    pub fn layout(&self) -> Layout {
        let Some(item) = self.dtype.item_size() else { return Layout::Ragged { rank: 0 } };
        let fixed = self.shape.iter().try_fold(item, |bytes, dim| match dim {
            Dim::Fixed(length) => Some(bytes * *length as usize),
            Dim::Free => None,
        });
        fixed.map_or(Layout::Ragged { rank: self.shape.len() }, |row_bytes| Layout::Fixed { row_bytes })
    }

    /// Where links lie whose URLs are names: the `base` in the metadata of a column of links. Without one, that is the root of
    /// the lake.
    #[must_use]
    pub fn link_base(&self) -> Option<&str> {
        let base = self.kind.metadata.get("base").filter(|_| self.dtype == DType::Link);
        base.map(String::as_str)
    }

    /// Checks what [`Column::new`] promises, for a column built or changed by hand.
    ///
    /// # Errors
    /// As [`Column::new`]; also a byte shuffle without a codec, or a zstd level outside 1 to 19.
    pub fn check(&self) -> Result<()> {
        let fail = |reason: &str| Err(Error::InvalidSchema { column: self.name.clone(), reason: reason.to_owned() });
        if self.name.is_empty() {
            return fail("its name is empty");
        }
        if self.dtype.item_size().is_none() && !self.shape.is_empty() {
            return fail("text, bytes, json and links have no shape: give the column an empty one");
        }
        if self.link_base().is_some_and(is_name) {
            return fail("the base of links is a URL or an absolute path");
        }
        if self.shape.len() > Self::MAX_RANK {
            return fail("a row has at most 8 dimensions");
        }
        let bytes = self.shape.iter().try_fold(self.dtype.item_size().unwrap_or(1) as u64, |bytes, dim| match dim {
            Dim::Fixed(length) => bytes.checked_mul(u64::from(*length)),
            Dim::Free => Some(bytes),
        });
        if bytes.is_none_or(|bytes| bytes > Self::MAX_ROW_BYTES) {
            return fail("a row takes at most 1 GiB");
        }
        match self.compression {
            Compression { codec: Codec::None, shuffle: true } => fail("byte shuffle needs a codec: lz4 or zstd"),
            Compression { codec: Codec::Zstd { level }, .. } if !(1..=19).contains(&level) => {
                fail("a zstd level is between 1 and 19")
            }
            _ => Ok(()),
        }
    }

    /// The most dimensions a row can have.
    pub const MAX_RANK: usize = 8;
    /// The most bytes a row of fixed shape can have.
    pub const MAX_ROW_BYTES: u64 = 1 << 30;
}

/// The columns of a table, in order.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Schema {
    /// The columns.
    pub columns: Vec<Column>,
}

impl Schema {
    /// A schema of these columns.
    ///
    /// # Errors
    /// [`Error::InvalidSchema`] if there are none, two share a name or an identity, or one fails [`Column::check`].
    pub fn new(columns: Vec<Column>) -> Result<Self> {
        let schema = Self { columns };
        schema.check()?;
        Ok(schema)
    }

    /// Checks what [`Schema::new`] promises.
    ///
    /// # Errors
    /// As [`Schema::new`].
    pub fn check(&self) -> Result<()> {
        if self.columns.is_empty() {
            return Err(Error::InvalidSchema { column: String::new(), reason: "a table needs a column".into() });
        }
        for (index, column) in self.columns.iter().enumerate() {
            column.check()?;
            let twice = |other: &Column| other.name == column.name || other.field == column.field;
            if self.columns[..index].iter().any(twice) {
                return Err(Error::InvalidSchema {
                    column: column.name.clone(),
                    reason: "another column has its name or its identity".into(),
                });
            }
        }
        Ok(())
    }

    /// The column of this name.
    ///
    /// # Errors
    /// [`Error::UnknownColumn`], which lists the columns there are.
    pub fn column(&self, name: &str) -> Result<&Column> {
        self.columns.iter().find(|column| column.name == name).ok_or_else(|| Error::UnknownColumn {
            name: name.to_owned(),
            known: self.columns.iter().map(|column| column.name.clone()).collect(),
        })
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(length) => write!(f, "{length}"),
            Self::Free => f.write_str("?"),
        }
    }
}

impl fmt::Display for Column {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.dtype)?;
        if !self.shape.is_empty() {
            let dims: Vec<_> = self.shape.iter().map(ToString::to_string).collect();
            write!(f, "[{}]", dims.join(", "))?;
        }
        if self.nullable { f.write_str("?") } else { Ok(()) }
    }
}
