//! Rows of one column in memory: borrowed when they are written, owned when they were decoded.

use crate::{Column, Error, Layout, Result};

/// One bit a row, least significant bit first; a set bit means that the row is valid (not null).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bitmap<'a>(pub &'a [u8]);

impl Bitmap<'_> {
    /// Whether row `row` is valid.
    ///
    /// # Panics
    /// If the bitmap is shorter than that.
    #[must_use]
    pub fn get(&self, row: usize) -> bool {
        self.0[row / 8] >> (row % 8) & 1 == 1
    }
}

/// The values of some rows, borrowed.
#[derive(Clone, Copy, Debug)]
pub enum Values<'a> {
    /// `rows * row_bytes` bytes in C order, little-endian.
    Fixed(&'a [u8]),
    /// Rows of different lengths.
    Ragged {
        /// Byte offsets of the rows in `bytes`: `rows + 1` of them, ascending, the first 0.
        offsets: &'a [u64],
        /// For ragged tensors the lengths of every dimension of every row, `rows * rank` of them; for encoded media
        /// (bytes of kind image) the decoded shape of each row, or empty; for text and JSON empty.
        shapes: &'a [u32],
        /// The rows, one behind the other.
        bytes: &'a [u8],
    },
}

/// Some rows of one column, borrowed: what a writer takes.
#[derive(Clone, Copy, Debug)]
pub struct ColumnSlice<'a> {
    /// How many rows.
    pub rows: usize,
    /// Their values; null rows are zero-filled or empty.
    pub values: Values<'a>,
    /// Which rows are valid; `None` when all are.
    pub validity: Option<Bitmap<'a>>,
}

/// The values of some rows, owned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnedValues {
    /// `rows * row_bytes` bytes in C order, little-endian.
    Fixed(Vec<u8>),
    /// Rows of different lengths, as in [`Values::Ragged`].
    Ragged {
        /// Byte offsets of the rows in `bytes`: `rows + 1` of them, ascending, the first 0.
        offsets: Vec<u64>,
        /// Lengths of every dimension of every row; see [`Values::Ragged`].
        shapes: Vec<u32>,
        /// The rows, one behind the other.
        bytes: Vec<u8>,
    },
}

/// Some rows of one column, owned: what a reader gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnData {
    /// How many rows.
    pub rows: usize,
    /// Their values.
    pub values: OwnedValues,
    /// Which rows are valid, one bit a row; `None` when all are.
    pub validity: Option<Vec<u8>>,
}

impl ColumnData {
    /// These rows, borrowed.
    #[must_use]
    pub fn as_slice(&self) -> ColumnSlice<'_> {
        ColumnSlice {
            rows: self.rows,
            values: match &self.values {
                OwnedValues::Fixed(bytes) => Values::Fixed(bytes),
                OwnedValues::Ragged { offsets, shapes, bytes } => Values::Ragged { offsets, shapes, bytes },
            },
            validity: self.validity.as_deref().map(Bitmap),
        }
    }
}

