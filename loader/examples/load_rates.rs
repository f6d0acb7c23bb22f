//! How fast batches come, beside a plain copy of the same rows, or plain ranged reads of the same bytes.
//!
//! ```text
//! cargo run --release -p forebay-loader --example load_rates -- local FOLDER [ROWS [PREFETCH]]
//! cargo run --release -p forebay-loader --example load_rates -- remote [ROWS]
//! ```
//! `local` makes a lake in FOLDER once and reads it from the page cache; `remote` keeps one in memory behind 20 ms a
//! request.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::panic)]

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use forebay_format::{Column, ColumnSlice, DType, Dim, Schema, Values};
use forebay_loader::{Batches, HostDevice, Loader, LoaderOptions, Shuffle, Window};
use forebay_storage::{Options, Storage, testing::FaultStore};
use forebay_versioning::{At, Lake, Selection, Table};

const IMAGE: usize = 3 * 224 * 224;
const BATCH: usize = 256;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let rows = |place: usize| arguments.get(place).map_or(20_000, |rows| rows.parse().unwrap());
    match arguments.first().map(String::as_str) {
        Some("local") => local(&arguments[1], rows(2), arguments.get(3).map_or(2, |batches| batches.parse().unwrap())),
        Some("remote") => remote(rows(1)),
        _ => panic!("local FOLDER [ROWS] | remote [ROWS]"),
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    forebay_storage::runtime().unwrap().block_on(future)
}

fn write(storage: Storage, rows: usize) {
    let fixed = |name: &str, dtype, shape: &[u32]| {
        Column::new(name, dtype, shape.iter().copied().map(Dim::Fixed).collect::<Vec<_>>()).unwrap()
    };
    let columns =
        [fixed("image", DType::U8, &[3, 224, 224]), fixed("label", DType::I64, &[]), fixed("id", DType::I64, &[])];
    let lake = block_on(Lake::create(storage)).unwrap();
    let mut transaction = block_on(lake.begin("main")).unwrap();
    transaction.create_table("main", Schema::new(columns.to_vec()).unwrap()).unwrap();
    let mut writer = block_on(transaction.writer("main")).unwrap();
    let mut seed = 1_u64;
    for start in (0..rows).step_by(256) {
        let count = (rows - start).min(256);
        let ids: Vec<u8> = (start..start + count).flat_map(|id| (id as i64).to_le_bytes()).collect();
        let labels: Vec<u8> = (start..start + count).flat_map(|id| ((id / 20) as i64).to_le_bytes()).collect();
        let mut images = vec![0; count * IMAGE];
        for word in images.chunks_exact_mut(8) {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            word.copy_from_slice(&seed.to_le_bytes());
        }
        let column = |bytes| ColumnSlice { rows: count, values: Values::Fixed(bytes), validity: None };
        writer.push(&[column(&images), column(&labels), column(&ids)]).unwrap();
    }
    transaction.append(writer.finish().unwrap());
    block_on(transaction.commit("rows", "rates")).unwrap();
}

fn table(storage: Storage) -> Table {
    block_on(async {
        let (_, snapshot) = Lake::open_at(storage, &At::Branch("main".into())).await.unwrap();
        snapshot.table("main").await.unwrap()
    })
}

fn drain(batches: &mut Batches) -> (u64, u64) {
    let (mut bytes, mut ids) = (0, 0_u64);
    for batch in batches.by_ref() {
        let batch = batch.unwrap();
        for column in &batch.columns {
            if let forebay_loader::BatchValues::Fixed { buffer, .. } = &column.values {
                bytes += buffer.len() as u64;
                if &*column.name == "id" {
                    for id in buffer.host().unwrap().chunks_exact(8) {
                        ids += u64::from_le_bytes(id.try_into().unwrap()) + 1;
                    }
                }
            }
        }
    }
    (bytes, ids)
}

fn local(folder: &str, rows: usize, prefetch: usize) {
    let open = || Storage::open(folder, &Options::default()).unwrap();
    if !std::path::Path::new(folder).join("forebay").exists() {
        write(open(), rows);
    }
    let window = Shuffle::Windowed(Window::default());
    for (name, shuffle) in [("global", Shuffle::Global), ("windowed", window), ("off", Shuffle::Off)] {
        let table = table(open());
        let options =
            LoaderOptions { batch_size: BATCH, shuffle, prefetch, memory_budget: 8 << 30, ..LoaderOptions::default() };
        let loader = Loader::new(Selection::all(table.clone()), options, HostDevice::new(2).unwrap()).unwrap();
        let order = loader.order(0);
        // Maps of their own, all touched before: the loader has to bring its own pages in.
        let floor_table = crate::table(open());
        let files: Vec<_> = (0..table.fragments().len())
            .map(|fragment| block_on(floor_table.file(fragment, table.schema().columns[0].field)).unwrap())
            .collect();
        files.iter().for_each(|file| file.map().unwrap().populate(0..u64::MAX).unwrap());
        let place = |index: u64| {
            let at = table.locate(index).unwrap();
            let file = &files[at.fragment];
            (at.fragment, file.index().columns()[0].row_offset(at.row).unwrap() as usize)
        };
        let places: Vec<_> = (0..rows as u64).map(|position| place(order.index(position).unwrap())).collect();
        let mut buffer = vec![0_u8; BATCH * IMAGE];
        for epoch in 0..6 {
            loader.set_epoch(epoch);
            let (started, before) = (Instant::now(), cpu());
            let mut batches = loader.iter().unwrap();
            let (bytes, ids) = drain(&mut batches);
            let time = started.elapsed().as_secs_f64();
            let stats = batches.stats();
            drop(batches);
            let used = cpu() - before;
            assert_eq!(ids, (rows * (rows + 1) / 2) as u64);
            let (started, before) = (Instant::now(), cpu());
            floor(&files, &places, &mut buffer);
            let copy = started.elapsed().as_secs_f64();
            println!(
                "{name} epoch {}: {:.2} GB/s, memcpy {:.2} GB/s, ratio {:.3}; CPU {used:.2} and {:.2} s; gathering {:.3} of {time:.3} s",
                epoch + 1,
                bytes as f64 / time / 1e9,
                bytes as f64 / copy / 1e9,
                copy / time,
                cpu() - before,
                stats.gathering.as_secs_f64(),
            );
        }
    }
}

