//! Finishing on the host.
//!
//! A line of the output is a blend of two lines of the image, which were blended across before. A line blended across is kept
//! until another takes its place, so each is made once; the blend downwards, the factor, the sum and the rounding to the
//! output's numbers are one loop without branches over a line. All of it is exact up to the factor, so that the order of the
//! two blends doesn't show.

use super::{Interpolation, Layout, Number, Prepared, Window};

/// Memory that finishing a row needs, for use again with the next.
#[derive(Clone, Debug, Default)]
pub struct Scratch {
    across: Vec<Across>,
    /// The first pixel of a line that is taken as it is.
    straight: Option<usize>,
    /// Lines of the image blended across, in 1/256 and in the order of the output: even ones and odd ones.
    lines: [Line; 2],
    /// What each number of a line is multiplied with, and what is added.
    scale: Vec<f32>,
    bias: Vec<f32>,
}

#[derive(Clone, Debug, Default)]
struct Line {
    /// Which line of the image.
    of: Option<u32>,
    values: Vec<u16>,
}

/// What a pixel of a line of the output is blended of: a pixel of the image and the one behind it.
#[derive(Clone, Copy, Debug)]
struct Across {
    left: u32,
    /// Of the one behind, in 1/256; 0 where there is none.
    weight: u32,
}

/// The pixels of an image, and how they lie.
struct Image<'a> {
    row: &'a [u8],
    size: [usize; 2],
    channels: usize,
    planar: bool,
}

pub(super) fn run(prepared: &Prepared, row: &[u8], window: &Window, out: &mut [u8], scratch: &mut Scratch) {
    let channels = prepared.channels() as usize;
    let [out_height, out_width] = prepared.out_size().map(|side| side as usize);
    let (planar, item) = (prepared.output() == Layout::Planar, prepared.number().bytes());
    let size = window.size.map(|side| side as usize);
    let image = Image { row, size, channels, planar: prepared.input() == Layout::Planar };
    scratch.prepare(prepared, window);
    let nearest = prepared.interpolation() == Interpolation::Nearest;
    let Scratch { across, straight, lines, scale, bias } = scratch;
    // A line of the output is one run of numbers, or one a plane.
    let (runs, length) = if planar { (channels, out_width) } else { (1, out_width * channels) };
    for y in 0..out_height {
        let (above, below, down) = place(y as u32 + window.skip[0], window.step[0], window.part[0], nearest);
        let (above, below) = (above + window.corner[0], below + window.corner[0]);
        for line in [above, below] {
            lines[line as usize % 2].load(&image, line, across, *straight, planar);
        }
        let [above, below] = [above, below].map(|line| &lines[line as usize % 2].values);
        for run in 0..runs {
            let numbers = run * length..(run + 1) * length;
            let start = (run * out_height + y) * length * item;
            Blend {
                above: &above[numbers.clone()],
                below: &below[numbers.clone()],
                down: down as u16,
                scale: &scale[numbers.clone()],
                bias: &bias[numbers],
            }
            .write(prepared.number(), &mut out[start..start + length * item]);
        }
    }
}

/// Where pixel `x` of what is resized falls in a part of `length` pixels: the pixel before, the one after, and how far between
/// them in 1/256, rounded down. Centres fall on centres. Or the pixel that its centre falls on.
pub(super) fn place(x: u32, step: u64, length: u32, nearest: bool) -> (u32, u32, u32) {
    let centre = u64::from(x) * step + step / 2;
    if nearest {
        let before = ((centre >> 32) as u32).min(length - 1);
        return (before, before, 0);
    }
    let at = centre.saturating_sub(1 << 31);
    let before = (at >> 32) as u32;
    if before >= length - 1 {
        return (length - 1, length - 1, 0);
    }
    let weight = (at >> 24) as u32 & 255;
    (before, if weight == 0 { before } else { before + 1 }, weight)
}

impl Scratch {
    /// Makes it fit a window.
    fn prepare(&mut self, prepared: &Prepared, window: &Window) {
        let (channels, width) = (prepared.channels() as usize, prepared.out_size()[1]);
        let nearest = prepared.interpolation() == Interpolation::Nearest;
        self.across.clear();
        self.across.extend((0..width).map(|x| {
            let x = if window.mirror { width - 1 - x } else { x } + window.skip[1];
            let (left, _, weight) = place(x, window.step[1], window.part[1], nearest);
            Across { left: left + window.corner[1], weight }
        }));
        let unchanged = window.step[1] == 1 << 32 && !window.mirror;
        self.straight = unchanged.then_some((window.corner[1] + window.skip[1]) as usize);
        let length = width as usize * channels;
        for line in &mut self.lines {
            line.of = None;
            line.values.resize(length, 0);
        }
        let planar = prepared.output() == Layout::Planar;
        for (all, each) in [(&mut self.scale, prepared.scale()), (&mut self.bias, prepared.bias())] {
            all.clear();
            if planar {
                all.extend(each[..channels].iter().flat_map(|value| std::iter::repeat_n(*value, width as usize)));
            } else {
                all.extend(each[..channels].iter().cycle().take(length));
            }
        }
    }
}

