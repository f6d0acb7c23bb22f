//! Many copies in one call.
#![allow(unsafe_code)]

use std::{ffi::c_void, sync::Arc};

use super::{
    context::{Context, check},
    link::{BatchCopy, BatchCopy12},
    stream::StreamRef,
};
use crate::Result;

/// `CUmemcpyAttributes`: in what order sources are read, and hints that don't matter for pinned memory.
#[repr(C)]
struct Attributes {
    source_order: u32,
    source_hint: [i32; 2],
    destination_hint: [i32; 2],
    flags: u32,
}

const IN_STREAM_ORDER: u32 = 1;

/// Copies many pieces in one call.
#[derive(Clone, Debug)]
pub(crate) struct BatchCopier {
    context: Arc<Context>,
    form: Form,
}

#[derive(Clone, Copy, Debug)]
enum Form {
    Cuda13(BatchCopy),
    Cuda12(BatchCopy12),
}

impl BatchCopier {
    /// `None` if the driver has no such function, before CUDA 12.8.
    pub(crate) fn new(context: &Arc<Context>) -> Option<Self> {
        let newer = context.newer();
        let form = newer.batch_copy.map(Form::Cuda13).or(newer.batch_copy_12.map(Form::Cuda12))?;
        Some(Self { context: Arc::clone(context), form })
    }

    /// The driver's function.
    pub(crate) fn name(&self) -> &'static str {
        match self.form {
            Form::Cuda13(_) => "cuMemcpyBatchAsync_v2",
            Form::Cuda12(_) => "cuMemcpyBatchAsync",
        }
    }

    /// Asks `stream`, which is neither the legacy stream nor being captured, to copy `bytes[i]` bytes from `from[i]` to
    /// `to[i]`, in any order.
    ///
    /// # Safety
    /// The pieces are inside registered host memory and device memory that both stay until the stream has run the copies,
    /// and nothing else writes them meanwhile. No two destinations overlap.
    pub(crate) unsafe fn copy(&self, to: &[u64], from: &[u64], bytes: &[usize], stream: StreamRef) -> Result<()> {
        let count = to.len().min(from.len()).min(bytes.len());
        if count == 0 {
            return Ok(());
        }
        let attributes =
            Attributes { source_order: IN_STREAM_ORDER, source_hint: [0; 2], destination_hint: [0; 2], flags: 0 };
        let attributes: *const c_void = (&raw const attributes).cast();
        let first = 0_usize;
        let stream = stream.raw().cast::<c_void>();
        let (to, from, bytes) = (to.as_ptr(), from.as_ptr(), bytes.as_ptr());
        let _entered = self.context.enter()?;
        // SAFETY: each array has `count` entries, one attribute from entry 0 on covers them all, and the driver reads
        // the arrays before it returns. The caller vouches for the pieces.
        let code = unsafe {
            match self.form {
                Form::Cuda13(function) => function(to, from, bytes, count, attributes, &raw const first, 1, stream),
                Form::Cuda12(function) => {
                    let mut failed = 0_usize;
                    function(to, from, bytes, count, attributes, &raw const first, 1, &raw mut failed, stream)
                }
            }
        };
        check(self.name(), super::link::result(code))
    }
}
