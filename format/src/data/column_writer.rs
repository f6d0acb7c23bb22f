//! The open chunk of one column, and the chunks it has finished.

use std::io::Write;

use super::{
    WriteOptions,
    chunk::ChunkDraft,
    codec::Encoder,
    geometry::Geometry,
    ragged::{PendingBlock, Row},
    stats::Gatherer,
    validity::Bits,
};
use crate::{
    Codec, Column, ColumnSlice, DType, Layout, Result, Values,
    checksum::{Crc32c, crc32c},
};

/// Bytes that are checksummed before they are written: they are still in the cache then.
const STRIDE: usize = 256 << 10;
/// Chunks start at multiples of this.
pub(crate) const ALIGNMENT: u64 = 4096;

/// A sink that knows where it is.
#[derive(Debug)]
pub(crate) struct Sink<W> {
    pub(crate) inner: W,
    pub(crate) position: u64,
}

impl<W: Write> Write for Sink<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.position += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.inner.flush()
    }
}

impl<W: Write> Sink<W> {
    /// Writes zeros up to a multiple of `alignment`.
    pub(crate) fn pad(&mut self, alignment: u64) -> Result<()> {
        const ZEROS: [u8; ALIGNMENT as usize] = [0; ALIGNMENT as usize];
        let padding = self.position.next_multiple_of(alignment) - self.position;
        self.write_all(&ZEROS[..padding as usize])?;
        Ok(())
    }
}

/// What to do with the next rows of a batch.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// So many rows belong to the open chunk.
    pub(crate) rows: usize,
    /// And their raw bytes, headers included.
    pub(crate) bytes: u64,
    /// Whether they complete it.
    pub(crate) closes: bool,
}

#[derive(Debug)]
enum Blocks {
    /// Fixed shape, no codec: the bytes are written as they come.
    Direct { row_bytes: usize, geometry: Geometry, crc: Box<Crc32c> },
    /// Fixed shape and a codec: a block is encoded when it is whole.
    Coded { row_bytes: usize, geometry: Geometry, pending: Vec<u8> },
    /// Free shape.
    Ragged { rank: usize, pending: PendingBlock },
}

#[derive(Debug)]
pub(crate) struct ColumnWriter {
    pub(crate) column: Column,
    pub(crate) chunks: Vec<ChunkDraft>,
    /// About how many bytes of index `chunks` take.
    chunks_index_bytes: u64,
    blocks: Blocks,
    encoder: Encoder,
    chunk_bytes: u64,
    block_bytes: usize,
    /// The open chunk.
    draft: ChunkDraft,
    /// Its raw bytes, block headers included.
    raw: u64,
    /// Its stored bytes.
    buffer: Vec<u8>,
    validity: Bits,
    stats: Gatherer,
}

impl ColumnWriter {
    pub(crate) fn new(column: &Column, options: &WriteOptions) -> Result<Self> {
        column.check()?;
        let coded = column.compression.codec != Codec::None;
        let block_bytes = options.block_bytes as u32;
        let blocks = match column.layout() {
            Layout::Fixed { row_bytes } if coded => {
                Blocks::Coded { row_bytes, geometry: Geometry::new(row_bytes, block_bytes), pending: Vec::new() }
            }
            Layout::Fixed { row_bytes } => Blocks::Direct {
                row_bytes,
                geometry: Geometry::new(row_bytes, block_bytes),
                crc: Box::new(Crc32c::new()),
            },
            Layout::Ragged { rank } => Blocks::Ragged { rank, pending: PendingBlock::new(rank) },
        };
        Ok(Self {
            column: column.clone(),
            chunks: Vec::new(),
            chunks_index_bytes: 0,
            blocks,
            encoder: Encoder::new(column.compression, column.dtype.item_size().unwrap_or(1))?,
            chunk_bytes: options.chunk_bytes as u64,
            block_bytes: options.block_bytes,
            draft: ChunkDraft::default(),
            raw: 0,
            buffer: Vec::new(),
            validity: Bits::default(),
            stats: Gatherer::new(column.dtype, column.shape.is_empty()),
        })
    }

    /// Bytes of memory held.
    pub(crate) fn memory(&self) -> usize {
        let pending = match &self.blocks {
            Blocks::Direct { .. } => 0,
            Blocks::Coded { pending, .. } => pending.capacity(),
            Blocks::Ragged { pending, .. } => pending.memory(),
        };
        self.buffer.capacity() + pending + self.encoder.memory() + self.validity.memory()
    }

    /// Bytes of rows taken and not yet written.
    pub(crate) fn buffered(&self) -> u64 {
        let pending = match &self.blocks {
            Blocks::Direct { .. } => 0,
            Blocks::Coded { pending, .. } => pending.len(),
            Blocks::Ragged { pending, .. } => pending.raw_len(),
        };
        (self.buffer.len() + pending) as u64
    }

    /// Rows of the open chunk.
    pub(crate) fn open_rows(&self) -> u32 {
        self.draft.rows
    }

    /// About how many bytes of index the column takes, never too few.
    pub(crate) fn index_bytes(&self) -> u64 {
        self.chunks_index_bytes + self.draft.index_bytes()
    }

