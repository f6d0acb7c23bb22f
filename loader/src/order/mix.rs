//! How several sources share the positions of an epoch: in exact proportions, and invertible in constant time.
//!
//! ```text
//! pattern     [ a b a a c a b a ... ]      one cycle: each source as often as its weight says, mixed once
//! epoch       [ cycle 0 | cycle 1 | ... ]  the pattern, begun at another place each time
//! ```
//!
//! Every whole cycle holds each source exactly as often as its weight says, so no prefix of an epoch is off by more than a cycle's
//! share. Where a cycle begins in the pattern is drawn from the epoch's key, so that no source falls into step with the ranks.

use super::permute::{Key, Permutation, Purpose};

/// When a mixture ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Before a source would have to begin anew.
    First,
    /// When every source was delivered whole at least once; the others begin anew, in another order.
    Last,
    /// After so many rows, whatever of the sources that is.
    Rows(u64),
}

/// Which source is at which position.
#[derive(Clone, Debug)]
pub struct Mixture {
    key: Key,
    /// The sources of a cycle, in order.
    pattern: Vec<u32>,
    /// For each source where it is in the pattern.
    places: Vec<Vec<u32>>,
    /// For each source how often it is in the pattern before each place.
    before: Vec<Vec<u32>>,
    rows: u64,
}

/// A cycle has at least so many places, so that its mixing means something.
const LEAST_CYCLE: u64 = 256;
/// Weights are taken as whole numbers out of at most this many; those that aren't are rounded to it.
const FINEST: u64 = 10_000;

impl Mixture {
    /// A mixture of sources of `lengths` rows, each at least 1, in these proportions, each above 0 and finite; at least one of
    /// both, and as many of one as of the other.
    #[must_use]
    pub fn new(lengths: &[u64], weights: &[f64], stop: Stop, seed: u64, epoch: u64) -> Self {
        let counts = counts(weights);
        let cycle: u64 = counts.iter().sum();
        let slots: Vec<u32> =
            (0_u32..).zip(&counts).flat_map(|(source, count)| std::iter::repeat_n(source, *count as usize)).collect();
        // The pattern is the same in all epochs; only where its cycles begin changes.
        let mixing = Permutation::new(cycle, &Key::new("forebay 2026 mixture", &[seed]), Purpose::Rows, 0, 0);
        let pattern: Vec<u32> = (0..cycle).map(|place| slots[mixing.apply(place) as usize]).collect();
        let mut places = vec![Vec::new(); counts.len()];
        let mut before = vec![Vec::with_capacity(pattern.len()); counts.len()];
        for (place, source) in (0_u32..).zip(&pattern) {
            for (before, places) in before.iter_mut().zip(&places) {
                before.push(places.len() as u32);
            }
            places[*source as usize].push(place);
        }
        let key = Key::new("forebay 2026 cycles of a mixture", &[seed, epoch]);
        let mut mixture = Self { key, pattern, places, before, rows: u64::MAX };
        let ends = (0..).zip(lengths);
        mixture.rows = match stop {
            Stop::Rows(rows) => rows,
            Stop::First => ends.map(|(source, length)| mixture.position(source, *length)).min().unwrap_or(0),
            Stop::Last => ends.map(|(source, length)| mixture.position(source, length - 1) + 1).max().unwrap_or(0),
        };
        mixture
    }

    /// The positions of the epoch.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Which source is at a position, and the how manieth of its rows that is in the epoch, from 0.
    #[must_use]
    pub fn at(&self, position: u64) -> (u32, u64) {
        let length = self.pattern.len() as u64;
        let (cycle, start) = (position / length, self.start(position / length));
        let place = ((position % length + start) % length) as usize;
        let source = self.pattern[place];
        let (count, before) = (self.places[source as usize].len() as u64, &self.before[source as usize]);
        let within = (u64::from(before[place]) + count - u64::from(before[start as usize])) % count;
        (source, cycle * count + within)
    }

