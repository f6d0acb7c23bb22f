//! Columns of links come as what they lead to, as if it were stored; and what changed since is a fault of its rows.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use forebay_format::{DType, Kind, Link};
use forebay_loader::{
    Batch, Batches, Error, Fault, FaultPolicy, Loader, LoaderOptions, OnFault, Pixels, Remedy, Route, Shuffle, Stats,
    Window,
    finish::{Finish, Number, Resize},
    order::Stop,
};
use forebay_storage::{
    Options, Storage,
    testing::{Fault as StoreFault, FaultStore, OpKind, Rule},
};
use forebay_versioning::{Error as LakeError, Selection, Table};

use super::{
    decoding::photos,
    support::{Cell, Model, block_on, column, columns, folder, host, memory, table},
};

const ROWS: usize = 120;

/// A column of a model as links to objects of a store: every third row an object of its own by etag, every third one by hash, every
/// third one a part of an object that several share.
fn links(model: &Model, name: &str, objects: &Storage) -> Model {
    let mut made = model.clone();
    let number = made.columns.iter().position(|column| column.name == name).unwrap();
    let linked = &mut made.columns[number];
    linked.dtype = DType::Link;
    linked.kind = Kind { name: String::new(), metadata: BTreeMap::from([("base".into(), objects.url().into())]) };
    let cells = &mut made.cells[number];
    let shared: Vec<u8> = cells.iter().flat_map(|cell| cell.bytes.clone()).collect();
    let put = |name: &str, bytes: &[u8]| {
        block_on(objects.put(name, bytes.to_vec().into())).unwrap();
        block_on(objects.head(name)).unwrap().etag
    };
    let etag = put("shared", &shared);
    let mut start = 0;
    for (row, cell) in cells.iter_mut().enumerate().filter(|(_, cell)| cell.valid) {
        let (url, length) = (format!("{}/{row}", row % 7), cell.bytes.len() as u64);
        let link = match row % 3 {
            0 => Link { etag: put(&url, &cell.bytes), url, size: length, part: None, hash: None },
            1 => {
                put(&url, &cell.bytes);
                Link { url, size: length, part: None, etag: None, hash: Some(Link::hash_of(&cell.bytes)) }
            }
            _ => Link {
                url: "shared".into(),
                size: shared.len() as u64,
                part: Some(start..start + length),
                etag: etag.clone(),
                hash: None,
            },
        };
        start += length;
        *cell = Cell { bytes: link.encode().unwrap(), shape: Vec::new(), valid: true };
    }
    made
}

/// Rows whose column `blob` has bytes in all rows but one.
fn rows() -> (Model, usize) {
    let mut model = Model::random(columns(), ROWS, 4);
    let blob = model.columns.iter().position(|column| column.name == "blob").unwrap();
    for (row, cell) in model.cells[blob].iter_mut().enumerate().filter(|(_, cell)| cell.bytes.is_empty()) {
        cell.bytes = vec![row as u8; 5];
    }
    model.cells[blob][EMPTY].bytes.clear();
    (model, blob)
}

const EMPTY: usize = 118;

/// The table of a lake whose links may lead to a store.
fn open(lake: Storage, objects: &Storage) -> Table {
    let table = table(lake);
    table.snapshot().lake().allow_links([objects.clone()]);
    table
}

struct Place {
    _folders: Vec<tempfile::TempDir>,
    lake: Storage,
    objects: Storage,
}

/// A lake and objects beside it, on disk or in memory.
fn place(remote: bool) -> Place {
    if remote {
        let objects = Storage::open(&format!("memory://linked-{}", rand::random::<u64>()), &Options::default());
        return Place { _folders: Vec::new(), lake: memory(), objects: objects.unwrap() };
    }
    let ((one, lake), (two, objects)) = (folder(), folder());
    Place { _folders: vec![one, two], lake, objects }
}

/// A model with texts and bytes of which some are links.
fn linked(remote: bool) -> (Place, Model, Table) {
    let (mut nullable, blob) = rows();
    nullable.columns[blob].nullable = true;
    for row in (5..ROWS).step_by(9) {
        nullable.cells[blob][row] = Cell::default();
    }
    let place = place(remote);
    links(&nullable, "blob", &place.objects).write(place.lake.clone(), 2);
    let table = open(place.lake.clone(), &place.objects);
    (place, nullable, table)
}

