//! Encoded images are decoded on the way, finished like any others, and a bad one is a fault of its row.

use std::io::Cursor;

use forebay_format::{DType, Dim};
use forebay_loader::{
    BatchValues, Error, FaultPolicy, Loader, LoaderOptions, OnFault, Pixels, Remedy, Shuffle,
    finish::{Finish, Number, Resize},
};
use forebay_storage::Storage;
use forebay_versioning::Selection;
use image::{ImageFormat, RgbImage};

use super::support::{Cell, Model, column, folder, host, memory, table};

const ROWS: usize = 40;

pub(crate) fn picture(row: usize) -> RgbImage {
    let (width, height) = (10 + row as u32 % 7, 8 + row as u32 % 5);
    RgbImage::from_fn(width, height, |x, y| image::Rgb([x as u8 * 9, y as u8 * 11, (row * 5) as u8]))
}

/// Images of sizes and formats of their own; some rows hold bytes that are none.
pub(crate) fn photos(rows: usize, bad: &[usize]) -> Model {
    let mut model = Model::random(vec![column("id", DType::I64, &[]), column("photo", DType::Bytes, &[])], rows, 1);
    for row in 0..rows {
        let format = if row % 2 == 0 { ImageFormat::Png } else { ImageFormat::WebP };
        let mut bytes = Cursor::new(Vec::new());
        picture(row).write_to(&mut bytes, format).unwrap();
        let bytes = if bad.contains(&row) { b"no image".to_vec() } else { bytes.into_inner() };
        model.cells[1][row] = Cell { bytes, shape: Vec::new(), valid: true };
    }
    model
}

fn model() -> Model {
    photos(ROWS, &[13])
}

fn options(on_fault: OnFault) -> LoaderOptions {
    LoaderOptions {
        batch_size: 6,
        shuffle: Shuffle::Global,
        decode: [("photo".to_owned(), Pixels::Rgb)].into(),
        faults: FaultPolicy { on_fault, ..FaultPolicy::default() },
        ..LoaderOptions::default()
    }
}

fn loader(storage: Storage, options: LoaderOptions) -> Loader {
    Loader::new(Selection::all(table(storage)), options, host(2)).unwrap()
}

#[test]
fn images_come_as_the_pixels_that_were_encoded_whatever_the_store() {
    let (_folder, local) = folder();
    for storage in [local, memory()] {
        model().write(storage.clone(), 2);
        let loader = loader(storage, options(OnFault::Skip));
        let field = &loader.schema()[1];
        assert_eq!((field.dtype, field.shape.as_slice()), (DType::U8, &[Dim::Free, Dim::Free, Dim::Fixed(3)][..]));
        let mut batches = loader.iter().unwrap();
        for batch in batches.by_ref() {
            let batch = batch.unwrap();
            let BatchValues::Ragged { offsets, shapes, bytes } = &batch.columns[1].values else { panic!("not ragged") };
            let offsets: Vec<usize> = offsets
                .host()
                .unwrap()
                .chunks_exact(8)
                .map(|offset| i64::from_le_bytes(offset.try_into().unwrap()) as usize)
                .collect();
            for (place, row) in batch.rows.iter().enumerate() {
                let shape = &shapes[3 * place..3 * place + 3];
                let found = &bytes.host().unwrap()[offsets[place]..offsets[place + 1]];
                let whole = picture(*row as usize);
                if *row == 13 {
                    assert_eq!((shape, found.len(), batch.mask.as_ref().unwrap()[place]), (&[0, 0, 0][..], 0, false));
                } else {
                    assert_eq!((shape, found), (&[whole.height(), whole.width(), 3][..], &whole.as_raw()[..]));
                }
            }
        }
        let faults = batches.faults();
        assert_eq!((faults.len(), faults[0].row, faults[0].column.as_str()), (1, 13, "photo"));
        assert!(faults[0].cause.contains("no JPEG, PNG or WebP"), "{}", faults[0].cause);
    }
}

#[test]
fn decoded_images_are_finished_and_a_bad_one_is_replaced() {
    let storage = memory();
    model().write(storage.clone(), 2);
    let finish = Finish { number: Number::U8, resize: Some(Resize::To { height: 4, width: 4 }), ..Finish::default() };
    let finishes = [("photo".to_owned(), finish)].into();
    let loader = loader(storage, LoaderOptions { finishes, ..options(OnFault::Substitute) });
    let mut batches = loader.iter().unwrap();
    for batch in batches.by_ref() {
        let batch = batch.unwrap();
        let BatchValues::Fixed { shape, buffer } = &batch.columns[1].values else { panic!("not of one shape") };
        assert_eq!(shape[1..], [4, 4, 3]);
        for (place, row) in batch.rows.iter().enumerate() {
            // The third channel is the same all over the picture.
            assert_eq!(buffer.host().unwrap()[place * 48 + 2], (*row as usize * 5) as u8);
        }
    }
    let faults = batches.faults();
    assert!(
        matches!(faults[..], [forebay_loader::Fault { row: 13, remedy: Remedy::Replaced { .. }, .. }]),
        "{faults:?}"
    );
}

#[test]
fn a_bad_image_ends_the_epoch_and_what_is_no_column_of_images_is_refused() {
    let storage = memory();
    model().write(storage.clone(), 2);
    let error = loader(storage.clone(), options(OnFault::Fail)).iter().unwrap().find_map(Result::err).unwrap();
    assert!(matches!(&error, Error::Decode { column, .. } if column == "photo"), "{error}");
    let decode = [("id".to_owned(), Pixels::Grey)].into();
    let options = LoaderOptions { decode, ..LoaderOptions::default() };
    let refused = Loader::new(Selection::all(table(storage)), options, host(1)).unwrap_err();
    assert!(matches!(refused, Error::Option { option: "decode", .. }), "{refused}");
}
