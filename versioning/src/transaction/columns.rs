//! Columns added, dropped and renamed.

use std::ops::Range;

use forebay_format::{Column, ColumnData, FieldId};

use super::Transaction;
use crate::{Error, Result, Table, values};

impl Transaction {
    /// Adds a column to a table of the base: all of its rows have the value `default` (one row), or null. Writes one row,
    /// whatever the table's size.
    ///
    /// # Errors
    /// [`Error::Data`] if the table has a column of that name or identity, or files of one of that identity, which was dropped;
    /// or if `default` doesn't fit; [`Error::Misuse`] if
    /// the column is not nullable and there is no default; and what the store reports.
    pub async fn add_column(&mut self, table: &Table, column: Column, default: Option<&ColumnData>) -> Result<()> {
        column.check()?;
        let default = match default {
            Some(value) => value.clone(),
            None if column.nullable => values::nothing(&column),
            None => {
                let reason = format!("column '{}' is not nullable: give it a default", column.name);
                return Err(Error::Misuse { reason });
            }
        };
        default.as_slice().check(&column)?;
        if default.rows != 1 {
            let (expected, found) = ("one row".to_owned(), format!("{} rows", default.rows));
            return Err(forebay_format::Error::ColumnMismatch { column: column.name, expected, found }.into());
        }
        let lake = self.lake.clone();
        let work = self.work(table)?;
        let mut schema = work.root.schema.clone();
        schema.columns.push(column.clone());
        schema.check()?;
        let field = column.field;
        if table.data_files().any(|(_, file)| file.fields.contains(&field)) {
            let reason = "its identity is that of a column that was dropped: take another one".to_owned();
            return Err(forebay_format::Error::InvalidSchema { column: column.name, reason }.into());
        }
        let file = values::write_file(lake.storage(), vec![column], vec![default]).await?;
        let work = self.work(table)?;
        work.root.schema = schema;
        work.root.defaults.push(file);
        work.fields.insert(field);
        work.schema = true;
        Ok(())
    }

    /// Adds a column with a value for each row of a table of the base: `values` is asked for those of a range of rows, in
    /// order, a fragment at a time. Other columns are not read or written. Rows that others append meanwhile get `default`,
    /// or null.
    ///
    /// # Errors
    /// As [`add_column`](Self::add_column), and what `values` fails with.
    pub async fn add_column_with(
        &mut self,
        table: &Table,
        column: Column,
        default: Option<&ColumnData>,
        mut values: impl FnMut(Range<u64>) -> Result<ColumnData>,
    ) -> Result<()> {
        self.add_column(table, column.clone(), default).await?;
        let filler = values::nothing(&Column { nullable: column.nullable, ..column.clone() });
        for (number, fragment) in table.fragments().iter().enumerate() {
            let range = table.first_row(number)..table.first_row(number + 1);
            if range.is_empty() {
                continue;
            }
            let given = values(range.clone())?;
            given.as_slice().check(&column)?;
            if given.rows as u64 != range.end - range.start {
                let (expected, found) = (format!("{} rows", range.end - range.start), format!("{} rows", given.rows));
                return Err(forebay_format::Error::ColumnMismatch { column: column.name, expected, found }.into());
            }
            // Deleted rows need a value as well: a file has all rows of its fragment.
            let live = fragment.deleted.complement(fragment.rows);
            let mut parts = vec![live];
            let mut pieces = vec![given];
            if !fragment.deleted.is_empty() {
                parts.push(fragment.deleted.clone());
                pieces.push(filler.take(&vec![0; fragment.deleted.len() as usize]));
            }
            let (_, data) = values::joined(&column, parts, pieces);
            let file = values::write_file(self.lake.storage(), vec![column.clone()], vec![data]).await?;
            self.work(table)?.fragment(number)?.files.push(file);
        }
        Ok(())
    }

    /// Takes a column out of a table of the base. Its data stays where it is, for older versions.
    ///
    /// # Errors
    /// [`Error::Data`] if there is no such column or it is the last one; [`Error::Misuse`] if it belongs to the key.
    pub fn drop_column(&mut self, table: &Table, name: &str) -> Result<()> {
        let work = self.work(table)?;
        let field = work.column(name)?.field;
        if work.root.key.contains(&field) {
            return Err(Error::Misuse { reason: format!("column '{name}' belongs to the key of '{}'", table.name()) });
        }
        let mut schema = work.root.schema.clone();
        schema.columns.retain(|column| column.field != field);
        schema.check()?;
        work.root.schema = schema;
        work.fields.insert(field);
        work.schema = true;
        Ok(())
    }

    /// Gives a column of a table of the base another name. Its identity stays, and with it its data.
    ///
    /// # Errors
    /// [`Error::Data`] if there is no such column, or another one has the name.
    pub fn rename_column(&mut self, table: &Table, from: &str, to: &str) -> Result<()> {
        let work = self.work(table)?;
        let field: FieldId = work.column(from)?.field;
        let mut schema = work.root.schema.clone();
        for column in schema.columns.iter_mut().filter(|column| column.field == field) {
            to.clone_into(&mut column.name);
        }
        schema.check()?;
        work.root.schema = schema;
        work.fields.insert(field);
        work.schema = true;
        Ok(())
    }
}
