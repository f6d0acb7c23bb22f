//! The mapped files that a device gathers from, registered once for all loaders.
#![allow(unsafe_code)]

use std::{
    any::Any,
    collections::HashMap,
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
    /// What is known of its columns, by their place in the file.
    columns: HashMap<usize, Known>,
}

/// What is known of a column of a mapped file.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) region: Region,
    pub(crate) rows: Arc<RowMap>,
    /// Whether no row of it is to be verified any more.
    pub(crate) verified: bool,
}

/// Where the rows of a column of a mapped file start.
#[derive(Debug)]
pub(crate) struct RowMap {
    row_bytes: u64,
    rows: u32,
    /// The first row of each chunk, and where it starts.
    firsts: Vec<u32>,
    starts: Vec<u64>,
    /// The rows of a chunk, if all but the last have as many.
    each: Option<u32>,
}

impl RowMap {
    /// `None` if rows of the column have no place in the map.
    fn new(column: &MappedColumn) -> Option<Self> {
        let index = column.file.index().columns().get(column.column)?;
        let row_bytes = index.direct()? as u64;
        let (firsts, starts): (Vec<u32>, _) =
            index.chunks().iter().map(|chunk| (chunk.first_row, chunk.offset)).unzip();
        let each = firsts.get(1).copied().unwrap_or_else(|| index.rows()).max(1);
        let even = firsts.iter().enumerate().all(|(chunk, first)| u64::from(*first) == chunk as u64 * u64::from(each));
        Some(Self { row_bytes, rows: index.rows(), firsts, starts, each: even.then_some(each) })
    }

    /// The first byte of a row in the file, if it has that row.
    pub(crate) fn start(&self, row: u64) -> Option<u64> {
        let row = u32::try_from(row).ok().filter(|row| *row < self.rows)?;
        let chunk = match self.each {
            // Where the last chunk is the longer one, rows behind its first are its own.
            Some(each) => ((row / each) as usize).min(self.firsts.len() - 1),
            None => self.firsts.partition_point(|first| *first <= row).checked_sub(1)?,
        };
        Some(self.starts[chunk] + u64::from(row - self.firsts[chunk]) * self.row_bytes)
    }
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

    /// What is known of these columns, in order; `None` for one that isn't addressable in a map.
    pub(crate) fn columns<'a>(
        &self,
        device: &CudaDevice,
        columns: impl Iterator<Item = &'a MappedColumn>,
    ) -> Result<Vec<Option<Known>>> {
        let mut files = self.files();
        columns.map(|column| self.known(device, &mut files, column)).collect()
    }

    fn known(
        &self,
        device: &CudaDevice,
        files: &mut HashMap<usize, Mapped>,
        column: &MappedColumn,
    ) -> Result<Option<Known>> {
        let Some(map) = column.file.map().map(|map| map.as_slice()) else { return Ok(None) };
        let name = map.as_ptr() as usize;
        if !files.contains_key(&name) {
            let region = self.region(device, files, &column.file, map)?;
            files.insert(name, Mapped { region, file: Arc::clone(&column.file), columns: HashMap::new() });
        }
        let Some(mapped) = files.get_mut(&name) else { return Ok(None) };
        if !mapped.columns.contains_key(&column.column) {
            let Some(rows) = RowMap::new(column) else { return Ok(None) };
            let known = Known { region: mapped.region.clone(), rows: Arc::new(rows), verified: false };
            mapped.columns.insert(column.column, known);
        }
        let Some(known) = mapped.columns.get_mut(&column.column) else { return Ok(None) };
        if column.verify != Verify::First {
            return Ok(Some(Known { verified: column.verify == Verify::Never, ..known.clone() }));
        }
        // To look at all of its blocks costs more than all else here, so it is remembered.
        known.verified = known.verified || column.file.is_verified(column.column, 0..known.rows.rows, column.verify);
        Ok(Some(known.clone()))
    }

    /// A region for the map of a file that has none.
    fn region(
        &self,
        device: &CudaDevice,
        files: &mut HashMap<usize, Mapped>,
        file: &Arc<OpenFile>,
        map: &[u8],
    ) -> Result<Region> {
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
        Ok(region)
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
