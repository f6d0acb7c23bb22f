//! A lake at a version, and statements about it.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use forebay_sql::{Given, Options, Outcome, Session};
use forebay_versioning::{At, Lake};
use numpy::PyArray1;
use pyo3::prelude::*;

use crate::{
    access::Access,
    answer::Answer,
    convert,
    error::{Error, Result},
    wait::block_on,
};

/// A session of SQL.
#[pyclass(frozen, module = "forebay_sql._sql")]
pub(crate) struct Engine {
    /// Out while a statement runs: one at a time.
    session: Mutex<Option<Session>>,
}

/// What a statement is given: parameters, tables that export Arrow's stream, files of tables, seed, cells of an index.
type Inputs<'py> = (
    BTreeMap<String, Bound<'py, PyAny>>,
    BTreeMap<String, Bound<'py, PyAny>>,
    BTreeMap<String, String>,
    Option<u64>,
    Option<usize>,
);

/// Table, commit, rows (none for all of the table), columns (none for all), whether to shuffle, and what is computed.
type Chosen<'py> =
    (String, String, Option<Bound<'py, PyArray1<u64>>>, Option<Vec<String>>, bool, Vec<convert::Plain<'py>>);

#[pymethods]
impl Engine {
    /// Opens a lake at a branch, tag or commit; with a branch and a commit, at that commit of the branch.
    #[new]
    #[pyo3(signature = (url, access, branch, tag, commit, memory, files, author))]
    #[expect(clippy::too_many_arguments, reason = "a version is three names, and Python passes plain values")]
    fn new(
        py: Python<'_>,
        url: String,
        access: Access,
        branch: Option<String>,
        tag: Option<String>,
        commit: Option<String>,
        memory: Option<usize>,
        files: Option<String>,
        author: String,
    ) -> Result<Self> {
        if url.starts_with("memory:") {
            let reason =
                format!("{url} is kept in the memory of forebay's own library: SQL needs a folder or an object store");
            return Err(Error::Argument { reason });
        }
        let commit = commit.map(|id| id.parse()).transpose().map_err(forebay_versioning::Error::from)?.map(At::Commit);
        let at = match (branch, tag) {
            (Some(branch), _) => At::Branch(branch),
            (None, Some(tag)) => At::Tag(tag),
            (None, None) => commit.clone().unwrap_or_default(),
        };
        let seen = commit.unwrap_or_else(|| at.clone());
        let mut settings = Options::default();
        settings.memory = memory.unwrap_or(settings.memory);
        settings.files = files.map(Into::into);
        settings.author = author;
        let storage = access.open(&url)?;
        let session = block_on(py, || async {
            let (_, snapshot) = Lake::open_at(storage, &seen).await?;
            Ok::<_, Error>(Session::new(at, snapshot, settings)?)
        })?;
        Ok(Self { session: Mutex::new(Some(session)) })
    }

    /// Runs statements; gives what the last one did: what, how many rows, the commit, and an answer if it has rows.
    fn execute(
        &self,
        py: Python<'_>,
        text: &str,
        inputs: Inputs<'_>,
    ) -> Result<(String, u64, Option<String>, Option<Answer>)> {
        let given = self.given(py, inputs)?;
        let outcome = self.with(py, |mut session| async move {
            let done = match session.execute(text, &given).await {
                Ok(_) if session.in_transaction() => open_transaction(&mut session).await,
                done => done,
            };
            (session, done)
        })?;
        Ok(match outcome {
            Outcome::Rows(answer) => ("SELECT".to_owned(), 0, None, Some(Answer::new(answer))),
            Outcome::Changed { what, rows, commit } => (what.to_owned(), rows, commit.map(|id| id.to_string()), None),
        })
    }

    /// The rows that a query selects.
    fn select<'py>(&self, py: Python<'py>, text: &str, inputs: Inputs<'py>) -> Result<Chosen<'py>> {
        let given = self.given(py, inputs)?;
        let chosen = self.with(py, |mut session| async move {
            let done = session.select(text, &given).await;
            (session, done)
        })?;
        let commit = chosen.table.snapshot().id().to_string();
        let all = !chosen.ordered && chosen.rows.iter().copied().eq(0..chosen.table.rows());
        let rows = (!all).then(|| PyArray1::from_vec(py, chosen.rows));
        let computed = chosen.computed.iter().map(|column| convert::plain(py, column)).collect::<Result<_>>()?;
        Ok((chosen.table.name().to_owned(), commit, rows, chosen.columns, chosen.shuffle, computed))
    }
}

impl Engine {
    fn with<T, F>(&self, py: Python<'_>, work: impl FnOnce(Session) -> F + Send) -> Result<T>
    where
        T: Send,
        F: Future<Output = (Session, forebay_sql::Result<T>)>,
    {
        let lock = || self.session.lock().unwrap_or_else(PoisonError::into_inner);
        let session = lock().take().ok_or_else(|| Error::Argument {
            reason: "a statement is running in this session, or one was interrupted: make another session".to_owned(),
        })?;
        // Interrupted, the session is dropped with what it was doing.
        let (session, done) = block_on(py, || async { Ok::<_, Error>(work(session).await) })?;
        *lock() = Some(session);
        Ok(done?)
    }

    fn given(&self, py: Python<'_>, inputs: Inputs<'_>) -> Result<Given> {
        let (parameters, tables, files, seed, probes) = inputs;
        let mut given = Given { parameters: convert::parameters(parameters)?, seed, probes, ..Given::default() };
        for (name, table) in &tables {
            let (schema, batches) = convert::batches(name, table)?;
            given.tables.insert(name.clone(), forebay_sql::table_of(schema, batches)?);
        }
        for (name, path) in files {
            let table = block_on(py, || forebay_sql::table_of_parquet(&path))?;
            given.tables.insert(name, table);
        }
        Ok(given)
    }
}

/// Ends a transaction that its statements left open: the next call may come to another session.
async fn open_transaction(session: &mut Session) -> forebay_sql::Result<Outcome> {
    session.execute("ROLLBACK", &Given::default()).await?;
    let what = "BEGIN without COMMIT: a transaction's statements are run together; it was rolled back".to_owned();
    Err(forebay_sql::Error::Unsupported { what })
}

/// Makes a lake if there is none.
#[pyfunction]
pub(crate) fn create_lake(py: Python<'_>, url: String, access: Access) -> Result<()> {
    let storage = access.open(&url)?;
    block_on(py, || async {
        match Lake::create(storage).await {
            Ok(_) | Err(forebay_versioning::Error::LakeExists { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    })
}
