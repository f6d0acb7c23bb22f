//! `ORDER BY ... LIMIT n` over a scan: the scan finds these rows by the order's own columns, and reads the others for them alone.

use std::sync::Arc;

use datafusion::{
    common::{
        Result as DfResult,
        config::ConfigOptions,
        tree_node::{Transformed, TreeNode as _},
    },
    physical_expr::{PhysicalExpr, PhysicalSortExpr, expressions::Column},
    physical_optimizer::PhysicalOptimizerRule,
    physical_plan::{
        ChildrenPropertiesMode, ExecutionPlan, ReplaceChildrenOptions, coop::CooperativeExec,
        projection::ProjectionExec, sorts::sort::SortExec,
    },
};

use super::ScanExec;

/// Rows that a scan keeps in mind, at most.
const MOST: usize = 10_000;

/// The rule. The sort above a scan stays: what the scan gives holds its rows, and perhaps some more.
#[derive(Debug)]
pub(crate) struct FirstRows;

impl PhysicalOptimizerRule for FirstRows {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> DfResult<Arc<dyn ExecutionPlan>> {
        let done = plan.transform_down(|plan| {
            let Some(sort) = plan.downcast_ref::<SortExec>() else { return Ok(Transformed::no(plan)) };
            let Some(rows) = sort.fetch().filter(|rows| (1..=MOST).contains(rows)) else {
                return Ok(Transformed::no(plan));
            };
            match narrowed(sort.input(), rows, sort.expr().to_vec())? {
                Some(input) => Ok(Transformed::yes(over(plan, input)?)),
                None => Ok(Transformed::no(plan)),
            }
        })?;
        Ok(done.data)
    }

    fn name(&self) -> &'static str {
        "first_rows"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The plan below a sort with a scan that gives what the sort keeps; none if what lies between is more than projections.
fn narrowed(
    plan: &Arc<dyn ExecutionPlan>,
    rows: usize,
    keys: Vec<PhysicalSortExpr>,
) -> DfResult<Option<Arc<dyn ExecutionPlan>>> {
    if let Some(scan) = plan.downcast_ref::<ScanExec>() {
        return Ok(scan.first_rows(rows, keys)?.map(|scan| Arc::new(scan) as Arc<dyn ExecutionPlan>));
    }
    let keys = if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        let below = |key: PhysicalSortExpr| Ok(PhysicalSortExpr { expr: inlined(key.expr, projection)?, ..key });
        keys.into_iter().map(below).collect::<DfResult<Vec<_>>>()?
    } else if plan.is::<CooperativeExec>() {
        keys
    } else {
        return Ok(None);
    };
    let [input] = plan.children()[..] else { return Ok(None) };
    match narrowed(input, rows, keys)? {
        Some(input) => Ok(Some(over(plan.clone(), input)?)),
        None => Ok(None),
    }
}

/// A node over another input.
fn over(plan: Arc<dyn ExecutionPlan>, input: Arc<dyn ExecutionPlan>) -> DfResult<Arc<dyn ExecutionPlan>> {
    plan.replace_children(vec![input], ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
}

/// An expression over a projection's output as one over its input.
fn inlined(expr: Arc<dyn PhysicalExpr>, projection: &ProjectionExec) -> DfResult<Arc<dyn PhysicalExpr>> {
    let done = expr.transform_down(|expr| {
        let Some(column) = expr.downcast_ref::<Column>() else { return Ok(Transformed::no(expr)) };
        let made = projection.expr()[column.index()].expr.clone();
        // What was put in is in terms of the input, and must not be looked at again.
        Ok(Transformed::new(made, true, datafusion::common::tree_node::TreeNodeRecursion::Jump))
    })?;
    Ok(done.data)
}
