//! The tables that a statement can name: those of the lake at one version, and those that the caller handed in.

use std::{
    collections::{BTreeMap, HashMap},
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
    parse::{Names, split_pinned},
    refs,
    scan::LakeTable,
};

/// Tables handed in by the caller, by name.
pub(crate) type Inputs = BTreeMap<String, Arc<dyn TableProvider>>;

/// Behind a table's name: the one with its rows' numbers as columns.
pub(crate) const NUMBERED: char = '\u{2}';

/// Tables that were read before, so that their files stay open.
pub(crate) type Opened = Arc<Mutex<HashMap<(CommitId, String), Table>>>;

/// Tables that are kept open.
const KEPT: usize = 32;

/// What names mean in a statement.
#[derive(Debug)]
pub(crate) struct Tables {
    pub(crate) snapshot: Snapshot,
    pub(crate) inputs: Inputs,
    pub(crate) names: Names,
    pub(crate) opened: Opened,
}

impl Tables {
    /// The lake's table of a name, which may hold a version.
    pub(crate) async fn find(&self, name: &str) -> Result<Table> {
        let (name, version) = split_pinned(name);
        let snapshot = match version {
            None => self.snapshot.clone(),
            Some(version) => {
                let at =
                    refs::resolve(self.snapshot.lake(), version).await.map_err(|error| self.placed(error, version))?;
                self.snapshot.lake().snapshot(&at).await?
            }
        };
        let key = (snapshot.id(), name.to_owned());
        let opened = || self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(table) = opened().get(&key) {
            return Ok(table.clone());
        }
        match snapshot.table(name).await {
            Err(forebay_versioning::Error::UnknownTable { name, known, .. }) => {
                let at = self.names.place(&name);
                let known: Vec<&str> =
                    known.iter().map(String::as_str).chain(self.inputs.keys().map(String::as_str)).collect();
                let hint = Some(crate::hint::of(&name, &known));
                Err(Error::Sql { message: format!("no table {name}"), line: at.line, column: at.column, hint })
            }
            Err(other) => Err(other.into()),
            Ok(table) => {
                let mut opened = opened();
                if opened.len() >= KEPT {
                    opened.clear();
                }
                opened.insert(key, table.clone());
                Ok(table)
            }
        }
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
        let (plain, numbered) = match name.strip_suffix(NUMBERED) {
            Some(plain) => (plain, true),
            None => (name, false),
        };
        Ok(Some(Arc::new(LakeTable::new(self.find(plain).await?, numbered))))
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
