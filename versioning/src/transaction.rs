//! Changes of a branch: prepared apart, made visible by one claim.

use std::collections::BTreeMap;

use forebay_format::{
    CommitId, FragmentId, Schema, TableId,
    meta::{Change, Commit, RefKind, RootRef, TableEntry, TableRoot},
};

use crate::{
    Error, Lake, Result, Snapshot, TableWriter, Written, commit,
    lake::now,
    manifest, names,
    refs::{self, Head, Outcome},
    snapshot,
};

/// Changes of a branch that nobody sees until [`commit`](Transaction::commit) returns.
///
/// Rows are written by [`TableWriter`]s, as many at once as you like, and handed in by [`append`](Transaction::append).
/// A commit that loses the race for the branch is rebased over the winner: appends of both stay.
#[derive(Debug)]
pub struct Transaction {
    lake: Lake,
    base: Head,
    created: Vec<(String, TableId, Schema)>,
    written: Vec<Written>,
    properties: BTreeMap<String, String>,
}

/// Attempts to commit before a writer gives up; with pauses of up to half a second between them.
const ATTEMPTS: u32 = 1_000;

impl Transaction {
    pub(crate) fn new(lake: Lake, base: Head) -> Self {
        Self { lake, base, created: Vec::new(), written: Vec::new(), properties: BTreeMap::new() }
    }

    /// The version that it started from.
    #[must_use]
    pub fn base(&self) -> Snapshot {
        self.snapshot_of(&self.base)
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
        names::check("table", name)?;
        schema.check()?;
        let there = self.base.commit.tables.iter().map(|table| &table.name);
        if there.chain(self.created.iter().map(|(name, ..)| name)).any(|other| other == name) {
            return Err(Error::TableExists { branch: self.base.branch.clone(), name: name.to_owned() });
        }
        let id = TableId::random();
        self.created.push((name.to_owned(), id, schema));
        Ok(id)
    }

    /// A writer of rows for a table: one of the branch, or one that this transaction makes.
    ///
    /// # Errors
    /// [`Error::UnknownTable`], and what reading the table's root reports.
    pub async fn writer(&self, table: &str) -> Result<TableWriter> {
        let storage = self.lake.storage().clone();
        if let Some((_, id, schema)) = self.created.iter().find(|(name, ..)| name == table) {
            return Ok(TableWriter::new(storage, *id, schema.clone()));
        }
        let base = self.base();
        let entry = base.entry(table)?;
        let root = snapshot::root(&self.lake, base.id(), entry).await?;
        Ok(TableWriter::new(storage, entry.id, root.schema))
    }

    /// Adds rows that a [`TableWriter`] wrote; they follow the table's rows, in the order of the calls.
    pub fn append(&mut self, written: Written) {
        self.written.push(written);
    }

    /// Records a property of the commit, such as a run's id.
    pub fn set_property(&mut self, key: &str, value: &str) {
        self.properties.insert(key.to_owned(), value.to_owned());
    }

    /// Makes the changes the newest commit of the branch, rebasing them over commits made meanwhile.
    ///
    /// # Errors
    /// [`Error::NothingToCommit`]; [`Error::Conflict`] or [`Error::TableExists`] if another commit changed what this one
    /// builds on; [`Error::Contention`] if others won every attempt; in all these cases nothing was committed.
    /// [`Error::OutcomeUnknown`] if the store would not say. And what the store reports.
    pub async fn commit(mut self, message: &str, author: &str) -> Result<Snapshot> {
        if self.created.is_empty() && self.written.iter().all(|written| written.fragments.is_empty()) {
            return Err(Error::NothingToCommit { branch: self.base.branch });
        }
        for attempt in 1..=ATTEMPTS {
            let commit = self.over(&self.base, message, author).await?;
            let (pointer, bytes) = commit::write(self.lake.storage(), &commit).await?;
            let sequence = self.base.sequence + 1;
            let branch = &self.base.branch;
            match refs::claim(self.lake.storage(), branch, sequence, RefKind::Commit, pointer, bytes).await? {
                Outcome::Ours => {
                    refs::leave_hint(self.lake.storage(), branch, sequence).await;
                    return Ok(Snapshot::new(self.lake, commit.id, pointer, commit));
                }
                Outcome::Theirs => {
                    tracing::debug!(%branch, sequence, attempt, "another writer was first: rebasing");
                    refs::pause(attempt.min(6)).await;
                    self.base = refs::head_after(self.lake.storage(), branch, sequence).await?;
                }
            }
        }
        Err(Error::Contention { branch: self.base.branch, attempts: ATTEMPTS })
    }

    /// The commit that these changes make on top of `head`.
    async fn over(&self, head: &Head, message: &str, author: &str) -> Result<Commit> {
        let mut tables = head.commit.tables.clone();
        let mut changes = Vec::new();
        let conflict = |table: &str, reason: &str| Error::Conflict {
            branch: head.branch.clone(),
            table: table.to_owned(),
            reason: reason.to_owned(),
        };
        for (name, id, schema) in &self.created {
            if tables.iter().any(|table| &table.name == name) {
                return Err(Error::TableExists { branch: head.branch.clone(), name: name.clone() });
            }
            let root = RootRef::Inline(TableRoot { schema: schema.clone(), pages: Vec::new(), key: Vec::new(), defaults: Vec::new() });
            tables.push(TableEntry { name: name.clone(), id: *id, rows: 0, root });
            let fields = schema.columns.iter().map(|column| column.field).collect();
            changes.push(Change { table: *id, kind: "create".into(), rows_added: 0, fragments: Vec::new(), fields, rows_deleted: 0, rows_changed: 0 });
        }
        // Rows of one table are added at once, so that its manifest is written once.
        let mut appends: BTreeMap<TableId, Vec<&Written>> = BTreeMap::new();
        for written in &self.written {
            appends.entry(written.table).or_default().push(written);
        }
        for (id, written) in appends {
            let Some(table) = tables.iter_mut().find(|table| table.id == id) else {
                return Err(conflict(&id.to_string(), "it was dropped meanwhile"));
            };
            let root = snapshot::root(&self.lake, head.commit.id, table).await?;
            if written.iter().any(|written| written.schema != root.schema) {
                return Err(conflict(&table.name, "its columns changed after the rows were written: write them again"));
            }
            let fragments: Vec<_> = written.iter().flat_map(|written| &written.fragments).cloned().collect();
            let rows: u64 = fragments.iter().map(|fragment| u64::from(fragment.rows)).sum();
            let referrer = format!("table '{}' of commit {}", table.name, head.commit.id);
            table.root =
                manifest::place(&self.lake, manifest::append(&self.lake, &root, &fragments, &referrer).await?).await?;
            table.rows += rows;
            let ids: Vec<FragmentId> = fragments.iter().map(|fragment| fragment.id).collect();
            let kind = "append".to_owned();
            changes.push(Change { table: id, kind, rows_added: rows, fragments: ids, fields: Vec::new(), rows_deleted: 0, rows_changed: 0 });
        }
        Ok(Commit {
            id: CommitId::random(),
            parents: vec![head.pointer],
            generation: head.commit.generation + 1,
            author: author.to_owned(),
            message: message.to_owned(),
            time: now(),
            tables,
            changes,
            properties: self.properties.clone(),
        })
    }

    fn snapshot_of(&self, head: &Head) -> Snapshot {
        Snapshot::new(self.lake.clone(), head.commit.id, head.pointer, head.commit.clone())
    }
}
