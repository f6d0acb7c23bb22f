//! Batches on a device: where a batch's rows are goes in, device memory that holds them comes out.
#![allow(unsafe_code)]

mod arena;
mod budget;
mod buffer;
mod cache;
mod counters;
mod output;
mod pack;
mod plan;
mod rate;
mod reaper;
mod region;
mod route;
mod slot;

use std::{
    any::Any,
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

use arena::Arenas;
use budget::Budget;
use buffer::InCache;
use counters::Counters;
use output::{Outputs, Unfilled};
use plan::{Layout, Part};
use reaper::{Reading, Reaper};
use slot::{Slot, Streams};

pub(crate) use arena::Arena;
pub use buffer::DeviceBuffer;
pub use cache::{DeviceCache, RowKey};
pub use plan::{Cached, Column, Finishing, Place, Rows, SMALL};
pub use region::Region;

use crate::{
    LIBRARY, Result, Route, Stats,
    cuda::{BatchCopier, Context, Event, FinishLaunch, GatherLaunch, Kernels, upload},
    headroom,
};

/// How a device is used.
#[derive(Clone, Debug)]
pub struct Options {
    /// The driver's library. The first that a process loads is the one that it keeps.
    pub library: PathBuf,
    /// Bytes of host memory that may be registered or pinned: by default three quarters of what the machine and the process's
    /// control groups have, up to 64 GiB.
    pub registered_bytes: u64,
    /// Mapped files are registered when their first row is asked for until they are this many bytes; the rest follows on a
    /// thread of its own, so that the first batch doesn't wait for it.
    pub at_once_bytes: u64,
    /// Bytes of device memory that batches, those handed out included, may take.
    pub device_bytes: u64,
    /// Batches that may be under way at once.
    pub slots: usize,
    /// Threads that copy rows whose memory couldn't be registered.
    pub threads: usize,
    /// Blocks of the gather kernel for each multiprocessor, 1 to 8. One is enough for the link's rate on an H100; fewer leave
    /// more of the device to others.
    pub resident: u32,
    /// Uses only this route, where it can bring a column at all. For measurements.
    pub route: Option<Route>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            library: PathBuf::from(LIBRARY),
            registered_bytes: headroom::pinnable().min(64 << 30),
            at_once_bytes: 1 << 30,
            device_bytes: 8 << 30,
            slots: 4,
            threads: std::thread::available_parallelism().map_or(1, usize::from).min(16),
            resident: 2,
            route: None,
        }
    }
}

/// A device that gathers batches. Dropping it waits for what is under way.
#[derive(Debug)]
pub struct CudaDevice {
    // In this order: what waits goes first, and the ring and the streams before what they use.
    reaper: Reaper,
    ring: Ring,
    /// Work is asked of the streams a batch at a time.
    submitting: Mutex<()>,
    streams: Streams,
    kernels: Arc<Kernels>,
    copier: Option<BatchCopier>,
    outputs: Arc<Outputs>,
    arenas: Arc<Arenas>,
    registered: Arc<Budget>,
    device: Arc<Budget>,
    counters: Counters,
    options: Options,
    context: Arc<Context>,
}

#[derive(Debug)]
struct Ring {
    slots: Vec<Mutex<Slot>>,
    next: AtomicUsize,
}

/// A gathered batch.
#[derive(Debug)]
pub struct Gathered {
    /// The columns, in order of the request.
    pub columns: Vec<DeviceBuffer>,
    /// The caller's own bytes, in order of the request.
    pub extras: Vec<DeviceBuffer>,
}

