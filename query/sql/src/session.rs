//! A lake, a place in its history, and statements about it.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use arrow::{array::RecordBatch, datatypes::SchemaRef};
use datafusion::{
    catalog::{CatalogProviderList as _, MemoryCatalogProviderList},
    execution::{
        FunctionRegistry as _,
        disk_manager::{DiskManagerBuilder, DiskManagerMode},
        memory_pool::{FairSpillPool, MemoryLimit},
        runtime_env::RuntimeEnvBuilder,
        session_state::{SessionState, SessionStateBuilder},
    },
    logical_expr::{LogicalPlan, ScalarUDF},
    physical_plan::{ExecutionPlan, execute_stream_partitioned},
    prelude::{SessionConfig, SessionContext},
    sql::{
        parser::Statement as DfStatement,
        sqlparser::ast::{Query, Statement},
    },
};
use forebay_format::CommitId;
use forebay_versioning::{At, Lake, Scratch, Snapshot};
use futures::{FutureExt as _, Stream, StreamExt as _, TryStreamExt as _, future::BoxFuture, stream};

use crate::{
    Error, Input, Parameters, Result, alter,
    catalog::{Only, Opened, Tables},
    change, copy, functions, index, matching, parameters,
    parse::{self, Names, Parsed, What},
    planner::Planner,
    scan::FirstRows,
    select, show,
};

/// How statements are run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// Bytes that sorts, joins and groups hold in memory before they spill to the temporary folder; 2 GiB by default.
    pub memory: usize,
    /// Threads that a query uses; by default as many as there are cores.
    pub threads: usize,
    /// The folder below which `COPY` may read and write; none by default, and then `COPY` is refused.
    pub files: Option<PathBuf>,
    /// The author of commits.
    pub author: String,
}

impl Default for Options {
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(2, usize::from);
        Self { memory: 2 << 30, threads, files: None, author: String::new() }
    }
}

/// What a statement is given beside its text.
#[derive(Clone, Default)]
pub struct Given {
    /// Values of `$1`, `$2`, `$name`.
    pub parameters: Parameters,
    /// Tables to be named in the statement, beside those of the lake, which they hide.
    pub tables: BTreeMap<String, Input>,
    /// What `random()` and samples follow from; drawn anew if there is none.
    pub seed: Option<u64>,
    /// Cells of an index of vectors that a query looks into; as the index says if there is none.
    pub probes: Option<usize>,
}

/// What a statement did.
pub enum Outcome {
    /// Rows, as they come.
    Rows(Answer),
    /// A change.
    Changed {
        /// What was done, such as `INSERT`.
        what: &'static str,
        /// How many rows it touched.
        rows: u64,
        /// The newest commit of the branch, if there is one by it.
        commit: Option<CommitId>,
    },
}

/// Rows that stream. Dropping it ends the query.
pub struct Answer {
    /// Their columns.
    pub schema: SchemaRef,
    /// The batches. They are in the table's order unless the query says otherwise.
    pub batches: futures::stream::BoxStream<'static, Result<RecordBatch>>,
}

impl Answer {
    /// All batches.
    ///
    /// # Errors
    /// What the query fails with.
    pub async fn collect(self) -> Result<Vec<RecordBatch>> {
        self.batches.try_collect().await
    }

    pub(crate) fn of(batch: RecordBatch) -> Self {
        Self { schema: batch.schema(), batches: stream::iter([Ok(batch)]).boxed() }
    }
}

/// A lake at a branch, tag or commit. Queries see [`snapshot`](Self::snapshot); changes are made on the branch's end and
/// move it there.
pub struct Session {
    pub(crate) at: At,
    pub(crate) snapshot: Snapshot,
    pub(crate) options: Options,
    base: SessionState,
    opened: Opened,
    /// The branch that the open transaction works on, and the one that it is for.
    pub(crate) transaction: Option<(Scratch, String)>,
}

