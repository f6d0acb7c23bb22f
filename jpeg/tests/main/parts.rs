//! A part has the pixels of the whole.

use forebay_jpeg::{CopyRows, Error, Jpeg, Part, Pixels};
use jpeg_encoder::{ColorType, SamplingFactor};
use proptest::prelude::*;

use super::{Coding, decode, encoded, picture, waves};

fn codings() -> impl Strategy<Value = Coding> {
    use SamplingFactor::{R_4_1_0, R_4_1_1, R_4_2_0, R_4_2_1, R_4_2_2, R_4_4_0, R_4_4_1, R_4_4_4};
    let samplings = [R_4_4_4, R_4_4_0, R_4_4_1, R_4_2_2, R_4_2_0, R_4_2_1, R_4_1_1, R_4_1_0];
    let colors = [ColorType::Rgb, ColorType::Luma, ColorType::Cmyk, ColorType::CmykAsYcck];
    let chosen = (prop::sample::select(colors.to_vec()), prop::sample::select(samplings.to_vec()));
    let how = (any::<bool>(), any::<bool>(), 0..5_u16, prop::sample::select(vec![25, 90, 100]));
    (chosen, how).prop_map(|((color, sampling), (progressive, optimized, restart, quality))| Coding {
        color,
        sampling,
        progressive,
        optimized,
        // The encoder counts other codes than it writes, where it optimizes them and restarts.
        restart: if optimized { 0 } else { restart },
        quality,
    })
}

fn range(bounds: (f64, f64), length: u32) -> std::ops::Range<u32> {
    let start = (bounds.0 * f64::from(length)) as u32;
    start..start + 1 + (bounds.1 * f64::from(length - start - 1)).round() as u32
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if std::env::var_os("FOREBAY_LONG").is_some() { 20_000 } else { 1_000 }))]

    #[test]
    fn a_part_has_the_pixels_of_the_whole_at_its_place(
        (height, width) in (1..150_u16, 1..150_u16),
        coding in codings(),
        shrink in prop::sample::select(vec![1_u32, 2, 4, 8]),
        pixels in prop::sample::select(vec![Pixels::Rgb, Pixels::Grey]),
        (rows, columns) in ((0.0..1.0, 0.0..1.0), (0.0..1.0, 0.0..1.0)),
    ) {
        let channels = match coding.color {
            ColorType::Luma => 1,
            ColorType::Rgb => 3,
            _ => 4,
        };
        let bytes = encoded(&waves(height, width, channels, 1), height, width, &coding);
        let size = [u32::from(height), u32::from(width)];
        prop_assert_eq!(Jpeg::open(&bytes).unwrap().size(), size);
        let all = Part::whole(size, shrink);
        let whole = decode(&bytes, pixels, Some(all.clone())).unwrap();
        let part = Part { shrink, rows: range(rows, all.rows.end), columns: range(columns, all.columns.end) };
        let found = decode(&bytes, pixels, Some(part.clone())).unwrap();
        let item = pixels.channels() as usize;
        let line = |row: u32| {
            let start = row as usize * all.columns.len() * item;
            &whole[start + part.columns.start as usize * item..start + part.columns.end as usize * item]
        };
        let wanted: Vec<u8> = part.rows.clone().flat_map(|row| line(row).to_vec()).collect();
        prop_assert!(found == wanted, "{:?} of {:?} by {:?}", part, all, coding);
    }
}

#[test]
fn a_shrunk_image_is_the_average_of_its_pixels_nearly() {
    let bytes = picture(128, 96, &Coding::default());
    let whole = decode(&bytes, Pixels::Rgb, None).unwrap();
    for shrink in [2, 4, 8] {
        let found = decode(&bytes, Pixels::Rgb, Some(Part::whole([128, 96], shrink))).unwrap();
        let (width, shrink) = (96 / shrink as usize, shrink as usize);
        for (place, value) in found.iter().enumerate() {
            let (y, x, channel) = (place / 3 / width, place / 3 % width, place % 3);
            let block = (0..shrink * shrink).map(|at| (y * shrink + at / shrink, x * shrink + at % shrink));
            let sum: usize = block.map(|(y, x)| usize::from(whole[(y * 96 + x) * 3 + channel])).sum();
            let mean = (sum / (shrink * shrink)) as u8;
            assert!(value.abs_diff(mean) <= 12, "{value} for {mean} at {y}, {x} of 1/{shrink}");
        }
    }
}

#[test]
fn what_is_no_part_of_an_image_is_refused() {
    let bytes = picture(20, 30, &Coding::default());
    let refused = [
        Part { shrink: 3, ..Part::whole([20, 30], 1) },
        Part { shrink: 0, ..Part::whole([20, 30], 1) },
        Part { rows: 0..21, ..Part::whole([20, 30], 1) },
        Part { columns: 5..5, ..Part::whole([20, 30], 1) },
        Part { shrink: 2, ..Part::whole([20, 30], 1) },
    ];
    for part in refused {
        let error = decode(&bytes, Pixels::Rgb, Some(part.clone())).unwrap_err();
        assert!(matches!(&error, Error::Part { part: named, .. } if *named == part), "{error}");
    }
    let jpeg = Jpeg::open(&bytes).unwrap();
    let short = jpeg.decode(Pixels::Rgb, &Part::whole([20, 30], 1), &mut [0; 1799], 90).unwrap_err();
    assert!(matches!(short, Error::Part { bytes: 1799, .. }), "{short}");
}

#[test]
fn rows_may_lie_apart_and_nothing_between_them_is_touched() {
    for coding in [Coding::default(), Coding { color: ColorType::Cmyk, ..Coding::default() }] {
        let channels = if coding.color == ColorType::Cmyk { 4 } else { 3 };
        let bytes = encoded(&waves(70, 30, channels, 1), 70, 30, &coding);
        for columns in [0..30, 7..19] {
            let part = Part { shrink: 1, rows: 3..68, columns };
            let row = part.row_bytes(Pixels::Rgb);
            let tight = decode(&bytes, Pixels::Rgb, Some(part.clone())).unwrap();
            for copy in [None, Some(<[u8]>::copy_from_slice as CopyRows)] {
                let mut apart = vec![0xa5; 64 * 101 + row];
                Jpeg::open(&bytes).unwrap().decode_by(Pixels::Rgb, &part, &mut apart, 101, copy).unwrap();
                for (apart, tight) in apart.chunks(101).zip(tight.chunks(row)) {
                    assert_eq!(&apart[..row], tight);
                    assert!(apart[row..].iter().all(|byte| *byte == 0xa5));
                }
            }
        }
    }
}
