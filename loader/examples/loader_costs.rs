//! What an epoch costs: bytes that are fetched beside those that are delivered, and memory beside the budget. One JSON object a line.
//!
//! ```text
//! cargo run --release -p forebay-loader --example loader_costs -- FOLDER
//! ```
//! Lakes are made in FOLDER and read through a store that can't be mapped, as from a network.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use forebay_format::{Column, ColumnSlice, DType, Dim, Schema, Values};
use forebay_loader::{HostDevice, Loader, LoaderOptions, Shuffle, Window};
use forebay_storage::{Options, Storage, testing::FaultStore};
use forebay_versioning::{At, Lake, Rows, Selection, Table};

fn block_on<T>(future: impl Future<Output = T>) -> T {
    forebay_storage::runtime().unwrap().block_on(future)
}

/// A table of random rows of `row_bytes`, and a label each, which names the files of its rows so many times. It is read by
/// requests, never mapped.
fn table(folder: &Path, rows: usize, row_bytes: usize, times: usize) -> Table {
    let path = folder.join(format!("costs-{rows}-{row_bytes}-{times}"));
    let storage = Storage::open(path.to_str().unwrap(), &Options::default()).unwrap();
    if !path.exists() {
        write(storage.clone(), rows, row_bytes, times);
    }
    let remote = FaultStore::new(storage.store().unwrap(), 1);
    let remote = Storage::from_store(Arc::new(remote), "memory://costs");
    block_on(async {
        let lake = Lake::open(remote).await.unwrap();
        lake.snapshot(&At::Branch("main".into())).await.unwrap().table("main").await.unwrap()
    })
}

fn write(storage: Storage, rows: usize, row_bytes: usize, times: usize) {
    let columns = [
        Column::new("value", DType::U8, [Dim::Fixed(row_bytes as u32)]).unwrap(),
        Column::new("label", DType::I64, []).unwrap(),
    ];
    let lake = block_on(Lake::create(storage)).unwrap();
    let mut transaction = block_on(lake.begin("main")).unwrap();
    transaction.create_table("main", Schema::new(columns.to_vec()).unwrap()).unwrap();
    let mut writer = block_on(transaction.writer("main")).unwrap();
    let mut seed = 1_u64;
    let step = (16 << 20) / row_bytes;
    for start in (0..rows).step_by(step) {
        let count = (rows - start).min(step);
        let labels: Vec<u8> = (start..start + count).flat_map(|label| (label as i64).to_le_bytes()).collect();
        let mut values = vec![0; count * row_bytes];
        for word in values.chunks_exact_mut(8) {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            word.copy_from_slice(&seed.to_le_bytes());
        }
        let column = |bytes| ColumnSlice { rows: count, values: Values::Fixed(bytes), validity: None };
        writer.push(&[column(&values), column(&labels)]).unwrap();
    }
    let written = writer.finish().unwrap();
    (0..times).for_each(|_| transaction.append(written.clone()));
    block_on(transaction.commit("rows", "bench")).unwrap();
}

/// Delivers an epoch. Gives the bytes fetched and the rows delivered.
fn epoch(selection: &Selection, options: LoaderOptions) -> (u64, u64) {
    let device = HostDevice::new(2).unwrap();
    let mut batches = Loader::new(selection.clone(), options, device).unwrap().iter().unwrap();
    batches.by_ref().for_each(|batch| drop(batch.unwrap()));
    let stats = batches.stats();
    (stats.fetched, stats.rows)
}

fn line(case: &str, value: f64, unit: &str, floor: f64, bar: f64) {
    println!(
        r#"{{"case": "{case}", "value": {value}, "unit": "{unit}", "floor": {floor}, "bar": {bar}, "more": false}}"#
    );
}

