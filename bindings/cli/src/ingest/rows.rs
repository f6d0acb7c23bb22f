//! Gathers prepared images to batches of rows, so that large writes reach the data file uncopied.

use forebay_format::{Column, ColumnSlice, Values};
use forebay_versioning::TableWriter;

use super::{Plan, Prepared, Source};
use crate::{Error, Result};

/// Bytes of images that make a batch: a chunk of the data file.
const BATCH: usize = 8 << 20;

/// Rows on their way to a writer.
pub(crate) struct Rows<'a> {
    plan: &'a Plan,
    writer: &'a mut TableWriter,
    columns: Vec<Column>,
    next_id: i64,
    batch: Batch,
}

#[derive(Default)]
struct Batch {
    rows: usize,
    images: Blobs,
    shapes: Vec<u32>,
    labels: Vec<u8>,
    paths: Blobs,
    ids: Vec<u8>,
}

/// Byte strings, one behind the other.
struct Blobs {
    bytes: Vec<u8>,
    offsets: Vec<u64>,
}

impl<'a> Rows<'a> {
    pub(crate) fn new(plan: &'a Plan, writer: &'a mut TableWriter) -> Self {
        let columns = writer.columns().to_vec();
        Self { plan, writer, columns, next_id: plan.first_id, batch: Batch::default() }
    }

    /// Adds a row.
    ///
    /// # Errors
    /// What writing reports.
    pub(crate) fn push(&mut self, source: &Source, prepared: Prepared) -> Result<()> {
        let (bytes, shape) = match prepared {
            Prepared::Pixels(bytes) | Prepared::Linked(bytes) => (bytes, None),
            Prepared::Encoded { bytes, shape } => (bytes, Some(shape)),
        };
        if self.batch.rows > 0 && self.batch.images.bytes.len() + bytes.len() > BATCH {
            self.flush()?;
        }
        let batch = &mut self.batch;
        batch.images.push(&bytes);
        batch.shapes.extend(shape.into_iter().flatten());
        if let Some(label) = source.label {
            batch.labels.extend(self.plan.labels[label as usize].to_le_bytes());
        }
        batch.paths.push(source.name.as_bytes());
        batch.ids.extend(self.next_id.to_le_bytes());
        batch.rows += 1;
        self.next_id += 1;
        Ok(())
    }

    /// Hands what was gathered to the writer.
    ///
    /// # Errors
    /// What writing reports.
    pub(crate) fn flush(&mut self) -> Result<()> {
        if self.batch.rows > 0 {
            let slices: Vec<_> = self.columns.iter().map(|column| self.batch.column(column)).collect::<Result<_>>()?;
            self.writer.push(&slices)?;
            self.batch.clear();
        }
        Ok(())
    }
}

impl Batch {
    fn column(&self, column: &Column) -> Result<ColumnSlice<'_>> {
        let values = match column.name.as_str() {
            "image" if column.dtype.item_size().is_some() => Values::Fixed(&self.images.bytes),
            "image" => self.images.values(&self.shapes),
            "label" => Values::Fixed(&self.labels),
            "path" => self.paths.values(&[]),
            "id" => Values::Fixed(&self.ids),
            _ => return Err(Error::Unexpected { column: column.name.clone(), found: "no images to fill it" }),
        };
        Ok(ColumnSlice { rows: self.rows, values, validity: None })
    }

    /// Empties it and keeps its memory.
    fn clear(&mut self) {
        self.rows = 0;
        self.images.clear();
        self.shapes.clear();
        self.labels.clear();
        self.paths.clear();
        self.ids.clear();
    }
}

impl Default for Blobs {
    fn default() -> Self {
        Self { bytes: Vec::new(), offsets: vec![0] }
    }
}

impl Blobs {
    fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.offsets.push(self.bytes.len() as u64);
    }

    fn values<'a>(&'a self, shapes: &'a [u32]) -> Values<'a> {
        Values::Ragged { offsets: &self.offsets, shapes, bytes: &self.bytes }
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.offsets.truncate(1);
    }
}
