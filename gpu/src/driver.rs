//! The few functions of the CUDA driver that discovery calls, bound at run time.
#![allow(unsafe_code)]

use std::{
    ffi::{CStr, c_char, c_int, c_uint},
    path::{Path, PathBuf},
    ptr,
};

use libloading::Library;

use crate::{Device, Missing};

const COMPUTE_CAPABILITY_MAJOR: c_int = 75;
const COMPUTE_CAPABILITY_MINOR: c_int = 76;

type Code = c_int;
type Init = unsafe extern "system" fn(c_uint) -> Code;
type Number = unsafe extern "system" fn(*mut c_int) -> Code;
type DeviceGet = unsafe extern "system" fn(*mut c_int, c_int) -> Code;
type DeviceName = unsafe extern "system" fn(*mut c_char, c_int, c_int) -> Code;
type DeviceAttribute = unsafe extern "system" fn(*mut c_int, c_int, c_int) -> Code;
type DeviceMemory = unsafe extern "system" fn(*mut usize, c_int) -> Code;
type ErrorString = unsafe extern "system" fn(Code, *mut *const c_char) -> Code;

/// Opens the driver's library.
pub(crate) fn open(library: &Path) -> Result<Library, Missing> {
    // SAFETY: opening a library runs its initialisers. The caller names a CUDA driver, and loading one has no
    // preconditions; it starts nothing before `cuInit`.
    unsafe { Library::new(library) }
        .map_err(|error| Missing::Library { library: library.to_owned(), reason: describe(&error) })
}

/// An open driver. Its library is never unloaded: a driver that has started threads can't be.
pub(crate) struct Api {
    init: Init,
    version: Number,
    count: Number,
    get: DeviceGet,
    name: DeviceName,
    attribute: DeviceAttribute,
    memory: DeviceMemory,
    error_string: Option<ErrorString>,
}

impl Api {
    pub(crate) fn open(library: &Path) -> Result<Self, Missing> {
        let opened = open(library)?;
        let api = Symbols { opened: &opened, path: library.to_owned() }.bind();
        std::mem::forget(opened);
        api
    }

    pub(crate) fn init(&self) -> Result<(), Missing> {
        // SAFETY: `cuInit` takes flags that must be 0, and may be called again.
        self.check("cuInit", unsafe { (self.init)(0) })
    }

    pub(crate) fn version(&self) -> Result<(u32, u32), Missing> {
        let mut version = 0;
        // SAFETY: the function writes one int through the pointer, which is to a live one.
        self.check("cuDriverGetVersion", unsafe { (self.version)(&raw mut version) })?;
        let version = version.max(0).cast_unsigned();
        Ok((version / 1000, version % 1000 / 10))
    }

    pub(crate) fn device_count(&self) -> Result<u32, Missing> {
        let mut count = 0;
        // SAFETY: as in `version`.
        self.check("cuDeviceGetCount", unsafe { (self.count)(&raw mut count) })?;
        Ok(count.max(0).cast_unsigned())
    }

    pub(crate) fn device(&self, ordinal: u32) -> Result<Device, Missing> {
        let call = |function: &str| format!("{function} (device {ordinal})");
        let mut device = 0;
        // SAFETY: the function writes one int, the device's handle; `ordinal` is below the count, which is an int.
        self.check(call("cuDeviceGet"), unsafe { (self.get)(&raw mut device, ordinal.cast_signed()) })?;

        let mut name = [0_u8; 256];
        // SAFETY: the function writes at most as many bytes as it is told, which is the buffer's length. The handle is
        // one that the driver gave.
        let code = unsafe { (self.name)(name.as_mut_ptr().cast(), name.len() as c_int, device) };
        self.check(call("cuDeviceGetName"), code)?;

        let attribute = |which| {
            let mut value: c_int = 0;
            // SAFETY: the function writes one int; the handle is the driver's own.
            self.check(call("cuDeviceGetAttribute"), unsafe { (self.attribute)(&raw mut value, which, device) })?;
            Ok(value.max(0).cast_unsigned())
        };
        let compute = (attribute(COMPUTE_CAPABILITY_MAJOR)?, attribute(COMPUTE_CAPABILITY_MINOR)?);

        let mut memory = 0_usize;
        // SAFETY: the function writes one size_t; the handle is the driver's own.
        self.check(call("cuDeviceTotalMem"), unsafe { (self.memory)(&raw mut memory, device) })?;

        let name = CStr::from_bytes_until_nul(&name).map(|name| name.to_string_lossy().into_owned());
        Ok(Device { ordinal, name: name.unwrap_or_default(), compute, memory: memory as u64 })
    }

    fn check(&self, call: impl Into<String>, code: Code) -> Result<(), Missing> {
        if code == 0 { Ok(()) } else { Err(Missing::Call { call: call.into(), code, reason: self.explain(code) }) }
    }

    fn explain(&self, code: Code) -> String {
        let unknown = || "no further explanation".to_owned();
        let Some(error_string) = self.error_string else { return unknown() };
        let mut text: *const c_char = ptr::null();
        // SAFETY: the function writes one pointer: to a string, or null for a code that it doesn't know.
        let found = unsafe { error_string(code, &raw mut text) };
        if found != 0 || text.is_null() {
            return unknown();
        }
        // SAFETY: the string is NUL-terminated, and constant data of a library that is never unloaded.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }
}

struct Symbols<'a> {
    opened: &'a Library,
    path: PathBuf,
}

impl Symbols<'_> {
    fn bind(&self) -> Result<Api, Missing> {
        // SAFETY: each type is the signature that CUDA's driver API documents for that name, with its calling
        // convention. `_v2` is the form with a size_t, there since CUDA 3.2. The pointers outlive `opened`, which `open`
        // never closes.
        unsafe {
            Ok(Api {
                init: self.get("cuInit")?,
                version: self.get("cuDriverGetVersion")?,
                count: self.get("cuDeviceGetCount")?,
                get: self.get("cuDeviceGet")?,
                name: self.get("cuDeviceGetName")?,
                attribute: self.get("cuDeviceGetAttribute")?,
                memory: self.get("cuDeviceTotalMem_v2")?,
                error_string: self.get("cuGetErrorString").ok(),
            })
        }
    }

    /// # Safety
    /// `F` must be the function pointer type of the symbol.
    unsafe fn get<F: Copy>(&self, symbol: &'static str) -> Result<F, Missing> {
        // SAFETY: the caller vouches for the type.
        unsafe { self.opened.get::<F>(symbol) }
            .map(|found| *found)
            .map_err(|_| Missing::Symbol { library: self.path.clone(), symbol })
    }
}

/// The linker's own words, which the error keeps as its source.
fn describe(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}