    /// At which position row `number` of a source comes, counted as [`at`](Self::at) does.
    #[must_use]
    pub fn position(&self, source: usize, number: u64) -> u64 {
        let (length, places) = (self.pattern.len() as u64, &self.places[source]);
        let (cycle, within) = (number / places.len() as u64, number % places.len() as u64);
        let start = self.start(cycle);
        let nth = (u64::from(self.before[source][start as usize]) + within) % places.len() as u64;
        cycle * length + (u64::from(places[nth as usize]) + length - start) % length
    }

    /// Where in the pattern a cycle begins.
    fn start(&self, cycle: u64) -> u64 {
        self.key.number_of(Purpose::Phase, cycle) % self.pattern.len() as u64
    }
}

/// How often each source is in a cycle: exactly as the weights say if they are whole parts of at most [`FINEST`].
fn counts(weights: &[f64]) -> Vec<u64> {
    let sum: f64 = weights.iter().sum();
    let shares: Vec<f64> = weights.iter().map(|weight| weight / sum).collect();
    let whole = |parts: u64| {
        shares.iter().all(|share| {
            let part = share * parts as f64;
            part.round() >= 1.0 && (part - part.round()).abs() < 1e-9 * parts as f64
        })
    };
    let parts = (1..=FINEST).find(|parts| whole(*parts)).unwrap_or(FINEST);
    let mut counts: Vec<u64> = shares.iter().map(|share| ((share * parts as f64).round() as u64).max(1)).collect();
    let times = LEAST_CYCLE.div_ceil(counts.iter().sum());
    counts.iter_mut().for_each(|count| *count *= times);
    counts
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn weights_that_are_whole_parts_are_met_exactly() {
        let shares = |weights: &[f64]| {
            let counts = counts(weights);
            let sum: u64 = counts.iter().sum();
            counts.iter().map(|count| *count as f64 / sum as f64).collect::<Vec<_>>()
        };
        assert_eq!(shares(&[0.7, 0.2, 0.1]), [0.7, 0.2, 0.1]);
        assert_eq!(shares(&[2.0, 1.0]), [2.0 / 3.0, 1.0 / 3.0]);
        assert_eq!(shares(&[5.0]), [1.0]);
        assert!((shares(&[1.0, std::f64::consts::PI])[0] - 1.0 / (1.0 + std::f64::consts::PI)).abs() < 1e-4);
        assert!(shares(&[1e-9, 1.0])[0] > 0.0, "no source is left out");
    }

    proptest! {
        #[test]
        fn positions_and_rows_of_sources_are_each_others_inverse_and_in_proportion(
            weights in prop::collection::vec(1_u32..20, 1..6), seed: u64, epoch: u64,
        ) {
            let weights: Vec<f64> = weights.into_iter().map(f64::from).collect();
            let lengths: Vec<u64> = (1..=weights.len() as u64).map(|source| source * 37).collect();
            let first = Mixture::new(&lengths, &weights, Stop::First, seed, epoch);
            let last = Mixture::new(&lengths, &weights, Stop::Last, seed, epoch);
            prop_assert!(first.rows() <= last.rows());
            let (mut next, mut cycle) = (vec![0_u64; weights.len()], vec![0_u64; weights.len()]);
            for position in 0..last.rows().max(2 * last.pattern.len() as u64) {
                let (source, number) = last.at(position);
                prop_assert_eq!(number, next[source as usize], "a source's rows come in order");
                prop_assert_eq!(last.position(source as usize, number), position);
                next[source as usize] += 1;
                cycle[source as usize] += 1;
                if (position + 1) % last.pattern.len() as u64 == 0 {
                    let sum: f64 = weights.iter().sum();
                    for (count, weight) in cycle.iter().zip(&weights) {
                        let share = *count as f64 / last.pattern.len() as f64;
                        prop_assert!((share - weight / sum).abs() < 1e-12);
                    }
                    cycle.fill(0);
                }
                if position + 1 == first.rows() {
                    prop_assert!(next.iter().zip(&lengths).all(|(next, length)| next <= length));
                }
                if position + 1 == last.rows() {
                    prop_assert!(next.iter().zip(&lengths).all(|(next, length)| next >= length));
                }
            }
        }
    }
}
