//! Rows that stay on the device from one epoch to the next.
#![allow(unsafe_code)]

use std::sync::{Arc, Mutex, PoisonError};

use crate::{
    CacheStats, Result,
    cuda::{Context, DeviceMemory, StreamRef, copy_on_device},
};

/// Device memory is taken in slabs of at most this many bytes.
const SLAB: u64 = 256 << 20;
/// Rows that are kept together start at a multiple of this.
const ALIGNMENT: u64 = 256;

/// Rows in device memory, until its budget is full. None is ever dropped for another: an epoch uses each row once, so that
/// whichever was dropped would be missed as soon as any other.
#[derive(Debug)]
pub struct DeviceCache {
    context: Arc<Context>,
    budget: u64,
    state: Mutex<State>,
}

/// Names a row: a column of a file, by a number from [`DeviceCache::table`], and the row in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowKey {
    /// The column of a file.
    pub table: u32,
    /// The row.
    pub row: u32,
}

#[derive(Debug, Default)]
struct State {
    /// The address of each row of each table; 0 for one that isn't there.
    tables: Vec<Vec<u64>>,
    slabs: Vec<DeviceMemory>,
    /// What is left of the last slab.
    next: u64,
    end: u64,
    stats: CacheStats,
}

impl DeviceCache {
    pub(super) fn new(context: &Arc<Context>, budget: u64) -> Arc<Self> {
        let stats = CacheStats { budget, ..CacheStats::default() };
        let state = Mutex::new(State { stats, ..State::default() });
        Arc::new(Self { context: Arc::clone(context), budget, state })
    }

    /// A number for the column of a file that has `rows` rows.
    #[must_use]
    pub fn table(&self, rows: usize) -> u32 {
        let mut state = self.lock();
        state.tables.push(vec![0; rows]);
        (state.tables.len() - 1) as u32
    }

    /// The device address of each row; 0 for one that isn't there.
    #[must_use]
    pub fn find(&self, keys: &[RowKey]) -> Vec<u64> {
        let mut state = self.lock();
        let address = |key: &RowKey| {
            let table = state.tables.get(key.table as usize);
            table.and_then(|table| table.get(key.row as usize)).copied().unwrap_or(0)
        };
        let found: Vec<u64> = keys.iter().map(address).collect();
        let hits = found.iter().filter(|address| **address != 0).count() as u64;
        state.stats.hits += hits;
        state.stats.misses += found.len() as u64 - hits;
        found
    }

    /// How many rows it holds.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.lock().stats.rows
    }

    /// What it holds and did.
    #[must_use]
    pub fn stats(&self) -> CacheStats {
        self.lock().stats.clone()
    }

    /// Asks `stream` to keep the rows that were not `found`, which lie side by side at `from` once it comes to that. Who asks
    /// the same stream for a row that [`find`](Self::find) gives later comes after that.
    ///
    /// # Safety
    /// `from` is device memory of `keys.len()` times `row_bytes` bytes, which stays as it is until the stream has done this.
    pub(super) unsafe fn keep(
        &self,
        keys: &[RowKey],
        found: &[u64],
        row_bytes: usize,
        from: u64,
        stream: StreamRef,
    ) -> Result<()> {
        let mut state = self.lock();
        let mut first = 0;
        while first < keys.len() && state.stats.full.is_none() {
            let absent = |index: &usize| found[*index] == 0;
            let count = (first..keys.len()).take_while(absent).count();
            if count == 0 {
                first += 1;
                continue;
            }
            let (to, taken) = state.reserve(&self.context, self.budget, count, row_bytes);
            let bytes = taken * row_bytes;
            // SAFETY: the target was just reserved in a slab, which lives as long as this; the source is the caller's promise.
            unsafe { copy_on_device(&self.context, to, from + (first * row_bytes) as u64, bytes, stream)? };
            let mut added = 0;
            for (index, key) in keys[first..first + taken].iter().enumerate() {
                let table = state.tables.get_mut(key.table as usize);
                if let Some(address) = table.and_then(|table| table.get_mut(key.row as usize)) {
                    // A row that two batches bring at once is kept twice, and there once.
                    added += u64::from(*address == 0);
                    *address = to + (index * row_bytes) as u64;
                }
            }
            state.stats.rows += added;
            first += taken;
        }
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Room for up to `count` rows side by side, and for how many. Says why in its stats once there is none.
    fn reserve(&mut self, context: &Arc<Context>, budget: u64, count: usize, row_bytes: usize) -> (u64, usize) {
        let row = row_bytes as u64;
        self.next = self.next.next_multiple_of(ALIGNMENT);
        if self.next + row > self.end && !self.grow(context, budget, row) {
            return (0, 0);
        }
        let taken = count.min(((self.end - self.next) / row) as usize);
        let to = self.next;
        self.next += taken as u64 * row;
        (to, taken)
    }

    fn grow(&mut self, context: &Arc<Context>, budget: u64, row: u64) -> bool {
        let bytes = SLAB.max(row).min(budget.saturating_sub(self.stats.bytes));
        if bytes < row {
            self.stats.full = Some("the budget is used up".to_owned());
            return false;
        }
        match DeviceMemory::new(context, bytes as usize) {
            Ok(slab) => {
                (self.next, self.end) = (slab.address(), slab.address() + bytes);
                self.stats.bytes += bytes;
                self.slabs.push(slab);
                true
            }
            Err(refused) => {
                self.stats.full = Some(refused.to_string());
                false
            }
        }
    }
}
