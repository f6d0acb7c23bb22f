//! Tells caches on disk what this epoch and the next one will read, so that they keep what is read soonest.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use forebay_storage::Storage;
use tokio::runtime::Handle;

use super::{
    Job, Shared,
    feeder::{Feeder, Foreseen},
};

/// Nothing is foreseen of epochs with more rows on this rank: it takes about 100 bytes of memory for each read.
pub(crate) const MOST_ROWS: u64 = 4 << 20;

/// How long to wait before looking again whether the first batch was taken.
const TICK: Duration = Duration::from_millis(50);

/// Foresees the reads of both epochs once the first batch was taken, and announces them.
pub(crate) fn announce(now: &Arc<Job>, next: &Arc<Job>, shared: &Arc<Shared>, runtime: &Handle) {
    while shared.counters.batches.load(Ordering::Relaxed) == 0 {
        let seen = shared.signal.now();
        if shared.is_cancelled() {
            return;
        }
        shared.signal.wait(seen, TICK);
    }
    let mut reads = Vec::new();
    for job in [now, next] {
        match Feeder::new(job.clone(), shared.clone(), runtime.clone()).foresee() {
            Ok(Some(foreseen)) => reads.extend(foreseen),
            Ok(None) => return,
            Err(error) => {
                // The epoch itself will say so where it matters.
                tracing::debug!(%error, "what will be read can't be foreseen");
                return;
            }
        }
    }
    let mut storages: Vec<&Storage> = Vec::new();
    for Foreseen { storage, .. } in &reads {
        if storage.foresees() && !storages.iter().any(|known| known.url() == storage.url()) {
            storages.push(storage);
        }
    }
    for storage in storages {
        let here = reads.iter().filter(|read| read.storage.url() == storage.url());
        storage.foresee(here.map(|read| (read.file.path(), read.range.clone())));
    }
}
