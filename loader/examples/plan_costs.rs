//! What it costs to find rows of mapped files, without anybody who gathers them.
//!
//! ```text
//! cargo run --release -p forebay-loader --example plan_costs -- FOLDER [ROW_BYTES [GIBIBYTES]]
//! ```
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::{sync::Arc, time::Instant};

use forebay_format::{Column, ColumnSlice, DType, Dim, Schema, Values};
use forebay_loader::{
    Device, HostDevice, Loader, LoaderOptions, Shuffle,
    device::{ArenaBuffer, Buffer, DeviceBuffer, GatherPlan, Gathered},
};
use forebay_storage::{Options, Storage};
use forebay_versioning::{At, Lake, Selection};

/// Takes plans and gathers nothing.
#[derive(Debug)]
struct Nowhere(Arc<HostDevice>, usize);

#[derive(Debug)]
struct Nothing(usize);

impl DeviceBuffer for Nothing {
    fn len(&self) -> usize {
        self.0
    }
}

impl Device for Nowhere {
    fn name(&self) -> String {
        "nowhere".to_owned()
    }

    fn concurrency(&self) -> usize {
        2
    }

    fn planners(&self) -> usize {
        self.1
    }

    fn gather(&self, plan: GatherPlan) -> Result<Vec<Gathered>, forebay_loader::Error> {
        let buffer =
            |bytes| Gathered { values: Buffer::Device(Box::new(Nothing(bytes))), offsets: None, validity: None };
        Ok(plan.columns.iter().map(|column| buffer(column.bytes())).collect())
    }

    fn arena(&self, bytes: usize) -> Result<Box<dyn ArenaBuffer>, forebay_loader::Error> {
        self.0.arena(bytes)
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |place: usize, other: usize| arguments.get(place).map_or(other, |text| text.parse().unwrap());
    let (row_bytes, gibibytes) = (number(1, 1024), number(2, 1));
    let rows = (gibibytes << 30) / row_bytes;
    let folder = format!("{}/plans-{row_bytes}-{rows}", arguments[0]);
    let storage = Storage::open(&folder, &Options::default()).unwrap();
    let runtime = forebay_storage::runtime().unwrap();
    if !std::path::Path::new(&folder).exists() {
        let columns = [("image", DType::U8, vec![Dim::Fixed(row_bytes as u32)]), ("id", DType::I64, vec![])];
        let columns = columns.map(|(name, dtype, shape)| Column::new(name, dtype, shape).unwrap());
        let lake = runtime.block_on(Lake::create(storage.clone())).unwrap();
        let mut transaction = runtime.block_on(lake.begin("main")).unwrap();
        transaction.create_table("main", Schema::new(columns.to_vec()).unwrap()).unwrap();
        let mut writer = runtime.block_on(transaction.writer("main")).unwrap();
        let step = (32 << 20) / row_bytes;
        for start in (0..rows).step_by(step) {
            let count = step.min(rows - start);
            let (values, ids) = (vec![7; count * row_bytes], vec![1; count * 8]);
            let column = |bytes| ColumnSlice { rows: count, values: Values::Fixed(bytes), validity: None };
            writer.push(&[column(&values), column(&ids)]).unwrap();
        }
        transaction.append(writer.finish().unwrap());
        runtime.block_on(transaction.commit("rows", "bench")).unwrap();
    }
    let (_, snapshot) = runtime.block_on(Lake::open_at(storage, &At::Branch("main".into()))).unwrap();
    let table = runtime.block_on(snapshot.table("main")).unwrap();
    for (planners, group) in [(1, 0), (2, 0), (1, 16 << 20), (2, 16 << 20)] {
        let options = LoaderOptions {
            batch_size: 256,
            shuffle: Shuffle::Global,
            group_bytes: group,
            prefetch: 2,
            ..LoaderOptions::default()
        };
        let device = Arc::new(Nowhere(HostDevice::new(1).unwrap(), planners));
        let loader = Loader::new(Selection::all(table.clone()), options, device).unwrap();
        for epoch in 0..3 {
            loader.set_epoch(epoch);
            let started = Instant::now();
            let rows: usize = loader.iter().unwrap().map(|batch| batch.unwrap().rows.len()).sum();
            let nanoseconds = started.elapsed().as_nanos() as f64 / rows as f64;
            println!("{planners} planners, groups of {group} bytes, epoch {epoch}: {nanoseconds:.1} ns a row");
        }
    }
}
