//! Host memory that devices may read.
#![allow(unsafe_code)]

use std::{
    collections::BTreeMap,
    ffi::c_void,
    sync::{Arc, Mutex, PoisonError},
};

use cust::sys;

use super::context::{Context, check};
use crate::Result;

const PORTABLE: u32 = 1;
const DEVICE_MAP: u32 = 2;
const READ_ONLY: u32 = 8;
const PAGE: usize = 4096;

/// How often each range of pages is registered here. The driver registers one only once, for all devices of the process.
static REGISTERED: Mutex<BTreeMap<(usize, usize), usize>> = Mutex::new(BTreeMap::new());

/// Host memory registered with the driver: pinned, and mapped into a device's address space.
#[derive(Debug)]
pub(crate) struct Registered {
    pages: (usize, usize),
    /// What to add to a host address to get the device's.
    shift: u64,
    context: Arc<Context>,
}

/// Registers `memory`, which devices only read.
///
/// # Safety
/// The pages that `memory` touches stay mapped and readable while the value lives.
pub(crate) unsafe fn register(context: &Arc<Context>, memory: &[u8]) -> Result<Registered> {
    let first = memory.as_ptr() as usize;
    let start = first - first % PAGE;
    let pages = (start, (first + memory.len()).next_multiple_of(PAGE) - start);
    let pointer = start as *mut c_void;
    let _entered = context.enter()?;
    {
        let mut registered = REGISTERED.lock().unwrap_or_else(PoisonError::into_inner);
        let count = registered.entry(pages).or_default();
        if *count == 0 {
            let read_only = if context.read_only_registration() { READ_ONLY } else { 0 };
            // SAFETY: the pages are mapped, as the caller promises; the driver pins them and writes nothing.
            let code = unsafe { sys::cuMemHostRegister_v2(pointer, pages.1, PORTABLE | DEVICE_MAP | read_only) };
            if let Err(refused) = check("cuMemHostRegister", code) {
                registered.remove(&pages);
                return Err(refused);
            }
        }
        *count += 1;
    }
    let mut registered = Registered { pages, shift: 0, context: Arc::clone(context) };
    let mut device = 0_u64;
    // SAFETY: the memory is registered as mapped, on all devices; the function writes one address.
    check("cuMemHostGetDevicePointer", unsafe { sys::cuMemHostGetDevicePointer_v2(&raw mut device, pointer, 0) })?;
    registered.shift = device.wrapping_sub(start as u64);
    Ok(registered)
}

impl Registered {
    /// The address at which a device reads what the host has at `pointer`.
    pub(crate) fn device_address(&self, pointer: *const u8) -> u64 {
        (pointer as u64).wrapping_add(self.shift)
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let Ok(_entered) = self.context.enter() else { return };
        let mut registered = REGISTERED.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(count) = registered.get_mut(&self.pages) else { return };
        *count -= 1;
        if *count == 0 {
            registered.remove(&self.pages);
            // SAFETY: `register` registered these pages, and nobody else has them; the driver waits for what reads them.
            let _ = unsafe { sys::cuMemHostUnregister(self.pages.0 as *mut c_void) };
        }
    }
}
