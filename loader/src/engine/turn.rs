//! Builders hand their batches over in order.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    thread::{self, Thread},
};

use crossbeam_channel::{Receiver, Sender, bounded};

/// Whose turn it is.
#[derive(Debug, Default)]
pub(crate) struct Turn(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The number that comes next.
    next: u64,
    /// Whether nobody has a turn any more.
    ended: bool,
    /// Who waits for which number to come next. They are woken one by one: of many that wait, most would wait again.
    waiting: Vec<(u64, Thread)>,
}

impl Turn {
    /// Waits for the turn of `number`; false if it never comes.
    pub(crate) fn wait(&self, number: u64) -> bool {
        self.near(number, 1)
    }

    /// Whether it is the turn of `number`, or was.
    pub(crate) fn has_come(&self, number: u64) -> bool {
        self.lock().next >= number
    }

    /// Whether nobody has a turn any more.
    pub(crate) fn is_over(&self) -> bool {
        self.lock().ended
    }

    /// Waits until fewer than `window` turns come before that of `number`; false if that never happens.
    pub(crate) fn near(&self, number: u64, window: u64) -> bool {
        let first = (number + 1).saturating_sub(window);
        loop {
            let mut state = self.lock();
            if state.ended {
                return false;
            }
            if state.next >= first {
                return true;
            }
            let me = thread::current();
            if !state.waiting.iter().any(|(_, thread)| thread.id() == me.id()) {
                state.waiting.push((first, me));
            }
            drop(state);
            thread::park();
        }
    }

    /// It is the turn of `number`, unless all turns have ended.
    pub(crate) fn pass(&self, number: u64) {
        let mut state = self.lock();
        state.next = number;
        wake(&mut state, |first| first <= number);
    }

    /// Nobody has a turn any more.
    pub(crate) fn end(&self) {
        let mut state = self.lock();
        state.ended = true;
        wake(&mut state, |_| true);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn wake(state: &mut State, whom: impl Fn(u64) -> bool) {
    state.waiting.retain(|(first, thread)| {
        let wakes = whom(*first);
        if wakes {
            thread.unpark();
        }
        !wakes
    });
}

/// Lets some in at once, and the others wait.
#[derive(Debug)]
pub(crate) struct Gate {
    enter: Sender<()>,
    leave: Receiver<()>,
}

impl Gate {
    pub(crate) fn new(most: usize) -> Self {
        let (enter, leave) = bounded(most);
        Self { enter, leave }
    }

    /// Waits until there is room, and takes it until what is given is dropped.
    pub(crate) fn enter(&self) -> impl Drop + '_ {
        // The other end is ours.
        let _ = self.enter.send(());
        Inside(self)
    }
}

struct Inside<'a>(&'a Gate);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        let _ = self.0.leave.try_recv();
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
    fn who_is_near_its_turn_goes_on_and_who_is_not_waits() {
        let turn = Turn::default();
        assert!(turn.near(0, 1) && turn.near(1, 2));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| turn.near(2, 2));
            turn.pass(1);
            assert!(waiting.join().unwrap());
            assert!(turn.has_come(1) && !turn.has_come(2) && !turn.is_over());
            let ended = scope.spawn(|| turn.near(9, 2));
            turn.end();
            assert!(turn.is_over());
            assert!(!ended.join().unwrap());
        });
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