/// Seconds of processor time that this process has used.
fn cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let ticks = stat.rsplit(')').next().unwrap().split_whitespace().skip(11).take(2);
    ticks.map(|ticks| ticks.parse::<f64>().unwrap()).sum::<f64>() / 100.0
}

/// Two threads copy the same rows into one reused buffer.
fn floor(files: &[Arc<forebay_versioning::OpenFile>], places: &[(usize, usize)], buffer: &mut [u8]) {
    let halves = buffer.split_at_mut(BATCH / 2 * IMAGE);
    std::thread::scope(|scope| {
        for (half, out) in [halves.0, halves.1].into_iter().enumerate() {
            scope.spawn(move || {
                for batch in places.chunks(BATCH) {
                    let rows = batch.iter().skip(half * (BATCH / 2)).take(BATCH / 2);
                    for (out, (file, start)) in out.chunks_exact_mut(IMAGE).zip(rows) {
                        out.copy_from_slice(&files[*file].map().unwrap().as_slice()[*start..*start + IMAGE]);
                    }
                }
            });
        }
    });
}

fn remote(rows: usize) {
    let memory = Storage::open("memory://rates", &Options::default()).unwrap();
    write(memory.clone(), rows);
    let latency = Duration::from_millis(20);
    let slow = || {
        let store = FaultStore::new(memory.store().unwrap(), 1).with_latency(latency);
        Storage::from_store(Arc::new(store), "memory://rates-slow")
    };
    for (name, shuffle) in [("windowed", Shuffle::Windowed(Window::default())), ("off", Shuffle::Off)] {
        let storage = slow();
        let started = Instant::now();
        let table = table(storage.clone());
        let opened = started.elapsed();
        let options = LoaderOptions { batch_size: BATCH, shuffle, ..LoaderOptions::default() };
        let loader = Loader::new(Selection::all(table.clone()), options, HostDevice::new(2).unwrap()).unwrap();
        let mut batches = loader.iter().unwrap();
        batches.next().unwrap().unwrap();
        let first = started.elapsed();
        let (_, _) = drain(&mut batches);
        let time = (started.elapsed() - opened).as_secs_f64();
        let stats = batches.stats();
        drop(batches);
        let plain = ranged(&storage, &table, stats.fetched / stats.requests, stats.fetched);
        println!(
            "{name}: open {:.1} and first batch {:.1} latencies; {:.2} GB/s in {} requests, {:.3} of the table's bytes; plain reads {:.2} GB/s, ratio {:.3}",
            opened.as_secs_f64() / latency.as_secs_f64(),
            first.as_secs_f64() / latency.as_secs_f64(),
            stats.fetched as f64 / time / 1e9,
            stats.requests,
            stats.fetched as f64 / table.bytes() as f64,
            stats.fetched as f64 / plain / 1e9,
            plain / time,
        );
        println!("  {stats:?}");
    }
}

/// Seconds that 64 concurrent readers take for the same bytes in requests of the same size.
fn ranged(storage: &Storage, table: &Table, size: u64, bytes: u64) -> f64 {
    use futures::StreamExt as _;
    let files: Vec<(String, u64)> =
        table.data_files().map(|(id, file)| (format!("data/{id}"), file.index_offset)).collect();
    let mut reads = Vec::new();
    let mut left = bytes;
    for (path, end) in &files {
        for start in (0..*end).step_by(size as usize) {
            let length = size.min(end - start).min(left);
            reads.push((path.clone(), start..start + length));
            left -= length;
        }
    }
    let started = Instant::now();
    block_on(async {
        let reads =
            futures::stream::iter(reads.into_iter().filter(|(_, range)| !range.is_empty()).map(|(path, range)| {
                let storage = storage.clone();
                tokio::spawn(async move { storage.get_range(&path, range).await.unwrap().len() })
            }));
        reads.buffer_unordered(64).for_each(|_| async {}).await;
    });
    started.elapsed().as_secs_f64()
}
