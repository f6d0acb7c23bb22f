//! The scan as a node of DataFusion's plan.

use std::{collections::BTreeSet, fmt, sync::Arc};

use arrow::{
    array::{ArrayRef, RecordBatch, RecordBatchOptions},
    compute::filter,
    datatypes::{Schema, SchemaRef},
};
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::{
    common::{Result as DfResult, Statistics, config::ConfigOptions, tree_node::TreeNodeRecursion},
    execution::{SendableRecordBatchStream, TaskContext},
    physical_expr::{EquivalenceProperties, PhysicalExpr, PhysicalSortExpr, utils::reassign_expr_columns},
    physical_plan::{
        DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
        execution_plan::{Boundedness, EmissionType, apply_expression_roots},
        filter_pushdown::{ChildPushdownResult, FilterPushdownPhase, FilterPushdownPropagation, PushedDown},
        metrics::{BaselineMetrics, Count, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet},
        stream::RecordBatchStreamAdapter,
    },
};
use futures::{Stream, StreamExt as _, TryStreamExt as _, stream, stream::BoxStream};
use tokio::task::JoinSet;

use super::{
    near::Near,
    plan::Scan,
    read::{self, Left},
    stage::{SMALL, Stage, columns_of},
    statistics,
    top::{Best, Top},
};
use crate::{Error, Result, tasks::joined, types};

/// Reads a table as planned.
pub(crate) struct ScanExec {
    scan: Scan,
    /// Filters that become known while the query runs: the worst row that still counts, the keys of a join's other side.
    dynamic: Vec<Arc<dyn PhysicalExpr>>,
    late: Option<Arc<Stage>>,
    top: Option<Arc<Top>>,
    schema: SchemaRef,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

/// Units that a partition reads at once: one is evaluated while the next is fetched.
const AHEAD: usize = 2;
/// Bytes of the rows that are given at once.
const OUTPUT_BYTES: usize = 8 << 20;

impl ScanExec {
    pub(crate) fn new(scan: Scan) -> Result<Self> {
        Self::with(scan, Vec::new(), None)
    }

    /// A scan that gives only the first `rows` by `keys`, which are in terms of its output, and perhaps others; none if that
    /// would not save reading.
    pub(crate) fn first_rows(&self, rows: usize, keys: Vec<PhysicalSortExpr>) -> DfResult<Option<Self>> {
        if self.scan.limit.is_some() || self.top.is_some() || keys.iter().any(|key| is_volatile(&key.expr)) {
            return Ok(None);
        }
        let schema = &self.scan.schema;
        let named =
            |key: PhysicalSortExpr| Ok(PhysicalSortExpr { expr: reassign_expr_columns(key.expr, schema)?, ..key });
        let keys = keys.into_iter().map(named).collect::<DfResult<Vec<_>>>()?;
        let mut top = Top::new(schema, rows, &keys)?;
        top.near = Near::of(&self.scan, &keys);
        let read = self.scan.filters.iter().flat_map(columns_of).chain(top.columns.iter().copied());
        let read: BTreeSet<usize> = read.collect();
        let others = self.scan.projection.iter().filter(|number| !read.contains(number));
        let others = others.filter_map(|number| self.scan.table.schema().columns.get(*number));
        let mut scan = self.scan.clone();
        if top.near.is_some() {
            // What is found is a few rows, and who searches has threads of its own.
            scan.units = Arc::new(vec![scan.units.concat()]);
        } else if others.map(types::row_bytes).sum::<usize>() <= SMALL {
            return Ok(None);
        }
        Ok(Some(Self::with(scan, self.dynamic.clone(), Some(Arc::new(top)))?))
    }

    /// Whether an index says which rows are looked at.
    pub(crate) fn searches(&self) -> bool {
        self.top.as_ref().is_some_and(|top| top.near.is_some())
    }

