//! What a finish makes of an image.

use forebay_format::{DType, Dim};
use forebay_loader::finish::{Crop, Finish, Interpolation, Layout, Number, Prepared, Resize, Scratch, Window};
use half::{bf16, f16};
use proptest::prelude::*;

use crate::images::{column, finishes, fixed};

/// The plainest form of a finish: one number of the output after another.
fn model(prepared: &Prepared, row: &[u8], window: &Window) -> Vec<u8> {
    let channels = prepared.channels() as usize;
    let ([height, width], [out_height, out_width]) =
        (window.size.map(|side| side as usize), prepared.out_size().map(|side| side as usize));
    let pixel = |y: usize, x: usize, channel: usize| {
        u64::from(match prepared.input() {
            Layout::Planar => row[(channel * height + y) * width + x],
            Layout::Interleaved => row[(y * width + x) * channels + channel],
        })
    };
    let place = |x: usize, axis: usize| {
        let x = x as u64 + u64::from(window.skip[axis]);
        let centre = x * window.step[axis] + window.step[axis] / 2;
        let last = u64::from(window.part[axis]) - 1;
        let at = centre.saturating_sub(1 << 31);
        let (before, weight) = if prepared.interpolation() == Interpolation::Nearest {
            ((centre >> 32).min(last), 0)
        } else if at >> 32 >= last {
            (last, 0)
        } else {
            (at >> 32, at >> 24 & 255)
        };
        let before = (before + u64::from(window.corner[axis])) as usize;
        (before, before + usize::from(weight > 0), weight)
    };
    let mut out = vec![0; prepared.out_row_bytes()];
    for y in 0..out_height {
        for x in 0..out_width {
            let (above, below, down) = place(y, 0);
            let (left, right, across) = place(if window.mirror { out_width - 1 - x } else { x }, 1);
            for channel in 0..channels {
                let line = |y| pixel(y, left, channel) * (256 - across) + pixel(y, right, channel) * across;
                let value = line(above) * (256 - down) + line(below) * down;
                let at = match prepared.output() {
                    Layout::Planar => (channel * out_height + y) * out_width + x,
                    Layout::Interleaved => (y * out_width + x) * channels + channel,
                };
                let result = value as f32 * prepared.scale()[channel] + prepared.bias()[channel];
                match prepared.number() {
                    Number::U8 => out[at] = ((value + 32768) >> 16) as u8,
                    Number::F16 => out[at * 2..at * 2 + 2].copy_from_slice(&f16::from_f32(result).to_le_bytes()),
                    Number::Bf16 => out[at * 2..at * 2 + 2].copy_from_slice(&bf16::from_f32(result).to_le_bytes()),
                    Number::F32 => out[at * 4..at * 4 + 4].copy_from_slice(&result.to_le_bytes()),
                }
            }
        }
    }
    out
}

#[test]
fn an_image_becomes_what_the_plainest_form_makes_of_it() {
    let scratch = std::cell::RefCell::new(Scratch::default());
    let input = (finishes(), [1_u32..24, 1_u32..24], any::<u64>(), prop::collection::vec(any::<u8>(), 24 * 24 * 5));
    proptest!(ProptestConfig::with_cases(600), |(((finish, column), size, seed, pixels) in input)| {
        let prepared = finish.prepare(&column).unwrap();
        let window = prepared.window(seed, prepared.size().unwrap_or(size)).unwrap();
        let row = &pixels[..prepared.row_bytes(&window)];
        let mut out = vec![0xee; prepared.out_row_bytes()];
        prepared.run(row, &window, &mut out, &mut scratch.borrow_mut()).unwrap();
        prop_assert_eq!(out, model(&prepared, row, &window));
    });
}

/// Finishes one image whose size is fixed.
fn run(finish: &Finish, shape: &[u32], row: &[u8], seed: u64) -> Vec<u8> {
    let prepared = finish.prepare(&fixed(shape)).unwrap();
    let window = prepared.window(seed, prepared.size().unwrap()).unwrap();
    let mut out = vec![0; prepared.out_row_bytes()];
    prepared.run(row, &window, &mut out, &mut Scratch::default()).unwrap();
    out
}

/// Numbers as they are.
fn plain() -> Finish {
    Finish { number: Number::U8, ..Finish::default() }
}

#[test]
fn a_finish_that_does_nothing_changes_nothing() {
    let row: Vec<u8> = (0..5 * 7 * 3).map(|byte| (byte * 37) as u8).collect();
    assert_eq!(run(&plain(), &[5, 7, 3], &row, 9), row);
    let same = Finish { resize: Some(Resize::To { height: 5, width: 7 }), ..plain() };
    assert_eq!(run(&same, &[5, 7, 3], &row, 9), row);
}

