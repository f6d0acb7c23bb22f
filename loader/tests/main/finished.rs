//! Batches of finished images: each row what its own bytes and its place in the epoch give, however it came.

use std::collections::BTreeMap;

use forebay_format::{DType, Dim};
use forebay_loader::{
    Batch, BatchField, BatchValues, Error, Loader, LoaderOptions, Shuffle, Verify, Window,
    finish::{Crop, Finish, Scratch},
};
use forebay_storage::Storage;
use forebay_versioning::Selection;

use super::{
    images::{some_finishes, some_images},
    support::{Model, folder, host, loader, memory, table},
};

fn options(shuffle: Shuffle) -> LoaderOptions {
    LoaderOptions { finishes: some_finishes(), batch_size: 16, shuffle, seed: 5, ..LoaderOptions::default() }
}

fn shuffles() -> [Shuffle; 3] {
    [Shuffle::Off, Shuffle::Global, Shuffle::Windowed(Window { lanes: 4, window: 2, unit_bytes: 4096 })]
}

/// Each finished row of an epoch by its position: its row, and the bytes of its columns.
type Epoch = BTreeMap<u64, (u64, Vec<Vec<u8>>)>;

fn rows_of(batch: &Batch, epoch: &mut Epoch) {
    for (index, (position, row)) in batch.positions.iter().zip(&batch.rows).enumerate() {
        let values = batch.columns.iter().map(|column| {
            let BatchValues::Fixed { shape, buffer } = &column.values else { panic!("{} is ragged", column.name) };
            assert_eq!(shape[0], batch.rows.len());
            let bytes = shape[1..].iter().product::<usize>() * column.dtype.item_size().unwrap();
            buffer.host().unwrap()[index * bytes..(index + 1) * bytes].to_vec()
        });
        assert!(epoch.insert(*position, (*row, values.collect())).is_none());
    }
}

fn epoch(storage: &Storage, options: LoaderOptions, number: u64) -> Epoch {
    let loader = loader(&table(storage.clone()), options);
    loader.set_epoch(number);
    let mut epoch = Epoch::new();
    loader.iter().unwrap().for_each(|batch| rows_of(&batch.unwrap(), &mut epoch));
    epoch
}

/// What the finish makes of the model's rows, one after another.
fn expected(model: &Model, loader: &Loader, epoch: u64) -> Epoch {
    let order = loader.order(epoch);
    let finish = |column: usize, position: u64, row: u64| {
        let cell = &model.cells[column][row as usize];
        let Some(finish) = some_finishes().get(&model.columns[column].name).cloned() else { return cell.bytes.clone() };
        let prepared = finish.prepare(&model.columns[column]).unwrap();
        let size = prepared.size().unwrap_or_else(|| prepared.size_of(&cell.shape));
        let window = prepared.window(order.sample_seed(position), size).unwrap();
        let mut out = vec![0; prepared.out_row_bytes()];
        prepared.run(&cell.bytes, &window, &mut out, &mut Scratch::default()).unwrap();
        out
    };
    let row = |position: u64| {
        let row = order.index(position).unwrap();
        (position, (row, (0..model.columns.len()).map(|column| finish(column, position, row)).collect()))
    };
    (0..order.rows()).map(row).collect()
}

#[test]
fn rows_are_finished_as_their_positions_say_from_files_and_stores_and_decoders() {
    let model = some_images(77, 3);
    let (_folder, local) = folder();
    for storage in [local, memory()] {
        model.write(storage.clone(), 2);
        for shuffle in shuffles() {
            for verify in [Verify::First, Verify::Never] {
                let options = LoaderOptions { verify, ..options(shuffle) };
                let plan = loader(&table(storage.clone()), options.clone());
                assert!(epoch(&storage, options, 3) == expected(&model, &plan, 3), "{shuffle:?} {verify:?}");
            }
        }
    }
}