    fn with(scan: Scan, dynamic: Vec<Arc<dyn PhysicalExpr>>, top: Option<Arc<Top>>) -> Result<Self> {
        let fields: Vec<_> = scan.projection.iter().map(|number| scan.schema.fields()[*number].clone()).collect();
        let schema = Arc::new(Schema::new(fields));
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema.clone()),
            Partitioning::UnknownPartitioning(scan.units.len()),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        let late = if dynamic.is_empty() {
            None
        } else {
            let named = dynamic.iter().map(|filter| reassign_expr_columns(filter.clone(), &scan.schema));
            Some(Arc::new(Stage::new(&scan.schema, named.collect::<DfResult<_>>()?)?))
        };
        let metrics = ExecutionPlanMetricsSet::new();
        Ok(Self { scan, dynamic, late, top, schema, properties: Arc::new(properties), metrics })
    }
}

impl fmt::Debug for ScanExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_as(DisplayFormatType::Verbose, f)
    }
}

impl DisplayAs for ScanExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.schema.fields().iter().map(|field| field.name().as_str()).collect();
        write!(f, "ScanExec: table={}, columns=[{}]", self.scan.table.name(), names.join(", "))?;
        let filters: Vec<String> = self.scan.filters.iter().chain(&self.dynamic).map(ToString::to_string).collect();
        if !filters.is_empty() {
            write!(f, ", filters=[{}]", filters.join(", "))?;
        }
        if let Some(limit) = self.scan.limit {
            write!(f, ", limit={limit}")?;
        }
        if let Some(top) = &self.top {
            write!(f, "{top}")?;
        }
        let estimate = &self.scan.estimate;
        let (read, all) = (estimate.chunks, estimate.all_chunks);
        write!(f, ", rows<={}, chunks={read}/{all} ({} pruned)", estimate.rows, all - read)?;
        write!(
            f,
            ", bytes<={} (filters {}, output {})",
            estimate.filter_bytes + estimate.output_bytes,
            estimate.filter_bytes,
            estimate.output_bytes
        )
    }
}

impl ExecutionPlan for ScanExec {
    fn name(&self) -> &'static str {
        "ScanExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn with_new_children(self: Arc<Self>, _: Vec<Arc<dyn ExecutionPlan>>) -> DfResult<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> DfResult<TreeNodeRecursion>,
    ) -> DfResult<TreeNodeRecursion> {
        apply_expression_roots(self.dynamic.iter(), f)
    }

    fn execute(&self, partition: usize, _: Arc<TaskContext>) -> DfResult<SendableRecordBatchStream> {
        let baseline = BaselineMetrics::new(&self.metrics, partition);
        let reader = Reader {
            scan: self.scan.clone(),
            late: self.late.clone(),
            top: self.top.clone(),
            schema: self.schema.clone(),
            kept: MetricBuilder::new(&self.metrics).counter("rows_kept", partition),
            seen: MetricBuilder::new(&self.metrics).counter("rows_read", partition),
        };
        let limit = self.scan.limit.unwrap_or(usize::MAX);
        let mut given = 0;
        let stream = reader.partition(partition).map_err(Into::into).try_filter_map(move |batch| {
            let take = batch.num_rows().min(limit - given);
            given += take;
            baseline.record_output(take);
            futures::future::ready(Ok((take > 0).then(|| batch.slice(0, take))))
        });
        let stream = until_full(stream, limit);
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema.clone(), stream)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn statistics_from_inputs(&self, _: &[Arc<Statistics>], args: &StatisticsArgs) -> DfResult<Arc<Statistics>> {
        let whole = statistics::of(&self.scan, &self.schema);
        Ok(Arc::new(match args.partition() {
            None => whole,
            Some(_) => Statistics::new_unknown(&self.schema),
        }))
    }

    fn fetch(&self) -> Option<usize> {
        self.scan.limit
    }

    fn handle_child_pushdown_result(
        &self,
        phase: FilterPushdownPhase,
        child: ChildPushdownResult,
        _: &ConfigOptions,
    ) -> DfResult<FilterPushdownPropagation<Arc<dyn ExecutionPlan>>> {
        let filters: Vec<_> = child.parent_filters.into_iter().map(|filter| filter.filter).collect();
        // What must hold was given to the table; what comes here only saves reading. Whoever pushes it keeps checking.
        let answers = vec![PushedDown::No; filters.len()];
        let propagation = FilterPushdownPropagation::with_parent_pushdown_result(answers);
        if phase == FilterPushdownPhase::Pre || filters.is_empty() || self.scan.limit.is_some() {
            return Ok(propagation);
        }
        let dynamic = self.dynamic.iter().cloned().chain(filters).collect();
        Ok(propagation.with_updated_node(Arc::new(Self::with(self.scan.clone(), dynamic, self.top.clone())?)))
    }
}

