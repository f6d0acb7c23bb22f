//! Rows of a table, by range or by list.

use std::{collections::BTreeMap, ops::Range, sync::Arc};

use bytes::Bytes;
use forebay_format::{Bitmap, Block, Column, ColumnData, ColumnIndex, OwnedValues, RowSet};
use forebay_storage::Storage;

use crate::{Error, Location, OpenFile, Result, Table, Verify};

impl Table {
    /// Rows `rows` of a column, in order.
    ///
    /// # Errors
    /// [`Error::Data`] for an unknown column, [`Error::RowOutOfRange`]; [`Error::Object`], [`Error::Missing`] or
    /// [`Error::Inconsistent`] if the lake is damaged; and what the store reports.
    pub async fn read(&self, column: &str, rows: Range<u64>) -> Result<ColumnData> {
        let column = self.schema().column(column)?;
        if rows.start >= rows.end {
            return Ok(empty(column));
        }
        let (first, last) = (self.locate(rows.start)?, self.locate(rows.end - 1)?);
        let mut pieces = Vec::new();
        for fragment in first.fragment..=last.fragment {
            let start = self.first_row(fragment);
            let (from, to) = (rows.start.max(start), rows.end.min(self.first_row(fragment + 1)));
            if from < to {
                let (from, to) = (self.locate(from)?.row, self.locate(to - 1)?.row);
                let live = RowSet::range(from..to + 1).subtract(&self.fragments()[fragment].deleted);
                pieces.push(self.cells(column, fragment, &live).await?);
            }
        }
        Ok(concat(column, pieces))
    }

    /// The rows of a column whose numbers are in `rows`, in that order; a row may come more than once.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub async fn take(&self, column: &str, rows: &[u64]) -> Result<ColumnData> {
        let column = self.schema().column(column)?;
        let mut sorted = rows.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        if sorted.is_empty() {
            return Ok(empty(column));
        }
        self.locate(sorted[sorted.len() - 1])?;
        let mut pieces = Vec::new();
        let mut rest = sorted.as_slice();
        while let Some(first) = rest.first() {
            let fragment = self.locate(*first)?.fragment;
            let (here, behind) = rest.split_at(rest.partition_point(|row| *row < self.first_row(fragment + 1)));
            let deleted = &self.fragments()[fragment].deleted;
            let start = self.first_row(fragment);
            let local = here.iter().map(|row| deleted.get_missing((row - start) as u32));
            pieces.push(self.cells(column, fragment, &RowSet::of(local.collect())).await?);
            rest = behind;
        }
        let read = concat(column, pieces);
        if sorted == rows {
            return Ok(read);
        }
        let positions: Vec<usize> = rows.iter().map(|row| sorted.partition_point(|other| other < row)).collect();
        Ok(read.take(&positions))
    }

    /// A column's values in rows of a fragment, deleted ones among them, in ascending order.
    pub(crate) async fn cells(&self, column: &Column, fragment: usize, rows: &RowSet) -> Result<ColumnData> {
        match self.stored(column, fragment, rows).await {
            // A file that was open and is gone now: somebody erased rows of it.
            Err(Error::Storage(forebay_storage::Error::NotFound { path, .. })) => {
                let referrer = format!("table '{}' of commit {}", self.name(), self.snapshot().id());
                Err(self.snapshot().explain(Error::Missing { path, referrer }).await)
            }
            stored => stored,
        }
    }

    async fn stored(&self, column: &Column, fragment: usize, rows: &RowSet) -> Result<ColumnData> {
        if rows.is_empty() {
            return Ok(empty(column));
        }
        if self.is_plain(fragment, column.field) {
            return Source::of(self.file(fragment, column.field).await?, column)?.set(self.storage(), rows).await;
        }
        // From each source the rows it has, and where they belong.
        let mut sources: BTreeMap<usize, Vec<(u32, usize)>> = BTreeMap::new();
        for (place, row) in rows.iter().enumerate() {
            let cell = self.cell(Location { fragment, row }, column.field);
            sources.entry(cell.fragment).or_default().push((cell.row, place));
        }
        let mut positions = vec![0; rows.len() as usize];
        let (mut pieces, mut before) = (Vec::new(), 0);
        for (source, cells) in sources {
            let wanted = RowSet::of(cells.iter().map(|(row, _)| *row).collect());
            for (row, place) in cells {
                positions[place] = before + wanted.rank(row) as usize;
            }
            before += wanted.len() as usize;
            let file = Source::of(self.file(source, column.field).await?, column)?;
            pieces.push(file.set(self.storage(), &wanted).await?);
        }
        let read = concat(column, pieces);
        let sorted = read.rows == positions.len() && positions.is_sorted();
        Ok(if sorted { read } else { read.take(&positions) })
    }

    /// Copies a row of a column of fixed shape into `out` without a detour, if its file is open, mapped and uncompressed:
    /// the way of few instructions to a single row. Gives whether it did.
    ///
    /// # Errors
    /// As [`read`](Self::read); [`Error::Inconsistent`] if `out` isn't of the row's size.
    pub fn copy_row(&self, column: &Column, row: u64, out: &mut [u8]) -> Result<bool> {
        let location = self.cell(self.locate(row)?, column.field);
        let Some(file) = self.opened(location.fragment, column.field)? else { return Ok(false) };
        let Some(position) = file.position(column.field) else { return Ok(false) };
        let index = &file.index().columns()[position];
        if file.map().is_none() || index.direct().is_none() || column.nullable {
            return Ok(false);
        }
        file.copy_rows(position, location.row..location.row + 1, out, Verify::First)?;
        Ok(true)
    }
}

