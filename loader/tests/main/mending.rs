//! Damaged rows are masked or replaced, told, and counted; all others come as if nothing had happened.

use std::{collections::BTreeSet, sync::Arc};

use forebay_loader::{
    Batch, Error, Fault, FaultPolicy, Loader, LoaderOptions, OnFault, Remedy, Shuffle, Stats, Tail, Verify,
};
use forebay_storage::{
    Storage,
    object_store::{ObjectStoreExt as _, path::Path},
    testing::{Fault as StoreFault, FaultStore, OpKind, Rule},
};
use forebay_versioning::{Selection, Table};

use super::support::{Model, block_on, columns, folder, host, memory, table};

const ROWS: usize = 96;

/// A lake whose bytes can be damaged, on disk or in memory.
enum Place {
    Disk(tempfile::TempDir),
    Memory(Storage),
}

impl Place {
    fn new(remote: bool) -> (Self, Model) {
        let model = Model::random(columns(), ROWS, 11);
        let (folder, local) = folder();
        let place = if remote { Self::Memory(memory()) } else { Self::Disk(folder) };
        model.write(if let Self::Memory(storage) = &place { storage.clone() } else { local }, 2);
        (place, model)
    }

    /// The table, with no file open yet.
    fn table(&self) -> Table {
        match self {
            Self::Disk(folder) => {
                let url = folder.path().to_str().unwrap();
                table(Storage::open(url, &forebay_storage::Options::default()).unwrap())
            }
            Self::Memory(storage) => table(storage.clone()),
        }
    }

    fn change(&self, path: &str, at: impl FnOnce(usize) -> usize) {
        match self {
            Self::Disk(folder) => {
                let file = folder.path().join(path);
                let mut bytes = std::fs::read(&file).unwrap();
                let at = at(bytes.len());
                bytes[at] ^= 4;
                std::fs::write(&file, bytes).unwrap();
            }
            Self::Memory(storage) => {
                let (store, path) = (storage.store().unwrap(), Path::from(path));
                let mut bytes = block_on(async { store.get(&path).await.unwrap().bytes().await.unwrap() }).to_vec();
                let at = at(bytes.len());
                bytes[at] ^= 4;
                block_on(store.put(&path, bytes.into())).unwrap();
            }
        }
    }

    /// Damages the value of a row in a column; gives the rows whose values are in the same block.
    fn damage(&self, column: &str, row: u64) -> BTreeSet<u64> {
        let table = self.table();
        let at = table.locate(row).unwrap();
        let field = table.schema().column(column).unwrap().field;
        let file = block_on(table.file(at.fragment, field)).unwrap();
        let index = file.index().column(field).unwrap();
        let blocks = index.blocks_of(at.row..at.row + 1);
        let block = index.block(blocks.start);
        let rows = if blocks.len() == 1 { block.row_range() } else { at.row..at.row + 1 };
        self.change(file.path(), |_| (block.offset + u64::from(block.stored) / 2) as usize);
        let first = table.first_row(at.fragment);
        rows.map(|row| first + u64::from(row)).collect()
    }
}

fn options(on_fault: OnFault) -> LoaderOptions {
    LoaderOptions {
        batch_size: 7,
        shuffle: Shuffle::Global,
        seed: 5,
        faults: FaultPolicy { on_fault, ..FaultPolicy::default() },
        ..LoaderOptions::default()
    }
}

fn run(table: &Table, options: LoaderOptions) -> (Vec<Batch>, Vec<Fault>, Stats, Option<Error>) {
    let loader = Loader::new(Selection::all(table.clone()), options, host(2)).unwrap();
    let mut batches = loader.iter().unwrap();
    let (mut good, mut error) = (Vec::new(), None);
    for batch in batches.by_ref() {
        match batch {
            Ok(batch) => good.push(batch),
            Err(failed) => error = Some(failed),
        }
    }
    (good, batches.faults(), batches.stats(), error)
}

#[test]
fn skipped_rows_are_masked_and_named_and_all_others_come_unchanged() {
    for remote in [false, true] {
        for column in ["id", "image", "large", "packed", "packed_large", "text", "blob", "points", "matrix"] {
            let (place, model) = Place::new(remote);
            let bad = place.damage(column, 40);
            let table = place.table();
            let (batches, faults, stats, error) = run(&table, options(OnFault::Skip));
            assert!(error.is_none(), "{error:?}");
            let mut masked = BTreeSet::new();
            for batch in &batches {
                model.assert_batch(batch);
                let mask = batch.mask.as_ref().unwrap();
                masked.extend(batch.rows.iter().zip(mask).filter(|(_, counts)| !**counts).map(|(row, _)| *row));
            }
            assert_eq!(masked, bad, "{column}");
            assert_eq!(batches.iter().map(|batch| batch.rows.len()).sum::<usize>(), ROWS);
            assert_eq!(stats.faults as usize, bad.len());
            assert_eq!(faults.iter().map(|fault| fault.row).collect::<BTreeSet<_>>(), bad);
            for fault in &faults {
                assert_eq!((fault.column.as_str(), fault.remedy), (column, Remedy::Masked));
                assert_eq!(fault.commit, table.snapshot().id().to_string());
                assert!(fault.cause.contains("data/") && fault.cause.contains("checksum"), "{fault}");
            }
            assert!(remote || stats.refetched <= 1 + bad.len() as u64);
        }
    }
}

