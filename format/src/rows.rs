//! Sets of rows of a fragment: what was deleted, what an overlay holds, where rows came from.

use std::ops::Range;

use crate::{
    Error, Result,
    bytes::{number, put_number},
};

/// A set of row numbers, kept as runs: ascending, apart, not empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct RowSet {
    runs: Vec<Run>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Run {
    start: u32,
    end: u32,
    /// Members before this run.
    before: u32,
}

impl RowSet {
    /// No row.
    #[must_use]
    pub const fn new() -> Self {
        Self { runs: Vec::new() }
    }

    /// The rows of a range.
    #[must_use]
    pub fn range(rows: Range<u32>) -> Self {
        [rows].into_iter().collect()
    }

    /// The rows of a list in any order.
    #[must_use]
    pub fn of(mut rows: Vec<u32>) -> Self {
        rows.sort_unstable();
        rows.dedup();
        rows.into_iter().map(|row| row..row + 1).collect()
    }

    /// Adds a run that starts at or behind the end of the last one.
    fn push(&mut self, start: u32, end: u32) {
        if start >= end {
            return;
        }
        match self.runs.last_mut() {
            Some(last) if last.end >= start => last.end = last.end.max(end),
            last => {
                let before = last.map_or(0, |run| run.before + (run.end - run.start));
                self.runs.push(Run { start, end, before });
            }
        }
    }

    /// How many rows.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.runs.last().map_or(0, |run| run.before + (run.end - run.start))
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// The number behind the last row; 0 if there is none.
    #[must_use]
    pub fn end(&self) -> u32 {
        self.runs.last().map_or(0, |run| run.end)
    }

