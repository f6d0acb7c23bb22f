//! A loader's device that keeps rows in device memory from one epoch to the next.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use forebay_loader::{
    Result as LoaderResult,
    device::{ArenaBuffer, ColumnPlan, Device, GatherPlan, Gathered, PlanLayout, Region},
};
use forebay_versioning::OpenFile;

use crate::{
    CacheStats, CudaLoaderDevice,
    engine::{Cached, DeviceCache, RowKey, SMALL},
};

/// A [`CudaLoaderDevice`] and a cache in its memory, which is a loader's own and goes with it.
///
/// Rows of fixed length from mapped files are kept. Rows that a loader fetches or decodes have no lasting place to know them
/// by, and small ones come packed either way: [`Stats::columns`](crate::Stats::columns) says which route each column takes.
#[derive(Debug)]
pub struct CachingDevice {
    device: Arc<CudaLoaderDevice>,
    cache: Arc<DeviceCache>,
    /// Whether batches are copied by their consumer, and so may wait in the cache.
    deferred: bool,
    tables: Mutex<HashMap<(usize, usize), Table>>,
}

/// A column of a file, in the cache.
#[derive(Debug)]
struct Table {
    number: u32,
    /// Its address names it, so it must stay.
    _file: Arc<OpenFile>,
}

impl CachingDevice {
    /// `device` with a cache of at most `budget` bytes of its memory. With `deferred`, rows that are all in the cache stay there
    /// until the consumer copies them, by [`DeviceBuffer::copy_all`](crate::DeviceBuffer::copy_all), the only way to them.
    #[must_use]
    pub fn new(device: &Arc<CudaLoaderDevice>, budget: u64, deferred: bool) -> Arc<Self> {
        let cache = device.device().cache(budget);
        Arc::new(Self { device: Arc::clone(device), cache, deferred, tables: Mutex::default() })
    }

    /// What the cache holds and did.
    #[must_use]
    pub fn cache_stats(&self) -> CacheStats {
        self.cache.stats()
    }

    /// Looks for the rows of a column, if they are of a kind that is kept.
    pub(crate) fn find(&self, column: &ColumnPlan) -> Option<Found> {
        let PlanLayout::Fixed { row_bytes, .. } = column.layout else { return None };
        if row_bytes <= SMALL {
            return None;
        }
        let tables: Vec<u32> = column.regions.iter().map(|region| self.table(region)).collect::<Option<_>>()?;
        let key = |source: &forebay_loader::device::Source| {
            Some(RowKey { table: *tables.get(source.region as usize)?, row: u32::try_from(source.at).ok()? })
        };
        let keys: Vec<RowKey> = column.sources.iter().map(key).collect::<Option<_>>()?;
        let addresses = self.cache.find(&keys);
        Some(Found { cache: Arc::clone(&self.cache), keys, addresses, deferred: self.deferred })
    }

    fn table(&self, region: &Region) -> Option<u32> {
        let Region::Mapped(mapped) = region else { return None };
        let rows = mapped.file.index().columns().get(mapped.column)?.rows() as usize;
        let name = (Arc::as_ptr(&mapped.file) as usize, mapped.column);
        let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        let table = tables
            .entry(name)
            .or_insert_with(|| Table { number: self.cache.table(rows), _file: Arc::clone(&mapped.file) });
        Some(table.number)
    }
}

impl Device for CachingDevice {
    fn name(&self) -> String {
        self.device.name()
    }

    fn concurrency(&self) -> usize {
        self.device.concurrency()
    }

    fn planners(&self) -> usize {
        self.device.planners()
    }

    /// Rows are never dropped, so that where as many are kept as there are, every batch finds all of its own.
    fn bytes_on_the_way(&self, rows: u64, row_bytes: &[usize]) -> Vec<usize> {
        let kept = row_bytes.iter().filter(|bytes| **bytes > SMALL).count() as u64;
        let whole = self.deferred && self.cache.rows() >= rows.saturating_mul(kept);
        row_bytes.iter().map(|bytes| if whole && *bytes > SMALL { size_of::<u64>() } else { *bytes }).collect()
    }

    fn gather(&self, plan: GatherPlan) -> LoaderResult<Vec<Gathered>> {
        self.device.gather_through(plan, Some(self))
    }

    fn arena(&self, bytes: usize) -> LoaderResult<Box<dyn ArenaBuffer>> {
        self.device.arena(bytes)
    }
}

/// A column's rows, looked for in a cache.
#[derive(Debug)]
pub(crate) struct Found {
    cache: Arc<DeviceCache>,
    keys: Vec<RowKey>,
    addresses: Vec<u64>,
    deferred: bool,
}

impl Found {
    /// Whether all are there.
    pub(crate) fn complete(&self) -> bool {
        self.addresses.iter().all(|address| *address != 0)
    }

    pub(crate) fn cached(&self) -> Cached<'_> {
        Cached { cache: &self.cache, keys: &self.keys, found: &self.addresses, deferred: self.deferred }
    }
}
