//! A point in a stream that others wait for.
#![allow(unsafe_code)]

use std::{ptr, sync::Arc};

use cust::sys;

use super::{
    context::{Context, check},
    stream::StreamRef,
};
use crate::Result;

const DISABLE_TIMING: u32 = 2;
const BLOCKING_SYNC: u32 = 1;

/// A point in a stream. Unrecorded, it counts as reached.
#[derive(Debug)]
pub(crate) struct Event {
    raw: sys::CUevent,
    context: Arc<Context>,
}

// SAFETY: the driver lets any thread use an event in whose context it is; every method enters the context.
unsafe impl Send for Event {}
// SAFETY: as above; the driver locks its own objects.
unsafe impl Sync for Event {}

impl Event {
    pub(crate) fn new(context: &Arc<Context>) -> Result<Self> {
        let _entered = context.enter()?;
        let mut raw = ptr::null_mut();
        // SAFETY: the function writes one handle.
        check("cuEventCreate", unsafe { sys::cuEventCreate(&raw mut raw, DISABLE_TIMING | BLOCKING_SYNC) })?;
        Ok(Self { raw, context: Arc::clone(context) })
    }

    /// Moves the event to what `stream` has been asked so far.
    pub(crate) fn record(&self, stream: StreamRef) -> Result<()> {
        let _entered = self.context.enter()?;
        // SAFETY: the event is alive, and whoever made the reference vouches for the stream.
        check("cuEventRecord", unsafe { sys::cuEventRecord(self.raw, stream.raw()) })
    }

    /// Holds back what `stream` is asked from now on until the event is reached.
    pub(crate) fn hold_back(&self, stream: StreamRef) -> Result<()> {
        let _entered = self.context.enter()?;
        // SAFETY: as in `record`.
        check("cuStreamWaitEvent", unsafe { sys::cuStreamWaitEvent(stream.raw(), self.raw, 0) })
    }

    /// Blocks this thread, without spinning, until the event is reached.
    pub(crate) fn wait(&self) -> Result<()> {
        let _entered = self.context.enter()?;
        // SAFETY: the event is alive.
        check("cuEventSynchronize", unsafe { sys::cuEventSynchronize(self.raw) })
    }

    /// Whether the event was reached.
    pub(crate) fn reached(&self) -> Result<bool> {
        let _entered = self.context.enter()?;
        // SAFETY: the event is alive.
        match unsafe { sys::cuEventQuery(self.raw) } {
            sys::CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            code => check("cuEventQuery", code).map(|()| true),
        }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if let Ok(_entered) = self.context.enter() {
            // SAFETY: the event is alive and nobody else has it; the driver keeps it until what waits for it has run.
            let _ = unsafe { sys::cuEventDestroy_v2(self.raw) };
        }
    }
}
