//! Columns of three versions of a table made one. Pure.

use forebay_format::{Column, FieldId, Schema, meta::TableRoot};

use super::policy::{Choice, Clash, Conflict, ConflictKind, MergeSide, Policy};
use crate::{Error, Result};

/// The columns of a merged table, and those that one side dropped.
pub(crate) struct Merged {
    pub(crate) root: TableRoot,
    /// Columns of the base that only one side still has, with that side.
    pub(crate) dropped: Vec<(FieldId, MergeSide)>,
}

fn column(root: &TableRoot, field: FieldId) -> Option<&Column> {
    root.schema.columns.iter().find(|column| column.field == field)
}

/// Ours with what they changed against the base. `keep` are columns that one side dropped and that are kept all the same.
/// `root.pages` are ours.
///
/// # Errors
/// [`Error::Data`] if no column is left.
pub(crate) fn merge(
    table: &str,
    [base, ours, theirs]: [&TableRoot; 3],
    policy: &Policy,
    keep: &[FieldId],
    conflicts: &mut Vec<Conflict>,
) -> Result<Merged> {
    let mut decide = |name: &str, reason| {
        let clash = Clash { table, column: Some(name), row: None, base: None, ours: None, theirs: None };
        match policy.decide(&clash) {
            Choice::Side(side) => side,
            Choice::Base => MergeSide::Ours,
            Choice::Value(_) | Choice::Fail => {
                let kind = ConflictKind::Column { column: name.to_owned(), reason };
                conflicts.push(Conflict { table: table.to_owned(), kind });
                MergeSide::Ours
            }
        }
    };
    let (mut columns, mut dropped) = (Vec::new(), Vec::new());
    for our in &ours.schema.columns {
        match (column(base, our.field), column(theirs, our.field)) {
            (None, None) => columns.push(our.clone()),
            (Some(_), None) => {
                dropped.push((our.field, MergeSide::Ours));
                if keep.contains(&our.field) {
                    columns.push(our.clone());
                }
            }
            (old, Some(their)) => columns.push(match old {
                _ if our == their => our.clone(),
                Some(old) if our == old => their.clone(),
                Some(old) if their == old => our.clone(),
                _ => match decide(&our.name, "it was changed differently on both sides") {
                    MergeSide::Ours => our.clone(),
                    MergeSide::Theirs => their.clone(),
                },
            }),
        }
    }
    for their in theirs.schema.columns.iter().filter(|their| column(ours, their.field).is_none()) {
        if column(base, their.field).is_some() {
            dropped.push((their.field, MergeSide::Theirs));
            if !keep.contains(&their.field) {
                continue;
            }
        }
        columns.push(their.clone());
    }
    // Two columns of one name: one of them goes.
    let mut named: Vec<Column> = Vec::new();
    for column_ in columns {
        match named.iter().position(|other| other.name == column_.name) {
            None => named.push(column_),
            Some(place) => {
                let side = decide(&column_.name, "two columns have this name: rename or drop one of them first");
                let theirs_is_new = column(ours, column_.field).is_none();
                if (side == MergeSide::Theirs) == theirs_is_new {
                    named[place] = column_;
                }
            }
        }
    }
    let key = if ours.key == base.key { theirs.key.clone() } else { ours.key.clone() };
    if ours.key != base.key && theirs.key != base.key && ours.key != theirs.key {
        let kind = ConflictKind::Table { reason: "its key was changed differently on both sides" };
        conflicts.push(Conflict { table: table.to_owned(), kind });
    }
    let key = key.into_iter().filter(|field| named.iter().any(|column| column.field == *field)).collect();
    let mut defaults = ours.defaults.clone();
    defaults.extend(theirs.defaults.iter().filter(|file| !ours.defaults.iter().any(|our| our.id == file.id)).cloned());
    let schema = Schema::new(named).map_err(Error::from)?;
    Ok(Merged { root: TableRoot { schema, pages: ours.pages.clone(), key, defaults }, dropped })
}
