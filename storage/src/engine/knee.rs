//! How many requests at once: finds the knee where more of them bring no more.
//!
//! A store answers n requests at once n times as fast as one, up to a point; beyond it they only wait for each other, in
//! the store, on the link or in this process. [`Knee`] climbs: it measures the rate at a number, tries a quarter more or
//! a fifth less for a while, and stays with what was worth it. More requests must bring a third of what they would bring
//! below the knee; fewer must cost next to nothing. Pure: time and sizes are arguments.

use std::ops::RangeInclusive;

/// The bytes that a request counts for beside its own: what it costs that does not grow with its size.
const OVERHEAD: u64 = 64 << 10;

/// More requests must raise the rate by this factor: a third of the quarter that is tried.
const WORTH: f64 = 1.08;

/// Fewer requests must keep this part of the rate.
const KEPT: f64 = 0.95;

/// How many windows a number that no try has improved is kept before the next try.
const REST: u32 = 8;

/// The shortest window, in seconds.
const WINDOW: f64 = 0.1;

/// The number of requests at once, and how well it went.
#[derive(Debug)]
pub(crate) struct Knee {
    bounds: RangeInclusive<f64>,
    /// The number that was best so far.
    best: f64,
    /// The rate at the best number, from its newest window.
    rate: f64,
    phase: Phase,
    window: Window,
}

/// What the current window measures.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Phase {
    /// The best number, for so many windows more.
    Rest { left: u32, next_up: bool },
    /// A larger number.
    Up,
    /// A smaller number.
    Down,
}

#[derive(Debug, Default)]
struct Window {
    start: Option<f64>,
    work: u64,
    ended: u32,
    /// How many of them ended while others waited for their turn.
    wanted: u32,
}

impl Knee {
    pub(crate) fn new(bounds: RangeInclusive<usize>, start: usize) -> Self {
        let bounds = *bounds.start() as f64..=*bounds.end() as f64;
        let phase = Phase::Rest { left: 1, next_up: true };
        Self { bounds, best: start as f64, rate: 0.0, phase, window: Window::default() }
    }

    /// The number of requests that may be in flight now.
    pub(crate) fn limit(&self) -> usize {
        let limit = match self.phase {
            Phase::Rest { .. } => self.best,
            Phase::Up => self.best * 1.25,
            Phase::Down => self.best * 0.8,
        };
        limit.clamp(*self.bounds.start(), *self.bounds.end()).round() as usize
    }

    /// Takes in that a request ended at `now`, in seconds, having brought `bytes`, and whether others waited for a turn.
    /// True if the limit may have changed.
    pub(crate) fn ended(&mut self, now: f64, bytes: u64, wanted: bool) -> bool {
        let window = &mut self.window;
        let start = *window.start.get_or_insert(now);
        window.work += bytes + OVERHEAD;
        window.ended += 1;
        window.wanted += u32::from(wanted);
        let enough = (2 * self.limit() as u32).max(32);
        if self.window.ended < enough || now - start < WINDOW {
            return false;
        }
        let window = std::mem::take(&mut self.window);
        self.window.start = Some(now);
        // Where nobody waited, the number was not what held the rate down.
        if window.wanted * 2 < window.ended {
            self.phase = Phase::Rest { left: 1, next_up: true };
            return true;
        }
        self.measured(window.work as f64 / (now - start));
        true
    }

    fn measured(&mut self, rate: f64) {
        let tried = self.limit() as f64;
        self.phase = match self.phase {
            Phase::Rest { left: 0 | 1, next_up } => {
                self.rate = rate;
                self.tried(next_up)
            }
            Phase::Rest { left, next_up } => {
                self.rate = rate;
                Phase::Rest { left: left - 1, next_up }
            }
            Phase::Up if rate > self.rate * WORTH => {
                (self.best, self.rate) = (tried, rate);
                self.tried(true)
            }
            Phase::Up => self.tried(false),
            Phase::Down if rate > self.rate * KEPT => {
                // The rate to keep stays, so that many small losses do not add up.
                self.best = tried;
                self.rate = self.rate.max(rate);
                self.tried(false)
            }
            Phase::Down => Phase::Rest { left: REST, next_up: true },
        };
    }

    /// Tries more or fewer, where the bounds leave room for it.
    fn tried(&self, up: bool) -> Phase {
        match up {
            true if self.best < *self.bounds.end() => Phase::Up,
            false if self.best > *self.bounds.start() => Phase::Down,
            true if self.best > *self.bounds.start() => Phase::Down,
            _ => Phase::Rest { left: REST, next_up: true },
        }
    }

    /// The store asks for patience: half as many, at once.
    pub(crate) fn throttled(&mut self) {
        self.best = (self.best / 2.0).max(*self.bounds.start());
        self.phase = Phase::Rest { left: REST, next_up: true };
        self.window = Window::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A store that answers in 20 ms up to `knee` requests at once, and no more of them per second beyond that.
    fn run(start: usize, knee: usize, noise: f64, ended: usize) -> (Knee, f64) {
        let mut it = Knee::new(32..=256, start);
        let (mut now, mut seed) = (0.0, 1_u64);
        let mut late = (0, 0.0);
        for i in 0..ended {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let random = (seed >> 33) as f64 / (1_u64 << 31) as f64 - 0.5;
            now += 0.02 / it.limit().min(knee) as f64 * (1.0 + noise * random);
            it.ended(now, 1 << 20, true);
            if i == ended / 2 {
                late = (i, now);
            }
        }
        let rate = (ended - late.0) as f64 / (now - late.1);
        (it, rate * 0.02 / knee.min(256) as f64)
    }

    #[test]
    fn the_number_comes_close_to_the_knee_from_either_side_and_loses_little() {
        for knee in [10, 40, 70, 100, 128, 180, 250, 1000] {
            for (noise, start) in [(0.0, 128), (0.5, 128), (0.0, 256), (0.5, 256)] {
                let (it, share) = run(start, knee, noise, 60_000);
                let reached = it.best / knee.clamp(32, 256) as f64;
                assert!((0.75..=1.45).contains(&reached), "knee {knee}, noise {noise}, from {start}: {}", it.best);
                assert!(share > 0.9, "knee {knee}, noise {noise}, from {start}: {share} of the rate");
            }
        }
    }

    #[test]
    fn a_number_that_nobody_waits_for_is_left_alone() {
        let mut it = Knee::new(32..=256, 128);
        for i in 0..10_000 {
            it.ended(f64::from(i) * 0.01, 1000, false);
        }
        assert_eq!(it.limit(), 128);
    }

    #[test]
    fn a_store_that_asks_for_patience_gets_half_as_many_at_once_and_never_none() {
        let mut it = Knee::new(32..=256, 128);
        it.throttled();
        assert_eq!(it.limit(), 64);
        (0..9).for_each(|_| it.throttled());
        assert_eq!(it.limit(), 32);
    }
}
