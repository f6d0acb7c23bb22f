//! What the kernel makes of an image is, to the bit, what the host makes of it.

use forebay_gpu::{
    Finishing,
    finish::{Finish, Geometry, Layout, Number},
};
use proptest::prelude::*;

use crate::{
    batches::{Source, noise},
    driver::Mock,
};

/// Any finish, and the shape of rows that it is for.
fn finishes() -> impl Strategy<Value = (Finish, Vec<usize>)> {
    let layout = prop_oneof![Just(Layout::Interleaved), Just(Layout::Planar)];
    let number = prop_oneof![Just(Number::U8), Just(Number::F16), Just(Number::Bf16), Just(Number::F32)];
    let values = prop::collection::vec(-300.0_f32..300.0, 4);
    let sides = (1_usize..24, 1_usize..24, 1_usize..24, 1_usize..24);
    (layout.clone(), layout, number, values.clone(), values, (sides, 1_usize..=4, 0..6_u8), 0.0..=1.0_f64).prop_map(
        |(input, output, number, mut scale, mut bias, ((height, width, a, b), channels, geometry), mirror)| {
            scale.truncate(channels);
            bias.truncate(channels);
            let (small, narrow) = (a.min(height), b.min(width));
            let geometry = match geometry {
                0 => Geometry::Whole,
                1 => Geometry::Resize { height: a, width: b },
                2 => Geometry::CentreCrop { height: small, width: narrow },
                3 => Geometry::RandomCrop { height: small, width: narrow },
                _ => Geometry::RandomResizedCrop { height: a, width: b, area: (0.08, 1.0), ratio: (0.75, 4.0 / 3.0) },
            };
            let shape = match input {
                Layout::Interleaved => vec![height, width, channels],
                Layout::Planar => vec![channels, height, width],
            };
            (Finish { input, output, number, scale, bias, geometry, mirror }, shape)
        },
    )
}

#[test]
fn the_kernel_and_the_host_make_the_same_bytes_of_any_image() {
    let mock = Mock::start();
    let device = mock.device();
    proptest!(ProptestConfig::with_cases(150), |((finish, shape) in finishes(), count in 0_usize..6, seed in any::<u32>())| {
        let prepared = finish.prepare(&shape).unwrap();
        let source = Source::fixed(count, prepared.row_bytes(), u64::from(seed));
        let seeds: Vec<_> = (0..count as u64).map(|row| row * 77 + u64::from(seed)).collect();
        let regions = source.regions(&device);
        let finishing = Finishing { prepared: &prepared, seeds: &seeds };
        let gathered = device.gather(&[source.column(&regions, Some(finishing))], &[], Box::new(())).unwrap();
        prop_assert_eq!(gathered.columns[0].to_host().unwrap(), source.finished(&prepared, &seeds));
    });
}

fn run(finish: &Finish, shape: &[usize], row: &[u8], seed: u64) -> Vec<u8> {
    let prepared = finish.prepare(shape).unwrap();
    let mut out = vec![0; prepared.out_row_bytes()];
    prepared.run(row, &prepared.window(seed), &mut out).unwrap();
    out
}

#[test]
fn a_finish_that_does_nothing_changes_nothing() {
    let row = noise(5 * 7 * 3, 1);
    let finish = Finish { number: Number::U8, ..Finish::default() };
    assert_eq!(run(&finish, &[5, 7, 3], &row, 9), row);
    let same = Finish { geometry: Geometry::Resize { height: 5, width: 7 }, ..finish };
    assert_eq!(run(&same, &[5, 7, 3], &row, 9), row);
}

#[test]
fn channels_move_to_the_front_and_are_scaled_and_shifted_each_by_its_own() {
    let finish = Finish { output: Layout::Planar, scale: vec![2.0, 0.5], bias: vec![1.0, -1.0], ..Finish::default() };
    let out = run(&finish, &[1, 2, 2], &[10, 20, 30, 40], 0);
    let numbers: Vec<_> = out.chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect();
    assert_eq!(numbers, [21.0, 61.0, 9.0, 19.0]);
}

