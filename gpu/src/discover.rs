//! What CUDA there is, found out at run time.

use std::path::{Path, PathBuf};

use crate::{Missing, driver, fork};

/// The name under which the driver's library is looked for.
pub const LIBRARY: &str = if cfg!(windows) { "nvcuda.dll" } else { "libcuda.so.1" };

/// What was found.
///
/// `devices` can be used; each entry of `missing` says why something can't be, so a report without devices has at least
/// one.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Report {
    /// The driver, once it was opened and initialised.
    pub driver: Option<Driver>,
    /// The devices, by ordinal.
    pub devices: Vec<Device>,
    /// Why the driver or a device can't be used.
    pub missing: Vec<Missing>,
}

/// A driver.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Driver {
    /// The library as it was opened.
    pub library: PathBuf,
    /// The newest CUDA version that it supports, as major and minor: `(13, 0)`.
    pub cuda: (u32, u32),
}

/// A device.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Device {
    /// Its ordinal among the devices visible to this process.
    pub ordinal: u32,
    /// Its name.
    pub name: String,
    /// Its compute capability, as major and minor: `(9, 0)`.
    pub compute: (u32, u32),
    /// Its memory in bytes.
    pub memory: u64,
}

/// Opens the system's driver and asks it for its devices.
///
/// The first call initialises CUDA in this process, which can take a second or two.
#[must_use]
pub fn discover() -> Report {
    discover_at(Path::new(LIBRARY))
}

/// As [`discover`], with the driver's library at `library`: a path, or a name that the dynamic linker looks for.
///
/// The library's initialisers run, and it stays loaded: name only a CUDA driver.
#[must_use]
pub fn discover_at(library: &Path) -> Report {
    let mut report = Report::default();
    if let Err(missing) = fill(&mut report, library) {
        report.missing.push(missing);
    }
    report
}

fn fill(report: &mut Report, library: &Path) -> Result<(), Missing> {
    fork::check()?;
    let api = driver::Api::open(library)?;
    fork::note_initialised();
    api.init()?;
    report.driver = Some(Driver { library: library.to_owned(), cuda: api.version()? });
    let count = api.device_count()?;
    if count == 0 {
        return Err(Missing::NoDevice);
    }
    for ordinal in 0..count {
        match api.device(ordinal) {
            Ok(device) => report.devices.push(device),
            Err(missing) => report.missing.push(missing),
        }
    }
    Ok(())
}
