//! Compares a local writer with one plain file written and synced: `cargo run --release --example write_speed -- FOLDER [GB]`.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::io::Write;
use std::time::Instant;

use forebay_storage::{Options, Storage};

fn main() {
    let mut args = std::env::args().skip(1);
    let folder = args.next().unwrap();
    let bytes: u64 = args.next().map_or(3, |n| n.parse().unwrap()) << 30;
    let storage = Storage::open(&folder, &Options::new()).unwrap();
    std::fs::create_dir_all(&folder).unwrap();
    let chunk: Vec<u8> = (0..8 << 20).map(|i: u32| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let gb = |start: Instant| bytes as f64 / 1e9 / start.elapsed().as_secs_f64();
    for _ in 0..3 {
        let start = Instant::now();
        let mut file = std::fs::File::create(format!("{folder}/plain")).unwrap();
        for _ in 0..bytes / chunk.len() as u64 {
            file.write_all(&chunk).unwrap();
        }
        let written = start.elapsed();
        file.sync_all().unwrap();
        let plain = gb(start);
        drop(file);
        std::fs::remove_file(format!("{folder}/plain")).unwrap();
        let start = Instant::now();
        let mut writer = storage.writer("data/x").unwrap();
        for _ in 0..bytes / chunk.len() as u64 {
            writer.write_all(&chunk).unwrap();
        }
        let wrote = start.elapsed();
        writer.finish().unwrap();
        let ours = gb(start);
        std::fs::remove_file(format!("{folder}/data/x")).unwrap();
        println!(
            "plain {plain:.2} GB/s (write {written:.2?}), writer {ours:.2} GB/s (write {wrote:.2?}), ratio {:.2}",
            ours / plain
        );
    }
}
