//! Where a device counts.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use super::plan::{Column, Part};
use crate::{ColumnStats, Stats};

/// Where a device counts.
#[derive(Debug, Default)]
pub(super) struct Counters(Mutex<Stats>);

impl Counters {
    pub(super) fn batch<'a>(
        &self,
        columns: impl Iterator<Item = (&'a Column<'a>, &'a Part)>,
        waited: Duration,
        busy: Duration,
    ) {
        let mut stats = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        stats.batches += 1;
        stats.waited += waited;
        stats.busy += busy;
        for (column, part) in columns {
            let (rows, bytes) = (column.places.len() as u64, column.bytes());
            stats.bytes += bytes;
            if !stats.columns.contains_key(column.name) {
                stats.columns.insert(column.name.to_owned(), ColumnStats::new(part.route));
            }
            let Some(known) = stats.columns.get_mut(column.name) else { continue };
            known.route = part.route;
            known.refused = column.regions.iter().find_map(|region| region.refused()).map(str::to_owned);
            known.rows += rows;
            known.bytes += bytes;
            known.copied += part.packed.len() as u64;
        }
    }

    pub(super) fn snapshot(&self) -> Stats {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
