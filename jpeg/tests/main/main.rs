//! What is promised of JPEG files: the right pixels or a typed error.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod damage;
mod parts;
mod pixels;

use forebay_jpeg::{Jpeg, Part, Pixels, Result};
use jpeg_encoder::{ColorType, Encoder, SamplingFactor};

/// How an image is encoded.
#[derive(Clone, Debug)]
pub(crate) struct Coding {
    pub(crate) color: ColorType,
    pub(crate) sampling: SamplingFactor,
    pub(crate) progressive: bool,
    /// One scan a component, and codes of its own.
    pub(crate) optimized: bool,
    pub(crate) restart: u16,
    pub(crate) quality: u8,
}

impl Default for Coding {
    fn default() -> Self {
        Self {
            color: ColorType::Rgb,
            sampling: SamplingFactor::R_4_4_4,
            progressive: false,
            optimized: false,
            restart: 0,
            quality: 90,
        }
    }
}

/// Waves of other lengths in each channel, which no two seeds have alike.
pub(crate) fn waves(height: u16, width: u16, channels: usize, seed: u32) -> Vec<u8> {
    let at = |y: u16, x: u16, channel: usize| {
        let (y, x, channel) = (f64::from(y), f64::from(x), channel as f64);
        let phase = x * (0.11 + 0.07 * channel) + y * (0.05 + 0.04 * channel) + f64::from(seed);
        (127.5 + 127.5 * phase.sin()) as u8
    };
    let rows = (0..height).flat_map(|y| (0..width).map(move |x| (y, x)));
    rows.flat_map(|(y, x)| (0..channels).map(move |channel| at(y, x, channel))).collect()
}

/// A file of these pixels.
pub(crate) fn encoded(values: &[u8], height: u16, width: u16, coding: &Coding) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = Encoder::new(&mut bytes, coding.quality);
    encoder.set_sampling_factor(coding.sampling);
    encoder.set_progressive(coding.progressive);
    encoder.set_optimized_huffman_tables(coding.optimized);
    if coding.restart > 0 {
        encoder.set_restart_interval(coding.restart);
    }
    encoder.encode(values, width, height, coding.color).unwrap();
    bytes
}

/// A picture in colours.
pub(crate) fn picture(height: u16, width: u16, coding: &Coding) -> Vec<u8> {
    encoded(&waves(height, width, 3, 1), height, width, coding)
}

pub(crate) fn decode(bytes: &[u8], pixels: Pixels, part: Option<Part>) -> Result<Vec<u8>> {
    let jpeg = Jpeg::open(bytes)?;
    let part = part.unwrap_or_else(|| Part::whole(jpeg.size(), 1));
    // What isn't written would show.
    let mut out = vec![0xa5; part.bytes(pixels)];
    let mut copied = out.clone();
    jpeg.decode(pixels, &part, &mut out, part.row_bytes(pixels))?;
    Jpeg::open(bytes)?.decode_by(pixels, &part, &mut copied, part.row_bytes(pixels), Some(<[u8]>::copy_from_slice))?;
    assert!(copied == out, "a copy brings other pixels");
    Ok(out)
}