impl ColumnSlice<'_> {
    /// Checks that these rows fit `column`: layout, lengths, offsets, shapes, UTF-8, JSON's being text, links, and nulls. A null row
    /// of a ragged tensor is empty, whatever its shape.
    ///
    /// # Errors
    /// [`Error::ColumnMismatch`], which says what was expected and what was found.
    pub fn check(&self, column: &Column) -> Result<()> {
        let fail = |expected: String, found: String| {
            Err(Error::ColumnMismatch { column: column.name.clone(), expected, found })
        };
        if let Some(Bitmap(bits)) = self.validity {
            if !column.nullable {
                return fail("no nulls (the column is not nullable)".into(), "a validity bitmap".into());
            }
            if bits.len() != self.rows.div_ceil(8) {
                return fail(format!("a bitmap of {} bytes", self.rows.div_ceil(8)), format!("{} bytes", bits.len()));
            }
        }
        match (column.layout(), self.values) {
            (Layout::Fixed { row_bytes }, Values::Fixed(bytes)) => {
                let expected = self.rows.checked_mul(row_bytes);
                if expected != Some(bytes.len()) {
                    return fail(format!("{} rows of {row_bytes} bytes", self.rows), format!("{} bytes", bytes.len()));
                }
                Ok(())
            }
            (Layout::Ragged { .. }, Values::Ragged { offsets, shapes, bytes }) => {
                self.check_ragged(column, offsets, shapes, bytes)
            }
            (Layout::Fixed { .. }, _) => fail(format!("rows of fixed shape ({column})"), "rows of free shape".into()),
            (Layout::Ragged { .. }, _) => fail(format!("rows of free shape ({column})"), "rows of fixed shape".into()),
        }
    }

    fn check_ragged(&self, column: &Column, offsets: &[u64], shapes: &[u32], bytes: &[u8]) -> Result<()> {
        use crate::{DType, Dim, Link};
        let fail = |expected: String, found: String| {
            Err(Error::ColumnMismatch { column: column.name.clone(), expected, found })
        };
        if offsets.len() != self.rows + 1 {
            return fail(format!("{} offsets", self.rows + 1), format!("{} offsets", offsets.len()));
        }
        if offsets[0] != 0 || offsets[self.rows] != bytes.len() as u64 || offsets.windows(2).any(|w| w[0] > w[1]) {
            return fail(format!("ascending offsets from 0 to {}", bytes.len()), "other offsets".into());
        }
        let row = |row: usize| &bytes[offsets[row] as usize..offsets[row + 1] as usize];
        match column.dtype {
            DType::Utf8 | DType::Json => {
                if !shapes.is_empty() {
                    return fail("no shapes beside text".into(), format!("{} lengths", shapes.len()));
                }
                for index in 0..self.rows {
                    if std::str::from_utf8(row(index)).is_err() {
                        return fail("UTF-8 text".into(), format!("other bytes in row {index} of the batch"));
                    }
                }
                Ok(())
            }
            DType::Link => {
                if !shapes.is_empty() {
                    return fail("no shapes beside links".into(), format!("{} lengths", shapes.len()));
                }
                // A row without a value has no bytes.
                for index in (0..self.rows).filter(|index| !row(*index).is_empty()) {
                    if let Err(error) = Link::decode(row(index)) {
                        return fail("links".into(), format!("row {index} of the batch: {error}"));
                    }
                }
                Ok(())
            }
            DType::Bytes => {
                let rank = shapes.len().checked_div(self.rows).unwrap_or(0);
                if shapes.len() != rank * self.rows || rank > Column::MAX_RANK {
                    return fail("as many decoded lengths for every row".into(), format!("{} lengths", shapes.len()));
                }
                Ok(())
            }
            _ => {
                let rank = column.shape.len();
                if shapes.len() != rank * self.rows {
                    return fail(format!("{} lengths", rank * self.rows), format!("{} lengths", shapes.len()));
                }
                let item = column.dtype.item_size().unwrap_or(1) as u64;
                for (index, shape) in shapes.chunks_exact(rank.max(1)).enumerate() {
                    let fits = shape.iter().zip(&column.shape).all(|(length, dim)| match dim {
                        Dim::Fixed(fixed) => fixed == length,
                        Dim::Free => true,
                    });
                    let size = shape.iter().try_fold(item, |size, length| size.checked_mul(u64::from(*length)));
                    let null = self.validity.is_some_and(|validity| !validity.get(index));
                    let right =
                        if null { row(index).is_empty() } else { fits && size == Some(row(index).len() as u64) };
                    if !right {
                        return fail(
                            format!("a row of {column}"),
                            format!("shape {shape:?} with {} bytes in row {index} of the batch", row(index).len()),
                        );
                    }
                }
                Ok(())
            }
        }
    }
}
