//! Rows drawn by weight.

use super::permute::{Key, Purpose};

/// How rows are drawn.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    /// The weight of each selected row: at least 0 and finite, one of them above.
    pub weights: std::sync::Arc<[f64]>,
    /// Whether a row may come again.
    pub replacement: bool,
    /// The rows of an epoch; `None` for as many as are selected (without replacement: as have a weight above 0).
    pub rows: Option<u64>,
}

impl Sampling {
    /// The rows that can be drawn.
    fn drawable(&self) -> u64 {
        self.weights.iter().filter(|weight| **weight > 0.0).count() as u64
    }

    /// The rows of an epoch.
    #[must_use]
    pub fn len(&self) -> u64 {
        match self.rows {
            Some(rows) => rows,
            None if self.replacement => self.weights.len() as u64,
            None => self.drawable(),
        }
    }

    /// Whether an epoch has no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What is wrong with it for so many selected rows.
    pub(crate) fn odd(&self, rows: u64) -> Option<&'static str> {
        if self.weights.len() as u64 != rows {
            return Some("there is one weight for each selected row");
        }
        if self.weights.iter().any(|weight| !weight.is_finite() || *weight < 0.0) {
            return Some("weights are at least 0 and finite");
        }
        if self.drawable() == 0 {
            return Some("a weight must be above 0");
        }
        if !self.replacement && self.len() > self.drawable() {
            return Some("more rows than have a weight above 0 can't be drawn without replacement");
        }
        None
    }

    /// A hash of it, for states.
    pub(crate) fn digest(&self) -> String {
        let mut hash = blake3::Hasher::new_derive_key("forebay 2026 sampling");
        for weight in self.weights.iter() {
            hash.update(&weight.to_le_bytes());
        }
        hash.finalize().to_hex()[..32].to_owned()
    }
}

/// The rows of an epoch.
#[derive(Clone, Debug)]
pub(super) enum Drawn {
    /// Each position is drawn for itself: by the alias method of Walker (1977), tables as by Vose (1991).
    Again { key: Key, chances: Vec<f64>, aliases: Vec<u64> },
    /// All at once: those with the least keys -ln(u) / weight, in ascending order (Efraimidis and Spirakis 2006).
    Once { rows: Vec<u64> },
}

impl Drawn {
    pub(super) fn new(sampling: &Sampling, key: Key) -> Self {
        if sampling.replacement {
            let (chances, aliases) = alias_tables(&sampling.weights);
            return Self::Again { key, chances, aliases };
        }
        let weights = (0_u64..).zip(sampling.weights.iter()).filter(|(_, weight)| **weight > 0.0);
        let mut keys: Vec<(f64, u64)> =
            weights.map(|(row, weight)| (-unit(key.number_of(Purpose::Drawn, row)).ln() / weight, row)).collect();
        keys.sort_unstable_by(|left, right| left.0.total_cmp(&right.0).then(left.1.cmp(&right.1)));
        keys.truncate(sampling.len() as usize);
        Self::Once { rows: keys.into_iter().map(|(_, row)| row).collect() }
    }

    pub(super) fn row(&self, position: u64) -> u64 {
        match self {
            Self::Once { rows } => rows[position as usize],
            Self::Again { key, chances, aliases } => {
                let [first, second] = key.pair_of(Purpose::Drawn, position);
                let row = ((u128::from(first) * chances.len() as u128) >> 64) as usize;
                if unit(second) <= chances[row] { row as u64 } else { aliases[row] }
            }
        }
    }
}

/// In (0, 1], with 53 bits.
fn unit(number: u64) -> f64 {
    ((number >> 11) + 1) as f64 / (1_u64 << 53) as f64
}

/// For each row the chance that it stays itself when it is picked evenly, and what it becomes otherwise.
fn alias_tables(weights: &[f64]) -> (Vec<f64>, Vec<u64>) {
    let sum: f64 = weights.iter().sum();
    let mut chances: Vec<f64> = weights.iter().map(|weight| weight / sum * weights.len() as f64).collect();
    let mut aliases: Vec<u64> = (0..weights.len() as u64).collect();
    let (mut small, mut large): (Vec<usize>, Vec<usize>) = (0..weights.len()).partition(|row| chances[*row] < 1.0);
    while let (Some(low), Some(high)) = (small.pop(), large.pop()) {
        aliases[low] = high as u64;
        chances[high] -= 1.0 - chances[low];
        if chances[high] < 1.0 { small.push(high) } else { large.push(high) }
    }
    // What is left is 1 but for rounding; a row without weight never is.
    small.into_iter().chain(large).filter(|row| weights[*row] > 0.0).for_each(|row| chances[row] = 1.0);
    (chances, aliases)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn sampling(weights: &[f64], replacement: bool, rows: Option<u64>) -> Sampling {
        Sampling { weights: weights.into(), replacement, rows }
    }

    fn key(number: u64) -> Key {
        Key::new("test", &[number])
    }

    #[test]
    fn with_replacement_rows_come_as_often_as_their_weights_say() {
        let weights = [1.0, 0.0, 3.0, 6.0];
        let drawn = Drawn::new(&sampling(&weights, true, Some(100_000)), key(1));
        let mut counts = [0_u32; 4];
        (0..100_000).for_each(|position| counts[drawn.row(position) as usize] += 1);
        assert_eq!(counts[1], 0);
        for (count, weight) in counts.iter().zip(weights) {
            // Six standard deviations.
            let expected = weight * 10_000.0;
            assert!((f64::from(*count) - expected).abs() < 6.0 * expected.sqrt() + 1.0, "{counts:?}");
        }
    }

    #[test]
    fn without_replacement_no_row_comes_twice_and_heavy_ones_come_early() {
        let weights: Vec<f64> = (0..100).map(|row| if row % 10 == 0 { 0.0 } else { f64::from(row) }).collect();
        let all = sampling(&weights, false, None);
        assert_eq!((all.len(), all.odd(100)), (90, None));
        let mut early = 0;
        for number in 0..50 {
            let drawn = Drawn::new(&all, key(number));
            let rows: std::collections::HashSet<u64> = (0..90).map(|position| drawn.row(position)).collect();
            assert_eq!(rows.len(), 90);
            early += (0..45).filter(|position| drawn.row(*position) >= 50).count();
        }
        assert!(early > 50 * 26, "of {} first halves' rows only {early} are heavy ones", 50 * 45);
    }

    #[test]
    fn what_cannot_be_drawn_is_told() {
        assert!(sampling(&[1.0], true, None).odd(2).is_some());
        assert!(sampling(&[1.0, -1.0], true, None).odd(2).is_some());
        assert!(sampling(&[0.0, 0.0], true, None).odd(2).is_some());
        assert!(sampling(&[1.0, 0.0], false, Some(2)).odd(2).is_some());
        assert!(sampling(&[1.0, 0.0], true, Some(9)).odd(2).is_none());
    }
}
