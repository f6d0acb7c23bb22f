//! How well orders mix: distinct classes in a batch of class-sorted data, beside a uniform permutation. One JSON object a line.
//!
//! ```text
//! cargo run --release -p forebay-loader --example order_quality
//! ```
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::collections::HashSet;

use forebay_loader::order::{Order, Shuffle, Window};

const CLASSES: u64 = 1_000;
const BATCH: u64 = 256;
/// Batches that are looked at, spread over the epoch.
const BATCHES: u64 = 500;

/// The mean number of distinct classes in a batch.
fn distinct(order: &Order) -> f64 {
    let rows = order.rows();
    let all = rows / BATCH;
    let looked = BATCHES.min(all);
    let mut sum = 0;
    for number in 0..looked {
        let batch = number * all / looked;
        let classes: HashSet<u64> = (batch * BATCH..(batch + 1) * BATCH)
            .map(|position| order.index(position).unwrap() * CLASSES / rows)
            .collect();
        sum += classes.len();
    }
    sum as f64 / looked as f64
}

fn main() {
    let windows = [
        ("default window", Window::default(), 0.95),
        ("a quarter of it", Window { window: 6, ..Window::default() }, 0.0),
        ("four times it", Window { window: 96, ..Window::default() }, 0.0),
    ];
    for (data, rows, row_bytes) in
        [("ImageNet", 1_281_167, 150_536), ("a tenth of it", 128_116, 150_536), ("rows of 12 KiB", 4_000_000, 12_288)]
    {
        let mean =
            |shuffle| (0..3).map(|epoch| distinct(&Order::new(rows, row_bytes, shuffle, 7, epoch))).sum::<f64>() / 3.0;
        let uniform = mean(Shuffle::Global);
        for (name, window, bar) in windows {
            let value = mean(Shuffle::Windowed(window));
            // Bars are for the defaults on data of the shape that they were chosen for.
            let bar = if bar > 0.0 && data != "rows of 12 KiB" { bar.to_string() } else { "null".to_owned() };
            println!(
                r#"{{"case": "{data}, {name}", "value": {value}, "unit": "distinct classes", "floor": {uniform}, "bar": {bar}, "more": true}}"#
            );
        }
    }
}