impl CudaDevice {
    /// Opens device `ordinal`, in the primary context that it shares with the process's frameworks.
    ///
    /// # Errors
    /// [`Error::Missing`](crate::Error::Missing) if there is no such device or no driver, or this is a forked child of a
    /// process that initialised CUDA; [`Error::Call`](crate::Error::Call).
    pub fn open(ordinal: u32, options: Options) -> Result<Self> {
        let context = Context::open(&options.library, ordinal)?;
        let registered = Budget::new("registered", options.registered_bytes);
        let device = Budget::new("device", options.device_bytes);
        let slots = (0..options.slots.max(1)).map(|_| Mutex::default()).collect();
        Ok(Self {
            reaper: Reaper::start(ordinal)?,
            ring: Ring { slots, next: AtomicUsize::new(0) },
            submitting: Mutex::default(),
            streams: Streams::new(&context)?,
            kernels: Arc::new(Kernels::load(&context, options.resident)?),
            copier: BatchCopier::new(&context),
            outputs: Outputs::new(&context, &device),
            arenas: Arenas::new(&context, &registered),
            registered,
            device,
            counters: Counters::default(),
            options,
            context,
        })
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.context.name()
    }

    /// Its ordinal.
    #[must_use]
    pub fn ordinal(&self) -> u32 {
        self.context.ordinal()
    }

