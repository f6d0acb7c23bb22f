//! What is fetched, checked and decoded as one: a block of whole rows, or all blocks of one large row.

use std::{ops::Range, sync::Arc};

use forebay_format::{ColumnIndex, Layout};
use forebay_versioning::{Error, OpenFile, Result};

use crate::device::ArenaRegion;

/// Names an atom within an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct AtomKey {
    /// The column's place among those delivered.
    pub(crate) column: u32,
    /// The number of the source in the table: a fragment, or what overlays it.
    pub(crate) fragment: u32,
    /// Whether it is a bitmap of valid rows rather than values.
    pub(crate) validity: bool,
    /// The first value block, or the first row of the bitmap.
    pub(crate) block: u32,
}

/// Blocks that rows need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Atom {
    pub(crate) key: AtomKey,
    /// Value blocks; empty for a bitmap.
    pub(crate) blocks: Range<usize>,
    /// The rows that lie in it.
    pub(crate) rows: Range<u32>,
    /// Its bytes in the file.
    pub(crate) stored: Range<u64>,
    /// Bytes when decoded.
    pub(crate) raw: u64,
    /// Whether the stored bytes are the decoded ones.
    pub(crate) in_place: bool,
}

impl Atom {
    /// Where the values of a row are; `None` if it has no bytes.
    pub(crate) fn values(column: u32, fragment: u32, index: &ColumnIndex, row: u32) -> Option<Self> {
        let blocks = index.blocks_of(row..row + 1);
        if blocks.is_empty() {
            return None;
        }
        let first = index.block(blocks.start);
        let (mut raw, mut end, mut in_place) = (0, first.offset, true);
        for block in blocks.clone().map(|block| index.block(block)) {
            in_place &= block.stored == block.raw && block.offset == end;
            raw += u64::from(block.raw);
            end = block.range().end;
        }
        Some(Self {
            key: AtomKey { column, fragment, validity: false, block: blocks.start as u32 },
            rows: if blocks.len() == 1 { first.row_range() } else { row..row + 1 },
            stored: first.offset..end,
            raw,
            in_place,
            blocks,
        })
    }

    /// Where it says whether a row is null; `None` if the rows around it are all valid.
    pub(crate) fn validity(column: u32, fragment: u32, index: &ColumnIndex, row: u32) -> Option<Self> {
        let block = index.validity_blocks_of(row..row + 1).first()?;
        Some(Self {
            key: AtomKey { column, fragment, validity: true, block: block.first_row },
            blocks: 0..0,
            rows: block.row_range(),
            stored: block.range(),
            raw: u64::from(block.raw),
            in_place: true,
        })
    }

    /// Bytes to reserve before it is requested: what it becomes, and what arrives if that is something else.
    pub(crate) fn cost(&self) -> u64 {
        self.raw + if self.in_place { 0 } else { self.stored.end - self.stored.start }
    }

    /// Whether another one lies right behind it.
    pub(crate) fn adjoins(&self, next: &Self) -> bool {
        self.stored.end == next.stored.start
    }

    /// Checks and decodes stored bytes that aren't in place; `out` is as long as what they become.
    pub(crate) fn decode(&self, file: &OpenFile, position: usize, stored: &[u8], mut out: &mut [u8]) -> Result<()> {
        let index = &file.index().columns()[position];
        for (block, bytes) in self.split(index, stored) {
            let (here, rest) = std::mem::take(&mut out).split_at_mut(index.block(block).raw as usize);
            index.decode_block_into(block, bytes, here).map_err(|source| object(file, source))?;
            out = rest;
        }
        Ok(())
    }

    /// What its decoded bytes hold; checks those that were stored that way.
    pub(crate) fn content(&self, file: &OpenFile, position: usize, bytes: &[u8]) -> Result<Content> {
        let index = &file.index().columns()[position];
        if self.key.validity {
            self.check_validity(file, position, bytes)?;
            return Ok(Content::Bits);
        }
        if self.in_place {
            for (block, bytes) in self.split(index, bytes) {
                file.check_block(position, block, bytes)?;
            }
        }
        match index.layout() {
            Layout::Fixed { row_bytes } => Ok(Content::Fixed { row_bytes }),
            Layout::Ragged { rank } => self.ragged(file, position, rank, bytes),
        }
    }