    /// Its runs, ascending.
    pub fn runs(&self) -> impl ExactSizeIterator<Item = Range<u32>> + '_ {
        self.runs.iter().map(|run| run.start..run.end)
    }

    /// Its rows, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.runs().flatten()
    }

    /// Whether it has a row, in O(log runs).
    #[must_use]
    pub fn contains(&self, row: u32) -> bool {
        self.position(row).is_some()
    }

    /// How many of its rows are less than `row`, in O(log runs).
    #[must_use]
    pub fn rank(&self, row: u32) -> u32 {
        match self.runs.partition_point(|run| run.start < row).checked_sub(1) {
            Some(run) => self.runs[run].before + (row.min(self.runs[run].end) - self.runs[run].start),
            None => 0,
        }
    }

    /// The place of a row among its rows, if it has the row, in O(log runs).
    #[must_use]
    pub fn position(&self, row: u32) -> Option<u32> {
        let run = self.runs[..self.runs.partition_point(|run| run.start <= row)].last()?;
        (row < run.end).then(|| run.before + (row - run.start))
    }

    /// The row at a place, in O(log runs).
    #[must_use]
    pub fn get(&self, position: u32) -> Option<u32> {
        let run = self.runs[..self.runs.partition_point(|run| run.before <= position)].last()?;
        let row = u64::from(run.start) + u64::from(position - run.before);
        (row < u64::from(run.end)).then_some(row as u32)
    }

    /// The `position`-th row that is *not* in the set, in O(log runs).
    #[must_use]
    pub fn get_missing(&self, position: u32) -> u32 {
        // Before a run there are `start - before` rows that are missing.
        match self.runs.partition_point(|run| run.start - run.before <= position).checked_sub(1) {
            Some(run) => position + self.runs[run].before + (self.runs[run].end - self.runs[run].start),
            None => position,
        }
    }

    /// Rows of either.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let (mut all, mut left, mut right) = (Self::new(), self.runs().peekable(), other.runs().peekable());
        loop {
            let next = match (left.peek(), right.peek()) {
                (Some(a), Some(b)) if a.start <= b.start => left.next(),
                (_, Some(_)) => right.next(),
                (_, None) => left.next(),
            };
            let Some(run) = next else { return all };
            all.push(run.start, run.end);
        }
    }

    /// Rows of both.
    #[must_use]
    pub fn intersect(&self, other: &Self) -> Self {
        let (mut both, mut at) = (Self::new(), 0);
        for run in &self.runs {
            while other.runs.get(at).is_some_and(|run_| run_.end <= run.start) {
                at += 1;
            }
            for with in other.runs[at..].iter().take_while(|with| with.start < run.end) {
                both.push(run.start.max(with.start), run.end.min(with.end));
            }
        }
        both
    }

    /// Rows of this one that `other` doesn't have.
    #[must_use]
    pub fn subtract(&self, other: &Self) -> Self {
        let (mut left, mut at) = (Self::new(), 0);
        for run in &self.runs {
            while other.runs.get(at).is_some_and(|run_| run_.end <= run.start) {
                at += 1;
            }
            let mut start = run.start;
            for without in other.runs[at..].iter().take_while(|without| without.start < run.end) {
                left.push(start, without.start.max(start));
                start = without.end.max(start);
            }
            left.push(start, run.end);
        }
        left
    }

    /// The rows of `0..rows` that it doesn't have.
    #[must_use]
    pub fn complement(&self, rows: u32) -> Self {
        Self::range(0..rows).subtract(self)
    }

    /// Its rows at the given places; places behind its end give none.
    #[must_use]
    pub fn select(&self, places: &Self) -> Self {
        let mut selected = Self::new();
        for places in places.runs() {
            let mut at = self.runs.partition_point(|run| run.before <= places.start).saturating_sub(1);
            while let Some(run) = self.runs.get(at).filter(|run| run.before < places.end) {
                let from = places.start.max(run.before) - run.before;
                let to = (places.end - run.before).min(run.end - run.start);
                if from < to {
                    selected.push(run.start + from, run.start + to);
                }
                at += 1;
            }
        }
        selected
    }

    /// The places of those of `rows` that it has.
    #[must_use]
    pub fn places(&self, rows: &Self) -> Self {
        let place = |run: Range<u32>| self.rank(run.start)..self.rank(run.end);
        self.intersect(rows).runs().map(place).collect()
    }

    /// The set with `by` added to each row. None may then be past the last row that there can be.
    #[must_use]
    pub fn moved_up(&self, by: u32) -> Self {
        self.runs().map(|run| run.start + by..run.end + by).collect()
    }

    /// The rows from `start` on, with `start` taken from each.
    #[must_use]
    pub fn moved_down(&self, start: u32) -> Self {
        self.runs().map(|run| run.start.saturating_sub(start)..run.end.saturating_sub(start)).collect()
    }

    /// Its bytes: for each run the rows between it and the one before, and its length, as LEB128.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let (mut bytes, mut end) = (Vec::with_capacity(self.runs.len() * 3), 0);
        for run in &self.runs {
            for value in [run.start - end, run.end - run.start] {
                put_number(&mut bytes, u64::from(value));
            }
            end = run.end;
        }
        bytes
    }

    /// The set that `bytes` are. It takes memory in proportion to them.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if runs are empty, adjoin or go past the last row that there can be.
    pub fn decode(what: &str, bytes: &[u8]) -> Result<Self> {
        let corrupt = |offset: usize, reason: &str| {
            let (what, reason) = (format!("rows of a {what}"), reason.to_owned());
            Error::Corrupt { what, offset: offset as u64, reason }
        };
        let (mut set, mut at, mut end) = (Self::new(), 0, 0_u64);
        let next = |at: &mut usize| number(bytes, at, 5).map_err(|reason| corrupt(*at, reason));
        while at < bytes.len() {
            let (gap, length) = (next(&mut at)?, next(&mut at)?);
            if length == 0 || (gap == 0 && end > 0) {
                return Err(corrupt(at, "a run is empty or adjoins the one before"));
            }
            let start = end + gap;
            end = start + length;
            if end > u64::from(u32::MAX) {
                return Err(corrupt(at, "a run ends past the last row"));
            }
            set.push(start as u32, end as u32);
        }
        Ok(set)
    }
}

