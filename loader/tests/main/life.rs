//! Loaders are started, stopped, repeated and shared as one pleases.

use std::time::{Duration, Instant};

use forebay_loader::{Error, Loader, LoaderOptions, Next, Route, Shuffle, Window};
use forebay_versioning::Selection;

use super::support::{Model, columns, folder, host, loader, memory, table};

fn options(shuffle: Shuffle) -> LoaderOptions {
    LoaderOptions { batch_size: 7, shuffle, ..LoaderOptions::default() }
}

#[test]
fn an_epoch_can_be_left_at_any_batch() {
    let storage = memory();
    let model = Model::random(columns(), 200, 4);
    model.write(storage.clone(), 2);
    let table = table(storage);
    for shuffle in [Shuffle::Global, Shuffle::default(), Shuffle::Off] {
        let loader = loader(&table, options(shuffle));
        for taken in [0, 1, 3, 20] {
            let started = Instant::now();
            let mut batches = loader.iter().unwrap();
            for batch in batches.by_ref().take(taken) {
                model.assert_batch(&batch.unwrap());
            }
            drop(batches);
            assert!(started.elapsed() < Duration::from_secs(10));
        }
    }
}

#[test]
fn a_thousand_epochs_left_early_leave_nothing_behind() {
    let (_folder, local) = folder();
    let remote = memory();
    let model = Model::random(columns(), 40, 4);
    model.write(local.clone(), 1);
    model.write(remote.clone(), 1);
    let loaders = [local, remote].map(|storage| loader(&table(storage), options(Shuffle::Global)));
    let started = Instant::now();
    for round in 0..1000 {
        let mut batches = loaders[round % 2].iter().unwrap();
        for batch in batches.by_ref().take(round / 2 % 4) {
            assert_eq!(batch.unwrap().rows.len(), 7);
        }
    }
    assert!(started.elapsed() < Duration::from_secs(600), "{:?}", started.elapsed());
    #[cfg(target_os = "linux")]
    {
        let names = std::fs::read_dir("/proc/self/task")
            .unwrap()
            .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
        // Other tests of this process have epochs as well, but not hundreds.
        let threads = names.filter(|name| name.starts_with("forebay-builder") || name.starts_with("forebay-feeder"));
        assert!(threads.count() < 200);
    }
}

#[test]
fn two_epochs_run_side_by_side_and_share_a_device() {
    let (_folder, storage) = folder();
    let model = Model::random(columns(), 150, 5);
    model.write(storage.clone(), 3);
    let table = table(storage);
    let device = host(2);
    let make = |seed| {
        let options = LoaderOptions { seed, ..options(Shuffle::Global) };
        Loader::new(Selection::all(table.clone()), options, device.clone()).unwrap()
    };
    let (one, two) = (make(1), make(2));
    let mut rows = [Vec::new(), Vec::new()];
    for (first, second) in one.iter().unwrap().zip(two.iter().unwrap()) {
        for (rows, batch) in rows.iter_mut().zip([first.unwrap(), second.unwrap()]) {
            model.assert_batch(&batch);
            rows.extend(batch.rows);
        }
    }
    assert_ne!(rows[0], rows[1]);
    rows.iter_mut().for_each(|rows| rows.sort_unstable());
    assert_eq!(rows[0], rows[1]);
}

#[test]
fn an_epoch_repeats_itself_and_differs_from_the_next() {
    let (_folder, storage) = folder();
    Model::random(columns(), 100, 6).write(storage.clone(), 1);
    let loader = loader(&table(storage), options(Shuffle::Global));
    let rows = || -> Vec<u64> { loader.iter().unwrap().flat_map(|batch| batch.unwrap().rows).collect() };
    let first = rows();
    assert_eq!(rows(), first);
    loader.set_epoch(1);
    assert_ne!(rows(), first);
    loader.set_epoch(0);
    assert_eq!(rows(), first);
}

