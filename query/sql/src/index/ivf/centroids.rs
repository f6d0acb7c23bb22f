//! Centroids of vectors: k-means (Lloyd 1982) on a sample.

use ndarray::{ArrayView2, Axis};
use rand::{SeedableRng as _, rngs::StdRng, seq::index::sample};
use rayon::prelude::*;

/// Times that centroids move.
const ROUNDS: usize = 8;
/// Rounds after which small cells split large ones; the others only settle.
const SPREADING: usize = 6;
/// Vectors that are compared with all centroids at once.
const BLOCK: usize = 512;

/// The middles of an index's cells.
#[derive(Debug)]
pub(super) struct Centroids {
    values: Vec<f32>,
    length: usize,
}

impl Centroids {
    /// Vectors of `length` numbers, one behind the other.
    pub(super) fn new(values: Vec<f32>, length: usize) -> Self {
        Self { values, length }
    }

    /// At most `cells` centroids of a sample of vectors.
    pub(super) fn train(vectors: &[f32], length: usize, cells: usize, seed: u64) -> Self {
        let rows = vectors.len() / length.max(1);
        let mut chance = StdRng::seed_from_u64(seed);
        let row = |row: usize| &vectors[row * length..(row + 1) * length];
        let first = sample(&mut chance, rows, cells.min(rows));
        let mut centroids = Self::new(first.iter().flat_map(row).copied().collect(), length);
        for round in 0..ROUNDS {
            let nearest = centroids.nearest(vectors);
            let cells = centroids.len();
            let (mut sums, mut counts) = (vec![0_f32; cells * length], vec![0_u32; cells]);
            for (vector, cell) in vectors.chunks_exact(length).zip(&nearest) {
                let sum = &mut sums[*cell as usize * length..][..length];
                sum.iter_mut().zip(vector).for_each(|(sum, value)| *sum += value);
                counts[*cell as usize] += 1;
            }
            for (cell, count) in counts.iter().enumerate() {
                let sum = &mut sums[cell * length..][..length];
                if *count == 0 {
                    // Nobody is near: begin anew somewhere else.
                    sum.copy_from_slice(row(sample(&mut chance, rows, 1).index(0)));
                } else {
                    sum.iter_mut().for_each(|value| *value /= *count as f32);
                }
            }
            centroids.values = sums;
            if round < SPREADING {
                centroids.spread(vectors, &nearest, &counts);
            }
        }
        centroids
    }

    /// Lets centroids of small cells split large ones. Where vectors lie in groups, a random beginning gives some groups several
    /// centroids and others one among many, which no later round changes: a search would look through these large cells again and again.
    fn spread(&mut self, vectors: &[f32], nearest: &[i32], counts: &[u32]) {
        let mut members = vec![0; counts.len()];
        for (row, cell) in nearest.iter().enumerate() {
            members[*cell as usize] = row;
        }
        let mut order: Vec<usize> = (0..counts.len()).collect();
        order.sort_by_key(|cell| counts[*cell]);
        let of_shares = |cell: usize| counts[cell] as f32 * counts.len() as f32 / nearest.len() as f32;
        for (small, large) in order.iter().copied().zip(order.iter().copied().rev()) {
            if of_shares(small) >= 0.5 || of_shares(large) <= 2.0 {
                break;
            }
            // Either side of the middle, on the line to one of the members: those of its group go with it.
            let member = &vectors[members[large] * self.length..][..self.length];
            for (at, value) in member.iter().enumerate() {
                let middle = self.values[large * self.length + at];
                let step = 0.1 * (value - middle);
                self.values[small * self.length + at] = middle + step;
                self.values[large * self.length + at] = middle - step;
            }
        }
    }

    pub(super) fn len(&self) -> usize {
        self.values.len() / self.length.max(1)
    }

    pub(super) fn length(&self) -> usize {
        self.length
    }

