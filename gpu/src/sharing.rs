//! The devices that the loaders of a process share.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use crate::{CudaLoaderDevice, Error, engine::Options, fork};

/// What loaders of this process share.
#[derive(Debug, Default)]
struct Shared {
    devices: BTreeMap<u32, Weak<CudaLoaderDevice>>,
    /// How devices that nobody has yet will be opened.
    options: Option<Options>,
}

fn shared() -> MutexGuard<'static, Shared> {
    static SHARED: Mutex<Shared> = Mutex::new(Shared { devices: BTreeMap::new(), options: None });
    SHARED.lock().unwrap_or_else(PoisonError::into_inner)
}

impl CudaLoaderDevice {
    /// Device `ordinal` as this process's loaders share it: files are registered once for all of them. It is opened if
    /// nobody has it, and closed when the last lets go of it.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn shared(ordinal: u32) -> Result<Arc<Self>, Error> {
        // A child has its parent's devices in memory, and can't use them.
        fork::check()?;
        let mut shared = shared();
        if let Some(device) = shared.devices.get(&ordinal).and_then(Weak::upgrade) {
            return Ok(device);
        }
        let device = Self::open(ordinal, shared.options.clone().unwrap_or_default())?;
        shared.devices.insert(ordinal, Arc::downgrade(&device));
        Ok(device)
    }

    /// Says how many bytes the devices that [`shared`](Self::shared) opens from now on may register of host memory, and take
    /// of their own for batches; `None` leaves a number as it is. Gives both.
    pub fn configure(registered_bytes: Option<u64>, device_bytes: Option<u64>) -> (u64, u64) {
        let mut shared = shared();
        let options = shared.options.get_or_insert_with(Options::default);
        options.registered_bytes = registered_bytes.unwrap_or(options.registered_bytes);
        options.device_bytes = device_bytes.unwrap_or(options.device_bytes);
        (options.registered_bytes, options.device_bytes)
    }
}