/// A column in an open file.
struct Source {
    file: Arc<OpenFile>,
    position: usize,
}

impl Source {
    fn of(file: Arc<OpenFile>, column: &Column) -> Result<Self> {
        match file.position(column.field) {
            Some(position) => Ok(Self { file, position }),
            None => Err(Error::Inconsistent {
                path: file.path().to_owned(),
                reason: format!("it lacks column '{}'", column.name),
            }),
        }
    }

    fn index(&self) -> &ColumnIndex {
        &self.file.index().columns()[self.position]
    }

    /// The bytes of a row, if rows can be copied from the map and none of them is null.
    fn mapped(&self) -> Option<usize> {
        let whole = self.index().validity_blocks_of(0..self.index().rows()).is_empty();
        if whole && self.file.map().is_some() { self.index().direct() } else { None }
    }

    async fn set(&self, storage: &Storage, rows: &RowSet) -> Result<ColumnData> {
        let mut runs = rows.runs();
        match (runs.next(), runs.next()) {
            (Some(run), None) => self.range(storage, run).await,
            _ => self.list(storage, &rows.iter().collect::<Vec<_>>()).await,
        }
    }

    async fn range(&self, storage: &Storage, rows: Range<u32>) -> Result<ColumnData> {
        if let Some(row_bytes) = self.mapped() {
            let mut bytes = vec![0; rows.len() * row_bytes];
            self.file.copy_rows(self.position, rows.clone(), &mut bytes, Verify::First)?;
            return Ok(ColumnData { rows: rows.len(), values: OwnedValues::Fixed(bytes), validity: None });
        }
        let decode = |fetched: &Fetched| self.index().read_rows(rows.clone(), |block| fetched.block(block));
        self.decoded(storage, self.index().ranges_of(rows.clone()), decode).await
    }

    /// Rows in ascending order, each once.
    async fn list(&self, storage: &Storage, rows: &[u32]) -> Result<ColumnData> {
        if let Some(row_bytes) = self.mapped() {
            let mut bytes = vec![0; rows.len() * row_bytes];
            for (row, out) in rows.iter().zip(bytes.chunks_exact_mut(row_bytes.max(1))) {
                self.file.copy_rows(self.position, *row..row + 1, out, Verify::First)?;
            }
            return Ok(ColumnData { rows: rows.len(), values: OwnedValues::Fixed(bytes), validity: None });
        }
        let runs = rows.chunk_by(|row, next| row + 1 == *next);
        let ranges = runs.flat_map(|run| self.index().ranges_of(run[0]..run[0] + run.len() as u32)).collect();
        self.decoded(storage, ranges, |fetched| self.index().read_list(rows, |block| fetched.block(block))).await
    }

    /// Fetches ranges and decodes them; once more, if they are wrong and there are copies that may be right.
    async fn decoded(
        &self,
        storage: &Storage,
        ranges: Vec<Range<u64>>,
        decode: impl Fn(&Fetched) -> Result<ColumnData> + Send,
    ) -> Result<ColumnData> {
        let mut decoded = decode(&self.fetch(storage, ranges.clone()).await?);
        if decoded.is_err() && storage.has_copies() {
            storage.distrust(self.file.path());
            decoded = decode(&self.fetch(storage, ranges).await?);
        }
        decoded.map_err(|error| self.named(error))
    }

