//! The kernels, loaded from PTX that was compiled ahead, and their launches.
#![allow(unsafe_code)]

use std::{ffi::c_void, ptr, sync::Arc};

use cust::{module::Module, sys};
use forebay_loader::finish::{CHANNELS, Interpolation, Layout, Number, Prepared, Window};

use super::{
    context::{Context, check},
    stream::StreamRef,
};
use crate::{Error, Result};

const PTX: &str = include_str!("../../kernels/forebay.ptx");
/// Threads of a block.
const BLOCK: u32 = 256;
/// Blocks that a multiprocessor holds at once.
const RESIDENT: u32 = 8;
/// Bytes that one warp of the gather kernel brings: `SEGMENT` vectors of 16.
const SEGMENT_BYTES: u64 = 2048;
/// Segments start at lines of this many bytes, so the first may miss as many.
const LINE_BYTES: u64 = 128;

/// The argument of `forebay_gather`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct GatherLaunch {
    rows: u64,
    offsets: u64,
    out: u64,
    row_bytes: u64,
    count: u32,
    segments: u32,
}

impl GatherLaunch {
    /// Rows of `row_bytes` each, whose addresses are an array at `rows`, side by side to `out`. All are device addresses.
    pub(crate) fn fixed(rows: u64, count: u32, row_bytes: u64, out: u64) -> Self {
        Self { rows, offsets: 0, out, row_bytes, count, segments: segments(row_bytes) }
    }

    /// Rows that go to `out` where an array of `count + 1` offsets says, of at most `longest` bytes.
    pub(crate) fn ragged(rows: u64, offsets: u64, count: u32, longest: u64, out: u64) -> Self {
        Self { rows, offsets, out, row_bytes: longest, count, segments: segments(longest) }
    }
}

fn segments(row_bytes: u64) -> u32 {
    u32::try_from((row_bytes + LINE_BYTES).div_ceil(SEGMENT_BYTES)).unwrap_or(u32::MAX)
}

/// The argument of `forebay_finish`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct FinishLaunch {
    rows: u64,
    out: u64,
    windows: u64,
    row_bytes: u64,
    count: u32,
    channels: u32,
    out_size: [u32; 2],
    in_planar: u32,
    out_planar: u32,
    nearest: u32,
    number: u32,
    scale: [f32; CHANNELS],
    bias: [f32; CHANNELS],
}

impl FinishLaunch {
    /// `count` rows of `row_bytes` in all, one behind the other at `rows`, to `out`; one [`Window`] a row is at `windows`, as
    /// [`encode`](Self::encode) writes it. All are device addresses.
    pub(crate) fn new(prepared: &Prepared, rows: u64, row_bytes: u64, count: u32, windows: u64, out: u64) -> Self {
        Self {
            rows,
            out,
            windows,
            row_bytes,
            count,
            channels: prepared.channels(),
            out_size: prepared.out_size(),
            in_planar: u32::from(prepared.input() == Layout::Planar),
            out_planar: u32::from(prepared.output() == Layout::Planar),
            nearest: u32::from(prepared.interpolation() == Interpolation::Nearest),
            number: match prepared.number() {
                Number::U8 => 0,
                Number::F16 => 1,
                Number::Bf16 => 2,
                Number::F32 => 3,
            },
            scale: *prepared.scale(),
            bias: *prepared.bias(),
        }
    }

    /// Bytes of an encoded window.
    pub(crate) const WINDOW: usize = 64;

    /// The window of a row that starts `start` bytes behind the first, as the kernel reads it.
    pub(crate) fn encode(window: &Window, start: u64) -> [u8; Self::WINDOW] {
        let mut bytes = [0; Self::WINDOW];
        let (longs, words) = bytes.split_at_mut(24);
        for (to, value) in longs.chunks_exact_mut(8).zip([start, window.step[0], window.step[1]]) {
            to.copy_from_slice(&value.to_le_bytes());
        }
        let pairs = [window.size, window.corner, window.part, window.skip, [u32::from(window.mirror), 0]];
        for (to, value) in words.chunks_exact_mut(4).zip(pairs.iter().flatten()) {
            to.copy_from_slice(&value.to_le_bytes());
        }
        bytes
    }
}

