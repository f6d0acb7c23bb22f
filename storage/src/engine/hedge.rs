//! When a request has waited so long that a second one is worth its bytes.
//!
//! Some answers come late for no reason that the next request would share: a slow disk, a full queue, a lost packet. A
//! second request after the time in which 98 of 100 answers begin cuts that tail. It may cost little: the bytes of all
//! second requests stay below 2% of those of the first ones.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The bytes of second requests for each hundred of first ones.
const PERCENT: u64 = 2;

/// How many of the newest times count.
const KEPT: usize = 512;

/// Nothing is judged by fewer times than this.
const ENOUGH: usize = 64;

/// No second request is sent before this time: it is about what one costs.
const SOONEST: Duration = Duration::from_millis(5);

/// Times until answers began, and what second requests may still cost.
#[derive(Debug)]
pub(crate) struct Hedge {
    on: bool,
    times: Mutex<Times>,
    /// When to send a second request, in microseconds; 0 for never.
    after: AtomicU64,
    /// The time in which half of the answers begin, in microseconds.
    median: AtomicU64,
    first_bytes: AtomicU64,
    second_bytes: AtomicU64,
}

#[derive(Debug, Default)]
struct Times {
    micros: Vec<u32>,
    next: usize,
}

impl Hedge {
    pub(crate) fn new(on: bool) -> Self {
        Self {
            on,
            times: Mutex::default(),
            after: AtomicU64::new(0),
            median: AtomicU64::new(0),
            first_bytes: AtomicU64::new(0),
            second_bytes: AtomicU64::new(0),
        }
    }

    /// Takes in the time until an answer began.
    pub(crate) fn began(&self, time: Duration) {
        let micros = u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
        let mut times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        let next = times.next;
        match times.micros.get_mut(next) {
            Some(oldest) => *oldest = micros,
            None => times.micros.push(micros),
        }
        times.next = (next + 1) % KEPT;
        if times.next.is_multiple_of(ENOUGH) {
            let mut sorted = times.micros.clone();
            drop(times);
            sorted.sort_unstable();
            let (median, late) = (sorted[sorted.len() / 2], sorted[sorted.len() * 98 / 100]);
            // Where all answers take about as long, a late one is no outlier.
            let after = u64::from(late.max(median.saturating_mul(2))).max(SOONEST.as_micros() as u64);
            self.median.store(u64::from(median), Ordering::Relaxed);
            self.after.store(after, Ordering::Relaxed);
        }
    }

    /// The time after which a second request is sent, once enough is known.
    pub(crate) fn after(&self) -> Option<Duration> {
        let micros = self.after.load(Ordering::Relaxed);
        (self.on && micros > 0).then(|| Duration::from_micros(micros))
    }

    /// The time in which half of the answers begin, once enough is known.
    pub(crate) fn median(&self) -> Option<Duration> {
        let micros = self.median.load(Ordering::Relaxed);
        (micros > 0).then(|| Duration::from_micros(micros))
    }

    /// Takes in that bytes were asked for.
    pub(crate) fn asked(&self, bytes: u64) {
        self.first_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Whether so many bytes may be asked for a second time; takes them in if so.
    pub(crate) fn afford(&self, bytes: u64) -> bool {
        let most = self.first_bytes.load(Ordering::Relaxed) / 100 * PERCENT;
        let spend = |spent: u64| spent.checked_add(bytes).filter(|sum| *sum <= most);
        self.second_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, spend).is_ok()
    }

    /// The bytes that were asked for a second time.
    pub(crate) fn spent(&self) -> u64 {
        self.second_bytes.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_request_waits_for_as_long_as_nearly_all_answers_take() {
        let hedge = Hedge::new(true);
        (0..63).for_each(|_| hedge.began(Duration::from_millis(20)));
        assert_eq!(hedge.after(), None, "too little is known");
        for i in 0..512_u64 {
            hedge.began(Duration::from_millis(if i % 20 == 0 { 500 } else { 20 }));
        }
        assert_eq!(hedge.after(), Some(Duration::from_millis(500)), "one in twenty is no outlier");
        for i in 0..512_u64 {
            hedge.began(Duration::from_millis(if i % 100 == 0 { 500 } else { 20 }));
        }
        assert_eq!((hedge.after(), hedge.median()), (Some(Duration::from_millis(40)), Some(Duration::from_millis(20))));
        assert_eq!(Hedge::new(false).after(), None);
    }

    #[test]
    fn second_requests_never_cost_more_than_two_hundredths() {
        let hedge = Hedge::new(true);
        assert!(!hedge.afford(1));
        hedge.asked(100_000);
        assert!(hedge.afford(1500) && !hedge.afford(600) && hedge.afford(500) && !hedge.afford(1));
        assert_eq!(hedge.spent(), 2000);
    }
}
