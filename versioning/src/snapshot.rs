//! A version of a lake.

use std::sync::Arc;

use forebay_format::{
    CommitId,
    meta::{Commit, Pointer, RootRef, TableEntry, TableRoot},
};

use crate::{Error, Lake, Result, Table, commit, epochs, manifest, names};

/// A commit of a lake: it never changes. Clones are cheap.
#[derive(Clone, Debug)]
pub struct Snapshot {
    lake: Lake,
    id: CommitId,
    pointer: Pointer,
    commit: Arc<Commit>,
}

impl Snapshot {
    pub(crate) fn new(lake: Lake, id: CommitId, pointer: Pointer, commit: Commit) -> Self {
        Self { lake, id, pointer, commit: Arc::new(commit) }
    }

    /// The commit's identity.
    #[must_use]
    pub fn id(&self) -> CommitId {
        self.id
    }

    /// The commit.
    #[must_use]
    pub fn commit(&self) -> &Commit {
        &self.commit
    }

    /// The lake.
    #[must_use]
    pub fn lake(&self) -> &Lake {
        &self.lake
    }

    pub(crate) fn pointer(&self) -> Pointer {
        self.pointer
    }

    /// The bytes of the commit's object, to be repeated where something points at it.
    pub(crate) async fn embedded(&self) -> Result<Vec<u8>> {
        commit::stored(self.lake.storage(), &self.pointer, &self.commit).await
    }

    /// The names of its tables, sorted.
    #[must_use]
    pub fn tables(&self) -> Vec<&str> {
        let mut names: Vec<_> = self.commit.tables.iter().map(|table| table.name.as_str()).collect();
        names.sort_unstable();
        names
    }

    /// A table with its schema and its list of fragments, ready to be read.
    ///
    /// # Errors
    /// [`Error::UnknownTable`]; [`Error::Expired`] if its tables were collected; [`Error::Object`], [`Error::Missing`] or [`Error::Inconsistent`] if the lake is damaged;
    /// and what the store reports.
    pub async fn table(&self, name: &str) -> Result<Table> {
        let entry = self.entry(name)?;
        let opened = async {
            let root = root(&self.lake, self.id, entry).await?;
            let rows: u64 = root.pages.iter().map(|page| page.rows).sum();
            if rows != entry.rows {
                let reason = format!("its pages have {rows} rows, commit {} says {}", self.id, entry.rows);
                return Err(Error::Inconsistent { path: format!("table '{name}'"), reason });
            }
            let referrer = format!("table '{name}' of commit {}", self.id);
            let fragments = manifest::fragments(&self.lake, &root, &referrer).await?;
            Table::new(self.clone(), entry, root, fragments)
        };
        match opened.await {
            Err(error) => Err(self.explain(error).await),
            table => table,
        }
    }

    /// The error for something that is missing: it may have been collected.
    pub(crate) async fn explain(&self, error: Error) -> Error {
        match &error {
            Error::Missing { path, .. } if self.erased(path).await => Error::Erased { path: path.clone() },
            Error::Missing { .. } => match epochs::expired(self.lake.storage()).await {
                Ok(expired) if expired.contains(&self.id) => Error::Expired { commit: self.id },
                _ => error,
            },
            _ => error,
        }
    }

    /// Whether a file was replaced by one without some rows, since this handle looked.
    async fn erased(&self, path: &str) -> bool {
        let file = path.strip_prefix(names::DATA).and_then(|id| id.strip_prefix('/')?.parse().ok());
        match (file, self.lake.reload_purges().await) {
            (Some(file), Ok(purges)) => purges.replaces(file),
            _ => false,
        }
    }

    pub(crate) fn entry(&self, name: &str) -> Result<&TableEntry> {
        self.commit.tables.iter().find(|table| table.name == name).ok_or_else(|| Error::UnknownTable {
            commit: self.id,
            name: name.to_owned(),
            known: self.tables().into_iter().map(str::to_owned).collect(),
        })
    }
}

/// A table's root, wherever it is.
pub(crate) async fn root(lake: &Lake, commit: CommitId, entry: &TableEntry) -> Result<TableRoot> {
    match &entry.root {
        RootRef::Inline(root) => Ok(root.clone()),
        RootRef::Object(pointer) => {
            let referrer = format!("table '{}' of commit {commit}", entry.name);
            let bytes = lake.root(pointer, &referrer).await?;
            TableRoot::decode(&bytes).map_err(Error::object(names::meta(pointer.id)))
        }
    }
}
