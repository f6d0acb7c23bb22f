//! Three-way merges, at the grain of rows and cells.
//!
//! What is committed on top of one version (ours) is what changed from the base to another (theirs). The same function
//! serves merges, rebases of transactions, reverts and cherry-picks: only base and sides differ.

mod component;
mod keys;
mod lacking;
mod policy;
mod schema;

use std::collections::{BTreeMap, HashSet};

use forebay_format::{
    Column, FieldId, FragmentId, TableId,
    meta::{Change, Commit, DataFileRef, Fragment, TableEntry, TableRoot},
};

pub(crate) use keys::{Key, key_of, of_leaf as keys_of_leaf};
pub use policy::{Choice, Clash, Conflict, ConflictKind, Decide, MergeSide, Policy};

use crate::{
    Lake, Result, Snapshot, leaf, manifest, snapshot,
    values::{self, Version},
};
use component::Merge;

/// Tables of a merged commit, and what was changed in them against ours.
pub(crate) struct Merged {
    pub(crate) tables: Vec<TableEntry>,
    pub(crate) changes: Vec<Change>,
    /// What nobody decided; then the tables mean nothing.
    pub(crate) conflicts: Vec<Conflict>,
}

/// Merges what changed from `base` to `theirs` into `ours`. A dry run writes nothing but what several bases need.
pub(crate) async fn merge(
    lake: &Lake,
    base: &Commit,
    ours: &Snapshot,
    theirs: &Commit,
    policy: &Policy,
    dry: bool,
) -> Result<Merged> {
    let mut merger = Merger { lake, ours, policy, dry, changes: Vec::new(), conflicts: Vec::new() };
    let mut tables = Vec::new();
    for our in &ours.commit().tables {
        let (was, their) = (entry(base, our.id), entry(theirs, our.id));
        match (was, their) {
            _ if their == Some(our) => tables.push(our.clone()),
            (Some(was), None) => {
                let untouched = was == our;
                if !untouched && merger.decide(&our.name, "it was dropped there and changed here") == MergeSide::Ours {
                    tables.push(our.clone());
                } else {
                    merger.changes.push(change(our.id, "drop"));
                }
            }
            (None, None) => tables.push(our.clone()),
            (was, Some(their)) => tables.push(merger.table(was, our, their).await?),
        }
    }
    for their in theirs.tables.iter().filter(|their| entry(ours.commit(), their.id).is_none()) {
        let untouched = entry(base, their.id) == Some(their);
        let dropped = entry(base, their.id).is_some();
        if untouched
            || dropped && merger.decide(&their.name, "it was dropped here and changed there") == MergeSide::Ours
        {
            continue;
        }
        merger.changes.push(Change { rows_added: their.rows, ..change(their.id, "create") });
        tables.push(their.clone());
    }
    let tables = merger.names(tables);
    Ok(Merged { tables, changes: merger.changes, conflicts: policy::joined(merger.conflicts) })
}

fn entry(commit: &Commit, id: TableId) -> Option<&TableEntry> {
    commit.tables.iter().find(|table| table.id == id)
}

pub(crate) fn change(table: TableId, kind: &str) -> Change {
    let kind = kind.to_owned();
    Change { table, kind, rows_added: 0, fragments: Vec::new(), fields: Vec::new(), rows_deleted: 0, rows_changed: 0 }
}

struct Merger<'a> {
    lake: &'a Lake,
    ours: &'a Snapshot,
    policy: &'a Policy,
    dry: bool,
    changes: Vec<Change>,
    conflicts: Vec<Conflict>,
}