#[test]
fn mirroring_turns_rows_around() {
    let finish = Finish { number: Number::U8, mirror: 1.0, ..Finish::default() };
    assert_eq!(run(&finish, &[2, 3], &[1, 2, 3, 4, 5, 6], 0), [3, 2, 1, 6, 5, 4]);
}

#[test]
fn halving_an_image_blends_its_neighbours_in_equal_parts_and_doubling_keeps_its_corners() {
    let halved = Finish { number: Number::U8, geometry: Geometry::Resize { height: 1, width: 2 }, ..Finish::default() };
    assert_eq!(run(&halved, &[2, 4], &[0, 10, 20, 30, 40, 50, 60, 70], 0), [25, 45]);
    let doubled =
        Finish { number: Number::U8, geometry: Geometry::Resize { height: 1, width: 4 }, ..Finish::default() };
    assert_eq!(run(&doubled, &[1, 2], &[0, 100], 0), [0, 25, 75, 100]);
}

#[test]
fn a_crop_lies_inside_the_image_and_takes_every_place_that_it_can() {
    let crop = Finish { geometry: Geometry::RandomCrop { height: 3, width: 2 }, ..Finish::default() };
    let prepared = crop.prepare(&[4, 4, 1]).unwrap();
    let mut places: Vec<_> = (0..200).map(|seed| prepared.window(seed).part()).collect();
    places.sort_unstable();
    places.dedup();
    let all: Vec<_> = (0..2).flat_map(|top| (0..3).map(move |left| (top, left, 3, 2))).collect();
    assert_eq!(places, all);
}

#[test]
fn a_resized_crop_has_the_area_and_the_ratio_that_were_asked_for() {
    let geometry = Geometry::RandomResizedCrop { height: 224, width: 224, area: (0.2, 0.5), ratio: (0.75, 4.0 / 3.0) };
    let prepared = Finish { geometry, mirror: 0.5, ..Finish::default() }.prepare(&[500, 400, 3]).unwrap();
    let mut mirrored = 0;
    for seed in 0..1000 {
        let window = prepared.window(seed);
        let (top, left, height, width) = window.part();
        assert!(top + height <= 500 && left + width <= 400);
        let (area, ratio) = (f64::from(height * width) / 200_000.0, f64::from(width) / f64::from(height));
        assert!((0.198..0.502).contains(&area) && (0.74..1.35).contains(&ratio), "{area} {ratio}");
        mirrored += usize::from(window.mirrored());
    }
    assert!((430..570).contains(&mirrored), "{mirrored}");
}

#[test]
fn what_does_not_fit_is_refused_in_words() {
    let refused = |finish: Finish, shape: &[usize]| finish.prepare(shape).unwrap_err().to_string();
    let whole = Finish::default();
    assert!(refused(whole.clone(), &[5]).ends_with("rows of shape [5] are no images of two or three dimensions"));
    assert!(refused(whole.clone(), &[5, 5, 9]).ends_with("9 channels: 1 to 8 are supported"));
    assert!(
        refused(Finish { scale: vec![1.0; 2], ..whole.clone() }, &[5, 5, 3])
            .ends_with("2 values of scale for 3 channels")
    );
    assert!(refused(Finish { bias: vec![f32::NAN], ..whole.clone() }, &[5, 5, 3]).ends_with("bias of NaN"));
    assert!(refused(Finish { mirror: 1.5, ..whole.clone() }, &[5, 5, 3]).contains("probability 1.5"));
    let geometry = Geometry::CentreCrop { height: 6, width: 1 };
    assert!(refused(Finish { geometry, ..whole.clone() }, &[5, 5, 3]).contains("larger than the image of 5 x 5"));
    let geometry = Geometry::RandomResizedCrop { height: 6, width: 1, area: (0.0, 1.0), ratio: (1.0, 1.0) };
    assert!(refused(Finish { geometry, ..whole }, &[5, 5, 3]).contains("an area of (0.0, 1.0)"));
}
