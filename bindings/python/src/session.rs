//! A lake opened at a version: what `forebay.Dataset` stands on.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use forebay_format::CommitId;
use forebay_storage::Storage;
use forebay_versioning::{At, DEFAULT_BRANCH, Error as VersionError, Lake, Snapshot};
use pyo3::{
    prelude::*,
    types::{PyDict, PyIterator},
};

use crate::{
    access::Access,
    append::{Batch, Pending},
    change::{self, Change},
    error::{Error, Result},
    fork::Owned,
    link,
    rows::Rows,
    schema::{self, Plain},
    tables::{self, New},
    wait::{block_on, detached},
};

/// Where a lake is, in plain types that travel to other processes.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) url: String,
    pub(crate) access: Access,
}

impl Place {
    pub(crate) fn storage(&self) -> Result<Storage> {
        self.access.open(&self.url)
    }

    /// Lets the links of a lake at this place lead where its opener said.
    pub(crate) fn allow_links(&self, lake: &Lake) -> Result<()> {
        link::allow(&self.access, lake)
    }
}

/// A lake opened at a branch, tag or commit, and the rows that wait for a commit.
#[pyclass(frozen, module = "forebay._forebay")]
pub(crate) struct Session {
    place: Place,
    /// The branch that commits go to, or the tag or commit that never changes.
    at: At,
    state: Mutex<State>,
}

/// Locked only with the GIL held and never across a wait: a fork, which holds the GIL, finds it free.
struct State {
    commit: CommitId,
    /// None once closed.
    open: Option<Owned<Open>>,
}

#[derive(Clone)]
struct Open {
    lake: Lake,
    snapshot: Snapshot,
    pending: Arc<Mutex<Pending>>,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Session {
    fn new(place: Place, at: At, lake: Lake, snapshot: Snapshot) -> Self {
        let commit = snapshot.id();
        let open = Open { lake, snapshot, pending: Arc::default() };
        Self { place, at, state: Mutex::new(State { commit, open: Some(Owned::new(open)) }) }
    }

    /// What is open in this process; opened anew in a forked child.
    fn open(&self, py: Python<'_>) -> Result<Open> {
        let commit = {
            let state = lock(&self.state);
            match &state.open {
                None => return Err(Error::Closed),
                Some(owned) => match owned.get() {
                    Some(open) => return Ok(open.clone()),
                    None => state.commit,
                },
            }
        };
        let storage = self.place.storage()?;
        let at = At::Commit(commit);
        let (lake, snapshot) = block_on(py, || Lake::open_at(storage, &at))?;
        self.place.allow_links(&lake)?;
        let open = Open { lake, snapshot, pending: Arc::default() };
        lock(&self.state).open = Some(Owned::new(open.clone()));
        Ok(open)
    }

    /// The lake, open in this process.
    pub(crate) fn lake(&self, py: Python<'_>) -> Result<Lake> {
        Ok(self.open(py)?.lake)
    }

    /// The commit that reads see.
    pub(crate) fn seen(&self) -> At {
        At::Commit(lock(&self.state).commit)
    }

    fn branch_name(&self) -> Result<&str> {
        match &self.at {
            At::Branch(name) => Ok(name),
            other => Err(Error::ReadOnly { at: other.to_string() }),
        }
    }

    /// Commits something while no rows wait, and moves there. Gives the commit's id.
    fn moved(&self, py: Python<'_>, work: impl FnOnce(&Lake, &str) -> Result<Snapshot>) -> Result<String> {
        let (open, branch) = (self.open(py)?, self.branch_name()?);
        let rows = self.pending(py)?;
        if rows > 0 {
            return Err(Error::Pending { rows });
        }
        let snapshot = work(&open.lake, branch)?;
        let id = snapshot.id().to_string();
        self.move_to(snapshot);
        Ok(id)
    }

    fn move_to(&self, snapshot: Snapshot) {
        let mut state = lock(&self.state);
        state.commit = snapshot.id();
        if let Some(open) = state.open.as_mut().and_then(Owned::get_mut) {
            open.snapshot = snapshot;
        }
    }
}

/// The names of the tables that a commit changed, of those that it has.
fn changed(commit: &forebay_format::meta::Commit) -> Vec<String> {
    let changed = |table: &&forebay_format::meta::TableEntry| commit.changes.iter().any(|c| c.table == table.id);
    commit.tables.iter().filter(changed).map(|table| table.name.clone()).collect()
}

/// A version by its kind and name.
pub(crate) fn version((kind, name): (&str, String)) -> Result<At> {
    Ok(match kind {
        "branch" => At::Branch(name),
        "tag" => At::Tag(name),
        _ => At::Commit(name.parse()?),
    })
}

/// The lake at a place: made if it isn't there.
async fn ensure(storage: Storage) -> Result<Lake, VersionError> {
    match Lake::create(storage.clone()).await {
        Err(VersionError::LakeExists { .. }) => Lake::open(storage).await,
        result => result,
    }
}

#[pymethods]
impl Session {
    /// Makes a table, and its lake if need be.
    #[staticmethod]
    fn create(
        py: Python<'_>,
        url: String,
        access: Access,
        table: &str,
        columns: Vec<Plain>,
        key: Vec<String>,
        exist_ok: bool,
    ) -> Result<Self> {
        let wanted = schema::from_plain(columns)?;
        let key: Vec<&str> = key.iter().map(String::as_str).collect();
        let place = Place { url, access };
        let storage = place.storage()?;
        let (lake, snapshot) = block_on(py, || async {
            let lake = ensure(storage).await?;
            let mut transaction = lake.begin(DEFAULT_BRANCH).await?;
            let made = match transaction.create_table_with_key(table, wanted.clone(), &key) {
                Ok(_) => transaction.commit(&format!("create table {table}"), "").await,
                Err(error) => Err(error),
            };
            let snapshot = match made {
                Err(VersionError::TableExists { .. }) if exist_ok => {
                    let snapshot = lake.snapshot(&At::default()).await?;
                    let found = snapshot.table(table).await?;
                    let found_key: Vec<&str> = found.key().iter().map(|column| column.name.as_str()).collect();
                    if !schema::same(found.schema(), &wanted) || found_key != key {
                        let lines = |schema, key: &[&str]| match key {
                            [] => schema::lines(schema),
                            key => format!("{}\n  key: {}", schema::lines(schema), key.join(", ")),
                        };
                        let (found, wanted) = (lines(found.schema(), &found_key), lines(&wanted, &key));
                        return Err(Error::OtherSchema { name: table.to_owned(), found, wanted });
                    }
                    snapshot
                }
                made => made?,
            };
            Ok::<_, Error>((lake, snapshot))
        })?;
        place.allow_links(&lake)?;
        Ok(Self::new(place, At::default(), lake, snapshot))
    }

