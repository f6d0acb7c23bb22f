//! What commits and opens cost, whatever the size of a table and of a history.

use std::{sync::Arc, time::Duration};

use forebay_format::{
    Column, ColumnSlice, DType, FieldId, FileId, Schema, Values,
    meta::{DataFileRef, Fragment, TableRoot},
};
use forebay_storage::{
    Options, Storage,
    testing::{FaultStore, OpKind},
};

use crate::{At, Lake, Written, epochs::Begun, manifest};

/// Counts what tests have in memory; another test beside them counts as well.
#[global_allocator]
static ALLOCATED: peak_alloc::PeakAlloc = peak_alloc::PeakAlloc;

const MIB: f64 = (1 << 20) as f64;
const LATENCY: Duration = Duration::from_millis(20);

/// The most bytes and requests of a commit of one row.
const BYTES: u64 = 320 << 10;
const REQUESTS: usize = 6;
/// Writers of one branch.
const WRITERS: usize = 16;

/// A result as `cargo xtask bench versions` takes it: beside the value that it must reach.
fn line(case: &str, value: f64, unit: &str, floor: f64, more: bool) -> String {
    format!(r#"{{"case":"{case}","value":{value:.4},"unit":"{unit}","floor":{floor},"bar":1,"more":{more}}}"#)
}

/// Prints a cost beside what it may be.
fn report(case: &str, value: f64, unit: &str, most: f64) {
    println!("{}", line(case, value, unit, most, false));
}

/// A fragment of up to a gibibyte and 65,536 rows whose file is nowhere: committing reads no rows.
fn fragment(fields: &[FieldId]) -> Fragment {
    let id = FileId::random();
    let [low, high, ..] = *id.as_bytes();
    let some = u16::from_le_bytes([low, high]);
    let (index_offset, index_length) = (4096 + (u64::from(some) << 14), 1000 + u32::from(some));
    let size = index_offset + u64::from(index_length) + 64;
    let file = DataFileRef { id, size, index_offset, index_length, fields: fields.into() };
    Fragment::new(id.cast(), 1 + u32::from(some), vec![file])
}

/// A table of so many fragments after so many commits, each of which added one more.
async fn table(fragments: usize, commits: usize) -> (Storage, Lake) {
    let storage = Storage::open(&format!("memory://{}", uuid::Uuid::new_v4()), &Options::default()).unwrap();
    let lake = Lake::create(storage.clone()).await.unwrap();
    let mut transaction = lake.begin("main").await.unwrap();
    let column = Column::new("n", DType::I64, []).unwrap();
    let field = column.field;
    let id = transaction.create_table("main", Schema::new(vec![column]).unwrap()).unwrap();
    transaction.commit("create", "tester").await.unwrap();
    // A commit names the fragments that it adds, and has at most 16 MiB.
    let mut left = fragments;
    while left > 0 {
        let some = left.min(50_000);
        let mut transaction = lake.begin("main").await.unwrap();
        let fragments = (0..some).map(|_| fragment(&[field])).collect();
        transaction.append(Written { table: id, fragments, begun: Begun::now(0) });
        transaction.commit("many", "tester").await.unwrap();
        left -= some;
    }
    for _ in 0..commits {
        append(&lake).await;
    }
    (storage, lake)
}

fn fields(root: &TableRoot) -> Vec<FieldId> {
    root.schema.columns.iter().map(|column| column.field).collect()
}

async fn append(lake: &Lake) {
    let mut transaction = lake.begin("main").await.unwrap();
    let entry = transaction.base().commit().tables[0].clone();
    let root = crate::snapshot::root(lake, transaction.base().id(), &entry).await.unwrap();
    let new = fragment(&fields(&root));
    transaction.append(Written { table: entry.id, fragments: vec![new], begun: Begun::now(0) });
    transaction.commit("one", "tester").await.unwrap();
}

/// Sizes of tables: up to a million fragments with `FOREBAY_LONG`.
fn sizes() -> &'static [usize] {
    if std::env::var_os("FOREBAY_LONG").is_some() { &[100, 10_000, 1_000_000] } else { &[100, 30_000] }
}

