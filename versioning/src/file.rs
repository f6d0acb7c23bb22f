//! A data file, opened once: its index, its map on local disk, and which of its blocks were verified.

use std::{
    fmt,
    ops::Range,
    sync::atomic::{AtomicU64, Ordering},
};

use forebay_format::{FieldId, FileIndex, meta::DataFileRef};
use forebay_storage::{Mapped, Storage};

use crate::{Error, Result, names};

/// When blocks of a mapped local file are checked against their checksums. What comes over a network always is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Verify {
    /// The first time a block is used since the file was opened.
    #[default]
    First,
    /// Each time.
    Always,
    /// Not at all.
    Never,
}

/// Reads of at least this many bytes bring their pages into the map; below, a fault brings neighbours in just as well.
const POPULATE_BYTES: usize = 32 << 10;

/// A data file, opened once and shared by all who read it.
pub struct OpenFile {
    path: String,
    index: FileIndex,
    map: Option<Mapped>,
    verified: Vec<Bits>,
}

impl OpenFile {
    pub(crate) async fn open(storage: &Storage, reference: &DataFileRef) -> Result<Self> {
        let path = names::data(reference.id);
        let read = async || match storage.get_range(&path, reference.index_offset..reference.size).await {
            Ok(tail) => Ok(FileIndex::parse(&tail, reference).map_err(Error::object(&path))),
            Err(error) if error.is_not_found() => {
                Err(Error::Missing { path: path.clone(), referrer: "the manifest".to_owned() })
            }
            Err(error) => Err(error.into()),
        };
        let mut index = read().await?;
        if index.is_err() && storage.has_copies() {
            storage.distrust(&path);
            index = read().await?;
        }
        let index = index?;
        let map = storage.map(&path)?;
        if let Some(map) = &map
            && map.len() != reference.size
        {
            let reason = format!("it has {} bytes, the manifest says {}", map.len(), reference.size);
            return Err(Error::Inconsistent { path, reason });
        }
        let verified = index.columns().iter().map(|column| Bits::new(column.blocks())).collect();
        Ok(Self { path, index, map, verified })
    }

    /// Its object.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Its index.
    #[must_use]
    pub fn index(&self) -> &FileIndex {
        &self.index
    }

    /// Its bytes in memory, if it is on a local disk that can be mapped.
    #[must_use]
    pub fn map(&self) -> Option<&Mapped> {
        self.map.as_ref()
    }

    /// The place of a column in [`FileIndex::columns`].
    #[must_use]
    pub fn position(&self, field: FieldId) -> Option<usize> {
        self.index.columns().iter().position(|column| column.field() == field)
    }

    /// Copies rows of the column at `position` into `out`, for a mapped file and a column whose rows are addressable in
    /// place ([`ColumnIndex::direct`](forebay_format::ColumnIndex::direct)). One copy a byte: rows whose blocks are not
    /// yet verified are read by `pread` straight into `out` and checked there, so that an IO error is an error; others are
    /// copied from the map.
    ///
    /// # Errors
    /// [`Error::Object`] with the column's name and the range if a checksum is wrong; [`Error::Storage`] if reading failed;
    /// [`Error::Inconsistent`] if the file isn't mapped, the column isn't direct, or `out` has another size.
    pub fn copy_rows(&self, position: usize, rows: Range<u32>, out: &mut [u8], verify: Verify) -> Result<()> {
        self.copy_rows_with(position, rows, out, verify, <[u8]>::copy_from_slice)
    }

    /// As [`copy_rows`](Self::copy_rows), with a copy (to, from; as long as each other) of the caller's choice from the map.
    ///
    /// # Errors
    /// As [`copy_rows`](Self::copy_rows).
    pub fn copy_rows_with(
        &self,
        position: usize,
        rows: Range<u32>,
        out: &mut [u8],
        verify: Verify,
        copy: impl Fn(&mut [u8], &[u8]),
    ) -> Result<()> {
        let column = &self.index.columns()[position];
        let (Some(map), Some(row_bytes)) = (&self.map, column.direct()) else {
            return Err(self.inconsistent("its rows are not mapped"));
        };
        if out.len() != rows.len() * row_bytes || rows.end > self.index.rows() {
            return Err(self.inconsistent("rows and buffer differ in size"));
        }
        let mut out = out;
        let mut start = rows.start;
        while start < rows.end && row_bytes > 0 {
            // Rows of a chunk lie side by side; chunks don't.
            let chunk = &column.chunks()[column.chunk_of(start)];
            let end = rows.end.min(chunk.first_row + chunk.rows);
            let (part, rest) = out.split_at_mut((end - start) as usize * row_bytes);
            let offset = chunk.offset + u64::from(start - chunk.first_row) * row_bytes as u64;
            if !self.read_unverified(position, start..end, offset, part, verify)? {
                let offset = offset as usize;
                copy(part, &map.as_slice()[offset..offset + part.len()]);
            }
            out = rest;
            start = end;
        }
        Ok(())
    }

    /// Verifies the blocks of some rows of the column at `position` in a mapped file, so that the map may be read in
    /// place, by a GPU for instance.
    ///
    /// # Errors
    /// As [`copy_rows`](Self::copy_rows).
    pub fn verify_rows(&self, position: usize, rows: Range<u32>, verify: Verify) -> Result<()> {
        let mut scratch = Vec::new();
        self.verify_blocks(position, self.index.columns()[position].blocks_of(rows), verify, &mut scratch)
    }

