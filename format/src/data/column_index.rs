//! Where the rows of one column are in a data file.

use std::ops::Range;

use super::{Stats, codec, geometry::Geometry, validity};
use crate::{Codec, Compression, DType, Dim, Error, FieldId, Layout, Result, checksum};

/// One column of a data file: its chunks and their blocks.
///
/// Value blocks are numbered through all chunks, `0..blocks()`; so are validity blocks, apart. A column whose rows can be
/// [addressed in place](Self::direct) needs its blocks only to be verified.
#[derive(Clone, Debug)]
pub struct ColumnIndex {
    pub(crate) field: FieldId,
    pub(crate) name: String,
    pub(crate) dtype: DType,
    pub(crate) shape: Vec<Dim>,
    pub(crate) nullable: bool,
    pub(crate) compression: Compression,
    pub(crate) layout: Layout,
    pub(crate) rows: u32,
    pub(crate) chunks: Vec<ChunkIndex>,
    pub(crate) crc: Vec<u32>,
    pub(crate) places: Places,
    pub(crate) validity: Vec<Block>,
}

/// What is known of where blocks are, beyond what can be computed.
#[derive(Clone, Debug)]
pub(crate) enum Places {
    /// Fixed shape, no codec.
    Direct(Geometry),
    /// Fixed shape and a codec: where each block is stored.
    Coded(Geometry, Vec<Stored>),
    /// Free shape: also what each block holds.
    Ragged(Vec<Stored>, Vec<Content>),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Stored {
    pub(crate) offset: u64,
    pub(crate) length: u32,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Content {
    pub(crate) raw: u32,
    /// The first row that begins in the block, or the row that goes on in it.
    pub(crate) first_row: u32,
    /// Rows that begin in it.
    pub(crate) rows: u32,
    /// Bytes of the row's values that lie before the block.
    pub(crate) part: u32,
}

/// A run of rows of a column.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ChunkIndex {
    /// Its first row.
    pub first_row: u32,
    /// Its rows, at least one.
    pub rows: u32,
    /// Where it starts in the file, a multiple of 4096.
    pub offset: u64,
    /// Its stored length: value blocks, then validity blocks.
    pub length: u64,
    /// The stored length of its value blocks. For [direct](ColumnIndex::direct) columns they are the array
    /// `[rows, *shape]`.
    pub values_length: u64,
    /// The numbers of its value blocks.
    pub blocks: Range<usize>,
    /// The numbers of its validity blocks; empty when every row is valid.
    pub validity_blocks: Range<usize>,
    /// What is known of its values.
    pub stats: Option<Stats>,
    pub(crate) media_rank: usize,
    pub(crate) media_shapes: Vec<u32>,
}

/// A block: the unit of checksum and compression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Block {
    /// Where it starts in the file.
    pub offset: u64,
    /// Its stored length.
    pub stored: u32,
    /// Its length when decoded.
    pub raw: u32,
    /// The CRC-32C of its stored bytes.
    pub crc32c: u32,
    /// The first row of which it holds values.
    pub first_row: u32,
    /// Rows that begin in it: 0 if it goes on with a row that began before it.
    pub rows: u32,
    /// Bytes of the values of `first_row` that lie in earlier blocks.
    pub part: u32,
}

impl Block {
    /// Its bytes in the file.
    #[must_use]
    pub fn range(&self) -> Range<u64> {
        self.offset..self.offset + u64::from(self.stored)
    }

    /// The rows of which it holds values.
    #[must_use]
    pub fn row_range(&self) -> Range<u32> {
        self.first_row..self.first_row + self.rows.max(1)
    }
}

impl ChunkIndex {
    /// Its bytes in the file.
    #[must_use]
    pub fn range(&self) -> Range<u64> {
        self.offset..self.offset + self.length
    }

    /// Its rows.
    #[must_use]
    pub fn row_range(&self) -> Range<u32> {
        self.first_row..self.first_row + self.rows
    }
}

impl ColumnIndex {
    /// The column's identity.
    #[must_use]
    pub fn field(&self) -> FieldId {
        self.field
    }

    /// The column's name when the file was written. It may have been renamed since.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its element type.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The shape of one row.
    #[must_use]
    pub fn shape(&self) -> &[Dim] {
        &self.shape
    }

    /// Whether rows may be null.
    #[must_use]
    pub fn nullable(&self) -> bool {
        self.nullable
    }

    /// How its blocks are compressed.
    #[must_use]
    pub fn compression(&self) -> Compression {
        self.compression
    }

    /// How its rows lie in a chunk.
    #[must_use]
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Rows of the file.
    #[must_use]
    pub fn rows(&self) -> u32 {
        self.rows
    }

    /// Its chunks, in order of rows.
    #[must_use]
    pub fn chunks(&self) -> &[ChunkIndex] {
        &self.chunks
    }

    /// The number of the chunk that holds `row`, which must be less than [`rows`](Self::rows).
    #[must_use]
    pub fn chunk_of(&self, row: u32) -> usize {
        debug_assert!(row < self.rows, "row {row} of {}", self.rows);
        self.chunks.partition_point(|chunk| chunk.first_row <= row).saturating_sub(1)
    }

