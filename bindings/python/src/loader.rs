//! Epochs of batches.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use forebay_format::{Column, Dim};
use forebay_gpu::{CachingDevice, CudaLoaderDevice};
use forebay_loader::{
    Batch, BatchField, Device, HostDevice, LoaderOptions, Next, OnFault, Pixels, Verify,
    order::{Course, Sampling, Shuffle, Stop, Tail, Window},
};
use forebay_storage::Storage;
use forebay_versioning::Selection;
use pyo3::{prelude::*, types::PyDict};

use crate::{
    batch::{self, Delivered},
    error::{Error, Result},
    fork::Owned,
    gpu, report,
    rows::Rows,
    session::lock,
    transform::Transform,
    wait::{TICK, check_signals, detached},
};

/// Rows, an order and a batch size: what gives epochs of batches.
#[pyclass(frozen, module = "forebay._forebay")]
pub(crate) struct Loader {
    sources: Vec<Py<Rows>>,
    mix: Option<Mix>,
    options: LoaderOptions,
    copy_threads: usize,
    /// Where batches go; None for main memory.
    device: Option<DeviceOptions>,
    /// Whether each sample comes with a seed of its own.
    sample_seeds: bool,
    /// Whether each sample comes with its place in the selection.
    sample_index: bool,
    length: usize,
    state: Mutex<Owned<Arc<Open>>>,
}

/// How several sources are mixed.
#[derive(Clone)]
struct Mix {
    weights: Vec<f64>,
    stop: Stop,
}

/// A CUDA device as a loader uses it.
#[derive(Clone, Copy)]
struct DeviceOptions {
    ordinal: u32,
    /// Bytes of its memory that may keep rows between epochs.
    cache: Option<u64>,
    /// Whether the consumer copies each batch.
    copied: bool,
}

/// A loader's part of a CUDA device.
#[derive(Clone)]
struct Cuda {
    device: Arc<CudaLoaderDevice>,
    caching: Option<Arc<CachingDevice>>,
}

impl Cuda {
    fn open(options: DeviceOptions) -> Result<Self> {
        let device = CudaLoaderDevice::shared(options.ordinal)?;
        let caching = options.cache.map(|budget| CachingDevice::new(&device, budget, options.copied));
        Ok(Self { device, caching })
    }

    fn for_loader(&self) -> Arc<dyn Device> {
        match &self.caching {
            Some(caching) => caching.clone(),
            None => self.device.clone(),
        }
    }
}

/// What this process made.
struct Open {
    loader: forebay_loader::Loader,
    columns: Vec<Column>,
    starting: Mutex<()>,
    /// The CUDA device, for its counts.
    device: Option<Cuda>,
}

impl Loader {
    fn make(
        py: Python<'_>,
        sources: &[Py<Rows>],
        mix: Option<&Mix>,
        options: &LoaderOptions,
        copy_threads: usize,
        device: Option<DeviceOptions>,
    ) -> Result<Arc<Open>> {
        let selections: Vec<Selection> =
            sources.iter().map(|rows| Ok(rows.get().open(py)?.selection.clone())).collect::<Result<_>>()?;
        let first = selections.first().ok_or_else(|| Error::internal("a loader without rows"))?.clone();
        let options = options.clone();
        let (loader, device) = detached(py, || {
            let cuda = device.map(Cuda::open).transpose()?;
            let device: Arc<dyn Device> = match &cuda {
                Some(cuda) => cuda.for_loader(),
                None => HostDevice::new(copy_threads)?,
            };
            let loader = match mix {
                None => forebay_loader::Loader::new(first.clone(), options, device)?,
                Some(mix) => {
                    let sources = selections.into_iter().zip(mix.weights.iter().copied()).collect();
                    forebay_loader::Loader::mix(sources, mix.stop, options, device)?
                }
            };
            Ok((loader, cuda))
        })?;
        let columns = loader.columns().cloned().collect();
        Ok(Arc::new(Open { loader, columns, starting: Mutex::default(), device }))
    }

    /// The loader of this process; made anew in a forked child.
    fn open(&self, py: Python<'_>) -> Result<Arc<Open>> {
        if let Some(open) = lock(&self.state).get() {
            return Ok(open.clone());
        }
        let open = Self::make(py, &self.sources, self.mix.as_ref(), &self.options, self.copy_threads, self.device)?;
        *lock(&self.state) = Owned::new(open.clone());
        Ok(open)
    }
}