impl Session {
    /// At `at`; where that is a branch, queries see `seen`, a version of it.
    ///
    /// # Errors
    /// If no temporary folder can be had.
    pub fn new(at: At, seen: Snapshot, options: Options) -> Result<Self> {
        Ok(Self { at, snapshot: seen, base: base(&options)?, options, opened: Opened::default(), transaction: None })
    }

    /// The version that queries see.
    #[must_use]
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Whether a transaction is open.
    #[must_use]
    pub fn in_transaction(&self) -> bool {
        self.transaction.is_some()
    }

    pub(crate) fn lake(&self) -> &Lake {
        self.snapshot.lake()
    }

    /// The branch that changes go to.
    pub(crate) fn branch(&self) -> Result<&str> {
        match &self.at {
            At::Branch(name) => Ok(name),
            other => Err(Error::ReadOnly { at: other.to_string() }),
        }
    }

    /// Moves to the end of the branch, before a change is made.
    pub(crate) async fn refresh(&mut self) -> Result<()> {
        self.branch()?;
        self.snapshot = self.lake().snapshot(&self.at).await?;
        Ok(())
    }

    /// Runs statements, one after the other; gives what the last one did. Each commits by itself, unless they stand between
    /// `BEGIN` and `COMMIT`.
    ///
    /// # Errors
    /// Any of [`Error`]; statements before the one that failed stay done, but for those of an open transaction, which is rolled back.
    // Boxed, here and below, so that this crate compiles what runs statements, and not each that calls it.
    pub fn execute<'a>(&'a mut self, text: &'a str, given: &'a Given) -> BoxFuture<'a, Result<Outcome>> {
        self.executed(text, given).boxed()
    }

    async fn executed(&mut self, text: &str, given: &Given) -> Result<Outcome> {
        let mut outcome = Outcome::Changed { what: "NOTHING", rows: 0, commit: None };
        for statement in parse::parse(text)? {
            outcome = match self.run(statement, given).await {
                Ok(outcome) => outcome,
                Err(error) => {
                    if self.transaction.is_some() {
                        alter::rollback(self).await?;
                    }
                    return Err(self.limited(error));
                }
            };
        }
        Ok(outcome)
    }

    /// The rows that a query selects, for a loader.
    ///
    /// # Errors
    /// Any of [`Error`]; [`Error::Unsupported`] if what the query gives are no rows of one table.
    pub fn select<'a>(&'a mut self, text: &'a str, given: &'a Given) -> BoxFuture<'a, Result<select::Chosen>> {
        self.selected(text, given).boxed()
    }

    async fn selected(&mut self, text: &str, given: &Given) -> Result<select::Chosen> {
        let mut statements = parse::parse(text)?;
        match (statements.pop(), statements.is_empty()) {
            (Some(Parsed { what: What::Sql(statement), names, .. }), true) => match *statement {
                Statement::Query(query) => {
                    select::select(self, *query, names, given).await.map_err(|error| self.limited(error))
                }
                _ => Err(Error::unsupported("a selection is one SELECT")),
            },
            _ => Err(Error::unsupported("a selection is one SELECT")),
        }
    }

    fn limited(&self, error: Error) -> Error {
        error.with_limit(self.options.memory)
    }

    async fn run(&mut self, parsed: Parsed, given: &Given) -> Result<Outcome> {
        let Parsed { what, numbered, names } = parsed;
        let scope = Scope { numbered, names, given: given.clone(), ..Scope::default() };
        match what {
            What::Sql(statement) => self.sql(*statement, scope).await,
            What::Reindex { name } => index::reindex(self, &name, &scope).await,
            What::ShowIndexes => Ok(Outcome::Rows(show::indexes(self, &scope).await?)),
            own => alter::versions(self, own).await,
        }
    }

    async fn sql(&mut self, statement: Statement, scope: Scope) -> Result<Outcome> {
        match statement {
            Statement::Query(query) => Ok(Outcome::Rows(self.rows(*query, &scope).await?)),
            Statement::Explain { statement, analyze, verbose, .. } => match *statement {
                Statement::Query(query) => {
                    Ok(Outcome::Rows(show::explain(self, *query, &scope, analyze, verbose).await?))
                }
                _ => Err(Error::unsupported("EXPLAIN explains queries")),
            },
            Statement::ExplainTable { table_name, .. } => {
                Ok(Outcome::Rows(show::columns(self, &table_name, &scope).await?))
            }
            Statement::ShowTables { .. } => Ok(Outcome::Rows(show::tables(self)?)),
            Statement::Insert(insert) => change::insert(self, insert, scope).await,
            Statement::Update(update) => change::update(self, update, scope).await,
            Statement::Delete(delete) => change::delete(self, delete, scope).await,
            Statement::CreateTable(create) => alter::create_table(self, create, scope).await,
            Statement::CreateIndex(create) => index::create(self, create, &scope).await,
            Statement::Drop { .. } | Statement::AlterTable(_) => alter::alter(self, statement, &scope).await,
            Statement::Copy { .. } => copy::copy(self, statement, scope).await,
            Statement::StartTransaction { .. } => alter::versions(self, What::Begin).await,
            Statement::Commit { .. } => alter::versions(self, What::Commit).await,
            Statement::Rollback { .. } => alter::versions(self, What::Rollback).await,
            other => {
                let text = other.to_string();
                let start: Vec<&str> = text.split_whitespace().take(2).collect();
                Err(Error::unsupported(format!(
                    "{} is no statement of this engine: docs/sql.md has those that are",
                    start.join(" ")
                )))
            }
        }
    }

    /// The rows of a query.
    pub(crate) async fn rows(&self, query: Query, scope: &Scope) -> Result<Answer> {
        let (state, plan) = self.plan(query, scope).await?;
        let physical = state.create_physical_plan(&plan).await?;
        run(&state, physical)
    }

    /// The plan of a query, with its parameters bound.
    pub(crate) async fn plan(&self, mut query: Query, scope: &Scope) -> Result<(SessionState, LogicalPlan)> {
        parameters::bind(&mut query, &scope.given.parameters)?;
        parse::samples(&mut query)?;
        let mut scope = scope.clone();
        parse::operators(&mut query, &mut scope.functions)?;
        matching::search(self, &mut query, &mut scope).await?;
        if scope.numbered {
            select::hide_numbers(&mut query)?;
        }
        select::seed_randoms(&mut query, scope.given.seed)?;
        self.planned(query, &scope).await
    }

    /// The plan of a query that was put in DataFusion's terms.
    pub(crate) async fn planned(&self, query: Query, scope: &Scope) -> Result<(SessionState, LogicalPlan)> {
        let state = self.state(scope)?;
        let statement = Statement::Query(Box::new(query));
        let plan = state.statement_to_plan(DfStatement::Statement(Box::new(statement))).await?;
        Ok((state, plan))
    }

    /// What names mean within a scope.
    pub(crate) fn tables(&self, scope: &Scope) -> Tables {
        Tables {
            snapshot: self.snapshot.clone(),
            inputs: scope.given.tables.clone(),
            names: scope.names.clone(),
            opened: self.opened.clone(),
            probes: scope.given.probes,
        }
    }

    /// What DataFusion needs to run a query within a scope. A copy of it has all functions in it: one is made for a query.
    fn state(&self, scope: &Scope) -> Result<SessionState> {
        let mut state = self.base.clone();
        // A list of its own: what was planned before keeps the tables that it knew.
        let catalogs = MemoryCatalogProviderList::new();
        catalogs.register_catalog("lake".to_owned(), Arc::new(Only(Arc::new(self.tables(scope)))));
        state.register_catalog_list(Arc::new(catalogs));
        for function in &scope.functions {
            state.register_udf(function.clone())?;
        }
        // now() is the time of the query.
        state.mark_start_execution();
        Ok(state)
    }
}

