//! What is asked of a store, and when.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use forebay_format::{ColumnSlice, DType, Dim, Schema, Values};
use forebay_loader::{BatchValues, LoaderOptions, Shuffle, Window};
use forebay_storage::{
    Storage,
    testing::{FaultStore, OpKind, Operation},
};
use forebay_versioning::Lake;

use super::support::{Model, block_on, column, columns, loader, memory, table};

/// A store that counts, with latency, over the rows of a model.
fn store(model: &Model, latency: Duration) -> (FaultStore, Storage) {
    let inner = memory();
    model.write(inner.clone(), 3);
    let store = FaultStore::new(inner.store().unwrap(), 1).with_latency(latency);
    (store.clone(), Storage::from_store(Arc::new(store), "memory://counted"))
}

fn reads(store: &FaultStore) -> Vec<Operation> {
    let data = |operation: &Operation| operation.kind == OpKind::Get && operation.path.contains("data/");
    store.operations().into_iter().filter(data).collect()
}

/// Windows of units that are whole blocks: a row of `image` has 60 bytes, a block two of them.
fn window(lanes: u32, window: u32) -> Shuffle {
    Shuffle::Windowed(Window { lanes, window, unit_bytes: 8 << 10 })
}

#[test]
fn every_stored_byte_of_an_epoch_is_requested_once() {
    let model = Model::random(columns(), 500, 2);
    for shuffle in [Shuffle::Off, window(4, 2), window(16, 1)] {
        let (store, storage) = store(&model, Duration::ZERO);
        let table = table(storage);
        store.clear();
        let options = LoaderOptions { batch_size: 16, shuffle, ..LoaderOptions::default() };
        let mut batches = loader(&table, options).iter().unwrap();
        for batch in batches.by_ref() {
            model.assert_batch(&batch.unwrap());
        }
        let stats = batches.stats();
        let mut ranges: Vec<_> = reads(&store)
            .into_iter()
            .map(|read| (read.path, read.range.clone().map(|range| (range.start, range.end))))
            .collect();
        ranges.sort_unstable();
        for pair in ranges.windows(2) {
            let apart = pair[0].0 != pair[1].0 || pair[0].1.unwrap().1 <= pair[1].1.unwrap().0;
            assert!(apart, "{shuffle:?} asks twice: {pair:?}");
        }
        assert_eq!(stats.requests as usize, ranges.len() - table.data_files().count());
        let field = table.schema().columns[0].field;
        let stored = (0..table.fragments().len()).flat_map(|fragment| {
            let file = block_on(table.file(fragment, field)).unwrap();
            let chunks = file.index().columns().iter().flat_map(|column| column.chunks());
            chunks.map(|chunk| chunk.length).collect::<Vec<_>>()
        });
        assert_eq!(stats.fetched, stored.sum::<u64>());
    }
}

#[test]
fn ranks_that_divide_the_lanes_read_no_more_together_than_one_alone() {
    let model = Model::random(columns(), 600, 2);
    let fetched = |world: u32| -> u64 {
        let (_, storage) = store(&model, Duration::ZERO);
        let table = table(storage);
        let rank = |rank| {
            let shuffle = Shuffle::Windowed(Window { lanes: 8, window: 2, unit_bytes: 600 });
            // Its rows have blocks of their own, so that no two lanes share one.
            let columns = Some(vec!["large".to_owned()]);
            let options = LoaderOptions { columns, batch_size: 8, shuffle, rank, world, ..LoaderOptions::default() };
            let mut batches = loader(&table, options).iter().unwrap();
            batches.by_ref().for_each(|batch| model.assert_batch(&batch.unwrap()));
            batches.stats().fetched
        };
        (0..world).map(rank).sum()
    };
    assert_eq!(fetched(1), 600 * 280);
    for world in [2, 4, 8] {
        assert_eq!(fetched(world), 600 * 280, "{world} ranks");
    }
}

/// Rows of 12 KiB, five to a block, pushed by an odd number.
fn small_rows(rows: usize) -> Storage {
    let storage = memory();
    let lake = block_on(Lake::create(storage.clone())).unwrap();
    let mut transaction = block_on(lake.begin("main")).unwrap();
    let schema = Schema::new(vec![column("image", DType::U8, &[Dim::Fixed(12 << 10)])]).unwrap();
    transaction.create_table("main", schema).unwrap();
    let mut writer = block_on(transaction.writer("main")).unwrap();
    for start in (0..rows).step_by(777) {
        let rows = (rows - start).min(777);
        let bytes: Vec<u8> = (start * 12..(start + rows) * 12).flat_map(|block| [block as u8; 1 << 10]).collect();
        writer.push(&[ColumnSlice { rows, values: Values::Fixed(&bytes), validity: None }]).unwrap();
    }
    transaction.append(writer.finish().unwrap());
    block_on(transaction.commit("rows", "test")).unwrap();
    storage
}

