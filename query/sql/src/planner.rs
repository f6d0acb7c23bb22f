//! Makes plans that run of plans that say what is asked.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::{
    catalog::Session,
    common::Result as DfResult,
    execution::{
        context::QueryPlanner,
        runtime_env::RuntimeEnv,
        session_state::{SessionState, SessionStateBuilder},
    },
    logical_expr::{Expr, LogicalPlan},
    physical_plan::ExecutionPlan,
    physical_planner::{DefaultPhysicalPlanner, PhysicalPlanner as _},
    prelude::SessionConfig,
};

use crate::{
    functions::Scalar,
    scan::{FirstRows, ScanExec},
};

/// DataFusion's planner, but for the nearest rows of a table by an index of vectors: of these there is one plan, which its dozens of rules
/// would look at for as long as the search takes.
#[derive(Debug)]
pub(crate) struct Planner {
    /// Has no rule but [`FirstRows`].
    short: SessionState,
}

impl Planner {
    pub(crate) fn new(config: &SessionConfig, runtime: &Arc<RuntimeEnv>) -> Self {
        let short = SessionStateBuilder::new()
            .with_config(config.clone())
            .with_runtime_env(runtime.clone())
            .with_physical_optimizer_rules(vec![Arc::new(FirstRows)])
            .build();
        Self { short }
    }
}

#[async_trait]
impl QueryPlanner for Planner {
    async fn create_physical_plan(
        &self,
        logical: &LogicalPlan,
        session: &dyn Session,
    ) -> DfResult<Arc<dyn ExecutionPlan>> {
        let planner = DefaultPhysicalPlanner::default();
        if asks_for_nearest(logical) {
            let plan = planner.create_physical_plan(logical, &self.short).await?;
            if searches(&plan) {
                return Ok(plan);
            }
        }
        planner.create_physical_plan(logical, session).await
    }
}

/// Whether a plan takes the first rows of one table by the distance to a vector.
fn asks_for_nearest(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(projection) => asks_for_nearest(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => asks_for_nearest(&alias.input),
        LogicalPlan::Sort(sort) => {
            let near = |expr: &Expr| match expr {
                Expr::ScalarFunction(call) => {
                    call.func.inner().downcast_ref::<Scalar>().is_some_and(|f| f.near.is_some())
                }
                _ => false,
            };
            sort.fetch.is_some() && matches!(&sort.expr[..], [key] if near(&key.expr)) && is_of_table(&sort.input)
        }
        _ => false,
    }
}

fn is_of_table(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(projection) => is_of_table(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => is_of_table(&alias.input),
        LogicalPlan::TableScan(_) => true,
        _ => false,
    }
}

/// Whether a plan is one line of nodes in one partition, down to a scan that searches.
fn searches(plan: &Arc<dyn ExecutionPlan>) -> bool {
    if plan.properties().output_partitioning().partition_count() != 1 {
        return false;
    }
    match (plan.downcast_ref::<ScanExec>(), &plan.children()[..]) {
        (Some(scan), _) => scan.searches(),
        (None, [input]) => searches(input),
        _ => false,
    }
}