#[test]
fn a_commit_of_one_row_takes_six_requests_and_bounded_bytes_at_every_size() {
    forebay_storage::runtime().unwrap().block_on(async {
        for size in sizes() {
            let (storage, _) = table(*size, 0).await;
            let faults = Arc::new(FaultStore::new(storage.store().unwrap(), 1));
            let lake = Lake::open(Storage::from_store(faults.clone(), "counted")).await.unwrap();
            let mut most = (0, 0);
            // So many that one of them writes a page.
            for _ in 0..400 {
                let mut transaction = lake.begin("main").await.unwrap();
                let entry = transaction.base().commit().tables[0].clone();
                let root = crate::snapshot::root(&lake, transaction.base().id(), &entry).await.unwrap();
                let new = fragment(&fields(&root));
                transaction.append(Written { table: entry.id, fragments: vec![new], begun: Begun::now(0) });
                faults.clear();
                transaction.commit("one", "tester").await.unwrap();
                let requests = faults.operations();
                let written = requests.iter().filter(|o| matches!(o.kind, OpKind::Put | OpKind::Create));
                most.0 = most.0.max(requests.len());
                most.1 = most.1.max(written.map(|o| o.bytes).sum());
            }
            // Its data file is one more.
            report(&format!("commit of a row, {size} fragments"), most.0 as f64 + 1.0, "requests", REQUESTS as f64);
            report(&format!("commit of a row, {size} fragments"), most.1 as f64 / 1024.0, "KiB", BYTES as f64 / 1024.0);
            assert!(most.0 < REQUESTS, "{size} fragments: {} requests", most.0);
            assert!(most.1 <= BYTES, "{size} fragments: {} bytes", most.1);
        }
    });
}

#[test]
fn opening_takes_three_requests_one_after_the_other_and_a_log_three_more() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let (size, commits) =
            if std::env::var_os("FOREBAY_LONG").is_some() { (1_000_000, 10_000) } else { (2000, 200) };
        let (storage, _) = table(size, commits).await;
        let slow = FaultStore::new(storage.store().unwrap(), 1).with_latency(LATENCY);
        let storage = Storage::from_store(Arc::new(slow), "slow");
        let latencies = |since: tokio::time::Instant| since.elapsed().as_secs_f64() / LATENCY.as_secs_f64();
        ALLOCATED.reset_peak_usage();
        let before = ALLOCATED.current_usage();
        let started = tokio::time::Instant::now();
        let (lake, snapshot) = Lake::open_at(storage, &At::default()).await.unwrap();
        let table = snapshot.table("main").await.unwrap();
        let opened = latencies(started);
        let [held, peak] = [ALLOCATED.current_usage(), ALLOCATED.peak_usage()].map(|bytes| (bytes - before) as f64);
        assert_eq!(table.fragments().len(), size + commits);
        let started = tokio::time::Instant::now();
        assert_eq!(lake.log(&At::default(), 20).await.unwrap().len(), 20);
        let log = latencies(started);
        let case = |what: &str| format!("open, {size} fragments, {commits} commits{what}");
        report(&case(""), opened, "latencies", 3.0);
        report(&case(": pages"), table.root().pages.len() as f64, "pages", manifest::CONCURRENCY as f64);
        // A table's fragments, and as much again for pages that the cache has yet to let go.
        let most = ((4 << 20) + 512 * (size + commits)) as f64;
        report(&case(": memory held"), held / MIB, "MiB", most / MIB);
        report(&case(": memory at most"), peak / MIB, "MiB", most / MIB);
        report(&format!("log of 20, {commits} commits"), log, "latencies", 3.0);
        // The marker beside the hint; the log's end beside the table's root; and all pages at once.
        assert!(opened <= 3.5, "open takes {opened} latencies");
        assert!(peak <= most, "open takes {peak} bytes");
        assert!(log <= 3.5, "log takes {log} latencies");
    });
}

/// What a number of writers of one branch met.
struct Race {
    /// Commits a second, of all together.
    rate: f64,
    /// Claims that were lost, a commit: on average, and the most that one writer lost for one commit.
    retries: (f64, usize),
    /// The longest that a commit took.
    longest: Duration,
}

