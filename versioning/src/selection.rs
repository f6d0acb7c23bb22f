//! Which rows of a table: what a query gives and a loader takes.

use std::{ops::Range, sync::Arc};

use crate::{Error, Result, Table};

/// Rows of a table, by their number in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rows {
    /// All of them.
    All,
    /// Runs of rows: not empty, ascending, apart.
    Runs(Arc<[Range<u64>]>),
    /// Rows in an order of their own; a row may come more than once.
    List(Arc<[u64]>),
}

/// A table of a snapshot, and rows of it. Clones are cheap.
#[derive(Clone, Debug)]
pub struct Selection {
    table: Table,
    rows: Rows,
    /// For runs: how many rows come before each.
    before: Arc<[u64]>,
    len: u64,
}

impl Selection {
    /// All rows of a table.
    #[must_use]
    pub fn all(table: Table) -> Self {
        let len = table.rows();
        Self { table, rows: Rows::All, before: Arc::new([]), len }
    }

    /// Some rows of a table.
    ///
    /// # Errors
    /// [`Error::RowOutOfRange`] if a row is past the table's end; [`Error::Inconsistent`] if runs are empty or not
    /// ascending.
    pub fn new(table: Table, rows: Rows) -> Result<Self> {
        let out_of_range = |row| Error::RowOutOfRange { table: table.name().to_owned(), row, rows: table.rows() };
        let mut before = Vec::new();
        let len = match &rows {
            Rows::All => table.rows(),
            Rows::Runs(runs) => {
                let (mut len, mut end) = (0, 0);
                for run in runs.iter() {
                    if run.start >= run.end || (run.start < end) {
                        let path = format!("selection of table '{}'", table.name());
                        return Err(Error::Inconsistent { path, reason: format!("run {run:?} is not after {end}") });
                    }
                    before.push(len);
                    len += run.end - run.start;
                    end = run.end;
                }
                if end > table.rows() {
                    return Err(out_of_range(end - 1));
                }
                len
            }
            Rows::List(list) => {
                if let Some(row) = list.iter().find(|row| **row >= table.rows()) {
                    return Err(out_of_range(*row));
                }
                list.len() as u64
            }
        };
        Ok(Self { table, rows, before: before.into(), len })
    }

    /// The table.
    #[must_use]
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// The rows.
    #[must_use]
    pub fn rows(&self) -> &Rows {
        &self.rows
    }

    /// How many rows.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The table's row that is the selection's `index`-th, in O(log runs).
    ///
    /// # Errors
    /// [`Error::RowOutOfRange`] if `index` isn't below [`len`](Self::len).
    pub fn row(&self, index: u64) -> Result<u64> {
        if index >= self.len {
            return Err(Error::RowOutOfRange { table: self.table.name().to_owned(), row: index, rows: self.len });
        }
        Ok(match &self.rows {
            Rows::All => index,
            Rows::List(list) => list[index as usize],
            Rows::Runs(runs) => {
                let run = self.before.partition_point(|before| *before <= index) - 1;
                runs[run].start + (index - self.before[run])
            }
        })
    }

    /// The BLAKE3 hash of what is selected: equal on two machines exactly when commit, table and rows are.
    #[must_use]
    pub fn digest(&self) -> [u8; 32] {
        let mut hash = blake3::Hasher::new_derive_key("forebay 2026 selection");
        hash.update(self.table.snapshot().id().as_bytes());
        hash.update(self.table.id().as_bytes());
        hash.update(&self.len.to_le_bytes());
        match &self.rows {
            Rows::All => {
                hash.update(b"all");
            }
            Rows::Runs(runs) => {
                hash.update(b"run");
                for run in runs.iter() {
                    hash.update(&run.start.to_le_bytes()).update(&run.end.to_le_bytes());
                }
            }
            Rows::List(list) => {
                hash.update(b"lst");
                for row in list.iter() {
                    hash.update(&row.to_le_bytes());
                }
            }
        }
        *hash.finalize().as_bytes()
    }
}
