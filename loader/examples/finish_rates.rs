//! How many images a second one core finishes, beside a plain copy of the same rows.
//!
//! ```text
//! cargo run --release -p forebay-loader --example finish_rates
//! ```
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::time::Instant;

use forebay_format::{Column, DType, Dim};
use forebay_loader::finish::{Crop, Finish, Layout, Number, Resize, Scratch};

/// Rows that are finished in turn: more than the caches hold.
const IMAGES: usize = 400;
const ROUNDS: usize = 5;

fn main() {
    let pixels: Vec<u8> = (0..IMAGES * 256 * 256 * 3).map(|at| ((at * at) >> 7) as u8).collect();
    println!("{:<58} {:>12} {:>10}", "case", "images/s", "GB/s read");
    for (name, shape, finish) in cases() {
        let column = Column::new("image", DType::U8, shape.map(Dim::Fixed)).unwrap();
        let prepared = finish.prepare(&column).unwrap();
        let windows: Vec<_> =
            (0..IMAGES as u64).map(|seed| prepared.window(seed, prepared.size().unwrap()).unwrap()).collect();
        let row_bytes = prepared.row_bytes(&windows[0]);
        let mut outputs = vec![0; prepared.out_row_bytes() * 64];
        let mut scratch = Scratch::default();
        let mut best = f64::INFINITY;
        for _ in 0..ROUNDS {
            let started = Instant::now();
            for (image, window) in windows.iter().enumerate() {
                let out = outputs.chunks_exact_mut(prepared.out_row_bytes()).nth(image % 64).unwrap();
                prepared.run(&pixels[image * row_bytes..(image + 1) * row_bytes], window, out, &mut scratch).unwrap();
            }
            best = best.min(started.elapsed().as_secs_f64());
        }
        let rate = IMAGES as f64 / best;
        println!("{name:<58} {rate:>12.0} {:>10.2}", rate * row_bytes as f64 / 1e9);
    }
}

fn cases() -> Vec<(&'static str, [u32; 3], Finish)> {
    let size = 224;
    let part = Resize::RandomPart { height: size, width: size, area: (0.08, 1.0), ratio: (0.75, 4.0 / 3.0) };
    let normalized = Finish {
        scale: vec![0.017, 0.0175, 0.0174],
        bias: vec![-2.1, -2.0, -1.8],
        number: Number::Bf16,
        mirror: 0.5,
        ..Finish::default()
    };
    let train = Finish { resize: Some(part), ..normalized.clone() };
    let crop = Some(Crop::Random { height: size, width: size });
    let planar = |finish: &Finish| Finish { output: Layout::Planar, ..finish.clone() };
    let of = |finish: &Finish, number| Finish { number, ..finish.clone() };
    let (hwc, chw, large) = ([224, 224, 3], [3, 224, 224], [256, 256, 3]);
    let eval = Finish {
        resize: Some(Resize::Shorter(232)),
        crop: Some(Crop::Centre { height: 224, width: 224 }),
        ..normalized.clone()
    };
    vec![
        ("HWC, resized crop, flip, bf16 channels-last", hwc, train.clone()),
        ("HWC, resized crop, flip, bf16 planes", hwc, planar(&train)),
        ("CHW, resized crop, flip, bf16 channels-last", chw, train.clone()),
        ("CHW, resized crop, flip, bf16 planes", chw, planar(&train)),
        ("HWC, resized crop, flip, f16 channels-last", hwc, of(&train, Number::F16)),
        ("HWC, resized crop, flip, f32 planes", hwc, of(&planar(&train), Number::F32)),
        ("HWC, resized crop, flip, u8 planes", hwc, of(&planar(&train), Number::U8)),
        ("HWC 256, resize 232, centre crop, flip, bf16 channels-last", large, eval),
        ("HWC 256, random crop, flip, bf16 channels-last", large, Finish { crop, ..normalized.clone() }),
        ("HWC 256, random crop, flip, bf16 planes", large, planar(&Finish { crop, ..normalized.clone() })),
        ("HWC, bf16 channels-last", hwc, Finish { mirror: 0.0, ..normalized.clone() }),
        ("CHW, bf16 planes", chw, planar(&Finish { mirror: 0.0, ..normalized })),
    ]
}
