//! Which chunks a filter can pass over: by statistics alone, before any of their bytes is read.

use std::{collections::HashSet, ops::Range, sync::Arc};

use arrow::{
    array::{ArrayRef, BooleanArray, UInt64Array},
    datatypes::{DataType, SchemaRef},
};
use datafusion::{
    common::{Column as Name, ScalarValue, pruning::PruningStatistics},
    physical_expr::PhysicalExpr,
    physical_optimizer::pruning::PruningPredicateBuilder,
};
use forebay_format::{Bound, ChunkIndex, Column, DType, Stats};
use forebay_versioning::{OpenFile, Table};

use crate::{Result, types};

/// Rows of a fragment, deleted ones counted, that lie in one chunk of each of the filter's columns.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    pub(crate) fragment: usize,
    pub(crate) rows: Range<u32>,
}

/// Segments of a table, and what is known of their values.
pub(crate) struct Segments {
    schema: SchemaRef,
    columns: Vec<Column>,
    all: Vec<Segment>,
    /// For each of `columns`, the chunks of each fragment; none where the fragment's own file doesn't say everything.
    files: Vec<Vec<Option<Arc<OpenFile>>>>,
}

/// Values of an `IN` that are compared with the statistics one by one; a longer list prunes nothing.
const IN_LIST: usize = 256;

impl Segments {
    /// Cuts a table at the chunks of some columns, whose files it opens.
    pub(crate) async fn of(table: &Table, schema: SchemaRef, columns: Vec<Column>) -> Result<Self> {
        let fragments = 0..table.fragments().len();
        let mut wanted = Vec::new();
        for fragment in fragments.clone() {
            let fields = columns.iter().map(|column| column.field);
            wanted.extend(fields.filter(|field| table.is_plain(fragment, *field)).map(|field| (fragment, field)));
        }
        table.open_files(wanted).await?;
        let mut files = Vec::with_capacity(columns.len());
        for column in &columns {
            let mut of = Vec::with_capacity(fragments.len());
            for fragment in fragments.clone() {
                let file =
                    if table.is_plain(fragment, column.field) { table.opened(fragment, column.field)? } else { None };
                of.push(file.cloned());
            }
            files.push(of);
        }
        let mut all = Vec::new();
        for (fragment, described) in table.fragments().iter().enumerate() {
            let mut cuts = vec![0, described.rows];
            for (column, files) in columns.iter().zip(&files) {
                let index = files[fragment].as_ref().and_then(|file| file.index().column(column.field));
                cuts.extend(index.into_iter().flat_map(|index| index.chunks().iter().map(|chunk| chunk.first_row)));
            }
            cuts.sort_unstable();
            cuts.dedup();
            all.extend(cuts.windows(2).map(|pair| Segment { fragment, rows: pair[0]..pair[1] }));
        }
        Ok(Self { schema, columns, all, files })
    }

    /// The segments that may hold a row for which `filter` is true.
    pub(crate) fn kept(&self, filter: &Arc<dyn PhysicalExpr>) -> Result<Vec<Segment>> {
        let predicate = PruningPredicateBuilder::new()
            .with_file_schema(self.schema.clone())
            .with_max_in_list_size(IN_LIST)
            .try_build(filter.clone())?;
        if predicate.always_true() {
            return Ok(self.all.clone());
        }
        let keep = predicate.prune(self)?;
        Ok(self.all.iter().zip(keep).filter(|(_, keep)| *keep).map(|(segment, _)| segment.clone()).collect())
    }

    pub(crate) fn all(&self) -> Vec<Segment> {
        self.all.clone()
    }

    fn position(&self, name: &Name) -> Option<usize> {
        self.columns.iter().position(|column| column.name == name.name)
    }

    fn chunk<'a>(&'a self, column: usize, segment: &Segment) -> Option<&'a ChunkIndex> {
        let file = self.files[column][segment.fragment].as_ref()?;
        let index = file.index().column(self.columns[column].field)?;
        index.chunks().get(index.chunk_of(segment.rows.start))
    }

    fn bounds(&self, name: &Name, of: impl Fn(&Stats) -> Option<&Bound>) -> Option<ArrayRef> {
        let column = self.position(name)?;
        let Column { dtype, shape, .. } = &self.columns[column];
        if !shape.is_empty() {
            return None;
        }
        let data_type = types::element(*dtype);
        let null = ScalarValue::try_from(&data_type).ok()?;
        let bound = |segment: &Segment| {
            let stats = self.chunk(column, segment)?.stats.as_ref()?;
            // NaN lies above every bound, or below: a chunk that may have one has none.
            let ordered = !matches!(dtype, DType::F32 | DType::F64) || stats.nans == Some(0);
            scalar(&data_type, of(stats).filter(|_| ordered)?)
        };
        ScalarValue::iter_to_array(self.all.iter().map(|segment| bound(segment).unwrap_or_else(|| null.clone()))).ok()
    }
}

/// A bound as a value of the column's type.
pub(crate) fn scalar(data_type: &DataType, bound: &Bound) -> Option<ScalarValue> {
    let wide = match bound {
        Bound::Int(value) if *data_type == DataType::Boolean => return Some(ScalarValue::Boolean(Some(*value != 0))),
        Bound::Int(value) => ScalarValue::Int64(Some(*value)),
        Bound::Uint(value) => ScalarValue::UInt64(Some(*value)),
        Bound::Float(value) => ScalarValue::Float64(Some(*value)),
        Bound::Text(value) => ScalarValue::LargeUtf8(Some(value.clone())),
        _ => return None,
    };
    wide.cast_to(data_type).ok()
}

impl PruningStatistics for Segments {
    fn min_values(&self, column: &Name) -> Option<ArrayRef> {
        self.bounds(column, |stats| stats.min.as_ref())
    }

    fn max_values(&self, column: &Name) -> Option<ArrayRef> {
        self.bounds(column, |stats| stats.max.as_ref())
    }

    fn num_containers(&self) -> usize {
        self.all.len()
    }

    fn null_counts(&self, name: &Name) -> Option<ArrayRef> {
        let column = self.position(name)?;
        // A segment may be a part of a chunk: known are only none and all.
        let nulls = |segment: &Segment| {
            if !self.columns[column].nullable {
                return Some(0);
            }
            let chunk = self.chunk(column, segment)?;
            match chunk.stats.as_ref()?.nulls {
                0 => Some(0),
                all if all == chunk.rows => Some(segment.rows.len() as u64),
                _ => None,
            }
        };
        Some(Arc::new(self.all.iter().map(nulls).collect::<UInt64Array>()))
    }

    fn row_counts(&self) -> Option<ArrayRef> {
        Some(Arc::new(self.all.iter().map(|segment| Some(segment.rows.len() as u64)).collect::<UInt64Array>()))
    }

    fn contained(&self, _: &Name, _: &HashSet<ScalarValue>) -> Option<BooleanArray> {
        None
    }
}