/// Ends a stream once it gave `limit` rows, without asking for more.
fn until_full(
    stream: impl Stream<Item = DfResult<RecordBatch>> + Send,
    limit: usize,
) -> impl Stream<Item = DfResult<RecordBatch>> + Send {
    stream::try_unfold((Box::pin(stream), 0_usize), move |(mut stream, given)| async move {
        if given >= limit {
            return Ok(None);
        }
        Ok(stream.try_next().await?.map(|batch| {
            let given = given + batch.num_rows();
            (batch, (stream, given))
        }))
    })
}

/// A partition's way from units to batches.
#[derive(Clone)]
pub(super) struct Reader {
    pub(super) scan: Scan,
    late: Option<Arc<Stage>>,
    top: Option<Arc<Top>>,
    schema: SchemaRef,
    kept: Count,
    seen: Count,
}

/// What is left of a unit after its filters, with the columns that they read.
pub(super) struct Survivors {
    pub(super) rows: Left,
    columns: Vec<(usize, ArrayRef)>,
}

impl Reader {
    fn partition(self, partition: usize) -> BoxStream<'static, Result<RecordBatch>> {
        if let Some(top) = self.top.clone() {
            let best = async move {
                let rows = self.best(partition, top).await?;
                Ok::<_, Error>(self.batches(Survivors { rows, columns: Vec::new() }))
            };
            return stream::once(best).try_flatten().boxed();
        }
        let units = self.scan.units.get(partition).cloned().unwrap_or_default();
        let reader = self.clone();
        let survivors = self.survivors(units);
        survivors.map_ok(move |survivors| reader.clone().batches(survivors)).try_flatten().boxed()
    }

    /// What the filters leave of units, one after the other.
    fn survivors(self, units: Vec<std::ops::Range<u64>>) -> impl Stream<Item = Result<Survivors>> + Send {
        stream::iter(units)
            .map(move |unit| {
                let reader = self.clone();
                async move { reader.filtered(Left::Range(unit)).await }
            })
            .buffered(AHEAD)
            .try_filter(|survivors| futures::future::ready(survivors.rows.len() > 0))
    }

    /// The first rows of a partition by an order.
    async fn best(&self, partition: usize, top: Arc<Top>) -> Result<Left> {
        let units = self.scan.units.get(partition).cloned().unwrap_or_default();
        let Some(near) = &top.near else {
            return Ok(self.best_of(units, &top).await?.into_rows(&[]));
        };
        let found = near.search(self, top.rows).await?;
        let mut rest = Vec::new();
        for unit in units {
            if !found.covered[self.scan.table.locate(unit.start)?.fragment] {
                rest.push(unit);
            }
        }
        let mut tasks = JoinSet::new();
        for part in rest.chunks(rest.len().div_ceil(self.scan.threads.max(1)).max(1)) {
            let (reader, top, part) = (self.clone(), top.clone(), part.to_vec());
            tasks.spawn(async move { reader.best_of(part, &top).await });
        }
        let mut rows = found.rows;
        for best in joined(tasks).await? {
            rows.extend(best.into_rows(&[]).iter());
        }
        Ok(Best::new(top).into_rows(&rows))
    }

    /// The first rows of units by an order.
    async fn best_of(&self, units: Vec<std::ops::Range<u64>>, top: &Arc<Top>) -> Result<Best> {
        let mut best = Best::new(top.clone());
        let mut survivors = std::pin::pin!(self.clone().survivors(units));
        while let Some(left) = survivors.try_next().await? {
            let mut columns = Vec::with_capacity(top.columns.len());
            for number in &top.columns {
                columns.push(match left.columns.iter().find(|(known, _)| known == number) {
                    Some((_, array)) => array.clone(),
                    None => self.column(*number, &left.rows).await?,
                });
            }
            best.see(&left.rows, columns)?;
        }
        Ok(best)
    }

    /// What is left of some rows after the filters.
    pub(super) async fn filtered(&self, rows: Left) -> Result<Survivors> {
        self.seen.add(rows.len());
        let mut left = Survivors { rows, columns: Vec::new() };
        for stage in self.scan.stages.iter().chain(self.late.as_deref()) {
            for number in &stage.columns {
                if !left.columns.iter().any(|(known, _)| known == number) {
                    let array = self.column(*number, &left.rows).await?;
                    left.columns.push((*number, array));
                }
            }
            let of =
                |number: &usize| left.columns.iter().find(|(known, _)| known == number).map(|(_, array)| array.clone());
            let columns = stage.columns.iter().filter_map(of).collect();
            if let Some(mask) = stage.mask(columns, left.rows.len())? {
                left.rows = left.rows.filter(&mask);
                for (_, array) in &mut left.columns {
                    *array = filter(array, &mask)?;
                }
            }
            if left.rows.len() == 0 {
                break;
            }
        }
        let ordering = self.top.as_ref().map_or(&[][..], |top| &top.columns);
        left.columns.retain(|(number, _)| self.scan.projection.contains(number) || ordering.contains(number));
        self.kept.add(left.rows.len());
        Ok(left)
    }

    /// The surviving rows, a few at a time if the columns that are still to be read are large.
    fn batches(self, survivors: Survivors) -> impl Stream<Item = Result<RecordBatch>> + Send {
        let known = |number: &usize| survivors.columns.iter().any(|(known, _)| known == number);
        let unread = self.scan.projection.iter().filter(|number| !known(number));
        let unread = unread.filter_map(|number| self.scan.table.schema().columns.get(*number));
        let step = (OUTPUT_BYTES / unread.map(types::row_bytes).sum::<usize>().max(1)).max(1);
        let rows = survivors.rows.len();
        let survivors = Arc::new(survivors);
        stream::iter((0..rows).step_by(step))
            .map(move |start| {
                let (reader, survivors) = (self.clone(), survivors.clone());
                async move { reader.batch(&survivors, start..rows.min(start + step)).await }
            })
            .buffered(AHEAD)
    }

    async fn batch(&self, survivors: &Survivors, places: std::ops::Range<usize>) -> Result<RecordBatch> {
        let rows = survivors.rows.slice(places.clone());
        let mut columns = Vec::with_capacity(self.scan.projection.len());
        for number in &self.scan.projection {
            columns.push(match survivors.columns.iter().find(|(known, _)| known == number) {
                Some((_, array)) => array.slice(places.start, places.len()),
                None => self.column(*number, &rows).await?,
            });
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
        Ok(RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)?)
    }

    async fn column(&self, number: usize, rows: &Left) -> Result<ArrayRef> {
        let columns = &self.scan.table.schema().columns;
        match columns.get(number) {
            Some(column) => read::column(&self.scan.table, column, rows).await,
            None if number == columns.len() => Ok(rows.numbers()),
            None => rows.ids(&self.scan.table),
        }
    }
}