/// The kernels of one device.
#[derive(Debug)]
pub(crate) struct Kernels {
    gather: Function,
    finish: Function,
    resident: u32,
    /// Owns the functions; `None` only while it is dropped.
    module: Option<Module>,
    context: Arc<Context>,
}

#[derive(Clone, Copy, Debug)]
struct Function(sys::CUfunction);

// SAFETY: a function is a handle that any thread may launch once it has entered the context, as every launch does.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

impl Kernels {
    /// The kernels, with at most `resident` blocks of the gather on each multiprocessor.
    pub(crate) fn load(context: &Arc<Context>, resident: u32) -> Result<Self> {
        let _entered = context.enter()?;
        let named = |call: &'static str| {
            move |error: cust::error::CudaError| Error::Call { call, code: error as i32, reason: error.to_string() }
        };
        let module = Module::from_ptx(PTX, &[]).map_err(named("cuModuleLoadDataEx"))?;
        let function = |name| {
            let found = module.get_function(name).map_err(named("cuModuleGetFunction"))?;
            Ok::<_, Error>(Function(found.to_raw()))
        };
        let (gather, finish) = (function("forebay_gather")?, function("forebay_finish")?);
        let resident = resident.clamp(1, RESIDENT);
        Ok(Self { gather, finish, resident, module: Some(module), context: Arc::clone(context) })
    }

    /// # Safety
    /// The arrays and rows that the launch names are memory that the device can read, and `out` memory that it can write,
    /// until the stream has run it.
    pub(crate) unsafe fn gather(&self, launch: GatherLaunch, stream: StreamRef) -> Result<()> {
        let warps = u64::from(launch.count) * u64::from(launch.segments);
        // SAFETY: the caller's promise; the argument's layout is that of the kernel's.
        unsafe { self.launch(self.gather, warps * 32, self.resident, &launch, stream) }
    }

    /// [`gather`](Self::gather) for rows in device memory: by as many blocks as the device holds.
    ///
    /// # Safety
    /// As for [`gather`](Self::gather).
    pub(crate) unsafe fn gather_on_device(&self, launch: GatherLaunch, stream: StreamRef) -> Result<()> {
        let warps = u64::from(launch.count) * u64::from(launch.segments);
        // SAFETY: as above.
        unsafe { self.launch(self.gather, warps * 32, RESIDENT, &launch, stream) }
    }

    /// # Safety
    /// As for [`gather`](Self::gather).
    pub(crate) unsafe fn finish(&self, launch: FinishLaunch, stream: StreamRef) -> Result<()> {
        let pixels = u64::from(launch.count) * u64::from(launch.out_size[0]) * u64::from(launch.out_size[1]);
        // SAFETY: as above.
        unsafe { self.launch(self.finish, pixels, RESIDENT, &launch, stream) }
    }

    /// # Safety
    /// `argument` is the kernel's one parameter, and what it points to is valid as `gather` says.
    unsafe fn launch<T>(
        &self,
        function: Function,
        threads: u64,
        resident: u32,
        argument: &T,
        stream: StreamRef,
    ) -> Result<()> {
        if threads == 0 {
            return Ok(());
        }
        let most = u64::from(self.context.multiprocessors() * resident);
        let blocks = threads.div_ceil(u64::from(BLOCK)).min(most) as u32;
        let mut arguments = [ptr::from_ref(argument).cast_mut().cast::<c_void>()];
        let _entered = self.context.enter()?;
        // SAFETY: the function belongs to the context, the driver copies the argument before it returns, and the caller
        // vouches for what it points to.
        check("cuLaunchKernel", unsafe {
            sys::cuLaunchKernel(
                function.0,
                blocks,
                1,
                1,
                BLOCK,
                1,
                1,
                0,
                stream.raw(),
                arguments.as_mut_ptr(),
                ptr::null_mut(),
            )
        })
    }
}

impl Drop for Kernels {
    fn drop(&mut self) {
        match self.context.enter() {
            Ok(_entered) => drop(self.module.take()),
            // In a forked child, where the driver must not be called.
            Err(_) => std::mem::forget(self.module.take()),
        }
    }
}