/// Appends of one row by 16 writers at once, each with a handle of its own.
async fn race(storage: &Storage, latency: Duration, commits: usize) -> Race {
    let lake = Lake::create(storage.clone()).await.unwrap();
    let mut transaction = lake.begin("main").await.unwrap();
    let column = Column::new("n", DType::I64, []).unwrap();
    transaction.create_table("main", Schema::new(vec![column]).unwrap()).unwrap();
    transaction.commit("create", "tester").await.unwrap();
    let started = std::time::Instant::now();
    let writers = (0..WRITERS).map(|writer| {
        let faults = Arc::new(FaultStore::new(storage.store().unwrap(), writer as u64).with_latency(latency));
        tokio::spawn(async move {
            let lake = Lake::open(Storage::from_store(faults.clone(), "writer")).await.unwrap();
            let (mut lost, mut longest) = (Vec::new(), Duration::ZERO);
            for number in 0..commits {
                let began = std::time::Instant::now();
                faults.clear();
                let mut transaction = lake.begin("main").await.unwrap();
                let mut table = transaction.writer("main").await.unwrap();
                let bytes = ((writer * commits + number) as i64).to_le_bytes();
                let written = tokio::task::spawn_blocking(move || {
                    let slice = ColumnSlice { rows: 1, values: Values::Fixed(&bytes), validity: None };
                    table.push(&[slice]).unwrap();
                    table.finish().unwrap()
                });
                transaction.append(written.await.unwrap());
                transaction.commit("one", "tester").await.unwrap();
                longest = longest.max(began.elapsed());
                lost.push(faults.count(OpKind::Create) - 1);
            }
            (lost, longest)
        })
    });
    let done = futures::future::join_all(writers).await;
    let rate = (WRITERS * commits) as f64 / started.elapsed().as_secs_f64();
    let (mut lost, mut longest) = (Vec::new(), Duration::ZERO);
    for writer in done {
        let (of_writer, its_longest) = writer.unwrap();
        lost.extend(of_writer);
        longest = longest.max(its_longest);
    }
    assert_eq!(lake.snapshot(&At::default()).await.unwrap().commit().tables[0].rows, (WRITERS * commits) as u64);
    let mean = lost.iter().sum::<usize>() as f64 / lost.len() as f64;
    Race { rate, retries: (mean, lost.iter().copied().max().unwrap_or(0)), longest }
}

#[test]
fn sixteen_writers_of_one_branch_all_make_progress() {
    let long = std::env::var_os("FOREBAY_LONG").is_some();
    forebay_storage::runtime().unwrap().block_on(async {
        let folder = tempfile::tempdir().unwrap();
        let local = Storage::open(folder.path().to_str().unwrap(), &Options::default()).unwrap();
        let remote = Storage::open(&format!("memory://{}", uuid::Uuid::new_v4()), &Options::default()).unwrap();
        for (name, storage, latency) in [("a local disk", local, Duration::ZERO), ("20 ms a request", remote, LATENCY)]
        {
            let Race { rate, retries: (mean, most), longest } =
                race(&storage, latency, if long { 25 } else { 5 }).await;
            let case = |what: &str| format!("{WRITERS} writers, {name}: {what}");
            if latency.is_zero() {
                println!("{}", line(&case("commits"), rate, "commits/s", 10.0, true));
            } else {
                println!("{}", line(&case("commits"), rate, "commits/s", 1.0, true));
            }
            report(&case("lost claims a commit, mean"), mean, "claims", WRITERS as f64);
            report(&case("lost claims a commit, most"), most as f64, "claims", 200.0);
            report(&case("longest commit"), longest.as_secs_f64(), "s", 60.0);
            assert!(most < 200, "{name}: a commit lost {most} claims");
        }
    });
}

#[test]
fn a_lake_of_many_columns_and_commits_opens_in_a_few_requests_beside_its_pages() {
    let commits = if std::env::var_os("FOREBAY_LONG").is_some() { 10_000 } else { 200 };
    forebay_storage::runtime().unwrap().block_on(async {
        let storage = Storage::open(&format!("memory://{}", uuid::Uuid::new_v4()), &Options::default()).unwrap();
        let lake = Lake::create(storage.clone()).await.unwrap();
        let mut transaction = lake.begin("main").await.unwrap();
        let columns: Vec<Column> =
            (0..300).map(|number| Column::new(format!("column {number}"), DType::F32, []).unwrap()).collect();
        let fields: Vec<FieldId> = columns.iter().map(|column| column.field).collect();
        let table = transaction.create_table("main", Schema::new(columns).unwrap()).unwrap();
        transaction.commit("create", "tester").await.unwrap();
        for _ in 0..commits {
            let mut transaction = lake.begin("main").await.unwrap();
            let fragments = vec![fragment(&fields)];
            transaction.append(Written { table, fragments, begun: Begun::now(0) });
            transaction.commit("one", "tester").await.unwrap();
        }
        let mut times = Vec::new();
        let mut requests = 0;
        for _ in 0..5 {
            let slow = Arc::new(FaultStore::new(storage.store().unwrap(), 1).with_latency(LATENCY));
            let started = std::time::Instant::now();
            let opened = Lake::open_at(Storage::from_store(slow.clone(), "slow"), &At::default()).await.unwrap();
            let table = opened.1.table("main").await.unwrap();
            times.push(started.elapsed());
            requests = slow.operations().len().saturating_sub(table.root().pages.len());
            assert_eq!((table.fragments().len(), table.schema().columns.len()), (commits as usize, 300));
        }
        times.sort_unstable();
        let case = format!("open, 300 columns, {commits} commits, 20 ms a request");
        report(&case, times[2].as_secs_f64(), "s", 0.25);
        assert!(requests <= 12, "{requests} requests beside those for pages");
    });
}
