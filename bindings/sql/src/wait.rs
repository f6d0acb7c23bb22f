//! Long work without the GIL, which Ctrl-C ends and whose panics are errors.

use std::{
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::Once,
    time::Duration,
};

use pyo3::prelude::*;
use tokio::runtime::Handle;

use crate::error::{Error, Result};

/// How long a wait goes on before signals are looked at.
pub(crate) const TICK: Duration = Duration::from_millis(50);

/// The runtime, with a thread for each core: queries compute on it.
pub(crate) fn runtime() -> Result<Handle> {
    static CONFIGURED: Once = Once::new();
    CONFIGURED.call_once(|| {
        let cores = std::thread::available_parallelism().map_or(2, usize::from).max(2);
        // Whoever started it before us, in this library, chose the number.
        let _started = forebay_storage::configure_runtime(cores);
    });
    Ok(forebay_storage::runtime()?)
}

/// Waits for the future that `make` makes, without the GIL, on this thread. Ctrl-C drops it.
pub(crate) fn block_on<T, E, F>(py: Python<'_>, make: impl FnOnce() -> F + Send) -> Result<T>
where
    T: Send,
    E: Into<Error>,
    F: Future<Output = Result<T, E>>,
{
    let runtime = runtime()?;
    let work = || {
        let future = make();
        runtime.block_on(async {
            let mut future = pin!(future);
            loop {
                match tokio::time::timeout(TICK, &mut future).await {
                    Ok(result) => return result.map_err(Into::into),
                    Err(_elapsed) => Python::attach(|py| py.check_signals())?,
                }
            }
        })
    };
    py.detach(|| catch_unwind(AssertUnwindSafe(work))).unwrap_or_else(|panic| Err(Error::panic(&*panic)))
}
