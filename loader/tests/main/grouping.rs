//! Small batches may come several at once, and rows of mapped files are looked up by several threads: neither changes what comes.

use std::sync::Arc;

use forebay_loader::{
    Device, Error, HostDevice, Loader, LoaderOptions, Shuffle, Tail, Window,
    device::{ArenaBuffer, GatherPlan, Gathered},
    order::Stop,
};
use forebay_versioning::{Rows, Selection, Table};
use proptest::prelude::*;

use super::support::{Model, columns, folder, host, memory, table};

/// A host device whose loaders look rows up with many threads, and that gathers everything.
#[derive(Debug)]
struct Planning(Arc<HostDevice>);

impl Device for Planning {
    fn name(&self) -> String {
        self.0.name()
    }

    fn concurrency(&self) -> usize {
        2
    }

    fn planners(&self) -> usize {
        7
    }

    fn gather(&self, plan: GatherPlan) -> Result<Vec<Gathered>, Error> {
        self.0.gather(plan)
    }

    fn arena(&self, bytes: usize) -> Result<Box<dyn ArenaBuffer>, Error> {
        self.0.arena(bytes)
    }
}

pub(crate) fn planning() -> Arc<dyn Device> {
    Arc::new(Planning(HostDevice::new(2).unwrap()))
}

/// Columns of fixed length that are mapped where the lake is in a folder.
fn plain() -> Option<Vec<String>> {
    Some(["id", "image", "large", "nothing"].map(str::to_owned).to_vec())
}

/// The rows of a batch, its mask, and the progress with it.
type Plain = (Vec<u64>, Option<Vec<bool>>, (u64, u64));

/// The batches of an epoch, every value compared with the model.
fn batches(model: &Model, loader: &Loader) -> Vec<Plain> {
    let mut all = Vec::new();
    let mut epoch = loader.iter().unwrap();
    while let Some(batch) = epoch.next() {
        let batch = batch.unwrap();
        model.assert_batch(&batch);
        assert_eq!(batch.step, all.len() as u64);
        let size = loader.options().batch_size;
        let parts = batch.rows.len().div_ceil(size) as u64;
        assert_eq!(batch.count, parts.max(1));
        for part in 0..batch.count {
            let rows = part as usize * size..batch.rows.len().min((part as usize + 1) * size);
            let mask = batch.mask.as_ref().map(|mask| mask[rows.clone()].to_vec());
            all.push((batch.rows[rows].to_vec(), mask, epoch.progress_before(batch.count - 1 - part)));
        }
    }
    assert_eq!(epoch.stats().batches, all.len() as u64);
    all
}

fn selection(table: &Table, kind: usize) -> Selection {
    let rows = table.rows();
    let some = match kind {
        0 => Rows::All,
        1 => Rows::Runs([0..rows / 5, rows / 2..rows - 3].into()),
        _ => Rows::List((0..rows).rev().filter(|row| row % 3 > 0).collect()),
    };
    Selection::new(table.clone(), some).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]
    #[test]
    fn what_comes_in_groups_is_what_comes_alone(
        kind in 0_usize..3,
        shuffle in prop::sample::select(vec![
            Shuffle::Off, Shuffle::Global, Shuffle::Windowed(Window { lanes: 6, window: 2, unit_bytes: 900 }),
        ]),
        tail in prop::sample::select(vec![Tail::Short, Tail::Drop, Tail::Pad]),
        world in 1_u32..4,
        batch_size in 1_usize..12,
        group_bytes in 0_u64..40_000,
        edited: bool,
        stored: bool,
        seed: u64,
    ) {
        let (_folder, local) = folder();
        let storage = if stored { memory() } else { local };
        let mut model = Model::random(columns(), 170, seed);
        let lake = model.write(storage.clone(), 3);
        if edited {
            model.edit(&lake, seed);
        }
        let selection = selection(&table(storage), kind);
        for rank in 0..world {
            let options = LoaderOptions {
                columns: plain(), shuffle, tail, world, rank, batch_size, seed, prefetch: 3, ..LoaderOptions::default()
            };
            let alone = Loader::new(selection.clone(), options.clone(), host(2)).unwrap();
            let grouped = LoaderOptions { group_bytes, ..options };
            let grouped = Loader::new(selection.clone(), grouped, planning()).unwrap();
            for _ in 0..2 {
                prop_assert_eq!(batches(&model, &grouped), batches(&model, &alone));
            }
            // In the middle of a group a state is one like any other.
            let all = batches(&model, &alone);
            let (_, _, (epoch, position)) = all[all.len() / 2].clone();
            let state = alone.state(epoch, position);
            alone.resume(&state).unwrap();
            grouped.resume(&state).unwrap();
            prop_assert_eq!(batches(&model, &grouped), batches(&model, &alone));
        }
    }
}

#[test]
fn groups_grow_from_a_first_batch_alone_to_as_large_as_asked_for() {
    let (_folder, storage) = folder();
    Model::random(columns(), 170, 1).write(storage.clone(), 2);
    let options = LoaderOptions { columns: plain(), batch_size: 5, ..LoaderOptions::default() };
    let counts = |options: LoaderOptions| -> Vec<u64> {
        let loader = Loader::new(Selection::all(table(storage.clone())), options, planning()).unwrap();
        loader.iter().unwrap().map(|batch| batch.unwrap().count).collect()
    };
    let batch = 5 * (8 + 60 + 280);
    assert_eq!(counts(LoaderOptions { group_bytes: 10 * batch - 1, ..options.clone() }), [1, 1, 2, 4, 8, 9, 9]);
    assert_eq!(counts(LoaderOptions { group_bytes: batch, ..options.clone() }), [1; 34]);
    // What is of no one length comes alone.
    assert_eq!(counts(LoaderOptions { group_bytes: 1 << 30, columns: None, ..options }), [1; 34]);
}

#[test]
fn rows_of_a_mixture_are_looked_up_by_many_as_by_one() {
    let (_folder, storage) = folder();
    let model = Model::random(columns(), 120, 9);
    model.write(storage.clone(), 3);
    let sources = || (0..3).map(|kind| (selection(&table(storage.clone()), kind), 1.0 + kind as f64)).collect();
    let options =
        LoaderOptions { columns: plain(), shuffle: Shuffle::Global, batch_size: 8, ..LoaderOptions::default() };
    let grouped = LoaderOptions { group_bytes: 9000, ..options.clone() };
    let alone = Loader::mix(sources(), Stop::Last, options, host(2)).unwrap();
    let grouped = Loader::mix(sources(), Stop::Last, grouped, planning()).unwrap();
    assert_eq!(batches(&model, &grouped), batches(&model, &alone));
    let of = |loader: &Loader| -> Vec<u32> {
        loader.iter().unwrap().flat_map(|batch| batch.unwrap().sources.unwrap()).collect()
    };
    assert_eq!(of(&grouped), of(&alone));
}
