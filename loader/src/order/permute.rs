//! Keyed permutations of `0..n`, for any `n`, in constant time and memory.
//!
//! A balanced Feistel network permutes the smallest square power of two that holds `n`; a value that falls outside is
//! sent through again until it falls inside (*cycle walking*, Black and Rogaway, "Ciphers with arbitrary finite
//! domains", CT-RSA 2002). The square is less than four times `n`, so that takes under four rounds on average.

use std::sync::{Arc, OnceLock};

/// The secret of one epoch's order: a hash of everything that it depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key([u8; 32]);

impl Key {
    /// The key of a text and numbers. Different inputs have different keys (BLAKE3).
    #[must_use]
    pub fn new(purpose: &str, inputs: &[u64]) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key(purpose);
        for input in inputs {
            hasher.update(&input.to_le_bytes());
        }
        Self(*hasher.finalize().as_bytes())
    }

    /// A number drawn from it, uniform in all of `u64`.
    #[must_use]
    pub fn drawn(&self) -> u64 {
        self.number(Purpose::Drawn)
    }

    /// Eight words that depend on this key, on what they are for, and on which of that.
    fn words(&self, purpose: Purpose, lane: u64, number: u64) -> [u64; ROUNDS] {
        let mut input = [0; 17];
        input[0] = purpose as u8;
        input[1..9].copy_from_slice(&lane.to_le_bytes());
        input[9..].copy_from_slice(&number.to_le_bytes());
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(&input);
        let mut bytes = [0; ROUNDS * 8];
        hasher.finalize_xof().fill(&mut bytes);
        let mut words = [0; ROUNDS];
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            let mut little = [0; 8];
            little.copy_from_slice(bytes);
            *word = u64::from_le_bytes(little);
        }
        words
    }

    /// A number that depends on this key.
    pub(super) fn number(&self, purpose: Purpose) -> u64 {
        self.number_of(purpose, 0)
    }

    /// A number that depends on this key, and on which of that purpose it is.
    pub(super) fn number_of(&self, purpose: Purpose, number: u64) -> u64 {
        self.words(purpose, 0, number)[0]
    }

    /// As [`number_of`](Self::number_of), and another one.
    pub(super) fn pair_of(&self, purpose: Purpose, number: u64) -> [u64; 2] {
        let words = self.words(purpose, 0, number);
        [words[0], words[1]]
    }
}

/// What a key is used for: two uses never share a permutation.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
pub(super) enum Purpose {
    Rows = 1,
    Units = 2,
    Group = 3,
    Phase = 4,
    Sample = 5,
    Drawn = 6,
}

const ROUNDS: usize = 8;

/// A permutation of `0..n`.
#[derive(Clone, Debug)]
pub(super) struct Permutation {
    n: u64,
    /// Bits of each half.
    half: u32,
    keys: [u64; ROUNDS],
}

impl Permutation {
    pub(super) fn new(n: u64, key: &Key, purpose: Purpose, lane: u64, number: u64) -> Self {
        let bits = u64::BITS - n.saturating_sub(1).leading_zeros();
        Self { n, half: bits.div_ceil(2).max(1), keys: key.words(purpose, lane, number) }
    }

    /// Where `x < n` goes.
    pub(super) fn apply(&self, x: u64) -> u64 {
        let mut x = self.forward(x);
        while x >= self.n {
            x = self.forward(x);
        }
        x
    }

    /// What goes to `y < n`.
    pub(super) fn invert(&self, y: u64) -> u64 {
        let mut y = self.backward(y);
        while y >= self.n {
            y = self.backward(y);
        }
        y
    }

    fn mask(&self) -> u64 {
        (1 << self.half) - 1
    }

    /// What each round mixes in; halves have at most 16 bits.
    fn rounds(&self) -> Vec<Round> {
        let mut rounds = vec![[0; 1 << Prepared::MOST_BITS]; ROUNDS];
        for (round, key) in rounds.iter_mut().zip(&self.keys) {
            for (half, mixed) in (0..=self.mask()).zip(round) {
                *mixed = (mix(half, *key) & self.mask()) as u16;
            }
        }
        rounds
    }

    fn forward(&self, x: u64) -> u64 {
        let (mut left, mut right) = (x >> self.half, x & self.mask());
        for key in &self.keys {
            (left, right) = (right, left ^ (mix(right, *key) & self.mask()));
        }
        left << self.half | right
    }

    fn backward(&self, x: u64) -> u64 {
        let (mut left, mut right) = (x >> self.half, x & self.mask());
        for key in self.keys.iter().rev() {
            (left, right) = (right ^ (mix(left, *key) & self.mask()), left);
        }
        left << self.half | right
    }
}

/// What a round mixes in, for every half.
type Round = [u16; 1 << Prepared::MOST_BITS];

/// A permutation that is asked for many values: what each round mixes in is worked out beforehand for every half that there is, which
/// are few. Then a round is one look at a table that the processor's caches hold, where it was four multiplications.
#[derive(Clone, Debug)]
pub(super) struct Prepared {
    permutation: Permutation,
    /// Made when it first pays. Of a table longer than there are halves, the rest is never touched.
    rounds: Arc<OnceLock<Vec<Round>>>,
}

