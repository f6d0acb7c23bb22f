//! Writing a data file, streaming: rows come in batches, chunks go out as they fill.

use std::io::Write;

use super::{
    Head,
    chunk::{self, CHUNK_INDEX_BYTES, COLUMN_INDEX_BYTES, ChunkDraft},
    column_writer::{ColumnWriter, Sink, media_rank},
    frame::MAX_INDEX_BYTES,
    validity,
};
use crate::{Column, ColumnSlice, Error, FieldId, FileId, Layout, Result, Schema, Values, meta::DataFileRef};

/// How a data file is written. Readers need none of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteOptions {
    /// Raw bytes of a chunk, 8 MiB: what a scan reads at once. A chunk may be half of it, and a larger row has a chunk of its
    /// own.
    pub chunk_bytes: usize,
    /// The most raw bytes of a block, 64 KiB: the unit of checksum and compression.
    pub block_bytes: usize,
    /// The most bytes that a writer keeps in memory, 128 MiB.
    pub buffer_bytes: usize,
}

impl WriteOptions {
    /// The least a block may have: the header of a row of free shape fits in it.
    pub const MIN_BLOCK_BYTES: usize = 64;
    /// The most a block may have.
    pub const MAX_BLOCK_BYTES: usize = 16 << 20;
    /// The most a chunk may have, a single larger row aside.
    pub const MAX_CHUNK_BYTES: usize = 1 << 30;

    fn check(&self) -> Result<()> {
        let limits = [
            ("block_bytes", self.block_bytes, Self::MAX_BLOCK_BYTES),
            ("chunk_bytes", self.chunk_bytes, Self::MAX_CHUNK_BYTES),
            // Smaller blocks are as wrong as larger ones; the message gives the limit that was passed.
            ("the least block_bytes", Self::MIN_BLOCK_BYTES, self.block_bytes),
        ];
        for (what, found, limit) in limits {
            if found > limit {
                return Err(Error::Limit { what: what.into(), found: found as u64, limit: limit as u64 });
            }
        }
        Ok(())
    }
}

impl Default for WriteOptions {
    fn default() -> Self {
        Self { chunk_bytes: 8 << 20, block_bytes: 64 << 10, buffer_bytes: 128 << 20 }
    }
}

/// Writes one data file.
///
/// Each column gathers a chunk of its own and writes it when it is full, so the columns' chunks have different numbers of
/// rows. When the gathered bytes pass [`WriteOptions::buffer_bytes`] the largest column goes first. Batches that hold at
/// least half a chunk of an uncompressed column of fixed shape are written from where they are, without a copy.
///
/// A file should stay near 1 GiB: see [`is_full`](Self::is_full). Dropping a writer leaves what the sink has got, which no
/// reader takes for a data file.
#[derive(Debug)]
pub struct DataFileWriter<W> {
    sink: Sink<W>,
    id: FileId,
    columns: Vec<ColumnWriter>,
    options: WriteOptions,
    rows: u32,
    /// Memory that the columns hold.
    held: usize,
    /// A write failed: the file is lost.
    broken: bool,
}

impl<W: Write> DataFileWriter<W> {
    /// From about this size on a file is full, 1 GiB.
    pub const FULL: u64 = 1 << 30;

    /// Starts a file of these columns and writes its head.
    ///
    /// # Errors
    /// [`Error::InvalidSchema`], [`Error::Limit`] if an option is out of bounds, or [`Error::Sink`].
    pub fn new(sink: W, id: FileId, columns: &[Column], options: WriteOptions) -> Result<Self> {
        options.check()?;
        Schema { columns: columns.to_vec() }.check()?;
        let columns: Vec<_> =
            columns.iter().map(|column| ColumnWriter::new(column, &options)).collect::<Result<_>>()?;
        let mut sink = Sink { inner: sink, position: 0 };
        sink.write_all(&Head { id }.encode())?;
        let held = columns.iter().map(ColumnWriter::memory).sum();
        Ok(Self { sink, id, columns, options, rows: 0, held, broken: false })
    }

