//! State that belongs to one process. A child made by `fork` has the memory of its parent but none of its threads: locks may be held
//! for ever, files belong to the parent. So a child never touches inherited state, not even to drop it; it makes its own.

use std::process;

/// A value of the process that made it.
pub(crate) struct Owned<T> {
    process: u32,
    value: Option<T>,
}

impl<T> Owned<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { process: process::id(), value: Some(value) }
    }

    /// The value, unless it was inherited.
    pub(crate) fn get(&self) -> Option<&T> {
        if self.process == process::id() { self.value.as_ref() } else { None }
    }

    /// The value, unless it was inherited.
    pub(crate) fn get_mut(&mut self) -> Option<&mut T> {
        if self.process == process::id() { self.value.as_mut() } else { None }
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        if self.process != process::id() {
            std::mem::forget(self.value.take());
        }
    }
}
