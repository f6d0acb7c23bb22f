//! Batches in device memory: CUDA found at run time, rows gathered by the GPU from host memory, finished by kernels.
//!
//! Nothing here is linked against CUDA. [`discover`] and [`CudaDevice::open`] open the driver's library when they are
//! called, so one build imports and runs everywhere, and a machine without a driver gets a [`Report`] or an error that says
//! what is missing instead of a crash.
//!
//! Two rules that CUDA sets and this crate keeps:
//! - **CUDA is never initialised as a side effect** of loading this code; only a call to those two does it.
//! - **A process that initialised CUDA can't use it in a forked child.** There every call refuses with
//!   [`Missing::Forked`] before it touches the driver.
//!
//! ```
//! let report = forebay_gpu::discover();
//! for device in &report.devices {
//!     println!("{}: {} ({} MiB)", device.ordinal, device.name, device.memory >> 20);
//! }
//! for reason in &report.missing {
//!     println!("no CUDA: {reason}");
//! }
//! ```
//!
//! # How a batch comes to a device
//! A [`Region`] is host memory that was registered with the driver once, so that a device reads it at the rate of the link.
//! [`CudaDevice::gather`] is told where a batch's rows are and asks the device for them; it returns at once, with
//! [`DeviceBuffer`]s that a consumer orders its stream behind. No row is copied by the CPU, unless it is small or its memory
//! could not be registered; [`CudaDevice::stats`] names the route of every column and why it isn't a faster one.
//!
//! CUDA is supported on Linux, on x86-64 and aarch64. Elsewhere this crate is discovery alone, and a device is
//! refused.

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod caching;
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod cuda;
mod discover;
mod driver;
#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
mod elsewhere;
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod engine;
mod error;
mod fork;
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod headroom;
mod missing;
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod registrar;
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod seam;
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod sharing;
mod stats;

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
pub use caching::CachingDevice;
pub use discover::{Device, Driver, LIBRARY, Report, discover, discover_at};
#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
pub use elsewhere::{CachingDevice, CudaLoaderDevice, DeviceBuffer};
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
pub use engine::{
    Cached, Column, CudaDevice, DeviceBuffer, DeviceCache, Finishing, Gathered, Options, Place, Region, RowKey, Rows,
    SMALL,
};
pub use error::{Error, Result};
pub use missing::Missing;
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
pub use seam::CudaLoaderDevice;
pub use stats::{CacheStats, ColumnStats, Route, Stats};
