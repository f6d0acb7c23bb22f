//! What stands for a device where this crate knows no CUDA: types that have no values, so that callers compile everywhere.

use std::sync::Arc;

use forebay_loader::{
    Result as LoaderResult,
    device::{ArenaBuffer, Device, GatherPlan, Gathered},
};

use crate::{Error, Missing, Result, Stats};

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

/// A part of a batch in device memory. There is none on this system.
#[derive(Debug)]
pub enum DeviceBuffer {}

impl DeviceBuffer {
    /// Its address on the device.
    #[must_use]
    pub fn address(&self) -> u64 {
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