/// A mixture in plain types: weights, when it stops, and the rows of an epoch if that is "rows".
type PlainMix = (Vec<f64>, String, u64);

/// Draws in plain types: weights, whether rows come again, and the rows of an epoch.
type PlainSampling = (Vec<f64>, bool, Option<u64>);

/// A shuffle in plain types: its name, lanes (or the rows of a buffer), window and unit bytes.
type PlainShuffle = (String, u32, u32, u64);

/// A column of a batch in plain types: its name, dtype, shape (None is free) and whether it is decoded or transformed.
type PlainField = (String, &'static str, Vec<Option<u32>>, bool);

fn shuffle((name, lanes, window, unit_bytes): PlainShuffle) -> Result<Shuffle> {
    match name.as_str() {
        "off" => Ok(Shuffle::Off),
        "global" => Ok(Shuffle::Global),
        "buffer" => Ok(Shuffle::Buffer(lanes)),
        "windowed" => Ok(Shuffle::Windowed(Window { lanes, window, unit_bytes })),
        other => Err(Error::argument(format!("there is no shuffle '{other}'"))),
    }
}

fn stop(name: &str, rows: u64) -> Result<Stop> {
    match name {
        "first" => Ok(Stop::First),
        "last" => Ok(Stop::Last),
        "rows" => Ok(Stop::Rows(rows)),
        other => Err(Error::argument(format!("stop = '{other}': it is 'first' or 'last'"))),
    }
}

fn pixels(mode: &str) -> Result<Pixels> {
    match mode {
        "RGB" => Ok(Pixels::Rgb),
        "L" => Ok(Pixels::Grey),
        other => Err(Error::argument(format!("decode: '{other}': images are decoded to 'RGB' or 'L'"))),
    }
}

fn verify(name: &str) -> Result<Verify> {
    match name {
        "first" => Ok(Verify::First),
        "always" => Ok(Verify::Always),
        "never" => Ok(Verify::Never),
        other => Err(Error::argument(format!("verify = '{other}': it is 'first', 'always' or 'never'"))),
    }
}

fn on_fault(name: &str) -> Result<OnFault> {
    match name {
        "fail" => Ok(OnFault::Fail),
        "skip" => Ok(OnFault::Skip),
        "substitute" => Ok(OnFault::Substitute),
        other => Err(Error::argument(format!("on_fault = '{other}': it is 'fail', 'skip' or 'substitute'"))),
    }
}

fn tail(name: &str) -> Result<Tail> {
    match name {
        "drop" => Ok(Tail::Drop),
        "short" => Ok(Tail::Short),
        "pad" => Ok(Tail::Pad),
        other => Err(Error::argument(format!("there is no tail '{other}'"))),
    }
}

#[pymethods]
impl Loader {
    #[new]
    #[pyo3(signature = (sources, *, columns, batch_size, shuffle, seed, rank, world_size, tail, transforms, verify, on_fault, decode, shrink_on_load=true, mix=None, sampling=None, sample_seeds=false, sample_index=false, max_faults=None, max_fault_rate=None, stall_timeout=None, num_workers=None, prefetch_factor=None, memory_budget=None, host_cache=None, device=None, device_cache=None, copied=false, group_bytes=0))]
    #[allow(clippy::too_many_arguments, reason = "they are Python's keyword arguments")]
    fn new(
        py: Python<'_>,
        sources: Vec<Py<Rows>>,
        columns: Vec<String>,
        batch_size: usize,
        shuffle: PlainShuffle,
        seed: u64,
        rank: u32,
        world_size: u32,
        tail: &str,
        transforms: Vec<Transform>,
        verify: &str,
        on_fault: &str,
        decode: Vec<(String, String)>,
        shrink_on_load: bool,
        mix: Option<PlainMix>,
        sampling: Option<PlainSampling>,
        sample_seeds: bool,
        sample_index: bool,
        max_faults: Option<u64>,
        max_fault_rate: Option<f64>,
        stall_timeout: Option<f64>,
        num_workers: Option<usize>,
        prefetch_factor: Option<usize>,
        memory_budget: Option<u64>,
        host_cache: Option<u64>,
        device: Option<u32>,
        device_cache: Option<u64>,
        copied: bool,
        group_bytes: u64,
    ) -> Result<Self> {
        let mut options = LoaderOptions {
            columns: Some(columns),
            batch_size,
            shuffle: self::shuffle(shuffle)?,
            seed,
            rank,
            world: world_size,
            finishes: transforms.into_iter().map(Transform::into_finish).collect::<Result<_>>()?,
            tail: self::tail(tail)?,
            verify: self::verify(verify)?,
            decode: decode.into_iter().map(|(column, mode)| Ok((column, pixels(&mode)?))).collect::<Result<_>>()?,
            shrink_on_load,
            sampling: sampling.map(|(weights, replacement, rows)| Sampling {
                weights: weights.into(),
                replacement,
                rows,
            }),
            ..LoaderOptions::default()
        };
        options.faults.on_fault = self::on_fault(on_fault)?;
        options.faults.max_faults = max_faults.unwrap_or(options.faults.max_faults);
        options.faults.max_rate = max_fault_rate.unwrap_or(options.faults.max_rate);
        if let Some(seconds) = stall_timeout {
            options.stall_timeout = Duration::try_from_secs_f64(seconds)
                .map_err(|error| Error::argument(format!("stall_timeout = {seconds}: {error}")))?;
        }
        options.prefetch = prefetch_factor.unwrap_or(options.prefetch);
        options.memory_budget = memory_budget.unwrap_or(options.memory_budget);
        options.host_cache = host_cache.unwrap_or(0);
        options.group_bytes = group_bytes;
        let copy_threads = num_workers.unwrap_or(0);
        let mix = match mix {
            None => None,
            Some((weights, stop, rows)) => Some(Mix { weights, stop: self::stop(&stop, rows)? }),
        };
        let device = device.map(|ordinal| DeviceOptions { ordinal, cache: device_cache, copied });
        let open = Self::make(py, &sources, mix.as_ref(), &options, copy_threads, device)?;
        let length = open.loader.len() as usize;
        Ok(Self {
            sources,
            mix,
            options,
            copy_threads,
            device,
            sample_seeds,
            sample_index,
            length,
            state: Mutex::new(Owned::new(open)),
        })
    }

    /// What batches hold, column by column.
    fn schema(&self, py: Python<'_>) -> Result<Vec<PlainField>> {
        let open = self.open(py)?;
        let plain = |field: BatchField| {
            let length = |dim: &Dim| match dim {
                Dim::Fixed(length) => Some(*length),
                Dim::Free => None,
            };
            let made = |name: &str| self.options.finishes.contains_key(name) || self.options.decode.contains_key(name);
            let finished = made(&field.name);
            (field.name.to_string(), field.dtype.name(), field.shape.iter().map(length).collect(), finished)
        };
        Ok(open.loader.schema().into_iter().map(plain).collect())
    }

    fn __len__(&self) -> usize {
        self.length
    }

    /// The state in which so many samples of an epoch were delivered.
    fn state<'py>(&self, py: Python<'py>, epoch: u64, position: u64) -> Result<Bound<'py, PyDict>> {
        report::state(py, &self.open(py)?.loader.state(epoch, position))
    }

    /// The epoch and the position of a state, if it fits.
    fn check(&self, py: Python<'_>, state: report::PlainState) -> Result<(u64, u64)> {
        let open = self.open(py)?;
        let state = state.into();
        let _starting = lock(&open.starting);
        open.loader.resume(&state)?;
        open.loader.resume(&open.loader.state(0, 0))?;
        Ok((state.epoch, state.position))
    }

    /// The batches of an epoch, from a position on.
    #[pyo3(signature = (epoch, position=0))]
    fn iter(&self, py: Python<'_>, epoch: u64, position: u64) -> Result<Batches> {
        let open = self.open(py)?;
        let batches = detached(py, || {
            // Where to start is a property of the loader: two threads must not mix theirs.
            let _starting = lock(&open.starting);
            open.loader.resume(&open.loader.state(epoch, position))?;
            Ok(open.loader.iter()?)
        })?;
        let (columns, device) = (open.columns.clone(), open.device.clone());
        let seeds = self.sample_seeds.then(|| open.loader.order(epoch));
        let places = self.sample_index.then(|| open.loader.order(epoch));
        let storages = open.loader.storages();
        Ok(Batches { columns, device, storages, seeds, places, inner: Owned::new(Mutex::new(Some(batches))) })
    }
}

