//! The part of a sample that becomes its tensor, drawn from the sample's seed.

use super::{Geometry, Prepared};

/// The part of one sample that becomes its output. The kernel reads it as it is.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// First row of the part, in pixels.
    pub(crate) top: u32,
    /// First column of the part.
    pub(crate) left: u32,
    /// Rows of the part.
    pub(crate) height: u32,
    /// Columns of the part.
    pub(crate) width: u32,
    /// Rows of the part for each row of the output, in 2^-32.
    pub(crate) step_down: u64,
    /// Columns of the part for each column of the output, in 2^-32.
    pub(crate) step_across: u64,
    /// 1 to mirror left and right.
    pub(crate) mirror: u32,
    pub(crate) pad: u32,
}

impl Window {
    /// Bytes of one.
    pub(crate) const SIZE: usize = size_of::<Self>();

    /// As the kernel reads it.
    pub(crate) fn to_bytes(self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        for (word, to) in [self.top, self.left, self.height, self.width].iter().zip(bytes[..16].chunks_exact_mut(4)) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes[16..24].copy_from_slice(&self.step_down.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.step_across.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.mirror.to_le_bytes());
        bytes
    }

    /// First row, first column, rows and columns of the part.
    #[must_use]
    pub fn part(&self) -> (u32, u32, u32, u32) {
        (self.top, self.left, self.height, self.width)
    }

    /// Whether it is mirrored.
    #[must_use]
    pub fn mirrored(&self) -> bool {
        self.mirror == 1
    }
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

pub(super) fn draw(prepared: &Prepared, geometry: Geometry, mirror: f64, seed: u64) -> Window {
    let mut draws = Draws(seed);
    let mirror = draws.unit() < mirror;
    let (height, width) = (prepared.height, prepared.width);
    let (out_height, out_width) = (prepared.out_height, prepared.out_width);
    let (top, left, height, width) = match geometry {
        Geometry::Whole | Geometry::Resize { .. } => (0, 0, height, width),
        Geometry::CentreCrop { .. } => middle(height, width, out_height, out_width),
        Geometry::RandomCrop { .. } => {
            let top = draws.below(height - out_height + 1);
            (top, draws.below(width - out_width + 1), out_height, out_width)
        }
        Geometry::RandomResizedCrop { area, ratio, .. } => resized(height, width, area, ratio, &mut draws),
    };
    let step = |part: u32, out: u32| (u64::from(part) << 32) / u64::from(out);
    Window {
        top,
        left,
        height,
        width,
        step_down: step(height, out_height),
        step_across: step(width, out_width),
        mirror: u32::from(mirror),
        pad: 0,
    }
}

fn middle(height: u32, width: u32, out_height: u32, out_width: u32) -> (u32, u32, u32, u32) {
    ((height - out_height) / 2, (width - out_width) / 2, out_height, out_width)
}

fn resized(height: u32, width: u32, area: (f64, f64), ratio: (f64, f64), draws: &mut Draws) -> (u32, u32, u32, u32) {
    let logs = (ratio.0.ln(), ratio.1.ln());
    let pixels = f64::from(height) * f64::from(width);
    for _ in 0..10 {
        let (area, ratio) = (pixels * draws.between(area), exp(draws.between(logs)));
        let (across, down) = ((area * ratio).sqrt().round(), (area / ratio).sqrt().round());
        if across >= 1.0 && down >= 1.0 && across <= f64::from(width) && down <= f64::from(height) {
            let (across, down) = (across as u32, down as u32);
            let top = draws.below(height - down + 1);
            return (top, draws.below(width - across + 1), down, across);
        }
    }
    let whole = f64::from(width) / f64::from(height);
    let (down, across) = if whole < ratio.0 {
        ((f64::from(width) / ratio.0).round() as u32, width)
    } else if whole > ratio.1 {
        (height, (f64::from(height) * ratio.1).round() as u32)
    } else {
        (height, width)
    };
    middle(height, width, down.clamp(1, height), across.clamp(1, width))
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

#[cfg(test)]
mod tests {
    use super::exp;

    #[test]
    fn the_exponential_is_that_of_the_system_to_a_trillionth() {
        for step in -400..400 {
            let x = f64::from(step) / 100.0;
            assert!((exp(x) / x.exp() - 1.0).abs() < 1e-12, "{x}");
        }
    }
}