#[test]
fn batches_stay_as_they_are_while_later_ones_come() {
    let (_folder, storage) = folder();
    let model = Model::random(columns(), 200, 7);
    model.write(storage.clone(), 2);
    let loader = loader(&table(storage), options(Shuffle::Global));
    let kept: Vec<_> = loader.iter().unwrap().map(Result::unwrap).collect();
    drop(loader);
    kept.iter().for_each(|batch| model.assert_batch(batch));
}

#[test]
fn stats_name_the_route_of_each_column() {
    let (_folder, storage) = folder();
    Model::random(columns(), 60, 8).write(storage.clone(), 1);
    let mut batches = loader(&table(storage), options(Shuffle::Global)).iter().unwrap();
    assert_eq!(batches.by_ref().count(), 9);
    let stats = batches.stats();
    let route = |name: &str| stats.routes.iter().find(|(column, _)| column == name).unwrap().1;
    assert_eq!([route("image"), route("packed"), route("maybe")], [Route::Mapped, Route::Decoded, Route::Decoded]);
    assert_eq!((stats.batches, stats.rows, stats.requests), (9, 60, 0));
}

#[test]
fn a_bounded_wait_says_that_nothing_came_yet_and_then_that_all_came() {
    let (_folder, storage) = folder();
    Model::random(columns(), 14, 8).write(storage.clone(), 1);
    let mut batches = loader(&table(storage), options(Shuffle::Off)).iter().unwrap();
    let mut delivered = 0;
    loop {
        match batches.next_within(Duration::from_millis(5)).unwrap() {
            Next::Batch(_) => delivered += 1,
            Next::Pending => {}
            Next::End => break,
        }
    }
    assert_eq!((delivered, batches.remaining()), (2, 0));
}

#[test]
fn an_empty_table_has_an_empty_epoch() {
    let storage = memory();
    Model::random(columns(), 0, 8).write(storage.clone(), 1);
    let loader = loader(&table(storage), options(Shuffle::default()));
    assert!(loader.is_empty());
    assert_eq!(loader.iter().unwrap().count(), 0);
}

#[test]
fn a_budget_that_does_not_hold_the_window_is_refused_with_the_bytes_that_do() {
    let storage = memory();
    let model = Model::random(columns(), 300, 8);
    model.write(storage.clone(), 1);
    let table = table(storage);
    let window = Shuffle::Windowed(Window { lanes: 4, window: 4, unit_bytes: 4096 });
    let with = |memory_budget| {
        let options = LoaderOptions { memory_budget, ..options(window) };
        Loader::new(Selection::all(table.clone()), options, host(1))
    };
    let Err(Error::Budget { needed, .. }) = with(1000) else { panic!("1,000 bytes are enough?") };
    let loader = with(needed).unwrap();
    assert!(matches!(with(needed - 1), Err(Error::Budget { .. })));
    for batch in loader.iter().unwrap() {
        model.assert_batch(&batch.unwrap());
    }
}

#[test]
fn options_that_make_no_sense_are_refused_by_name() {
    let (_folder, storage) = folder();
    Model::random(columns(), 10, 8).write(storage.clone(), 1);
    let table = table(storage);
    let refused = |options: LoaderOptions| match Loader::new(Selection::all(table.clone()), options, host(1)) {
        Err(Error::Option { option, .. }) => option,
        other => panic!("{other:?}"),
    };
    let default = LoaderOptions::default;
    assert_eq!(refused(LoaderOptions { batch_size: 0, ..default() }), "batch_size");
    assert_eq!(refused(LoaderOptions { rank: 2, world: 2, ..default() }), "rank");
    assert_eq!(refused(LoaderOptions { world: 0, ..default() }), "world");
    assert_eq!(refused(LoaderOptions { prefetch: 0, ..default() }), "prefetch");
    let twice = Some(vec!["id".to_owned(), "id".to_owned()]);
    assert_eq!(refused(LoaderOptions { columns: twice, ..default() }), "columns");
    let unknown = LoaderOptions { columns: Some(vec!["nobody".to_owned()]), ..default() };
    let error = Loader::new(Selection::all(table.clone()), unknown, host(1)).unwrap_err().to_string();
    assert!(error.contains("nobody") && error.contains("image"), "{error}");
}
