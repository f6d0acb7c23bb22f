//! Who may send a request now.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use tokio::sync::{Semaphore, SemaphorePermit};

use super::knee::Knee;
use crate::options::Concurrency;

/// Lets so many requests through at once, a number that may change while they are under way.
#[derive(Debug)]
pub(crate) struct Gate {
    turns: Semaphore,
    limit: AtomicUsize,
    /// Turns to take away once they are given back.
    owed: AtomicUsize,
    waiting: AtomicUsize,
    knee: Option<Mutex<Knee>>,
    since: Instant,
}

/// A turn to send one request.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    gate: &'a Gate,
    permit: Option<SemaphorePermit<'a>>,
}

impl Gate {
    pub(crate) fn new(concurrency: Concurrency) -> Self {
        let knee = match concurrency {
            Concurrency::Fixed(_) => None,
            Concurrency::Auto => Some(Mutex::new(Knee::new(Concurrency::BOUNDS, concurrency.most()))),
        };
        let limit = concurrency.most();
        Self {
            turns: Semaphore::new(limit),
            limit: AtomicUsize::new(limit),
            owed: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            knee,
            since: Instant::now(),
        }
    }

    pub(crate) async fn turn(&self) -> Turn<'_> {
        if let Ok(permit) = self.turns.try_acquire() {
            return Turn { gate: self, permit: Some(permit) };
        }
        let _waits = Waits::new(&self.waiting);
        // The semaphore is never closed.
        Turn { gate: self, permit: self.turns.acquire().await.ok() }
    }

    /// Takes in that a request brought so many bytes.
    pub(crate) fn ended(&self, bytes: u64) {
        let Some(knee) = &self.knee else { return };
        let wanted = self.waiting.load(Ordering::Relaxed) > 0;
        let mut knee = knee.lock().unwrap_or_else(PoisonError::into_inner);
        if knee.ended(self.since.elapsed().as_secs_f64(), bytes, wanted) {
            self.set(knee.limit());
        }
    }

    /// Takes in that the store asks for patience.
    pub(crate) fn throttled(&self) {
        let Some(knee) = &self.knee else { return };
        let mut knee = knee.lock().unwrap_or_else(PoisonError::into_inner);
        knee.throttled();
        self.set(knee.limit());
    }

    /// Only called with the knee locked.
    fn set(&self, limit: usize) {
        let old = self.limit.swap(limit, Ordering::Relaxed);
        if limit < old {
            let gone = self.turns.forget_permits(old - limit);
            self.owed.fetch_add(old - limit - gone, Ordering::Relaxed);
            return;
        }
        let mut more = limit - old;
        // What is still owed is not given first and taken then.
        let _ = self.owed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |owed| {
            more = (limit - old).saturating_sub(owed);
            Some(owed.saturating_sub(limit - old))
        });
        self.turns.add_permits(more);
    }

    /// How many requests may be in flight.
    pub(crate) fn limit(&self) -> usize {
        self.limit.load(Ordering::Relaxed)
    }

    /// How many are in flight.
    pub(crate) fn in_flight(&self) -> usize {
        let all = self.limit() + self.owed.load(Ordering::Relaxed);
        all.saturating_sub(self.turns.available_permits())
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let owes = |owed: usize| owed.checked_sub(1);
        let owed = &self.gate.owed;
        if owed.load(Ordering::Relaxed) > 0
            && owed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, owes).is_ok()
            && let Some(permit) = self.permit.take()
        {
            permit.forget();
        }
    }
}

/// Counts one that waits, until it is dropped, however it ends.
struct Waits<'a>(&'a AtomicUsize);

impl<'a> Waits<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_number_that_shrinks_and_grows_under_way_is_kept_exactly() {
        let gate = Gate::new(Concurrency::Fixed(8));
        let mut held = Vec::new();
        for _ in 0..6 {
            held.push(gate.turn().await);
        }
        gate.set(3);
        assert_eq!((gate.limit(), gate.in_flight(), gate.turns.available_permits()), (3, 6, 0));
        held.truncate(3);
        assert_eq!((gate.in_flight(), gate.turns.available_permits()), (3, 0));
        gate.set(2);
        gate.set(5);
        assert_eq!((gate.in_flight(), gate.turns.available_permits()), (3, 2));
        held.clear();
        assert_eq!((gate.in_flight(), gate.turns.available_permits()), (0, 5));
    }
}
