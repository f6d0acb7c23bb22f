//! Blocks of rows of free shape.
//!
//! The raw bytes of a block of `n` rows are, without padding: `n` end offsets (`u32`), each counted from the first value;
//! `n * rank` lengths of dimensions (`u32`); the values. A row of which the header and the values together don't stay
//! under the block size has a block of its own, whose end offset is the length of the whole row; the blocks behind it
//! hold nothing but the rest of the row.

use crate::bytes::u32_at;

/// A row to be written.
pub(crate) struct Row<'a> {
    pub(crate) shape: &'a [u32],
    pub(crate) value: &'a [u8],
}

impl Row<'_> {
    pub(crate) fn header_len(&self) -> usize {
        4 + 4 * self.shape.len()
    }

    pub(crate) fn raw_len(&self) -> usize {
        self.header_len() + self.value.len()
    }
}

/// A block that rows are gathered in.
#[derive(Debug)]
pub(crate) struct PendingBlock {
    rank: usize,
    ends: Vec<u32>,
    shapes: Vec<u32>,
    values: Vec<u8>,
    raw: Vec<u8>,
}

impl PendingBlock {
    pub(crate) fn new(rank: usize) -> Self {
        Self { rank, ends: Vec::new(), shapes: Vec::new(), values: Vec::new(), raw: Vec::new() }
    }

    pub(crate) fn raw_len(&self) -> usize {
        self.ends.len() * (4 + 4 * self.rank) + self.values.len()
    }

    pub(crate) fn memory(&self) -> usize {
        (self.ends.capacity() + self.shapes.capacity()) * 4 + self.values.capacity() + self.raw.capacity()
    }

    /// Whether the row may join the rows that are there.
    pub(crate) fn fits(&self, row: &Row<'_>, block_bytes: usize) -> bool {
        self.raw_len() + row.raw_len() <= block_bytes
    }

    pub(crate) fn push(&mut self, row: &Row<'_>) {
        self.push_part(row, row.value);
    }

    /// Adds a row with no more than the first part of its value.
    pub(crate) fn push_part(&mut self, row: &Row<'_>, part: &[u8]) {
        self.ends.push((self.values.len() + row.value.len()) as u32);
        self.shapes.extend_from_slice(row.shape);
        self.values.extend_from_slice(part);
    }

    /// The rows and raw bytes of the block, unless it is empty; starts another.
    pub(crate) fn seal(&mut self) -> Option<(u32, &[u8])> {
        let rows = self.ends.len() as u32;
        if rows == 0 {
            return None;
        }
        self.raw.clear();
        for word in self.ends.drain(..).chain(self.shapes.drain(..)) {
            self.raw.extend_from_slice(&word.to_le_bytes());
        }
        self.raw.append(&mut self.values);
        Some((rows, &self.raw))
    }
}

/// The raw bytes of a block, taken apart.
#[derive(Clone, Copy, Debug)]
pub struct RaggedBlock<'a> {
    rows: usize,
    rank: usize,
    raw: &'a [u8],
}

impl<'a> RaggedBlock<'a> {
    /// The block of `rows` rows, with `rank` stored lengths each, that `raw` is. `whole` is false for the first block of
    /// a row that goes on in others.
    ///
    /// # Errors
    /// What is wrong, in words: the block is too short, or its offsets don't ascend to its end.
    pub(crate) fn parse(raw: &'a [u8], rows: u32, rank: usize, whole: bool) -> Result<Self, String> {
        let block = Self { rows: rows as usize, rank, raw };
        let header = block.header_len();
        if raw.len() < header {
            return Err(format!("{} bytes for the offsets and shapes of {rows} rows", raw.len()));
        }
        let mut last = 0;
        for row in 0..block.rows {
            let end = u32_at(raw, row * 4) as usize;
            if end < last {
                return Err(format!("the offset of row {row} of the block is less than the one before"));
            }
            last = end;
        }
        let values = raw.len() - header;
        if if whole { last != values } else { rows != 1 || last <= values } {
            return Err(format!("its offsets end at {last}, its values at {values}"));
        }
        Ok(block)
    }

    fn header_len(&self) -> usize {
        self.rows * (4 + 4 * self.rank)
    }

    /// Rows that begin in the block.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The length in bytes of row `row` of the block.
    #[must_use]
    pub fn len_of(&self, row: usize) -> usize {
        self.end(row) - self.start(row)
    }

    /// The bytes of row `row` of the block: all of them, or the first ones of a row that goes on in the next blocks.
    #[must_use]
    pub fn value(&self, row: usize) -> &'a [u8] {
        let values = &self.raw[self.header_len()..];
        &values[self.start(row)..self.end(row).min(values.len())]
    }

    /// The stored lengths of the dimensions of row `row` of the block.
    pub fn shape(&self, row: usize) -> impl Iterator<Item = u32> + use<'a> {
        let (raw, start) = (self.raw, self.rows * 4 + row * self.rank * 4);
        (0..self.rank).map(move |dim| u32_at(raw, start + dim * 4))
    }

    fn start(&self, row: usize) -> usize {
        if row == 0 { 0 } else { self.end(row - 1) }
    }

    fn end(&self, row: usize) -> usize {
        u32_at(self.raw, row * 4) as usize
    }
}
