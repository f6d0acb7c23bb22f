//! What goes wrong is an error that says what and where, in time.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use forebay_loader::{Batch, Error, LoaderOptions, Result, Shuffle, Verify};
use forebay_storage::{
    Storage,
    testing::{Fault, FaultStore, OpKind, Rule},
};
use forebay_versioning::Table;

use super::support::{Model, block_on, columns, folder, loader, memory, table};

fn options() -> LoaderOptions {
    LoaderOptions { batch_size: 8, shuffle: Shuffle::Global, ..LoaderOptions::default() }
}

/// The error of an epoch, and the batches before it.
fn drain(table: &Table, options: LoaderOptions) -> (Vec<Batch>, Option<Error>) {
    let mut batches = loader(table, options).iter().unwrap();
    let mut good = Vec::new();
    let error = batches.by_ref().find_map(|batch: Result<Batch>| batch.map(|batch| good.push(batch)).err());
    assert!(batches.next().is_none(), "an error ends the epoch");
    (good, error)
}

/// A byte of one row of a column, in its file: the path, its place, and the column.
fn byte_of(table: &Table, column: &str, row: u64) -> (String, u64) {
    let at = table.locate(row).unwrap();
    let field = table.schema().column(column).unwrap().field;
    let file = block_on(table.file(at.fragment, field)).unwrap();
    let index = file.index().column(field).unwrap();
    let block = index.block(index.blocks_of(at.row..at.row + 1).start);
    (file.path().to_owned(), block.offset + u64::from(block.stored) / 2)
}

#[test]
fn a_wrong_byte_in_a_local_file_is_an_error_that_names_file_and_column() {
    for column in ["id", "image", "large", "packed", "packed_large", "text", "blob", "points", "matrix"] {
        let (folder, storage) = folder();
        let model = Model::random(columns(), 64, 3);
        model.write(storage.clone(), 2);
        // Found by another handle, so that the one under test opens the file after the damage.
        let (path, at) = byte_of(&table(storage.clone()), column, 40);
        let file = folder.path().join(&path);
        let mut bytes = std::fs::read(&file).unwrap();
        bytes[at as usize] ^= 4;
        std::fs::write(&file, bytes).unwrap();
        let storage = Storage::open(folder.path().to_str().unwrap(), &forebay_storage::Options::default()).unwrap();
        for verify in [Verify::First, Verify::Always] {
            let (good, error) = drain(&table(storage.clone()), LoaderOptions { verify, ..options() });
            let error = error.unwrap_or_else(|| panic!("nobody noticed the byte in '{column}'"));
            assert!(matches!(&error, Error::Read { column: named, .. } if named == column), "{error}");
            assert!(error.to_string().contains(&path) && error.to_string().contains("checksum"), "{error}");
            good.iter().for_each(|batch| model.assert_batch(batch));
        }
    }
}

fn faulty(rule: Rule) -> (Model, FaultStore, Table) {
    let model = Model::random(columns(), 64, 3);
    let inner = memory();
    model.write(inner.clone(), 2);
    let store = FaultStore::new(inner.store().unwrap(), 1);
    let table = table(Storage::from_store(Arc::new(store.clone()), "memory://faulty"));
    store.clear();
    store.add(rule);
    (model, store, table)
}

#[test]
fn a_store_whose_code_panics_ends_the_epoch_and_keeps_nobody_waiting() {
    // A request of the first batch, which the later ones wait for, and one of those.
    for nth in [12, 100] {
        let (model, _, table) = faulty(Rule::new(Fault::Panic).on(OpKind::Get).path("data/").nth(nth));
        let (good, error) = drain(&table, LoaderOptions { stall_timeout: Duration::from_secs(30), ..options() });
        // Which thread made the request is a matter of time: it may have been one that opens a file.
        assert!(matches!(error, Some(Error::Died { .. })), "{error:?}");
        good.iter().for_each(|batch| model.assert_batch(batch));
    }
}

#[test]
fn wrong_bytes_from_a_store_are_an_error_that_names_object_and_column() {
    // The first two reads are the files' indexes; all reads of rows from the 4th or 60th on are damaged.
    for nth in [4, 60] {
        let (model, _, table) = faulty(Rule::new(Fault::Flip(None)).on(OpKind::Get).path("data/").from(nth));
        let (good, error) = drain(&table, options());
        let error = error.unwrap_or_else(|| panic!("nobody noticed the damage to read {nth}"));
        let text = error.to_string();
        assert!(text.contains("data/") && (text.contains("checksum") || text.contains("corrupt")), "{text}");
        good.iter().for_each(|batch| model.assert_batch(batch));
    }
}

#[test]
fn a_store_that_fails_ends_the_epoch_with_its_error() {
    for nth in [0, 1, 5, 40] {
        let (model, _, table) = faulty(Rule::new(Fault::Refuse).on(OpKind::Get).path("data/").from(nth));
        let (good, error) = drain(&table, options());
        let text = error.unwrap_or_else(|| panic!("nobody noticed failure {nth}")).to_string();
        assert!(text.contains("data/"), "{text}");
        good.iter().for_each(|batch| model.assert_batch(batch));
    }
}

#[test]
fn a_store_that_stalls_ends_the_epoch_in_time_and_names_the_requests() {
    for nth in [0, 10] {
        let stall = Rule::new(Fault::Delay(Duration::from_secs(600))).on(OpKind::Get).path("data/").from(nth);
        let (_, _, table) = faulty(stall);
        let started = Instant::now();
        let (_, error) = drain(&table, LoaderOptions { stall_timeout: Duration::from_millis(300), ..options() });
        assert!(started.elapsed() < Duration::from_secs(30));
        match error {
            Some(Error::Stalled { waiting, .. }) => assert!(waiting[0].contains("data/"), "{waiting:?}"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn dropping_an_epoch_that_waits_for_a_stalled_store_does_not_wait() {
    for nth in [0, 10] {
        let stall = Rule::new(Fault::Delay(Duration::from_secs(600))).on(OpKind::Get).path("data/").from(nth);
        let (_, _, table) = faulty(stall);
        let mut batches = loader(&table, options()).iter().unwrap();
        assert!(matches!(batches.next_within(Duration::from_millis(100)), Ok(forebay_loader::Next::Pending)));
        let started = Instant::now();
        drop(batches);
        assert!(started.elapsed() < Duration::from_secs(5));
    }
}

#[test]
fn a_file_that_vanished_is_named() {
    let (folder, storage) = folder();
    Model::random(columns(), 64, 3).write(storage.clone(), 1);
    let (path, _) = byte_of(&table(storage), "id", 40);
    std::fs::remove_file(folder.path().join(&path)).unwrap();
    let storage = Storage::open(folder.path().to_str().unwrap(), &forebay_storage::Options::default()).unwrap();
    let (_, error) = drain(&table(storage), options());
    assert!(error.unwrap().to_string().contains(&path));
}