impl Merger<'_> {
    /// Which side a clash over a whole table goes to.
    fn decide(&mut self, table: &str, reason: &'static str) -> MergeSide {
        let clash = Clash { table, column: None, row: None, base: None, ours: None, theirs: None };
        match self.policy.decide(&clash) {
            Choice::Side(side) => side,
            Choice::Base => MergeSide::Ours,
            Choice::Value(_) | Choice::Fail => {
                let kind = ConflictKind::Table { reason };
                self.conflicts.push(Conflict { table: table.to_owned(), kind });
                MergeSide::Ours
            }
        }
    }

    /// Tables of equal name are one too many.
    fn names(&mut self, tables: Vec<TableEntry>) -> Vec<TableEntry> {
        let mut named: Vec<TableEntry> = Vec::new();
        for table in tables {
            match named.iter().position(|other| other.name == table.name) {
                None => named.push(table),
                Some(place) => {
                    // Ours come first.
                    let side = self.decide(&table.name, "two tables have this name: rename or drop one of them first");
                    if side == MergeSide::Theirs {
                        named[place] = table;
                    }
                }
            }
        }
        named
    }

    async fn table(&mut self, was: Option<&TableEntry>, our: &TableEntry, their: &TableEntry) -> Result<TableEntry> {
        let mut name = our.name.clone();
        if let Some(was) = was
            && was.name != their.name
        {
            let both = was.name != our.name && our.name != their.name;
            if !both || self.decide(&our.name, "it was renamed differently on both sides") == MergeSide::Theirs {
                name.clone_from(&their.name);
            }
        }
        let same = |other: &TableEntry| other.root == our.root;
        if same(their) || was.is_some_and(|was| was.root == their.root) {
            if name != our.name {
                self.changes.push(change(our.id, "rename"));
            }
            return Ok(TableEntry { name, ..our.clone() });
        }
        if was.is_some_and(same) {
            let mut change = change(our.id, "merge");
            count(&mut change, our.rows, their.rows);
            self.changes.push(change);
            return Ok(TableEntry { name, ..their.clone() });
        }
        let commit = self.ours.id();
        let ours = snapshot::root(self.lake, commit, our).await?;
        let theirs = snapshot::root(self.lake, commit, their).await?;
        let base = match was {
            Some(was) => snapshot::root(self.lake, commit, was).await?,
            None => TableRoot { pages: Vec::new(), defaults: Vec::new(), ..theirs.clone() },
        };
        let (merged, gained, lost) = self.rows(&our.name, base, &ours, theirs).await?;
        let mut change = change(our.id, "merge");
        count(&mut change, our.rows, our.rows + gained - lost);
        self.changes.push(change);
        if self.dry {
            return Ok(TableEntry { name, ..our.clone() });
        }
        // Pages and commits count erased rows until somebody else writes the page anew: then they are deleted ones.
        let rows = merged.pages.iter().map(|page| page.rows).sum();
        Ok(TableEntry { name, id: our.id, rows, root: manifest::place(self.lake, merged).await? })
    }

    /// Merges schemas and rows of a table; also gives how many rows the fragments that were written have, and had.
    async fn rows(
        &mut self,
        name: &str,
        base: TableRoot,
        ours: &TableRoot,
        theirs: TableRoot,
    ) -> Result<(TableRoot, u64, u64)> {
        let [was, here, there] = manifest::differing(self.lake, [&base, ours, &theirs]).await?;
        let likely = base.pages.clone();
        let base = Version::load(self.ours, base, was).await?;
        let our = Version::load(self.ours, ours.clone(), here).await?;
        let their = Version::load(self.ours, theirs, there).await?;
        let roots = [&base.root, &our.root, &their.root];
        let mut conflicts = Vec::new();
        let mut merged = schema::merge(name, roots, self.policy, &[], &mut conflicts)?;
        let keep = self.kept(name, &base, [&our, &their], &merged).await?;
        if !keep.is_empty() {
            conflicts.clear();
            merged = schema::merge(name, roots, self.policy, &keep, &mut conflicts)?;
        }
        self.conflicts.extend(conflicts);
        for column in merged.root.schema.columns.clone() {
            // Rows that only a side without it has have no value for it.
            let partial = [&our, &their].iter().any(|side| side.column(column.field).is_none());
            if partial && column.nullable && !self.dry && !has(&merged.root.defaults, column.field) {
                merged.root.defaults.push(self.null(column).await?);
            }
        }
        let merge = Merge {
            lake: self.lake,
            snapshot: self.ours,
            table: name,
            base: &base,
            ours: &our,
            theirs: &their,
            root: &merged.root.clone(),
            policy: self.policy,
            dry: self.dry,
        };
        let known: HashSet<FragmentId> = our.side.fragments.iter().map(|fragment| fragment.id).collect();
        let mut edits: BTreeMap<FragmentId, Vec<Fragment>> = BTreeMap::new();
        let mut added = Vec::new();
        for ids in leaf::components(&[&our.side, &base.side, &their.side]) {
            let outcome = merge.component(&ids).await?;
            self.conflicts.extend(outcome.conflicts);
            let mut places = our.side.fragments.iter().map(|fragment| fragment.id).filter(|id| ids.contains(id));
            match places.next() {
                None => added.extend(outcome.fragments),
                Some(first) => {
                    edits.extend(places.map(|id| (id, Vec::new())));
                    edits.insert(first, outcome.fragments);
                }
            }
        }
        debug_assert!(edits.keys().all(|id| known.contains(id)), "only our fragments are replaced");
        if !merged.root.key.is_empty() {
            let clashes = keys::check(&merge, &mut edits, &mut added).await?;
            self.conflicts.extend(clashes);
        }
        edits.retain(|id, fragments| {
            let ours = our.side.fragments.iter().find(|fragment| fragment.id == *id);
            !(fragments.len() == 1 && ours == fragments.first())
        });
        let kept = our.side.fragments.iter().filter(|fragment| !edits.contains_key(&fragment.id));
        let left: Vec<&Fragment> = kept.chain(edits.values().flatten()).chain(&added).collect();
        self.fill(name, &mut merged.root, &left).await?;
        let live = |fragment: &Fragment| u64::from(fragment.live());
        let gained = edits.values().flatten().chain(&added).map(live).sum();
        let lost = our.side.fragments.iter().filter(|fragment| edits.contains_key(&fragment.id)).map(live).sum();
        if self.dry || !self.conflicts.is_empty() {
            return Ok((merged.root, gained, lost));
        }
        Ok((manifest::edit(self.lake, &merged.root, edits, &added, &likely).await?, gained, lost))
    }

    /// Gives columns that some rows have no value for a default: null. It is needed where a column comes back that was dropped
    /// when these rows were written.
    async fn fill(&mut self, table: &str, root: &mut TableRoot, fragments: &[&Fragment]) -> Result<()> {
        for column in root.schema.columns.clone() {
            let field = column.field;
            let whole = |fragment: &&Fragment| {
                let live = fragment.deleted.complement(fragment.rows);
                has(&fragment.files, field) || live.subtract(&leaf::stored(fragment, field)).is_empty()
            };
            if has(&root.defaults, field) || fragments.iter().all(whole) {
                continue;
            }
            if !column.nullable {
                let reason = "it comes back, and rows that were written without it have no value for it";
                let kind = ConflictKind::Column { column: column.name.clone(), reason };
                self.conflicts.push(Conflict { table: table.to_owned(), kind });
            } else if !self.dry {
                root.defaults.push(self.null(column).await?);
            }
        }
        Ok(())
    }

    /// Writes a default of a column that may be null.
    async fn null(&self, column: Column) -> Result<DataFileRef> {
        let null = values::nothing(&column);
        values::write_file(self.lake.storage(), vec![column], vec![null]).await
    }

    /// Columns that one side dropped while the other one updated them, where the latter has its way.
    async fn kept(
        &mut self,
        table: &str,
        base: &Version,
        [ours, theirs]: [&Version; 2],
        merged: &schema::Merged,
    ) -> Result<Vec<FieldId>> {
        let mut keep = Vec::new();
        for (field, side) in &merged.dropped {
            let version = if *side == MergeSide::Ours { ours } else { theirs };
            let Some(column) = version.column(*field) else { continue };
            if !is_updated(base, version, column).await? {
                continue;
            }
            let name = &column.name;
            let clash = Clash { table, column: Some(name), row: None, base: None, ours: None, theirs: None };
            match self.policy.decide(&clash) {
                Choice::Side(winner) if winner == *side => keep.push(*field),
                Choice::Side(_) => {}
                Choice::Base => keep.push(*field),
                Choice::Value(_) | Choice::Fail => {
                    let reason = "it was dropped on one side and updated on the other";
                    let kind = ConflictKind::Column { column: name.clone(), reason };
                    self.conflicts.push(Conflict { table: table.to_owned(), kind });
                }
            }
        }
        Ok(keep)
    }
}

/// Whether one of some files has a column.
fn has<'a>(files: impl IntoIterator<Item = &'a DataFileRef>, field: FieldId) -> bool {
    files.into_iter().any(|file| file.fields.contains(&field))
}

/// Whether a column has another value in a row that both versions have.
async fn is_updated(base: &Version, version: &Version, column: &Column) -> Result<bool> {
    for (leaf, pieces) in version.side.leaves() {
        let edited = leaf::cells(pieces, base.side.leaf(leaf)).remove(&column.field).unwrap_or_default();
        let lost = base.side.stored(leaf, column.field).subtract(&version.side.stored(leaf, column.field));
        let both = base.side.live(leaf).intersect(&version.side.live(leaf));
        let rows = edited.union(&lost).intersect(&both);
        let (old, new) = (base.values(column, leaf, &rows).await?, version.values(column, leaf, &rows).await?);
        if (0..rows.len() as usize).any(|at| !values::equal(&old, at, &new, at)) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn count(change: &mut Change, before: u64, after: u64) {
    change.rows_added = after.saturating_sub(before);
    change.rows_deleted = before.saturating_sub(after);
}