    pub(super) fn of(&self, cell: usize) -> &[f32] {
        &self.values[cell * self.length..(cell + 1) * self.length]
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &[f32]> {
        self.values.chunks_exact(self.length.max(1))
    }

    /// The nearest centroid of each vector: its number.
    pub(super) fn nearest(&self, vectors: &[f32]) -> Vec<i32> {
        let half_norms: Vec<f32> =
            self.iter().map(|centroid| centroid.iter().map(|value| value * value).sum::<f32>() / 2.0).collect();
        let blocks = vectors.par_chunks(BLOCK * self.length.max(1));
        blocks.flat_map_iter(|block| self.nearest_of(block, &half_norms)).collect()
    }

    fn view<'a>(&self, values: &'a [f32]) -> Result<ArrayView2<'a, f32>, ndarray::ShapeError> {
        ArrayView2::from_shape((values.len() / self.length, self.length), values)
    }

    /// |x - c|² is least where x·c - |c|²/2 is largest.
    fn nearest_of(&self, block: &[f32], half_norms: &[f32]) -> Vec<i32> {
        let (Ok(vectors), Ok(centroids)) = (self.view(block), self.view(&self.values)) else { return Vec::new() };
        let products = vectors.dot(&centroids.t());
        let best = |row: ndarray::ArrayView1<'_, f32>| {
            let scores = row.iter().zip(half_norms).map(|(product, half)| product - half).enumerate();
            let best = scores.fold(
                (0, f32::NEG_INFINITY),
                |best, (cell, score)| {
                    if score > best.1 { (cell, score) } else { best }
                },
            );
            best.0 as i32
        };
        products.axis_iter(Axis(0)).map(best).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_that_lie_together_share_a_centroid() {
        let groups = [[0.0_f32, 0.0], [10.0, 0.0], [0.0, 10.0]];
        let vectors: Vec<f32> =
            (0..300).flat_map(|row| groups[row % 3].map(|at| at + (row as f32 * 0.37).sin() * 0.5)).collect();
        let centroids = Centroids::train(&vectors, 2, 3, 7);
        let cells = centroids.nearest(&vectors);
        // Three seeds may begin in two groups; what holds is that a centroid is nearest, by a plain loop.
        let distance = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum::<f32>();
        for (vector, cell) in vectors.chunks_exact(2).zip(cells) {
            let plain = centroids.iter().map(|centroid| distance(vector, centroid)).fold(f32::MAX, f32::min);
            let found = centroids.iter().nth(cell as usize).map(|centroid| distance(vector, centroid));
            assert!(found.is_some_and(|found| found <= plain + 1e-4), "{found:?} {plain}");
        }
    }

    #[test]
    fn groups_have_cells_of_about_their_size() {
        let (length, groups, each) = (256, 200, 20);
        let mut chance = StdRng::seed_from_u64(11);
        let mut numbers = |count: usize| -> Vec<f32> {
            use rand::RngExt as _;
            (0..count).map(|_| chance.random_range(-1.0..1.0)).collect()
        };
        let middles = numbers(groups * length);
        let noise = numbers(groups * each * length);
        let place = |at: usize| middles[at / length % groups * length + at % length];
        let vectors: Vec<f32> = noise.iter().enumerate().map(|(at, noise)| place(at) + noise).collect();
        let centroids = Centroids::train(&vectors, length, groups, 7);
        let mut sizes = vec![0; groups];
        centroids.nearest(&vectors).iter().for_each(|cell| sizes[*cell as usize] += 1);
        let largest = sizes.iter().max().copied().unwrap_or_default();
        // Without that the largest has more than five times its share.
        assert!(largest <= 3 * each, "{sizes:?}");
    }

    #[test]
    fn fewer_vectors_than_cells_are_each_a_centroid() {
        let centroids = Centroids::train(&[1.0, 2.0, 3.0], 1, 8, 0);
        assert_eq!(centroids.len(), 3);
        assert_eq!(Centroids::train(&[], 4, 8, 0).len(), 0);
    }
}