#[test]
fn pixels_depend_on_seed_and_epoch_and_not_on_ranks_or_batches() {
    let model = some_images(60, 4);
    let storage = memory();
    model.write(storage.clone(), 1);
    for shuffle in shuffles() {
        let first = epoch(&storage, options(shuffle), 0);
        for world in [1, 2, 4] {
            let ranks = (0..world).map(|rank| {
                epoch(&storage, LoaderOptions { world, rank, batch_size: 7, prefetch: 3, ..options(shuffle) }, 0)
            });
            assert!(ranks.flatten().collect::<Epoch>() == first, "{world}");
        }
        let images =
            |epoch: &Epoch| epoch.values().map(|(row, values)| (*row, values[1].clone())).collect::<BTreeMap<_, _>>();
        assert!(images(&epoch(&storage, options(shuffle), 1)) != images(&first));
        assert!(images(&epoch(&storage, LoaderOptions { seed: 6, ..options(shuffle) }, 0)) != images(&first));
    }
}

#[test]
fn what_batches_hold_is_known_before_the_first() {
    let storage = memory();
    some_images(5, 1).write(storage.clone(), 1);
    let loader = loader(&table(storage), options(Shuffle::Off));
    let field = |name: &str, dtype, shape: &[u32]| BatchField {
        name: name.into(),
        dtype,
        shape: shape.iter().copied().map(Dim::Fixed).collect(),
        nullable: false,
    };
    let expected = [
        field("id", DType::I64, &[]),
        field("image", DType::BF16, &[3, 6, 5]),
        field("packed", DType::F32, &[3, 4, 3]),
        field("photo", DType::BF16, &[6, 5, 3]),
    ];
    assert_eq!(loader.schema(), expected);
    let batch = loader.iter().unwrap().next().unwrap().unwrap();
    for (column, field) in batch.columns.iter().zip(expected) {
        let BatchValues::Fixed { shape, .. } = &column.values else { panic!("ragged") };
        let found: Vec<_> = shape[1..].iter().map(|length| Dim::Fixed(*length as u32)).collect();
        assert_eq!((&column.name, column.dtype, found), (&field.name, field.dtype, field.shape));
    }
}

#[test]
fn a_finish_that_does_not_fit_is_refused_when_the_loader_is_made() {
    let storage = memory();
    some_images(5, 1).write(storage.clone(), 1);
    let build = |name: &str, finish: Finish| {
        let finishes = BTreeMap::from([(name.to_owned(), finish)]);
        let options = LoaderOptions { finishes, ..LoaderOptions::default() };
        Loader::new(Selection::all(table(storage.clone())), options, host(1)).unwrap_err()
    };
    let crop = Some(Crop::Centre { height: 10, width: 7 });
    let large = build("image", Finish { crop, ..Finish::default() });
    assert!(matches!(&large, Error::Finish { column, .. } if column == "image"), "{large}");
    assert!(matches!(build("id", Finish::default()), Error::Finish { .. }));
    assert!(matches!(build("photo", Finish::default()), Error::Finish { .. }));
    assert!(matches!(build("nothing", Finish::default()), Error::Option { option: "finishes", .. }));
}

#[test]
fn a_photo_without_pixels_ends_the_epoch_with_an_error_that_says_so() {
    let mut model = some_images(5, 1);
    model.cells[3][2] = super::support::Cell { bytes: Vec::new(), shape: vec![0, 4, 3], valid: true };
    let storage = memory();
    model.write(storage.clone(), 1);
    let loader = loader(&table(storage), LoaderOptions { batch_size: 1, ..options(Shuffle::Off) });
    let mut batches = loader.iter().unwrap();
    assert!(batches.next().unwrap().is_ok() && batches.next().unwrap().is_ok());
    let error = batches.next().unwrap().unwrap_err();
    assert!(matches!(&error, Error::Finish { column, .. } if column == "photo"), "{error}");
}
