//! Tells a forked child from the process that initialised CUDA.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::Missing;

/// The process in which this crate called `cuInit`; 0 before.
static INITIALISED_IN: AtomicU32 = AtomicU32::new(0);

/// Refuses in a child forked after [`note_initialised`].
pub(crate) fn check() -> Result<(), Missing> {
    usable(INITIALISED_IN.load(Ordering::Acquire), std::process::id())
}

/// Remembers that this process is about to initialise CUDA.
pub(crate) fn note_initialised() {
    INITIALISED_IN.store(std::process::id(), Ordering::Release);
}

fn usable(initialised_in: u32, here: u32) -> Result<(), Missing> {
    if initialised_in == 0 || initialised_in == here {
        return Ok(());
    }
    Err(Missing::Forked { parent: initialised_in })
}

#[cfg(test)]
mod tests {
    use super::usable;

    #[test]
    fn only_the_process_that_initialised_cuda_may_go_on_using_it() {
        assert!(usable(0, 7).is_ok());
        assert!(usable(7, 7).is_ok());
        assert!(usable(7, 8).is_err());
    }
}
