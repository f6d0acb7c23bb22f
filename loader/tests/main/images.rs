//! Images, and finishes of them.

use std::collections::BTreeMap;

use forebay_format::{Codec, Column, Compression, DType, Dim};
use forebay_loader::finish::{Crop, Finish, Interpolation, Layout, Number, Resize};
use proptest::prelude::*;

use super::support::Model;

/// A column of images of u8.
pub fn column(shape: &[Dim]) -> Column {
    Column::new("image", DType::U8, shape.to_vec()).unwrap()
}

/// A column of images of one size.
pub fn fixed(shape: &[u32]) -> Column {
    column(&shape.iter().copied().map(Dim::Fixed).collect::<Vec<_>>())
}

fn numbers() -> impl Strategy<Value = Number> {
    prop_oneof![Just(Number::U8), Just(Number::F16), Just(Number::Bf16), Just(Number::F32)]
}

fn layouts() -> impl Strategy<Value = Layout> {
    prop_oneof![Just(Layout::Interleaved), Just(Layout::Planar)]
}

/// Any finish, and a column that it fits: images of one size or each of its own, of any layout.
pub fn finishes() -> impl Strategy<Value = (Finish, Column)> {
    let values = prop::collection::vec(-300.0_f32..300.0, 5);
    let sides = (1_u32..24, 1_u32..24, 1_usize..24, 1_usize..24);
    let geometry = (sides, 1_u32..=5, 0..4_u8, 0..3_u8, any::<bool>(), 0..4_u8);
    (layouts(), layouts(), numbers(), values.clone(), values, geometry, 0.0..=1.0_f64).prop_map(
        |(input, output, number, mut scale, mut bias, (sides, channels, resize, crop, free, nearest), mirror)| {
            let (height, width, tall, wide) = sides;
            let interpolation = if nearest == 0 { Some(Interpolation::Nearest) } else { None };
            let area = (0.08, 1.0);
            let (resize, resized) = match resize {
                0 if !free => (None, [height as usize, width as usize]),
                0 | 1 => (Some(Resize::To { height: tall, width: wide }), [tall, wide]),
                2 => (Some(Resize::Shorter(tall)), [tall, tall]),
                _ => {
                    let ratio = (0.75, 4.0 / 3.0);
                    (Some(Resize::RandomPart { height: tall, width: wide, area, ratio }), [tall, wide])
                }
            };
            let [crop_height, crop_width] = resized.map(|side| side - side / 3);
            let crop = match (crop, resize) {
                (0, Some(Resize::Shorter(_))) if free => Some(Crop::Centre { height: tall, width: tall }),
                (0, _) => None,
                (1, _) => Some(Crop::Centre { height: crop_height, width: crop_width }),
                _ => Some(Crop::Random { height: crop_height, width: crop_width }),
            };
            let [height, width] = [height, width].map(|side| if free { Dim::Free } else { Dim::Fixed(side) });
            let shape = match input {
                Layout::Interleaved => [height, width, Dim::Fixed(channels)],
                Layout::Planar => [Dim::Fixed(channels), height, width],
            };
            scale.truncate(channels as usize);
            bias.truncate(channels as usize);
            let input = Some(input);
            (Finish { input, output, number, scale, bias, resize, interpolation, crop, mirror }, column(&shape))
        },
    )
}

/// Images of one size, the same compressed, and photos of free size.
pub fn some_images(rows: usize, seed: u64) -> Model {
    let named = |name: &str, shape: &[Dim]| {
        let mut column = column(shape);
        column.name = name.to_owned();
        column
    };
    let fixed = [3, 9, 7].map(Dim::Fixed);
    let mut packed = named("packed", &fixed);
    packed.compression = Compression { codec: Codec::Lz4, shuffle: false };
    let photo = named("photo", &[Dim::Free, Dim::Free, Dim::Fixed(3)]);
    let id = Column::new("id", DType::I64, []).unwrap();
    let mut model = Model::random(vec![id, named("image", &fixed), packed, photo], rows, seed);
    for (row, cell) in model.cells[3].iter_mut().enumerate() {
        cell.shape = vec![1 + row as u32 * 7 % 19, 1 + row as u32 * 5 % 23, 3];
        let pixels = cell.shape.iter().product::<u32>() as usize;
        cell.bytes = (0..pixels).map(|at| (at * 31 + row * 101 + at * at) as u8).collect();
    }
    model
}

/// A finish for each of [`some_images`].
pub fn some_finishes() -> BTreeMap<String, Finish> {
    let part = Resize::RandomPart { height: 6, width: 5, area: (0.08, 1.0), ratio: (0.75, 4.0 / 3.0) };
    let finish = Finish {
        output: Layout::Planar,
        number: Number::Bf16,
        scale: vec![0.01, 0.02, 0.03],
        bias: vec![-1.0],
        resize: Some(part),
        mirror: 0.5,
        ..Finish::default()
    };
    let crop = Some(Crop::Random { height: 4, width: 3 });
    let plain = Finish { number: Number::F32, resize: None, crop, ..finish.clone() };
    [("image", finish.clone()), ("packed", plain), ("photo", Finish { output: Layout::Interleaved, ..finish })]
        .map(|(name, finish)| (name.to_owned(), finish))
        .into()
}
