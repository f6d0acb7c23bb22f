//! Rows on their way into a table's data files.

use std::{collections::VecDeque, thread::JoinHandle};

use forebay_format::{
    Bitmap, Column, ColumnSlice, DataFileWriter, FileId, Schema, TableId, Values, WriteOptions, meta::Fragment,
};
use forebay_storage::{ObjectWriter, Storage};

use crate::{Error, Result, epochs::Begun, names};

/// Rows of one table in data files that no commit names yet: hand them to [`Transaction::append`](crate::Transaction::append).
#[derive(Clone, Debug)]
pub struct Written {
    pub(crate) table: TableId,
    pub(crate) fragments: Vec<Fragment>,
    pub(crate) begun: Begun,
}

impl Written {
    /// How many rows.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.fragments.iter().map(|fragment| u64::from(fragment.rows)).sum()
    }

    /// Bytes of the data files.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.fragments.iter().flat_map(|fragment| &fragment.files).map(|file| file.size).sum()
    }
}

/// Writes rows of a table to data files of at most about 1 GiB. Blocking: use it on a thread that may block.
///
/// Memory is bounded by the buffers of [`WriteOptions`], whatever is written. Dropping a writer leaves nothing that a
/// reader can see.
pub struct TableWriter {
    storage: Storage,
    table: TableId,
    schema: Schema,
    options: WriteOptions,
    file_bytes: u64,
    open: Option<(FileId, DataFileWriter<ObjectWriter>)>,
    /// Full files, made durable beside the writing of the next one.
    finishing: VecDeque<JoinHandle<Result<Fragment>>>,
    done: Vec<Fragment>,
    begun: Begun,
}

/// The default size at which a data file is full.
const FILE_BYTES: u64 = 1 << 30;
/// Files that may be on their way to disk beside the one that is written.
const FINISHING: usize = 2;

impl TableWriter {
    pub(crate) fn new(storage: Storage, table: TableId, schema: Schema, begun: Begun) -> Self {
        let options = WriteOptions::default();
        Self {
            storage,
            table,
            schema,
            options,
            file_bytes: FILE_BYTES,
            open: None,
            finishing: VecDeque::new(),
            done: Vec::new(),
            begun,
        }
    }

    /// Sets the sizes of chunks, blocks and buffers.
    #[must_use]
    pub fn with_options(mut self, options: WriteOptions) -> Self {
        self.options = options;
        self
    }

    /// Sets the size in bytes at which a data file is full.
    #[must_use]
    pub fn with_file_bytes(mut self, bytes: u64) -> Self {
        self.file_bytes = bytes.max(1);
        self
    }

    /// The columns, in the order in which [`push`](Self::push) takes them.
    #[must_use]
    pub fn columns(&self) -> &[Column] {
        &self.schema.columns
    }

    /// Takes rows: one slice a column, all of the same number of rows. If they don't fit, none of them is taken.
    ///
    /// # Errors
    /// [`Error::Data`] if rows don't fit their columns; [`Error::Storage`] or [`Error::Object`] if writing failed, after
    /// which the writer is of no more use.
    pub fn push(&mut self, rows: &[ColumnSlice<'_>]) -> Result<()> {
        self.check(rows)?;
        let total = rows.first().map_or(0, |column| column.rows);
        let mean = rows.iter().map(bytes).sum::<u64>() / (total as u64).max(1);
        let mut start = 0;
        while start < total {
            let size = self.open.as_ref().map_or(0, |(_, writer)| writer.size());
            let written = self.open.as_ref().map_or(0, |(_, writer)| writer.rows());
            let fit = (self.file_bytes.saturating_sub(size) / mean.max(1)).min(u64::from(u32::MAX - written)) as usize;
            let full = self.open.as_ref().is_some_and(|(_, writer)| writer.is_full());
            if (fit < STEP || full) && written > 0 {
                self.roll()?;
                continue;
            }
            let count = (total - start).min((fit / STEP * STEP).max(STEP));
            if start == 0 && count == total {
                self.push_all(rows)?;
            } else {
                let parts: Vec<_> = rows.iter().map(|column| Part::of(column, start, count)).collect();
                let slices: Vec<_> = parts.iter().map(Part::as_slice).collect();
                self.push_all(&slices)?;
            }
            start += count;
        }
        Ok(())
    }

    /// Makes everything durable.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub fn finish(mut self) -> Result<Written> {
        self.roll()?;
        while !self.finishing.is_empty() {
            self.join_oldest()?;
        }
        Ok(Written { table: self.table, fragments: self.done, begun: self.begun })
    }

