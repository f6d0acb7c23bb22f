//! A CUDA device as the loader's [`Device`].
//!
//! A mapped file is registered once for all loaders; the arena's blocks are registered when they are made. Texts, bytes and JSON are of no use on a GPU: they are gathered on the host.
#![allow(unsafe_code)]

use std::{
    any::Any,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use forebay_format::DType;
use forebay_loader::{
    Error as LoaderError, HostDevice, Result as LoaderResult,
    device::{
        ArenaBuffer, Buffer, ColumnPlan, Device, GatherPlan, Gathered, MappedColumn, PlanLayout, Region as PlanRegion,
        Source,
    },
};
use rayon::prelude::*;

use crate::{
    Error, Missing, Stats,
    caching::{CachingDevice, Found},
    engine::{Arena, Column, CudaDevice, DeviceBuffer, Finishing, Options, Place, Region, Rows},
    fork,
    registrar::{Registrar, RowMap},
};

/// A [`CudaDevice`] that loaders gather their batches with.
#[derive(Debug)]
pub struct CudaLoaderDevice {
    files: Registrar,
    device: CudaDevice,
    host: Arc<HostDevice>,
    /// Verifies blocks, the first time that they are used.
    threads: rayon::ThreadPool,
    /// Batches so far.
    gathered: AtomicU64,
}

/// As many batches come before files are registered behind them.
const FIRST_BATCHES: u64 = 6;

impl CudaLoaderDevice {
    /// Opens device `ordinal`.
    ///
    /// # Errors
    /// As [`CudaDevice::open`]; [`Error::Threads`] if the system refuses threads.
    pub fn open(ordinal: u32, options: Options) -> Result<Arc<Self>, Error> {
        let refused = |reason: String| Error::Threads { reason };
        let host = HostDevice::new(options.threads.min(2)).map_err(|error| refused(error.to_string()))?;
        let threads = rayon::ThreadPoolBuilder::new()
            .num_threads(options.threads)
            .thread_name(|index| format!("forebay-verify-{index}"))
            .build()
            .map_err(|error| refused(error.to_string()))?;
        let files = Registrar::start(ordinal, options.at_once_bytes)?;
        let device = CudaDevice::open(ordinal, options)?;
        Ok(Arc::new(Self { files, device, host, threads, gathered: AtomicU64::new(0) }))
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> &CudaDevice {
        &self.device
    }

    /// What it did so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.device.stats()
    }

    /// The regions and places of a column's rows. Rows of mapped files are verified first. Rows that all are in a cache have
    /// no place.
    fn resolve(&self, column: &ColumnPlan, found: Option<&Found>) -> LoaderResult<(Vec<Region>, Vec<Place>)> {
        if found.is_some_and(Found::complete) {
            return Ok((Vec::new(), vec![Place { region: 0, offset: 0 }; column.sources.len()]));
        }
        let mapped = column.regions.iter().filter_map(|region| match region {
            PlanRegion::Mapped(mapped) => Some(mapped),
            PlanRegion::Arena(_) => None,
        });
        let mut known = self.files.columns(&self.device, mapped).map_err(failed)?.into_iter();
        let mut regions = Vec::with_capacity(column.regions.len());
        let mut starts = Vec::with_capacity(column.regions.len());
        let mut open = Vec::with_capacity(column.regions.len());
        for region in &column.regions {
            let (region, start, verified) = match region {
                PlanRegion::Mapped(_) => {
                    let known = known.next().flatten();
                    let known = known.ok_or_else(|| strange(column, "a file that isn't mapped"))?;
                    (known.region, Start::Rows(known.rows), known.verified)
                }
                PlanRegion::Arena(arena) => {
                    let arena = (arena.buffer() as &dyn Any).downcast_ref::<Arena>();
                    let place = arena.and_then(Arena::place);
                    let (region, start) = place.ok_or_else(|| strange(column, "an arena of another device"))?;
                    (region.clone(), Start::Byte(start), true)
                }
            };
            regions.push(region);
            starts.push(start);
            open.push(!verified);
        }
        if open.contains(&true) {
            self.verify(column, &open)?;
        }
        let place = |source: &Source| -> LoaderResult<Place> {
            let offset = match starts.get(source.region as usize) {
                Some(Start::Rows(rows)) => {
                    rows.start(source.at).ok_or_else(|| strange(column, "a row that isn't in its file"))?
                }
                Some(Start::Byte(start)) => start + source.at,
                // A row without bytes is nowhere, and so anywhere.
                None => return Ok(Place { region: 0, offset: 0 }),
            };
            Ok(Place { region: source.region, offset })
        };
        let mut places = Vec::with_capacity(column.sources.len());
        for source in &column.sources {
            places.push(place(source)?);
        }
        Ok((regions, places))
    }

    /// Verifies the rows in those mapped files that are `open`, by several threads.
    fn verify(&self, column: &ColumnPlan, open: &[bool]) -> LoaderResult<()> {
        let mapped = |source: &Source| match column.regions.get(source.region as usize) {
            Some(PlanRegion::Mapped(mapped)) if open[source.region as usize] => Some((mapped, source.at as u32)),
            _ => None,
        };
        let rows = column.sources.iter().filter_map(mapped);
        let rows: Vec<_> =
            rows.filter(|(file, row)| !file.file.is_verified(file.column, *row..row + 1, file.verify)).collect();
        if rows.is_empty() {
            return Ok(());
        }
        let verify = |(mapped, row): &(&MappedColumn, u32)| {
            let checked = mapped.file.verify_rows(mapped.column, *row..row + 1, mapped.verify);
            checked.map_err(|source| column.read_error(mapped, *row..row + 1, source))
        };
        self.threads.install(|| rows.par_iter().try_for_each(verify))
    }
}

/// Where the rows of a region start.
enum Start {
    Rows(Arc<RowMap>),
    /// At this byte and the row's own.
    Byte(u64),
}

impl Device for CudaLoaderDevice {
    fn name(&self) -> String {
        format!("cuda:{} ({})", self.device.ordinal(), self.device.name())
    }

    /// As many as there are slots: while one batch is asked of the device, the addresses of others are written.
    fn concurrency(&self) -> usize {
        self.device.slots()
    }

    /// Half of the cores that it may use, at most 8: what a row costs is the limit for small ones.
    fn planners(&self) -> usize {
        self.device.threads().div_ceil(2).min(8)
    }

    fn gather(&self, plan: GatherPlan) -> LoaderResult<Vec<Gathered>> {
        self.gather_through(plan, None)
    }

    fn arena(&self, bytes: usize) -> LoaderResult<Box<dyn ArenaBuffer>> {
        // The blocks of the parent aren't mapped in a child.
        fork::check().map_err(|missing| failed(missing.into()))?;
        Ok(Box::new(self.device.arena(bytes).map_err(failed)?))
    }
}

impl CudaLoaderDevice {
    /// Gathers a batch, through a cache if there is one.
    pub(crate) fn gather_through(
        &self,
        plan: GatherPlan,
        cache: Option<&CachingDevice>,
    ) -> LoaderResult<Vec<Gathered>> {
        fork::check().map_err(|missing| failed(missing.into()))?;
        let on_host = |column: &ColumnPlan| matches!(column.dtype, DType::Utf8 | DType::Bytes | DType::Json);
        let kinds: Vec<bool> = plan.columns.iter().map(on_host).collect();
        if !kinds.contains(&true) {
            return self.gather_on_device(plan, cache);
        }
        let (host, device): (Vec<_>, Vec<_>) = plan.columns.into_iter().partition(on_host);
        let mut host = self.host.gather(GatherPlan { rows: plan.rows, columns: host })?.into_iter();
        let mut device = self.gather_on_device(GatherPlan { rows: plan.rows, columns: device }, cache)?.into_iter();
        let missing = || LoaderError::Device { reason: "a column got lost".to_owned() };
        kinds.iter().map(|on_host| if *on_host { host.next() } else { device.next() }.ok_or_else(missing)).collect()
    }

    fn gather_on_device(&self, mut plan: GatherPlan, cache: Option<&CachingDevice>) -> LoaderResult<Vec<Gathered>> {
        let found: Vec<_> = plan.columns.iter().map(|column| cache.and_then(|cache| cache.find(column))).collect();
        let resolved = plan.columns.iter().zip(&found).map(|(column, found)| self.resolve(column, found.as_ref()));
        let resolved = resolved.collect::<LoaderResult<Vec<_>>>()?;
        // The batch reads from the plan's files and arenas until it is there.
        let kept: Vec<Vec<PlanRegion>> =
            plan.columns.iter_mut().map(|column| std::mem::take(&mut column.regions)).collect();
        let mut columns = Vec::with_capacity(plan.columns.len());
        let mut extras: Vec<Vec<u8>> = Vec::new();
        for ((column, (regions, places)), found) in plan.columns.iter().zip(&resolved).zip(&found) {
            let rows = match &column.layout {
                PlanLayout::Fixed { row_bytes, .. } => Rows::Fixed { bytes: *row_bytes },
                PlanLayout::Ragged { offsets, .. } => {
                    if is_ragged(column) {
                        extras.push(offsets.iter().flat_map(|offset| offset.to_le_bytes()).collect());
                    }
                    Rows::Ragged { offsets }
                }
            };
            extras.extend(column.validity.clone());
            let finishing = column.finishing.as_ref();
            let finishing =
                finishing.map(|finishing| Finishing { prepared: &finishing.prepared, windows: &finishing.windows });
            let cached = found.as_ref().map(Found::cached);
            columns.push(Column { name: &column.name, regions, places, rows, finishing, cached });
        }
        let extras: Vec<&[u8]> = extras.iter().map(Vec::as_slice).collect();
        let gathered = self.device.gather(&columns, &extras, Box::new(kept)).map_err(failed)?;
        // A consumer that got so far has its first batches, and more are on their way.
        if self.gathered.fetch_add(1, Ordering::Relaxed) == FIRST_BATCHES {
            self.files.open_gate();
        }
        let mut extras = gathered.extras.into_iter().map(boxed);
        let all = plan.columns.iter().zip(gathered.columns).map(|(column, values)| Gathered {
            values: boxed(values),
            offsets: if is_ragged(column) { extras.next() } else { None },
            validity: if column.validity.is_some() { extras.next() } else { None },
        });
        Ok(all.collect())
    }
}

/// Whether a column is delivered as rows of different lengths.
fn is_ragged(column: &ColumnPlan) -> bool {
    column.finishing.is_none() && matches!(column.layout, PlanLayout::Ragged { .. })
}

impl forebay_loader::device::DeviceBuffer for DeviceBuffer {
    fn len(&self) -> usize {
        self.len()
    }
}

impl ArenaBuffer for Arena {
    fn bytes(&self) -> &[u8] {
        self.bytes()
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        self.bytes_mut()
    }
}

fn boxed(buffer: DeviceBuffer) -> Buffer {
    Buffer::Device(Box::new(buffer))
}

fn strange(column: &ColumnPlan, what: &str) -> LoaderError {
    LoaderError::Device { reason: format!("column '{}' has {what}", column.name) }
}

fn failed(error: Error) -> LoaderError {
    match error {
        Error::Missing(Missing::Forked { .. }) => LoaderError::Forked,
        Error::OutOfMemory { bytes } => LoaderError::OutOfMemory { bytes },
        error => LoaderError::Device { reason: error.to_string() },
    }
}
