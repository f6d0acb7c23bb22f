//! The filters of a scan in the order that reads least: those on small columns first.

use std::{collections::BTreeSet, sync::Arc};

use arrow::{
    array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch, RecordBatchOptions},
    compute::{and, prep_null_mask_filter},
    datatypes::{Schema, SchemaRef},
};
use datafusion::{
    common::Result as DfResult,
    physical_expr::{
        PhysicalExpr,
        utils::{collect_columns, reassign_expr_columns},
    },
};
use forebay_format::Column;

use crate::types;

/// Filters that read the same columns, or cheaper ones.
#[derive(Debug)]
pub(crate) struct Stage {
    /// What they read, by number in the table.
    pub(crate) columns: Vec<usize>,
    schema: SchemaRef,
    filters: Vec<Arc<dyn PhysicalExpr>>,
}

/// Columns of at most this many bytes a row are small: reading several at once costs less than dropping rows in between.
pub(super) const SMALL: usize = 64;

/// The columns of the scan's schema that an expression reads.
pub(crate) fn columns_of(filter: &Arc<dyn PhysicalExpr>) -> BTreeSet<usize> {
    collect_columns(filter).iter().map(|column| column.index()).collect()
}

/// Sorts filters into stages, cheapest first.
pub(crate) fn stages(
    schema: &SchemaRef,
    columns: &[Column],
    filters: Vec<Arc<dyn PhysicalExpr>>,
) -> DfResult<Vec<Stage>> {
    let cost = |filter: &Arc<dyn PhysicalExpr>| {
        let widest =
            columns_of(filter).into_iter().filter_map(|number| columns.get(number)).map(types::row_bytes).max();
        widest.unwrap_or(0).max(SMALL)
    };
    let mut filters: Vec<_> = filters.into_iter().map(|filter| (cost(&filter), filter)).collect();
    filters.sort_by_key(|(cost, _)| *cost);
    let groups = filters.chunk_by(|(a, _), (b, _)| a == b);
    groups.map(|group| Stage::new(schema, group.iter().map(|(_, filter)| filter.clone()).collect())).collect()
}

impl Stage {
    pub(crate) fn new(schema: &SchemaRef, filters: Vec<Arc<dyn PhysicalExpr>>) -> DfResult<Self> {
        let columns: Vec<usize> = filters.iter().flat_map(columns_of).collect::<BTreeSet<_>>().into_iter().collect();
        let own =
            Arc::new(Schema::new(columns.iter().map(|number| schema.fields()[*number].clone()).collect::<Vec<_>>()));
        let filters = filters.into_iter().map(|filter| reassign_expr_columns(filter, &own)).collect::<DfResult<_>>()?;
        Ok(Self { columns, schema: own, filters })
    }

    /// Which of `rows` rows pass, given this stage's columns; none if all do.
    pub(crate) fn mask(&self, columns: Vec<ArrayRef>, rows: usize) -> DfResult<Option<BooleanArray>> {
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let batch = RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)?;
        let mut all: Option<BooleanArray> = None;
        for filter in &self.filters {
            let answer = filter.evaluate(&batch)?.into_array(rows)?;
            let answer = answer.as_boolean();
            let answer = if answer.null_count() > 0 { prep_null_mask_filter(answer) } else { answer.clone() };
            all = Some(match all {
                Some(before) => and(&before, &answer)?,
                None => answer,
            });
        }
        Ok(all.filter(|mask| mask.true_count() < rows))
    }
}