#[test]
fn channels_move_to_the_front_and_are_scaled_and_shifted_each_by_its_own() {
    let finish = Finish {
        input: Some(Layout::Interleaved),
        output: Layout::Planar,
        scale: vec![2.0, 0.5],
        bias: vec![1.0, -1.0],
        ..Finish::default()
    };
    let out = run(&finish, &[1, 2, 2], &[10, 20, 30, 40], 0);
    let numbers: Vec<_> = out.chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect();
    assert_eq!(numbers, [21.0, 61.0, 9.0, 19.0]);
}

#[test]
fn mirroring_turns_lines_around() {
    assert_eq!(run(&Finish { mirror: 1.0, ..plain() }, &[2, 3], &[1, 2, 3, 4, 5, 6], 0), [3, 2, 1, 6, 5, 4]);
}

#[test]
fn halving_an_image_blends_its_neighbours_in_equal_parts_and_doubling_keeps_its_corners() {
    let resized = |height, width| Finish { resize: Some(Resize::To { height, width }), ..plain() };
    assert_eq!(run(&resized(1, 2), &[2, 4], &[0, 10, 20, 30, 40, 50, 60, 70], 0), [25, 45]);
    assert_eq!(run(&resized(1, 4), &[1, 2], &[0, 100], 0), [0, 25, 75, 100]);
}

#[test]
fn a_mask_takes_the_nearest_pixel_and_an_image_a_blend_unless_the_finish_says_so() {
    let resize = Some(Resize::To { height: 1, width: 3 });
    let row = [0, 10, 20, 30, 40];
    let run_as = |kind: &str, interpolation| {
        let mut column = fixed(&[1, 5]);
        column.kind.name = kind.to_owned();
        let prepared = Finish { resize, interpolation, ..plain() }.prepare(&column).unwrap();
        let mut out = [0; 3];
        prepared.run(&row, &prepared.window(0, [1, 5]).unwrap(), &mut out, &mut Scratch::default()).unwrap();
        out
    };
    let (nearest, blend) = ([0, 20, 40], [3, 20, 37]);
    assert_eq!(run_as("mask", None), nearest);
    assert_eq!(run_as("image", None), blend);
    assert_eq!(run_as("mask", Some(Interpolation::Bilinear)), blend);
    assert_eq!(run_as("image", Some(Interpolation::Nearest)), nearest);
}

#[test]
fn a_window_made_by_hand_that_does_not_fit_is_refused() {
    let prepared = plain().prepare(&fixed(&[4, 6])).unwrap();
    let window = prepared.window(0, [4, 6]).unwrap();
    assert!(prepared.fits(&window));
    let odd = [
        Window { corner: [1, 0], ..window },
        Window { corner: [u32::MAX, 0], ..window },
        Window { part: [0, 6], ..window },
        Window { skip: [0, 1], ..window },
        Window { step: [u64::MAX, 1 << 32], ..window },
    ];
    for window in odd {
        assert!(!prepared.fits(&window), "{window:?}");
        assert!(prepared.run(&[0; 24], &window, &mut [0; 24], &mut Scratch::default()).is_err());
    }
}

#[test]
fn a_crop_after_a_resize_is_a_part_of_what_the_resize_gives() {
    let row: Vec<u8> = (0..40 * 30 * 3).map(|byte| (byte * byte % 251) as u8).collect();
    let resized = Finish { resize: Some(Resize::Shorter(17)), ..plain() };
    let whole = run(&resized, &[40, 30, 3], &row, 0);
    assert_eq!(whole.len(), 22 * 17 * 3);
    let cropped = Finish { crop: Some(Crop::Centre { height: 11, width: 10 }), ..resized };
    let part = run(&cropped, &[40, 30, 3], &row, 0);
    // (22 - 11) / 2 = 5.5 and (17 - 10) / 2 = 3.5 round to the even one.
    for y in 0..11 {
        let from = ((y + 6) * 17 + 4) * 3;
        assert_eq!(part[y * 30..(y + 1) * 30], whole[from..from + 30]);
    }
}

#[test]
fn a_crop_lies_inside_the_image_and_takes_every_place_that_it_can() {
    let crop = Finish { crop: Some(Crop::Random { height: 3, width: 2 }), ..Finish::default() };
    let prepared = crop.prepare(&fixed(&[4, 4])).unwrap();
    let mut places: Vec<_> = (0..200).map(|seed| prepared.window(seed, [4, 4]).unwrap().skip).collect();
    places.sort_unstable();
    places.dedup();
    let all: Vec<_> = (0..2).flat_map(|top| (0..3).map(move |left| [top, left])).collect();
    assert_eq!(places, all);
}

#[test]
fn a_random_part_has_the_area_and_the_ratio_that_were_asked_for() {
    let resize = Resize::RandomPart { height: 224, width: 224, area: (0.2, 0.5), ratio: (0.75, 4.0 / 3.0) };
    let finish = Finish { resize: Some(resize), mirror: 0.5, ..Finish::default() };
    let prepared = finish.prepare(&column(&[Dim::Free, Dim::Free, Dim::Fixed(3)])).unwrap();
    let mut mirrored = 0;
    for seed in 0..1000 {
        let window = prepared.window(seed, [500, 400]).unwrap();
        let [height, width] = window.part;
        assert!(window.corner[0] + height <= 500 && window.corner[1] + width <= 400);
        let (area, ratio) = (f64::from(height * width) / 200_000.0, f64::from(width) / f64::from(height));
        assert!((0.198..0.502).contains(&area) && (0.74..1.35).contains(&ratio), "{area} {ratio}");
        mirrored += usize::from(window.mirror);
    }
    assert!((430..570).contains(&mirrored), "{mirrored}");
}

