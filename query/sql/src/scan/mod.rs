//! A table as DataFusion sees it, and the scan that reads it.
//!
//! ```text
//!   chunk statistics ─► segments ─► units of rows ─► filters on small columns ─► on larger ones ─► the rest, survivors only
//!        (prune)          (plan)                               (stage)                                (read)
//! ```

mod exec;
mod first;
mod near;
mod plan;
mod prune;
mod read;
mod stage;
mod statistics;
mod top;

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::{
    catalog::{Session, TableProvider},
    common::{DFSchema, Result as DfResult, Statistics, tree_node::TreeNode as _},
    logical_expr::{Expr, TableProviderFilterPushDown, TableType},
    physical_plan::ExecutionPlan,
};
use forebay_versioning::Table;

pub(crate) use exec::ScanExec;
pub(crate) use first::FirstRows;
pub(crate) use read::mapped;
pub(crate) use statistics::largest;

use crate::{index::Indexes, types};

/// The number of a row in its table, as a selection takes it.
pub(crate) const ROW: &str = "_row";
/// The identity of a row: the same on every branch, until its fragment is compacted.
pub(crate) const ROW_ID: &str = "_row_id";

/// A table of a snapshot, for DataFusion.
#[derive(Clone, Debug)]
pub(crate) struct LakeTable {
    table: Table,
    schema: SchemaRef,
    indexes: Arc<Indexes>,
    probes: Option<usize>,
}

impl LakeTable {
    /// With [`ROW`] and [`ROW_ID`] as its last columns, if `numbered`. A search looks into `probes` cells of an index.
    pub(crate) fn new(table: Table, numbered: bool, indexes: Arc<Indexes>, probes: Option<usize>) -> Self {
        let mut schema = types::schema(table.schema());
        if numbered {
            let mut fields: Vec<_> = schema.fields().iter().cloned().collect();
            fields.push(Arc::new(Field::new(ROW, DataType::UInt64, false)));
            fields.push(Arc::new(Field::new(ROW_ID, DataType::Utf8, false)));
            schema = Arc::new(Schema::new(fields));
        }
        Self { table, schema, indexes, probes }
    }
}

#[async_trait]
impl TableProvider for LakeTable {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> DfResult<Arc<dyn ExecutionPlan>> {
        let named = DFSchema::try_from(self.schema.clone())?;
        let filters = filters.iter().map(|filter| state.create_physical_expr(filter.clone(), &named));
        let filters = filters.collect::<DfResult<Vec<_>>>()?;
        let projection = projection.cloned().unwrap_or_else(|| (0..self.schema.fields().len()).collect());
        let wanted = plan::Wanted {
            schema: self.schema.clone(),
            projection,
            filters,
            limit,
            partitions: state.config().target_partitions(),
            indexes: self.indexes.clone(),
            probes: self.probes,
        };
        Ok(Arc::new(ScanExec::new(plan::Scan::plan(self.table.clone(), wanted).await?)?))
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> DfResult<Vec<TableProviderFilterPushDown>> {
        // All filters are evaluated here, so that what they drop is read no further.
        let how = |filter: &&Expr| {
            let nested = |expr: &Expr| {
                let query = matches!(
                    expr,
                    Expr::ScalarSubquery(_) | Expr::InSubquery(_) | Expr::Exists(_) | Expr::SetComparison(_)
                );
                Ok(query || matches!(expr, Expr::OuterReferenceColumn(..)))
            };
            let here = !filter.is_volatile() && !filter.exists(nested).unwrap_or(true);
            if here { TableProviderFilterPushDown::Exact } else { TableProviderFilterPushDown::Unsupported }
        };
        Ok(filters.iter().map(how).collect())
    }

    fn statistics(&self) -> Option<Statistics> {
        Some(statistics::rows_only(&self.schema, self.table.rows()))
    }
}
