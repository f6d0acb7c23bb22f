//! What a scan will read: decided before it reads anything but indexes.

use std::{collections::BTreeSet, ops::Range, sync::Arc};

use arrow::datatypes::SchemaRef;
use datafusion::{physical_expr::PhysicalExpr, physical_expr::utils::conjunction};
use forebay_format::Column;
use forebay_versioning::Table;

use super::{
    prune::{Segment, Segments},
    stage::{self, Stage},
};
use crate::{Result, index::Indexes, types};

/// What is asked of a scan.
pub(crate) struct Wanted {
    pub(crate) schema: SchemaRef,
    /// Columns to give, by their number in `schema`.
    pub(crate) projection: Vec<usize>,
    /// What must be true of a row; columns are those of `schema`.
    pub(crate) filters: Vec<Arc<dyn PhysicalExpr>>,
    /// Rows that are enough.
    pub(crate) limit: Option<usize>,
    pub(crate) partitions: usize,
    pub(crate) indexes: Arc<Indexes>,
    pub(crate) probes: Option<usize>,
}

/// A scan, planned.
#[derive(Clone)]
pub(crate) struct Scan {
    pub(crate) table: Table,
    pub(crate) schema: SchemaRef,
    pub(crate) projection: Vec<usize>,
    pub(crate) filters: Vec<Arc<dyn PhysicalExpr>>,
    pub(crate) stages: Arc<Vec<Stage>>,
    pub(crate) limit: Option<usize>,
    /// The units of each partition, which are rows that are read and filtered together. All are in the order of the rows.
    pub(crate) units: Arc<Vec<Vec<Range<u64>>>>,
    pub(crate) estimate: Estimate,
    /// What can be searched instead of looked through, and how far.
    pub(crate) indexes: Arc<Indexes>,
    pub(crate) probes: Option<usize>,
    pub(crate) threads: usize,
}

/// What a scan is going to read, at most: large columns are read only for rows that the filters keep.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Estimate {
    pub(crate) rows: u64,
    pub(crate) chunks: u64,
    pub(crate) all_chunks: u64,
    /// Of the filters' columns, and of those that are given.
    pub(crate) filter_bytes: u64,
    pub(crate) output_bytes: u64,
}

/// Bytes that the columns of a unit which are read for all of its rows should take.
const UNIT_BYTES: usize = 8 << 20;
/// Rows of a unit, at most.
const UNIT_ROWS: usize = 64 << 10;
/// Rows of the first units of a scan that may end early.
const FIRST_ROWS: usize = 1 << 10;

impl Scan {
    pub(crate) async fn plan(table: Table, wanted: Wanted) -> Result<Self> {
        let Wanted { schema, projection, filters, limit, partitions, indexes, probes } = wanted;
        let columns = &table.schema().columns;
        let in_table = |number: &usize| columns.get(*number);
        let filtering: BTreeSet<usize> = filters.iter().flat_map(stage::columns_of).collect();
        let stages = stage::stages(&schema, columns, filters.clone())?;
        let eager: Vec<&Column> = if filters.is_empty() {
            projection.iter().filter_map(in_table).collect()
        } else {
            filtering.iter().filter_map(in_table).collect()
        };
        let mut scan = Self {
            schema,
            projection,
            filters,
            stages: Arc::new(stages),
            limit,
            units: Arc::default(),
            estimate: Estimate::default(),
            table: table.clone(),
            indexes,
            probes,
            threads: partitions,
        };
        let weight = eager.iter().map(|column| types::row_bytes(column)).sum::<usize>().max(1);
        let most = (UNIT_BYTES / weight).clamp(1, UNIT_ROWS);
        let first = if limit.is_some() { most.min(FIRST_ROWS) } else { most };
        let read: BTreeSet<usize> = filtering.iter().chain(&scan.projection).copied().collect();
        let read: Vec<Column> = read.iter().filter_map(in_table).cloned().collect();
        // Tensors are used where they lie, chunk by chunk.
        let widest = eager.iter().filter(|column| !column.shape.is_empty()).max_by_key(|c| types::row_bytes(c));
        let cuts = filtering.iter().filter_map(in_table).chain(widest.copied());
        let mut cuts: Vec<Column> = cuts.cloned().collect();
        cuts.dedup_by_key(|column| column.field);
        scan.open(&read).await?;
        let segments = Segments::of(&table, scan.schema.clone(), cuts).await?;
        let kept = if scan.filters.is_empty() {
            segments.all()
        } else {
            segments.kept(&conjunction(scan.filters.iter().cloned()))?
        };
        scan.estimate(&kept, &filtering)?;
        let mut made = 0;
        let mut units = Vec::new();
        for rows in live(&table, &kept, widest.is_none()) {
            units.extend(cut(rows, first, most, &mut made));
        }
        // Who wants few rows gets the first ones.
        let partitions = if limit.is_some() { 1 } else { partitions };
        scan.units = Arc::new(share(&units, partitions));
        Ok(scan)
    }

