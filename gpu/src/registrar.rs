//! The mapped files that a device gathers from, registered once for all loaders.
#![allow(unsafe_code)]

use std::{
    any::Any,
    collections::{HashMap, HashSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread::JoinHandle,
};

use forebay_loader::device::MappedColumn;
use forebay_versioning::{OpenFile, Verify};

use crate::{
    Error, Result,
    engine::{CudaDevice, Region},
    fork,
};

/// The mapped files of a device. One that nobody else holds is let go of when the next one comes.
#[derive(Debug)]
pub(crate) struct Registrar {
    /// By the address of the map.
    files: Mutex<HashMap<usize, Mapped>>,
    /// Bytes that are still to be registered before the first row is gathered, rather than behind.
    at_once: Mutex<u64>,
    /// Lets the thread start; `None` once it did.
    gate: Mutex<Option<mpsc::Sender<()>>>,
    later: Option<mpsc::Sender<Region>>,
    thread: Option<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
}

#[derive(Debug)]
struct Mapped {
    region: Region,
    file: Arc<OpenFile>,
    /// Columns of which every row was found verified, by their place in the file.
    verified: HashSet<usize>,
}

impl Registrar {
    pub(crate) fn start(ordinal: u32, at_once: u64) -> Result<Self> {
        let (later, regions) = mpsc::channel::<Region>();
        let (open, gate) = mpsc::channel();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let work = move || {
            // Nobody opens it any more: the device goes.
            if gate.recv().is_err() {
                return;
            }
            for region in regions {
                // The one error is that of a forked child, which has no such thread.
                if stopped.load(Ordering::SeqCst) || region.register().is_err() {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name(format!("forebay-register-{ordinal}")).spawn(work);
        let thread = thread.map_err(|error| Error::Threads { reason: error.to_string() })?;
        let (files, at_once) = (Mutex::default(), Mutex::new(at_once));
        Ok(Self { files, at_once, gate: Mutex::new(Some(open)), later: Some(later), thread: Some(thread), stop })
    }

    /// From now on files are registered. Until then the driver, which does one thing at a time, is left to the first batches.
    pub(crate) fn open_gate(&self) {
        if let Some(open) = self.gate.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // The thread only ends once the device goes.
            let _ = open.send(());
        }
    }

    /// The region of a file's map.
    pub(crate) fn region(&self, device: &CudaDevice, file: &Arc<OpenFile>, map: &[u8]) -> Result<Region> {
        let mut files = self.files();
        if let Some(mapped) = files.get(&(map.as_ptr() as usize)) {
            return Ok(mapped.region.clone());
        }
        // Those whose only holders are the entry and its region.
        files.retain(|_, mapped| Arc::strong_count(&mapped.file) > 2);
        let owner: Arc<dyn Any + Send + Sync> = Arc::<OpenFile>::clone(file);
        // SAFETY: the map stays as long as the file that goes along, and data files never change.
        let region = unsafe { device.unregistered(map, owner) };
        let mut at_once = self.at_once.lock().unwrap_or_else(PoisonError::into_inner);
        match (at_once.checked_sub(map.len() as u64), &self.later) {
            (None, Some(later)) => {
                // The thread only ends once the sender is gone.
                let _ = later.send(region.clone());
            }
            (left, _) => {
                *at_once = left.unwrap_or(0);
                region.register()?;
            }
        }
        let mapped = Mapped { region: region.clone(), file: Arc::clone(file), verified: HashSet::new() };
        files.insert(map.as_ptr() as usize, mapped);
        Ok(region)
    }

    /// Whether no row of a column, whose file [`region`](Self::region) was asked for, is to be verified any more.
    pub(crate) fn is_verified(&self, column: &MappedColumn) -> bool {
        let MappedColumn { file, column, verify } = column;
        let Some(map) = file.map() else { return false };
        let mut files = self.files();
        let mapped = files.get_mut(&(map.as_slice().as_ptr() as usize));
        if *verify == Verify::First && mapped.as_ref().is_some_and(|mapped| mapped.verified.contains(column)) {
            return true;
        }
        let rows = file.index().columns().get(*column).map_or(0, |column| column.rows());
        let whole = file.is_verified(*column, 0..rows, *verify);
        if let (true, Verify::First, Some(mapped)) = (whole, verify, mapped) {
            mapped.verified.insert(*column);
        }
        whole
    }

    fn files(&self) -> MutexGuard<'_, HashMap<usize, Mapped>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Registrar {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        // The thread ends once nobody can send.
        *self.gate.get_mut().unwrap_or_else(PoisonError::into_inner) = None;
        self.later = None;
        // A forked child has no such thread to wait for.
        if let Some(thread) = self.thread.take()
            && fork::check().is_ok()
        {
            let _ = thread.join();
        }
    }
}