#[test]
fn where_channels_are_is_taken_from_the_kind_or_from_a_shape_that_leaves_no_doubt() {
    let input = |shape: &[u32], layout: Option<&str>| {
        let mut column = fixed(shape);
        if let Some(layout) = layout {
            column.kind.metadata.insert("layout".to_owned(), layout.to_owned());
        }
        Finish::default().prepare(&column).map(|prepared| prepared.input())
    };
    assert_eq!(input(&[3, 32, 32], None).unwrap(), Layout::Planar);
    assert_eq!(input(&[32, 32, 1], None).unwrap(), Layout::Interleaved);
    assert_eq!(input(&[3, 32, 3], Some("CHW")).unwrap(), Layout::Planar);
    assert_eq!(input(&[2, 32, 5], Some("HWC")).unwrap(), Layout::Interleaved);
    assert!(input(&[3, 32, 3], None).unwrap_err().to_string().contains("either layout"));
    assert!(input(&[8, 32, 8], None).unwrap_err().to_string().contains("either layout"));
}

#[test]
fn what_does_not_fit_is_refused_in_words() {
    let refused = |finish: Finish, shape: &[u32]| finish.prepare(&fixed(shape)).unwrap_err().to_string();
    let whole = Finish::default;
    let shape = [5, 5, 3];
    let no_image = refused(whole(), &[5]);
    assert_eq!(
        no_image,
        "column 'image' can't be finished: rows of shape [5] are no images of two or three dimensions"
    );
    let nine = Finish { input: Some(Layout::Interleaved), ..whole() };
    assert!(refused(nine, &[5, 5, 9]).ends_with("9 channels: 1 to 8 are supported"));
    assert!(refused(whole(), &[0, 5, 3]).contains("an image of 0 x 5"));
    let two = Finish { scale: vec![1.0; 2], ..whole() };
    assert!(refused(two, &shape).ends_with("2 values of scale for 3 channels"));
    assert!(refused(Finish { bias: vec![f32::NAN], ..whole() }, &shape).ends_with("bias of NaN"));
    assert!(refused(Finish { mirror: 1.5, ..whole() }, &shape).contains("probability 1.5"));
    let crop = Some(Crop::Centre { height: 6, width: 1 });
    assert!(refused(Finish { crop, ..whole() }, &shape).contains("larger than the image of 5 x 5"));
    let part = |area, ratio| Some(Resize::RandomPart { height: 6, width: 1, area, ratio });
    let resize = part((0.0, 1.0), (1.0, 1.0));
    assert!(refused(Finish { resize, ..whole() }, &shape).contains("a scale of (0.0, 1.0)"));
    let resize = part((0.1, 1.0), (2.0, 1.0));
    assert!(refused(Finish { resize, ..whole() }, &shape).contains("a ratio of (2.0, 1.0)"));
    let resize = Some(Resize::To { height: 70_000, width: 1 });
    assert!(refused(Finish { resize, ..whole() }, &shape).contains("sides are 1 to 65535 pixels"));
}

#[test]
fn columns_that_hold_no_images_of_one_size_are_refused_in_words() {
    let free = [Dim::Free, Dim::Free, Dim::Fixed(3)];
    let refused = |finish: &Finish, column| finish.prepare(&column).unwrap_err().to_string();
    assert!(refused(&Finish::default(), column(&free)).contains("sizes of their own: resize them to one"));
    let shorter = Finish { resize: Some(Resize::Shorter(8)), ..Finish::default() };
    assert!(refused(&shorter, column(&free)).contains("crop them to one size"));
    let crop = Some(Crop::Centre { height: 9, width: 8 });
    assert!(refused(&Finish { crop, ..shorter }, column(&free)).contains("larger than the image of 8 x 8"));
    let resized = Finish { resize: Some(Resize::To { height: 4, width: 4 }), ..Finish::default() };
    let interleaved = Finish { input: Some(Layout::Interleaved), ..resized.clone() };
    assert!(refused(&interleaved, column(&[Dim::Free; 3])).contains("number of its channels is not fixed"));
    let mut nullable = column(&free);
    nullable.nullable = true;
    assert!(refused(&resized, nullable).contains("may be null"));
    let mut floats = column(&free);
    floats.dtype = DType::F32;
    assert!(refused(&resized, floats).contains("rows are float32"));
    let empty = resized.prepare(&column(&free)).unwrap().window(0, [0, 7]).unwrap_err().to_string();
    assert_eq!(empty, "column 'image' can't be finished: a row is 0 x 7: sides are 1 to 65535 pixels");
}
