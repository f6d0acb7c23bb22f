//! What the memory budget allows.

use forebay_format::{Layout, WriteOptions};
use forebay_versioning::Selection;

use super::Loader;
use crate::{
    Error, Result,
    engine::JobColumn,
    order::{Grain, Order, Shuffle},
};

/// What the memory budget allows.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Memory {
    /// What it leaves for fetched bytes.
    pub(super) arena_bytes: u64,
    /// The rows of a run that is fetched at once, if everything that this rank fetches fits.
    pub(super) run_rows: Option<u64>,
}

/// What one ranged read fetches where neighbours needn't be used soon.
const RUN_BYTES: u64 = 4 << 20;

impl Loader {
    /// What the budget allows, or that it doesn't suffice.
    pub(super) fn check_budget(&self) -> Result<Memory> {
        let options = &self.options;
        let (mut row, mut window_bytes, mut most) = (0_u64, 0_u64, 0_u64);
        for source in 0..self.sources.len() as u32 {
            let RowBytes { delivered, fetched } = self.row_bytes(source);
            let rows = self.window_rows(source).min(self.rows());
            row = row.max(delivered);
            most = most.max(fetched);
            window_bytes = window_bytes.saturating_add(rows.saturating_mul(fetched));
        }
        let batch = (options.batch_size as u64).min(self.rows());
        let batches = (options.prefetch as u64).saturating_mul(batch).saturating_mul(row);
        let needed = batches.saturating_add(window_bytes).saturating_add(batch.saturating_mul(most));
        if needed > options.memory_budget {
            return Err(Error::Budget { budget: options.memory_budget, prefetch: options.prefetch, needed });
        }
        let arena_bytes = options.memory_budget - batches;
        // A quarter is left for what was fetched and isn't decoded yet. Runs are of rows that come once.
        let once = self.mix.is_none() && options.sampling.is_none();
        let fits = once && self.rows().saturating_mul(most) <= arena_bytes / 4 * 3;
        Ok(Memory { arena_bytes, run_rows: fits.then(|| (RUN_BYTES / most.max(1)).max(1)) })
    }

    /// The rows of a source's window that this rank holds.
    fn window_rows(&self, source: u32) -> u64 {
        let rows = self.unit_rows(source);
        match self.options.shuffle {
            Shuffle::Global => 0,
            Shuffle::Off if self.options.sampling.is_some() => 0,
            Shuffle::Off => rows,
            Shuffle::Buffer(buffer) => u64::from(buffer) + rows,
            Shuffle::Windowed(window) => {
                let lanes = u64::from(window.lanes);
                // The rows of a mixture's lanes are spread over all ranks.
                let own = if self.mix.is_some() { lanes } else { lanes / gcd(lanes, u64::from(self.options.world)) };
                own * u64::from(window.window) * rows
            }
        }
    }

    /// The rows of a unit of a source.
    fn unit_rows(&self, source: u32) -> u64 {
        let selection = self.sources.selection(source);
        Order::new(selection.len(), grain(selection), self.options.shuffle, 0, 0).unit_rows()
    }

    /// The mean bytes of a row of a source.
    fn row_bytes(&self, source: u32) -> RowBytes {
        let table = self.sources.selection(source).table();
        let local = table.storage().local().is_some();
        let (mut row, mut fetched, mut ragged, mut ragged_fetched) = (0_u64, 0_u64, false, false);
        for JobColumn { column, finish, .. } in &self.columns {
            let direct = column.compression.codec == forebay_format::Codec::None && !column.nullable;
            match column.layout() {
                Layout::Fixed { row_bytes } => {
                    row += finish.as_ref().map_or(row_bytes, |finish| finish.out_row_bytes()) as u64;
                    fetched += if local && direct { 0 } else { row_bytes as u64 };
                }
                Layout::Ragged { .. } => {
                    ragged_fetched = true;
                    match finish {
                        Some(finish) => row += finish.out_row_bytes() as u64,
                        None => ragged = true,
                    }
                }
            }
        }
        // The manifest knows no more of a column of free shape than the mean of whole rows.
        row += if ragged { table.mean_row_bytes() } else { 0 };
        fetched += if ragged_fetched { table.mean_row_bytes() } else { 0 };
        RowBytes { delivered: row, fetched }
    }
}

/// How fine the table of a selection is. Where rows were left out or are in another order than in the table, blocks begin anywhere.
pub(super) fn grain(selection: &Selection) -> Grain {
    let table = selection.table();
    let rows = table.schema().columns.iter().filter_map(|column| match column.layout() {
        Layout::Fixed { row_bytes } => Some(row_bytes as u64),
        Layout::Ragged { .. } => None,
    });
    // The columns that most bytes are in say how rows lie in blocks; of short ones a block holds thousands of rows.
    let (row_bytes, block) = (table.mean_row_bytes(), WriteOptions::default().block_bytes as u64);
    let largest = rows.max().filter(|largest| largest * 2 > row_bytes);
    Grain { row_bytes, block_rows: largest.map_or(1, |largest| (block / largest.max(1)).max(1)) }
}

/// The mean bytes of a row.
struct RowBytes {
    /// In a batch.
    delivered: u64,
    /// In memory before, if it isn't in a mapped file.
    fetched: u64,
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