    async fn fetch(&self, storage: &Storage, mut ranges: Vec<Range<u64>>) -> Result<Fetched> {
        // Rows of one block share its range, and value blocks and bitmaps of a chunk come by turns.
        ranges.sort_by_key(|range| (range.start, range.end));
        ranges.dedup();
        let mut joined: Vec<Range<u64>> = Vec::with_capacity(ranges.len());
        for range in ranges {
            match joined.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => joined.push(range),
            }
        }
        let bytes = storage.get_ranges(self.file.path(), &joined).await?;
        Ok(Fetched { path: self.file.path().to_owned(), ranges: joined, bytes })
    }

    /// Says which object a decoder's error is about.
    fn named(&self, error: Error) -> Error {
        match error {
            Error::Data(source) => Error::object(self.file.path())(source),
            other => other,
        }
    }
}

/// A column's values in rows of a file, ascending.
pub(crate) async fn rows_of_file(
    storage: &Storage,
    file: Arc<OpenFile>,
    column: &Column,
    rows: &RowSet,
) -> Result<ColumnData> {
    if rows.is_empty() {
        return Ok(empty(column));
    }
    Source::of(file, column)?.set(storage, rows).await
}

/// Ranges of a file in memory.
struct Fetched {
    path: String,
    ranges: Vec<Range<u64>>,
    bytes: Vec<Bytes>,
}

impl Fetched {
    fn block(&self, block: &Block) -> Result<Bytes> {
        let wanted = block.range();
        let place = self.ranges.partition_point(|range| range.start <= wanted.start).checked_sub(1);
        match place.map(|place| (&self.ranges[place], &self.bytes[place])) {
            Some((range, bytes)) if wanted.end <= range.end => {
                Ok(bytes.slice((wanted.start - range.start) as usize..(wanted.end - range.start) as usize))
            }
            _ => Err(Error::Inconsistent {
                path: self.path.clone(),
                reason: format!("bytes {wanted:?} were needed and not planned"),
            }),
        }
    }
}

pub(crate) fn empty(column: &Column) -> ColumnData {
    let values = match column.layout() {
        forebay_format::Layout::Fixed { .. } => OwnedValues::Fixed(Vec::new()),
        forebay_format::Layout::Ragged { .. } => {
            OwnedValues::Ragged { offsets: vec![0], shapes: Vec::new(), bytes: Vec::new() }
        }
    };
    ColumnData { rows: 0, values, validity: None }
}

/// Pieces of a column as one.
pub(crate) fn concat(column: &Column, mut pieces: Vec<ColumnData>) -> ColumnData {
    if pieces.len() == 1
        && let Some(piece) = pieces.pop()
    {
        return piece;
    }
    let mut all = empty(column);
    // Decoded shapes of media are kept only if every piece has them alike.
    let ranks: Vec<usize> = pieces.iter().map(rank).collect();
    let shaped = ranks.windows(2).all(|pair| pair[0] == pair[1]);
    let nulls = pieces.iter().any(|piece| piece.validity.is_some());
    let mut bits = Vec::new();
    for piece in pieces {
        if nulls {
            for row in 0..piece.rows {
                let at = all.rows + row;
                bits.resize(at / 8 + 1, 0_u8);
                let valid = piece.validity.as_deref().is_none_or(|validity| Bitmap(validity).get(row));
                bits[at / 8] |= u8::from(valid) << (at % 8);
            }
        }
        all.rows += piece.rows;
        match (&mut all.values, piece.values) {
            (OwnedValues::Fixed(bytes), OwnedValues::Fixed(more)) => bytes.extend_from_slice(&more),
            (
                OwnedValues::Ragged { offsets, shapes, bytes },
                OwnedValues::Ragged { offsets: ends, shapes: lengths, bytes: more },
            ) => {
                let base = bytes.len() as u64;
                offsets.extend(ends[1..].iter().map(|end| base + end));
                bytes.extend_from_slice(&more);
                if shaped {
                    shapes.extend(lengths);
                }
            }
            // Both are of the column's layout, which its file was checked to have.
            _ => {}
        }
    }
    all.validity = nulls.then_some(bits);
    all
}

fn rank(piece: &ColumnData) -> usize {
    match &piece.values {
        OwnedValues::Ragged { shapes, .. } => shapes.len().checked_div(piece.rows).unwrap_or(0),
        OwnedValues::Fixed(_) => 0,
    }
}
