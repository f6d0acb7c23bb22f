//! Rows deleted, updated and upserted.

use std::collections::{BTreeMap, HashMap};

use forebay_format::{ColumnData, ColumnSlice, RowSet, meta::Overlay};

use super::Transaction;
use crate::{Error, Result, RowId, Rows, Selection, Table, merge, values};

impl Transaction {
    /// Deletes the selected rows of a table of the base. Gives how many.
    ///
    /// # Errors
    /// [`Error::Misuse`] if the selection is of another version, or the table was compacted by this transaction.
    pub fn delete(&mut self, selection: &Selection) -> Result<u64> {
        let rows = by_fragment(selection)?;
        let work = self.work(selection.table())?;
        let mut deleted = 0;
        for (fragment, rows) in rows {
            let rows = RowSet::of(rows.into_iter().map(|(row, _)| row).collect());
            let fragment = work.fragment(fragment)?;
            let after = fragment.deleted.union(&rows);
            deleted += u64::from(after.len() - fragment.deleted.len());
            fragment.deleted = after;
        }
        work.deleted += deleted;
        Ok(deleted)
    }

    /// Gives the selected rows of a table of the base new values in some columns: `values` has a row for each selected one,
    /// in their order. Writes the new values and nothing else.
    ///
    /// # Errors
    /// As [`delete`](Self::delete); [`Error::Data`] for an unknown column or values that don't fit; [`Error::Misuse`] for
    /// a selection with a row that comes twice; and what the store reports.
    pub async fn update(&mut self, selection: &Selection, values: &[(&str, ColumnSlice<'_>)]) -> Result<()> {
        let lake = self.lake.clone();
        let rows = by_fragment(selection)?;
        let work = self.work(selection.table())?;
        let mut columns = Vec::with_capacity(values.len());
        for (name, slice) in values {
            let column = work.column(name)?.clone();
            slice.check(&column)?;
            if slice.rows as u64 != selection.len() {
                let (expected, found) = (format!("{} rows", selection.len()), format!("{} rows", slice.rows));
                let column = column.name;
                return Err(forebay_format::Error::ColumnMismatch { column, expected, found }.into());
            }
            columns.push(column);
        }
        if rows.is_empty() || columns.is_empty() {
            return Ok(());
        }
        // One file for all fragments, their rows in order.
        let positions: Vec<usize> = rows.values().flatten().map(|(_, place)| *place).collect();
        let data: Vec<ColumnData> = values.iter().map(|(_, slice)| owned(slice).take(&positions)).collect();
        let fields: Vec<_> = columns.iter().map(|column| column.field).collect();
        let mut sets = Vec::with_capacity(rows.len());
        for (fragment, rows) in rows {
            let set = RowSet::of(rows.iter().map(|(row, _)| *row).collect());
            if set.len() as usize != rows.len() {
                return Err(Error::Misuse { reason: "a row is updated twice at once".to_owned() });
            }
            work.fragment(fragment)?;
            sets.push((fragment, set));
        }
        let file = values::write_file(lake.storage(), columns, data).await?;
        let work = self.work(selection.table())?;
        let mut first = 0;
        for (fragment, rows) in sets {
            let length = rows.len();
            work.fragment(fragment)?.overlays.push(Overlay { file: file.clone(), rows, first });
            first += length;
        }
        work.changed += selection.len();
        work.fields.extend(fields);
        Ok(())
    }

    /// Updates the rows of a keyed table of the base whose keys are among those of `rows`, and appends the others. `rows`
    /// has a slice for each column of the table, in the order of its schema. Gives how many rows were updated and how many
    /// appended.
    ///
    /// # Errors
    /// [`Error::Misuse`] if the table has no key or two of `rows` have the same; else as [`update`](Self::update).
    pub async fn upsert(&mut self, table: &Table, rows: &[ColumnSlice<'_>]) -> Result<(u64, u64)> {
        let columns = table.schema().columns.clone();
        let keys = table.key();
        let misuse = |reason: String| Err(Error::Misuse { reason });
        if keys.is_empty() {
            return misuse(format!("table '{}' has no key: create it with one", table.name()));
        }
        if rows.len() != columns.len() {
            return misuse(format!("{} columns instead of {}", rows.len(), columns.len()));
        }
        for (column, slice) in columns.iter().zip(rows) {
            slice.check(column)?;
        }
        let rows: Vec<ColumnData> = rows.iter().map(owned).collect();
        let (mut old, mut new) = (Vec::new(), Vec::new());
        for key in &keys {
            old.push(table.read(&key.name, 0..table.rows()).await?);
            let place = columns.iter().position(|column| column.field == key.field);
            new.extend(place.map(|place| rows[place].clone()));
        }
        let mut known: HashMap<merge::Key, u64> = HashMap::new();
        for row in 0..table.rows() {
            known.insert(merge::key_of(&old, row as usize), row);
        }
        let count = rows.first().map_or(0, |column| column.rows);
        let (mut updated, mut places, mut fresh) = (Vec::new(), Vec::new(), Vec::new());
        let mut seen = std::collections::HashSet::new();
        for place in 0..count {
            let key = merge::key_of(&new, place);
            match known.get(&key) {
                Some(row) => {
                    updated.push(*row);
                    places.push(place);
                }
                None => fresh.push(place),
            }
            if !seen.insert(key) {
                return misuse(format!("row {place} has the key of a row before it"));
            }
        }
        if !updated.is_empty() {
            let data: Vec<ColumnData> = rows.iter().map(|column| column.take(&places)).collect();
            let named: Vec<(&str, ColumnSlice<'_>)> = columns
                .iter()
                .zip(&data)
                .filter(|(column, _)| keys.iter().all(|key| key.field != column.field))
                .map(|(column, data)| (column.name.as_str(), data.as_slice()))
                .collect();
            let selection = Selection::new(table.clone(), Rows::List(updated.clone().into()))?;
            self.update(&selection, &named).await?;
        }
        if !fresh.is_empty() {
            let data: Vec<ColumnData> = rows.iter().map(|column| column.take(&fresh)).collect();
            let mut writer = self.writer(table.name()).await?;
            let write = move || {
                let slices: Vec<ColumnSlice<'_>> = data.iter().map(ColumnData::as_slice).collect();
                writer.push(&slices)?;
                writer.finish()
            };
            self.append(values::blocking(write).await?);
        }
        Ok((updated.len() as u64, fresh.len() as u64))
    }

    /// The rows of a table of the base with these identities, as a selection to delete or update.
    ///
    /// # Errors
    /// [`Error::UnknownRow`] for a row that the table doesn't have.
    pub fn rows(&self, table: &Table, ids: &[RowId]) -> Result<Selection> {
        let rows = ids.iter().map(|id| table.find(*id)).collect::<Result<Vec<_>>>()?;
        Selection::new(table.clone(), Rows::List(rows.into()))
    }
}

/// The selected rows by fragment, ascending, each with its place in the selection.
fn by_fragment(selection: &Selection) -> Result<BTreeMap<usize, Vec<(u32, usize)>>> {
    let mut rows: BTreeMap<usize, Vec<(u32, usize)>> = BTreeMap::new();
    for place in 0..selection.len() {
        let at = selection.table().locate(selection.row(place)?)?;
        rows.entry(at.fragment).or_default().push((at.row, place as usize));
    }
    for rows in rows.values_mut() {
        rows.sort_unstable();
    }
    Ok(rows)
}

/// Borrowed rows, owned.
pub(crate) fn owned(slice: &ColumnSlice<'_>) -> ColumnData {
    use forebay_format::{OwnedValues, Values};
    let values = match slice.values {
        Values::Fixed(bytes) => OwnedValues::Fixed(bytes.to_vec()),
        Values::Ragged { offsets, shapes, bytes } => {
            OwnedValues::Ragged { offsets: offsets.to_vec(), shapes: shapes.to_vec(), bytes: bytes.to_vec() }
        }
    };
    ColumnData { rows: slice.rows, values, validity: slice.validity.map(|bits| bits.0.to_vec()) }
}