    fn check(&self, rows: &[ColumnSlice<'_>]) -> Result<()> {
        let columns = &self.schema.columns;
        let mismatch = |column: &str, expected: String, found: String| {
            Err(Error::Data(forebay_format::Error::ColumnMismatch { column: column.to_owned(), expected, found }))
        };
        if rows.len() != columns.len() {
            return mismatch("*", format!("{} columns", columns.len()), format!("{} columns", rows.len()));
        }
        for (column, slice) in columns.iter().zip(rows) {
            if slice.rows != rows[0].rows {
                let expected = format!("{} rows, as in column '{}'", rows[0].rows, columns[0].name);
                return mismatch(&column.name, expected, format!("{} rows", slice.rows));
            }
            slice.check(column)?;
        }
        Ok(())
    }

    fn push_all(&mut self, rows: &[ColumnSlice<'_>]) -> Result<()> {
        if self.open.is_none() {
            let file = FileId::random();
            let path = names::data(file);
            let sink = self.storage.writer(&path)?;
            let writer =
                DataFileWriter::new(sink, file, &self.schema.columns, self.options).map_err(Error::object(path))?;
            self.open = Some((file, writer));
        }
        if let Some((file, writer)) = &mut self.open {
            writer.push(rows).map_err(Error::object(names::data(*file)))?;
        }
        Ok(())
    }

    /// Sends the open file to be finished.
    fn roll(&mut self) -> Result<()> {
        let Some((file, writer)) = self.open.take() else { return Ok(()) };
        while self.finishing.len() >= FINISHING {
            self.join_oldest()?;
        }
        self.finishing.push_back(std::thread::spawn(move || {
            let rows = writer.rows();
            let (sink, reference) = writer.finish().map_err(Error::object(names::data(file)))?;
            sink.finish()?;
            // A fragment named as its file is half as long in the manifest.
            Ok(Fragment::new(file.cast(), rows, vec![reference]))
        }));
        Ok(())
    }

    /// Fragments come in the order in which they were written.
    fn join_oldest(&mut self) -> Result<()> {
        let Some(thread) = self.finishing.pop_front() else { return Ok(()) };
        match thread.join() {
            Ok(fragment) => self.done.push(fragment?),
            Err(panic) => std::panic::resume_unwind(panic),
        }
        Ok(())
    }
}

/// Rows are cut at multiples of this, so that bitmaps are cut at bytes.
const STEP: usize = 8;

fn bytes(column: &ColumnSlice<'_>) -> u64 {
    match column.values {
        Values::Fixed(bytes) => bytes.len() as u64,
        Values::Ragged { offsets, shapes, bytes } => (bytes.len() + offsets.len() * 8 + shapes.len() * 4) as u64,
    }
}

/// A run of rows of a slice.
struct Part<'a> {
    rows: usize,
    values: PartValues<'a>,
    validity: Option<Bitmap<'a>>,
}

enum PartValues<'a> {
    Fixed(&'a [u8]),
    Ragged { offsets: Vec<u64>, shapes: &'a [u32], bytes: &'a [u8] },
}

impl<'a> Part<'a> {
    /// `count` rows from row `start`, a multiple of [`STEP`].
    fn of(column: &ColumnSlice<'a>, start: usize, count: usize) -> Self {
        let values = match column.values {
            Values::Fixed(bytes) => {
                let row = bytes.len() / column.rows;
                PartValues::Fixed(&bytes[start * row..(start + count) * row])
            }
            Values::Ragged { offsets, shapes, bytes } => {
                let rank = shapes.len() / column.rows;
                let (from, to) = (offsets[start], offsets[start + count]);
                PartValues::Ragged {
                    offsets: offsets[start..=start + count].iter().map(|offset| offset - from).collect(),
                    shapes: &shapes[start * rank..(start + count) * rank],
                    bytes: &bytes[from as usize..to as usize],
                }
            }
        };
        let validity = column.validity.map(|Bitmap(bits)| Bitmap(&bits[start / 8..(start + count).div_ceil(8)]));
        Self { rows: count, values, validity }
    }

    fn as_slice(&self) -> ColumnSlice<'_> {
        let values = match &self.values {
            PartValues::Fixed(bytes) => Values::Fixed(bytes),
            PartValues::Ragged { offsets, shapes, bytes } => Values::Ragged { offsets, shapes, bytes },
        };
        ColumnSlice { rows: self.rows, values, validity: self.validity }
    }
}
