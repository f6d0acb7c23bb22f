//! Stored blocks to rows. No IO: the caller hands the blocks in, from wherever it has them.

use std::ops::Range;

use super::{Block, ColumnIndex, validity::Bits};
use crate::{Bitmap, ColumnData, DType, Dim, Error, Layout, OwnedValues, Result};

impl ColumnIndex {
    /// Reads a range of rows. `fetch` gives the stored bytes of a block, of values or of validity; it is called at most
    /// once for each block that holds a part of the rows. Everything is verified.
    ///
    /// # Errors
    /// What `fetch` fails with; [`Error::Limit`] for rows that the file doesn't have; [`Error::Corrupt`],
    /// [`Error::Checksum`].
    pub fn read_rows<B, E>(&self, rows: Range<u32>, fetch: impl FnMut(&Block) -> Result<B, E>) -> Result<ColumnData, E>
    where
        B: AsRef<[u8]>,
        E: From<Error>,
    {
        self.check_rows(rows.end)?;
        let mut reader = Reader::new(self, fetch);
        reader.run(rows)?;
        Ok(reader.finish())
    }

    /// Reads rows in any order, also repeatedly. `fetch` is as in [`read_rows`](Self::read_rows).
    ///
    /// # Errors
    /// As [`read_rows`](Self::read_rows).
    pub fn read_list<B, E>(&self, rows: &[u32], fetch: impl FnMut(&Block) -> Result<B, E>) -> Result<ColumnData, E>
    where
        B: AsRef<[u8]>,
        E: From<Error>,
    {
        let mut sorted = rows.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        self.check_rows(sorted.last().map_or(0, |last| last.saturating_add(1)))?;
        let mut reader = Reader::new(self, fetch);
        for run in sorted.chunk_by(|row, next| row + 1 == *next) {
            reader.run(run[0]..run[0] + run.len() as u32)?;
        }
        let read = reader.finish();
        if sorted == rows {
            return Ok(read);
        }
        let positions: Vec<usize> = rows.iter().map(|row| sorted.partition_point(|other| other < row)).collect();
        Ok(read.take(&positions))
    }

    fn check_rows(&self, end: u32) -> Result<()> {
        if end > self.rows {
            let (what, found, limit) =
                (format!("rows of column '{}'", self.name), u64::from(end), u64::from(self.rows));
            return Err(Error::Limit { what, found, limit });
        }
        Ok(())
    }
}

impl ColumnData {
    /// The rows at these positions, in their order.
    ///
    /// # Panics
    /// If there is no row at a position.
    #[must_use]
    pub fn take(&self, positions: &[usize]) -> Self {
        let values = match &self.values {
            OwnedValues::Fixed(bytes) => {
                let row_bytes = bytes.len().checked_div(self.rows).unwrap_or(0);
                let mut taken = Vec::with_capacity(positions.len() * row_bytes);
                for row in positions {
                    taken.extend_from_slice(&bytes[row * row_bytes..(row + 1) * row_bytes]);
                }
                OwnedValues::Fixed(taken)
            }
            OwnedValues::Ragged { offsets, shapes, bytes } => {
                let rank = shapes.len().checked_div(self.rows).unwrap_or(0);
                let (mut ends, mut taken) = (vec![0], Vec::new());
                let mut lengths = Vec::with_capacity(positions.len() * rank);
                for row in positions {
                    taken.extend_from_slice(&bytes[offsets[*row] as usize..offsets[row + 1] as usize]);
                    ends.push(taken.len() as u64);
                    lengths.extend_from_slice(&shapes[row * rank..(row + 1) * rank]);
                }
                OwnedValues::Ragged { offsets: ends, shapes: lengths, bytes: taken }
            }
        };
        let validity = self.validity.as_deref().and_then(|bitmap| {
            let mut bits = Bits::default();
            for row in positions {
                bits.extend(Some(Bitmap(bitmap)), *row, row + 1);
            }
            bits.into_bitmap()
        });
        Self { rows: positions.len(), values, validity }
    }
}

