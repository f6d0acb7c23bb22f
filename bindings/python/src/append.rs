//! Rows on their way in: NumPy buffers as the format's column slices, and the writers that take them.

use std::collections::BTreeMap;

use forebay_format::{Bitmap, ColumnSlice, Values};
use forebay_versioning::{Error as VersionError, TableWriter, Written};
use numpy::PyReadonlyArray1;
use pyo3::prelude::*;

use crate::error::{Error, Result};

/// One column of a batch, as `forebay._convert` lays it out.
#[derive(FromPyObject)]
struct Part<'py>(
    Option<PyReadonlyArray1<'py, u64>>,
    Option<PyReadonlyArray1<'py, u32>>,
    PyReadonlyArray1<'py, u8>,
    Option<PyReadonlyArray1<'py, bool>>,
);

/// Rows, column by column, that borrow NumPy's memory.
pub(crate) struct Batch<'py> {
    rows: usize,
    parts: Vec<Part<'py>>,
    bitmaps: Vec<Option<Vec<u8>>>,
}

impl<'py> FromPyObject<'_, 'py> for Batch<'py> {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let (rows, parts): (usize, Vec<Part<'py>>) = object.extract()?;
        let bitmaps = parts.iter().map(|part| part.3.as_ref().map(pack).transpose()).collect::<Result<_>>()?;
        Ok(Self { rows, parts, bitmaps })
    }
}

/// One bit a row, least significant first.
fn pack(valid: &PyReadonlyArray1<'_, bool>) -> Result<Vec<u8>> {
    let valid = valid.as_slice().map_err(|_| Error::internal("a validity mask is not contiguous"))?;
    Ok(valid.chunks(8).map(|eight| eight.iter().rev().fold(0, |byte, valid| byte << 1 | u8::from(*valid))).collect())
}

impl Batch<'_> {
    pub(crate) fn slices(&self) -> Result<Vec<ColumnSlice<'_>>> {
        let parts = self.parts.iter().zip(&self.bitmaps);
        parts.map(|(part, bitmap)| part.slice(self.rows, bitmap.as_deref())).collect()
    }
}

impl Part<'_> {
    fn slice<'a>(&'a self, rows: usize, bitmap: Option<&'a [u8]>) -> Result<ColumnSlice<'a>> {
        let strided = |_| Error::internal("a column's buffer is not contiguous");
        let bytes = self.2.as_slice().map_err(strided)?;
        let values = match &self.0 {
            None => Values::Fixed(bytes),
            Some(offsets) => Values::Ragged {
                offsets: offsets.as_slice().map_err(strided)?,
                shapes: self.1.as_ref().map_or(Ok(&[][..]), |shapes| shapes.as_slice()).map_err(strided)?,
                bytes,
            },
        };
        Ok(ColumnSlice { rows, values, validity: bitmap.map(Bitmap) })
    }
}

/// Rows that were written and that no commit names yet.
#[derive(Default)]
pub(crate) struct Pending {
    writers: BTreeMap<String, TableWriter>,
    written: Vec<Written>,
    rows: u64,
    /// The step that failed, and why.
    spoiled: Option<(&'static str, String)>,
}

/// What a commit takes from [`Pending`].
pub(crate) struct Taken {
    written: Vec<Written>,
    rows: u64,
}

impl Taken {
    pub(crate) fn rows(&self) -> &[Written] {
        &self.written
    }
}

impl Pending {
    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }

    /// Whether a writer for the table is open.
    pub(crate) fn ready(&self, table: &str) -> Result<bool> {
        self.check()?;
        Ok(self.writers.contains_key(table))
    }

    /// Writes rows; `writer` is used if the table has none yet.
    pub(crate) fn push(&mut self, table: &str, writer: Option<TableWriter>, rows: &[ColumnSlice<'_>]) -> Result<()> {
        self.check()?;
        if let Some(writer) = writer {
            self.writers.entry(table.to_owned()).or_insert(writer);
        }
        let Some(writer) = self.writers.get_mut(table) else {
            return Err(Error::argument(
                "the rows were committed or discarded by another thread meanwhile: append again",
            ));
        };
        match writer.push(rows) {
            Ok(()) => {
                self.rows += rows.first().map_or(0, |column| column.rows as u64);
                Ok(())
            }
            // Rows that don't fit were not taken.
            Err(error @ VersionError::Data(_)) => Err(error.into()),
            Err(error) => {
                self.spoil("append", error.to_string());
                Err(error.into())
            }
        }
    }

    /// Makes what was written durable and hands it out.
    pub(crate) fn take(&mut self) -> Result<Taken> {
        self.check()?;
        for writer in std::mem::take(&mut self.writers).into_values() {
            match writer.finish() {
                Ok(written) => self.written.push(written),
                Err(error) => {
                    self.spoil("commit", error.to_string());
                    return Err(error.into());
                }
            }
        }
        Ok(Taken { written: std::mem::take(&mut self.written), rows: std::mem::take(&mut self.rows) })
    }

    /// Takes back what could not be committed, for another try.
    pub(crate) fn give_back(&mut self, taken: Taken) {
        self.rows += taken.rows;
        self.written.splice(0..0, taken.written);
    }

    /// Drops everything and refuses to go on until the user has seen it.
    pub(crate) fn spoil(&mut self, step: &'static str, reason: String) {
        *self = Self { spoiled: Some((step, reason)), ..Self::default() };
    }

    fn check(&self) -> Result<()> {
        match &self.spoiled {
            None => Ok(()),
            Some((step, reason)) => Err(Error::Spoiled { step, reason: reason.clone() }),
        }
    }
}