impl Line {
    /// Blends line `line` of the image across, unless this is it.
    fn load(&mut self, image: &Image<'_>, line: u32, across: &[Across], straight: Option<usize>, planar: bool) {
        if self.of == Some(line) {
            return;
        }
        self.of = Some(line);
        let ([height, width], channels, line) = (image.size, image.channels, line as usize);
        if image.planar || channels == 1 {
            let one = |channel: usize| {
                let from = (channel * height + line) * width;
                &image.row[from..from + width]
            };
            if !planar {
                for channel in 0..channels {
                    blend_bytes(one(channel), across, self.values[channel..].iter_mut().step_by(channels));
                }
                return;
            }
            for (channel, to) in self.values.chunks_exact_mut(across.len()).enumerate() {
                match straight {
                    Some(left) => widen(&one(channel)[left..], to),
                    None => blend_bytes(one(channel), across, to.iter_mut()),
                }
            }
            return;
        }
        let from = &image.row[line * width * channels..];
        match (straight, channels) {
            (Some(left), _) if !planar => widen(&from[left * channels..], &mut self.values),
            (_, 3) => self.load_pixels::<3>(from, across, planar),
            (_, 4) => self.load_pixels::<4>(from, across, planar),
            _ => {
                for (x, pixel) in across.iter().enumerate() {
                    let left = &from[pixel.left as usize * channels..];
                    for channel in 0..channels {
                        let at = if planar { channel * across.len() + x } else { x * channels + channel };
                        let right = left.get(channels + channel).copied().unwrap_or_default();
                        self.values[at] = blend(left[channel], right, pixel.weight);
                    }
                }
            }
        }
    }

    /// As [`load`](Self::load), for pixels of three or four bytes side by side: a word holds all channels of a blended pixel.
    fn load_pixels<const N: usize>(&mut self, from: &[u8], across: &[Across], planar: bool) {
        let blend = |x: &Across| {
            let [left, right] = two_pixels::<N>(from, x.left).map(lanes::<N>);
            // No lane overflows into the next: 255 * 256 < 2^16.
            left.wrapping_mul(u64::from(256 - x.weight)).wrapping_add(right.wrapping_mul(u64::from(x.weight)))
        };
        let lane = |word: u64, lane: usize| (word >> (16 * lane)) as u16;
        if planar {
            let mut planes = self.values.chunks_exact_mut(across.len());
            let mut planes: [&mut [u16]; N] = std::array::from_fn(|_| planes.next().unwrap_or_default());
            for (x, pixel) in across.iter().enumerate() {
                let word = blend(pixel);
                for (channel, plane) in planes.iter_mut().enumerate() {
                    plane[x] = lane(word, channel);
                }
            }
        } else {
            for (pixel, to) in across.iter().zip(self.values.chunks_exact_mut(N)) {
                let word = blend(pixel);
                for (channel, to) in to.iter_mut().enumerate() {
                    *to = lane(word, channel);
                }
            }
        }
    }
}

/// Two bytes blended, in 1/256.
fn blend(left: u8, right: u8, weight: u32) -> u16 {
    (u32::from(left) * (256 - weight) + u32::from(right) * weight) as u16
}

/// Blends a line of one channel.
fn blend_bytes<'a>(from: &[u8], across: &[Across], to: impl Iterator<Item = &'a mut u16>) {
    for (to, x) in to.zip(across) {
        let (left, right) = (x.left as usize, x.left as usize + usize::from(x.weight > 0));
        *to = blend(from[left], from[right], x.weight);
    }
}

/// Takes bytes as they are.
fn widen(from: &[u8], to: &mut [u16]) {
    to.iter_mut().zip(from).for_each(|(to, byte)| *to = u16::from(*byte) << 8);
}

