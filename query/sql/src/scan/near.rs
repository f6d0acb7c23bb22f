//! The nearest vectors through an index: which rows a scan looks at, instead of all.

use std::{fmt, sync::Arc};

use arrow::{array::AsArray, datatypes::Float32Type};
use datafusion::{
    logical_expr::ColumnarValue,
    physical_expr::{PhysicalExpr, PhysicalSortExpr, ScalarFunctionExpr, expressions::Column},
};

use super::{exec::Reader, plan::Scan, read::Left};
use crate::{
    Result,
    functions::{Metric, Scalar, vector},
    index::{Candidate, Vectors},
};

/// A search in an index.
pub(crate) struct Near {
    index: Arc<Vectors>,
    metric: Metric,
    query: Arc<[f32]>,
    probes: usize,
    threads: usize,
}

/// What a search found.
#[derive(Default)]
pub(crate) struct Found {
    /// The nearest rows of the fragments that the index covers.
    pub(crate) rows: Vec<u64>,
    /// Which fragments these are: the others are still to be looked at.
    pub(crate) covered: Vec<bool>,
}

impl fmt::Display for Near {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} probes)", self.index.name, self.probes)
    }
}

impl Near {
    /// The search that an order asks for, if there is an index for it; `keys` are in terms of `scan`'s schema.
    pub(crate) fn of(scan: &Scan, keys: &[PhysicalSortExpr]) -> Option<Self> {
        let [PhysicalSortExpr { expr, options }] = keys else { return None };
        let function = expr.downcast_ref::<ScalarFunctionExpr>().filter(|_| !options.descending)?;
        let (metric, name, query) = asked(function)?;
        let column = scan.table.schema().column(name).ok()?;
        let index = scan.indexes.vectors.iter().find(|index| index.of.field == column.field)?;
        if query.len() != index.length {
            return None;
        }
        // Few rows are left by what is known of chunks: to look at them is less work than to search.
        if scan.estimate.rows.saturating_mul(FEW) < scan.table.rows() {
            return None;
        }
        let probes = scan.probes.unwrap_or(index.probes).max(1);
        Some(Self { index: index.clone(), metric, query, probes, threads: scan.threads })
    }

    /// Searches for so many rows.
    pub(crate) async fn search(&self, reader: &Reader, wanted: usize) -> Result<Found> {
        let table = &reader.scan.table;
        let covered = self.index.covered(table).await?;
        let asked = (self.metric, &self.query);
        let mut cells = self.index.cells(asked, self.threads).await?;
        let (mut best, mut looked): (Vec<Candidate>, usize) = (Vec::new(), 0);
        let (mut rest, mut probes) = (&mut cells[..], self.probes);
        while !rest.is_empty() && best.len() < wanted {
            if probes < rest.len() {
                rest.select_nth_unstable_by(probes, order);
            }
            let (next, behind) = rest.split_at_mut(probes.min(rest.len()));
            let mut found = self.index.candidates(table, &covered, next, asked, self.threads).await?;
            looked += found.len();
            if reader.scan.filters.is_empty() {
                nearest(&mut found, wanted);
            } else {
                sort(&mut found);
            }
            best.extend(passing(reader, found, wanted).await?);
            rest = behind;
            // A filter that keeps few rows costs less before the distances than after them.
            if best.len() < wanted && looked as u64 * 4 > table.rows() {
                break;
            }
            probes *= 2;
        }
        if best.len() < wanted {
            // Rows without a vector may belong to the answer, and no index has them.
            return Ok(Found { rows: Vec::new(), covered: vec![false; covered.len()] });
        }
        sort(&mut best);
        best.truncate(wanted);
        Ok(Found { rows: best.into_iter().map(|(_, row)| row).collect(), covered })
    }
}

/// A table with more rows than this many times what is left of it is not searched but looked through.
const FEW: u64 = 16;

/// Nearest first, each row once.
fn sort(found: &mut Vec<Candidate>) {
    found.sort_unstable_by(order);
    found.dedup();
}

fn order<T: Ord>(a: &(f64, T), b: &(f64, T)) -> std::cmp::Ordering {
    a.0.total_cmp(&b.0).then(a.1.cmp(&b.1))
}

/// Leaves the `wanted` nearest rows, nearest first, each once.
fn nearest(found: &mut Vec<Candidate>, wanted: usize) {
    if wanted > 0 && found.len() > wanted {
        let (near, _, _) = found.select_nth_unstable_by(wanted, order);
        let mut near = near.to_vec();
        sort(&mut near);
        if near.len() == wanted {
            *found = near;
            return;
        }
    }
    // An index that was merged may have a row twice.
    sort(found);
    found.truncate(wanted);
}

/// The nearest of some rows, nearest first, that a scan's filters keep: as many as are wanted.
async fn passing(reader: &Reader, found: Vec<Candidate>, wanted: usize) -> Result<Vec<Candidate>> {
    if reader.scan.filters.is_empty() {
        return Ok(found.into_iter().take(wanted).collect());
    }
    let mut kept = Vec::new();
    for part in found.chunks((4 * wanted).max(1_024)) {
        let mut rows: Vec<u64> = part.iter().map(|(_, row)| *row).collect();
        rows.sort_unstable();
        let left = reader.filtered(Left::List(rows)).await?.rows;
        let left: std::collections::HashSet<u64> = left.iter().collect();
        kept.extend(part.iter().filter(|(_, row)| left.contains(row)));
        if kept.len() >= wanted {
            break;
        }
    }
    kept.truncate(wanted);
    Ok(kept)
}

/// A distance between a column and a vector: its metric, the column's name and the vector.
fn asked(function: &ScalarFunctionExpr) -> Option<(Metric, &str, Arc<[f32]>)> {
    fn column(argument: &Arc<dyn PhysicalExpr>) -> Option<&str> {
        Some(argument.downcast_ref::<Column>()?.name())
    }
    match function.args() {
        [argument] => {
            let (metric, query) = function.fun().inner().downcast_ref::<Scalar>()?.near.clone()?;
            Some((metric, column(argument)?, query))
        }
        [a, b] => {
            let metric = Metric::named(function.name())?;
            let (name, other) = column(a).map(|name| (name, b)).or_else(|| Some((column(b)?, a)))?;
            Some((metric, name, constant(other)?))
        }
        _ => None,
    }
}

/// The vector that an expression without columns is.
fn constant(expr: &Arc<dyn PhysicalExpr>) -> Option<Arc<[f32]>> {
    if !super::stage::columns_of(expr).is_empty() {
        return None;
    }
    let empty = arrow::array::RecordBatch::new_empty(Arc::new(arrow::datatypes::Schema::empty()));
    let ColumnarValue::Scalar(value) = expr.evaluate(&empty).ok()? else { return None };
    let values = vector::numbers_of(&value)?;
    Some(values.as_primitive::<Float32Type>().values().iter().copied().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_are_those_of_a_whole_sort() {
        for twice in [1, 7] {
            let found: Vec<Candidate> =
                (0..500_u64).map(|row| (((row / twice * 193) % 71) as f64, row / twice)).collect();
            for wanted in [0, 1, 10, 70, 499, 500, 600] {
                let (mut whole, mut some) = (found.clone(), found.clone());
                sort(&mut whole);
                whole.truncate(wanted);
                nearest(&mut some, wanted);
                assert_eq!(some, whole, "{wanted} of rows that are there {twice} times");
            }
        }
    }
}
