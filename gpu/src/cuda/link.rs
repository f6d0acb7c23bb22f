//! The driver's functions that `cust` declares, bound at run time.
//!
//! `cust` expects a linker to find `cuInit` and the rest in `libcuda`. Linking it would tie every build, and so the
//! Python wheel, to a machine with a driver. Instead this module *defines* those symbols: each is a hidden jump to a
//! function here that calls through a table, and [`load`] fills the table from `libcuda.so.1`. Until then every call
//! answers `CUDA_ERROR_NOT_INITIALIZED`; nothing can crash for want of a driver. The symbols are hidden, so no other
//! library of the process (PyTorch's, say) ever binds to them.
//!
//! The functions pass their arguments on as machine words. They also make the answers safe: `cust` reads a `CUresult`
//! as a Rust enum that ends with CUDA 11.4, so a newer code, which would be undefined behaviour, becomes
//! `CUDA_ERROR_UNKNOWN`.
#![allow(unsafe_code)]

use std::{
    ffi::{c_int, c_void},
    path::Path,
    sync::{
        Mutex, OnceLock, PoisonError,
        atomic::{AtomicPtr, Ordering},
    },
};

use libloading::Library;

use crate::{Missing, driver};

const NOT_INITIALISED: c_int = 3;
const NOT_FOUND: c_int = 500;
const UNKNOWN: c_int = 999;

/// What a function of the table answers before a driver is loaded.
extern "C" fn not_loaded() -> c_int {
    NOT_INITIALISED
}

/// What a function answers that the loaded driver lacks.
extern "C" fn lacking() -> c_int {
    NOT_FOUND
}

/// A code as one that the enum of `cust_raw` 0.11.3 has.
fn known(code: c_int) -> c_int {
    match code {
        0..=8 | 34 | 100..=102 | 200..=202 | 205..=224 | 300..=304 | 400 | 401 | 500 | 600 | 700..=705 => code,
        708..=720 | 800..=809 | 900..=911 => code,
        _ => UNKNOWN,
    }
}

/// The answer of a function that `cust` doesn't declare, as the enum.
pub(super) fn result(code: c_int) -> cust::sys::CUresult {
    // SAFETY: `known` gives only codes that the enum has; a test goes through every code that it lets pass.
    unsafe { std::mem::transmute::<u32, cust::sys::CUresult>(known(code).cast_unsigned()) }
}

macro_rules! driver {
    ($($name:ident($($argument:ident),*);)*) => {
        mod table {
            use super::{AtomicPtr, c_void, not_loaded};
            $(
                #[allow(non_upper_case_globals)]
                pub(super) static $name: AtomicPtr<c_void> = AtomicPtr::new(not_loaded as *mut c_void);
            )*
        }

        mod call {
            use super::{Ordering, c_int, c_void, known, table};
            $(
                /// # Safety
                /// As for the driver's function of this name.
                #[allow(non_snake_case, clippy::too_many_arguments)]
                pub(super) unsafe extern "C" fn $name($($argument: usize),*) -> c_int {
                    let function = table::$name.load(Ordering::Acquire);
                    // SAFETY: the table holds the driver's function of this name, or one that ignores its arguments.
                    // Every argument of these functions is an integer or a pointer, and the C calling conventions of
                    // x86-64 and aarch64 Linux pass each of those in one register or one 8-byte stack slot.
                    let function = unsafe {
                        std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument: usize),*) -> c_int>(function)
                    };
                    // SAFETY: the caller keeps the function's contract.
                    known(unsafe { function($($argument),*) })
                }
            )*
        }

        $(
            #[cfg(target_arch = "x86_64")]
            core::arch::global_asm!(
                concat!(".globl ", stringify!($name)),
                concat!(".hidden ", stringify!($name)),
                concat!(".type ", stringify!($name), ",@function"),
                concat!(stringify!($name), ":"),
                "jmp {function}",
                function = sym call::$name
            );
            #[cfg(target_arch = "aarch64")]
            core::arch::global_asm!(
                concat!(".globl ", stringify!($name)),
                concat!(".hidden ", stringify!($name)),
                concat!(".type ", stringify!($name), ",@function"),
                concat!(stringify!($name), ":"),
                "b {function}",
                function = sym call::$name
            );
        )*

        /// Points every entry of the table into `library`, and names those that it lacks.
        fn fill(library: &Library) -> Vec<&'static str> {
            let mut missing = Vec::new();
            $(
                // SAFETY: the symbol is only stored as an address here.
                match unsafe { library.get::<*mut c_void>(concat!(stringify!($name), "\0")) } {
                    Ok(symbol) => table::$name.store(*symbol, Ordering::Release),
                    Err(_) => {
                        table::$name.store(lacking as *mut c_void, Ordering::Release);
                        missing.push(stringify!($name));
                    }
                }
            )*
            missing
        }
    };
}