/// Appends runs of rows, ascending.
struct Reader<'a, F, B> {
    column: &'a ColumnIndex,
    fetch: F,
    rows: usize,
    offsets: Vec<u64>,
    shapes: Vec<u32>,
    bytes: Vec<u8>,
    bits: Bits,
    /// Rank of the decoded shapes of media; `None` once rows differ.
    media: Option<usize>,
    /// The block that was decoded last, and its raw bytes.
    block: Option<usize>,
    raw: Vec<u8>,
    /// The validity block that was checked last.
    bitmap: Option<(u64, B)>,
}

impl<'a, F, B, E> Reader<'a, F, B>
where
    F: FnMut(&Block) -> Result<B, E>,
    B: AsRef<[u8]>,
    E: From<Error>,
{
    fn new(column: &'a ColumnIndex, fetch: F) -> Self {
        Self {
            column,
            fetch,
            rows: 0,
            offsets: vec![0],
            shapes: Vec::new(),
            bytes: Vec::new(),
            bits: Bits::default(),
            media: Some(0),
            block: None,
            raw: Vec::new(),
            bitmap: None,
        }
    }

    fn run(&mut self, rows: Range<u32>) -> Result<(), E> {
        self.run_validity(rows.clone())?;
        match self.column.layout {
            Layout::Fixed { row_bytes } => self.run_fixed(&rows, row_bytes as u64)?,
            Layout::Ragged { rank } => {
                self.run_ragged(&rows)?;
                self.check_rows(&rows, rank)?;
            }
        }
        self.rows += rows.len();
        Ok(())
    }

    fn finish(mut self) -> ColumnData {
        if self.media.is_none() {
            self.shapes.clear();
        }
        let values = match self.column.layout {
            Layout::Fixed { .. } => OwnedValues::Fixed(self.bytes),
            Layout::Ragged { .. } => {
                OwnedValues::Ragged { offsets: self.offsets, shapes: self.shapes, bytes: self.bytes }
            }
        };
        ColumnData { rows: self.rows, values, validity: self.bits.into_bitmap() }
    }

    /// Decodes `block` into `raw`, unless it is there.
    fn load(&mut self, block: usize, place: &Block) -> Result<(), E> {
        if self.block == Some(block) {
            return Ok(());
        }
        self.block = None;
        self.raw.clear();
        let stored = (self.fetch)(place)?;
        self.column.decode_block(block, stored.as_ref(), &mut self.raw)?;
        self.block = Some(block);
        Ok(())
    }

    fn run_fixed(&mut self, rows: &Range<u32>, row_bytes: u64) -> Result<(), E> {
        let (start, end) = (u64::from(rows.start) * row_bytes, u64::from(rows.end) * row_bytes);
        for block in self.column.blocks_of(rows.clone()) {
            let place = self.column.block(block);
            let first = u64::from(place.first_row) * row_bytes + u64::from(place.part);
            let (from, to) = (start.max(first) - first, end.min(first + u64::from(place.raw)) - first);
            if from == 0 && to == u64::from(place.raw) && self.block != Some(block) {
                let stored = (self.fetch)(&place)?;
                self.column.decode_block(block, stored.as_ref(), &mut self.bytes)?;
                continue;
            }
            self.load(block, &place)?;
            self.bytes.extend_from_slice(&self.raw[from as usize..to as usize]);
        }
        Ok(())
    }

    fn run_ragged(&mut self, rows: &Range<u32>) -> Result<(), E> {
        let column = self.column;
        // What is still to come of a row that goes on in other blocks.
        let mut missing = 0;
        for block in column.blocks_of(rows.clone()) {
            let place = column.block(block);
            let wrong = |reason| Error::Corrupt { what: column.describe(block, &place), offset: place.offset, reason };
            self.load(block, &place)?;
            if place.rows == 0 {
                if self.raw.len() > missing {
                    return Err(wrong(format!("{missing} bytes of its row are due, it has {}", self.raw.len())).into());
                }
                missing -= self.raw.len();
                self.bytes.extend_from_slice(&self.raw);
                continue;
            }
            if missing > 0 {
                return Err(wrong(format!("{missing} bytes of the row before are missing")).into());
            }
            let parsed = column.ragged_block(block, &self.raw)?;
            let first = rows.start.max(place.first_row) - place.first_row;
            let end = rows.end.min(place.first_row + place.rows) - place.first_row;
            for row in first as usize..end as usize {
                let value = parsed.value(row);
                self.bytes.extend_from_slice(value);
                missing = parsed.len_of(row) - value.len();
                self.offsets.push((self.bytes.len() + missing) as u64);
                self.shapes.extend(parsed.shape(row));
            }
        }
        if missing > 0 {
            let what = format!("row {} of column '{}'", rows.end - 1, column.name);
            let reason = format!("its last {missing} bytes are missing");
            return Err(Error::Corrupt { what, offset: 0, reason }.into());
        }
        if column.dtype == DType::Bytes {
            self.run_media(rows);
        }
        Ok(())
    }

    fn run_media(&mut self, rows: &Range<u32>) {
        for (index, row) in rows.clone().enumerate() {
            let shape = self.column.media_shape(row).unwrap_or_default();
            if self.rows + index == 0 {
                self.media = Some(shape.len());
            } else if self.media != Some(shape.len()) {
                self.media = None;
                return;
            }
            self.shapes.extend_from_slice(shape);
        }
    }

    /// Checks the rows just read: text is UTF-8, and lengths are what the shapes say.
    fn check_rows(&self, rows: &Range<u32>, rank: usize) -> Result<()> {
        let column = self.column;
        let wrong = |row: usize, reason| {
            let (row, name) = (rows.start as usize + row, &column.name);
            Err(Error::Corrupt { what: format!("row {row} of column '{name}'"), offset: 0, reason })
        };
        let offsets = &self.offsets[self.rows..];
        let row_of = |row: usize| &self.bytes[offsets[row] as usize..offsets[row + 1] as usize];
        match column.dtype {
            DType::Utf8 | DType::Json => {
                for row in 0..rows.len() {
                    if std::str::from_utf8(row_of(row)).is_err() {
                        return wrong(row, "it is not UTF-8".into());
                    }
                }
            }
            // Who follows links looks at them, one by one.
            DType::Bytes | DType::Link => {}
            _ => {
                for row in 0..rows.len() {
                    let shape = &self.shapes[(self.rows + row) * rank..(self.rows + row + 1) * rank];
                    let size = shape
                        .iter()
                        .try_fold(column.item() as u64, |size, length| size.checked_mul(u64::from(*length)));
                    let fits = shape.iter().zip(&column.shape).all(|(length, dim)| match dim {
                        Dim::Fixed(fixed) => fixed == length,
                        Dim::Free => true,
                    });
                    let length = row_of(row).len();
                    // A null row is empty, whatever its shape.
                    if (!fits || size != Some(length as u64)) && (length > 0 || !column.nullable) {
                        return wrong(row, format!("{length} bytes of shape {shape:?}"));
                    }
                }
            }
        }
        Ok(())
    }

    fn run_validity(&mut self, rows: Range<u32>) -> Result<(), E> {
        let mut next = rows.start;
        for block in self.column.validity_blocks_of(rows.clone()) {
            let covered = block.row_range();
            let (from, to) = (covered.start.max(rows.start), covered.end.min(rows.end));
            self.bits.extend(None, next as usize, from as usize);
            if self.bitmap.as_ref().is_none_or(|(offset, _)| *offset != block.offset) {
                let stored = (self.fetch)(block)?;
                self.column.check_validity(block, stored.as_ref())?;
                self.bitmap = Some((block.offset, stored));
            }
            if let Some((_, stored)) = &self.bitmap {
                let bitmap = Some(Bitmap(stored.as_ref()));
                self.bits.extend(bitmap, (from - covered.start) as usize, (to - covered.start) as usize);
            }
            next = to;
        }
        self.bits.extend(None, next as usize, rows.end as usize);
        Ok(())
    }
}
