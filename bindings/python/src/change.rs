//! Changes of a table, as Python names them, in one commit each; and merges.

use std::{collections::BTreeMap, ops::Range};

use forebay_format::{Bitmap, Column, ColumnData, ColumnSlice, OwnedValues, Values};
use forebay_versioning::{
    CompactOptions, MergeOptions, MergeOutcome, MergeReport, MergeSide, Policy, Rows, Selection, Snapshot, Table,
    TableDiff, Transaction,
};
use pyo3::{prelude::*, types::PyDict};

use crate::{
    append::Batch,
    error::{Error, Result},
    schema::{self, Plain},
    wait::block_on,
};

/// A change: what, and with what.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Change<'py> {
    what: String,
    #[pyo3(default)]
    rows: Option<Vec<u64>>,
    #[pyo3(default)]
    names: Option<Vec<String>>,
    #[pyo3(default)]
    column: Option<Vec<Plain>>,
    #[pyo3(default)]
    values: Option<Batch<'py>>,
    #[pyo3(default)]
    default: Option<Batch<'py>>,
}

impl Change<'_> {
    /// Commits it on top of a branch, for rows numbered as `base` numbers them, with a message and an author.
    pub(crate) fn commit(
        &self,
        py: Python<'_>,
        branch: &str,
        base: &Snapshot,
        table: &str,
        (message, author): (&str, &str),
    ) -> Result<Snapshot> {
        let values = self.values.as_ref().map(Batch::slices).transpose()?.unwrap_or_default();
        let values: Vec<ColumnData> = values.iter().map(owned).collect();
        let default = self.default.as_ref().map(Batch::slices).transpose()?.unwrap_or_default();
        let default = default.first().map(owned);
        let column = match &self.column {
            Some(plain) => schema::from_plain(plain.clone())?.columns.into_iter().next(),
            None => None,
        };
        let (rows, names) = (self.rows.clone().unwrap_or_default(), self.names.clone().unwrap_or_default());
        let plan = Plan { what: self.what.clone(), rows, names, values, column, default };
        block_on(py, || async {
            let mut transaction = base.lake().begin_at(branch, base).await?;
            let table = base.table(table).await?;
            plan.apply(&mut transaction, &table).await?;
            Ok::<_, Error>(transaction.commit(message, author).await?)
        })
    }
}

/// A change without anything of Python's.
struct Plan {
    what: String,
    rows: Vec<u64>,
    names: Vec<String>,
    values: Vec<ColumnData>,
    column: Option<Column>,
    default: Option<ColumnData>,
}

impl Plan {
    async fn apply(self, transaction: &mut Transaction, table: &Table) -> Result<()> {
        let Self { what, rows, names, values, column, default } = self;
        let selection = || Ok::<_, Error>(Selection::new(table.clone(), Rows::List(rows.into()))?);
        match (what.as_str(), &names[..], column) {
            ("delete", ..) => transaction.delete(&selection()?).map(drop)?,
            ("update", ..) => {
                let named = names.iter().zip(&values).map(|(name, data)| (name.as_str(), data.as_slice()));
                transaction.update(&selection()?, &named.collect::<Vec<_>>()).await?;
            }
            ("upsert", ..) => {
                let slices: Vec<ColumnSlice<'_>> = values.iter().map(ColumnData::as_slice).collect();
                transaction.upsert(table, &slices).await.map(drop)?;
            }
            ("add_column", _, Some(column)) => match values.into_iter().next() {
                Some(data) => {
                    let part =
                        |rows: Range<u64>| Ok(data.take(&(rows.start as usize..rows.end as usize).collect::<Vec<_>>()));
                    transaction.add_column_with(table, column, default.as_ref(), part).await?;
                }
                None => transaction.add_column(table, column, default.as_ref()).await?,
            },
            ("drop_column", [name], _) => transaction.drop_column(table, name)?,
            ("rename_column", [from, to], _) => transaction.rename_column(table, from, to)?,
            ("compact", ..) => transaction.compact(table, CompactOptions::default()).await.map(drop)?,
            (other, ..) => return Err(Error::internal(format!("there is no change '{other}'"))),
        }
        Ok(())
    }
}

fn owned(slice: &ColumnSlice<'_>) -> ColumnData {
    let values = match slice.values {
        Values::Fixed(bytes) => OwnedValues::Fixed(bytes.to_vec()),
        Values::Ragged { offsets, shapes, bytes } => {
            OwnedValues::Ragged { offsets: offsets.to_vec(), shapes: shapes.to_vec(), bytes: bytes.to_vec() }
        }
    };
    ColumnData { rows: slice.rows, values, validity: slice.validity.map(|Bitmap(bits)| bits.to_vec()) }
}

fn side(name: &str) -> Option<MergeSide> {
    match name {
        "ours" => Some(MergeSide::Ours),
        "theirs" => Some(MergeSide::Theirs),
        _ => None,
    }
}

/// How to merge: sides by column, and for everything else under no name.
pub(crate) fn merge_options(
    policy: Vec<(Option<String>, String)>,
    message: Option<String>,
    author: String,
    dry_run: bool,
) -> Result<MergeOptions> {
    let (mut columns, mut otherwise) = (BTreeMap::new(), None);
    for (column, name) in policy {
        let side = side(&name);
        if side.is_none() && name != "fail" {
            return Err(Error::argument(format!("a conflict is decided by 'ours', 'theirs' or 'fail', not '{name}'")));
        }
        match (column, side) {
            (Some(column), Some(side)) => {
                columns.insert(column, side);
            }
            (None, side) => otherwise = side,
            (Some(_), None) => {}
        }
    }
    let mut options = MergeOptions::by(&author).with_policy(Policy::Columns { columns, otherwise });
    options.message = message;
    options.dry_run = dry_run;
    Ok(options)
}

/// How a merge was done, and its conflicts.
pub(crate) fn describe(report: &MergeReport) -> (String, Vec<String>) {
    let outcome = match report.outcome {
        MergeOutcome::UpToDate => "up to date",
        MergeOutcome::FastForward => "fast forward",
        _ => "merged",
    };
    (outcome.to_owned(), report.conflicts.iter().map(ToString::to_string).collect())
}

pub(crate) fn diff_to_python<'py>(py: Python<'py>, diff: &TableDiff) -> PyResult<Bound<'py, PyDict>> {
    let names = |columns: &[Column]| columns.iter().map(|column| column.name.clone()).collect::<Vec<_>>();
    let entry = PyDict::new(py);
    entry.set_item("before", &diff.before)?;
    entry.set_item("after", &diff.after)?;
    entry.set_item("columns_added", names(&diff.columns_added))?;
    entry.set_item("columns_dropped", names(&diff.columns_dropped))?;
    let changed = diff.columns_changed.iter().map(|(old, new)| (old.name.clone(), new.name.clone()));
    entry.set_item("columns_changed", changed.collect::<Vec<_>>())?;
    entry.set_item("rows_added", diff.rows_added)?;
    entry.set_item("rows_deleted", diff.rows_deleted)?;
    entry.set_item("rows_changed", diff.rows_changed)?;
    Ok(entry)
}
