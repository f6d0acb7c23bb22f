//! Tables made together with their rows, and dropped.

use forebay_versioning::{Lake, Snapshot, TableWriter};
use pyo3::{prelude::*, types::PyIterator};

use crate::{
    append::Batch,
    error::Result,
    schema::{self, Plain},
    wait::{block_on, detached},
};

/// A table to be made: name, columns, key.
pub(crate) struct New {
    pub(crate) name: String,
    pub(crate) columns: Vec<Plain>,
    pub(crate) key: Vec<String>,
    /// Whether it takes the place of one of that name.
    pub(crate) replace: bool,
}

/// Makes a table with the rows that an iterator gives, batch by batch, in one commit.
pub(crate) fn create(
    py: Python<'_>,
    (lake, branch): (&Lake, &str),
    new: New,
    batches: Option<Bound<'_, PyIterator>>,
    (message, author): (&str, &str),
) -> Result<Snapshot> {
    let New { name, columns, key, replace } = new;
    let schema = schema::from_plain(columns)?;
    let key: Vec<&str> = key.iter().map(String::as_str).collect();
    let mut transaction = block_on(py, || lake.begin(branch))?;
    if replace && transaction.base().tables().contains(&name.as_str()) {
        transaction.drop_table(&name)?;
    }
    transaction.create_table_with_key(&name, schema, &key)?;
    if let Some(batches) = batches {
        let mut writer: TableWriter = block_on(py, || transaction.writer(&name))?;
        for batch in batches {
            let batch: Batch<'_> = batch?.extract()?;
            let slices = batch.slices()?;
            detached(py, || Ok(writer.push(&slices)?))?;
        }
        transaction.append(detached(py, || Ok(writer.finish()?))?);
    }
    block_on(py, || transaction.commit(message, author))
}

/// Drops a table and commits that.
pub(crate) fn drop(
    py: Python<'_>,
    (lake, branch): (&Lake, &str),
    name: &str,
    (message, author): (&str, &str),
) -> Result<Snapshot> {
    block_on(py, || async {
        let mut transaction = lake.begin(branch).await?;
        transaction.drop_table(name)?;
        transaction.commit(message, author).await
    })
}