fn run(table: &Table, options: LoaderOptions) -> (Vec<Batch>, Vec<Fault>, Stats, Option<Error>) {
    let loader = Loader::new(Selection::all(table.clone()), options, host(2)).unwrap();
    drain(loader.iter().unwrap())
}

fn drain(mut batches: Batches) -> (Vec<Batch>, Vec<Fault>, Stats, Option<Error>) {
    let (mut good, mut error) = (Vec::new(), None);
    for batch in batches.by_ref() {
        match batch {
            Ok(batch) => good.push(batch),
            Err(failed) => error = Some(failed),
        }
    }
    (good, batches.faults(), batches.stats(), error)
}

fn delivered(batches: &[Batch]) -> Vec<u64> {
    let mut rows: Vec<u64> = batches.iter().flat_map(|batch| batch.rows.clone()).collect();
    rows.sort_unstable();
    rows
}

#[test]
fn links_come_as_what_they_lead_to_in_every_order_from_every_store() {
    for remote in [false, true] {
        let (_place, model, table) = linked(remote);
        let window = Shuffle::Windowed(Window { lanes: 4, window: 2, unit_bytes: 300 });
        for shuffle in [Shuffle::Off, Shuffle::Global, window, Shuffle::Buffer(20)] {
            for (batch_size, io_concurrency) in [(1, 64), (7, 3), (ROWS, 64)] {
                let options = LoaderOptions { batch_size, shuffle, io_concurrency, ..LoaderOptions::default() };
                let (batches, faults, stats, error) = run(&table, options);
                assert!(error.is_none() && faults.is_empty(), "{error:?}");
                batches.iter().for_each(|batch| model.assert_batch(batch));
                assert_eq!(delivered(&batches), (0..ROWS as u64).collect::<Vec<_>>());
                assert!(stats.routes.contains(&("blob".into(), Route::Linked)), "{:?}", stats.routes);
            }
        }
    }
}

#[test]
fn rows_that_were_chosen_edited_and_mixed_lead_to_their_own() {
    let (_one, first, table) = linked(true);
    let (_two, second, other) = linked(false);
    let rows: Vec<u64> = (0..40).map(|n| n * 7 % ROWS as u64).collect();
    let chosen = Selection::new(table, forebay_versioning::Rows::List(rows.into())).unwrap();
    let sources = vec![(chosen, 1.0), (Selection::all(other), 2.0)];
    let options = LoaderOptions { batch_size: 8, shuffle: Shuffle::Global, ..LoaderOptions::default() };
    let loader = Loader::mix(sources, Stop::First, options, host(2)).unwrap();
    let mut seen = BTreeSet::new();
    for batch in loader.iter().unwrap() {
        let batch = batch.unwrap();
        let sources = batch.sources.clone().unwrap();
        first.assert_some(&batch, |place| sources[place] == 0);
        second.assert_some(&batch, |place| sources[place] == 1);
        seen.extend(sources);
    }
    assert_eq!(seen, BTreeSet::from([0, 1]));
}

#[test]
fn images_behind_links_are_decoded_and_finished_like_stored_ones() {
    let model = photos(40, &[]);
    let place = place(true);
    let stored = memory();
    model.write(stored.clone(), 2);
    links(&model, "photo", &place.objects).write(place.lake.clone(), 2);
    let finish = Finish { resize: Some(Resize::To { height: 9, width: 9 }), number: Number::F32, ..Finish::default() };
    let options = || LoaderOptions {
        batch_size: 6,
        shuffle: Shuffle::Global,
        decode: [("photo".to_owned(), Pixels::Rgb)].into(),
        finishes: [("photo".to_owned(), finish.clone())].into(),
        group_bytes: 1 << 20,
        ..LoaderOptions::default()
    };
    let (wanted, ..) = run(&table(stored), options());
    let (found, faults, _, error) = run(&open(place.lake.clone(), &place.objects), options());
    assert!(error.is_none() && faults.is_empty(), "{error:?}");
    assert_eq!(found.len(), wanted.len());
    for (found, wanted) in found.iter().zip(&wanted) {
        assert_eq!(found.rows, wanted.rows);
        let bytes = |batch: &Batch| match &batch.columns[1].values {
            forebay_loader::BatchValues::Fixed { buffer, shape } => (shape.clone(), buffer.host().unwrap().to_vec()),
            other => panic!("{other:?}"),
        };
        assert_eq!(bytes(found), bytes(wanted));
    }
}

