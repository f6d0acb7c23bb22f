//! What a transaction does to one table of its base.

use std::collections::{BTreeMap, HashSet};

use forebay_format::{
    Column, FieldId, FragmentId, TableId,
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
            check_keys(base, &table.name, &self.root, &self.edits, &[]).await?;
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

/// Checks that no two rows of a table, as it becomes, have equal keys.
///
/// # Errors
/// [`Error::DuplicateKey`], and what reading the key's columns reports.
pub(crate) async fn check_keys(
    base: &Snapshot,
    table: &str,
    root: &TableRoot,
    edits: &BTreeMap<FragmentId, Vec<Fragment>>,
    added: &[Fragment],
) -> Result<()> {
    let before = manifest::fragments(base.lake(), root, "a table with a key").await?;
    let after =
        before.into_iter().flat_map(|fragment| edits.get(&fragment.id).cloned().unwrap_or_else(|| vec![fragment]));
    let after = after.chain(added.iter().cloned()).collect();
    let version = Version::load(base, root.clone(), after).await?;
    let key = |field: &FieldId| root.schema.columns.iter().find(|column| column.field == *field).cloned();
    let columns: Vec<Column> = root.key.iter().filter_map(key).collect();
    let mut leaves: Vec<_> = version.side.leaves().map(|(leaf, _)| leaf).collect();
    leaves.sort_unstable();
    let mut known = HashSet::new();
    for leaf in leaves {
        let live = version.side.live(leaf);
        for (row, key) in merge::keys_of_leaf(&version, &columns, leaf, &live).await? {
            if !known.insert(key) {
                let columns = columns.iter().map(|column| column.name.clone()).collect();
                let row = leaf::row_id(&version.side, leaf, row);
                return Err(Error::DuplicateKey { table: table.to_owned(), columns, row });
            }
        }
    }
    Ok(())
}