    /// Opens a lake at a branch, tag or commit; at branch `main` if none is named. `pinned` opens a branch at one of its commits.
    #[staticmethod]
    #[pyo3(signature = (url, access, branch=None, tag=None, commit=None))]
    fn open_at(
        py: Python<'_>,
        url: String,
        access: Access,
        branch: Option<String>,
        tag: Option<String>,
        commit: Option<&str>,
    ) -> Result<Self> {
        let commit = commit.map(str::parse::<CommitId>).transpose()?;
        // A branch and a commit together: the handle of another process, which had seen that commit of the branch.
        let (at, seen) = match (branch, tag, commit) {
            (Some(branch), None, Some(commit)) => (At::Branch(branch), At::Commit(commit)),
            (Some(branch), None, None) => (At::Branch(branch.clone()), At::Branch(branch)),
            (None, Some(tag), None) => (At::Tag(tag.clone()), At::Tag(tag)),
            (None, None, Some(commit)) => (At::Commit(commit), At::Commit(commit)),
            (None, None, None) => (At::default(), At::default()),
            _ => return Err(Error::argument("name one of branch, tag and commit")),
        };
        let place = Place { url, access };
        let storage = place.storage()?;
        let (lake, snapshot) = block_on(py, || Lake::open_at(storage, &seen))?;
        place.allow_links(&lake)?;
        Ok(Self::new(place, at, lake, snapshot))
    }

    /// The URL as given.
    #[getter]
    fn url(&self) -> &str {
        &self.place.url
    }

    /// How the storage is reached, as given.
    #[getter]
    fn access(&self) -> Access {
        self.place.access.clone()
    }

    /// The branch that commits go to, or None.
    #[getter]
    fn branch(&self) -> Option<&str> {
        self.branch_name().ok()
    }

    /// The commit that reads see.
    #[getter]
    fn commit_id(&self) -> String {
        lock(&self.state).commit.to_string()
    }

    /// Names of the tables at that commit, sorted.
    fn tables(&self, py: Python<'_>) -> Result<Vec<String>> {
        Ok(self.open(py)?.snapshot.tables().into_iter().map(str::to_owned).collect())
    }

    /// The rows of a table at that commit.
    fn rows(&self, py: Python<'_>, table: &str) -> Result<Rows> {
        let open = self.open(py)?;
        let table = block_on(py, || open.snapshot.table(table))?;
        Ok(Rows::all(self.place.clone(), table))
    }