    /// How many of the rows of `slice` from `start` on belong to the open chunk.
    pub(crate) fn step(&self, slice: &ColumnSlice<'_>, start: usize) -> Step {
        let left = slice.rows - start;
        let open = self.draft.rows as usize;
        match (&self.blocks, slice.values) {
            (Blocks::Ragged { rank, .. }, Values::Ragged { offsets, .. }) => {
                if open > 0 && self.draft.media_rank != media_rank(&self.column, slice) {
                    return Step { rows: 0, bytes: 0, closes: true };
                }
                let header = 4 + 4 * *rank as u64;
                let (mut rows, mut bytes) = (0, 0);
                while rows < left {
                    let row = header + offsets[start + rows + 1] - offsets[start + rows];
                    if self.raw + bytes + row > self.chunk_bytes && open + rows > 0 {
                        return Step { rows, bytes, closes: true };
                    }
                    bytes += row;
                    rows += 1;
                }
                Step { rows, bytes, closes: self.raw + bytes >= self.chunk_bytes }
            }
            (Blocks::Direct { row_bytes, .. } | Blocks::Coded { row_bytes, .. }, _) => {
                let Some(fit) = self.chunk_bytes.checked_div(*row_bytes as u64) else {
                    return Step { rows: left, bytes: 0, closes: false };
                };
                // Chunks end where blocks do: rows of a file then lie in blocks by their numbers alone.
                let block = (self.block_bytes / row_bytes).clamp(1, fit.max(1) as usize);
                let fit = fit.max(1) as usize / block * block;
                let step = |rows: usize, closes| Step { rows, bytes: (rows * row_bytes) as u64, closes };
                // Chunks of like size, half full at least, use a large batch up: nothing of it is copied but what doesn't
                // fill a block.
                if left >= fit || (open == 0 && left * 2 >= fit) {
                    let all = open + left;
                    let chunks = all.div_ceil(fit);
                    let whole = all / chunks / block * block;
                    let size = if chunks > 1 { whole.max(block) } else { whole };
                    if size > open {
                        return step(size - open, true);
                    }
                }
                let rows = left.min(fit.saturating_sub(open));
                step(rows, open + rows >= fit)
            }
            // `ColumnSlice::check` has refused any other pair.
            _ => Step { rows: left, bytes: 0, closes: false },
        }
    }

    /// Takes rows into the buffer.
    pub(crate) fn take(&mut self, slice: &ColumnSlice<'_>, start: usize, end: usize) -> Result<()> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let result = self.feed(slice, start, end, &mut buffer);
        self.buffer = buffer;
        result
    }

    /// The bytes by which the buffer grows when `bytes` more are taken: it doubles until it holds a chunk.
    pub(crate) fn growth(&self, bytes: u64) -> u64 {
        let (needed, capacity) = (self.buffer.len() as u64 + bytes, self.buffer.capacity() as u64);
        if needed <= capacity { 0 } else { needed.max((capacity * 2).min(self.chunk_bytes)) - capacity }
    }

    /// Makes room for `bytes` more.
    pub(crate) fn reserve(&mut self, bytes: u64) {
        let capacity = self.buffer.capacity() as u64 + self.growth(bytes);
        self.buffer.reserve_exact(capacity as usize - self.buffer.len());
    }

    /// Completes the open chunk with these rows, straight from where they are.
    pub(crate) fn close_with<W: Write>(
        &mut self,
        slice: &ColumnSlice<'_>,
        start: usize,
        end: usize,
        sink: &mut Sink<W>,
    ) -> Result<()> {
        self.begin(sink)?;
        self.feed(slice, start, end, sink)?;
        self.complete(sink)
    }

    /// Writes the open chunk as it is, if it has rows.
    pub(crate) fn close<W: Write>(&mut self, sink: &mut Sink<W>) -> Result<()> {
        if self.draft.rows == 0 {
            return Ok(());
        }
        self.begin(sink)?;
        self.complete(sink)
    }

    /// Gives the memory of an idle column back.
    pub(crate) fn release(&mut self) {
        self.buffer = Vec::new();
    }

    fn begin<W: Write>(&mut self, sink: &mut Sink<W>) -> Result<()> {
        sink.pad(ALIGNMENT)?;
        self.draft.offset = sink.position;
        sink.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }

    fn complete<W: Write>(&mut self, sink: &mut Sink<W>) -> Result<()> {
        self.seal(sink)?;
        let mut draft = std::mem::take(&mut self.draft);
        draft.put_validity(&self.validity, sink)?;
        draft.length = sink.position - draft.offset;
        draft.stats = self.stats.take(self.validity.nulls());
        draft.fold_shapes();
        self.validity.clear();
        self.raw = 0;
        self.chunks_index_bytes += draft.index_bytes();
        self.chunks.push(draft);
        Ok(())
    }

