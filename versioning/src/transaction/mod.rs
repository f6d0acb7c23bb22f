//! Changes of a branch: prepared apart, made visible by one claim.

mod columns;
mod compact;
mod rows;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::print_stdout)]
mod scale;
mod work;

use std::collections::BTreeMap;

use forebay_format::{
    CommitId, FragmentId, PinId, Schema, TableId,
    meta::{Change, Commit, RootRef, TableEntry, TableRoot},
};

pub use compact::CompactOptions;
use work::Work;

use crate::{
    Conflict, ConflictKind, Error, Lake, Pin, Policy, Result, Snapshot, Table, TableWriter, Written, commit,
    epochs::Begun,
    lake::now,
    manifest,
    merge::{self, change},
    names,
    refs::{self, Head},
    snapshot,
};

/// Changes of a branch that nobody sees until [`commit`](Transaction::commit) returns.
///
/// Rows are written by [`TableWriter`]s, as many at once as you like, and handed in by [`append`](Transaction::append).
/// All other changes are about tables of [`base`](Transaction::base), the version that the transaction started from. A
/// commit that loses the race for the branch is rebased over the winner: what both did stays, unless they touched the
/// same cells.
#[derive(Debug)]
pub struct Transaction {
    lake: Lake,
    /// What the changes are about.
    base: Head,
    /// The branch's end when it began: the base or a later commit.
    head: Head,
    created: Vec<(String, TableId, TableRoot)>,
    dropped: Vec<(String, TableId)>,
    renamed: BTreeMap<TableId, String>,
    written: Vec<Written>,
    works: BTreeMap<TableId, Work>,
    properties: BTreeMap<String, String>,
    /// Since when its files are written.
    begun: Begun,
    pin: Option<PinId>,
}

/// Attempts to commit before a writer gives up; with pauses of up to half a second between them.
const ATTEMPTS: u32 = 1_000;

impl Transaction {
    pub(crate) fn new(lake: Lake, base: Head, head: Head) -> Self {
        let begun = Begun::now(head.epoch);
        Self {
            begun,
            pin: None,
            lake,
            base,
            head,
            created: Vec::new(),
            dropped: Vec::new(),
            renamed: BTreeMap::new(),
            written: Vec::new(),
            works: BTreeMap::new(),
            properties: BTreeMap::new(),
        }
    }

    /// The version that it started from.
    #[must_use]
    pub fn base(&self) -> Snapshot {
        self.base.snapshot(&self.lake)
    }

    /// The branch that it will change.
    #[must_use]
    pub fn branch(&self) -> &str {
        &self.base.branch
    }

    /// Adds a table.
    ///
    /// # Errors
    /// [`Error::TableExists`], [`Error::InvalidName`], or [`Error::Data`] if the schema breaks a rule.
    pub fn create_table(&mut self, name: &str, schema: Schema) -> Result<TableId> {
        self.create_table_with_key(name, schema, &[])
    }

    /// Adds a table in which no two rows have equal values in all columns of `key`.
    ///
    /// # Errors
    /// As [`create_table`](Self::create_table); also [`Error::Data`] if a column of the key is unknown or nullable.
    pub fn create_table_with_key(&mut self, name: &str, schema: Schema, key: &[&str]) -> Result<TableId> {
        schema.check()?;
        let mut fields = Vec::with_capacity(key.len());
        for name in key {
            let column = schema.column(name)?;
            if column.nullable {
                let (column, reason) = (column.name.clone(), "a key's column is not nullable".to_owned());
                return Err(forebay_format::Error::InvalidSchema { column, reason }.into());
            }
            fields.push(column.field);
        }
        self.check_free(name)?;
        let id = TableId::random();
        let root = TableRoot { schema, pages: Vec::new(), key: fields, defaults: Vec::new() };
        self.created.push((name.to_owned(), id, root));
        Ok(id)
    }

    /// Removes a table.
    ///
    /// # Errors
    /// [`Error::UnknownTable`].
    pub fn drop_table(&mut self, name: &str) -> Result<()> {
        if let Some(place) = self.created.iter().position(|(other, ..)| other == name) {
            self.created.remove(place);
            return Ok(());
        }
        let base = self.base();
        let entry = base.entry(name)?;
        self.dropped.push((entry.name.clone(), entry.id));
        Ok(())
    }

    /// Gives a table another name. Its identity stays, and with it its history.
    ///
    /// # Errors
    /// [`Error::UnknownTable`], [`Error::TableExists`] or [`Error::InvalidName`].
    pub fn rename_table(&mut self, from: &str, to: &str) -> Result<()> {
        self.check_free(to)?;
        let id = self.base().entry(from)?.id;
        self.renamed.insert(id, to.to_owned());
        Ok(())
    }

