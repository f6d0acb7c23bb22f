//! Tables that do not lie in the lake: batches in memory, and Parquet files.

use std::sync::Arc;

use arrow::{array::RecordBatch, datatypes::SchemaRef};
use datafusion::{
    catalog::TableProvider,
    datasource::MemTable,
    prelude::{ParquetReadOptions, SessionContext},
};

use crate::Result;

/// A table that a statement can name.
pub type Input = Arc<dyn TableProvider>;

/// Batches as a table.
///
/// # Errors
/// If a batch has another schema.
pub fn table_of(schema: SchemaRef, batches: Vec<RecordBatch>) -> Result<Input> {
    Ok(Arc::new(MemTable::try_new(schema, vec![batches])?))
}

/// A Parquet file, or a folder of them, as a table. It is read when a query needs it, as far as the query needs it.
///
/// # Errors
/// If it isn't there, or is no Parquet.
pub async fn table_of_parquet(path: &str) -> Result<Input> {
    let context = SessionContext::new();
    Ok(context.read_parquet(path, ParquetReadOptions::default()).await?.into_view())
}