/// What all queries of a session share.
fn base(options: &Options) -> Result<SessionState> {
    let disk = DiskManagerBuilder::default().with_mode(DiskManagerMode::OsTmpDirectory);
    let runtime = RuntimeEnvBuilder::new()
        .with_memory_pool(Arc::new(FairSpillPool::new(options.memory)))
        .with_disk_manager_builder(disk)
        .build_arc()?;
    let mut config = SessionConfig::new()
        .with_target_partitions(options.threads)
        .with_default_catalog_and_schema("lake", "public")
        .with_create_default_catalog_and_schema(false)
        .with_information_schema(false);
    let settings = config.options_mut();
    settings.sql_parser.collect_spans = true;
    settings.sql_parser.dialect = datafusion::config::Dialect::PostgreSQL;
    // Scans come in partitions of their own; dealing out batches in turns would lose the order of the rows.
    settings.optimizer.enable_round_robin_repartition = false;
    let state = SessionStateBuilder::new_with_default_features()
        .with_query_planner(Arc::new(Planner::new(&config, &runtime)))
        .with_config(config)
        .with_runtime_env(runtime)
        .with_physical_optimizer_rule(Arc::new(FirstRows))
        .build();
    let context = SessionContext::new_with_state(state);
    functions::register(&context);
    Ok(context.state())
}

