//! Element types.

use std::{fmt, str::FromStr};

use crate::{Error, Result};

/// The element type of a column. Numbers are little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
#[allow(missing_docs, reason = "each variant is named after the type that it is")]
pub enum DType {
    Bool,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    F16,
    BF16,
    F32,
    F64,
    /// 8-bit float with 4 exponent bits, no infinities (`e4m3fn`).
    F8E4M3,
    /// 8-bit float with 5 exponent bits.
    F8E5M2,
    /// UTF-8 text of any length.
    Utf8,
    /// Bytes of any length.
    Bytes,
    /// A JSON document as UTF-8 text.
    Json,
    /// Microseconds since 1970-01-01T00:00:00Z, as an `i64`.
    Timestamp,
    /// Where bytes lie that the lake doesn't hold: see [`Link`](crate::Link).
    Link,
}

impl DType {
    /// Every dtype, in order of declaration.
    pub const ALL: [Self; 20] = [
        Self::Bool,
        Self::I8,
        Self::I16,
        Self::I32,
        Self::I64,
        Self::U8,
        Self::U16,
        Self::U32,
        Self::U64,
        Self::F16,
        Self::BF16,
        Self::F32,
        Self::F64,
        Self::F8E4M3,
        Self::F8E5M2,
        Self::Utf8,
        Self::Bytes,
        Self::Json,
        Self::Timestamp,
        Self::Link,
    ];

    /// Its name in schemas, files and Python.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::I8 => "int8",
            Self::I16 => "int16",
            Self::I32 => "int32",
            Self::I64 => "int64",
            Self::U8 => "uint8",
            Self::U16 => "uint16",
            Self::U32 => "uint32",
            Self::U64 => "uint64",
            Self::F16 => "float16",
            Self::BF16 => "bfloat16",
            Self::F32 => "float32",
            Self::F64 => "float64",
            Self::F8E4M3 => "float8_e4m3fn",
            Self::F8E5M2 => "float8_e5m2",
            Self::Utf8 => "utf8",
            Self::Bytes => "bytes",
            Self::Json => "json",
            Self::Timestamp => "timestamp",
            Self::Link => "link",
        }
    }

    /// Bytes of one element, or `None` for [`Utf8`](Self::Utf8), [`Bytes`](Self::Bytes), [`Json`](Self::Json) and
    /// [`Link`](Self::Link).
    #[must_use]
    pub const fn item_size(self) -> Option<usize> {
        match self {
            Self::Bool | Self::I8 | Self::U8 | Self::F8E4M3 | Self::F8E5M2 => Some(1),
            Self::I16 | Self::U16 | Self::F16 | Self::BF16 => Some(2),
            Self::I32 | Self::U32 | Self::F32 => Some(4),
            Self::I64 | Self::U64 | Self::F64 | Self::Timestamp => Some(8),
            Self::Utf8 | Self::Bytes | Self::Json | Self::Link => None,
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for DType {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL
            .into_iter()
            .find(|dtype| dtype.name() == text)
            .ok_or_else(|| Error::UnknownDType { name: text.to_owned() })
    }
}
