//! The first rows of an order: found by the columns that it is made of, before any other is read.

use std::{collections::BTreeSet, fmt, sync::Arc};

use arrow::{
    array::{ArrayRef, AsArray, RecordBatch, RecordBatchOptions, UInt64Array},
    compute::{SortColumn, SortOptions, concat, lexsort_to_indices, take},
    datatypes::{Schema, SchemaRef, UInt64Type},
};
use datafusion::{
    common::Result as DfResult,
    physical_expr::{PhysicalExpr, PhysicalSortExpr, utils::reassign_expr_columns},
};

use super::{near::Near, read::Left, stage::columns_of};
use crate::Result;

/// Which rows are enough: the first of an order.
pub(crate) struct Top {
    pub(crate) rows: usize,
    /// The columns that the order reads, by number in the table.
    pub(crate) columns: Vec<usize>,
    schema: SchemaRef,
    keys: Vec<(Arc<dyn PhysicalExpr>, SortOptions)>,
    /// An index that gives them.
    pub(crate) near: Option<Near>,
}

impl fmt::Display for Top {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys: Vec<String> = self.keys.iter().map(|(key, _)| key.to_string()).collect();
        let keys = keys.join(", ");
        // A vector in a key says nothing to a reader.
        let keys = if keys.len() > 80 { format!("{}...", keys.chars().take(77).collect::<String>()) } else { keys };
        write!(f, ", first {} by [{keys}]", self.rows)?;
        match &self.near {
            Some(near) => write!(f, " through index {near}"),
            None => Ok(()),
        }
    }
}

impl Top {
    /// The first `rows` by `keys`, whose columns are those of `schema`.
    pub(crate) fn new(schema: &SchemaRef, rows: usize, keys: &[PhysicalSortExpr]) -> DfResult<Self> {
        let columns: BTreeSet<usize> = keys.iter().flat_map(|key| columns_of(&key.expr)).collect();
        let columns: Vec<usize> = columns.into_iter().collect();
        let fields: Vec<_> = columns.iter().map(|number| schema.fields()[*number].clone()).collect();
        let own = Arc::new(Schema::new(fields));
        let keys = keys.iter().map(|key| Ok((reassign_expr_columns(key.expr.clone(), &own)?, key.options)));
        Ok(Self { rows, columns, keys: keys.collect::<DfResult<_>>()?, schema: own, near: None })
    }
}

/// The best rows of those that were seen.
pub(crate) struct Best {
    top: Arc<Top>,
    /// The values of the keys, and the rows' numbers behind them, in their order.
    found: Option<Vec<ArrayRef>>,
}

impl Best {
    pub(crate) fn new(top: Arc<Top>) -> Self {
        Self { top, found: None }
    }

    /// Looks at some rows, given the columns of the order.
    pub(crate) fn see(&mut self, rows: &Left, columns: Vec<ArrayRef>) -> Result<()> {
        let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
        let batch = RecordBatch::try_new_with_options(self.top.schema.clone(), columns, &options)?;
        let mut all = Vec::with_capacity(self.top.keys.len() + 1);
        for (key, _) in &self.top.keys {
            all.push(key.evaluate(&batch)?.into_array(rows.len())?);
        }
        all.push(rows.numbers());
        if let Some(found) = &self.found {
            let pairs = found.iter().zip(&all);
            all = pairs.map(|(before, new)| concat(&[before, new])).collect::<Result<_, _>>()?;
        }
        // Of equal rows the first of the table: the same ones however many threads look.
        let options = self.top.keys.iter().map(|(_, options)| *options).chain([SortOptions::default()]);
        let by = all
            .iter()
            .zip(options)
            .map(|(values, options)| SortColumn { values: values.clone(), options: Some(options) });
        let order = lexsort_to_indices(&by.collect::<Vec<_>>(), Some(self.top.rows))?;
        self.found = Some(all.iter().map(|values| take(values, &order, None)).collect::<Result<_, _>>()?);
        Ok(())
    }

    /// The numbers of the best rows, and others, in the table's order.
    pub(crate) fn into_rows(self, others: &[u64]) -> Left {
        let found = self.found.as_ref().and_then(|found| found.last());
        let numbers: Option<&UInt64Array> = found.map(|numbers| numbers.as_primitive::<UInt64Type>());
        let numbers = numbers.into_iter().flat_map(|numbers| numbers.values().iter());
        Left::List(numbers.chain(others).copied().collect::<BTreeSet<u64>>().into_iter().collect())
    }
}