    /// Adds rows to the open chunk; whole blocks go to `out`.
    fn feed(&mut self, slice: &ColumnSlice<'_>, start: usize, end: usize, out: &mut dyn Write) -> Result<()> {
        self.validity.extend(slice.validity, start, end);
        self.stats.update(&slice.values, slice.validity, start, end);
        self.draft.rows += (end - start) as u32;
        match (&mut self.blocks, slice.values) {
            (Blocks::Direct { row_bytes, geometry, crc }, Values::Fixed(bytes)) => {
                for run in bytes[start * *row_bytes..end * *row_bytes].chunks(STRIDE) {
                    let mut rest = run;
                    while !rest.is_empty() {
                        let to_end = geometry.remaining(self.raw);
                        let (block, after) = rest.split_at(rest.len().min(to_end as usize));
                        crc.update(block);
                        if block.len() as u64 == to_end {
                            self.draft.crc.push(crc.take());
                        }
                        self.raw += block.len() as u64;
                        rest = after;
                    }
                    out.write_all(run)?;
                }
            }
            (Blocks::Coded { row_bytes, geometry, pending }, Values::Fixed(bytes)) => {
                let mut rest = &bytes[start * *row_bytes..end * *row_bytes];
                while !rest.is_empty() {
                    let to_end = geometry.remaining(self.raw);
                    let (block, after) = rest.split_at(rest.len().min(to_end as usize));
                    self.raw += block.len() as u64;
                    rest = after;
                    let whole = block.len() as u64 == to_end;
                    if whole && pending.is_empty() {
                        self.draft.put_block(&mut self.encoder, block, true, out)?;
                        continue;
                    }
                    pending.extend_from_slice(block);
                    if whole {
                        self.draft.put_block(&mut self.encoder, pending, true, out)?;
                        pending.clear();
                    }
                }
            }
            (Blocks::Ragged { rank, pending }, Values::Ragged { offsets, shapes, bytes }) => {
                let (rank, media) = (*rank, usize::from(media_rank(&self.column, slice)));
                if media > 0 && start < end {
                    self.draft.media_rank = media as u8;
                    self.draft.media_shapes.extend_from_slice(&shapes[start * media..end * media]);
                }
                let coded = self.column.compression.codec != Codec::None;
                for row in start..end {
                    let value = &bytes[offsets[row] as usize..offsets[row + 1] as usize];
                    let row = Row { shape: &shapes[row * rank..(row + 1) * rank], value };
                    self.raw += row.raw_len() as u64;
                    if !pending.fits(&row, self.block_bytes) {
                        self.draft.put_ragged(&mut self.encoder, pending, coded, out)?;
                    }
                    if row.raw_len() < self.block_bytes {
                        pending.push(&row);
                        continue;
                    }
                    // A large row has blocks of its own: the first holds its header, the others go on.
                    let (first, mut rest) = value.split_at(self.block_bytes - row.header_len());
                    pending.push_part(&row, first);
                    self.draft.put_ragged(&mut self.encoder, pending, coded, out)?;
                    while !rest.is_empty() {
                        let (part, after) = rest.split_at(rest.len().min(self.block_bytes));
                        self.draft.put_block(&mut self.encoder, part, coded, out)?;
                        self.draft.block_rows.push(0);
                        self.draft.block_raw.push(part.len() as u32);
                        rest = after;
                    }
                }
            }
            // `ColumnSlice::check` has refused any other pair.
            _ => {}
        }
        Ok(())
    }

    /// Ends the last block.
    fn seal(&mut self, out: &mut dyn Write) -> Result<()> {
        match &mut self.blocks {
            Blocks::Direct { geometry, crc, .. } => {
                if self.draft.crc.len() as u64 != geometry.blocks(self.draft.rows) {
                    self.draft.crc.push(crc.take());
                }
            }
            Blocks::Coded { pending, .. } => {
                if !pending.is_empty() {
                    self.draft.put_block(&mut self.encoder, pending, true, out)?;
                    pending.clear();
                }
            }
            Blocks::Ragged { pending, .. } => {
                let coded = self.column.compression.codec != Codec::None;
                self.draft.put_ragged(&mut self.encoder, pending, coded, out)?;
            }
        }
        Ok(())
    }
}

impl ChunkDraft {
    fn put_block(&mut self, encoder: &mut Encoder, raw: &[u8], coded: bool, out: &mut dyn Write) -> Result<()> {
        let stored = encoder.encode(raw)?;
        self.crc.push(crc32c(stored));
        if coded {
            self.stored.push(stored.len() as u32);
        }
        out.write_all(stored)?;
        Ok(())
    }

    fn put_ragged(
        &mut self,
        encoder: &mut Encoder,
        pending: &mut PendingBlock,
        coded: bool,
        out: &mut dyn Write,
    ) -> Result<()> {
        if let Some((rows, raw)) = pending.seal() {
            self.block_rows.push(rows);
            self.block_raw.push(raw.len() as u32);
            self.put_block(encoder, raw, coded, out)?;
        }
        Ok(())
    }
}

/// How many decoded lengths each row of a batch of encoded media has.
pub(crate) fn media_rank(column: &Column, slice: &ColumnSlice<'_>) -> u8 {
    match slice.values {
        Values::Ragged { shapes, .. } if column.dtype == DType::Bytes && slice.rows > 0 => {
            (shapes.len() / slice.rows) as u8
        }
        _ => 0,
    }
}
