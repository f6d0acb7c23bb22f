//! The stand-in driver: built once for the process, used by one test at a time.
#![allow(unsafe_code)]

use std::{
    ffi::c_void,
    path::{Path, PathBuf},
    process::Command,
    ptr,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use forebay_gpu::{CudaDevice, DeviceBuffer, Options, Region};
use libloading::Library;

/// What the stand-in can be told, and counts; in the order of `mock.h`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Setting {
    DelayUs,
    RefuseRegistration,
    FailAllocation,
    ForgetWaits,
    ForgetSynchronize,
    Capturing,
    Violations,
    DeviceBytes,
    PinnedBytes,
    Registrations,
    Streams,
    Events,
    Launches,
    BatchCopies,
    Copies,
    Contexts,
}

/// The variable that picks another form of the driver in a process of its own.
pub(crate) const VARIANT: &str = "FOREBAY_GPU_TEST_DRIVER";

static LIBRARY: OnceLock<(tempfile::TempDir, PathBuf, Library)> = OnceLock::new();
static ONE: Mutex<()> = Mutex::new(());

fn library() -> &'static (tempfile::TempDir, PathBuf, Library) {
    LIBRARY.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("libcuda.so.1");
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/driver");
        let mut compile = Command::new("cc");
        compile.args(["-shared", "-fPIC", "-O1", "-pthread", "-ffp-contract=off", "-o"]).arg(&path);
        compile.args(std::env::var(VARIANT).ok().map(|variant| format!("-D{variant}")));
        compile.args(["stream.c", "memory.c", "kernels.c", "device.c"].map(|name| sources.join(name)));
        assert!(compile.status().expect("a C compiler named cc").success());
        // SAFETY: the stand-in has no initialisers.
        let library = unsafe { Library::new(&path) }.unwrap();
        (folder, path, library)
    })
}

/// The stand-in driver, for one test. Dropping it checks that no work touched what it must not.
pub(crate) struct Mock {
    _one: MutexGuard<'static, ()>,
    forgiving: bool,
}

impl Mock {
    pub(crate) fn start() -> Self {
        let one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let mock = Self { _one: one, forgiving: false };
        mock.reset();
        mock
    }

    /// Lets violations pass: for tests of planted mistakes.
    pub(crate) fn forgive(&mut self) {
        self.forgiving = true;
    }

    fn reset(&self) {
        self.finish();
        for which in [
            Setting::DelayUs,
            Setting::RefuseRegistration,
            Setting::FailAllocation,
            Setting::ForgetWaits,
            Setting::ForgetSynchronize,
            Setting::Capturing,
            Setting::Violations,
            Setting::Launches,
            Setting::BatchCopies,
            Setting::Copies,
        ] {
            self.set(which, 0);
        }
    }

    pub(crate) fn set(&self, which: Setting, value: i64) {
        // SAFETY: the function's type is the one in `memory.c`; so below.
        unsafe { library().2.get::<unsafe extern "C" fn(i32, i64)>("mock_set").unwrap()(which as i32, value) }
    }

    pub(crate) fn get(&self, which: Setting) -> i64 {
        // SAFETY: as above.
        unsafe { library().2.get::<unsafe extern "C" fn(i32) -> i64>("mock_get").unwrap()(which as i32) }
    }

    /// Waits for all work of all streams.
    pub(crate) fn finish(&self) {
        // SAFETY: as above.
        unsafe { library().2.get::<unsafe extern "C" fn()>("mock_finish").unwrap()() }
    }

    /// How many contexts this thread has pushed.
    pub(crate) fn depth(&self) -> i32 {
        // SAFETY: as above.
        unsafe { library().2.get::<unsafe extern "C" fn() -> i32>("mock_depth").unwrap()() }
    }

    pub(crate) fn options(&self) -> Options {
        Options { library: library().1.clone(), device_bytes: 64 << 20, threads: 2, ..Options::default() }
    }

    pub(crate) fn device(&self) -> CudaDevice {
        CudaDevice::open(0, self.options()).unwrap()
    }

