//! How many requests a second, once a store has asked for patience.
//!
//! "Slow down" means that a number of requests per second is too large, and how many are in flight does not say how many
//! that is. So the first such answer starts a bucket of tokens, filled at seven tenths of the rate that was too much. It
//! is cut again for further such answers, grows by a tenth a second without them, and is given up when it has grown to twice the
//! rate that once was too much. Pure: time is an argument.

/// The part of a rate that is left after a cut.
const CUT: f64 = 0.7;

/// What a rate grows by in a second without a cut.
const GROWTH: f64 = 0.1;

/// Answers within this time, in seconds, are about the same burst, and cut once.
const BURST: f64 = 0.25;

/// The slowest pace, in requests a second.
const SLOWEST: f64 = 1.0;

/// A bucket of tokens; none until a store asks for patience.
#[derive(Debug, Default)]
pub(crate) struct Pace(Option<Bucket>);

#[derive(Debug)]
struct Bucket {
    rate: f64,
    /// The rate that was too much.
    too_much: f64,
    cut: f64,
    /// Up to when the rate has grown.
    grown: f64,
    /// When the next token is there.
    next: f64,
}

impl Pace {
    /// Takes in that the store asked for patience at `now`, in seconds, when requests came at `rate`.
    pub(crate) fn throttled(&mut self, now: f64, rate: f64) {
        match &mut self.0 {
            Some(bucket) if now - bucket.cut < BURST => {}
            Some(bucket) => {
                bucket.too_much = bucket.rate;
                bucket.rate = (bucket.rate * CUT).max(SLOWEST);
                (bucket.cut, bucket.grown) = (now, now);
            }
            None => {
                let slower = (rate * CUT).max(SLOWEST);
                self.0 = Some(Bucket { rate: slower, too_much: rate.max(SLOWEST), cut: now, grown: now, next: now });
            }
        }
    }

    /// Takes a token, and says how many seconds it is until it is there.
    pub(crate) fn take(&mut self, now: f64) -> f64 {
        let Some(bucket) = &mut self.0 else { return 0.0 };
        bucket.rate *= (1.0 + GROWTH).powf((now - bucket.grown).max(0.0));
        bucket.grown = now;
        if bucket.rate > 2.0 * bucket.too_much {
            self.0 = None;
            return 0.0;
        }
        let at = bucket.next.max(now);
        bucket.next = at + 1.0 / bucket.rate;
        at - now
    }

    /// The pace in requests a second, if there is one.
    pub(crate) fn rate(&self) -> Option<f64> {
        self.0.as_ref().map(|bucket| bucket.rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A store that takes 100 requests in any second, and a client that would send 10,000; gives how many were taken and
    /// refused in 60 seconds, the first five left out.
    fn run(mut pace: Pace) -> (u32, u32) {
        let (mut now, mut second, mut taken, mut refused) = (0.0_f64, (0, 0), 0, 0);
        while now < 65.0 {
            if now < 5.0 {
                (taken, refused) = (0, 0);
            }
            now += pace.take(now).max(0.0001);
            if now as u32 != second.0 {
                second = (now as u32, 0);
            }
            second.1 += 1;
            if second.1 <= 100 {
                taken += 1;
            } else {
                refused += 1;
                pace.throttled(now, 10_000.0);
            }
        }
        (taken, refused)
    }

    #[test]
    fn a_store_that_asks_for_patience_is_soon_asked_about_as_much_as_it_takes() {
        let (taken, refused) = run(Pace::default());
        assert!(taken > 60 * 100 * 6 / 10, "{taken} of 6000 taken");
        assert!(refused < taken / 5, "{refused} refused beside {taken}");
    }

    #[test]
    fn without_such_answers_nothing_is_held_back_and_after_them_not_forever() {
        let mut pace = Pace::default();
        assert_eq!((pace.take(1.0), pace.rate()), (0.0, None));
        pace.throttled(1.0, 1000.0);
        assert_eq!(pace.rate(), Some(700.0));
        assert!(pace.take(1.0) == 0.0 && pace.take(1.0) > 0.0);
        assert_eq!((pace.take(30.0), pace.rate()), (0.0, None));
    }

    #[test]
    fn one_burst_of_refusals_cuts_once() {
        let mut pace = Pace::default();
        (0..50).for_each(|_| pace.throttled(1.0, 1000.0));
        assert_eq!(pace.rate(), Some(700.0));
        pace.throttled(2.0, 1000.0);
        assert!(pace.rate().is_some_and(|rate| (489.0..491.0).contains(&rate)), "{pace:?}");
    }
}
