//! Where the rows of a column of a batch lie, put together row by row.

use std::{collections::HashMap, sync::Arc};

use super::{JobColumn, atom::Block};
use crate::{
    BatchColumn, BatchValues, Error, Result,
    device::{ArenaRegion, ColumnPlan, Gathered, PlanLayout, Region, Source},
};

/// A column plan in the making.
pub(super) struct Draft {
    pub(super) regions: Vec<Region>,
    /// Regions by the address of their arena buffer.
    known: HashMap<usize, u32>,
    last: Option<(usize, u32)>,
    pub(super) sources: Vec<Source>,
    pub(super) validity: Option<Vec<u8>>,
    ragged: bool,
    offsets: Vec<u64>,
    shapes: Vec<u32>,
    /// Rows without a shape of their own.
    shapeless: Vec<usize>,
}

impl Draft {
    pub(super) fn new(column: &JobColumn, rows: usize) -> Self {
        let ragged = matches!(column.column.layout(), forebay_format::Layout::Ragged { .. });
        Self {
            regions: Vec::new(),
            known: HashMap::new(),
            last: None,
            sources: Vec::with_capacity(rows),
            validity: column.column.nullable.then(|| Vec::with_capacity(rows)),
            ragged,
            offsets: if ragged { vec![0] } else { Vec::new() },
            shapes: Vec::new(),
            shapeless: Vec::new(),
        }
    }

    fn region(&mut self, address: usize, make: impl FnOnce() -> Region) -> u32 {
        if let Some((last, region)) = self.last
            && last == address
        {
            return region;
        }
        let next = self.regions.len() as u32;
        let region = *self.known.entry(address).or_insert(next);
        if region == next {
            self.regions.push(make());
        }
        self.last = Some((address, region));
        region
    }

    /// Adds a row of a block, or one without bytes.
    pub(super) fn fetched(&mut self, row: u32, block: Option<&Block>) {
        let Some(block) = block else {
            self.sources.push(Source::NOWHERE);
            return;
        };
        let arena = block.region();
        let region = self.region(Arc::as_ptr(arena) as usize, || Region::Arena(arena.clone()));
        let place = block.place(row);
        self.sources.push(Source { region, at: place.start as u64 });
        self.extend(place.len(), block.shape(row));
    }

    /// Adds a row that an arena buffer holds from byte `at` on.
    pub(super) fn held(&mut self, region: &Arc<ArenaRegion>, at: usize, length: usize, shape: &[u32]) {
        let number = self.region(Arc::as_ptr(region) as usize, || Region::Arena(region.clone()));
        self.sources.push(Source { region: number, at: at as u64 });
        self.extend(length, shape);
    }

    /// Adds a row of a ragged column that has neither bytes nor a shape.
    pub(super) fn nothing(&mut self) {
        self.shapeless.push(self.sources.len());
        self.sources.push(Source::NOWHERE);
        self.extend(0, &[]);
    }

    fn extend(&mut self, length: usize, shape: &[u32]) {
        if self.ragged {
            let end = self.offsets.last().copied().unwrap_or(0) + length as u64;
            self.offsets.push(end);
            self.shapes.extend(shape);
        }
    }

    /// Gives rows without a shape one of zeros, as long as those of the others.
    fn even_shapes(&mut self, rank: usize) {
        let whole = self.sources.len() - self.shapeless.len();
        let rank = self.shapes.len().checked_div(whole).unwrap_or(rank);
        let mut shapes = std::mem::take(&mut self.shapes).into_iter();
        let mut shapeless = self.shapeless.iter().peekable();
        for row in 0..self.sources.len() {
            if shapeless.next_if_eq(&&row).is_some() {
                self.shapes.extend(std::iter::repeat_n(0, rank));
            } else {
                self.shapes.extend(shapes.by_ref().take(rank));
            }
        }
    }

    pub(super) fn finish(mut self, column: &JobColumn) -> ColumnPlan {
        if !self.shapeless.is_empty()
            && let forebay_format::Layout::Ragged { rank } = column.column.layout()
        {
            self.even_shapes(rank);
        }
        let layout = match column.column.layout() {
            forebay_format::Layout::Fixed { row_bytes } => {
                PlanLayout::Fixed { row_bytes, shape: fixed_shape(&column.column) }
            }
            forebay_format::Layout::Ragged { .. } => PlanLayout::Ragged { offsets: self.offsets, shapes: self.shapes },
        };
        ColumnPlan {
            name: column.name.clone(),
            field: column.column.field,
            dtype: column.column.dtype,
            layout,
            regions: self.regions,
            sources: self.sources,
            validity: self.validity,
            finishing: None,
        }
    }
}

pub(super) fn fixed_shape(column: &forebay_format::Column) -> Arc<[usize]> {
    let length = |dim: &forebay_format::Dim| match dim {
        forebay_format::Dim::Fixed(length) => *length as usize,
        forebay_format::Dim::Free => 0,
    };
    column.shape.iter().map(length).collect()
}

pub(super) fn batch_column(
    column: &JobColumn,
    rows: usize,
    gathered: Gathered,
    layout: PlanLayout,
) -> Result<BatchColumn> {
    let dtype = column.finish.as_ref().map_or(column.column.dtype, |finish| finish.number().dtype());
    let finished = column.finish.as_ref().map(|finish| finish.shape());
    let values = match (layout, gathered.offsets) {
        (_, _) if finished.is_some() => {
            let shape = std::iter::once(rows).chain(finished.into_iter().flatten()).collect();
            BatchValues::Fixed { shape, buffer: gathered.values }
        }
        (PlanLayout::Fixed { shape, .. }, _) => {
            let shape = std::iter::once(rows).chain(shape.iter().copied()).collect();
            BatchValues::Fixed { shape, buffer: gathered.values }
        }
        (PlanLayout::Ragged { shapes, .. }, Some(offsets)) => {
            BatchValues::Ragged { offsets, shapes, bytes: gathered.values }
        }
        (PlanLayout::Ragged { .. }, None) => {
            return Err(Error::Device { reason: format!("no offsets for column '{}'", column.name) });
        }
    };
    Ok(BatchColumn { name: column.name.clone(), dtype, values, validity: gathered.validity })
}