#[test]
fn a_run_goes_on_where_the_next_chunk_begins() {
    const ROW: usize = 100_000;
    let inner = memory();
    let lake = block_on(Lake::create(inner.clone())).unwrap();
    let mut transaction = block_on(lake.begin("main")).unwrap();
    let schema = Schema::new(vec![column("image", DType::U8, &[Dim::Fixed(ROW as u32)])]).unwrap();
    transaction.create_table("main", schema).unwrap();
    let mut writer = block_on(transaction.writer("main")).unwrap();
    let bytes: Vec<u8> = (0..200).flat_map(|row| vec![row as u8; ROW]).collect();
    writer.push(&[ColumnSlice { rows: 200, values: Values::Fixed(&bytes), validity: None }]).unwrap();
    transaction.append(writer.finish().unwrap());
    block_on(transaction.commit("rows", "test")).unwrap();
    let store = FaultStore::new(inner.store().unwrap(), 1);
    let table = table(Storage::from_store(Arc::new(store.clone()), "memory://counted"));
    store.clear();

    let options = LoaderOptions { batch_size: 1, shuffle: Shuffle::Global, ..LoaderOptions::default() };
    let mut batches = loader(&table, options).iter().unwrap();
    for batch in batches.by_ref() {
        let batch = batch.unwrap();
        let BatchValues::Fixed { buffer, .. } = &batch.columns[0].values else { panic!("fixed rows") };
        assert!(buffer.host().unwrap().iter().all(|byte| u64::from(*byte) == batch.rows[0]));
    }
    // The index, the first row, five runs, and one more because the first row is missing in one of them. The two places where a
    // chunk ends within a run cost none.
    assert!(reads(&store).len() <= 8, "{:?}", reads(&store));
    assert!((0..2 * 4096).contains(&(batches.stats().fetched - bytes.len() as u64)));
}

#[test]
fn ranks_share_no_block_of_small_rows() {
    let storage = small_rows(3_000);
    let stored = 3_000 * (12 << 10);
    let fetched = |world: u32, memory_budget: u64| -> u64 {
        let rank = |rank| {
            let shuffle = Shuffle::Windowed(Window { lanes: 8, window: 2, unit_bytes: 512 << 10 });
            let options = LoaderOptions {
                batch_size: 32 / world as usize,
                shuffle,
                rank,
                world,
                memory_budget,
                ..LoaderOptions::default()
            };
            let mut batches = loader(&table(storage.clone()), options).iter().unwrap();
            for batch in batches.by_ref() {
                let batch = batch.unwrap();
                let BatchValues::Fixed { buffer, .. } = &batch.columns[0].values else { panic!("fixed rows") };
                for (row, bytes) in batch.rows.iter().zip(buffer.host().unwrap().chunks_exact(12 << 10)) {
                    assert_eq!([bytes[0], bytes[12_287]], [(row * 12) as u8, (row * 12 + 11) as u8]);
                }
            }
            batches.stats().fetched
        };
        (0..world).map(rank).sum()
    };
    for world in [1, 2, 4, 8] {
        // Once with room for all, once for the window alone.
        for budget in [1 << 30, 20 << 20] {
            let fetched = fetched(world, budget);
            assert!(fetched * 100 <= stored * 102, "{world} ranks fetched {fetched} of {stored} bytes");
        }
    }
}

