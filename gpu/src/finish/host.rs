//! Finishing on the host: the plain form of what the kernel does.

use half::{bf16, f16};

use super::{Number, Prepared, Window};

pub(super) fn run(prepared: &Prepared, row: &[u8], window: &Window, out: &mut [u8]) {
    let channels = prepared.channels as usize;
    let (height, width) = (prepared.height as usize, prepared.width as usize);
    let (out_height, out_width) = (prepared.out_height as usize, prepared.out_width as usize);
    let pixel = |y: usize, x: usize, channel: usize| -> u32 {
        let at =
            if prepared.in_planar { (channel * height + y) * width + x } else { (y * width + x) * channels + channel };
        u32::from(row[at])
    };
    let across: Vec<_> = (0..prepared.out_width)
        .map(|x| if window.mirror == 1 { prepared.out_width - 1 - x } else { x })
        .map(|x| place(x, window.step_across, window.width))
        .collect();
    for y in 0..out_height {
        let (top, below, down) = place(y as u32, window.step_down, window.height);
        let (top, below) = (top + window.top as usize, below + window.top as usize);
        for (x, &(left, right, weight)) in across.iter().enumerate() {
            let (left, right) = (left + window.left as usize, right + window.left as usize);
            for channel in 0..channels {
                let upper = pixel(top, left, channel) * (256 - weight) + pixel(top, right, channel) * weight;
                let lower = pixel(below, left, channel) * (256 - weight) + pixel(below, right, channel) * weight;
                let value = upper * (256 - down) + lower * down;
                let at = if prepared.out_planar {
                    (channel * out_height + y) * out_width + x
                } else {
                    (y * out_width + x) * channels + channel
                };
                write(prepared, channel, value, at, out);
            }
        }
    }
}

/// Where output pixel `x` falls in a part of `length` pixels: the pixel before, the one after, and how far between them in
/// 1/256. Centres fall on centres.
fn place(x: u32, step: u64, length: u32) -> (usize, usize, u32) {
    let at = (u64::from(x) * step + step / 2).saturating_sub(1 << 31);
    let before = (at >> 32) as u32;
    if before >= length - 1 {
        return (length as usize - 1, length as usize - 1, 0);
    }
    (before as usize, before as usize + 1, (at >> 24) as u32 & 255)
}

/// Writes a blended value, in 1/65536, as number `at` of the output.
fn write(prepared: &Prepared, channel: usize, value: u32, at: usize, out: &mut [u8]) {
    let scaled = || value as f32 * prepared.scale[channel] + prepared.bias[channel];
    match prepared.number {
        Number::U8 => out[at] = ((value + 32768) >> 16) as u8,
        Number::F16 => out[at * 2..at * 2 + 2].copy_from_slice(&f16::from_f32(scaled()).to_le_bytes()),
        Number::Bf16 => out[at * 2..at * 2 + 2].copy_from_slice(&bf16::from_f32(scaled()).to_le_bytes()),
        Number::F32 => out[at * 4..at * 4 + 4].copy_from_slice(&scaled().to_le_bytes()),
    }
}
