//! Encoded images are decoded on the way, finished like any others, and a bad one is a fault of its row.

use std::{io::Cursor, sync::Arc};

use forebay_format::{DType, Dim};
use forebay_jpeg::{Jpeg, Part};
use forebay_loader::{
    BatchValues, Batches, Device, Error, FaultPolicy, HostDevice, Loader, LoaderOptions, OnFault, Pixels, Remedy,
    Shuffle,
    device::{ArenaBuffer, ColumnPlan, GatherPlan, Gathered},
    finish::{Crop, Finish, Number, Resize, Scratch},
};
use forebay_storage::Storage;
use forebay_versioning::Selection;
use image::{ImageFormat, RgbImage};

use super::grouping::planning;
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

/// A host device that no pixels may be copied by.
#[derive(Debug)]
struct Adopting(Arc<HostDevice>);

impl Device for Adopting {
    fn name(&self) -> String {
        self.0.name()
    }

    fn gather(&self, plan: GatherPlan) -> Result<Vec<Gathered>, Error> {
        assert!(plan.columns.iter().all(|column| &*column.name != "photo"));
        self.0.gather(plan)
    }

    fn adopts(&self) -> bool {
        true
    }

    fn adopt(&self, column: &ColumnPlan, buffer: Box<dyn ArenaBuffer>) -> Result<Gathered, Error> {
        self.0.adopt(column, buffer)
    }

    fn arena(&self, bytes: usize) -> Result<Box<dyn ArenaBuffer>, Error> {
        self.0.arena(bytes)
    }
}

