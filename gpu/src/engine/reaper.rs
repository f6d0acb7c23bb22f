//! Lets go of what batches read as soon as they are there.

use std::{
    any::Any,
    sync::{Arc, mpsc},
    thread::JoinHandle,
};

use super::region::Region;
use crate::{Error, Result, cuda::Event, fork};

/// What a batch reads: it stays until the batch is there.
pub(super) struct Reading {
    /// Where its rows are.
    pub(super) regions: Vec<Region>,
    /// What the caller wants kept.
    pub(super) kept: Box<dyn Any + Send>,
}

/// A thread that waits for batches, in order. Memory is unregistered and budgets are relieved by it, not only when the next
/// batch comes.
#[derive(Debug)]
pub(super) struct Reaper {
    // In this order on drop: the thread ends once nobody can send.
    batches: Option<mpsc::Sender<(Arc<Event>, Reading)>>,
    thread: Option<JoinHandle<()>>,
}

impl Reaper {
    pub(super) fn start(ordinal: u32) -> Result<Self> {
        let (batches, waiting) = mpsc::channel::<(Arc<Event>, Reading)>();
        let work = move || {
            for (there, reading) in waiting {
                // A failed device is the next call's error; here it means that nothing reads any more.
                let _ = there.wait();
                drop(reading.regions);
                drop(reading.kept);
            }
        };
        let thread = std::thread::Builder::new().name(format!("forebay-cuda-{ordinal}")).spawn(work);
        let thread = thread.map_err(|error| Error::Threads { reason: error.to_string() })?;
        Ok(Self { batches: Some(batches), thread: Some(thread) })
    }

    /// Keeps `reading` until `there` is reached.
    pub(super) fn keep(&self, there: &Arc<Event>, reading: Reading) {
        if let Some(batches) = &self.batches {
            // The thread only ends once the sender is gone.
            let _ = batches.send((Arc::clone(there), reading));
        }
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        self.batches = None;
        // A forked child has no such thread to wait for.
        if let Some(thread) = self.thread.take()
            && fork::check().is_ok()
        {
            let _ = thread.join();
        }
    }
}
