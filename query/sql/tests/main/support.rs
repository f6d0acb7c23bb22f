//! Lakes in memory behind a store that counts, and answers as text.

use std::sync::Arc;

use arrow::{
    array::RecordBatch,
    util::display::{ArrayFormatter, FormatOptions},
};
use forebay_sql::{Given, Options, Outcome, Parameter, Session};
use forebay_storage::{
    Storage,
    testing::{FaultStore, OpKind},
};
use forebay_versioning::{At, Lake};

/// A session on branch `main` of a new lake.
pub(crate) struct Fixture {
    pub(crate) session: Session,
    pub(crate) lake: Lake,
    pub(crate) store: Arc<FaultStore>,
}

pub(crate) async fn empty() -> Fixture {
    let url = format!("memory://sql-{}", forebay_format::CommitId::random());
    let inner = Storage::open(&url, &forebay_storage::Options::new()).unwrap();
    let store = Arc::new(FaultStore::new(inner.store().unwrap(), 1));
    let lake = Lake::create(Storage::from_store(store.clone(), url)).await.unwrap();
    let session = session(&lake, At::default()).await;
    Fixture { session, lake, store }
}

pub(crate) async fn session(lake: &Lake, at: At) -> Session {
    let snapshot = lake.snapshot(&at).await.unwrap();
    Session::new(at, snapshot, Options::default()).unwrap()
}

/// A lake with the given statements done.
pub(crate) async fn with(statements: &str) -> Fixture {
    let mut fixture = empty().await;
    fixture.run(statements).await;
    fixture
}

/// Parameters by position.
pub(crate) fn given(parameters: &[Parameter]) -> Given {
    let parameters = parameters.iter().enumerate().map(|(place, value)| ((place + 1).to_string(), value.clone()));
    Given { parameters: parameters.collect(), ..Given::default() }
}

impl Fixture {
    /// Runs statements; gives how many rows the last one changed.
    pub(crate) async fn run(&mut self, text: &str) -> u64 {
        match self.session.execute(text, &Given::default()).await.unwrap_or_else(|error| panic!("{text}: {error}")) {
            Outcome::Changed { rows, .. } => rows,
            Outcome::Rows(answer) => answer.collect().await.unwrap().iter().map(|batch| batch.num_rows() as u64).sum(),
        }
    }

    /// The rows of a query, as texts: columns are parted by spaces.
    pub(crate) async fn rows(&mut self, text: &str) -> Vec<String> {
        self.rows_with(text, &Given::default()).await
    }

    pub(crate) async fn rows_with(&mut self, text: &str, given: &Given) -> Vec<String> {
        match self.session.execute(text, given).await.unwrap_or_else(|error| panic!("{text}: {error}")) {
            Outcome::Rows(answer) => texts(&answer.collect().await.unwrap_or_else(|error| panic!("{text}: {error}"))),
            Outcome::Changed { what, .. } => panic!("{what} has no rows"),
        }
    }

    /// Bytes read from the store so far.
    pub(crate) fn read(&self) -> u64 {
        let operations = self.store.operations();
        operations.iter().filter(|operation| operation.kind == OpKind::Get).map(|operation| operation.bytes).sum()
    }

    /// What a statement fails with.
    pub(crate) async fn error(&mut self, text: &str) -> String {
        match self.session.execute(text, &Given::default()).await {
            Err(error) => error.to_string(),
            Ok(Outcome::Rows(answer)) => answer.collect().await.map(|_| ()).expect_err(text).to_string(),
            Ok(Outcome::Changed { .. }) => panic!("{text} went through"),
        }
    }
}

fn texts(batches: &[RecordBatch]) -> Vec<String> {
    let options = FormatOptions::default().with_null("null");
    let mut rows = Vec::new();
    for batch in batches {
        let columns: Vec<_> =
            batch.columns().iter().map(|column| ArrayFormatter::try_new(column, &options).unwrap()).collect();
        for row in 0..batch.num_rows() {
            let cells: Vec<String> = columns.iter().map(|column| column.value(row).to_string()).collect();
            rows.push(cells.join(" "));
        }
    }
    rows
}
