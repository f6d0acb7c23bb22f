//! What a device did, in numbers.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use super::{plan::Column, route::Route};

/// Counts of a device since it was opened.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Batches asked for.
    pub batches: u64,
    /// Bytes that were brought to the device.
    pub bytes: u64,
    /// How long batches waited for one before them to be there: the link, or the device, was the limit.
    pub waited: Duration,
    /// How long the CPU was busy with plans, packing and calls.
    pub busy: Duration,
    /// Bytes of registered and pinned host memory.
    pub registered: u64,
    /// Bytes of device memory.
    pub device: u64,
    /// The function of the driver that copies batches of rows, if it has one.
    pub batch_copy: Option<&'static str>,
    /// Each column by name.
    pub columns: BTreeMap<String, ColumnStats>,
}

/// How a column's rows came.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ColumnStats {
    /// The route of its last batch.
    pub route: Route,
    /// Why its memory couldn't be registered, for [`Route::Slab`].
    pub refused: Option<String>,
    /// Rows.
    pub rows: u64,
    /// Bytes brought.
    pub bytes: u64,
}

/// Where a device counts.
#[derive(Debug, Default)]
pub(super) struct Counters(Mutex<Stats>);

impl Counters {
    pub(super) fn batch<'a>(
        &self,
        columns: impl Iterator<Item = (&'a Column<'a>, Route)>,
        waited: Duration,
        busy: Duration,
    ) {
        let mut stats = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        stats.batches += 1;
        stats.waited += waited;
        stats.busy += busy;
        for (column, route) in columns {
            let (rows, bytes) = (column.places.len() as u64, column.bytes());
            stats.bytes += bytes;
            let refused = || column.regions.iter().find_map(|region| region.refused()).map(str::to_owned);
            match stats.columns.get_mut(column.name) {
                Some(known) => {
                    if known.route != route {
                        known.refused = refused();
                    }
                    known.route = route;
                    known.rows += rows;
                    known.bytes += bytes;
                }
                None => {
                    let refused = refused();
                    stats.columns.insert(column.name.to_owned(), ColumnStats { route, refused, rows, bytes });
                }
            }
        }
    }

    pub(super) fn snapshot(&self) -> Stats {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
