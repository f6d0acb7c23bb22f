//! Long work without the GIL, which Ctrl-C ends and whose panics are errors.

use std::{
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    time::Duration,
};

use pyo3::prelude::*;

use crate::error::{Error, Result};

/// How long a wait goes on before signals are looked at.
pub(crate) const TICK: Duration = Duration::from_millis(50);

/// Does blocking work without the GIL. A panic in it becomes [`Error::Internal`].
pub(crate) fn detached<T: Send>(py: Python<'_>, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    py.detach(|| catch_unwind(AssertUnwindSafe(work))).unwrap_or_else(|panic| Err(Error::panic(&*panic)))
}

/// Raises what a signal handler raised, KeyboardInterrupt for one. Called without the GIL.
pub(crate) fn check_signals() -> Result<()> {
    Ok(Python::attach(|py| py.check_signals())?)
}

/// Waits for the future that `make` makes, without the GIL, on this thread.
pub(crate) fn block_on<T, E, F>(py: Python<'_>, make: impl FnOnce() -> F + Send) -> Result<T>
where
    T: Send,
    E: Into<Error>,
    F: Future<Output = Result<T, E>>,
{
    let runtime = forebay_storage::runtime()?;
    detached(py, || {
        let future = make();
        runtime.block_on(async {
            let mut future = pin!(future);
            loop {
                match tokio::time::timeout(TICK, &mut future).await {
                    Ok(result) => return result.map_err(Into::into),
                    Err(_elapsed) => check_signals()?,
                }
            }
        })
    })
}
