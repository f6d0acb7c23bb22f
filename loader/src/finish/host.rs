//! Finishing on the host.
//!
//! A line of the output is a blend of two lines of the image, which were blended across before. A line blended across is kept
//! until another takes its place, so each is made once; the blend downwards, the factor, the sum and the rounding to the
//! output's numbers are one loop without branches over a line. All of it is exact up to the factor, so that the order of the
//! two blends doesn't show.

use half::{f16, slice::HalfFloatSliceExt as _};

use super::{Layout, Number, Prepared, Window};

/// Memory that finishing a row needs, for use again with the next.
#[derive(Clone, Debug, Default)]
pub struct Scratch {
    across: Vec<Across>,
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

/// What a pixel of a line of the output is blended of.
#[derive(Clone, Copy, Debug)]
struct Across {
    left: u32,
    right: u32,
    /// Of the right one, in 1/256.
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
    let Scratch { across, lines, scale, bias } = scratch;
    // A line of the output is one run of numbers, or one a plane.
    let (runs, length) = if planar { (channels, out_width) } else { (1, out_width * channels) };
    for y in 0..out_height {
        let (above, below, down) = place(y as u32 + window.skip[0], window.step[0], window.part[0]);
        let (above, below) = (above + window.corner[0], below + window.corner[0]);
        for line in [above, below] {
            lines[line as usize % 2].load(&image, line, across, planar);
        }
        let [above, below] = [above, below].map(|line| &lines[line as usize % 2].values);
        for run in 0..runs {
            let numbers = run * length..(run + 1) * length;
            let start = (run * out_height + y) * length * item;
            Blend {
                above: &above[numbers.clone()],
                below: &below[numbers.clone()],
                down: down as f32,
                scale: &scale[numbers.clone()],
                bias: &bias[numbers],
            }
            .write(prepared.number(), &mut out[start..start + length * item]);
        }
    }
}

/// Where pixel `x` of what is resized falls in a part of `length` pixels: the pixel before, the one after, and how far between
/// them in 1/256, rounded down. Centres fall on centres.
fn place(x: u32, step: u64, length: u32) -> (u32, u32, u32) {
    let at = (u64::from(x) * step + step / 2).saturating_sub(1 << 31);
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
        self.across.clear();
        self.across.extend((0..width).map(|x| {
            let x = if window.mirror { width - 1 - x } else { x } + window.skip[1];
            let (left, right, weight) = place(x, window.step[1], window.part[1]);
            Across { left: left + window.corner[1], right: right + window.corner[1], weight }
        }));
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
    fn load(&mut self, image: &Image<'_>, line: u32, across: &[Across], planar: bool) {
        if self.of == Some(line) {
            return;
        }
        self.of = Some(line);
        let ([height, width], channels, line) = (image.size, image.channels, line as usize);
        if image.planar || channels == 1 {
            for channel in 0..channels {
                let from = (channel * height + line) * width;
                let from = &image.row[from..from + width];
                let blended = across.iter().map(|x| {
                    let (left, right) = (u32::from(from[x.left as usize]), u32::from(from[x.right as usize]));
                    (left * (256 - x.weight) + right * x.weight) as u16
                });
                if planar {
                    let to = &mut self.values[channel * across.len()..(channel + 1) * across.len()];
                    to.iter_mut().zip(blended).for_each(|(to, value)| *to = value);
                } else {
                    let to = self.values[channel..].iter_mut().step_by(channels);
                    to.zip(blended).for_each(|(to, value)| *to = value);
                }
            }
            return;
        }
        let from = &image.row[line * width * channels..];
        match channels {
            3 => self.load_pixels::<3>(from, across, planar),
            4 => self.load_pixels::<4>(from, across, planar),
            _ => {
                for (x, pixel) in across.iter().enumerate() {
                    for channel in 0..channels {
                        let value = |x: u32| u32::from(from[x as usize * channels + channel]);
                        let at = if planar { channel * across.len() + x } else { x * channels + channel };
                        let (left, right) = (value(pixel.left), value(pixel.right));
                        self.values[at] = (left * (256 - pixel.weight) + right * pixel.weight) as u16;
                    }
                }
            }
        }
    }

    /// As [`load`](Self::load), for pixels of three or four bytes side by side: a word holds all channels of a blended pixel.
    fn load_pixels<const N: usize>(&mut self, from: &[u8], across: &[Across], planar: bool) {
        let blend = |x: &Across| {
            let (left, right) = (lanes::<N>(from, x.left), lanes::<N>(from, x.right));
            left * u64::from(256 - x.weight) + right * u64::from(x.weight)
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

/// The bytes of a pixel of `N` bytes, each in 16 bits of its own.
fn lanes<const N: usize>(from: &[u8], pixel: u32) -> u64 {
    let at = pixel as usize * N;
    let word = match from[at..].first_chunk::<4>() {
        Some(bytes) => u64::from(u32::from_le_bytes(*bytes)),
        // The last pixel of an image, if it has three bytes.
        None => from[at..].iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
    };
    let low = word & 0xff | (word & 0xff00) << 8 | (word & 0xff_0000) << 16;
    if N == 4 { low | (word & 0xff00_0000) << 24 } else { low }
}

/// A run of numbers of the output before they are rounded.
struct Blend<'a> {
    above: &'a [u16],
    below: &'a [u16],
    /// The weight of `below`, in 1/256.
    down: f32,
    scale: &'a [f32],
    bias: &'a [f32],
}

impl Blend<'_> {
    fn write(&self, number: Number, out: &mut [u8]) {
        match number {
            Number::U8 => {
                // To the nearest, ties up.
                let rounded = self.blended().map(|value| ((value as u32).wrapping_add(1 << 15) >> 16) as u8);
                out.iter_mut().zip(rounded).for_each(|(to, value)| *to = value);
            }
            Number::F32 => {
                let (numbers, _) = out.as_chunks_mut::<4>();
                numbers.iter_mut().zip(self.results()).for_each(|(to, value)| *to = value.to_le_bytes());
            }
            Number::Bf16 => {
                let (numbers, _) = out.as_chunks_mut::<2>();
                let rounded = self.results().map(to_bf16);
                numbers.iter_mut().zip(rounded).for_each(|(to, value)| *to = value.to_le_bytes());
            }
            Number::F16 => {
                let mut values = self.results();
                for numbers in out.chunks_mut(2 * RUN) {
                    let (mut exact, mut rounded) = ([0.0; RUN], [f16::ZERO; RUN]);
                    exact.iter_mut().zip(values.by_ref()).for_each(|(to, value)| *to = value);
                    rounded.convert_from_f32_slice(&exact);
                    let (numbers, _) = numbers.as_chunks_mut::<2>();
                    numbers.iter_mut().zip(rounded).for_each(|(to, value)| *to = value.to_le_bytes());
                }
            }
        }
    }

    /// In 1/65536. Exact: whole numbers below 2^24.
    fn blended(&self) -> impl Iterator<Item = f32> {
        self.above.iter().zip(self.below).map(|(above, below)| {
            let (above, below) = (f32::from(*above), f32::from(*below));
            above * 256.0 + (below - above) * self.down
        })
    }

    fn results(&self) -> impl Iterator<Item = f32> {
        let scaled = self.blended().zip(self.scale.iter().zip(self.bias));
        scaled.map(|(value, (scale, bias))| value * scale + bias)
    }
}

/// Numbers that are rounded to f16 at once.
const RUN: usize = 64;

/// To nearest, ties to even. No input is a NaN: scale and bias are finite and values are small.
fn to_bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    (bits.wrapping_add(0x7fff).wrapping_add(bits >> 16 & 1) >> 16) as u16
}
