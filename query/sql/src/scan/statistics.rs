//! What the optimiser is told of a table: rows exactly, bounds of columns from their chunks.

use arrow::datatypes::SchemaRef;
use datafusion::common::{ColumnStatistics, ScalarValue, Statistics, stats::Precision};
use forebay_format::{Bound, Column, DType};
use forebay_versioning::Table;

use super::{plan::Scan, prune::scalar};
use crate::{Result, types};

/// Nothing but a number of rows.
pub(crate) fn rows_only(schema: &SchemaRef, rows: u64) -> Statistics {
    Statistics { num_rows: Precision::Exact(rows as usize), ..Statistics::new_unknown(schema) }
}

/// What is known of a scan's output: exactly where it gives all rows of the table as they were written.
pub(crate) fn of(scan: &Scan, schema: &SchemaRef) -> Statistics {
    let whole = scan.filters.is_empty() && scan.limit.is_none();
    let rows = scan.estimate.rows.min(scan.limit.map_or(u64::MAX, |limit| limit as u64)) as usize;
    let num_rows = if scan.filters.is_empty() { Precision::Exact(rows) } else { Precision::Inexact(rows) };
    let columns = scan.projection.iter().map(|number| match scan.table.schema().columns.get(*number) {
        Some(column) => {
            let statistics = bounds(&scan.table, column).unwrap_or_default();
            if whole { statistics } else { statistics.to_inexact() }
        }
        None => ColumnStatistics::new_unknown(),
    });
    let column_statistics: Vec<_> = columns.collect();
    let widths = scan.projection.iter().filter_map(|number| scan.table.schema().columns.get(*number));
    let width: usize = widths.map(types::row_bytes).sum();
    debug_assert_eq!(column_statistics.len(), schema.fields().len());
    Statistics { num_rows, total_byte_size: Precision::Inexact(rows.saturating_mul(width)), column_statistics }
}

/// A number that no value of a column of `int64` exceeds, deleted ones included, by the statistics of its chunks; none if they
/// don't say.
pub(crate) async fn largest(table: &Table, column: &Column) -> Result<Option<i64>> {
    let plain = (0..table.fragments().len()).filter(|fragment| table.is_plain(*fragment, column.field));
    table.open_files(plain.map(|fragment| (fragment, column.field))).await?;
    Ok(match bounds(table, column).map(|bounds| bounds.max_value) {
        Some(Precision::Exact(ScalarValue::Int64(value)) | Precision::Inexact(ScalarValue::Int64(value))) => value,
        Some(Precision::Absent) => Some(0),
        _ => None,
    })
}

/// Smallest and largest value, and nulls, if every chunk of the table says so.
fn bounds(table: &Table, column: &Column) -> Option<ColumnStatistics> {
    if !column.shape.is_empty() {
        return None;
    }
    let data_type = types::element(column.dtype);
    let (mut min, mut max): (Option<ScalarValue>, Option<ScalarValue>) = (None, None);
    let (mut nulls, mut untouched) = (0_usize, true);
    for (number, fragment) in table.fragments().iter().enumerate() {
        if !table.is_plain(number, column.field) {
            return None;
        }
        untouched &= fragment.deleted.is_empty();
        let file = table.opened(number, column.field).ok()??;
        for chunk in file.index().column(column.field)?.chunks() {
            let stats = chunk.stats.as_ref()?;
            nulls += stats.nulls as usize;
            if stats.nulls == chunk.rows {
                continue;
            }
            if matches!(column.dtype, DType::F32 | DType::F64) && stats.nans != Some(0) {
                return None;
            }
            min = widen(min, &data_type, stats.min.as_ref()?, std::cmp::Ordering::Less)?;
            max = widen(max, &data_type, stats.max.as_ref()?, std::cmp::Ordering::Greater)?;
        }
    }
    // Bounds of texts are cut short, and those of zeros have both signs.
    let exact = untouched && !matches!(column.dtype, DType::Utf8 | DType::F32 | DType::F64);
    let precision = |value: Option<ScalarValue>| match value {
        Some(value) if exact => Precision::Exact(value),
        Some(value) => Precision::Inexact(value),
        None => Precision::Absent,
    };
    let null_count = if untouched { Precision::Exact(nulls) } else { Precision::Inexact(nulls) };
    Some(ColumnStatistics {
        null_count,
        min_value: precision(min),
        max_value: precision(max),
        ..ColumnStatistics::new_unknown()
    })
}

#[expect(clippy::option_option, reason = "a bound that can't be taken, none yet, and one")]
fn widen(
    known: Option<ScalarValue>,
    data_type: &arrow::datatypes::DataType,
    bound: &Bound,
    toward: std::cmp::Ordering,
) -> Option<Option<ScalarValue>> {
    let bound = scalar(data_type, bound)?;
    Some(Some(match known {
        Some(known) if bound.partial_cmp(&known)? != toward => known,
        _ => bound,
    }))
}