    /// Makes a table, of the rows that an iterator gives if there is one, and commits that. `how` is whether it replaces
    /// another, message and author.
    #[pyo3(signature = (name, columns, key, batches, how))]
    fn create_table(
        &self,
        py: Python<'_>,
        name: String,
        columns: Vec<Plain>,
        key: Vec<String>,
        batches: Option<Bound<'_, PyIterator>>,
        how: (bool, String, String),
    ) -> Result<String> {
        let (replace, message, author) = how;
        let new = New { name, columns, key, replace };
        self.moved(py, |lake, branch| tables::create(py, (lake, branch), new, batches, (&message, &author)))
    }

    /// Drops a table and commits that.
    fn drop_table(&self, py: Python<'_>, name: &str, message: &str, author: &str) -> Result<String> {
        self.moved(py, |lake, branch| tables::drop(py, (lake, branch), name, (message, author)))
    }

    /// Writes rows that the next commit will show.
    fn append(&self, py: Python<'_>, table: &str, batch: Batch<'_>) -> Result<()> {
        let (open, branch) = (self.open(py)?, self.branch_name()?);
        let slices = batch.slices()?;
        let known = detached(py, || lock(&open.pending).ready(table))?;
        let writer = if known {
            None
        } else {
            Some(block_on(py, || async { open.lake.begin(branch).await?.writer(table).await })?)
        };
        detached(py, || lock(&open.pending).push(table, writer, &slices))
    }

    /// Rows that wait for a commit.
    fn pending(&self, py: Python<'_>) -> Result<u64> {
        let open = self.open(py)?;
        detached(py, || Ok(lock(&open.pending).rows()))
    }

    /// Forgets the rows that wait for a commit.
    fn discard(&self, py: Python<'_>) -> Result<()> {
        let open = self.open(py)?;
        detached(py, || {
            *lock(&open.pending) = Pending::default();
            Ok(())
        })
    }

    /// Makes the waiting rows visible. Gives the commit's id.
    fn commit(
        &self,
        py: Python<'_>,
        message: &str,
        author: &str,
        properties: BTreeMap<String, String>,
    ) -> Result<String> {
        let (open, branch) = (self.open(py)?, self.branch_name()?);
        let written = detached(py, || lock(&open.pending).take())?;
        let done = block_on(py, || async {
            let mut transaction = open.lake.begin(branch).await?;
            for written in written.rows() {
                transaction.append(written.clone());
            }
            for (key, value) in &properties {
                transaction.set_property(key, value);
            }
            transaction.commit(message, author).await
        });
        match done {
            Ok(snapshot) => {
                let id = snapshot.id().to_string();
                self.move_to(snapshot);
                Ok(id)
            }
            Err(error) => {
                // What surely wasn't committed can be tried again; what may have been must not be.
                let unsure = matches!(
                    &error,
                    Error::Version(VersionError::OutcomeUnknown { .. }) | Error::Python(_) | Error::Internal { .. }
                );
                let reason = error.to_string();
                detached(py, || {
                    let mut pending = lock(&open.pending);
                    if unsure {
                        pending.spoil("commit", reason)
                    } else {
                        pending.give_back(written)
                    }
                    Ok(())
                })?;
                Err(error)
            }
        }
    }

    /// Commits a change of a table at the commit that reads see. Gives the commit's id.
    fn change<'py>(
        &self,
        py: Python<'py>,
        table: &str,
        change: Change<'py>,
        message: &str,
        author: &str,
    ) -> Result<String> {
        let (open, branch) = (self.open(py)?, self.branch_name()?);
        let rows = self.pending(py)?;
        if rows > 0 {
            return Err(Error::Pending { rows });
        }
        let snapshot = change.commit(py, branch, &open.snapshot, table, (message, author))?;
        let id = snapshot.id().to_string();
        self.move_to(snapshot);
        Ok(id)
    }

    /// Merges, reverts or picks a version into the branch, and moves to its newest commit. `commit` is message, author and
    /// whether it is a dry run. Gives how it was done, the commit
    /// and the conflicts of a dry run, as lines.
    fn merge(
        &self,
        py: Python<'_>,
        how: &str,
        from: (&str, String),
        policy: Vec<(Option<String>, String)>,
        commit: (Option<String>, String, bool),
    ) -> Result<(String, String, Vec<String>)> {
        let (open, branch) = (self.open(py)?, self.branch_name()?);
        let rows = self.pending(py)?;
        if rows > 0 {
            return Err(Error::Pending { rows });
        }
        let from = version(from)?;
        let (message, author, dry_run) = commit;
        let options = change::merge_options(policy, message, author, dry_run)?;
        let report = block_on(py, || async {
            match how {
                "merge" => open.lake.merge(branch, &from, &options).await,
                "revert" => open.lake.revert(branch, &from, &options).await,
                _ => open.lake.cherry_pick(branch, &from, &options).await,
            }
        })?;
        let (outcome, conflicts) = change::describe(&report);
        let id = report.snapshot.id().to_string();
        if !dry_run {
            self.move_to(report.snapshot);
        }
        Ok((outcome, id, conflicts))
    }