    /// The bytes of a row, if rows are addressable in place: fixed shape and no codec.
    #[must_use]
    pub fn direct(&self) -> Option<usize> {
        match (&self.places, self.layout) {
            (Places::Direct(_), Layout::Fixed { row_bytes }) => Some(row_bytes),
            _ => None,
        }
    }

    /// Where `row` starts in the file, if the column is [direct](Self::direct) and has that row.
    #[must_use]
    pub fn row_offset(&self, row: u32) -> Option<u64> {
        let row_bytes = self.direct()?;
        if row >= self.rows {
            return None;
        }
        let chunk = &self.chunks[self.chunk_of(row)];
        Some(chunk.offset + u64::from(row - chunk.first_row) * row_bytes as u64)
    }

    /// The decoded shape of the encoded media in `row`, if the writer knew it.
    #[must_use]
    pub fn media_shape(&self, row: u32) -> Option<&[u32]> {
        if row >= self.rows {
            return None;
        }
        let chunk = &self.chunks[self.chunk_of(row)];
        let rank = chunk.media_rank;
        if rank == 0 {
            return None;
        }
        let start = if chunk.media_shapes.len() == rank { 0 } else { (row - chunk.first_row) as usize * rank };
        chunk.media_shapes.get(start..start + rank)
    }

    /// How many value blocks it has.
    #[must_use]
    pub fn blocks(&self) -> usize {
        self.crc.len()
    }

    /// The value blocks that hold these rows.
    #[must_use]
    pub fn blocks_of(&self, rows: Range<u32>) -> Range<usize> {
        let (start, end) = (rows.start.min(self.rows), rows.end.min(self.rows));
        if start >= end || self.crc.is_empty() {
            return 0..0;
        }
        match &self.places {
            Places::Direct(geometry) | Places::Coded(geometry, _) => {
                let (first, last) = (&self.chunks[self.chunk_of(start)], &self.chunks[self.chunk_of(end - 1)]);
                first.blocks.start + geometry.block_of(start - first.first_row) as usize
                    ..last.blocks.start + geometry.block_after(end - 1 - last.first_row) as usize
            }
            Places::Ragged(_, contents) => {
                let first = contents.partition_point(|content| content.first_row < start);
                let begins = contents.get(first).is_some_and(|content| content.first_row == start);
                let first = if begins { first } else { first.saturating_sub(1) };
                first..contents.partition_point(|content| content.first_row < end)
            }
        }
    }

    /// Value block `block`.
    ///
    /// # Panics
    /// If there is none of that number.
    #[must_use]
    pub fn block(&self, block: usize) -> Block {
        let crc32c = self.crc[block];
        let chunk = || &self.chunks[self.chunks.partition_point(|chunk| chunk.blocks.start <= block).saturating_sub(1)];
        let place =
            |geometry: &Geometry, chunk: &ChunkIndex| geometry.place((block - chunk.blocks.start) as u64, chunk.rows);
        match &self.places {
            Places::Direct(geometry) => {
                let chunk = chunk();
                let place = place(geometry, chunk);
                Block {
                    offset: chunk.offset + place.start,
                    stored: place.raw,
                    raw: place.raw,
                    crc32c,
                    first_row: chunk.first_row + place.row,
                    rows: place.rows,
                    part: place.part,
                }
            }
            Places::Coded(geometry, stored) => {
                let chunk = chunk();
                let place = place(geometry, chunk);
                Block {
                    offset: stored[block].offset,
                    stored: stored[block].length,
                    raw: place.raw,
                    crc32c,
                    first_row: chunk.first_row + place.row,
                    rows: place.rows,
                    part: place.part,
                }
            }
            Places::Ragged(stored, contents) => {
                let Content { raw, first_row, rows, part } = contents[block];
                let Stored { offset, length } = stored[block];
                Block { offset, stored: length, raw, crc32c, first_row, rows, part }
            }
        }
    }

    /// The validity blocks that hold bits of these rows. Chunks without nulls have none, so rows may have no bits.
    #[must_use]
    pub fn validity_blocks_of(&self, rows: Range<u32>) -> &[Block] {
        let first = self.validity.partition_point(|block| block.row_range().end <= rows.start);
        let end = self.validity.partition_point(|block| block.first_row < rows.end);
        &self.validity[first.min(end)..end]
    }