    /// Adds rows: one slice for each column, in their order, all of the same number of rows.
    ///
    /// # Errors
    /// [`Error::ColumnMismatch`], or [`Error::Limit`] if the file would pass a limit (2³²-1 rows, 4 MiB of index, 1 GiB in
    /// a row): nothing was taken then, and the writer can go on. [`Error::Sink`]: the file is lost.
    pub fn push(&mut self, rows: &[ColumnSlice<'_>]) -> Result<()> {
        let added = self.check(rows)?;
        self.guarded(|writer| {
            for (column, slice) in rows.iter().enumerate() {
                writer.push_column(column, slice)?;
            }
            writer.rows += added;
            Ok(())
        })
    }

    /// Rows taken so far.
    #[must_use]
    pub fn rows(&self) -> u32 {
        self.rows
    }

    /// Bytes written, and bytes that wait to be.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.sink.position + self.columns.iter().map(ColumnWriter::buffered).sum::<u64>()
    }

    /// Bytes of memory that the writer's buffers hold; beyond [`WriteOptions::buffer_bytes`] by no more than a block a
    /// column and one chunk.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.held
    }

    /// Whether the file is as large as it should get: about 1 GiB, or three quarters of the index's limit.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.size() >= Self::FULL || self.index_bytes() >= u64::from(MAX_INDEX_BYTES) / 4 * 3
    }

    /// Writes what is left, index and footer, and gives the sink back: making the bytes durable is its owner's part.
    ///
    /// # Errors
    /// [`Error::Sink`], or [`Error::Limit`] if the index is over 4 MiB.
    pub fn finish(mut self) -> Result<(W, DataFileRef)> {
        let footer = self.guarded(|writer| {
            for column in &mut writer.columns {
                column.close(&mut writer.sink)?;
            }
            writer.sink.pad(8)?;
            let columns: Vec<(&Column, &[ChunkDraft])> =
                writer.columns.iter().map(|column| (&column.column, &column.chunks[..])).collect();
            let block_bytes = writer.options.block_bytes as u32;
            let (tail, footer) = chunk::tail(writer.id, writer.rows, block_bytes, &columns, writer.sink.position)?;
            writer.sink.write_all(&tail)?;
            writer.sink.flush()?;
            Ok(footer)
        })?;
        let file = DataFileRef {
            id: self.id,
            size: self.sink.position,
            index_offset: footer.index_offset,
            index_length: footer.index_length,
            fields: self.columns.iter().map(|column| column.column.field).collect::<std::sync::Arc<[FieldId]>>(),
        };
        Ok((self.sink.inner, file))
    }

    /// Once a write has failed nothing is known of what the sink has got: every later call fails.
    fn guarded<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.broken {
            return Err(Error::Sink(std::io::Error::other("an earlier write to this data file failed")));
        }
        self.broken = true;
        let result = work(self)?;
        self.broken = false;
        Ok(result)
    }

    fn push_column(&mut self, index: usize, slice: &ColumnSlice<'_>) -> Result<()> {
        let mut start = 0;
        while start < slice.rows {
            let step = self.columns[index].step(slice, start);
            let end = start + step.rows;
            if !step.closes {
                self.make_room(index, step.bytes)?;
            }
            let column = &mut self.columns[index];
            let before = column.memory();
            if step.closes {
                column.close_with(slice, start, end, &mut self.sink)?;
            } else {
                column.reserve(step.bytes);
                column.take(slice, start, end)?;
            }
            self.held = self.held + column.memory() - before;
            start = end;
        }
        Ok(())
    }

    /// Makes room for `bytes` more in column `index`: idle buffers are given back first, then the largest is written.
    fn make_room(&mut self, index: usize, bytes: u64) -> Result<()> {
        let limit = self.options.buffer_bytes as u64;
        if self.columns[index].growth(bytes) + self.held as u64 <= limit {
            return Ok(());
        }
        for column in &mut self.columns {
            if column.open_rows() == 0 {
                column.release();
            }
        }
        loop {
            self.held = self.columns.iter().map(ColumnWriter::memory).sum();
            if self.columns[index].growth(bytes) + self.held as u64 <= limit {
                return Ok(());
            }
            let Some(largest) = self.columns.iter_mut().max_by_key(|column| column.buffered()) else { return Ok(()) };
            if largest.buffered() == 0 {
                return Ok(());
            }
            largest.close(&mut self.sink)?;
            largest.release();
        }
    }

    fn index_bytes(&self) -> u64 {
        let columns = self.columns.iter();
        columns.map(|column| COLUMN_INDEX_BYTES + column.column.name.len() as u64 + column.index_bytes()).sum()
    }

    /// The rows of a batch that fits.
    fn check(&self, slices: &[ColumnSlice<'_>]) -> Result<u32> {
        let mismatch = |column: &Column, expected, found| {
            Err(Error::ColumnMismatch { column: column.name.clone(), expected, found })
        };
        if slices.len() != self.columns.len() {
            let (column, many) = (&self.columns[0].column, self.columns.len());
            return mismatch(column, format!("slices of {many} columns"), format!("{} slices", slices.len()));
        }
        let rows = slices[0].rows;
        let mut index_bytes = self.index_bytes();
        for (column, slice) in self.columns.iter().zip(slices) {
            if slice.rows != rows {
                return mismatch(&column.column, format!("{rows} rows"), format!("{} rows", slice.rows));
            }
            slice.check(&column.column)?;
            if let Values::Ragged { offsets, .. } = slice.values {
                let longest = offsets.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0);
                if longest > Column::MAX_ROW_BYTES {
                    let what = format!("bytes of a row of column '{}'", column.column.name);
                    return Err(Error::Limit { what, found: longest, limit: Column::MAX_ROW_BYTES });
                }
            }
            index_bytes += self.index_growth(&column.column, slice);
        }
        let total = rows as u64 + u64::from(self.rows);
        for (what, found, limit) in [
            ("rows of a data file", total, u64::from(u32::MAX)),
            ("bytes of a data file's index", index_bytes, u64::from(MAX_INDEX_BYTES)),
        ] {
            if found > limit {
                return Err(Error::Limit { what: what.into(), found, limit });
            }
        }
        Ok(rows as u32)
    }

    /// The most bytes by which these rows make the index grow.
    fn index_growth(&self, column: &Column, slice: &ColumnSlice<'_>) -> u64 {
        let (block, chunk) = (self.options.block_bytes as u64, self.options.chunk_bytes.max(1) as u64);
        let rows = slice.rows as u64;
        let (bytes, row_bytes, entry) = match (column.layout(), slice.values) {
            (Layout::Fixed { row_bytes }, _) => (rows * row_bytes as u64, row_bytes as u64, 8),
            (Layout::Ragged { rank }, Values::Ragged { bytes, .. }) => {
                (bytes.len() as u64 + rows * (4 + 4 * rank as u64), 0, 16)
            }
            (Layout::Ragged { .. }, Values::Fixed(_)) => (0, 0, 16),
        };
        // Every other block is more than half full, and every other chunk; a row that is larger than one has its own.
        let chunks = (4 * bytes / chunk + 4).min(rows + 2);
        let blocks = if row_bytes > block { rows * row_bytes.div_ceil(block) } else { 2 * bytes / block + 1 } + chunks;
        let media = rows * u64::from(media_rank(column, slice)) * 4;
        let validity = (rows / u64::from(validity::BLOCK_ROWS) + chunks) * 4;
        chunks * CHUNK_INDEX_BYTES + blocks * entry + media + validity
    }
}
