//! How many rows are read at once.

use std::ops::Range;

/// Cuts `rows` into batches that each weigh at most `budget`, where one row may weigh more. `weigh` gives the bytes of a
/// range of rows in memory; it need not be additive, only not to shrink when a range grows.
///
/// A batch is found by doubling and then halving from the size of the one before, so that `weigh` is called a few times
/// a batch, whatever the number of rows.
pub(crate) fn batches(rows: Range<u32>, budget: u64, weigh: impl Fn(Range<u32>) -> u64) -> Vec<Range<u32>> {
    let mut found = Vec::new();
    let (mut start, mut guess) = (rows.start, 1024_u32);
    while start < rows.end {
        let fits = |count: u32| weigh(start..start.saturating_add(count).min(rows.end)) <= budget;
        let left = rows.end - start;
        let mut count = guess.min(left);
        if fits(count) {
            while count < left && fits(count.saturating_mul(2)) {
                count = count.saturating_mul(2).min(left);
            }
        } else {
            while count > 1 && !fits(count) {
                count /= 2;
            }
        }
        found.push(start..start + count);
        start += count;
        guess = count;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::batches;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn batches_cover_every_row_once_and_keep_to_the_budget(
            weights in prop::collection::vec(0_u64..1_000, 0..3_000),
            budget in 1_u64..20_000,
        ) {
            let weigh = |rows: std::ops::Range<u32>| weights[rows.start as usize..rows.end as usize].iter().sum::<u64>();
            let found = batches(0..weights.len() as u32, budget, weigh);
            let rows: Vec<u32> = found.iter().cloned().flatten().collect();
            prop_assert_eq!(rows, (0..weights.len() as u32).collect::<Vec<_>>());
            for batch in found {
                prop_assert!(batch.len() == 1 || weigh(batch.clone()) <= budget, "{:?}", batch);
            }
        }

        #[test]
        fn equal_rows_make_few_batches(rows in 1_u32..100_000, weight in 1_u64..100) {
            let budget = 100_000;
            let found = batches(0..rows, budget, |rows| rows.len() as u64 * weight);
            // Each batch is at least half full, the last aside.
            prop_assert!(found.len() as u64 <= 1 + 2 * u64::from(rows) * weight / budget + 1, "{}", found.len());
        }
    }
}