/// Bytes fetched by all ranks of an epoch that memory doesn't hold.
fn dense(folder: &Path) {
    for (rows, row_bytes) in [(6_000, 150_528), (60_000, 12_288)] {
        let selection = Selection::all(table(folder, rows, row_bytes, 1));
        let selected = (rows * (row_bytes + 8)) as f64;
        for world in [1, 2, 4, 8] {
            let fetched: u64 = (0..world)
                .map(|rank| {
                    let shuffle = Shuffle::Windowed(Window { lanes: 24, window: 8, unit_bytes: 512 << 10 });
                    let options = LoaderOptions {
                        batch_size: 256 / world as usize,
                        shuffle,
                        rank,
                        world,
                        memory_budget: 400 << 20,
                        ..LoaderOptions::default()
                    };
                    epoch(&selection, options).0
                })
                .sum();
            let case = format!("fetched by {world} ranks, rows of {row_bytes} B");
            line(&case, fetched as f64, "B", selected, 1.0 / 1.02);
        }
    }
}

/// Bytes fetched for one row in a hundred.
fn sparse(folder: &Path) {
    for row_bytes in [65_536, 150_528] {
        let rows = 6_000_u64;
        let table = table(folder, rows as usize, row_bytes, 1);
        let chosen: Vec<u64> = (0..rows / 100).map(|number| number * 7_919 % rows).collect();
        let selection = Selection::new(table, Rows::List(chosen.into())).unwrap();
        let options = LoaderOptions {
            columns: Some(vec!["value".to_owned()]),
            batch_size: 16,
            shuffle: Shuffle::Global,
            ..LoaderOptions::default()
        };
        let (fetched, delivered) = epoch(&selection, options);
        let case = format!("fetched for 1 % of rows of {row_bytes} B");
        line(&case, fetched as f64, "B", (delivered as usize * row_bytes) as f64, 1.0 / 1.1);
    }
}

/// Anonymous and shared memory of this process, in bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let of = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
    };
    of("RssAnon:") + of("RssShmem:")
}

/// Bytes of a row of the set that memory is measured with, and how many are written: a GiB.
const ROW: u64 = 150_528;
const WRITTEN: u64 = (1 << 30) / ROW;
/// The set is ten times the largest budget: what was written, so many times.
const TIMES: u64 = 41;

/// The most memory that ten epochs of a set take that is ten times the budget, with a window that takes half of the budget.
fn memory(table: &Table, budget: u64) {
    let rows = 10 * budget / ROW;
    let selection = Selection::new(table.clone(), Rows::Runs([0..rows].into())).unwrap();
    let before = resident();
    let (peak, done) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let watch = {
        let (peak, done) = (peak.clone(), done.clone());
        std::thread::spawn(move || {
            while !done.load(Ordering::Relaxed) {
                peak.fetch_max(resident(), Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(10));
            }
        })
    };
    let window = (budget / 2 / 24 / (512 << 10)) as u32;
    let shuffle = Shuffle::Windowed(Window { lanes: 24, window, unit_bytes: 512 << 10 });
    for epoch in 0..10 {
        let options =
            LoaderOptions { batch_size: 128, shuffle, epoch, memory_budget: budget, ..LoaderOptions::default() };
        self::epoch(&selection, options);
    }
    done.store(true, Ordering::Relaxed);
    watch.join().unwrap();
    let used = peak.load(Ordering::Relaxed).saturating_sub(before);
    let set = (rows * ROW) as f64 / 1e9;
    let case = format!("memory at a budget of {} MiB, ten epochs of {set:.1} GB", budget >> 20);
    line(&case, used as f64, "B", (budget + (64 << 20)) as f64, 1.0);
}

fn main() {
    let folder = std::env::args().nth(1).unwrap_or_else(|| "target/bench".to_owned());
    let folder = Path::new(&folder);
    std::fs::create_dir_all(folder).unwrap();
    dense(folder);
    sparse(folder);
    let many = table(folder, WRITTEN as usize, ROW as usize, TIMES as usize);
    for budget in [256 << 20, 1 << 30, 4 << 30] {
        memory(&many, budget);
    }
}
