//! Builders hand their batches over in order.

use std::sync::{Condvar, Mutex, PoisonError};

/// Whose turn it is.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    /// The step that comes next.
    next: Mutex<Next>,
    changed: Condvar,
}

#[derive(Debug)]
enum Next {
    Step(u64),
    Ended,
}

impl Default for Next {
    fn default() -> Self {
        Self::Step(0)
    }
}

impl Turn {
    /// Waits for the turn of `step`; false if it never comes.
    pub(crate) fn wait(&self, step: u64) -> bool {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match *next {
                Next::Ended => return false,
                Next::Step(now) if now == step => return true,
                Next::Step(_) => next = self.changed.wait(next).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// It is the turn of `step`, unless all turns have ended.
    pub(crate) fn pass(&self, step: u64) {
        self.set(Next::Step(step));
    }

    /// Nobody has a turn any more.
    pub(crate) fn end(&self) {
        self.set(Next::Ended);
    }

    fn set(&self, value: Next) {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        if !matches!(*next, Next::Ended) {
            *next = value;
        }
        self.changed.notify_all();
    }
}

/// Ends all turns when its builder panics, so that the others don't wait for it.
#[derive(Debug)]
pub(crate) struct EndOnPanic<'a>(pub(crate) &'a Turn);

impl Drop for EndOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.end();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn turns_come_in_order_whoever_asks_first() {
        let turn = Turn::default();
        let order = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for step in [3, 1, 2, 0] {
                let (turn, order) = (&turn, &order);
                scope.spawn(move || {
                    assert!(turn.wait(step));
                    order.lock().unwrap().push(step);
                    turn.pass(step + 1);
                });
            }
        });
        assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3]);
    }

    #[test]
    fn nobody_waits_for_a_builder_that_died() {
        let turn = Turn::default();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| turn.wait(1));
            let died = scope.spawn(|| {
                let _guard = EndOnPanic(&turn);
                assert!(turn.wait(1_000_000), "never comes");
            });
            let killer = scope.spawn(|| {
                let _guard = EndOnPanic(&turn);
                std::panic::resume_unwind(Box::new("died"));
            });
            assert!(killer.join().is_err());
            assert!(!waiting.join().unwrap());
            assert!(died.join().is_err());
        });
    }
}
