//! Rows gathered from masks.

use std::ops::Range;

use forebay_versioning::Rows;

/// Ascending runs of chosen rows.
#[derive(Debug, Default)]
pub(crate) struct Runs(Vec<Range<u64>>);

impl Runs {
    /// Adds the rows from `first` on that `mask` chooses. Masks come in ascending order.
    pub(crate) fn add(&mut self, first: u64, mask: &[bool]) {
        for (row, chosen) in (first..).zip(mask) {
            match self.0.last_mut() {
                _ if !chosen => {}
                Some(run) if run.end == row => run.end += 1,
                _ => self.0.push(row..row + 1),
            }
        }
    }

    /// The rows as part of a selection of a table of `rows` rows.
    pub(crate) fn into_rows(self, rows: u64) -> Rows {
        match &self.0[..] {
            [all] if *all == (0..rows) => Rows::All,
            _ => Rows::Runs(self.0.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Rows, Runs};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn runs_hold_exactly_the_chosen_rows(masks in prop::collection::vec(prop::collection::vec(any::<bool>(), 0..20), 0..8)) {
            let mut runs = Runs::default();
            let mut first = 0;
            for mask in &masks {
                runs.add(first, mask);
                first += mask.len() as u64;
            }
            let wanted: Vec<u64> = (0..).zip(masks.concat()).filter(|(_, chosen)| *chosen).map(|(row, _)| row).collect();
            let found: Vec<u64> = runs.0.iter().cloned().flatten().collect();
            prop_assert_eq!(&found, &wanted);
            prop_assert!(runs.0.windows(2).all(|pair| pair[0].end < pair[1].start), "runs are apart: {:?}", runs.0);
            let all = !masks.concat().is_empty() && wanted.len() as u64 == first;
            prop_assert_eq!(matches!(runs.into_rows(first), Rows::All), all);
        }
    }
}
