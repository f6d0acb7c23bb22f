//! Work done by several threads whose results come in the order of the items.

use std::{
    collections::BTreeMap,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    thread,
};

/// How much may go on at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Threads that work.
    pub(crate) threads: usize,
    /// The weight of the items begun and not yet taken by the sink; one item may always be begun.
    pub(crate) weight: u64,
}

/// Does `work` on each of `items` and hands the results to `sink`, on this thread and in the order of the items.
///
/// `work` gets memory of its thread's own, made by `Default`. An error of `sink` ends everything.
///
/// # Errors
/// What `sink` reports.
pub(crate) fn in_order<T: Sync, S: Default, R: Send, E>(
    items: &[T],
    limits: Limits,
    weigh: impl Fn(&T) -> u64 + Sync,
    work: impl Fn(&mut S, &T) -> R + Sync,
    mut sink: impl FnMut(&T, R) -> Result<(), E>,
) -> Result<(), E> {
    let queue = Queue::new(limits.weight);
    thread::scope(|scope| {
        let _stop = StopOnDrop(&queue);
        for _ in 0..limits.threads.clamp(1, items.len().max(1)) {
            scope.spawn(|| {
                let _stop = StopOnPanic(&queue);
                let mut memory = S::default();
                while let Some(index) = queue.begin(items, &weigh) {
                    queue.finish(index, work(&mut memory, &items[index]));
                }
            });
        }
        for (index, item) in items.iter().enumerate() {
            // Without a result a worker panicked: leaving the scope passes its panic on.
            let Some(result) = queue.take(index) else { break };
            sink(item, result)?;
            queue.release(weigh(item));
        }
        Ok(())
    })
}

struct Queue<R> {
    limit: u64,
    state: Mutex<State<R>>,
    /// There is room to begin another item.
    room: Condvar,
    /// Another item is done.
    ready: Condvar,
}

struct State<R> {
    begun: usize,
    weight: u64,
    done: BTreeMap<usize, R>,
    stopped: bool,
}

impl<R> Queue<R> {
    fn new(limit: u64) -> Self {
        let state = State { begun: 0, weight: 0, done: BTreeMap::new(), stopped: false };
        Self { limit, state: Mutex::new(state), room: Condvar::new(), ready: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State<R>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next item, once there is room for it.
    fn begin<T>(&self, items: &[T], weigh: &impl Fn(&T) -> u64) -> Option<usize> {
        let full = |state: &mut State<R>| {
            let next = items.get(state.begun);
            let over = next.is_some_and(|item| state.weight + weigh(item) > self.limit);
            !state.stopped && over && state.weight > 0
        };
        let mut state = self.room.wait_while(self.lock(), full).unwrap_or_else(PoisonError::into_inner);
        if state.stopped {
            return None;
        }
        let item = items.get(state.begun)?;
        state.weight += weigh(item);
        state.begun += 1;
        Some(state.begun - 1)
    }

    fn finish(&self, index: usize, result: R) {
        self.lock().done.insert(index, result);
        self.ready.notify_one();
    }

    fn take(&self, index: usize) -> Option<R> {
        let missing = |state: &mut State<R>| !state.stopped && !state.done.contains_key(&index);
        let mut state = self.ready.wait_while(self.lock(), missing).unwrap_or_else(PoisonError::into_inner);
        state.done.remove(&index)
    }

    fn release(&self, weight: u64) {
        self.lock().weight -= weight;
        self.room.notify_all();
    }

    fn stop(&self) {
        self.lock().stopped = true;
        self.room.notify_all();
        self.ready.notify_all();
    }
}

struct StopOnDrop<'a, R>(&'a Queue<R>);

impl<R> Drop for StopOnDrop<'_, R> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

struct StopOnPanic<'a, R>(&'a Queue<R>);

impl<R> Drop for StopOnPanic<'_, R> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.stop();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::{Limits, in_order};
    use std::{
        sync::atomic::{AtomicU64, Ordering},
        thread,
        time::Duration,
    };

    fn run(threads: usize, weight: u64, items: &[u64], fail_at: Option<u64>) -> (Vec<u64>, u64, Result<(), u64>) {
        let (now, most) = (AtomicU64::new(0), AtomicU64::new(0));
        let mut seen = Vec::new();
        let result = in_order(
            items,
            Limits { threads, weight },
            |item| *item,
            |(): &mut (), item| {
                most.fetch_max(now.fetch_add(*item, Ordering::SeqCst) + item, Ordering::SeqCst);
                thread::sleep(Duration::from_micros(item * 7919 % 200));
                *item
            },
            |item, result| {
                assert_eq!(*item, result);
                now.fetch_sub(*item, Ordering::SeqCst);
                if fail_at == Some(*item) {
                    return Err(*item);
                }
                seen.push(result);
                Ok(())
            },
        );
        (seen, most.into_inner(), result)
    }

    #[test]
    fn results_come_in_the_order_of_the_items_whatever_the_threads() {
        let items: Vec<u64> = (1..200).collect();
        for threads in [1, 2, 7] {
            let (seen, most, result) = run(threads, 500, &items, None);
            assert!(result.is_ok());
            assert_eq!(seen, items);
            assert!(most <= 500, "{most} at once");
        }
    }

    #[test]
    fn an_item_over_the_limit_goes_alone() {
        let (seen, most, _) = run(4, 10, &[3, 100, 4, 100, 5], None);
        assert_eq!(seen, [3, 100, 4, 100, 5]);
        assert_eq!(most, 100);
    }

    #[test]
    fn an_error_of_the_sink_ends_everything() {
        let items: Vec<u64> = (1..10_000).collect();
        let (seen, _, result) = run(3, 100, &items, Some(20));
        assert_eq!(result, Err(20));
        assert_eq!(seen.len(), 19);
    }

    #[test]
    fn no_items_are_no_work() {
        assert_eq!(run(2, 10, &[], None).0, [0_u64; 0]);
    }

    #[test]
    fn a_panic_of_a_worker_is_passed_on_and_nobody_waits_for_ever() {
        let items = [1_u64, 2, 3, 4];
        let panicked = thread::spawn(move || {
            let work = |(): &mut (), item: &u64| if *item == 2 { panic!("on purpose") } else { *item };
            let limits = Limits { threads: 2, weight: 1 };
            in_order(&items, limits, |_| 1, work, |_, _| Ok::<_, ()>(()))
        });
        assert!(panicked.join().is_err());
    }
}