    fn check_free(&self, name: &str) -> Result<()> {
        names::check("table", name)?;
        let gone = |table: &&TableEntry| {
            !self.dropped.iter().any(|(_, id)| *id == table.id) && !self.renamed.contains_key(&table.id)
        };
        let there = self.base.commit.tables.iter().filter(gone).map(|table| &table.name);
        let there = there.chain(self.created.iter().map(|(name, ..)| name)).chain(self.renamed.values());
        for other in there {
            if other == name {
                return Err(Error::TableExists { branch: self.base.branch.clone(), name: name.to_owned() });
            }
        }
        Ok(())
    }

    /// A writer of rows for a table: one of the branch, or one that this transaction makes.
    ///
    /// # Errors
    /// [`Error::UnknownTable`], and what reading the table's root reports.
    pub async fn writer(&self, table: &str) -> Result<TableWriter> {
        let storage = self.lake.storage().clone();
        if let Some((_, id, root)) = self.created.iter().find(|(name, ..)| name == table) {
            return Ok(TableWriter::new(storage, *id, root.schema.clone(), self.begun));
        }
        let base = self.base();
        let entry = base.entry(table)?;
        let root = snapshot::root(&self.lake, base.id(), entry).await?;
        Ok(TableWriter::new(storage, entry.id, root.schema, self.begun))
    }

    /// Adds rows that a [`TableWriter`] wrote; they follow the table's rows, in the order of the calls.
    pub fn append(&mut self, written: Written) {
        self.begun = self.begun.earlier(written.begun);
        self.written.push(written);
    }

    /// Lets a pin, which was taken before anything was written, keep the files of this transaction, however long it takes.
    /// Without one it must be committed within the grace of collections of garbage, or fails with [`Error::Fenced`] if
    /// there was one.
    pub fn hold(&mut self, pin: &Pin) {
        self.pin = Some(pin.id());
    }

    /// Records a property of the commit, such as a run's id.
    pub fn set_property(&mut self, key: &str, value: &str) {
        self.properties.insert(key.to_owned(), value.to_owned());
    }

    /// What this transaction does to a table of its base.
    fn work(&mut self, table: &Table) -> Result<&mut Work> {
        if table.snapshot().id() != self.base.commit.id {
            let reason = format!(
                "table '{}' is of commit {}, the transaction is based on {}: take it from Transaction::base",
                table.name(),
                table.snapshot().id(),
                self.base.commit.id
            );
            return Err(Error::Misuse { reason });
        }
        // A table that was opened before rows were erased still shows them: what is made of it would bring them back.
        if self.lake.known_purges().miss(table.fragments()) {
            return Err(Error::Erased { path: format!("table '{}'", table.name()) });
        }
        Ok(self.works.entry(table.id()).or_insert_with(|| Work::new(table)))
    }

    fn is_empty(&self) -> bool {
        self.created.is_empty()
            && self.dropped.is_empty()
            && self.renamed.is_empty()
            && self.written.iter().all(|written| written.fragments.is_empty())
            && self.works.values().all(Work::is_empty)
    }

    /// Makes the changes the newest commit of the branch, rebasing them over commits made meanwhile.
    ///
    /// # Errors
    /// [`Error::NothingToCommit`]; [`Error::Conflict`] or [`Error::TableExists`] if another commit changed what this one
    /// builds on; [`Error::DuplicateKey`]; [`Error::Contention`] if others won every attempt; in all these cases nothing
    /// was committed; so also with [`Error::Fenced`]. [`Error::OutcomeUnknown`] if the store would not say. And what the store reports.
    pub async fn commit(mut self, message: &str, author: &str) -> Result<Snapshot> {
        if self.is_empty() {
            return Err(Error::NothingToCommit { branch: self.base.branch });
        }
        let lake = self.lake.clone();
        let mut head = self.head.clone();
        let appends_only = self.created.is_empty() && self.dropped.is_empty() && self.renamed.is_empty();
        let appends_only = appends_only && self.works.values().all(Work::is_empty);
        // What the base becomes, made once; what others did meanwhile is merged with it.
        let mut mine: Option<Commit> = None;
        for attempt in 1..=ATTEMPTS {
            if head.epoch > self.begun.epoch {
                self.begun.survives(lake.storage(), &head.branch, head.epoch, self.pin).await?;
            }
            let rebased = head.commit.id != self.base.commit.id;
            let (tables, changes) = if appends_only && (!rebased || !self.is_keyed(&head).await?) {
                self.appended(&head).await?
            } else {
                let commit = match &mine {
                    Some(commit) => commit,
                    None => mine.insert(self.applied().await?),
                };
                if rebased {
                    self.merged(&head, commit).await?
                } else {
                    (commit.tables.clone(), commit.changes.clone())
                }
            };
            let commit = Commit {
                id: CommitId::random(),
                parents: vec![head.pointer],
                generation: head.commit.generation + 1,
                author: author.to_owned(),
                message: message.to_owned(),
                time: now(),
                tables,
                changes,
                properties: self.properties.clone(),
            };
            if let Some(snapshot) = commit::publish(&lake, &head, commit, 0).await? {
                return Ok(snapshot);
            }
            head = refs::overtaken(&lake, &head, attempt).await?;
        }
        Err(Error::Contention { branch: head.branch, attempts: ATTEMPTS })
    }

