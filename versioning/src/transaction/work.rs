//! What a transaction does to one table of its base.

use std::collections::{BTreeMap, HashSet};

use forebay_format::{
    Bound, Column, FieldId, FragmentId, TableId,
    meta::{Change, Fragment, TableEntry, TableRoot},
};

use crate::{
    Error, Result, Snapshot, Table, leaf, manifest,
    merge::{self, change},
    values::Version,
};

/// Changes of a table.
#[derive(Debug)]
pub(crate) struct Work {
    /// The table, with its base's pages.
    pub(crate) root: TableRoot,
    table: Table,
    /// Fragments that are replaced, each by others at its place.
    pub(crate) edits: BTreeMap<FragmentId, Vec<Fragment>>,
    /// Whether fragments were compacted: then nothing else may change rows.
    pub(crate) compacted: bool,
    pub(crate) deleted: u64,
    pub(crate) changed: u64,
    pub(crate) fields: HashSet<FieldId>,
    pub(crate) schema: bool,
}

impl Work {
    pub(crate) fn new(table: &Table) -> Self {
        Self {
            root: table.root().clone(),
            table: table.clone(),
            edits: BTreeMap::new(),
            compacted: false,
            deleted: 0,
            changed: 0,
            fields: HashSet::new(),
            schema: false,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.edits.is_empty() && !self.schema
    }

    /// A fragment of the base as it is by now, to be changed.
    pub(crate) fn fragment(&mut self, number: usize) -> Result<&mut Fragment> {
        if self.compacted {
            let reason = format!("table '{}' is compacted by this transaction: commit that first", self.table.name());
            return Err(Error::Misuse { reason });
        }
        let before = &self.table.fragments()[number];
        let edited = self.edits.entry(before.id).or_insert_with(|| vec![before.clone()]);
        match edited.first_mut() {
            Some(fragment) => Ok(fragment),
            None => Err(Error::Misuse { reason: format!("fragment {} is gone", before.id) }),
        }
    }

    /// Columns by name, as they are by now.
    pub(crate) fn column(&self, name: &str) -> Result<&Column> {
        Ok(self.root.schema.column(name)?)
    }

    /// Writes the changed manifest of a table of the base.
    pub(crate) async fn apply(&self, base: &Snapshot, table: &mut TableEntry) -> Result<()> {
        let keyed = self.root.key.iter().any(|field| self.fields.contains(field));
        if keyed {
            check_keys(base, &table.name, &self.root, &self.edits).await?;
        }
        let root = manifest::edit(base.lake(), &self.root, self.edits.clone(), &[], &[]).await?;
        table.rows = root.pages.iter().map(|page| page.rows).sum();
        table.root = manifest::place(base.lake(), root).await?;
        Ok(())
    }

    /// What it did.
    pub(crate) fn changes(&self, table: TableId) -> Vec<Change> {
        let mut changes = Vec::new();
        let fragments = || self.edits.keys().copied().collect();
        if self.schema {
            let fields = self.fields.iter().copied().collect();
            changes.push(Change { fields, ..change(table, "schema") });
        }
        if self.compacted {
            changes.push(Change { fragments: fragments(), ..change(table, "compact") });
        }
        if self.deleted > 0 {
            changes.push(Change { fragments: fragments(), rows_deleted: self.deleted, ..change(table, "delete") });
        }
        if self.changed > 0 {
            let fields = self.fields.iter().copied().collect();
            let change = Change { fragments: fragments(), fields, ..change(table, "update") };
            changes.push(Change { rows_changed: self.changed, ..change });
        }
        changes
    }
}

/// Checks that rows to be added have keys that no other row has. Of the rows that are there, only those are read whose
/// statistics don't exclude the new keys.
///
/// # Errors
/// [`Error::DuplicateKey`], and what reading the key's columns reports.
pub(crate) async fn check_new_keys(base: &Snapshot, table: &str, root: &TableRoot, added: &[Fragment]) -> Result<()> {
    let mut keys = Keys::of(table, root);
    let fresh = Version::load(base, root.clone(), added.to_vec()).await?;
    keys.take(&fresh).await?;
    let Some(first) = keys.columns.first() else { return Ok(()) };
    let mut bounds = Vec::with_capacity(added.len());
    for number in 0..added.len() {
        bounds.push(fresh.bounds(number, first).await?);
    }
    let all =
        Version::load(base, root.clone(), manifest::fragments(base.lake(), root, "a table with a key").await?).await?;
    let mut near = Vec::new();
    for (number, fragment) in all.side.fragments.iter().enumerate() {
        let there = all.bounds(number, first).await?;
        if bounds.iter().any(|new| may_meet(new.as_ref(), there.as_ref())) {
            near.push(fragment.clone());
        }
    }
    keys.take(&Version::load(base, root.clone(), near).await?).await
}

/// Whether two ranges have a value in common; one that isn't known may.
fn may_meet(one: Option<&(Bound, Bound)>, other: Option<&(Bound, Bound)>) -> bool {
    let (Some((min, max)), Some((low, high))) = (one, other) else { return true };
    !(max < low || high < min)
}

/// Checks that no two rows of a table, as it becomes, have equal keys.
///
/// # Errors
/// [`Error::DuplicateKey`], and what reading the key's columns reports.
pub(crate) async fn check_keys(
    base: &Snapshot,
    table: &str,
    root: &TableRoot,
    edits: &BTreeMap<FragmentId, Vec<Fragment>>,
) -> Result<()> {
    let before = manifest::fragments(base.lake(), root, "a table with a key").await?;
    let after =
        before.into_iter().flat_map(|fragment| edits.get(&fragment.id).cloned().unwrap_or_else(|| vec![fragment]));
    let version = Version::load(base, root.clone(), after.collect()).await?;
    Keys::of(table, root).take(&version).await
}

/// Keys of rows of a table that were met.
struct Keys<'a> {
    table: &'a str,
    columns: Vec<Column>,
    known: HashSet<merge::Key>,
}

impl<'a> Keys<'a> {
    fn of(table: &'a str, root: &TableRoot) -> Self {
        let column = |field: &FieldId| root.schema.columns.iter().find(|column| column.field == *field).cloned();
        Self { table, columns: root.key.iter().filter_map(column).collect(), known: HashSet::new() }
    }

    /// Takes in the keys of all rows of a version, none of which was met before.
    async fn take(&mut self, version: &Version) -> Result<()> {
        let mut leaves: Vec<_> = version.side.leaves().map(|(leaf, _)| leaf).collect();
        leaves.sort_unstable();
        for leaf in leaves {
            for (row, key) in merge::keys_of_leaf(version, &self.columns, leaf, &version.side.live(leaf)).await? {
                if !self.known.insert(key) {
                    let columns = self.columns.iter().map(|column| column.name.clone()).collect();
                    let row = leaf::row_id(&version.side, leaf, row);
                    return Err(Error::DuplicateKey { table: self.table.to_owned(), columns, row });
                }
            }
        }
        Ok(())
    }
}