    /// Whether reading some rows of the column at `position` in place needs no [`verify_rows`](Self::verify_rows) first.
    #[must_use]
    pub fn is_verified(&self, position: usize, rows: Range<u32>, verify: Verify) -> bool {
        match verify {
            Verify::First => self.verified[position].all(self.index.columns()[position].blocks_of(rows)),
            Verify::Always => false,
            Verify::Never => true,
        }
    }

    /// Verifies the blocks that hold bytes `part` of one row of the column at `position`, as
    /// [`verify_rows`](Self::verify_rows): several threads can share a large row.
    ///
    /// # Errors
    /// As [`copy_rows`](Self::copy_rows).
    pub fn verify_part(&self, position: usize, row: u32, part: Range<usize>, verify: Verify) -> Result<()> {
        let column = &self.index.columns()[position];
        let blocks = column.blocks_of(row..row.saturating_add(1));
        if blocks.len() < 2 {
            return self.verify_rows(position, row..row.saturating_add(1), verify);
        }
        let start_of = |block: usize| column.block(block).part as usize;
        let (mut first, mut end) = (blocks.start, blocks.end);
        while first + 1 < end && start_of(first + 1) <= part.start {
            first += 1;
        }
        while end > first + 1 && start_of(end - 1) >= part.end {
            end -= 1;
        }
        self.verify_blocks(position, first..end, verify, &mut Vec::new())
    }

    /// Checks the stored bytes of a block, wherever they came from.
    ///
    /// # Errors
    /// [`Error::Object`] with the column's name and the range if the checksum is wrong.
    pub fn check_block(&self, position: usize, block: usize, stored: &[u8]) -> Result<()> {
        self.index.columns()[position].check_block(block, stored).map_err(Error::object(&self.path))
    }

    /// If `rows`, which lie side by side from `offset`, have unverified blocks: verifies them. Gives whether the rows are
    /// in `out` already, which they are when they are made of whole blocks.
    fn read_unverified(
        &self,
        position: usize,
        rows: Range<u32>,
        offset: u64,
        out: &mut [u8],
        verify: Verify,
    ) -> Result<bool> {
        let column = &self.index.columns()[position];
        let blocks = column.blocks_of(rows);
        if verify == Verify::Never || (verify == Verify::First && self.verified[position].all(blocks.clone())) {
            return Ok(false);
        }
        let Some(map) = &self.map else { return Ok(false) };
        let (first, last) = (column.block(blocks.start), column.block(blocks.end - 1));
        let whole = first.offset == offset && last.offset + u64::from(last.stored) == offset + out.len() as u64;
        if !whole {
            let mut scratch = Vec::new();
            self.verify_blocks(position, blocks, verify, &mut scratch)?;
            return Ok(false);
        }
        map.read_at(offset, out)?;
        if verify == Verify::First && out.len() >= POPULATE_BYTES {
            // The pages are in memory now; the next epoch finds them in the map as well, without a fault for each.
            map.populate(offset..offset + out.len() as u64)?;
        }
        let mut rest = &out[..];
        for block in blocks {
            let (stored, behind) = rest.split_at(column.block(block).stored as usize);
            self.check_block(position, block, stored)?;
            self.verified[position].set(block);
            rest = behind;
        }
        Ok(true)
    }

    fn verify_blocks(
        &self,
        position: usize,
        blocks: Range<usize>,
        verify: Verify,
        scratch: &mut Vec<u8>,
    ) -> Result<()> {
        let Some(map) = &self.map else { return Err(self.inconsistent("its rows are not mapped")) };
        for index in blocks {
            if verify == Verify::Never || (verify == Verify::First && self.verified[position].get(index)) {
                continue;
            }
            let block = self.index.columns()[position].block(index);
            scratch.resize(block.stored as usize, 0);
            map.read_at(block.offset, scratch)?;
            self.check_block(position, index, scratch)?;
            self.verified[position].set(index);
        }
        Ok(())
    }

    fn inconsistent(&self, reason: &str) -> Error {
        Error::Inconsistent { path: self.path.clone(), reason: reason.to_owned() }
    }
}

impl fmt::Debug for OpenFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenFile")
            .field("path", &self.path)
            .field("mapped", &self.map.is_some())
            .finish_non_exhaustive()
    }
}

/// One bit a block; only ever set.
struct Bits(Vec<AtomicU64>);

impl Bits {
    fn new(bits: usize) -> Self {
        Self((0..bits.div_ceil(64)).map(|_| AtomicU64::new(0)).collect())
    }

    fn get(&self, bit: usize) -> bool {
        // Relaxed: the bytes that a bit speaks of never change, so nothing is ordered by it.
        self.0[bit / 64].load(Ordering::Relaxed) >> (bit % 64) & 1 == 1
    }

    fn all(&self, bits: Range<usize>) -> bool {
        bits.into_iter().all(|bit| self.get(bit))
    }

    fn set(&self, bit: usize) {
        self.0[bit / 64].fetch_or(1 << (bit % 64), Ordering::Relaxed);
    }
}