    /// Opens the files of columns in all fragments, many at once: their indexes are needed whatever is read.
    async fn open(&self, columns: &[Column]) -> Result<()> {
        let mut wanted = Vec::new();
        for fragment in 0..self.table.fragments().len() {
            let fields = columns.iter().map(|column| column.field);
            wanted.extend(fields.filter(|field| self.table.is_plain(fragment, *field)).map(|field| (fragment, field)));
        }
        Ok(self.table.open_files(wanted).await?)
    }

    fn estimate(&mut self, kept: &[Segment], filtering: &BTreeSet<usize>) -> Result<()> {
        let estimate = &mut self.estimate;
        for segment in kept {
            let deleted = &self.table.fragments()[segment.fragment].deleted;
            let rows = &segment.rows;
            estimate.rows += (rows.len() as u64) - u64::from(deleted.rank(rows.end) - deleted.rank(rows.start));
        }
        let read: BTreeSet<usize> = filtering.iter().chain(&self.projection).copied().collect();
        for (number, column) in
            read.iter().filter_map(|number| Some((number, self.table.schema().columns.get(*number)?)))
        {
            for fragment in 0..self.table.fragments().len() {
                if !self.table.is_plain(fragment, column.field) {
                    continue;
                }
                let Some(file) = self.table.opened(fragment, column.field)? else { continue };
                let Some(index) = file.index().column(column.field) else { continue };
                let here = kept.partition_point(|segment| segment.fragment < fragment);
                let here = &kept[here..];
                let here = &here[..here.partition_point(|segment| segment.fragment == fragment)];
                for chunk in index.chunks() {
                    estimate.all_chunks += 1;
                    let next = here.partition_point(|segment| segment.rows.end <= chunk.first_row);
                    if here.get(next).is_some_and(|segment| segment.rows.start < chunk.first_row + chunk.rows) {
                        estimate.chunks += 1;
                        let bytes = if filtering.contains(number) {
                            &mut estimate.filter_bytes
                        } else {
                            &mut estimate.output_bytes
                        };
                        *bytes += chunk.length;
                    }
                }
            }
        }
        Ok(())
    }
}

/// The rows of segments as the table numbers them, deleted ones left out; `join` joins neighbours.
fn live(table: &Table, segments: &[Segment], join: bool) -> Vec<Range<u64>> {
    let mut found: Vec<(usize, Range<u64>)> = Vec::new();
    for Segment { fragment, rows } in segments {
        let deleted = &table.fragments()[*fragment].deleted;
        let number = |row: u32| table.first_row(*fragment) + u64::from(row - deleted.rank(row));
        let rows = number(rows.start)..number(rows.end);
        match found.last_mut() {
            _ if rows.is_empty() => {}
            Some((last, run)) if join && last == fragment && run.end == rows.start => run.end = rows.end,
            _ => found.push((*fragment, rows)),
        }
    }
    found.into_iter().map(|(_, rows)| rows).collect()
}

/// Cuts rows into pieces that grow from `first` to `most`; `made` counts those of all calls.
fn cut(rows: Range<u64>, first: usize, most: usize, made: &mut u32) -> impl Iterator<Item = Range<u64>> {
    let mut start = rows.start;
    std::iter::from_fn(move || {
        if start >= rows.end {
            return None;
        }
        let size = first.saturating_mul(1 << (*made).min(16)).min(most);
        *made += 1;
        let piece = start..rows.end.min(start + size as u64);
        start = piece.end;
        Some(piece)
    })
}

/// Shares units among at most `partitions` partitions, each a run of about as many.
fn share(units: &[Range<u64>], partitions: usize) -> Vec<Vec<Range<u64>>> {
    let each = units.len().div_ceil(partitions.max(1)).max(1);
    let mut shared: Vec<Vec<Range<u64>>> = units.chunks(each).map(<[Range<u64>]>::to_vec).collect();
    if shared.is_empty() {
        shared.push(Vec::new());
    }
    shared
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_all_rows_and_grow() {
        let pieces: Vec<_> = cut(5..100, 10, 40, &mut 0).collect();
        assert_eq!(pieces, [5..15, 15..35, 35..75, 75..100]);
        assert_eq!(cut(3..3, 1, 1, &mut 0).count(), 0);
    }

    #[test]
    fn partitions_are_runs_of_units() {
        let units: Vec<Range<u64>> = (0..5).map(|unit| unit..unit + 1).collect();
        let sizes: Vec<usize> = share(&units, 2).iter().map(Vec::len).collect();
        assert_eq!(sizes, [3, 2]);
        assert_eq!(share(&[], 4).len(), 1);
    }
}
