//! What is at each position of an epoch: a row of one source, or of several that are mixed.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use super::{Group, Key, Order, mix::Mixture, permute::Purpose};

/// A unit of a source in one pass over it: rows that lie side by side and are read at about the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Unit {
    source: u32,
    pass: u64,
    number: u64,
    group: Group,
}

/// The rows of an epoch by position. The rows of several sources are numbered through, those of the first source first.
///
/// As an [`Order`], it depends on nothing but what it is made of, and a position costs constant time.
#[derive(Clone, Debug)]
pub struct Course {
    kind: Kind,
    samples: Key,
}

#[derive(Clone, Debug)]
enum Kind {
    One(Order),
    Mixed(Arc<Mixed>),
}

/// Makes the order of a source, given its number and the pass over it.
type MakeOrder = Box<dyn Fn(usize, u64) -> Order + Send + Sync>;

struct Mixed {
    mixture: Mixture,
    /// The rows of each source.
    lengths: Vec<u64>,
    /// The first row of each source.
    starts: Vec<u64>,
    make: MakeOrder,
    /// The orders in use, by source and pass.
    orders: Mutex<BTreeMap<(u32, u64), Arc<Order>>>,
}

impl std::fmt::Debug for Mixed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mixed").field("lengths", &self.lengths).finish_non_exhaustive()
    }
}

/// Orders that are kept: those of the passes under way, of some sources.
const KEPT_ORDERS: usize = 64;

impl Course {
    /// The rows of one source.
    #[must_use]
    pub fn one(order: Order) -> Self {
        Self { samples: order.samples, kind: Kind::One(order) }
    }

    /// The rows of several sources of `lengths` rows. `make` gives the order of a source's pass, whose rows are as many.
    #[must_use]
    pub fn mixed(
        mixture: Mixture,
        lengths: &[u64],
        seed: u64,
        epoch: u64,
        make: impl Fn(usize, u64) -> Order + Send + Sync + 'static,
    ) -> Self {
        let starts = lengths.iter().scan(0, |next, length| {
            let start = *next;
            *next += length;
            Some(start)
        });
        let mixed = Mixed {
            mixture,
            lengths: lengths.to_vec(),
            starts: starts.collect(),
            make: Box::new(make),
            orders: Mutex::default(),
        };
        Self { samples: Order::sample_key(seed, epoch), kind: Kind::Mixed(Arc::new(mixed)) }
    }

    /// The positions of the epoch.
    #[must_use]
    pub fn rows(&self) -> u64 {
        match &self.kind {
            Kind::One(order) => order.rows(),
            Kind::Mixed(mixed) => mixed.mixture.rows(),
        }
    }

    /// What is random about the sample at `position` is drawn from this: a hash of seed, epoch and position.
    #[must_use]
    pub fn sample_seed(&self, position: u64) -> u64 {
        self.samples.number_of(Purpose::Sample, position)
    }

    /// Which row is at `position`; `None` at or after the end.
    #[must_use]
    pub fn index(&self, position: u64) -> Option<u64> {
        if position >= self.rows() {
            return None;
        }
        match &self.kind {
            Kind::One(order) => order.index(position),
            Kind::Mixed(mixed) => {
                let (source, pass, place) = mixed.at(position);
                let index = mixed.order(source, pass).index(place)?;
                Some(mixed.starts[source as usize] + index)
            }
        }
    }

    /// Which rows are at these positions, without those at or after the end.
    #[must_use]
    pub fn indexes(&self, positions: &[u64]) -> Vec<u64> {
        match &self.kind {
            Kind::One(order) => order.indexes(positions),
            Kind::Mixed(_) => positions.iter().filter_map(|position| self.index(*position)).collect(),
        }
    }

    /// At which position a row comes, if every row comes once: not in a mixture, nor if rows are drawn.
    #[must_use]
    pub fn position(&self, index: u64) -> Option<u64> {
        match &self.kind {
            Kind::One(order) => order.position(index),
            Kind::Mixed(_) => None,
        }
    }

    /// The unit that is read at `position`, where row `index` comes; `None` if single rows are.
    #[must_use]
    pub fn unit(&self, position: u64, index: u64) -> Option<Unit> {
        match &self.kind {
            Kind::One(order) => {
                let group = order.group(position)?;
                Some(Unit { source: 0, pass: 0, number: order.unit(index), group })
            }
            Kind::Mixed(mixed) => {
                let (source, pass, place) = mixed.at(position);
                let order = mixed.order(source, pass);
                let number = order.unit(index - mixed.starts[source as usize]);
                Some(Unit { source, pass, number, group: order.group(place)? })
            }
        }
    }

    /// The rows of a unit that are read with its group, and their positions.
    #[must_use]
    pub fn mates(&self, unit: Unit) -> Vec<(u64, u64)> {
        let of = |order: &Order| -> Vec<(u64, u64)> {
            let first = unit.number * order.unit_rows();
            let rows = first..first.saturating_add(order.unit_rows()).min(order.rows());
            rows.filter_map(|index| Some((index, order.position(index)?)))
                .filter(|(_, position)| order.group(*position) == Some(unit.group))
                .collect()
        };
        match &self.kind {
            Kind::One(order) => of(order),
            Kind::Mixed(mixed) => {
                let source = unit.source as usize;
                let passed = unit.pass * mixed.lengths[source];
                let mates = of(&mixed.order(unit.source, unit.pass)).into_iter();
                mates
                    .map(|(index, place)| {
                        (mixed.starts[source] + index, mixed.mixture.position(source, passed + place))
                    })
                    .collect()
            }
        }
    }
}

impl Mixed {
    /// The source at a position, the pass over it, and the place in that.
    fn at(&self, position: u64) -> (u32, u64, u64) {
        let (source, number) = self.mixture.at(position);
        let length = self.lengths[source as usize];
        (source, number / length, number % length)
    }

    fn order(&self, source: u32, pass: u64) -> Arc<Order> {
        let mut orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        if orders.len() > KEPT_ORDERS.max(2 * self.lengths.len()) {
            orders.retain(|(kept, of), _| *kept != source || *of + 1 >= pass);
        }
        orders.entry((source, pass)).or_insert_with(|| Arc::new((self.make)(source as usize, pass))).clone()
    }
}