/// A pixel of `N` bytes, three or four, and the one behind it, if there is one.
fn two_pixels<const N: usize>(from: &[u8], pixel: u32) -> [u32; 2] {
    let from = &from[pixel as usize * N..];
    let word = match from.first_chunk::<8>() {
        Some(bytes) => u64::from_le_bytes(*bytes),
        // At the end of an image.
        None => from.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
    };
    [word as u32, (word >> (8 * N)) as u32]
}

/// The bytes of a pixel of `N` bytes, three or four, each in 16 bits of its own.
fn lanes<const N: usize>(pixel: u32) -> u64 {
    let word = u64::from(pixel);
    let low = word & 0xff | (word & 0xff00) << 8 | (word & 0xff_0000) << 16;
    if N == 4 { low | (word & 0xff00_0000) << 24 } else { low }
}

/// A run of numbers of the output before they are rounded.
struct Blend<'a> {
    above: &'a [u16],
    below: &'a [u16],
    /// The weight of `below`, in 1/256.
    down: u16,
    scale: &'a [f32],
    bias: &'a [f32],
}

impl Blend<'_> {
    fn write(&self, number: Number, out: &mut [u8]) {
        match number {
            Number::U8 => {
                // To nearest, ties up.
                let rounded = self.blended().map(|value| (value.wrapping_add(1 << 15) >> 16) as u8);
                out.iter_mut().zip(rounded).for_each(|(to, value)| *to = value);
            }
            Number::F16 => self.write_results(to_f16, u16::to_le_bytes, out),
            Number::Bf16 => self.write_results(to_bf16, u16::to_le_bytes, out),
            Number::F32 => self.write_results(|value| value, f32::to_le_bytes, out),
        }
    }

    fn write_results<T, const N: usize>(&self, round: impl Fn(f32) -> T, bytes: impl Fn(T) -> [u8; N], out: &mut [u8]) {
        let scaled = self.blended().zip(self.scale.iter().zip(self.bias));
        // Below 2^24, so the conversion is exact.
        let results = scaled.map(|(value, (scale, bias))| value.cast_signed() as f32 * scale + bias);
        let (numbers, _) = out.as_chunks_mut::<N>();
        numbers.iter_mut().zip(results).for_each(|(to, value)| *to = bytes(round(value)));
    }

    /// In 1/65536. Nothing wraps; the compiler need not be told to look.
    fn blended(&self) -> impl Iterator<Item = u32> {
        let (up, down) = (u32::from(256 - self.down), u32::from(self.down));
        let both = self.above.iter().zip(self.below);
        both.map(move |(above, below)| {
            u32::from(*above).wrapping_mul(up).wrapping_add(u32::from(*below).wrapping_mul(down))
        })
    }
}

/// To nearest, ties to even. No input is a NaN: scale and bias are finite.
fn to_bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    (bits.wrapping_add(0x7fff).wrapping_add(bits >> 16 & 1) >> 16) as u16
}

/// To nearest, ties to even; no input is a NaN. Without branches, so that a loop of it is done several numbers at once: what
/// Fabian Giesen calls `float_to_half_fast3_rtne`.
fn to_f16(value: f32) -> u16 {
    let sign = value.to_bits() & 0x8000_0000;
    let bits = value.to_bits() ^ sign;
    let normal = bits.wrapping_sub((112 << 23) - 0xfff).wrapping_add(bits >> 13 & 1) >> 13;
    // Adding 1/2 shifts a number below f16's normal ones to where its last bit is f16's, and rounds it there.
    let small = (f32::from_bits(bits) + 0.5).to_bits().wrapping_sub(0.5_f32.to_bits());
    let rounded = if bits < 113 << 23 { small } else { normal };
    let rounded = if bits >= 143 << 23 { 0x7c00 } else { rounded };
    (rounded | sign >> 16) as u16
}

#[cfg(test)]
mod tests {
    use super::{to_bf16, to_f16};

    #[test]
    fn any_number_is_rounded_to_the_nearest_half_and_ties_go_to_the_even_one() {
        // Every 509th float, and those around the ties between numbers of both types.
        let ties = (0..=u16::MAX).flat_map(|high| {
            let tie = u32::from(high) << 16 | 0x8000;
            [tie - 0x8000, tie - 1, tie, tie + 1, tie & !0xffff | 0x1000, tie | 0x7000]
        });
        let numbers = (0..=u32::MAX / 509).map(|step| step * 509).chain(ties).map(f32::from_bits);
        for value in numbers.filter(|value| !value.is_nan()) {
            assert_eq!(to_f16(value), half::f16::from_f32(value).to_bits(), "{value:e}");
            assert_eq!(to_bf16(value), half::bf16::from_f32(value).to_bits(), "{value:e}");
        }
    }
}