#[test]
fn a_substitute_depends_on_the_position_alone() {
    for remote in [false, true] {
        let (place, model) = Place::new(remote);
        let bad = place.damage("packed", 40);
        let table = place.table();
        let mut by_world = Vec::new();
        for world in [1, 3, 8] {
            let mut rows = vec![0; ROWS];
            for rank in 0..world {
                let options = LoaderOptions { rank, world, tail: Tail::Short, ..options(OnFault::Substitute) };
                let (batches, faults, _, error) = run(&table, options);
                assert!(error.is_none(), "{error:?}");
                for batch in &batches {
                    assert!(batch.mask.is_none());
                    model.assert_batch(batch);
                    batch.positions.iter().zip(&batch.rows).for_each(|(position, row)| rows[*position as usize] = *row);
                }
                for fault in faults {
                    assert!(bad.contains(&fault.row));
                    assert_eq!(fault.remedy, Remedy::Replaced { by: rows[fault.position as usize] });
                }
            }
            assert!(rows.iter().all(|row| !bad.contains(row)));
            by_world.push(rows);
        }
        assert_eq!(by_world[0], by_world[1]);
        assert_eq!(by_world[0], by_world[2]);
    }
}

#[test]
fn a_file_whose_index_is_damaged_masks_its_rows_and_no_others() {
    for remote in [false, true] {
        let (place, model) = Place::new(remote);
        let path = {
            let table = place.table();
            let file = block_on(table.file(0, table.schema().columns[0].field)).unwrap();
            file.path().to_owned()
        };
        // The index lies before the last 64 bytes.
        place.change(&path, |length| length - 100);
        let table = place.table();
        let (batches, faults, _, error) = run(&table, options(OnFault::Skip));
        assert!(error.is_none(), "{error:?}");
        batches.iter().for_each(|batch| model.assert_batch(batch));
        let lost = table.first_row(1);
        assert_eq!(faults.iter().map(|fault| fault.row).collect::<BTreeSet<_>>(), (0..lost).collect());
        let (_, _, _, error) = run(&table, options(OnFault::Fail));
        assert!(error.unwrap().to_string().contains(&path));
    }
}

#[test]
fn one_fault_more_than_allowed_ends_the_epoch_with_an_error_that_names_it() {
    let (place, _) = Place::new(false);
    let bad = place.damage("image", 40).len() as u64;
    let table = place.table();
    let with = |max_faults, max_rate| {
        let faults = FaultPolicy { on_fault: OnFault::Skip, max_faults, max_rate };
        run(&table, LoaderOptions { faults, ..options(OnFault::Skip) }).3
    };
    assert!(with(bad, 1.0).is_none());
    let Some(Error::TooManyFaults { faults, allowed, last }) = with(bad - 1, 1.0) else { panic!("nobody minded") };
    assert_eq!((faults, allowed, last.column.as_str()), (bad, bad - 1, "image"));
    let rate = bad as f64 / ROWS as f64;
    assert!(with(1000, rate + 0.001).is_none());
    assert!(matches!(with(1000, rate - 0.011), Some(Error::TooManyFaults { .. })));
}

fn faulty(rule: Rule) -> (Model, Table) {
    let model = Model::random(columns(), ROWS, 3);
    let inner = memory();
    model.write(inner.clone(), 2);
    let store = FaultStore::new(inner.store().unwrap(), 1);
    let table = table(Storage::from_store(Arc::new(store.clone()), "memory://faulty"));
    store.clear();
    store.add(rule);
    (model, table)
}

#[test]
fn a_block_that_is_damaged_on_its_way_is_asked_for_again_and_no_fault() {
    for nth in [4, 12, 60] {
        let (model, table) = faulty(Rule::new(StoreFault::Flip(None)).on(OpKind::Get).path("data/").nth(nth));
        let (batches, faults, stats, error) = run(&table, options(OnFault::Fail));
        assert!(error.is_none(), "{error:?}");
        batches.iter().for_each(|batch| model.assert_batch(batch));
        assert_eq!((faults.len(), stats.refetched), (0, 1));
    }
}

#[test]
fn a_store_that_fails_is_never_taken_for_damaged_rows() {
    let (_, table) = faulty(Rule::new(StoreFault::Refuse).on(OpKind::Get).path("data/").from(9));
    for on_fault in [OnFault::Skip, OnFault::Substitute] {
        let (_, faults, _, error) = run(&table, options(on_fault));
        assert!(!error.unwrap().is_of_row());
        assert!(faults.is_empty());
    }
}

#[test]
fn a_file_that_vanished_is_a_fault_of_its_rows() {
    let (place, model) = Place::new(false);
    let Place::Disk(folder) = &place else { unreachable!() };
    let table = place.table();
    let path = block_on(table.file(1, table.schema().columns[0].field)).unwrap().path().to_owned();
    std::fs::remove_file(folder.path().join(path)).unwrap();
    let (batches, faults, _, error) = run(&place.table(), options(OnFault::Skip));
    assert!(error.is_none(), "{error:?}");
    batches.iter().for_each(|batch| model.assert_batch(batch));
    let lost = table.first_row(1)..table.first_row(2);
    assert_eq!(faults.iter().map(|fault| fault.row).collect::<BTreeSet<_>>(), lost.collect());
}

#[test]
fn unchecked_maps_have_no_faults_to_find() {
    let (place, _) = Place::new(false);
    place.damage("image", 40);
    let columns = Some(vec!["image".to_owned()]);
    let options = LoaderOptions { verify: Verify::Never, columns, ..options(OnFault::Skip) };
    let (batches, faults, _, error) = run(&place.table(), options);
    assert!(error.is_none() && faults.is_empty());
    assert!(batches.iter().all(|batch| batch.mask.as_ref().unwrap().iter().all(|counts| *counts)));
}
