//! Which rows are requested together when one of them comes up.
//!
//! The rows of the first batch are requested alone, so that it is there early. Later a row brings its neighbours. When
//! memory holds everything that the rank delivers, these are the other rows of its *run*, megabytes of the selection,
//! whenever they come up; otherwise those of its unit that its group holds, which come up soon.

use std::collections::HashMap;

use crate::order::{Course, Shard, Unit};

/// Rows that are requested together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Key {
    /// Those of a run of the selection.
    Run(u64),
    /// Those of a unit that come up soon.
    Unit(Unit),
}

#[derive(Debug)]
pub(crate) struct Ahead {
    course: Course,
    shard: Shard,
    /// The rows of a run.
    run: u64,
    /// Whether runs are requested, or only units.
    runs: bool,
    /// How many rows of what was requested are still to come up.
    open: HashMap<Key, u64>,
}

impl Ahead {
    /// `run`: the rows of a run, if memory is expected to hold everything.
    pub(crate) fn new(course: Course, shard: Shard, run: Option<u64>) -> Self {
        Self { course, shard, run: run.unwrap_or(1).max(1), runs: run.is_some(), open: HashMap::new() }
    }

    /// The rows to request now that `index` comes up at `position`, after the first batch: none if it was brought before.
    pub(crate) fn due(&mut self, position: u64, index: u64) -> Vec<u64> {
        let run = Key::Run(index / self.run);
        let key = if self.runs || self.open.contains_key(&run) {
            run
        } else {
            match self.course.unit(position, index) {
                Some(unit) => Key::Unit(unit),
                None => return vec![index],
            }
        };
        let fresh = if self.open.contains_key(&key) { Vec::new() } else { self.members(key, position) };
        let left = self.open.entry(key).or_insert(fresh.len() as u64);
        *left = left.saturating_sub(1);
        if *left == 0 {
            self.open.remove(&key);
        }
        fresh
    }

    /// Whether runs are requested. Not for ever if memory turns out not to hold them.
    pub(crate) fn in_runs(&self) -> bool {
        self.runs
    }

    /// Memory doesn't hold the run of `index`, which was due: from now on units are requested.
    pub(crate) fn fall_back(&mut self, index: u64) {
        self.runs = false;
        self.open.remove(&Key::Run(index / self.run));
    }

    /// The rows that come up at `now` or later. Earlier ones were requested otherwise.
    fn members(&self, key: Key, now: u64) -> Vec<u64> {
        let own = |position: u64| position >= now && self.shard.batch_of(position).is_some();
        match key {
            Key::Run(number) => {
                let first = number * self.run;
                let rows = first..first.saturating_add(self.run).min(self.course.rows());
                rows.filter(|index| self.course.position(*index).is_some_and(own)).collect()
            }
            Key::Unit(unit) => {
                let brought = |index: u64| self.open.contains_key(&Key::Run(index / self.run));
                let mates = self.course.mates(unit).into_iter();
                mates.filter(|(index, position)| own(*position) && !brought(*index)).map(|(index, _)| index).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;
    use crate::order::{Mixture, Order, Shuffle, Stop, Tail, Window};

    /// Requests an epoch; gives each request, and the most rows that were requested and hadn't come up.
    fn requests(order: &Order, shard: Shard, run: Option<u64>, fall_back_at: u64) -> (Vec<Vec<u64>>, usize) {
        let mut ahead = Ahead::new(Course::one(order.clone()), shard, run);
        let (mut requests, mut requested, mut seen, mut most) = (Vec::new(), HashSet::new(), HashSet::new(), 0);
        for step in 1..shard.batches() {
            for position in shard.positions(step) {
                let index = order.index(position).unwrap();
                let mut rows = ahead.due(position, index);
                if !rows.is_empty() && ahead.in_runs() && requests.len() as u64 >= fall_back_at {
                    ahead.fall_back(index);
                    rows = ahead.due(position, index);
                }
                for row in &rows {
                    assert!(requested.insert(*row), "row {row} is requested twice");
                }
                if !rows.is_empty() {
                    requests.push(rows);
                }
                assert!(requested.contains(&index), "row {index} came up and nobody requested it");
                seen.insert(index);
                most = most.max(requested.len() - seen.len());
            }
        }
        assert_eq!(requested, seen, "what was requested is delivered");
        assert!(ahead.open.is_empty(), "nothing is remembered for longer than needed");
        (requests, most)
    }

    fn any_shuffle() -> impl Strategy<Value = Shuffle> {
        prop_oneof![
            Just(Shuffle::Off),
            Just(Shuffle::Global),
            (1_u32..20, 1_u32..6, 1_u64..20)
                .prop_map(|(lanes, window, unit_bytes)| { Shuffle::Windowed(Window { lanes, window, unit_bytes }) }),
        ]
    }

    proptest! {
        #[test]
        fn every_row_is_requested_once_before_it_comes_up(
            rows in 1_u64..800, batch in 1_u64..40, shuffle in any_shuffle(), world in 1_u32..4, short: bool,
            run in proptest::option::of(1_u64..60), fall_back_at in 0_u64..200, seed: u64,
        ) {
            let order = Order::new(rows, 1, shuffle, seed, 0);
            let tail = if short { Tail::Short } else { Tail::Drop };
            for rank in 0..world {
                requests(&order, Shard::new(rows, batch, rank, world, tail), run, fall_back_at);
            }
        }
    }

    proptest! {
        #[test]
        fn every_row_of_a_mixture_is_requested_before_each_time_it_comes_up(
            lengths in prop::collection::vec(1_u64..300, 1..4), shuffle in any_shuffle(), world in 1_u32..4, batch in 1_u64..40,
            seed: u64,
        ) {
            let weights: Vec<f64> = (1..=lengths.len()).map(|weight| weight as f64).collect();
            let mixture = Mixture::new(&lengths, &weights, Stop::Last, seed, 0);
            let rows = mixture.rows();
            let of = lengths.clone();
            let course = Course::mixed(mixture, &lengths, seed, 0, move |source, pass| {
                Order::new(of[source], 1, shuffle, seed ^ source as u64, pass)
            });
            for rank in 0..world {
                let shard = Shard::new(rows, batch, rank, world, Tail::Short);
                let mut ahead = Ahead::new(course.clone(), shard, None);
                // How often each row was requested and hasn't come up yet.
                let mut open = std::collections::HashMap::<u64, u64>::new();
                for step in 1..shard.batches() {
                    for position in shard.positions(step) {
                        let index = course.index(position).unwrap();
                        ahead.due(position, index).into_iter().for_each(|row| *open.entry(row).or_default() += 1);
                        let left = open.entry(index).or_default();
                        prop_assert!(*left > 0, "row {} came up and nobody requested it", index);
                        *left -= 1;
                    }
                }
                prop_assert!(open.values().all(|left| *left == 0), "what was requested is delivered");
                prop_assert!(ahead.open.is_empty());
            }
        }
    }

    #[test]
    fn runs_are_few_and_units_are_soon_used() {
        let window = Window { lanes: 8, window: 4, unit_bytes: 10 };
        let order = Order::new(10_000, 1, Shuffle::Windowed(window), 1, 0);
        let shard = Shard::new(10_000, 50, 0, 1, Tail::Short);
        let (runs, held) = requests(&order, shard, Some(100), u64::MAX);
        assert_eq!((runs.len(), held > 5_000), (100, true));
        let (units, held) = requests(&order, shard, None, 0);
        assert!((1_000..1_500).contains(&units.len()), "{} requests", units.len());
        assert!(held <= 8 * 4 * 10, "{held} rows at once");
    }
}
