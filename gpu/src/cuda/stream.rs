//! An order of work on a device.
#![allow(unsafe_code)]

use std::{ptr, sync::Arc};

use cust::sys;

use super::context::{Context, check};
use crate::Result;

const NON_BLOCKING: u32 = 1;

/// A stream of this crate's own, which doesn't wait for the legacy stream nor makes it wait.
#[derive(Debug)]
pub(crate) struct Stream {
    raw: sys::CUstream,
    context: Arc<Context>,
}

// SAFETY: the driver lets any thread use a stream in whose context it is; every method enters the context.
unsafe impl Send for Stream {}
// SAFETY: as above; the driver locks its own objects.
unsafe impl Sync for Stream {}

impl Stream {
    pub(crate) fn new(context: &Arc<Context>) -> Result<Self> {
        let _entered = context.enter()?;
        let mut raw = ptr::null_mut();
        // SAFETY: the function writes one handle. (`cust`'s own constructor drops the flag.)
        check("cuStreamCreateWithPriority", unsafe { sys::cuStreamCreateWithPriority(&raw mut raw, NON_BLOCKING, 0) })?;
        Ok(Self { raw, context: Arc::clone(context) })
    }

    pub(crate) fn handle(&self) -> StreamRef {
        StreamRef(self.raw as usize)
    }

    /// Blocks this thread until all that the stream was asked is done.
    pub(crate) fn synchronize(&self) -> Result<()> {
        let _entered = self.context.enter()?;
        // SAFETY: the stream is alive.
        check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(self.raw) })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if let Ok(_entered) = self.context.enter() {
            // SAFETY: the stream is alive and nobody else has it; the driver finishes its work first.
            let _ = unsafe { sys::cuStreamDestroy_v2(self.raw) };
        }
    }
}

/// Somebody's stream, by its handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct StreamRef(usize);

impl StreamRef {
    /// # Safety
    /// The handle is that of a stream of the device in question which lives as long as the reference is used, or one of
    /// the driver's own: 0 or 1 for the legacy stream, 2 for the calling thread's.
    pub(crate) unsafe fn from_handle(handle: usize) -> Self {
        Self(handle)
    }

    pub(crate) fn raw(self) -> sys::CUstream {
        self.0 as sys::CUstream
    }
}

/// Whether a graph is being captured from `stream`, or one whose capture the legacy stream would break.
pub(crate) fn capturing(context: &Context, stream: StreamRef) -> Result<bool> {
    let _entered = context.enter()?;
    let mut status = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    // SAFETY: whoever made the reference vouches for the stream; the function writes one status, all of which are in the
    // enum.
    match unsafe { sys::cuStreamIsCapturing(stream.raw(), &raw mut status) } {
        sys::CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT => Ok(true),
        code => {
            check("cuStreamIsCapturing", code)?;
            Ok(status != sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE)
        }
    }
}