    /// Moves the branch to a version.
    fn reset(&self, py: Python<'_>, to: (&str, String)) -> Result<()> {
        let (open, branch) = (self.open(py)?, self.branch_name()?);
        let to = version(to)?;
        let snapshot = block_on(py, || open.lake.reset(branch, &to))?;
        self.move_to(snapshot);
        Ok(())
    }

    /// What differs between a version and the commit that reads see, by table.
    fn diff<'py>(&self, py: Python<'py>, before: (&str, String)) -> Result<Vec<Bound<'py, PyDict>>> {
        let open = self.open(py)?;
        let (before, after) = (version(before)?, At::Commit(open.snapshot.id()));
        let diffs = block_on(py, || open.lake.diff(&before, &after))?;
        diffs.iter().map(|diff| Ok(change::diff_to_python(py, diff)?)).collect()
    }

    /// Deletes a branch.
    fn delete_branch(&self, py: Python<'_>, name: &str) -> Result<()> {
        let open = self.open(py)?;
        block_on(py, || open.lake.delete_branch(name))
    }

    /// Gives a branch another name.
    fn rename_branch(&self, py: Python<'_>, name: &str, to: &str) -> Result<()> {
        let open = self.open(py)?;
        block_on(py, || open.lake.rename_branch(name, to))
    }

    /// Brings a deleted branch back.
    fn undelete_branch(&self, py: Python<'_>, name: &str) -> Result<()> {
        let open = self.open(py)?;
        block_on(py, || async { open.lake.undelete_branch(name).await.map(drop) })
    }

    /// Deletes a tag.
    fn delete_tag(&self, py: Python<'_>, name: &str, author: &str) -> Result<()> {
        let open = self.open(py)?;
        block_on(py, || open.lake.delete_tag(name, author))
    }

    /// The newest commits, newest first: id, parents, author, message, microseconds since 1970, rows of each table, properties.
    fn log<'py>(&self, py: Python<'py>, limit: usize) -> Result<Vec<Bound<'py, PyDict>>> {
        let open = self.open(py)?;
        let at = At::Commit(open.snapshot.id());
        let commits = block_on(py, || open.lake.log(&at, limit))?;
        let plain = |commit: &forebay_format::meta::Commit| {
            let entry = PyDict::new(py);
            entry.set_item("id", commit.id.to_string())?;
            entry.set_item("parents", commit.parents.iter().map(|parent| parent.id.to_string()).collect::<Vec<_>>())?;
            entry.set_item("author", &commit.author)?;
            entry.set_item("message", &commit.message)?;
            entry.set_item("time", commit.time)?;
            let tables = PyDict::new(py);
            for table in &commit.tables {
                tables.set_item(&table.name, table.rows)?;
            }
            entry.set_item("tables", tables)?;
            entry.set_item("properties", commit.properties.clone())?;
            entry.set_item("changed", changed(commit))?;
            Ok::<_, Error>(entry)
        };
        commits.iter().map(plain).collect()
    }

    /// Makes a branch at the commit that reads see.
    fn create_branch(&self, py: Python<'_>, name: &str) -> Result<()> {
        let open = self.open(py)?;
        let at = At::Commit(open.snapshot.id());
        block_on(py, || open.lake.create_branch(name, &at))
    }

    /// Makes a tag at the commit that reads see.
    fn create_tag(&self, py: Python<'_>, name: &str, author: &str) -> Result<()> {
        let open = self.open(py)?;
        let at = At::Commit(open.snapshot.id());
        block_on(py, || open.lake.create_tag(name, &at, author))
    }

    /// Names of the branches, sorted.
    fn branches(&self, py: Python<'_>) -> Result<Vec<String>> {
        let open = self.open(py)?;
        block_on(py, || open.lake.branches())
    }

    /// Names of the tags, sorted.
    fn tags(&self, py: Python<'_>) -> Result<Vec<String>> {
        let open = self.open(py)?;
        block_on(py, || open.lake.tags())
    }

    /// Moves to the newest commit of the branch.
    fn refresh(&self, py: Python<'_>) -> Result<()> {
        let open = self.open(py)?;
        let snapshot = block_on(py, || open.lake.snapshot(&self.at))?;
        self.move_to(snapshot);
        Ok(())
    }

    /// Whether it was closed.
    #[getter]
    fn closed(&self) -> bool {
        lock(&self.state).open.is_none()
    }

    /// Lets go of files and of the rows that wait for a commit.
    fn close(&self, py: Python<'_>) -> Result<()> {
        let open = lock(&self.state).open.take();
        detached(py, || {
            drop(open);
            Ok(())
        })
    }
}