/// Breaks the links of three rows, one of each kind.
fn damage(place: &Place) -> BTreeSet<u64> {
    block_on(async {
        // By etag, by hash, and one that is gone.
        place.objects.put("0/21", "other".into()).await.unwrap();
        let size = place.objects.head("4/25").await.unwrap().size;
        place.objects.put("4/25", vec![7; size as usize].into()).await.unwrap();
        place.objects.delete("3/3").await.unwrap();
    });
    BTreeSet::from([21, 25, 3])
}

#[test]
fn what_changed_or_is_gone_is_masked_or_replaced_and_named_with_row_url_and_difference() {
    for remote in [false, true] {
        let (place, model, table) = linked(remote);
        let bad = damage(&place);
        for on_fault in [OnFault::Skip, OnFault::Substitute] {
            let faults = FaultPolicy { on_fault, ..FaultPolicy::default() };
            let options = LoaderOptions { batch_size: 7, shuffle: Shuffle::Global, faults, ..LoaderOptions::default() };
            let (batches, faults, stats, error) = run(&table, options.clone());
            assert!(error.is_none(), "{error:?}");
            batches.iter().for_each(|batch| model.assert_batch(batch));
            assert_eq!(faults.iter().map(|fault| fault.row).collect::<BTreeSet<_>>(), bad);
            assert_eq!(stats.faults, 3);
            for fault in &faults {
                let (url, difference) = match fault.row {
                    21 => ("/0/21", "changed since it was linked: it has 5 bytes"),
                    25 => ("/4/25", "changed since it was linked: its bytes have another hash"),
                    _ => ("/3/3", "there is no such object any more"),
                };
                let (place, row) = (format!("link to {}{url}", place.objects.url()), format!("row {}", fault.row));
                for said in [&place, difference, &row, "column 'blob'"] {
                    assert!(fault.cause.contains(said), "{said}: {fault}");
                }
                assert_eq!(matches!(fault.remedy, Remedy::Masked), on_fault == OnFault::Skip);
            }
            // The same rows come in their place in another run.
            let (again, ..) = run(&table, options);
            assert!(batches.iter().zip(&again).all(|(one, other)| one.rows == other.rows));
        }
        let few = FaultPolicy { on_fault: OnFault::Skip, max_faults: 2, ..FaultPolicy::default() };
        let (.., error) = run(&table, LoaderOptions { faults: few, ..LoaderOptions::default() });
        assert!(matches!(error, Some(Error::TooManyFaults { faults: 3, .. })), "{error:?}");
        let (batches, _, _, error) = run(&table, LoaderOptions::default());
        match error {
            Some(Error::Link { column, row: 3, source }) => {
                assert!(column == "blob" && matches!(*source, LakeError::LinkBroken { .. }));
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(delivered(&batches), [0, 1, 2], "all before it came");
    }
}

#[test]
fn a_link_to_a_place_that_is_not_allowed_ends_the_epoch_whatever_the_policy() {
    for on_fault in [OnFault::Fail, OnFault::Skip, OnFault::Substitute] {
        let (place, _, table) = linked(false);
        table.snapshot().lake().allow_links([]);
        let faults = FaultPolicy { on_fault, ..FaultPolicy::default() };
        let (batches, _, _, error) = run(&table, LoaderOptions { faults, ..LoaderOptions::default() });
        let error = error.unwrap();
        assert!(batches.is_empty() && !error.is_of_row(), "{error}");
        assert!(error.to_string().contains(&format!("links=[\"{}", place.objects.url())), "{error}");
    }
}

/// A lake in memory whose links lead to a store that is told how to fail.
fn flaky(options: &[(&str, &str)]) -> (FaultStore, Model, Table) {
    let place = place(true);
    let store = FaultStore::new(place.objects.store().unwrap(), 9);
    let options: Options = options.iter().copied().collect();
    // The same objects, by the same names, behind the faults.
    let objects = Storage::from_remote_store(Arc::new(store.clone()), place.objects.url(), &options).unwrap();
    let (model, _) = rows();
    links(&model, "blob", &objects).write(place.lake.clone(), 2);
    let table = open(place.lake, &objects);
    store.clear();
    (store, model, table)
}

#[test]
fn failures_that_pass_cost_time_and_no_row() {
    let (store, model, table) = flaky(&[("max_retries", "40")]);
    for fault in [StoreFault::ErrorBefore, StoreFault::Truncate(None), StoreFault::Break(None), StoreFault::Throttle] {
        store.clear();
        store.add(Rule::new(fault).on(OpKind::Get).chance(0.3));
        let (batches, faults, _, error) = run(&table, LoaderOptions { batch_size: 9, ..LoaderOptions::default() });
        assert!(error.is_none() && faults.is_empty(), "{fault:?}: {error:?}");
        batches.iter().for_each(|batch| model.assert_batch(batch));
    }
}

#[test]
fn a_store_that_fails_ends_the_epoch_whatever_the_policy() {
    let (store, _, table) = flaky(&[("max_retries", "1")]);
    store.add(Rule::new(StoreFault::ErrorBefore).on(OpKind::Get));
    let faults = FaultPolicy { on_fault: OnFault::Skip, ..FaultPolicy::default() };
    let (batches, faults, _, error) = run(&table, LoaderOptions { faults, ..LoaderOptions::default() });
    assert!(batches.is_empty() && faults.is_empty());
    assert!(matches!(error, Some(Error::Lake(LakeError::Storage(_)))), "{error:?}");
}

#[test]
fn a_store_that_says_nothing_ends_the_epoch_and_names_what_is_missing() {
    let (store, _, table) = flaky(&[("timeout", "100s")]);
    store.add(Rule::new(StoreFault::Stall).on(OpKind::Get));
    let options = LoaderOptions { stall_timeout: Duration::from_millis(300), ..LoaderOptions::default() };
    let (.., error) = run(&table, options);
    match error {
        Some(Error::Stalled { waiting, .. }) => assert!(waiting[0].contains("memory://linked"), "{waiting:?}"),
        other => panic!("{other:?}"),
    }
    // Who leaves doesn't wait for it.
    let loader = Loader::new(Selection::all(table), LoaderOptions::default(), host(2)).unwrap();
    let started = Instant::now();
    let mut batches = loader.iter().unwrap();
    assert!(matches!(batches.next_within(Duration::from_millis(100)), Ok(forebay_loader::Next::Pending)));
    drop(batches);
    assert!(started.elapsed() < Duration::from_secs(60));
}

#[test]
fn parts_of_one_object_come_together() {
    let (store, _, table) = flaky(&[]);
    let (batches, _, stats, _) = run(&table, LoaderOptions { batch_size: 30, ..LoaderOptions::default() });
    assert_eq!(batches.len(), 4);
    // Two rows of three are objects of their own, one of them without bytes; the parts that the others are take a request a batch.
    assert_eq!((store.count(OpKind::Get), store.count(OpKind::Head)), (2 * ROWS / 3 - 1 + 4, 1));
    assert!(stats.requests >= store.count(OpKind::Get) as u64);
}

#[test]
fn what_links_lead_to_is_read_ahead_and_within_the_budget() {
    const EACH: usize = 50_000;
    let mut model = Model::random(vec![column("id", DType::I64, &[]), column("blob", DType::Bytes, &[])], 200, 3);
    for (row, cell) in model.cells[1].iter_mut().enumerate() {
        cell.bytes = vec![row as u8; EACH];
    }
    let place = place(true);
    links(&model, "blob", &place.objects).write(place.lake.clone(), 1);
    let table = open(place.lake.clone(), &place.objects);
    for (memory_budget, most) in
        [(1 << 20, (1 << 20) + 8 * EACH as u64), (100 << 10, 16 * EACH as u64), (1 << 30, 1 << 30)]
    {
        let options = LoaderOptions { batch_size: 4, memory_budget, prefetch: 4, ..LoaderOptions::default() };
        let loader = Loader::new(Selection::all(table.clone()), options, host(2)).unwrap();
        let (batches, _, stats, error) = drain(loader.iter().unwrap());
        assert!(error.is_none(), "{error:?}");
        batches.iter().for_each(|batch| model.assert_batch(batch));
        assert!(stats.peak_bytes <= most, "{} of {memory_budget}", stats.peak_bytes);
        assert!(stats.peak_bytes >= 8 * EACH as u64);
    }
}