    /// Every byte range of the file that must be fetched to read these rows, values and validity, ascending; adjoining
    /// ranges are one.
    #[must_use]
    pub fn ranges_of(&self, rows: Range<u32>) -> Vec<Range<u64>> {
        let blocks = self.blocks_of(rows.clone()).map(|block| self.block(block).range());
        let mut ranges: Vec<Range<u64>> = Vec::new();
        let mut add = |range: Range<u64>| match ranges.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => ranges.push(range),
        };
        blocks.for_each(&mut add);
        self.validity_blocks_of(rows).iter().map(Block::range).for_each(&mut add);
        ranges.sort_by_key(|range| range.start);
        ranges.dedup_by(|next, last| {
            let adjoin = last.end == next.start;
            if adjoin {
                last.end = next.end;
            }
            adjoin
        });
        ranges
    }

    /// Checks the stored bytes of value block `block` against its checksum.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a wrong length, [`Error::Checksum`].
    pub fn check_block(&self, block: usize, stored: &[u8]) -> Result<()> {
        let place = self.block(block);
        let what = || self.describe(block, &place);
        self.check_stored(what, &place, stored)
    }

    /// Checks and decodes the stored bytes of value block `block`, and appends its raw bytes to `out`. For fixed shapes
    /// these are values; for free shapes, see [`ragged_block`](Self::ragged_block).
    ///
    /// # Errors
    /// [`Error::Corrupt`] or [`Error::Checksum`]; `out` is as it was then.
    pub fn decode_block(&self, block: usize, stored: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let (before, raw) = (out.len(), self.block(block).raw as usize);
        if stored.len() == raw {
            self.check_block(block, stored)?;
            out.extend_from_slice(stored);
            return Ok(());
        }
        out.resize(before + raw, 0);
        let decoded = self.decode_block_into(block, stored, &mut out[before..]);
        if decoded.is_err() {
            out.truncate(before);
        }
        decoded
    }

    /// As [`decode_block`](Self::decode_block), to memory of the block's raw length; after an error it holds anything.
    ///
    /// # Errors
    /// As [`decode_block`](Self::decode_block).
    ///
    /// # Panics
    /// If `out` is of another length.
    pub fn decode_block_into(&self, block: usize, stored: &[u8], out: &mut [u8]) -> Result<()> {
        let place = self.block(block);
        assert_eq!(out.len(), place.raw as usize, "the length of the block");
        self.check_block(block, stored)?;
        codec::decode(self.compression, self.item(), stored, out).map_err(|reason| Error::Corrupt {
            what: self.describe(block, &place),
            offset: place.offset,
            reason,
        })
    }

    /// Takes the raw bytes of a block of rows of free shape apart. The bytes of a block in which
    /// [no row begins](Block::rows) are values of one row and nothing else.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if its offsets don't ascend to its end.
    pub fn ragged_block<'a>(&self, block: usize, raw: &'a [u8]) -> Result<super::RaggedBlock<'a>> {
        let place = self.block(block);
        let whole = match &self.places {
            Places::Ragged(_, contents) => contents.get(block + 1).is_none_or(|next| next.rows > 0),
            _ => true,
        };
        let rank = match self.layout {
            Layout::Ragged { rank } => rank,
            Layout::Fixed { .. } => 0,
        };
        super::RaggedBlock::parse(raw, place.rows, rank, whole).map_err(|reason| Error::Corrupt {
            what: self.describe(block, &place),
            offset: place.offset,
            reason,
        })
    }

    /// Checks the stored bytes of a validity block; they are the bitmap of its rows.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a wrong length, [`Error::Checksum`].
    pub fn check_validity(&self, block: &Block, stored: &[u8]) -> Result<()> {
        self.check_stored(|| self.describe_validity(block), block, stored)
    }

    /// Bytes of an element: 1 for text, bytes and JSON.
    pub(crate) fn item(&self) -> usize {
        self.dtype.item_size().unwrap_or(1)
    }

    pub(crate) fn is_coded(&self) -> bool {
        self.compression.codec != Codec::None
    }

    pub(crate) fn describe(&self, block: usize, place: &Block) -> String {
        let Range { start, end } = place.row_range();
        format!("block {block} (rows {start}..{end}) of column '{}'", self.name)
    }

    fn describe_validity(&self, block: &Block) -> String {
        let Range { start, end } = block.row_range();
        format!("validity block (rows {start}..{end}) of column '{}'", self.name)
    }

    fn check_stored(&self, what: impl Fn() -> String, block: &Block, stored: &[u8]) -> Result<()> {
        if stored.len() != block.stored as usize {
            let reason = format!("{} bytes instead of {}", stored.len(), block.stored);
            return Err(Error::Corrupt { what: what(), offset: block.offset, reason });
        }
        checksum::check(what, block.offset, stored, block.crc32c)
    }
}

/// The validity blocks of a chunk that starts at `first_row`, whose bitmaps start at `offset`.
pub(crate) fn validity_blocks(
    first_row: u32,
    rows: u32,
    mut offset: u64,
    crcs: impl Iterator<Item = u32>,
) -> impl Iterator<Item = Block> {
    (0..rows).step_by(validity::BLOCK_ROWS as usize).zip(crcs).map(move |(start, crc32c)| {
        let rows = (rows - start).min(validity::BLOCK_ROWS);
        let bytes = rows.div_ceil(8);
        let block = Block { offset, stored: bytes, raw: bytes, crc32c, first_row: first_row + start, rows, part: 0 };
        offset += u64::from(bytes);
        block
    })
}
