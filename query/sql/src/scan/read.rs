//! Columns of a unit, for the rows that are left of it.

use std::{ops::Range, sync::Arc};

use arrow::{
    array::{Array, ArrayRef, BooleanArray, Float32Array, Float64Array, StringArray, UInt64Array},
    array::{AsArray, PrimitiveArray},
    buffer::Buffer,
    compute::filter,
    datatypes::{ArrowPrimitiveType, Float32Type, Float64Type},
};
use bytes::Bytes;
use forebay_format::{Column, DType};
use forebay_versioning::{OpenFile, Table, Verify};

use crate::{Result, arrays, types};

/// Rows that are left of a unit, as the table numbers them.
#[derive(Clone, Debug)]
pub(crate) enum Left {
    Range(Range<u64>),
    List(Vec<u64>),
}

impl Left {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Range(rows) => (rows.end - rows.start) as usize,
            Self::List(rows) => rows.len(),
        }
    }

    fn row(&self, place: usize) -> u64 {
        match self {
            Self::Range(rows) => rows.start + place as u64,
            Self::List(rows) => rows[place],
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = u64> {
        (0..self.len()).map(|place| self.row(place))
    }

    /// Those that a mask keeps.
    pub(crate) fn filter(&self, mask: &BooleanArray) -> Self {
        Self::List(mask.values().set_indices().map(|place| self.row(place)).collect())
    }

    /// Those at some places.
    pub(crate) fn slice(&self, places: Range<usize>) -> Self {
        match self {
            Self::Range(rows) => Self::Range(rows.start + places.start as u64..rows.start + places.end as u64),
            Self::List(rows) => Self::List(rows[places].to_vec()),
        }
    }

    pub(crate) fn numbers(&self) -> ArrayRef {
        match self {
            Self::Range(rows) => Arc::new(UInt64Array::from_iter_values(rows.clone())),
            Self::List(rows) => Arc::new(UInt64Array::from(rows.clone())),
        }
    }

    pub(crate) fn ids(&self, table: &Table) -> Result<ArrayRef> {
        let ids = (0..self.len()).map(|place| Ok(table.row_id(self.row(place))?.to_string()));
        Ok(Arc::new(StringArray::from_iter_values(ids.collect::<Result<Vec<_>>>()?)))
    }
}

/// The values of a column in some rows.
pub(crate) async fn column(table: &Table, column: &Column, rows: &Left) -> Result<ArrayRef> {
    let array = match rows {
        Left::Range(rows) => range(table, column, rows.clone()).await?,
        Left::List(list) => match (list.first(), list.last()) {
            // Small values that lie close are read as one and thinned out.
            (Some(first), Some(last))
                if types::row_bytes(column) <= 64
                    && last >= first
                    && last - first < 4 * list.len() as u64
                    && list.is_sorted_by(|a, b| a < b) =>
            {
                let all = range(table, column, *first..last + 1).await?;
                let mut keep = arrow::array::BooleanBufferBuilder::new(all.len());
                keep.append_n(all.len(), false);
                list.iter().for_each(|row| keep.set_bit((row - first) as usize, true));
                filter(&all, &BooleanArray::new(keep.finish(), None))?
            }
            _ => arrays::array(column, table.take(&column.name, list).await?)?,
        },
    };
    Ok(if column.shape.is_empty() { one_zero(column.dtype, array) } else { array })
}

async fn range(table: &Table, column: &Column, rows: Range<u64>) -> Result<ArrayRef> {
    match mapped(table, column, rows.clone())? {
        Some(array) => Ok(array),
        None => arrays::array(column, table.read(&column.name, rows).await?),
    }
}

/// SQL has one zero and one NaN: comparisons, groups and joins take floats by their bits.
fn one_zero(dtype: DType, array: ArrayRef) -> ArrayRef {
    fn canonical<T: ArrowPrimitiveType>(array: &ArrayRef, of: impl Fn(T::Native) -> T::Native) -> PrimitiveArray<T> {
        array.as_primitive::<T>().unary(of)
    }
    match dtype {
        DType::F32 | DType::BF16 | DType::F8E4M3 | DType::F8E5M2 => {
            let array: Float32Array = canonical::<Float32Type>(&array, |v| if v.is_nan() { f32::NAN } else { v + 0.0 });
            Arc::new(array)
        }
        DType::F64 => {
            let array: Float64Array = canonical::<Float64Type>(&array, |v| if v.is_nan() { f64::NAN } else { v + 0.0 });
            Arc::new(array)
        }
        DType::F16 => Arc::new(canonical::<arrow::datatypes::Float16Type>(&array, |v| {
            if v.is_nan() {
                half::f16::NAN
            } else if v == half::f16::ZERO {
                half::f16::ZERO
            } else {
                v
            }
        })),
        _ => array,
    }
}

/// Part of a mapped file, which stays open as long as an array points into it.
struct Part {
    file: Arc<OpenFile>,
    range: Range<usize>,
}

impl AsRef<[u8]> for Part {
    fn as_ref(&self) -> &[u8] {
        self.file.map().map_or(&[], |map| &map.as_slice()[self.range.clone()])
    }
}

/// The values where they lie, without a copy: if a file on a local disk that is open holds these rows, and no others, one behind
/// the other.
pub(crate) fn mapped(table: &Table, column: &Column, rows: Range<u64>) -> Result<Option<ArrayRef>> {
    if rows.is_empty() || column.shape.is_empty() || column.nullable {
        return Ok(None); // A copy of scalars costs nothing beside what is done with them.
    }
    let (first, last) = (table.locate(rows.start)?, table.locate(rows.end - 1)?);
    let stored = first.row..last.row.saturating_add(1);
    let here = first.fragment == last.fragment && stored.len() as u64 == rows.end - rows.start;
    if !here || !table.is_plain(first.fragment, column.field) {
        return Ok(None);
    }
    let Some(file) = table.opened(first.fragment, column.field)? else { return Ok(None) };
    let Some(position) = file.position(column.field) else { return Ok(None) };
    let index = &file.index().columns()[position];
    let (Some(row_bytes), true) = (index.direct(), file.map().is_some()) else { return Ok(None) };
    let (Some(start), true) =
        (index.row_offset(stored.start), index.chunk_of(stored.start) == index.chunk_of(last.row))
    else {
        return Ok(None);
    };
    file.verify_rows(position, stored.clone(), Verify::First)?;
    let part = Part { file: file.clone(), range: start as usize..start as usize + stored.len() * row_bytes };
    let buffer = Buffer::from(Bytes::from_owner(part));
    arrays::fixed(column, stored.len(), buffer, None).map(Some)
}
