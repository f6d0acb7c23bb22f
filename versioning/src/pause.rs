//! Waits after a race was lost or an answer was in doubt.

use std::{cell::RefCell, time::Duration};

use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};

thread_local! {
    static SEEDED: RefCell<Option<StdRng>> = const { RefCell::new(None) };
}

/// Makes the waits of this thread follow from a seed, so that a test of many actors on one thread can be run again as it was.
#[doc(hidden)]
pub fn seed_pauses(seed: u64) {
    SEEDED.set(Some(StdRng::seed_from_u64(seed)));
}

/// Waits a random time up to a bound that doubles with each attempt, from 10 ms to 10 s.
pub(crate) async fn pause(attempt: u32) {
    let bound = Duration::from_millis(10 << attempt.min(10)).min(Duration::from_secs(10));
    let seeded = SEEDED.with_borrow_mut(|random| random.as_mut().map(|random| random.random_range(0.0..1.0)));
    let share: f64 = seeded.unwrap_or_else(|| rand::rng().random_range(0.0..1.0));
    tokio::time::sleep(bound.mul_f64(share)).await;
}
