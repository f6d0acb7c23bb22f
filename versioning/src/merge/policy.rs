//! Conflicts, and who decides them.

use std::{collections::BTreeMap, fmt, sync::Arc};

use forebay_format::ColumnData;

use crate::RowId;

/// A place that both sides changed, each in its own way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The table, by its name on our side.
    pub table: String,
    /// What clashes.
    pub kind: ConflictKind,
}

/// What clashes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConflictKind {
    /// Cells of a column have different new values.
    Cells {
        /// The column.
        column: String,
        /// The rows.
        rows: Vec<RowId>,
    },
    /// Rows were deleted on one side and updated on the other.
    Rows {
        /// The rows.
        rows: Vec<RowId>,
        /// Columns that were updated in one of them.
        columns: Vec<String>,
        /// The side that deleted them.
        deleted_by: MergeSide,
    },
    /// Rows with equal keys were inserted on both sides.
    Keys {
        /// The key's columns.
        columns: Vec<String>,
        /// Our row and theirs of each pair.
        rows: Vec<(RowId, RowId)>,
    },
    /// A column was changed on both sides, or dropped and used, or two new ones have one name.
    Column {
        /// The column.
        column: String,
        /// What happened.
        reason: &'static str,
    },
    /// The table was changed on both sides as a whole.
    Table {
        /// What happened.
        reason: &'static str,
    },
}

impl Conflict {
    /// How many cells, rows, keys, columns or tables it is about.
    #[must_use]
    pub fn count(&self) -> usize {
        match &self.kind {
            ConflictKind::Cells { rows, .. } | ConflictKind::Rows { rows, .. } => rows.len(),
            ConflictKind::Keys { rows, .. } => rows.len(),
            ConflictKind::Column { .. } | ConflictKind::Table { .. } => 1,
        }
    }
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let table = &self.table;
        match &self.kind {
            ConflictKind::Cells { column, rows } => {
                write!(f, "table '{table}', column '{column}': {} changed differently", some(rows))
            }
            ConflictKind::Rows { rows, columns, deleted_by } => {
                write!(
                    f,
                    "table '{table}': {} deleted by {deleted_by} and updated in {}",
                    some(rows),
                    columns.join(", ")
                )
            }
            ConflictKind::Keys { columns, rows } => {
                let ours: Vec<_> = rows.iter().map(|(ours, _)| *ours).collect();
                write!(f, "table '{table}': {} inserted on both sides under equal {}", some(&ours), columns.join(", "))
            }
            ConflictKind::Column { column, reason } => write!(f, "table '{table}', column '{column}': {reason}"),
            ConflictKind::Table { reason } => write!(f, "table '{table}': {reason}"),
        }
    }
}

/// Conflicts of the same table and kind as one, in the order of the first of each.
pub(crate) fn joined(conflicts: Vec<Conflict>) -> Vec<Conflict> {
    let mut all: Vec<Conflict> = Vec::new();
    for next in conflicts {
        let same = all.iter_mut().filter(|known| known.table == next.table).find_map(|known| {
            match (&mut known.kind, &next.kind) {
                (ConflictKind::Cells { column, rows }, ConflictKind::Cells { column: other, rows: more })
                    if column == other =>
                {
                    rows.extend(more);
                    Some(())
                }
                (
                    ConflictKind::Rows { rows, columns, deleted_by },
                    ConflictKind::Rows { rows: more, columns: others, deleted_by: by },
                ) if deleted_by == by => {
                    rows.extend(more);
                    columns.extend(others.iter().filter(|other| !columns.contains(other)).cloned().collect::<Vec<_>>());
                    columns.sort_unstable();
                    Some(())
                }
                _ => None,
            }
        });
        if same.is_none() {
            all.push(next);
        }
    }
    all
}

fn some(rows: &[RowId]) -> String {
    const SHOWN: usize = 3;
    let shown: Vec<_> = rows.iter().take(SHOWN).map(ToString::to_string).collect();
    let more = if rows.len() > SHOWN { ", ..." } else { "" };
    format!("{} row{} ({}{more})", rows.len(), if rows.len() == 1 { "" } else { "s" }, shown.join(", "))
}

/// One side of a merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MergeSide {
    /// The branch that is merged into.
    Ours,
    /// What is merged into it.
    Theirs,
}

impl MergeSide {
    pub(crate) fn other(self) -> Self {
        match self {
            Self::Ours => Self::Theirs,
            Self::Theirs => Self::Ours,
        }
    }
}

impl fmt::Display for MergeSide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ours => "us",
            Self::Theirs => "them",
        })
    }
}

/// A clash that a [callback](Policy::Callback) decides. Columns and tables as a whole have no row.
#[derive(Clone, Debug)]
pub struct Clash<'a> {
    /// The table, by its name on our side.
    pub table: &'a str,
    /// The column, for cells and columns.
    pub column: Option<&'a str>,
    /// The row, for cells, rows and keys.
    pub row: Option<RowId>,
    /// For cells: the value (one row) at the base, if there was one.
    pub base: Option<&'a ColumnData>,
    /// For cells: our value.
    pub ours: Option<&'a ColumnData>,
    /// For cells: their value.
    pub theirs: Option<&'a ColumnData>,
}

/// How a clash is decided.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Choice {
    /// One side's way.
    Side(MergeSide),
    /// As it was at the base: a cell has its old value, a row is there with its old values.
    Base,
    /// For cells: another value, one row.
    Value(ColumnData),
    /// Not at all: it stays a conflict.
    Fail,
}

/// What decides a clash.
pub type Decide = Arc<dyn Fn(&Clash<'_>) -> Choice + Send + Sync>;

/// Who decides conflicts.
#[derive(Clone, Default)]
#[non_exhaustive]
pub enum Policy {
    /// Nobody: the merge fails and lists them all.
    #[default]
    Fail,
    /// One side has its way.
    Side(MergeSide),
    /// For cells, the column's side; for everything else, and columns that aren't named, `otherwise`, or nobody.
    Columns {
        /// By column name.
        columns: BTreeMap<String, MergeSide>,
        /// Everything else.
        otherwise: Option<MergeSide>,
    },
    /// A function, asked for each cell, row, key, column and table.
    Callback(Decide),
}

impl Policy {
    /// The decision.
    pub(crate) fn decide(&self, clash: &Clash<'_>) -> Choice {
        match self {
            Self::Fail => Choice::Fail,
            Self::Side(side) => Choice::Side(*side),
            Self::Columns { columns, otherwise } => {
                let named = clash.column.and_then(|column| columns.get(column)).or(otherwise.as_ref());
                named.map_or(Choice::Fail, |side| Choice::Side(*side))
            }
            Self::Callback(decide) => decide(clash),
        }
    }
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fail => f.write_str("Fail"),
            Self::Side(side) => f.debug_tuple("Side").field(side).finish(),
            Self::Columns { columns, otherwise } => {
                f.debug_struct("Columns").field("columns", columns).field("otherwise", otherwise).finish()
            }
            Self::Callback(_) => f.write_str("Callback"),
        }
    }
}
