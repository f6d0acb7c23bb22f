//! Batches hold what a list of rows would give.

use forebay_loader::{Loader, LoaderOptions, Shuffle, Tail, Verify, Window};
use forebay_storage::Storage;
use forebay_versioning::{Rows, Selection};
use proptest::prelude::*;

use super::support::{Model, columns, folder, host, memory, table};

fn any_shuffle() -> impl Strategy<Value = Shuffle> {
    prop_oneof![
        Just(Shuffle::Off),
        Just(Shuffle::Global),
        Just(Shuffle::Windowed(Window::default())),
        (1_u32..20, 1_u32..4, 1_u64..20_000).prop_map(|(lanes, window, unit_bytes)| Shuffle::Windowed(Window {
            lanes,
            window,
            unit_bytes
        })),
    ]
}

/// Rows of a selection: all, every so many in runs, or a list with repeats.
fn select(table: forebay_versioning::Table, kind: u8, seed: u64) -> (Selection, Vec<u64>) {
    let rows = table.rows();
    let chosen: Vec<u64> = match kind {
        0 => (0..rows).collect(),
        1 => (0..rows).filter(|row| (row ^ seed) % 5 < 2).collect(),
        _ => (0..rows / 2 + 3).map(|index| index.wrapping_mul(seed | 1) % rows).collect(),
    };
    let selection = match kind {
        0 => Selection::all(table),
        1 => Selection::new(table, Rows::Runs(chosen.iter().map(|row| *row..row + 1).collect())).unwrap(),
        _ => Selection::new(table, Rows::List(chosen.clone().into())).unwrap(),
    };
    (selection, chosen)
}

#[derive(Clone, Debug)]
struct Case {
    rows: usize,
    commits: usize,
    seed: u64,
    world: u32,
    batch_size: usize,
    threads: usize,
    prefetch: usize,
    io_concurrency: usize,
    shuffle: Shuffle,
    tail: Tail,
    selected: u8,
    verify: Verify,
    remote: bool,
    /// Whether rows were deleted and updated and columns added after they were written.
    edited: bool,
}

fn any_case() -> impl Strategy<Value = Case> {
    let table = (1_usize..400, 1_usize..4, any::<u64>(), 0_u8..3, any::<(bool, bool)>());
    let ranks = (prop_oneof![Just(1_u32), Just(2), Just(4), Just(8)], 1_usize..40, any_shuffle(), any::<bool>());
    let verify = prop_oneof![Just(Verify::First), Just(Verify::Always), Just(Verify::Never)];
    let engine = (0_usize..5, 1_usize..4, 1_usize..9, verify);
    (table, ranks, engine).prop_map(|(table, ranks, engine)| {
        let (rows, commits, seed, selected, (remote, edited)) = table;
        let (world, batch_size, shuffle, short) = ranks;
        let (threads, prefetch, io_concurrency, verify) = engine;
        let tail = if short { Tail::Short } else { Tail::Drop };
        Case {
            rows,
            commits,
            seed,
            world,
            batch_size,
            threads,
            prefetch,
            io_concurrency,
            shuffle,
            tail,
            selected,
            verify,
            remote,
            edited,
        }
    })
}

fn check(case: &Case, storage: Storage) {
    let mut model = Model::random(columns(), case.rows, case.seed);
    let lake = model.write(storage.clone(), case.commits);
    if case.edited {
        model.edit(&lake, case.seed);
    }
    let (selection, chosen) = select(table(storage), case.selected, case.seed);
    let mut delivered = Vec::new();
    for rank in 0..case.world {
        let options = LoaderOptions {
            batch_size: case.batch_size,
            shuffle: case.shuffle,
            seed: case.seed,
            epoch: 3,
            rank,
            world: case.world,
            tail: case.tail,
            prefetch: case.prefetch,
            threads: case.threads,
            io_concurrency: case.io_concurrency,
            verify: case.verify,
            ..LoaderOptions::default()
        };
        let loader = Loader::new(selection.clone(), options, host(case.threads)).unwrap();
        let order = loader.order(3);
        let mut steps = 0;
        let mut batches = loader.iter().unwrap();
        for batch in batches.by_ref() {
            let batch = batch.unwrap();
            assert_eq!(batch.step, steps);
            assert_eq!(batch.columns.len(), model.columns.len());
            assert_eq!(batch.positions, loader.shard().positions(steps).collect::<Vec<_>>());
            for (position, row) in batch.positions.iter().zip(&batch.rows) {
                assert_eq!(chosen[order.index(*position).unwrap() as usize], *row);
                assert_eq!(*position % u64::from(case.world), u64::from(rank));
            }
            model.assert_batch(&batch);
            delivered.extend(batch.positions);
            steps += 1;
        }
        assert_eq!(steps, loader.len());
        assert_eq!(batches.stats().batches, steps);
    }
    delivered.sort_unstable();
    delivered.dedup();
    let whole = case.batch_size as u64 * u64::from(case.world);
    let all = chosen.len() as u64;
    let expected = if case.tail == Tail::Short { all } else { all - all % whole };
    assert_eq!(delivered.len() as u64, expected, "every row exactly once");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn batches_are_the_rows_that_the_order_says(case in any_case()) {
        if case.remote {
            check(&case, memory());
        } else {
            let (_folder, storage) = folder();
            check(&case, storage);
        }
    }
}

#[test]
fn columns_come_in_the_order_asked_for() {
    let (_folder, storage) = folder();
    let model = Model::random(columns(), 50, 1);
    model.write(storage.clone(), 1);
    let names = ["text", "id", "image"].map(str::to_owned).to_vec();
    let options = LoaderOptions { columns: Some(names.clone()), batch_size: 8, ..LoaderOptions::default() };
    let loader = super::support::loader(&table(storage), options);
    let batch = loader.iter().unwrap().next().unwrap().unwrap();
    assert_eq!(batch.columns.iter().map(|column| column.name.to_string()).collect::<Vec<_>>(), names);
    model.assert_batch(&batch);
}

#[test]
fn a_row_larger_than_a_threads_share_is_put_together_from_its_parts() {
    use forebay_format::{Column, DType, Dim};
    let (_folder, storage) = folder();
    let columns = vec![Column::new("volume", DType::U8, [Dim::Fixed(5 << 20), Dim::Fixed(1)]).unwrap()];
    let model = Model::random(columns, 3, 9);
    model.write(storage.clone(), 1);
    for verify in [Verify::First, Verify::Always, Verify::Never] {
        let options = LoaderOptions { batch_size: 2, shuffle: Shuffle::Global, verify, ..LoaderOptions::default() };
        let loader = super::support::loader(&table(storage.clone()), options);
        for batch in loader.iter().unwrap() {
            model.assert_batch(&batch.unwrap());
        }
    }
}
