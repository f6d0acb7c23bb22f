//! What stands for a device where this crate knows no CUDA: types that have no values, so that callers compile everywhere.

use std::sync::Arc;

use forebay_loader::{
    Result as LoaderResult,
    device::{ArenaBuffer, Device, GatherPlan, Gathered},
};

use crate::{CacheStats, Error, Missing, Result, Stats};

/// A device that gathers for loaders. There is none on this system.
#[derive(Debug)]
pub enum CudaLoaderDevice {}

impl CudaLoaderDevice {
    /// Refuses.
    ///
    /// # Errors
    /// [`Missing::System`].
    pub fn shared(_ordinal: u32) -> Result<Arc<Self>> {
        Err(Error::Missing(Missing::System))
    }

    /// Nothing is kept of it: no device is ever opened.
    pub fn configure(registered_bytes: Option<u64>, device_bytes: Option<u64>) -> (u64, u64) {
        (registered_bytes.unwrap_or(0), device_bytes.unwrap_or(0))
    }

    /// What it did so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        match *self {}
    }
}

impl Device for CudaLoaderDevice {
    fn name(&self) -> String {
        match *self {}
    }

    fn gather(&self, _plan: GatherPlan) -> LoaderResult<Vec<Gathered>> {
        match *self {}
    }

    fn arena(&self, _bytes: usize) -> LoaderResult<Box<dyn ArenaBuffer>> {
        match *self {}
    }
}

/// A device with a cache. There is none on this system.
#[derive(Debug)]
pub enum CachingDevice {}

impl CachingDevice {
    /// It can't be called.
    #[must_use]
    pub fn new(device: &Arc<CudaLoaderDevice>, _budget: u64, _deferred: bool) -> Arc<Self> {
        match **device {}
    }

    /// What the cache holds and did.
    #[must_use]
    pub fn cache_stats(&self) -> CacheStats {
        match *self {}
    }
}

impl Device for CachingDevice {
    fn name(&self) -> String {
        match *self {}
    }

    fn gather(&self, _plan: GatherPlan) -> LoaderResult<Vec<Gathered>> {
        match *self {}
    }

    fn arena(&self, _bytes: usize) -> LoaderResult<Box<dyn ArenaBuffer>> {
        match *self {}
    }
}

/// A part of a batch in device memory. There is none on this system.
#[derive(Debug)]
pub enum DeviceBuffer {}

impl DeviceBuffer {
    /// Its address on the device.
    #[must_use]
    pub fn address(&self) -> Option<u64> {
        match *self {}
    }

    /// Bytes of it.
    #[must_use]
    pub fn len(&self) -> usize {
        match *self {}
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        match *self {}
    }

    /// The device, by its ordinal.
    #[must_use]
    pub fn device(&self) -> u32 {
        match *self {}
    }

    /// Asks a stream for copies.
    ///
    /// # Safety
    /// It can't be called with any buffer.
    ///
    /// # Errors
    /// None.
    #[allow(unsafe_code, reason = "the signature is that of the other systems'")]
    pub unsafe fn copy_all(_buffers: &[(&Self, std::ops::Range<usize>, u64)], _stream: usize) -> Result<()> {
        Ok(())
    }

    /// Makes a stream wait until the bytes are there.
    ///
    /// # Safety
    /// It can't be called.
    ///
    /// # Errors
    /// None.
    #[allow(unsafe_code, reason = "the signature is that of the other systems'")]
    pub unsafe fn order(&self, _stream: usize) -> Result<()> {
        match *self {}
    }
}

impl forebay_loader::device::DeviceBuffer for DeviceBuffer {
    fn len(&self) -> usize {
        match *self {}
    }
}
