//! The scan.

use std::ops::Range;

use forebay_format::{Column, ColumnData, FieldId, Layout};
use forebay_versioning::{Selection, Table};
use futures::{StreamExt as _, TryStreamExt as _, future::try_join_all, stream};

use crate::{Error, Result, plan, runs::Runs};

/// A column of a batch, with its description.
#[derive(Clone, Copy, Debug)]
pub struct NamedColumn<'a> {
    /// Name, dtype, shape, kind.
    pub column: &'a Column,
    /// The batch's rows of it.
    pub data: &'a ColumnData,
}

/// How a table is scanned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScanOptions {
    /// Bytes that the rows of a batch and of the one read ahead may take in memory together, 64 MiB by default. A single
    /// row that takes more is still read, alone.
    pub memory: u64,
}

impl Default for ScanOptions {
    fn default() -> Self {
        Self { memory: 64 << 20 }
    }
}

impl ScanOptions {
    /// These options with another bound on memory, in bytes.
    #[must_use]
    pub fn with_memory(mut self, bytes: u64) -> Self {
        self.memory = bytes;
        self
    }
}

/// Batches held at once: the predicate's, and the one that is read meanwhile.
const BATCHES: u64 = 2;

/// Asks `predicate` about every row of `table` and selects those that it wants, in the table's order.
///
/// The predicate gets the columns named by `columns`, in that order, a batch of rows at a time in ascending order, and
/// answers with one bool a row. Only the bytes of these columns are read, at most `options.memory` of them are held.
///
/// # Errors
/// [`Error::NoColumns`] if none is named; [`Error::Mask`] and [`Error::Predicate`] if the predicate misbehaves or fails;
/// [`Error::Lake`] for an unknown column and whatever reading reports.
pub async fn select<E>(
    table: &Table,
    columns: &[&str],
    options: ScanOptions,
    mut predicate: impl FnMut(&[NamedColumn<'_>]) -> Result<Vec<bool>, E>,
) -> Result<Selection>
where
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let columns = columns.iter().map(|name| table.schema().column(name)).collect::<Result<Vec<_>, _>>();
    let columns = columns.map_err(forebay_versioning::Error::from)?;
    if columns.is_empty() {
        let known = table.schema().columns.iter().map(|column| column.name.clone()).collect();
        return Err(Error::NoColumns { table: table.name().to_owned(), known });
    }
    let mut runs = Runs::default();
    for fragment in 0..table.fragments().len() {
        let batches = batches(table, fragment, &columns, options.memory / BATCHES).await?;
        let mut read = stream::iter(batches).map(|rows| read(table, &columns, rows)).buffered(BATCHES as usize);
        while let Some((rows, data)) = read.try_next().await? {
            let named = |(column, data)| NamedColumn { column, data };
            let named: Vec<_> = columns.iter().copied().zip(&data).map(named).collect();
            let mask = predicate(&named).map_err(|error| Error::Predicate {
                table: table.name().to_owned(),
                rows: rows.clone(),
                source: error.into(),
            })?;
            if mask.len() as u64 != rows.end - rows.start {
                return Err(Error::Mask { table: table.name().to_owned(), rows, found: mask.len() });
            }
            runs.add(rows.start, &mask);
        }
    }
    Ok(Selection::new(table.clone(), runs.into_rows(table.rows()))?)
}

async fn read(table: &Table, columns: &[&Column], rows: Range<u64>) -> Result<(Range<u64>, Vec<ColumnData>)> {
    let data = try_join_all(columns.iter().map(|column| table.read(&column.name, rows.clone()))).await?;
    Ok((rows, data))
}

/// The batches of a fragment, as rows of the table.
async fn batches(table: &Table, fragment: usize, columns: &[&Column], budget: u64) -> Result<Vec<Range<u64>>> {
    let first = table.first_row(fragment);
    let weights = try_join_all(columns.iter().map(|column| Weight::of(table, fragment, column))).await?;
    let deleted = &table.fragments()[fragment].deleted;
    let weigh = |rows: Range<u32>| {
        // From the first to the last of these rows, deleted ones between them included.
        let stored = deleted.get_missing(rows.start)..deleted.get_missing(rows.end.saturating_sub(1)) + 1;
        weights.iter().map(|weight| weight.of_rows(&rows, &stored)).sum()
    };
    let local = plan::batches(0..table.fragments()[fragment].live(), budget, weigh);
    Ok(local.into_iter().map(|rows| first + u64::from(rows.start)..first + u64::from(rows.end)).collect())
}

/// What rows of a column take in memory.
enum Weight {
    Fixed(u64),
    /// As the file's index says: whole blocks, so a little more than the rows alone.
    Ragged(std::sync::Arc<forebay_versioning::OpenFile>, FieldId),
}

impl Weight {
    async fn of(table: &Table, fragment: usize, column: &Column) -> Result<Self> {
        Ok(match column.layout() {
            Layout::Fixed { row_bytes } => Self::Fixed(row_bytes as u64),
            // Rows that all have the default share one value in memory until they are put together.
            Layout::Ragged { .. }
                if !table.fragments()[fragment].files.iter().any(|f| f.fields.contains(&column.field)) =>
            {
                Self::Fixed(0)
            }
            Layout::Ragged { .. } => Self::Ragged(table.file(fragment, column.field).await?, column.field),
        })
    }

    fn of_rows(&self, rows: &Range<u32>, stored: &Range<u32>) -> u64 {
        match self {
            Self::Fixed(row_bytes) => rows.len() as u64 * row_bytes,
            Self::Ragged(file, field) => file.index().column(*field).map_or(0, |column| {
                let blocks = column.blocks_of(stored.clone());
                blocks.map(|block| u64::from(column.block(block).raw)).sum()
            }),
        }
    }
}