/// What a statement's names and parameters mean.
#[derive(Clone, Default)]
pub(crate) struct Scope {
    pub(crate) numbered: bool,
    pub(crate) names: Names,
    pub(crate) given: Given,
    /// What searches found, and distances to vectors that were handed in, as functions.
    pub(crate) functions: Vec<Arc<ScalarUDF>>,
}

/// Runs a plan. All partitions run at once, and come in their order, which for a plain scan is the table's. They run on tasks of
/// their own: whoever waits for rows can look at signals while an operator computes for long.
pub(crate) fn run(state: &SessionState, plan: Arc<dyn ExecutionPlan>) -> Result<Answer> {
    let schema = plan.schema();
    let streams = execute_stream_partitioned(plan, state.task_ctx())?;
    let limit = match state.runtime_env().memory_pool.memory_limit() {
        MemoryLimit::Finite(bytes) => bytes,
        _ => usize::MAX,
    };
    let batches = streams
        .into_iter()
        .map(move |stream| stream.map_err(move |error| Error::from(error).with_limit(limit)).boxed());
    let batches = in_order(batches.collect()).boxed();
    Ok(Answer { schema, batches })
}

/// Batches that a partition may have ready before it is its turn.
const READY: usize = 4;

/// The streams one behind the other, while all of them run.
fn in_order(
    streams: Vec<futures::stream::BoxStream<'static, Result<RecordBatch>>>,
) -> impl Stream<Item = Result<RecordBatch>> + Send {
    let mut tasks = tokio::task::JoinSet::new();
    let mut receivers = Vec::with_capacity(streams.len());
    for mut source in streams {
        let (sender, receiver) = tokio::sync::mpsc::channel(READY);
        receivers.push(receiver);
        tasks.spawn(async move {
            while let Some(batch) = source.next().await {
                // Nobody listens any more: the query was dropped.
                if sender.send(batch).await.is_err() {
                    break;
                }
            }
        });
    }
    let receivers = receivers.into_iter();
    // The tasks live in the stream's state and end with it.
    stream::unfold((receivers, None, tasks), |(mut receivers, mut current, mut tasks)| async move {
        loop {
            let receiver: &mut tokio::sync::mpsc::Receiver<_> = match &mut current {
                Some(receiver) => receiver,
                None => match receivers.next() {
                    Some(next) => current.insert(next),
                    None => return broken(&mut tasks).await.map(|error| (Err(error), (receivers, None, tasks))),
                },
            };
            if let Some(batch) = receiver.recv().await {
                return Some((batch, (receivers, current, tasks)));
            }
            current = None;
        }
    })
}

/// What went wrong in tasks whose batches were all taken: rows are missing if one of them panicked.
async fn broken(tasks: &mut tokio::task::JoinSet<()>) -> Option<Error> {
    while let Some(done) = tasks.join_next().await {
        if done.is_err_and(|error| error.is_panic()) {
            let what = "a thread of the query panicked".to_owned();
            return Some(datafusion::common::DataFusionError::Execution(what).into());
        }
    }
    None
}