    fn check_validity(&self, file: &OpenFile, position: usize, stored: &[u8]) -> Result<()> {
        let index = &file.index().columns()[position];
        match index.validity_blocks_of(self.rows.clone()) {
            [block] => index.check_validity(block, stored).map_err(|source| object(file, source)),
            _ => Err(Error::Inconsistent { path: file.path().to_owned(), reason: "a bitmap is missing".to_owned() }),
        }
    }

    /// Its blocks, and the stored bytes of each.
    fn split<'a>(&self, index: &'a ColumnIndex, stored: &'a [u8]) -> impl Iterator<Item = (usize, &'a [u8])> + use<'a> {
        let start = self.stored.start;
        self.blocks.clone().map(move |block| {
            let range = index.block(block).range();
            (block, &stored[(range.start - start) as usize..(range.end - start) as usize])
        })
    }

    fn ragged(&self, file: &OpenFile, position: usize, rank: usize, raw: &[u8]) -> Result<Content> {
        let index = &file.index().columns()[position];
        let first = index.block(self.blocks.start);
        let block =
            index.ragged_block(self.blocks.start, &raw[..first.raw as usize]).map_err(|source| object(file, source))?;
        let mut starts = vec![block.rows() * (4 + 4 * rank)];
        let mut shapes = Vec::new();
        let mut media = None;
        for row in 0..block.rows() {
            starts.push(starts[row] + block.len_of(row));
            shapes.extend(block.shape(row));
            if rank == 0
                && let Some(shape) = index.media_shape(self.rows.start + row as u32)
            {
                shapes.extend(shape);
                media = Some(shape.len());
            }
        }
        if starts[block.rows()] > raw.len() {
            let reason = "a row goes on behind its last block".to_owned();
            return Err(Error::Inconsistent { path: file.path().to_owned(), reason });
        }
        Ok(Content::Ragged { starts, shapes, rank: media.unwrap_or(rank) })
    }
}

fn object(file: &OpenFile, source: forebay_format::Error) -> Error {
    Error::Object { path: file.path().to_owned(), source }
}

/// A checked and decoded atom.
#[derive(Debug)]
pub(crate) struct Block {
    /// Shared with its neighbours.
    region: Arc<ArenaRegion>,
    /// Where it begins in the region.
    start: usize,
    length: usize,
    first_row: u32,
    content: Content,
}

#[derive(Debug)]
pub(crate) enum Content {
    /// Rows of one length, side by side.
    Fixed { row_bytes: usize },
    /// Where each row starts and the last ends; the shapes of the rows.
    Ragged { starts: Vec<usize>, shapes: Vec<u32>, rank: usize },
    /// One bit a row.
    Bits,
}

impl Block {
    pub(crate) fn new(atom: &Atom, region: Arc<ArenaRegion>, start: usize, content: Content) -> Self {
        Self { region, start, length: atom.raw as usize, first_row: atom.rows.start, content }
    }

    pub(crate) fn region(&self) -> &Arc<ArenaRegion> {
        &self.region
    }

    /// The bytes of a row in the region.
    pub(crate) fn place(&self, row: u32) -> Range<usize> {
        let row = (row - self.first_row) as usize;
        let place = match &self.content {
            Content::Fixed { row_bytes } => row * row_bytes..(row + 1) * row_bytes,
            Content::Ragged { starts, .. } => starts[row]..starts[row + 1],
            Content::Bits => 0..0,
        };
        self.start + place.start..self.start + place.end
    }

    /// The lengths of the dimensions of a row of free shape.
    pub(crate) fn shape(&self, row: u32) -> &[u32] {
        let row = (row - self.first_row) as usize;
        match &self.content {
            Content::Ragged { shapes, rank, .. } => shapes.get(row * rank..(row + 1) * rank).unwrap_or(&[]),
            _ => &[],
        }
    }

    /// Whether a row is valid, if this is a bitmap.
    pub(crate) fn is_valid(&self, row: u32) -> bool {
        let row = (row - self.first_row) as usize;
        forebay_format::Bitmap(&self.region.buffer().bytes()[self.start..self.start + self.length]).get(row)
    }
}
