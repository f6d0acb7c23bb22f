//! What differs between two versions: schemas, and rows by count and one by one.

use std::collections::VecDeque;

use forebay_format::{
    Column, FragmentId, RowSet, TableId,
    meta::{TableEntry, TableRoot},
};

use crate::{
    At, Lake, Result, RowId, Snapshot, leaf, manifest, snapshot,
    values::{Version, equal},
};

/// What differs in a table.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableDiff {
    /// The table.
    pub id: TableId,
    /// Its name before; `None` if it was created.
    pub before: Option<String>,
    /// Its name after; `None` if it was dropped.
    pub after: Option<String>,
    /// Columns that are new, as they are described after.
    pub columns_added: Vec<Column>,
    /// Columns that are gone.
    pub columns_dropped: Vec<Column>,
    /// Columns whose name or description changed: before and after.
    pub columns_changed: Vec<(Column, Column)>,
    /// Rows that are new.
    pub rows_added: u64,
    /// Rows that are gone.
    pub rows_deleted: u64,
    /// Rows that differ in a column that both versions have.
    pub rows_changed: u64,
}

/// Some rows that differ.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RowChanges {
    /// Rows that are new, as the version after names them.
    pub added: Vec<RowId>,
    /// Rows that are gone, as the version before names them.
    pub deleted: Vec<RowId>,
    /// Rows that differ: as the version before names them, as the one after does, and the columns (by their name after).
    pub changed: Vec<(RowId, RowId, Vec<String>)>,
}

/// The rows of a table that differ between two versions, some at a time.
pub struct RowDiff {
    before: Version,
    after: Version,
    leaves: VecDeque<FragmentId>,
}

impl Lake {
    /// What differs between two versions, by table; tables that are equal are left out. Values are read only where a row
    /// was updated on one side.
    ///
    /// # Errors
    /// As [`Lake::snapshot`] at both, and what reading reports.
    pub async fn diff(&self, before: &At, after: &At) -> Result<Vec<TableDiff>> {
        let (before, after) = (self.snapshot(before).await?, self.snapshot(after).await?);
        let mut diffs = Vec::new();
        for was in &before.commit().tables {
            let is = after.commit().tables.iter().find(|table| table.id == was.id);
            if is != Some(was) {
                diffs.push(self.diff_table(&before, Some(was), &after, is).await?);
            }
        }
        for is in &after.commit().tables {
            if !before.commit().tables.iter().any(|table| table.id == is.id) {
                diffs.push(self.diff_table(&before, None, &after, Some(is)).await?);
            }
        }
        Ok(diffs)
    }

    /// The rows of a table, by its name after or else before, that differ between two versions.
    ///
    /// # Errors
    /// [`Error::UnknownTable`](crate::Error::UnknownTable) if neither version has it; else as [`diff`](Self::diff).
    pub async fn diff_rows(&self, before: &At, after: &At, table: &str) -> Result<RowDiff> {
        let (before, after) = (self.snapshot(before).await?, self.snapshot(after).await?);
        let id = match after.entry(table) {
            Ok(entry) => entry.id,
            Err(_) => before.entry(table)?.id,
        };
        let of = |commit: &Snapshot| commit.commit().tables.iter().find(|table| table.id == id).cloned();
        let (was, is) = (of(&before), of(&after));
        RowDiff::new(self, &before, was.as_ref(), &after, is.as_ref()).await
    }

    async fn diff_table(
        &self,
        before: &Snapshot,
        was: Option<&TableEntry>,
        after: &Snapshot,
        is: Option<&TableEntry>,
    ) -> Result<TableDiff> {
        let mut rows = RowDiff::new(self, before, was, after, is).await?;
        let (old, new) = (&rows.before.root.schema.columns, &rows.after.root.schema.columns);
        let (old, new) = (if was.is_some() { &old[..] } else { &[] }, if is.is_some() { &new[..] } else { &[] });
        let missing = |from: &[Column], columns: &[Column]| -> Vec<Column> {
            let missing = columns.iter().filter(|column| !from.iter().any(|other| other.field == column.field));
            missing.cloned().collect()
        };
        let pairs =
            old.iter().flat_map(|old| new.iter().filter(|new| new.field == old.field).map(move |new| (old, new)));
        let mut diff = TableDiff {
            id: was.or(is).map_or(TableId::from_bytes([0; 16]), |entry| entry.id),
            before: was.map(|entry| entry.name.clone()),
            after: is.map(|entry| entry.name.clone()),
            columns_added: missing(old, new),
            columns_dropped: missing(new, old),
            columns_changed: pairs.filter(|(old, new)| old != new).map(|(a, b)| (a.clone(), b.clone())).collect(),
            rows_added: 0,
            rows_deleted: 0,
            rows_changed: 0,
        };
        while let Some(changes) = rows.next().await? {
            diff.rows_added += changes.added.len() as u64;
            diff.rows_deleted += changes.deleted.len() as u64;
            diff.rows_changed += changes.changed.len() as u64;
        }
        Ok(diff)
    }
}