    /// A consumer's stream: `flags` of 1 make it one that doesn't wait for the legacy stream.
    pub(crate) fn stream(&self, flags: u32) -> usize {
        let mut stream = ptr::null_mut();
        type Create = unsafe extern "C" fn(*mut *mut c_void, u32, i32) -> i32;
        // SAFETY: the function's type is the driver's.
        let create = unsafe { library().2.get::<Create>("cuStreamCreateWithPriority").unwrap() };
        // SAFETY: it writes one handle.
        assert_eq!(unsafe { create(&raw mut stream, flags, 0) }, 0);
        stream as usize
    }

    pub(crate) fn destroy(&self, stream: usize) {
        // SAFETY: the function's type is the driver's, and the stream one of `stream`'s.
        let code =
            unsafe { library().2.get::<unsafe extern "C" fn(usize) -> i32>("cuStreamDestroy_v2").unwrap()(stream) };
        assert_eq!(code, 0);
    }

    /// Asks `stream` to read `buffer`, as a consumer's kernel would: later.
    pub(crate) fn read_later(&self, buffer: &DeviceBuffer, stream: usize) -> Reading {
        let mut bytes = vec![0_u8; buffer.len()].into_boxed_slice();
        type Copy = unsafe extern "C" fn(*mut u8, u64, usize, usize) -> i32;
        // SAFETY: the function's type is the driver's.
        let copy = unsafe { library().2.get::<Copy>("cuMemcpyDtoHAsync_v2").unwrap() };
        // SAFETY: the box stays where it is until `bytes`, which waits for the stream.
        let _ = unsafe { copy(bytes.as_mut_ptr(), buffer.address().unwrap(), buffer.len(), stream) };
        Reading { bytes }
    }
}

/// Device memory of a consumer's own.
pub(crate) struct Target {
    address: u64,
    length: usize,
}

impl Target {
    pub(crate) fn new(length: usize) -> Self {
        let mut address = 0;
        type Allocate = unsafe extern "C" fn(*mut u64, usize) -> i32;
        // SAFETY: the function's type is the driver's.
        let allocate = unsafe { library().2.get::<Allocate>("cuMemAlloc_v2").unwrap() };
        // SAFETY: it writes one address.
        assert_eq!(unsafe { allocate(&raw mut address, length.max(1)) }, 0);
        Self { address, length }
    }

    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    /// The bytes, which for the stand-in are host memory; only after [`Mock::finish`].
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the memory is that long and this value's own.
        unsafe { std::slice::from_raw_parts(self.address as *const u8, self.length) }
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // SAFETY: the function's type is the driver's, and the memory this value's own.
        let code =
            unsafe { library().2.get::<unsafe extern "C" fn(u64) -> i32>("cuMemFree_v2").unwrap()(self.address) };
        assert_eq!(code, 0);
    }
}

/// Bytes that a stream will have read.
pub(crate) struct Reading {
    bytes: Box<[u8]>,
}

impl Reading {
    /// The bytes; only after [`Mock::finish`].
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Mock {
    fn drop(&mut self) {
        let violations = self.get(Setting::Violations);
        self.reset();
        if !self.forgiving && !std::thread::panicking() {
            assert_eq!(violations, 0, "work touched memory that it must not");
        }
    }
}

/// Page-aligned memory as a mapped file has it.
pub(crate) fn mapped(bytes: &[u8]) -> Arc<Pages> {
    let mut pages = vec![Page([0; 4096]); bytes.len().div_ceil(4096)];
    for (page, bytes) in pages.iter_mut().zip(bytes.chunks(4096)) {
        page.0[..bytes.len()].copy_from_slice(bytes);
    }
    Arc::new(Pages { pages, length: bytes.len() })
}

#[repr(C, align(4096))]
#[derive(Clone, Copy)]
struct Page([u8; 4096]);

pub(crate) struct Pages {
    pages: Vec<Page>,
    length: usize,
}

impl Pages {
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the pages are one behind the other, and at least that long.
        unsafe { std::slice::from_raw_parts(self.pages.as_ptr().cast(), self.length) }
    }
}

pub(crate) fn region(device: &CudaDevice, pages: &Arc<Pages>) -> Region {
    // SAFETY: the pages never change, and live as long as the `Arc` that goes along.
    unsafe { device.region(pages.bytes(), pages.clone()) }.unwrap()
}