driver! {
    cuInit(flags);
    cuDriverGetVersion(version);
    cuGetErrorString(code, text);
    cuDeviceGet(device, ordinal);
    cuDeviceGetCount(count);
    cuDeviceGetName(name, length, device);
    cuDeviceTotalMem_v2(bytes, device);
    cuDeviceGetAttribute(value, attribute, device);
    cuDevicePrimaryCtxRetain(context, device);
    cuDevicePrimaryCtxRelease_v2(device);
    cuCtxGetCurrent(context);
    cuCtxSetCurrent(context);
    cuCtxPushCurrent_v2(context);
    cuCtxPopCurrent_v2(context);
    cuCtxSynchronize();
    cuThreadExchangeStreamCaptureMode(mode);
    cuMemAlloc_v2(pointer, bytes);
    cuMemFree_v2(pointer);
    cuMemHostAlloc(pointer, bytes, flags);
    cuMemFreeHost(pointer);
    cuMemHostRegister_v2(pointer, bytes, flags);
    cuMemHostUnregister(pointer);
    cuMemHostGetDevicePointer_v2(device, host, flags);
    cuMemcpyHtoDAsync_v2(to, from, bytes, stream);
    cuMemcpyDtoHAsync_v2(to, from, bytes, stream);
    cuMemcpyDtoDAsync_v2(to, from, bytes, stream);
    cuStreamCreateWithPriority(stream, flags, priority);
    cuStreamDestroy_v2(stream);
    cuStreamSynchronize(stream);
    cuStreamIsCapturing(stream, status);
    cuStreamWaitEvent(stream, event, flags);
    cuEventCreate(event, flags);
    cuEventDestroy_v2(event);
    cuEventRecord(event, stream);
    cuEventQuery(event);
    cuEventSynchronize(event);
    cuModuleLoadDataEx(module, image, count, options, values);
    cuModuleUnload(module);
    cuModuleGetFunction(function, module, name);
    cuLaunchKernel(function, gx, gy, gz, bx, by, bz, shared, stream, arguments, extra);
}

/// Functions newer than `cust`, which a driver may lack.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Newer {
    /// `cuMemcpyBatchAsync_v2`, of CUDA 13.0.
    pub(crate) batch_copy: Option<BatchCopy>,
    /// `cuMemcpyBatchAsync`, of CUDA 12.8: it has one more argument, an index for errors.
    pub(crate) batch_copy_12: Option<BatchCopy12>,
}

/// `cuMemcpyBatchAsync_v2(dsts, srcs, sizes, count, attributes, attribute_indices, attribute_count, stream)`.
pub(crate) type BatchCopy = unsafe extern "C" fn(
    *const u64,
    *const u64,
    *const usize,
    usize,
    *const c_void,
    *const usize,
    usize,
    *mut c_void,
) -> c_int;

/// `cuMemcpyBatchAsync(dsts, srcs, sizes, count, attributes, attribute_indices, attribute_count, failed, stream)`.
pub(crate) type BatchCopy12 = unsafe extern "C" fn(
    *const u64,
    *const u64,
    *const usize,
    usize,
    *const c_void,
    *const usize,
    usize,
    *mut usize,
    *mut c_void,
) -> c_int;

static LOADED: OnceLock<Newer> = OnceLock::new();
static LOADING: Mutex<()> = Mutex::new(());

/// Binds the driver in `library`, which stays loaded. The first library that loads is the process's driver; later calls
/// return at once. A failed load may be tried again.
pub(crate) fn load(library: &Path) -> Result<Newer, Missing> {
    if let Some(newer) = LOADED.get() {
        return Ok(*newer);
    }
    let _one = LOADING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(newer) = LOADED.get() {
        return Ok(*newer);
    }
    let opened = driver::open(library)?;
    if let Some(&symbol) = fill(&opened).first() {
        return Err(Missing::Symbol { library: library.to_owned(), symbol });
    }
    // SAFETY: the types are the signatures that CUDA's driver API documents for these names.
    let newer = unsafe {
        Newer {
            batch_copy: opened.get("cuMemcpyBatchAsync_v2\0").ok().map(|symbol| *symbol),
            batch_copy_12: opened.get("cuMemcpyBatchAsync\0").ok().map(|symbol| *symbol),
        }
    };
    std::mem::forget(opened);
    Ok(*LOADED.get_or_init(|| newer))
}

#[cfg(test)]
mod tests {
    use super::known;

    #[test]
    fn a_code_newer_than_the_enum_becomes_unknown() {
        assert_eq!([0, 2, 600, 911, 999].map(known), [0, 2, 600, 911, 999]);
        assert_eq!([-1, 9, 36, 203, 225, 706, 721, 810, 912, 5000].map(known), [999; 10]);
    }
}
