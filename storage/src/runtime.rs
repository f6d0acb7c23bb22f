//! The threads that input and output run on.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::runtime::{Builder, Handle, Runtime};

use crate::error::{Error, Result};
use crate::forked::Forked;

/// The most worker threads made when nobody says how many.
const MOST_WORKERS: usize = 4;

/// Worker threads wished for; 0 means nobody has said.
static WORKERS: AtomicUsize = AtomicUsize::new(0);
static SHARED: OnceLock<Forked<Runtime>> = OnceLock::new();
static UPLOADS: OnceLock<Forked<Runtime>> = OnceLock::new();

/// The runtime of this process, made on first use with few worker threads, and made anew in a forked child.
///
/// After a fork the child has none of its parent's threads, so its parent's runtime would hang: ask for the handle again
/// rather than keep one across a fork. The parent's runtime is leaked in the child on purpose, since dropping it would
/// wait for threads that do not exist there.
///
/// # Errors
/// [`Error::Runtime`] when the threads cannot be started.
pub fn runtime() -> Result<Handle> {
    let workers = match WORKERS.load(Ordering::Relaxed) {
        0 => std::thread::available_parallelism().map_or(2, usize::from).clamp(2, MOST_WORKERS),
        n => n,
    };
    handle(&SHARED, || {
        grow_files();
        start("forebay-io", workers)
    })
}

/// Sets the number of worker threads of [`runtime`], before its first use in this process.
///
/// # Errors
/// [`Error::RuntimeStarted`] when the runtime runs already; [`Error::InvalidOption`] for 0.
pub fn configure_runtime(worker_threads: usize) -> Result<()> {
    if worker_threads == 0 {
        return Err(Error::InvalidOption {
            option: "worker_threads".to_owned(),
            value: "0".to_owned(),
            reason: "at least one thread is needed".to_owned(),
        });
    }
    if SHARED.get().is_some() {
        return Err(Error::RuntimeStarted);
    }
    WORKERS.store(worker_threads, Ordering::Relaxed);
    Ok(())
}

/// The runtime that uploads run on.
///
/// [`ObjectWriter`](crate::ObjectWriter) blocks its caller until parts have left. No code of callers ever runs on these
/// threads, so however many callers block, the threads that they wait for stay free.
pub(crate) fn uploads() -> Result<Handle> {
    handle(&UPLOADS, || start("forebay-upload", 2))
}

fn handle(slot: &OnceLock<Forked<Runtime>>, make: impl Fn() -> Result<Runtime>) -> Result<Handle> {
    let first = match slot.get() {
        Some(first) => first,
        None => {
            let mine = make()?;
            // A thread that lost the race keeps its runtime out of the way without waiting for it.
            if let Err(spare) = slot.set(Forked::new(mine)) {
                std::mem::forget(spare);
            }
            match slot.get() {
                Some(first) => first,
                None => return Err(Error::Runtime { source: std::io::Error::other("the runtime vanished") }),
            }
        }
    };
    first.get(make).map(|runtime| runtime.handle().clone())
}

/// Makes room for many open files, once. The kernel's table of them doubles at 64, 128 and 256, and each time every thread
/// that opens a connection waits some 25 ms for it: in the middle of a first batch, if nobody did it before.
#[cfg(target_os = "linux")]
fn grow_files() {
    // Not waited for; where it fails, the table grows as it would have.
    let grow = || {
        if let Ok(file) = std::fs::File::open("/dev/null")
            && let Err(error) = rustix::io::fcntl_dupfd_cloexec(&file, 511)
        {
            tracing::debug!(%error, "the table of open files grows when it has to");
        }
    };
    if let Err(error) = std::thread::Builder::new().name("forebay-files".to_owned()).spawn(grow) {
        tracing::debug!(%error, "the table of open files grows when it has to");
    }
}

#[cfg(not(target_os = "linux"))]
fn grow_files() {}

#[expect(clippy::disallowed_methods, reason = "this makes the one runtime")]
fn start(name: &str, workers: usize) -> Result<Runtime> {
    Builder::new_multi_thread()
        .worker_threads(workers)
        .thread_name(name)
        .enable_all()
        .build()
        .map_err(|source| Error::Runtime { source })
}