    /// Batches that may be under way at once.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.options.slots.max(1)
    }

    /// Threads that copy rows whose memory couldn't be registered.
    pub(crate) fn threads(&self) -> usize {
        self.options.threads.max(1)
    }

    /// Makes `memory` one that rows can be gathered from: registers it, if the driver and the budget allow that.
    ///
    /// # Safety
    /// `memory` stays mapped, readable and unchanged while `owner` lives. A file that is cut off below the mapping ends
    /// the process, as for any reader of a mapping.
    ///
    /// # Errors
    /// [`Error::Missing`](crate::Error::Missing) in a forked child. A refusal is no error: see [`Region::refused`].
    pub unsafe fn region(&self, memory: &[u8], owner: Arc<dyn Any + Send + Sync>) -> Result<Region> {
        // SAFETY: the caller's promise.
        let region = unsafe { self.unregistered(memory, owner) };
        region.register()?;
        Ok(region)
    }

    /// Memory that rows can be gathered from, by way of the CPU until [`Region::register`] was called.
    ///
    /// # Safety
    /// As for [`region`](Self::region).
    pub unsafe fn unregistered(&self, memory: &[u8], owner: Arc<dyn Any + Send + Sync>) -> Region {
        // SAFETY: the caller's promise.
        unsafe { Region::new(&self.context, &self.registered, memory, owner) }
    }

    /// Asks for a batch: `columns`, and beside them small bytes of the caller's own. `kept`, like the columns' regions, is
    /// dropped once the batch is there and nothing reads from it any more. The call returns while the rows are on
    /// their way, unless as many batches as there are slots are; then it waits for the oldest.
    ///
    /// # Errors
    /// [`Error::Budget`](crate::Error::Budget) if the consumer holds so many batches that no memory is left for this one;
    /// [`Error::OutOfBounds`](crate::Error::OutOfBounds) and [`Error::Finish`](crate::Error::Finish) for a plan that doesn't
    /// fit; [`Error::Call`](crate::Error::Call). Nothing is under way after an error.
    pub fn gather(&self, columns: &[Column<'_>], extras: &[&[u8]], kept: Box<dyn Any + Send>) -> Result<Gathered> {
        let _entered = self.context.enter()?;
        let started = Instant::now();
        let layout = plan::lay_out(columns, extras, self.copier.is_some(), self.options.route)?;
        let next = self.ring.next.fetch_add(1, Ordering::Relaxed) % self.ring.slots.len();
        let mut slot = self.ring.slots[next].lock().unwrap_or_else(PoisonError::into_inner);
        let slot = &mut *slot;
        let waiting = Instant::now();
        slot.prepare(&self.context, &self.registered, &self.device, &layout)?;
        let waited = waiting.elapsed();
        if let Some((pinned, _)) = &mut slot.pinned {
            let address = pinned.device_address();
            pack::fill(columns, extras, &layout, pinned.bytes(), address, self.options.threads);
        }
        let submitting = self.submitting.lock().unwrap_or_else(PoisonError::into_inner);
        let gathered = self.submit(columns, &layout, slot);
        match &gathered {
            Ok((_, there)) => {
                slot.done = Some(Arc::clone(there));
                self.reaper.keep(there, Reading { regions: regions(columns), kept });
            }
            // What was asked before the error may still read the slot and write memory that goes back to its pool.
            Err(_) => self.streams.synchronize()?,
        }
        drop(submitting);
        let busy = started.elapsed().saturating_sub(waited);
        self.counters.batch(columns.iter().zip(&layout.parts), waited, busy);
        gathered.map(|(gathered, _)| gathered)
    }

    /// Asks the streams for a batch; the event is reached when it is there.
    fn submit(&self, columns: &[Column<'_>], layout: &Layout, slot: &Slot) -> Result<(Gathered, Arc<Event>)> {
        let Streams { upload: uploads, link, finish, .. } = &self.streams;
        let (uploads, link, finish) = (uploads.handle(), link.handle(), finish.handle());
        let mut outputs = Vec::with_capacity(columns.len());
        for (column, part) in columns.iter().zip(&layout.parts) {
            let writer = match (&column.finishing, part.uploaded()) {
                (Some(_), _) => finish,
                (None, true) => uploads,
                (None, false) => link,
            };
            let bytes = if part.deferred { part.addresses.len() } else { column.delivered() as usize };
            outputs.push(self.outputs.take(bytes, writer)?);
        }
        if let Some((pinned, _)) = &slot.pinned {
            // SAFETY: the slot's pinned memory and plan stay as they are until its `done` event is reached, which
            // `prepare` waits for; the plan is at least `layout.plan` bytes long.
            unsafe { upload(&self.context, slot.plan_address(), pinned, 0, layout.plan, uploads)? };
        }
        let target = |index: usize| match columns[index].finishing {
            Some(_) => slot.staging_address() + layout.parts[index].staged.start as u64,
            None => outputs[index].address(),
        };
        for (index, part) in layout.parts.iter().enumerate() {
            let packed = if part.deferred { &part.addresses } else { &part.packed };
            if part.uploaded() {
                self.upload_packed(slot, packed.start, packed.len(), target(index))?;
            }
        }
        let mut extras = Vec::with_capacity(layout.extras.len());
        for range in &layout.extras {
            let output = self.outputs.take(range.len(), uploads)?;
            self.upload_packed(slot, range.start, range.len(), output.address())?;
            extras.push(output);
        }
        self.streams.start_link()?;
        for (index, column) in columns.iter().enumerate() {
            let (part, to) = (&layout.parts[index], target(index));
            if !part.uploaded() {
                self.bring(column, index, part, slot, to)?;
            }
            if let (Some(cached), Rows::Fixed { bytes }) = (&column.cached, column.rows)
                && part.route != Route::Cached
            {
                // SAFETY: the rows were just asked of this stream, side by side, and stay until the batch is there.
                unsafe { cached.cache.keep(cached.keys, cached.found, bytes, to, link)? };
            }
        }
        self.streams.hand_over()?;
        for ((column, part), output) in columns.iter().zip(&layout.parts).zip(&outputs) {
            self.finish(column, part, slot, output)?;
        }
        let ready = Arc::new(Event::new(&self.context)?);
        ready.record(finish)?;
        let fill = |(output, (column, part)): (Unfilled, (&Column<'_>, &Part))| match (column.cached, column.rows) {
            (Some(cached), Rows::Fixed { bytes }) if part.deferred => {
                let (kernels, cache) = (Arc::clone(&self.kernels), Arc::clone(cached.cache));
                let rows = InCache { row_bytes: bytes, count: column.places.len() as u32, kernels, _cache: cache };
                output.fill_with_addresses(&ready, rows)
            }
            _ => output.fill(&ready),
        };
        let outputs = outputs.into_iter().zip(columns.iter().zip(&layout.parts)).map(fill).collect();
        let extras = extras.into_iter().map(|output| output.fill(&ready)).collect();
        Ok((Gathered { columns: outputs, extras }, ready))
    }

    /// Asks the link's stream for the rows of a column, to device memory at `to`.
    fn bring(&self, column: &Column<'_>, index: usize, part: &Part, slot: &Slot, to: u64) -> Result<()> {
        let link = self.streams.link.handle();
        let count = column.places.len() as u32;
        match (part.route, &self.copier) {
            (Route::BatchCopy, Some(copier)) => {
                let pinned = slot.pinned.as_ref().map_or(0, |(pinned, _)| pinned.device_address());
                let pieces = pack::pieces(column, index, part, pinned, to)?;
                // SAFETY: `lay_out` checked that every row is inside its region, which the slot keeps until the copies
                // are done, as it does its pinned memory; the output is as long as the rows together, and theirs alone.
                unsafe { copier.copy(&pieces.to, &pieces.from, &pieces.bytes, link) }
            }
            _ => {
                let rows = slot.plan_address() + part.addresses.start as u64;
                let launch = match column.rows {
                    Rows::Fixed { bytes } => GatherLaunch::fixed(rows, count, bytes as u64, to),
                    Rows::Ragged { .. } => {
                        let offsets = slot.plan_address() + part.offsets.start as u64;
                        GatherLaunch::ragged(rows, offsets, count, column.longest(), to)
                    }
                };
                // SAFETY: as above; the arrays are in the slot's plan.
                unsafe {
                    match part.route {
                        Route::Cached => self.kernels.gather_on_device(launch, link),
                        _ => self.kernels.gather(launch, link),
                    }
                }
            }
        }
    }

    fn upload_packed(&self, slot: &Slot, offset: usize, length: usize, to: u64) -> Result<()> {
        let Some((pinned, _)) = &slot.pinned else { return Ok(()) };
        // SAFETY: the slot's pinned memory stays as it is until the batch is there; the output is `length` bytes long.
        unsafe { upload(&self.context, to, pinned, offset, length, self.streams.upload.handle()) }
    }

    fn finish(&self, column: &Column<'_>, part: &Part, slot: &Slot, output: &Unfilled) -> Result<()> {
        let Some(finishing) = &column.finishing else { return Ok(()) };
        let rows = slot.staging_address() + part.staged.start as u64;
        let windows = slot.plan_address() + part.windows.start as u64;
        let (bytes, count) = (column.bytes(), column.places.len() as u32);
        let launch = FinishLaunch::new(finishing.prepared, rows, bytes, count, windows, output.address());
        // SAFETY: the rows are in the slot's staging memory once the link's stream is done, behind which this stream was
        // put; the windows lie inside the images and these inside the rows, as `lay_out` checked; the output is as long as the results.
        unsafe { self.kernels.finish(launch, self.streams.finish.handle()) }
    }

    /// Memory to be filled and then gathered from.
    pub(crate) fn arena(&self, bytes: usize) -> Result<Arena> {
        self.arenas.take(bytes)
    }

    /// A cache for rows of this device, of at most `budget` bytes. They come on top of the device's own budget.
    #[must_use]
    pub fn cache(&self, budget: u64) -> Arc<DeviceCache> {
        DeviceCache::new(&self.context, budget)
    }

    /// Waits for everything that was asked of the device by this value.
    ///
    /// # Errors
    /// [`Error::Call`](crate::Error::Call).
    pub fn synchronize(&self) -> Result<()> {
        self.streams.synchronize()
    }

    /// Frees device memory that no batch is in.
    pub fn trim(&self) {
        self.outputs.trim();
    }

    /// What it did so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let mut stats = self.counters.snapshot();
        stats.registered = self.registered.used();
        stats.device = self.device.used();
        stats.batch_copy = self.copier.as_ref().map(BatchCopier::name);
        stats
    }
}

impl Drop for CudaDevice {
    fn drop(&mut self) {
        // Regions may end with the ring: nothing may still read them. Streams of a forked child are left alone.
        let _ = self.streams.synchronize();
    }
}

/// The regions of a batch.
fn regions(columns: &[Column<'_>]) -> Vec<Region> {
    columns.iter().flat_map(|column| column.regions).cloned().collect()
}