#[test]
fn a_cache_on_disk_that_holds_half_keeps_what_comes_next() {
    let folder = tempfile::tempdir().unwrap();
    let inner = small_rows(2_000);
    let stored: u64 = 2_000 * (12 << 10);
    let open = |name: &str| {
        let cache = folder.path().join(name).display().to_string();
        let options = [("cache_dir", cache.as_str()), ("cache_size", "12MiB")].into_iter().collect();
        Storage::from_remote_store(inner.store().unwrap(), "memory://half", &options).unwrap()
    };
    let epochs = |shuffle: Shuffle, foreseen: bool| -> u64 {
        let storage = open(&format!("{shuffle:?}-{foreseen}"));
        let options = LoaderOptions {
            batch_size: 50,
            shuffle,
            io_concurrency: 2,
            // Less than the set: it is read as it is delivered.
            memory_budget: 8 << 20,
            ..LoaderOptions::default()
        };
        let loader = loader(&table(storage.clone()), options);
        for epoch in 0..3 {
            loader.set_epoch(epoch);
            for (step, batch) in loader.iter().unwrap().enumerate() {
                batch.unwrap();
                if !foreseen {
                    storage.foresee([]);
                } else if step == 0 {
                    // What is to come is told soon after the first batch, and long before the second here.
                    std::thread::sleep(Duration::from_millis(700));
                }
                // Slower than the disk: what is not written in time is not kept.
                std::thread::sleep(Duration::from_millis(5));
                let waiting = || storage.stats().cache.is_some_and(|it| it.stored + it.not_stored < it.misses);
                while waiting() {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        }
        storage.stats().bytes
    };
    let (foreseen, oldest_first) = (epochs(Shuffle::Off, true), epochs(Shuffle::Off, false));
    assert!(oldest_first * 10 >= stored * 3 * 9, "the oldest goes first: nothing is ever found, {oldest_first} bytes");
    assert!(foreseen * 100 <= oldest_first * 92, "{foreseen} of {oldest_first} bytes are fetched");
}

#[test]
fn the_first_batch_needs_one_round_trip_for_indexes_and_one_for_rows() {
    let model = Model::random(columns(), 400, 2);
    let latency = Duration::from_millis(150);
    for shuffle in [Shuffle::Off, Shuffle::Global, window(4, 2)] {
        let (store, storage) = store(&model, latency);
        let table = table(storage);
        store.clear();
        let options = LoaderOptions { batch_size: 4, shuffle, ..LoaderOptions::default() };
        let started = Instant::now();
        let batch = loader(&table, options).iter().unwrap().next().unwrap().unwrap();
        let rounds = started.elapsed().as_secs_f64() / latency.as_secs_f64();
        model.assert_batch(&batch);
        assert!((2.0..4.0).contains(&rounds), "{shuffle:?} took {rounds} round trips");
    }
}

#[test]
fn requests_in_flight_stay_within_their_limit_and_memory_within_its_budget() {
    let model = Model::random(columns(), 400, 2);
    let (_, storage) = store(&model, Duration::from_millis(1));
    let table = table(storage);
    let options = LoaderOptions {
        batch_size: 16,
        shuffle: window(4, 2),
        io_concurrency: 3,
        memory_budget: 800_000,
        ..LoaderOptions::default()
    };
    let mut batches = loader(&table, options).iter().unwrap();
    batches.by_ref().for_each(|batch| model.assert_batch(&batch.unwrap()));
    assert!(batches.stats().peak_bytes <= 800_000, "{:?}", batches.stats());
}

#[test]
fn what_is_kept_is_not_fetched_again_and_what_does_not_fit_is() {
    let model = Model::random(columns(), 500, 2);
    let (store, storage) = store(&model, Duration::ZERO);
    let table = table(storage);
    let epochs = |host_cache: u64, shuffle: Shuffle| {
        let options = LoaderOptions { batch_size: 16, shuffle, host_cache, ..LoaderOptions::default() };
        let loader = loader(&table, options);
        let epoch = |_| {
            store.clear();
            let mut batches = loader.iter().unwrap();
            batches.by_ref().for_each(|batch| model.assert_batch(&batch.unwrap()));
            let stats = batches.stats();
            assert!(stats.kept_bytes <= host_cache, "{stats:?}");
            (stats.fetched, stats.kept_bytes, reads(&store).len())
        };
        (0..3).map(epoch).collect::<Vec<_>>()
    };
    for shuffle in [Shuffle::Off, Shuffle::Global, window(4, 2)] {
        let none = epochs(0, shuffle);
        let all = none[0].0;
        assert!(none.iter().all(|(fetched, kept, _)| (*fetched, *kept) == (all, 0)), "{none:?}");
        // Decoded rows may take more than stored ones.
        let whole = epochs(4 * all, shuffle);
        assert_eq!(whole[0].0, all, "{shuffle:?}");
        assert!(
            whole[1..].iter().all(|(fetched, kept, reads)| (*fetched, *reads) == (0, 0) && *kept >= all),
            "{whole:?}"
        );
        let half = epochs(whole[2].1 / 2, shuffle);
        assert!(half[1..].iter().all(|(fetched, ..)| *fetched > all / 3 && *fetched < all * 2 / 3), "{all}: {half:?}");
    }
}
