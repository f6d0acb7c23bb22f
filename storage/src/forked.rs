//! Values that belong to one process and are made anew after a fork.
//!
//! A forked child holds a copy of its parent's memory but none of its threads. A runtime, a pool of connections or a
//! semaphore that the child inherits looks usable and then waits forever for threads that do not exist, or writes into a
//! socket that the parent is using. So such values remember the process that made them.

use std::sync::OnceLock;

use crate::error::Result;

/// A value, the process it belongs to, and the values of the processes forked after it.
///
/// Old values are never dropped: dropping a runtime joins its threads, which in the child would wait forever. A process
/// forks few times in its life, so what stays behind is a few kilobytes.
#[derive(Debug)]
pub(crate) struct Forked<T> {
    pid: u32,
    value: T,
    next: OnceLock<Box<Forked<T>>>,
}

impl<T> Forked<T> {
    /// A value of this process.
    pub(crate) fn new(value: T) -> Self {
        Self { pid: std::process::id(), value, next: OnceLock::new() }
    }

    /// This process's value, made by `make` if the newest one belongs to a process that this one was forked from.
    pub(crate) fn get(&self, make: impl FnOnce() -> Result<T>) -> Result<&T> {
        let mut newest = self;
        // Only the newest counts: an older one with our number belongs to an ancestor whose number was given out again.
        while let Some(next) = newest.next.get() {
            newest = next;
        }
        if newest.pid == std::process::id() {
            return Ok(&newest.value);
        }
        // Made before the slot is taken, so that a fork in another thread never catches the slot half-way. Threads that
        // race make one too many, and all use the one that got the slot.
        let mine = Box::new(Self::new(make()?));
        Ok(match newest.next.set(mine) {
            Ok(()) => newest.next.get().map_or(&newest.value, |n| &n.value),
            Err(spare) => {
                std::mem::forget(spare);
                newest.next.get().map_or(&newest.value, |n| &n.value)
            }
        })
    }
}

/// Notices that this process is not the one that made something.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Owner(u32);

impl Owner {
    /// This process.
    pub(crate) fn this_process() -> Self {
        Self(std::process::id())
    }

    /// Whether this is still the process that made it.
    pub(crate) fn is_here(self) -> bool {
        self.0 == std::process::id()
    }
}
