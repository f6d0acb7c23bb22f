//! Batches whose rows all lie in mapped files: nothing is fetched for them, so each builder works out for itself where they are, beside
//! the others and without asking the feeder.

use std::{ops::Range, sync::Arc};

use forebay_format::Layout;
use forebay_versioning::OpenFile;

use super::{
    Job,
    builder::{Builder, Cause, Planned},
    draft::fixed_shape,
    feeder::FileColumn,
    sources::Sources,
};
use crate::{
    Result,
    device::{ColumnPlan, GatherPlan, MappedColumn, PlanLayout, Region, Source},
};

/// A mapped file, and the place of a column in it.
type Place = (Arc<OpenFile>, usize);

/// The mapped files of every row of an epoch.
#[derive(Debug)]
pub(crate) struct Direct {
    /// By column and number of the file; `None` where the epoch has no rows.
    columns: Vec<Vec<Option<Place>>>,
}

/// What a builder uses again from batch to batch.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    /// The region of each file in the batch that is being planned.
    regions: Vec<u32>,
}

const NONE: u32 = u32::MAX;

impl Direct {
    /// The files of an epoch, if all of them are among those that are `open`, by column and number, and mapped, and every value is in
    /// the file of its row's fragment.
    pub(super) fn new<E>(
        sources: &Sources,
        wanted: &[usize],
        open: &[Vec<Option<Result<FileColumn, E>>>],
    ) -> Option<Self> {
        let mut columns = Vec::with_capacity(open.len());
        for open in open {
            let mut files = vec![None; sources.files()];
            for number in wanted {
                let Some(Ok(file)) = &open[*number] else { return None };
                if !file.mapped {
                    return None;
                }
                files[*number] = Some((file.file.clone(), file.position));
            }
            columns.push(files);
        }
        Some(Self { columns })
    }
}

impl Builder {
    /// Where the rows of these steps are.
    pub(super) fn plan_direct(
        &self,
        direct: &Direct,
        steps: Range<u64>,
        scratch: &mut Scratch,
    ) -> Result<(Planned, GatherPlan), Cause> {
        let job: &Job = &self.job;
        let positions: Vec<u64> = steps.clone().flat_map(|step| job.shard.positions(step)).collect();
        let indexes = job.course.indexes(&positions);
        let (mut rows, mut places) = (Vec::with_capacity(indexes.len()), Vec::with_capacity(indexes.len()));
        let mut numbers = Vec::with_capacity(if job.sources.len() > 1 { indexes.len() } else { 0 });
        scratch.regions.resize(job.sources.files(), NONE);
        let mut files: Vec<usize> = Vec::new();
        for index in indexes {
            let spot = job.sources.spot(index)?;
            let place = job.sources.place(&spot);
            let region = &mut scratch.regions[place.fragment];
            if *region == NONE {
                *region = files.len() as u32;
                files.push(place.fragment);
            }
            rows.push(spot.row);
            places.push(Source { region: *region, at: u64::from(place.row) });
            if job.sources.len() > 1 {
                numbers.push(spot.source);
            }
        }
        files.iter().for_each(|file| scratch.regions[*file] = NONE);
        let mut columns = Vec::with_capacity(job.columns.len());
        for (number, column) in job.columns.iter().enumerate() {
            let region = |file: &usize| {
                let (file, column) = direct.columns[number][*file].clone()?;
                Some(Region::Mapped(MappedColumn { file, column, verify: job.options.verify }))
            };
            let regions = files.iter().map(region).collect::<Option<Vec<_>>>();
            let (Some(regions), Layout::Fixed { row_bytes }) = (regions, column.column.layout()) else {
                return Err(crate::Error::Died { thread: "feeder" }.into());
            };
            let mut plan = ColumnPlan {
                name: column.name.clone(),
                field: column.column.field,
                dtype: column.column.dtype,
                layout: PlanLayout::Fixed { row_bytes, shape: fixed_shape(&column.column) },
                regions,
                sources: places.clone(),
                validity: None,
                finishing: None,
            };
            self.add_finishing(number, &positions, &[], &mut plan)?;
            columns.push(plan);
        }
        let mask = if job.masks() { vec![true; rows.len()] } else { Vec::new() };
        let plan = GatherPlan { rows: rows.len(), columns };
        Ok((Planned { steps, positions, rows, sources: numbers, mask, columns: Vec::new() }, plan))
    }
}