impl RowDiff {
    async fn new(
        lake: &Lake,
        before: &Snapshot,
        was: Option<&TableEntry>,
        after: &Snapshot,
        is: Option<&TableEntry>,
    ) -> Result<Self> {
        let root = async |snapshot: &Snapshot, entry: Option<&TableEntry>| match entry {
            Some(entry) => Ok::<_, crate::Error>(Some(snapshot::root(lake, snapshot.id(), entry).await?)),
            None => Ok(None),
        };
        let (old, new) = (root(before, was).await?, root(after, is).await?);
        let none = |other: &Option<TableRoot>| TableRoot {
            schema: other.as_ref().map(|root| root.schema.clone()).unwrap_or_default(),
            pages: Vec::new(),
            key: Vec::new(),
            defaults: Vec::new(),
        };
        let (old, new) = (old.clone().unwrap_or_else(|| none(&new)), new.unwrap_or_else(|| none(&old)));
        let [was, is] = manifest::differing(lake, [&old, &new]).await?;
        let before = Version::load(before, old, was).await?;
        let after = Version::load(after, new, is).await?;
        let mut leaves: Vec<_> = before.side.leaves().chain(after.side.leaves()).map(|(leaf, _)| leaf).collect();
        leaves.sort_unstable();
        leaves.dedup();
        Ok(Self { before, after, leaves: leaves.into() })
    }

    /// More rows that differ; `None` at the end.
    ///
    /// # Errors
    /// What reading reports.
    pub async fn next(&mut self) -> Result<Option<RowChanges>> {
        while let Some(leaf) = self.leaves.pop_front() {
            let changes = self.leaf(leaf).await?;
            if changes != RowChanges::default() {
                return Ok(Some(changes));
            }
        }
        Ok(None)
    }

    async fn leaf(&self, leaf: FragmentId) -> Result<RowChanges> {
        let (was, is) = (self.before.side.live(leaf), self.after.side.live(leaf));
        let named = |version: &Version, rows: &RowSet| -> Vec<RowId> {
            rows.iter().map(|row| leaf::row_id(&version.side, leaf, row)).collect()
        };
        let both = was.intersect(&is);
        let mut changed: std::collections::BTreeMap<u32, Vec<String>> = std::collections::BTreeMap::new();
        let mut cells = leaf::cells(self.before.side.leaf(leaf), self.after.side.leaf(leaf));
        for field in self.after.root.schema.columns.iter().map(|column| column.field) {
            // Values that were compacted away while the column was dropped.
            let lost = self.before.side.stored(leaf, field).subtract(&self.after.side.stored(leaf, field));
            if !lost.is_empty() {
                let rows = cells.entry(field).or_default();
                *rows = rows.union(&lost);
            }
        }
        for (field, rows) in cells {
            let rows = rows.intersect(&both);
            let (Some(_), Some(column)) = (self.before.column(field), self.after.column(field)) else { continue };
            let old = self.before.values(column, leaf, &rows).await?;
            let new = self.after.values(column, leaf, &rows).await?;
            for (_, row) in rows.iter().enumerate().filter(|(at, _)| !equal(&old, *at, &new, *at)) {
                changed.entry(row).or_default().push(column.name.clone());
            }
        }
        let names = |row| (leaf::row_id(&self.before.side, leaf, row), leaf::row_id(&self.after.side, leaf, row));
        let changed = changed.into_iter().map(|(row, columns)| {
            let (old, new) = names(row);
            (old, new, columns)
        });
        Ok(RowChanges {
            added: named(&self.after, &is.subtract(&was)),
            deleted: named(&self.before, &was.subtract(&is)),
            changed: changed.collect(),
        })
    }
}
