//! What a folder looks like after a power loss, and what a process does when its disk fails.
//!
//! [`record`] runs a process and logs everything it does to the files below a folder, by a small C library put in front of
//! the system's (Linux, needs `cc`). The log goes into a [`Disk`], a strict model of what a filesystem promises: the
//! content of a file is kept as of its last sync, the names in a folder as of the last sync of the folder, and everything
//! since may be kept or lost, each name and each page for itself. [`Disk::rebuild`] then writes the folder out as a power
//! loss could leave it, to be opened and judged.
//!
//! ```text
//! let recording = disk::record(&root, &scratch, Command::new(program))?;   // the program calls disk::mark("done: ...")
//! let mut disk = recording.start;
//! for op in &recording.ops {
//!     disk.apply(op);
//!     disk.rebuild(Survives::Synced, &elsewhere)?;                         // open `elsewhere`, check what was marked
//! }
//! ```
//!
//! [`run_with`] uses the same library to run a process on a disk that is full, read-only or dying.

mod log;
mod model;

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub use log::{Op, mark};
pub use model::{Disk, Survives};

/// What a process did to a folder.
#[derive(Debug)]
pub struct Recording {
    /// The folder before it, all of it on disk.
    pub start: Disk,
    /// What it did, in order.
    pub ops: Vec<Op>,
}

/// How a disk fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// No space is left after this many more bytes.
    NoSpace(u64),
    /// Nothing may be changed, as on a filesystem mounted read-only.
    ReadOnly,
    /// Syncing a file fails after this many successes.
    SyncFails(u64),
    /// Syncing a folder fails after this many successes.
    FolderSyncFails(u64),
    /// There are no hard links.
    NoLinks,
}

/// Runs `command` to its end and logs what it does below the existing folder `root`.
///
/// `scratch` is an existing folder outside of `root` for the C library and the log.
///
/// # Errors
/// When there is no C compiler, when the command fails, and those of files.
pub fn record(root: &Path, scratch: &Path, mut command: Command) -> io::Result<Recording> {
    let root = root.canonicalize()?;
    let log = scratch.join("disk.log");
    match std::fs::remove_file(&log) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let start = Disk::of(&root)?;
    command.env(log::LOG_VARIABLE, &log);
    run(&root, scratch, command)?;
    Ok(Recording { start, ops: log::parse(&std::fs::read(&log)?)? })
}

/// Runs `command` to its end on a disk that fails for everything below the existing folder `root`. It needs no rights.
///
/// `scratch` is as for [`record`].
///
/// # Errors
/// When there is no C compiler, when the command fails, and those of files.
pub fn run_with(trouble: Trouble, root: &Path, scratch: &Path, mut command: Command) -> io::Result<()> {
    let trouble = match trouble {
        Trouble::NoSpace(bytes) => format!("space:{bytes}"),
        Trouble::ReadOnly => "readonly:0".to_owned(),
        Trouble::SyncFails(after) => format!("sync:{after}"),
        Trouble::FolderSyncFails(after) => format!("foldersync:{after}"),
        Trouble::NoLinks => "links:0".to_owned(),
    };
    command.env(log::TROUBLE_VARIABLE, trouble);
    run(&root.canonicalize()?, scratch, command)
}

fn run(root: &Path, scratch: &Path, mut command: Command) -> io::Result<()> {
    let library = build(scratch)?;
    let status = command.env("LD_PRELOAD", library).env(log::ROOT_VARIABLE, root).stdin(Stdio::null()).status()?;
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("the process ended with {status}"))) }
}

/// Compiles the library that logs and fails.
fn build(scratch: &Path) -> io::Result<PathBuf> {
    let (source, library) = (scratch.join("forebay_disk_log.c"), scratch.join("forebay_disk_log.so"));
    std::fs::write(&source, include_str!("shim.c"))?;
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .args([&library, &source])
        .args(["-ldl", "-lpthread"])
        .output()
        .map_err(|e| {
            io::Error::new(e.kind(), format!("the power-loss tests need a C compiler named `cc` (gcc or clang): {e}"))
        })?;
    if !compiled.status.success() {
        return Err(io::Error::other(format!(
            "cc cannot build the disk log: {}",
            String::from_utf8_lossy(&compiled.stderr)
        )));
    }
    Ok(library)
}