impl FromIterator<Range<u32>> for RowSet {
    /// Runs in any order; those that overlap or adjoin are joined.
    fn from_iter<I: IntoIterator<Item = Range<u32>>>(runs: I) -> Self {
        let mut runs: Vec<_> = runs.into_iter().filter(|run| run.start < run.end).collect();
        if !runs.is_sorted_by_key(|run| run.start) {
            runs.sort_unstable_by_key(|run| run.start);
        }
        let mut set = Self::new();
        for run in runs {
            set.push(run.start, run.end);
        }
        set
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::RowSet;

    fn rows() -> impl Strategy<Value = BTreeSet<u32>> {
        proptest::collection::btree_set(0_u32..200, 0..80)
    }

    fn set(rows: &BTreeSet<u32>) -> RowSet {
        RowSet::of(rows.iter().rev().copied().collect())
    }

    proptest! {
        #[test]
        fn a_set_is_what_a_plain_set_is(a in rows(), b in rows(), probe in 0_u32..210) {
            let (x, y) = (set(&a), set(&b));
            prop_assert_eq!(x.iter().collect::<BTreeSet<_>>(), a.clone());
            prop_assert_eq!(x.len() as usize, a.len());
            prop_assert_eq!(x.end(), a.last().map_or(0, |row| row + 1));
            prop_assert_eq!(x.contains(probe), a.contains(&probe));
            prop_assert_eq!(x.rank(probe) as usize, a.range(..probe).count());
            prop_assert_eq!(x.position(probe).map(|at| at as usize), a.iter().position(|row| *row == probe));
            prop_assert_eq!(x.get(probe), a.iter().nth(probe as usize).copied());
            let missing = (0..1000).filter(|row| !a.contains(row)).nth(probe as usize);
            prop_assert_eq!(Some(x.get_missing(probe)), missing);
            prop_assert_eq!(x.union(&y), set(&(&a | &b)));
            prop_assert_eq!(x.intersect(&y), set(&(&a & &b)));
            prop_assert_eq!(x.subtract(&y), set(&(&a - &b)));
            prop_assert_eq!(x.complement(250).iter().collect::<BTreeSet<_>>(), (0..250).filter(|row| !a.contains(row)).collect());
            let at_places: Vec<u32> = b.iter().filter_map(|place| a.iter().nth(*place as usize).copied()).collect();
            prop_assert_eq!(x.select(&y), RowSet::of(at_places));
            let places: Vec<u32> = a.iter().zip(0..).filter(|(row, _)| b.contains(row)).map(|(_, at)| at).collect();
            prop_assert_eq!(x.places(&y), RowSet::of(places));
            prop_assert_eq!(x.moved_up(probe).moved_down(probe), x.clone());
            let behind = a.iter().filter_map(|row| row.checked_sub(probe)).collect();
            prop_assert_eq!(x.moved_down(probe), RowSet::of(behind));
            prop_assert_eq!(RowSet::decode("test", &x.encode()).unwrap(), x);
        }

        #[test]
        fn any_bytes_are_a_set_that_encodes_to_them_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..24)) {
            if let Ok(set) = RowSet::decode("test", &bytes) {
                prop_assert_eq!(RowSet::decode("test", &set.encode()).unwrap(), set.clone());
                prop_assert!(set.runs().zip(set.runs().skip(1)).all(|(a, b)| a.end < b.start));
            }
        }
    }

    #[test]
    fn the_last_rows_there_can_be_are_kept() {
        let set = RowSet::range(u32::MAX - 3..u32::MAX);
        assert_eq!(RowSet::decode("test", &set.encode()).unwrap(), set);
        assert_eq!((set.len(), set.get(2), set.get(3)), (3, Some(u32::MAX - 1), None));
        let past = [0x00, 0xff, 0xff, 0xff, 0xff, 0x0f, 0x01, 0x01];
        RowSet::decode("test", &past).unwrap_err();
    }
}