#[test]
fn images_come_as_the_pixels_that_were_encoded_whatever_the_store() {
    let (_folder, local) = folder();
    let adopting: Arc<dyn Device> = Arc::new(Adopting(HostDevice::new(2).unwrap()));
    for (storage, device) in [(local, adopting), (memory(), planning())] {
        model().write(storage.clone(), 2);
        let loader = Loader::new(Selection::all(table(storage)), options(OnFault::Skip), device).unwrap();
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

/// A JPEG of a smooth picture, whose stored form some readers see turned.
fn jpeg(row: usize) -> Vec<u8> {
    let (width, height) = (60 + row as u32 * 7 % 90, 150 - row as u32 * 11 % 80);
    let pixels: Vec<u8> = (0..height * width)
        .flat_map(|at| [at % width + row as u32, at / width, at % width / 2 + at / width / 2].map(|value| value as u8))
        .collect();
    let mut bytes = Vec::new();
    let mut encoder = jpeg_encoder::Encoder::new(&mut bytes, 90);
    if row % 5 == 4 {
        let exif = b"MM\0\x2a\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0";
        encoder.add_exif_metadata(exif).unwrap();
    }
    encoder.encode(&pixels, width as u16, height as u16, jpeg_encoder::ColorType::Rgb).unwrap();
    bytes
}

/// What becomes of a JPEG by a finish, in the plainest way: shrunk and decoded whole, turned, and finished.
fn finished(bytes: &[u8], finish: &Finish, seed: u64, shrink: bool) -> Vec<u8> {
    let jpeg = Jpeg::open(bytes).unwrap();
    let turned = jpeg.exif().is_some();
    let [height, width] = jpeg.size();
    let size = if turned { [width, height] } else { [height, width] };
    let mut column = column("photo", DType::U8, &[Dim::Free, Dim::Free, Dim::Fixed(3)]);
    column.kind.metadata.insert("layout".to_owned(), "HWC".to_owned());
    let prepared = finish.prepare(&column).unwrap();
    let mut window = prepared.window(seed, size).unwrap();
    let becomes = [0, 1].map(|axis| (u64::from(window.part[axis]) << 32).div_ceil(window.step[axis]) as u32);
    let fits = |by: &u32| (0..2).all(|axis| window.part[axis] >= by * becomes[axis]);
    let by = if shrink { [8, 4, 2].into_iter().find(fits).unwrap_or(1) } else { 1 };
    for axis in 0..2 {
        let small = size[axis].div_ceil(by);
        let edge = |at: u32| if at == size[axis] { small } else { (f64::from(at) / f64::from(by)).round() as u32 };
        let end = edge(window.corner[axis] + window.part[axis]);
        window.corner[axis] = edge(window.corner[axis]);
        (window.size[axis], window.part[axis]) = (small, end - window.corner[axis]);
        window.step[axis] = (u64::from(window.part[axis]) << 32).div_ceil(u64::from(becomes[axis]));
    }
    let part = Part::whole([height, width], by);
    let mut pixels = vec![0; part.bytes(Pixels::Rgb)];
    jpeg.decode(Pixels::Rgb, &part, &mut pixels, part.row_bytes(Pixels::Rgb)).unwrap();
    if turned {
        let image = RgbImage::from_raw(part.columns.end, part.rows.end, pixels).unwrap();
        pixels = image::imageops::rotate90(&image).into_raw();
    }
    let mut out = vec![0; prepared.out_row_bytes()];
    prepared.run(&pixels, &window, &mut out, &mut Scratch::default()).unwrap();
    out
}

#[test]
fn jpegs_are_decoded_as_far_as_their_finish_needs_and_alike_on_any_ranks_and_after_a_resume() {
    let rows = 60;
    let mut model = Model::random(vec![column("photo", DType::Bytes, &[])], rows, 1);
    for row in 0..rows {
        model.cells[0][row] = Cell { bytes: jpeg(row), shape: Vec::new(), valid: true };
    }
    let storage = memory();
    model.write(storage.clone(), 2);
    let (area, ratio) = ((0.1, 1.0), (0.5, 2.0));
    let resizes = [
        (Resize::RandomPart { height: 24, width: 16, area, ratio }, None),
        (Resize::Shorter(30), Some(Crop::Random { height: 20, width: 26 })),
        (Resize::Shorter(30), Some(Crop::Centre { height: 26, width: 20 })),
        (Resize::To { height: 9, width: 11 }, None),
    ];
    for (resize, crop) in resizes {
        for shrink_on_load in [false, true] {
            let finish = Finish { number: Number::U8, resize: Some(resize), crop, mirror: 0.5, ..Finish::default() };
            let finishes = [("photo".to_owned(), finish.clone())].into();
            let options = LoaderOptions { finishes, shrink_on_load, seed: 9, epoch: 2, ..options(OnFault::Fail) };
            let make = |rank, world, batch_size| {
                loader(storage.clone(), LoaderOptions { rank, world, batch_size, ..options.clone() })
            };
            let mut seen = 0;
            let mut check = |loader: &Loader, batches: Batches| {
                let order = loader.order(2);
                for batch in batches {
                    let batch = batch.unwrap();
                    let BatchValues::Fixed { shape, buffer } = &batch.columns[0].values else { panic!("ragged") };
                    let bytes = shape[1..].iter().product::<usize>();
                    for (place, (position, row)) in batch.positions.iter().zip(&batch.rows).enumerate() {
                        let wanted = finished(
                            &model.cells[0][*row as usize].bytes,
                            &finish,
                            order.sample_seed(*position),
                            shrink_on_load,
                        );
                        let found = &buffer.host().unwrap()[place * bytes..(place + 1) * bytes];
                        assert!(found == wanted, "row {row} by {resize:?}, {crop:?}, shrunk {shrink_on_load}");
                        seen += 1;
                    }
                }
            };
            for rank in 0..3 {
                let loader = make(rank, 3, 7);
                check(&loader, loader.iter().unwrap());
            }
            let first = make(0, 1, 13);
            let mut batches = first.iter().unwrap();
            batches.next().unwrap().unwrap();
            let (epoch, position) = batches.progress();
            let resumed = make(0, 1, 5);
            resumed.resume(&first.state(epoch, position)).unwrap();
            check(&resumed, resumed.iter().unwrap());
            assert_eq!(seen, 2 * rows - 13);
        }
    }
}