    fn conflict(&self, table: &str, reason: &'static str) -> Error {
        let conflicts = vec![Conflict { table: table.to_owned(), kind: ConflictKind::Table { reason } }];
        Error::Conflict { branch: self.base.branch.clone(), conflicts }
    }

    async fn is_keyed(&self, head: &Head) -> Result<bool> {
        for table in &head.commit.tables {
            if self.written.iter().any(|written| written.table == table.id)
                && !snapshot::root(&self.lake, head.commit.id, table).await?.key.is_empty()
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The appended rows on top of `head`.
    async fn appended(&self, head: &Head) -> Result<(Vec<TableEntry>, Vec<Change>)> {
        let mut tables = head.commit.tables.clone();
        let mut changes = Vec::new();
        // Rows of one table are added at once, so that its manifest is written once.
        let mut appends: BTreeMap<TableId, Vec<&Written>> = BTreeMap::new();
        for written in self.written.iter().filter(|written| !written.fragments.is_empty()) {
            appends.entry(written.table).or_default().push(written);
        }
        for (id, written) in appends {
            let Some(table) = tables.iter_mut().find(|table| table.id == id) else {
                let name = self.base.commit.tables.iter().find(|table| table.id == id).map(|table| table.name.clone());
                return Err(self.conflict(&name.unwrap_or_else(|| id.to_string()), "it was dropped meanwhile"));
            };
            let root = snapshot::root(&self.lake, head.commit.id, table).await?;
            let fragments: Vec<_> = written.iter().flat_map(|written| &written.fragments).cloned().collect();
            for column in &root.schema.columns {
                let has = |files: &[forebay_format::meta::DataFileRef]| {
                    files.iter().any(|file| file.fields.contains(&column.field))
                };
                if !has(&root.defaults) && !fragments.iter().all(|fragment| has(&fragment.files)) {
                    return Err(self.conflict(&table.name, "it has columns that the rows lack: write them again"));
                }
            }
            if !root.key.is_empty() {
                work::check_new_keys(&self.base.snapshot(&self.lake), &table.name, &root, &fragments).await?;
            }
            let referrer = format!("table '{}' of commit {}", table.name, head.commit.id);
            table.root =
                manifest::place(&self.lake, manifest::append(&self.lake, &root, &fragments, &referrer).await?).await?;
            let rows: u64 = fragments.iter().map(|fragment| u64::from(fragment.live())).sum();
            table.rows += rows;
            let ids: Vec<FragmentId> = fragments.iter().map(|fragment| fragment.id).collect();
            changes.push(Change { rows_added: rows, fragments: ids, ..change(id, "append") });
        }
        Ok((tables, changes))
    }

    /// What the base becomes.
    async fn applied(&self) -> Result<Commit> {
        let base = &self.base.commit;
        let mut mine = Commit { id: CommitId::random(), changes: Vec::new(), ..base.clone() };
        mine.tables.retain(|table| !self.dropped.iter().any(|(_, id)| *id == table.id));
        mine.changes.extend(self.dropped.iter().map(|(_, id)| change(*id, "drop")));
        for (id, name) in &self.renamed {
            if let Some(table) = mine.tables.iter_mut().find(|table| table.id == *id) {
                table.name.clone_from(name);
                mine.changes.push(change(*id, "rename"));
            }
        }
        for (name, id, root) in &self.created {
            let fields = root.schema.columns.iter().map(|column| column.field).collect();
            mine.changes.push(Change { fields, ..change(*id, "create") });
            let root = RootRef::Inline(root.clone());
            mine.tables.push(TableEntry { name: name.clone(), id: *id, rows: 0, root });
        }
        for (id, work) in self.works.iter().filter(|(_, work)| !work.is_empty()) {
            let Some(table) = mine.tables.iter_mut().find(|table| table.id == *id) else { continue };
            work.apply(&self.base.snapshot(&self.lake), table).await?;
            mine.changes.extend(work.changes(*id));
        }
        let (tables, changes) = self.appended(&Head { commit: mine.clone(), ..self.base.clone() }).await?;
        mine.tables = tables;
        mine.changes.extend(changes);
        Ok(mine)
    }

    /// What the base became, merged with what others made of it.
    async fn merged(&self, head: &Head, mine: &Commit) -> Result<(Vec<TableEntry>, Vec<Change>)> {
        for (name, id, _) in &self.created {
            if head.commit.tables.iter().any(|table| table.name == *name && table.id != *id) {
                return Err(Error::TableExists { branch: head.branch.clone(), name: name.clone() });
            }
        }
        let ours = head.snapshot(&self.lake);
        let merged = merge::merge(&self.lake, &self.base.commit, &ours, mine, &Policy::Fail, false).await?;
        if !merged.conflicts.is_empty() {
            return Err(Error::Conflict { branch: head.branch.clone(), conflicts: merged.conflicts });
        }
        Ok((merged.tables, mine.changes.clone()))
    }
}