/// The last counts of an epoch, and its faults.
type Last<'py> = (Bound<'py, PyDict>, Vec<Bound<'py, PyDict>>);

/// Columns, and what was delivered, as [`Batches`] gives them.
type Taken<'py> = (Vec<Delivered<'py>>, Vec<(u64, u64)>);

/// One pass over an epoch.
#[pyclass(frozen, module = "forebay._forebay")]
pub(crate) struct Batches {
    columns: Vec<Column>,
    device: Option<Cuda>,
    /// Where the rows are, for their counts.
    storages: Vec<Storage>,
    /// Where the seeds of samples come from, if they are delivered.
    seeds: Option<Course>,
    /// Where the places of samples come from, if they are delivered.
    places: Option<Course>,
    /// None once closed.
    inner: Owned<Mutex<Option<forebay_loader::Batches>>>,
}

impl Batches {
    fn inner(&self) -> Result<&Mutex<Option<forebay_loader::Batches>>> {
        self.inner.get().ok_or_else(|| forebay_loader::Error::Forked.into())
    }
}

#[pymethods]
impl Batches {
    /// Waits for the next batch, or several side by side; None when there are no more. Beside the columns comes, for each batch, the
    /// epoch and the samples of it that are delivered with it, on all ranks together.
    fn next<'py>(&self, py: Python<'py>) -> Result<Option<Taken<'py>>> {
        let inner = self.inner()?;
        let next = detached(py, || {
            loop {
                // The lock is let go of between two waits, so that other threads get their turn.
                if let Some(batches) = lock(inner).as_mut() {
                    match batches.next_within(TICK)? {
                        Next::Batch(batch) => {
                            let progress = (0..batch.count).rev().map(|left| batches.progress_before(left)).collect();
                            return Ok(Some((batch, progress)));
                        }
                        Next::End => return Ok(None),
                        Next::Pending => {}
                    }
                } else {
                    return Ok(None);
                }
                check_signals()?;
            }
        })?;
        let taken = |(batch, progress): (Batch, Vec<(u64, u64)>)| -> Result<Taken<'py>> {
            let columns = batch::of_loader(py, batch, &self.columns, self.seeds.as_ref(), self.places.as_ref())?;
            Ok((columns, progress))
        };
        next.map(taken).transpose()
    }

    /// Stops the epoch and waits for its threads, without the GIL. Gives the last counts and the faults; None in a forked child, which
    /// has no part in the epoch.
    fn close<'py>(&self, py: Python<'py>) -> Result<Option<Last<'py>>> {
        let Ok(inner) = self.inner() else { return Ok(None) };
        let last = detached(py, || {
            let batches = lock(inner).take();
            Ok(batches.map(|batches| (batches.stats(), batches.faults())))
        })?;
        last.map(|(stats, faults)| Ok((self.to_dict(py, stats)?, report::faults(py, &faults)?))).transpose()
    }

    /// The rows that were at fault so far; none once closed.
    fn faults<'py>(&self, py: Python<'py>) -> Result<Vec<Bound<'py, PyDict>>> {
        let inner = self.inner()?;
        let faults = detached(py, || Ok(lock(inner).as_ref().map(forebay_loader::Batches::faults)))?;
        report::faults(py, &faults.unwrap_or_default())
    }

    /// Counts of this epoch so far; empty once closed.
    fn stats<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyDict>> {
        let inner = self.inner()?;
        let stats = detached(py, || Ok(lock(inner).as_ref().map(forebay_loader::Batches::stats)))?;
        stats.map_or_else(|| Ok(PyDict::new(py)), |stats| self.to_dict(py, stats))
    }
}

impl Batches {
    fn to_dict<'py>(&self, py: Python<'py>, stats: forebay_loader::Stats) -> Result<Bound<'py, PyDict>> {
        let dict = report::stats(py, stats)?;
        dict.set_item("storage", report::storages(py, &self.storages)?)?;
        if let Some(cuda) = &self.device {
            let cache = cuda.caching.as_ref().map(|caching| caching.cache_stats());
            dict.set_item("device", gpu::stats(py, &cuda.device.stats(), cache.as_ref())?)?;
        }
        Ok(dict)
    }
}
