//! Where a device counts.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use super::plan::Column;
use crate::{ColumnStats, Route, Stats};

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
                    if known.route != route || known.refused.is_some() {
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
