//! The part of a sample that becomes its tensor, drawn from the sample's seed.

use super::{Crop, Prepared, Resize};

/// The part of one sample that becomes its output.
///
/// Pixel `x` of a line of the output, or the one as far from its end if it is mirrored, is pixel `x + skip[1]` of the resized
/// part; that one's centre falls on `(x + skip[1] + 1/2) * step[1]` of the part, which starts `corner[1]` pixels into the
/// image. Lines likewise, with the first of each pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Height and width of the image.
    pub size: [u32; 2],
    /// First row and column of the part.
    pub corner: [u32; 2],
    /// Rows and columns of the part.
    pub part: [u32; 2],
    /// Rows and columns of the part for each row and column of the resized part, in 2^-32, rounded up.
    pub step: [u64; 2],
    /// Rows and columns of the resized part that are cropped before the first that is left.
    pub skip: [u32; 2],
    /// Whether it is mirrored, left and right.
    pub mirror: bool,
}

/// Random numbers of one sample: SplitMix64 (Steele, Lea, Flood 2014).
struct Draws(u64);

impl Draws {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// In 0..count.
    fn below(&mut self, count: u32) -> u32 {
        ((u128::from(self.next()) * u128::from(count)) >> 64) as u32
    }

    /// In 0..1, with 53 bits.
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn between(&mut self, (low, high): (f64, f64)) -> f64 {
        low + (high - low) * self.unit()
    }
}

/// The window of a sample; `None` if the resized image would have too long a side.
pub(super) fn draw(prepared: &Prepared, size: [u32; 2], seed: u64) -> Option<Window> {
    let mut draws = Draws(seed);
    let mirror = draws.unit() < prepared.finish.mirror;
    let (corner, part, resized) = match prepared.finish.resize {
        None => ([0, 0], size, size),
        Some(Resize::To { height, width }) => ([0, 0], size, [height as u32, width as u32]),
        Some(Resize::Shorter(side)) => ([0, 0], size, shorter(size, side as u32)),
        Some(Resize::RandomPart { height, width, area, ratio }) => {
            let (corner, part) = random_part(size, area, ratio, &mut draws);
            (corner, part, [height as u32, width as u32])
        }
    };
    if resized.iter().any(|side| *side as usize > super::LONGEST) {
        return None;
    }
    let out = prepared.out_size();
    let skip = match prepared.finish.crop {
        None => [0, 0],
        Some(Crop::Centre { .. }) => [0, 1].map(|axis| half_to_even(resized[axis] - out[axis])),
        Some(Crop::Random { .. }) => [0, 1].map(|axis| draws.below(resized[axis] - out[axis] + 1)),
    };
    // Rounded up, so that a pixel that falls on another falls on it and not just before.
    let step = [0, 1].map(|axis| (u64::from(part[axis]) << 32).div_ceil(u64::from(resized[axis])));
    Some(Window { size, corner, part, step, skip, mirror })
}

/// The size of an image whose shorter side becomes `side`.
pub(super) fn shorter([height, width]: [u32; 2], side: u32) -> [u32; 2] {
    let scaled = |long: u32, short: u32| {
        let scaled = u64::from(side) * u64::from(long) / u64::from(short.max(1));
        u32::try_from(scaled).unwrap_or(u32::MAX)
    };
    if height <= width { [side, scaled(width, height)] } else { [scaled(height, width), side] }
}

/// Half of it, rounded to the even one of two that are as near: what `round` does in the libraries that a centre crop is known
/// from.
fn half_to_even(rest: u32) -> u32 {
    let half = rest / 2;
    half + (rest % 2) * (half % 2)
}

fn random_part(size: [u32; 2], area: (f64, f64), ratio: (f64, f64), draws: &mut Draws) -> ([u32; 2], [u32; 2]) {
    let logs = (ln(ratio.0), ln(ratio.1));
    let [height, width] = size.map(f64::from);
    for _ in 0..10 {
        let (area, ratio) = (height * width * draws.between(area), exp(draws.between(logs)));
        let part = [(area / ratio).sqrt().round(), (area * ratio).sqrt().round()];
        if part[0] >= 1.0 && part[1] >= 1.0 && part[0] <= height && part[1] <= width {
            let part = part.map(|side| side as u32);
            let corner = [0, 1].map(|axis| draws.below(size[axis] - part[axis] + 1));
            return (corner, part);
        }
    }
    let whole = width / height;
    let part = if whole < ratio.0 {
        [width / ratio.0, width]
    } else if whole > ratio.1 {
        [height, height * ratio.1]
    } else {
        [height, width]
    };
    let part = [0, 1].map(|axis| (part[axis].round() as u32).clamp(1, size[axis]));
    ([0, 1].map(|axis| (size[axis] - part[axis]) / 2), part)
}

/// e^x for small x, to a few units in the last place, from multiplications and additions alone: the system's `exp` differs
/// between systems, and a sample's pixels should not.
fn exp(x: f64) -> f64 {
    let small = x / 256.0;
    let mut sum = 1.0;
    for term in (1..=12).rev() {
        sum = 1.0 + sum * small / f64::from(term);
    }
    for _ in 0..8 {
        sum *= sum;
    }
    sum
}

/// The natural logarithm of a positive, finite number, for the same reason as [`exp`].
fn ln(x: f64) -> f64 {
    // x = fraction * 2^exponent, with the fraction near 1; then 2 artanh((fraction - 1) / (fraction + 1)).
    let (mut fraction, mut exponent) = (x, 0.0);
    while fraction > 1.5 {
        (fraction, exponent) = (fraction / 2.0, exponent + 1.0);
    }
    while fraction < 0.75 {
        (fraction, exponent) = (fraction * 2.0, exponent - 1.0);
    }
    let z = (fraction - 1.0) / (fraction + 1.0);
    let sum = (0..14).rev().fold(0.0, |sum, term| sum * z * z + 1.0 / f64::from(2 * term + 1));
    exponent * std::f64::consts::LN_2 + 2.0 * z * sum
}

#[cfg(test)]
mod tests {
    use super::{exp, half_to_even, ln, shorter};

    #[test]
    fn the_exponential_and_the_logarithm_are_those_of_the_system_to_a_trillionth() {
        for step in 1..4000 {
            let x = f64::from(step) / 100.0;
            assert!((ln(x) - x.ln()).abs() < 1e-12, "{x}");
        }
        assert!((ln(1e-300) / 1e-300_f64.ln() - 1.0).abs() < 1e-12 && ln(1.0) == 0.0);
        for step in -400..400 {
            let x = f64::from(step) / 100.0;
            assert!((exp(x) / x.exp() - 1.0).abs() < 1e-12, "{x}");
        }
    }

    #[test]
    fn the_shorter_side_becomes_as_long_as_asked_and_the_other_follows() {
        assert_eq!(shorter([480, 640], 256), [256, 341]);
        assert_eq!(shorter([640, 480], 256), [341, 256]);
        assert_eq!(shorter([7, 7], 3), [3, 3]);
    }

    #[test]
    fn a_half_goes_to_the_even_one() {
        assert_eq!([0, 1, 2, 3, 4, 5, 7].map(half_to_even), [0, 0, 1, 2, 2, 2, 4]);
    }
}
