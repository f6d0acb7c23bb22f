//! Why there is no CUDA.

use std::path::PathBuf;

/// Why the driver or a device can't be used.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Missing {
    /// The driver's library couldn't be opened: no driver is installed, or it isn't on the linker's path.
    #[error("no CUDA driver: {library} could not be opened: {reason}", library = library.display())]
    Library {
        /// The library looked for.
        library: PathBuf,
        /// What the dynamic linker said.
        reason: String,
    },
    /// The library lacks a function: it isn't a CUDA driver, or one from before CUDA 3.2.
    #[error("{library} is no usable CUDA driver: it has no {symbol}", library = library.display())]
    Symbol {
        /// The library.
        library: PathBuf,
        /// The function.
        symbol: &'static str,
    },
    /// A call of the driver failed.
    #[error("the CUDA driver failed in {call}: {reason} (code {code})")]
    Call {
        /// The function called, with the device it was about.
        call: String,
        /// The driver's code, a `CUresult`.
        code: i32,
        /// What the driver says the code means.
        reason: String,
    },
    /// This build of the crate knows no CUDA.
    #[error("CUDA is supported on Linux, on x86-64 and aarch64")]
    System,
    /// The driver works and sees no device.
    #[error("the CUDA driver sees no device")]
    NoDevice,
    /// This process was forked from one that had initialised CUDA, which CUDA doesn't support.
    #[error(
        "CUDA was initialised in process {parent} before it forked this one, and can't be used here: start workers with \
         the 'spawn' or 'forkserver' method, or touch CUDA only after forking"
    )]
    Forked {
        /// The process that initialised CUDA.
        parent: u32,
    },
}