impl Prepared {
    /// Halves of more bits have no tables: these would be larger than caches.
    const MOST_BITS: u32 = 16;
    /// Fewer values than this would be done before the tables were.
    const LEAST: u64 = 1 << 14;

    pub(super) fn new(permutation: Permutation) -> Self {
        Self { permutation, rounds: Arc::default() }
    }

    /// Where `x < n` goes.
    pub(super) fn apply(&self, x: u64) -> u64 {
        self.permutation.apply(x)
    }

    /// What goes to `y < n`.
    pub(super) fn invert(&self, y: u64) -> u64 {
        self.permutation.invert(y)
    }

    /// Where each of these goes.
    pub(super) fn apply_all(&self, values: &mut [u64]) {
        if self.permutation.half > Self::MOST_BITS || self.permutation.n < Self::LEAST {
            return values.iter_mut().for_each(|x| *x = self.apply(*x));
        }
        let rounds = self.rounds.get_or_init(|| self.permutation.rounds());
        let mut walking = values.to_vec();
        let mut places: Vec<usize> = (0..values.len()).collect();
        while !walking.is_empty() {
            self.forward_all(rounds, &mut walking);
            // Which values are inside can't be foreseen, so there is no branch for it.
            let mut outside = 0;
            for index in 0..walking.len() {
                let (value, place) = (walking[index], places[index]);
                values[place] = value;
                (walking[outside], places[outside]) = (value, place);
                outside += usize::from(value >= self.permutation.n);
            }
            walking.truncate(outside);
        }
    }

    /// Several side by side: while one waits for its table, others have their turn.
    fn forward_all(&self, rounds: &[Round], values: &mut [u64]) {
        const SIDE_BY_SIDE: usize = 4;
        let (half, mask) = (self.permutation.half, self.permutation.mask());
        let (groups, rest) = values.as_chunks_mut::<SIDE_BY_SIDE>();
        for group in groups {
            let mut left = group.map(|x| (x >> half) as u16);
            let mut right = group.map(|x| (x & mask) as u16);
            for [one, other] in rounds.as_chunks().0 {
                for (left, right) in left.iter_mut().zip(&mut right) {
                    *left ^= one[usize::from(*right)];
                    *right ^= other[usize::from(*left)];
                }
            }
            for (x, (left, right)) in group.iter_mut().zip(left.iter().zip(&right)) {
                *x = u64::from(*left) << half | u64::from(*right);
            }
        }
        for x in rest {
            *x = self.permutation.forward(*x);
        }
    }
}

/// Two rounds of SplitMix64's finalizer around the key: every output bit depends on every bit of both.
fn mix(x: u64, key: u64) -> u64 {
    finalize(finalize(x ^ key).wrapping_add(key.rotate_left(32)))
}

fn finalize(mut z: u64) -> u64 {
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permutation(n: u64, seed: u64) -> Permutation {
        Permutation::new(n, &Key::new("test", &[seed]), Purpose::Rows, 0, 0)
    }

    #[test]
    fn every_small_range_is_permuted_and_inverted() {
        for n in 1..=300 {
            let permutation = permutation(n, n);
            let mut seen = vec![false; n as usize];
            for x in 0..n {
                let y = permutation.apply(x);
                assert!(y < n && !std::mem::replace(&mut seen[y as usize], true), "{x} of {n}");
                assert_eq!(permutation.invert(y), x);
            }
        }
    }

    #[test]
    fn tables_change_nothing() {
        for n in
            [1, 2, 9, 257, 4096, 4097, 1 << 16, (1 << 16) + 1, 70_001, 4_294_967, (1 << 32) - 5, 1 << 32, (1 << 32) + 1]
        {
            let plain = permutation(n, n);
            let values: Vec<u64> = (0..3001).map(|index| index * (n / 3001).max(1) % n).collect();
            let mut prepared = values.clone();
            Prepared::new(plain.clone()).apply_all(&mut prepared);
            assert_eq!(prepared, values.iter().map(|x| plain.apply(*x)).collect::<Vec<_>>(), "{n}");
        }
    }

    #[test]
    fn every_place_is_equally_likely() {
        // 64 places, 6,400 keys: the chi-square statistic of where 0 goes has mean 63 and standard deviation 11.2.
        for from in [0, 17, 63] {
            let mut counts = [0_u32; 64];
            for seed in 0..6400 {
                counts[permutation(64, seed).apply(from) as usize] += 1;
            }
            let chi: f64 = counts.iter().map(|&count| (f64::from(count) - 100.0).powi(2) / 100.0).sum();
            assert!((30.0..110.0).contains(&chi), "{chi} from {from}");
        }
    }

    #[test]
    fn walks_are_short_at_every_size() {
        for n in [5, 17, 65, 257, (1 << 20) + 1, (1 << 47) + 1, 1 << 48] {
            let permutation = permutation(n, 1);
            let steps: u32 = (0..1000)
                .map(|index| {
                    let mut x = permutation.forward(index * (n / 1000).max(1) % n);
                    let mut steps = 1;
                    while x >= n {
                        x = permutation.forward(x);
                        steps += 1;
                    }
                    steps
                })
                .sum();
            assert!(steps < 6000, "{steps} steps for 1,000 values of {n}");
        }
    }
}
