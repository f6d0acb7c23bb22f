//! Commits copied between lakes.

use std::{sync::Arc, time::Duration};

use forebay_storage::{
    Options, Storage,
    testing::{Fault, FaultStore, OpKind, Operation, Rule},
};
use forebay_versioning::{At, CompactOptions, CopyReport, Error, GcOptions, Lake, MergeOptions, Rows, Selection};

use crate::support::{all, append, block_on, lake, rows, temporary};

fn memory() -> Storage {
    Storage::open(&format!("memory://{}", uuid::Uuid::new_v4()), &Options::default()).unwrap()
}

fn branch(name: &str) -> At {
    At::Branch(name.into())
}

async fn push(from: &Lake, to: &Lake, name: &str) -> forebay_versioning::Result<CopyReport> {
    Ok(from.push(name, to, name, |_| {}).await?.1)
}

/// A lake with deleted and updated rows, a compaction, a branch and a tag.
async fn rich(storage: Storage) -> Lake {
    let lake = lake(storage, &[0..10, 10..20]).await.unwrap();
    let mut transaction = lake.begin("main").await.unwrap();
    let table = transaction.base().table("main").await.unwrap();
    transaction.delete(&Selection::new(table.clone(), Rows::List([3].into())).unwrap()).unwrap();
    transaction.commit("delete", "tester").await.unwrap();
    let mut transaction = lake.begin("main").await.unwrap();
    let table = transaction.base().table("main").await.unwrap();
    transaction.compact(&table, CompactOptions::default()).await.unwrap();
    transaction.commit("compact", "tester").await.unwrap();
    lake.create_tag("v1", &At::default(), "tester").await.unwrap();
    lake.create_branch("exp", &At::default()).await.unwrap();
    append(&lake, "exp", 20..25).await.unwrap();
    lake
}

async fn same(one: &Lake, other: &Lake, at: &At) {
    assert_eq!(one.snapshot(at).await.unwrap().id(), other.snapshot(at).await.unwrap().id());
    assert_eq!(all(one, at).await.unwrap(), all(other, at).await.unwrap());
    assert_eq!(other.log(at, 100).await.unwrap(), one.log(at, 100).await.unwrap());
    assert_eq!(other.verify(at, |_| {}).await.unwrap().faults, []);
}

#[test]
fn a_clone_has_every_branch_and_tag_and_its_history() {
    block_on(async {
        let original = rich(memory()).await;
        let (_folder, storage) = temporary();
        let (copy, report) = original.clone_to(storage.clone(), |_| {}).await.unwrap();
        assert_eq!((report.objects, report.bytes), (report.total_objects, report.total_bytes));
        assert_eq!(report.commits, 7);
        assert_eq!(copy.branches().await.unwrap(), ["exp", "main"]);
        for at in [At::default(), branch("exp"), At::Tag("v1".into())] {
            same(&original, &copy, &at).await;
        }
        assert_ne!(copy.id(), original.id());
        assert!(matches!(original.clone_to(storage, |_| {}).await, Err(Error::LakeExists { .. })));
    });
}

#[test]
fn a_push_copies_what_is_missing_and_nothing_else() {
    block_on(async {
        let original = rich(memory()).await;
        let (copy, _) = original.clone_to(memory(), |_| {}).await.unwrap();
        assert_eq!(push(&original, &copy, "main").await.unwrap(), CopyReport::default());
        append(&original, "main", 30..31).await.unwrap();
        let report = push(&original, &copy, "main").await.unwrap();
        assert_eq!((report.commits, report.objects), (1, 2), "a commit and its data file: {report:?}");
        same(&original, &copy, &At::default()).await;
        // Work on both, and a merge of what was pulled.
        append(&copy, "main", 40..42).await.unwrap();
        append(&original, "main", 50..52).await.unwrap();
        let error = push(&original, &copy, "main").await.unwrap_err();
        assert!(matches!(error, Error::NotFastForward { .. }), "{error}");
        copy.push("main", &original, "theirs", |_| {}).await.unwrap();
        original.merge("main", &branch("theirs"), &MergeOptions::by("tester")).await.unwrap();
        push(&original, &copy, "main").await.unwrap();
        same(&original, &copy, &At::default()).await;
        // A deleted branch starts anew.
        copy.delete_branch("exp").await.unwrap();
        push(&original, &copy, "exp").await.unwrap();
        same(&original, &copy, &branch("exp")).await;
    });
}

#[test]
fn a_push_that_stops_anywhere_changes_nothing_or_all_and_is_run_again() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let mut stops = 0;
        for after in [false, true] {
            for operation in 0.. {
                let original = lake(memory(), &[0..10]).await.unwrap();
                let real = memory();
                let (copy, _) = original.clone_to(real.clone(), |_| {}).await.unwrap();
                append(&original, "main", 10..20).await.unwrap();
                append(&original, "main", 20..30).await.unwrap();
                let faults = Arc::new(FaultStore::new(real.store().unwrap(), 1));
                let fault = if after { Fault::StopAfter } else { Fault::StopBefore };
                faults.add(Rule::new(fault).nth(operation));
                let target = Lake::open(Storage::from_store(faults.clone(), "faulty")).await;
                let pushed = match &target {
                    Ok(target) => push(&original, target, "main").await.is_ok(),
                    Err(_) => false,
                };
                let found = all(&copy, &At::default()).await.unwrap().len();
                assert!(found == 30 || (!pushed && found == 10), "operation {operation}: {found} rows");
                // What is left of it is used or collected.
                let put = |o: &&Operation| o.kind == OpKind::Put && o.path.starts_with("data/");
                let copied = faults.operations().iter().filter(put).count();
                let report = push(&original, &copy, "main").await.unwrap();
                if copied > 0 && after {
                    assert!(report.objects < 4, "operation {operation}: {report:?}");
                }
                same(&original, &copy, &At::default()).await;
                for pin in real.list("pins").await.unwrap() {
                    real.delete(&pin.path).await.unwrap();
                }
                std::thread::sleep(Duration::from_millis(2));
                let strict = GcOptions::default().with_grace(Duration::ZERO).with_retention(Duration::ZERO);
                assert_eq!(copy.gc(&strict, |_| {}).await.unwrap().garbage, 0);
                if !faults.is_stopped() {
                    assert!(pushed);
                    break;
                }
                stops += 1;
            }
        }
        assert!(stops > 30, "{stops} operations in all");
    });
}

#[test]
fn a_damaged_file_is_not_copied() {
    block_on(async {
        let real = memory();
        let original = lake(real.clone(), &[0..10]).await.unwrap();
        let faults = Arc::new(FaultStore::new(real.store().unwrap(), 1));
        faults.add(Rule::new(Fault::Flip(Some(99))).on(OpKind::Get).path("data/").nth(1));
        let flipped = Lake::open(Storage::from_store(faults, "faulty")).await.unwrap();
        let target = memory();
        let error = flipped.clone_to(target.clone(), |_| {}).await.unwrap_err();
        assert!(matches!(error, Error::Object { .. }), "{error}");
        assert!(Lake::open(target.clone()).await.is_err());
        let (copy, _) = original.clone_to(target, |_| {}).await.unwrap();
        assert_eq!(all(&copy, &At::default()).await.unwrap(), rows(0..10));
    });
}
