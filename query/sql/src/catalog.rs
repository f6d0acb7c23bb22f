//! The tables that a statement can name: those of the lake at one version, and those that the caller handed in.

use std::{
    collections::{BTreeMap, HashMap},
    hash::Hash,
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;
use datafusion::{
    catalog::{CatalogProvider, SchemaProvider, TableProvider},
    common::Result as DfResult,
};
use forebay_format::CommitId;
use forebay_versioning::{Snapshot, Table};

use crate::{
    Error, Result,
    index::{self, Indexes},
    parse::{Names, split_pinned},
    refs,
    scan::LakeTable,
};

/// Tables handed in by the caller, by name.
pub(crate) type Inputs = BTreeMap<String, Arc<dyn TableProvider>>;

/// Behind a table's name: the one with its rows' numbers as columns.
pub(crate) const NUMBERED: char = '\u{2}';

/// Tables that were read before, so that their files stay open, and the indexes of commits.
#[derive(Clone, Debug, Default)]
pub(crate) struct Opened {
    tables: Kept<(CommitId, String), Table>,
    indexes: Kept<CommitId, Arc<Indexes>>,
}

type Kept<K, V> = Arc<Mutex<HashMap<K, V>>>;

fn kept<K: Eq + Hash, V: Clone>(among: &Kept<K, V>, key: &K) -> Option<V> {
    among.lock().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
}

fn keep<K: Eq + Hash, V>(among: &Kept<K, V>, key: K, value: V) {
    let mut among = among.lock().unwrap_or_else(PoisonError::into_inner);
    if among.len() >= KEPT {
        among.clear();
    }
    among.insert(key, value);
}

/// Tables, and commits with indexes, that are kept open.
const KEPT: usize = 32;

/// DataFusion's functions that give tables.
const FUNCTIONS: [&str; 2] = ["generate_series", "range"];

/// What names mean in a statement.
#[derive(Debug)]
pub(crate) struct Tables {
    pub(crate) snapshot: Snapshot,
    pub(crate) inputs: Inputs,
    pub(crate) names: Names,
    pub(crate) opened: Opened,
    /// Cells of an index that a search looks into.
    pub(crate) probes: Option<usize>,
}

/// Whether a table is no user's own: it holds an index, or a view.
pub(crate) fn is_hidden(table: &str) -> bool {
    table.starts_with(index::PREFIX) || table.starts_with("view.")
}

impl Tables {
    /// The lake's table of a name, which may hold a version.
    pub(crate) async fn find(&self, name: &str) -> Result<Table> {
        let (name, version) = split_pinned(name);
        let snapshot = self.version(version).await?;
        let key = (snapshot.id(), name.to_owned());
        if let Some(table) = kept(&self.opened.tables, &key) {
            return Ok(table);
        }
        match snapshot.table(name).await {
            Err(forebay_versioning::Error::UnknownTable { name, known, .. }) => {
                let at = self.names.place(&name);
                let known = known.iter().map(String::as_str).filter(|name| !is_hidden(name));
                let known: Vec<&str> = known.chain(self.inputs.keys().map(String::as_str)).collect();
                let hint = Some(crate::hint::of(&name, &known));
                Err(Error::Sql { message: format!("no table {name}"), line: at.line, column: at.column, hint })
            }
            Err(other) => Err(other.into()),
            Ok(table) => {
                keep(&self.opened.tables, key, table.clone());
                Ok(table)
            }
        }
    }

    /// The version that a name means; without a name, the session's.
    async fn version(&self, name: Option<&str>) -> Result<Snapshot> {
        Ok(match name {
            None => self.snapshot.clone(),
            Some(version) => {
                let at =
                    refs::resolve(self.snapshot.lake(), version).await.map_err(|error| self.placed(error, version))?;
                self.snapshot.lake().snapshot(&at).await?
            }
        })
    }

    /// The indexes of a table.
    pub(crate) async fn indexes(&self, table: &Table) -> Result<Arc<Indexes>> {
        let snapshot = table.snapshot();
        let all = match kept(&self.opened.indexes, &snapshot.id()) {
            Some(all) => all,
            None => {
                let all = Arc::new(Indexes::of(snapshot).await?);
                keep(&self.opened.indexes, snapshot.id(), all.clone());
                all
            }
        };
        Ok(Arc::new(all.of_table(table)))
    }

    fn placed(&self, error: Error, name: &str) -> Error {
        match error {
            Error::Sql { message, hint, .. } => {
                let at = self.names.place(name);
                Error::Sql { message, line: at.line, column: at.column, hint }
            }
            other => other,
        }
    }
}

#[async_trait]
impl SchemaProvider for Tables {
    fn table_names(&self) -> Vec<String> {
        let names = self.snapshot.tables().into_iter().map(str::to_owned);
        names.chain(self.inputs.keys().cloned()).collect()
    }

    async fn table(&self, name: &str) -> DfResult<Option<Arc<dyn TableProvider>>> {
        if let Some(input) = self.inputs.get(name) {
            return Ok(Some(input.clone()));
        }
        // A function that gives a table is looked for behind the tables.
        if FUNCTIONS.contains(&name) && !self.table_exist(name) {
            return Ok(None);
        }
        let (plain, numbered) = match name.strip_suffix(NUMBERED) {
            Some(plain) => (plain, true),
            None => (name, false),
        };
        let table = self.find(plain).await?;
        let indexes = self.indexes(&table).await?;
        Ok(Some(Arc::new(LakeTable::new(table, numbered, indexes, self.probes))))
    }

    fn table_exist(&self, name: &str) -> bool {
        let plain = name.strip_suffix(NUMBERED).unwrap_or(name);
        self.inputs.contains_key(plain) || split_pinned(plain).1.is_some() || self.snapshot.tables().contains(&plain)
    }
}

/// The one schema that there is.
#[derive(Debug)]
pub(crate) struct Only(pub(crate) Arc<Tables>);

impl CatalogProvider for Only {
    fn schema_names(&self) -> Vec<String> {
        vec!["public".to_owned()]
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        (name == "public").then(|| self.0.clone() as Arc<dyn SchemaProvider>)
    }
}
