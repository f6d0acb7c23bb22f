//! A device's primary context, which this process shares with every framework in it.
#![allow(unsafe_code)]

use std::{cell::Cell, ffi::CStr, path::Path, ptr, sync::Arc};

use cust::{
    CudaFlags,
    context::Context as Primary,
    device::{Device, DeviceAttribute},
    error::CudaError,
    sys,
};

use super::link::{self, Newer};
use crate::{Error, Missing, Result, fork};

/// A device's primary context, retained while this lives.
#[derive(Debug)]
pub(crate) struct Context {
    primary: Primary,
    ordinal: u32,
    name: String,
    multiprocessors: u32,
    newer: Newer,
    /// The driver can register host memory that it may only read.
    read_only_registration: bool,
    numa_node: Option<u32>,
}

impl Context {
    /// Binds the driver in `library` and retains the primary context of device `ordinal`.
    pub(crate) fn open(library: &Path, ordinal: u32) -> Result<Arc<Self>> {
        fork::check()?;
        let newer = link::load(library)?;
        fork::note_initialised();
        cust::init(CudaFlags::empty()).map_err(named("cuInit"))?;
        if Device::num_devices().map_err(named("cuDeviceGetCount"))? == 0 {
            return Err(Missing::NoDevice.into());
        }
        let device = Device::get_device(ordinal).map_err(named("cuDeviceGet"))?;
        let name = device.name().map_err(named("cuDeviceGetName"))?;
        let multiprocessors =
            device.get_attribute(DeviceAttribute::MultiprocessorCount).map_err(named("cuDeviceGetAttribute"))?;
        let read_only_registration = attribute(&device, READ_ONLY_HOST_REGISTER_SUPPORTED) == Some(1);
        let numa_node = attribute(&device, HOST_NUMA_ID).and_then(|node| u32::try_from(node).ok());
        let before = current()?;
        let primary = Primary::new(device).map_err(named("cuDevicePrimaryCtxRetain"))?;
        // `Primary::new` leaves its context current; entering is this type's own business.
        // SAFETY: the context was current before this call, or null, which makes none current.
        check("cuCtxSetCurrent", unsafe { sys::cuCtxSetCurrent(before) })?;
        let multiprocessors = multiprocessors.max(1).cast_unsigned();
        Ok(Arc::new(Self { primary, ordinal, name, multiprocessors, newer, read_only_registration, numa_node }))
    }

    pub(crate) fn ordinal(&self) -> u32 {
        self.ordinal
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn multiprocessors(&self) -> u32 {
        self.multiprocessors
    }

    pub(crate) fn newer(&self) -> Newer {
        self.newer
    }

    pub(crate) fn read_only_registration(&self) -> bool {
        self.read_only_registration
    }

    /// The node of the host's memory that is nearest to the device; `None` if there is only one kind of memory, or the driver doesn't
    /// know, before CUDA 12.2.
    pub(crate) fn numa_node(&self) -> Option<u32> {
        self.numa_node
    }

    /// Makes this context current on this thread until the guard is dropped.
    ///
    /// # Errors
    /// [`Missing::Forked`] in a child of the process that initialised CUDA, before the driver is touched.
    pub(crate) fn enter(&self) -> Result<Entered> {
        let context = self.primary.as_raw() as usize;
        if ENTERED.get() == context {
            return Ok(Entered { mode: None });
        }
        fork::check()?;
        // SAFETY: the context is retained, so it is alive.
        check("cuCtxPushCurrent", unsafe { sys::cuCtxPushCurrent_v2(self.primary.as_raw()) })?;
        let mut mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: the function swaps this thread's mode with the one given; all its modes are in the enum.
        let _ = unsafe { sys::cuThreadExchangeStreamCaptureMode(&raw mut mode) };
        Ok(Entered { mode: Some((mode, ENTERED.replace(context))) })
    }
}

/// A context made current; dropping this brings the one before back.
///
/// Meanwhile the thread is in relaxed capture mode: what this crate allocates must not break a graph that another stream
/// is being captured into.
#[must_use = "the context is current only while this lives"]
pub(crate) struct Entered {
    /// The mode and the context entered before; `None` if the context was entered already.
    mode: Option<(sys::CUstreamCaptureMode, usize)>,
}

thread_local! {
    /// The context that this thread has entered, or 0. A thread is forked only while it has entered none: nothing of this
    /// crate forks.
    static ENTERED: Cell<usize> = const { Cell::new(0) };
}

impl Drop for Entered {
    fn drop(&mut self) {
        let Some((mut mode, before)) = self.mode else { return };
        ENTERED.set(before);
        let mut popped = ptr::null_mut();
        // SAFETY: `enter` set the mode and pushed a context on this thread, and guards are dropped in reverse order. The
        // codes are of no use here: undoing that fails only once the driver is shutting down.
        let _ = unsafe { sys::cuThreadExchangeStreamCaptureMode(&raw mut mode) };
        // SAFETY: as above.
        let _ = unsafe { sys::cuCtxPopCurrent_v2(&raw mut popped) };
    }
}

const READ_ONLY_HOST_REGISTER_SUPPORTED: u32 = 113;
const HOST_NUMA_ID: u32 = 134;

/// An attribute newer than `cust`; `None` from a driver that doesn't know it.
fn attribute(device: &Device, which: u32) -> Option<i32> {
    let mut value = 0;
    // SAFETY: the function takes an int for which attribute; `cust` declares it as an enum that ends before this one,
    // so it is called through a pointer that says what it is. It writes one int.
    let code = unsafe {
        let get: unsafe extern "C" fn(*mut i32, sys::CUdevice_attribute, i32) -> sys::CUresult =
            sys::cuDeviceGetAttribute;
        let get: unsafe extern "C" fn(*mut i32, u32, i32) -> sys::CUresult = std::mem::transmute(get);
        get(&raw mut value, which, device.as_raw())
    };
    (code == sys::CUresult::CUDA_SUCCESS).then_some(value)
}

fn current() -> Result<sys::CUcontext> {
    let mut current = ptr::null_mut();
    // SAFETY: the function writes one pointer: null if no context is current.
    check("cuCtxGetCurrent", unsafe { sys::cuCtxGetCurrent(&raw mut current) })?;
    Ok(current)
}

/// A driver's answer as a result.
pub(crate) fn check(call: &'static str, code: sys::CUresult) -> Result<()> {
    if code == sys::CUresult::CUDA_SUCCESS {
        return Ok(());
    }
    let mut text = ptr::null();
    // SAFETY: the function writes one pointer: to a constant, NUL-terminated string, or null.
    let found = unsafe { sys::cuGetErrorString(code, &raw mut text) };
    let reason = if found != sys::CUresult::CUDA_SUCCESS || text.is_null() {
        "no further explanation".to_owned()
    } else {
        // SAFETY: as above; the driver is never unloaded.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    };
    Err(Error::Call { call, code: code as i32, reason })
}

/// An error of `cust` as one of this crate.
fn named(call: &'static str) -> impl Fn(CudaError) -> Error {
    move |error| Error::Call { call, code: error as i32, reason: error.to_string() }
}
