//! Collections of garbage: what they take, what they leave, and that stopping them anywhere hurts nobody.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use forebay_storage::{
    Options, Storage,
    testing::{Fault, FaultStore, OpKind, Rule},
};
use forebay_versioning::{At, CompactOptions, Error, GcOptions, GcReport, Lake, MergeOptions, Rows, Selection};

use crate::support::{all, append, block_on, lake, rows, write};

fn memory() -> Storage {
    Storage::open(&format!("memory://{}", uuid::Uuid::new_v4()), &Options::default()).unwrap()
}

fn branch(name: &str) -> At {
    At::Branch(name.into())
}

/// Takes whatever may be taken.
fn strict() -> GcOptions {
    GcOptions::default().with_grace(Duration::ZERO).with_retention(Duration::ZERO)
}

async fn collect(lake: &Lake, options: &GcOptions) -> GcReport {
    // The store's clock has to move on, so that what was written before is older than the collection.
    tokio::time::sleep(Duration::from_millis(20)).await;
    std::thread::sleep(Duration::from_millis(10));
    lake.gc(options, |_| {}).await.unwrap()
}

async fn objects(storage: &Storage) -> BTreeSet<String> {
    let mut paths = BTreeSet::new();
    for folder in ["meta", "data"] {
        paths.extend(storage.list(folder).await.unwrap().into_iter().map(|entry| entry.path));
    }
    paths
}

async fn sound(lake: &Lake) {
    let mut versions: Vec<_> = lake.branches().await.unwrap().into_iter().map(At::Branch).collect();
    versions.extend(lake.tags().await.unwrap().into_iter().map(At::Tag));
    assert_eq!(lake.verify_all(&versions, |_| {}).await.unwrap().faults, []);
}

/// Writes rows and forgets them.
async fn abandon(lake: &Lake) {
    let mut transaction = lake.begin("main").await.unwrap();
    write(&mut transaction, &rows(900..950)).await.unwrap();
}

#[test]
fn a_collection_takes_what_nothing_leads_to_and_nothing_else() {
    block_on(async {
        let storage = memory();
        let lake = lake(storage.clone(), &[0..10, 10..20]).await.unwrap();
        lake.create_tag("v1", &At::default(), "tester").await.unwrap();
        lake.create_branch("exp", &At::default()).await.unwrap();
        let kept = objects(&storage).await;
        append(&lake, "exp", 20..30).await.unwrap();
        lake.delete_branch("exp").await.unwrap();
        abandon(&lake).await;
        let before = objects(&storage).await;

        let young = collect(&lake, &GcOptions::default().with_retention(Duration::ZERO)).await;
        assert_eq!((young.garbage, young.deleted), (0, 0));
        assert!(young.young > 0);
        let retained = collect(&lake, &GcOptions::default().with_grace(Duration::ZERO)).await;
        assert_eq!(retained.deleted, 1, "of the rows that were never committed: {retained:?}");
        let dry = collect(&lake, &strict().dry()).await;
        assert_eq!((dry.epoch, dry.deleted), (0, 0));
        let taken = collect(&lake, &strict()).await;
        assert_eq!((taken.garbage, taken.garbage_bytes), (dry.garbage, dry.garbage_bytes));
        assert_eq!((taken.deleted, taken.epoch), (taken.garbage, 3));
        assert_eq!(objects(&storage).await, kept);
        assert!(before.len() > kept.len());
        // What is gone doesn't count as retained later.
        assert_eq!(collect(&lake, &GcOptions::default()).await.garbage, 0);
        assert_eq!(collect(&lake, &strict()).await.garbage, 0);

        sound(&lake).await;
        assert_eq!(all(&lake, &At::default()).await.unwrap(), rows(0..20));
        assert!(matches!(lake.undelete_branch("exp").await, Err(Error::Collected { .. })));
        append(&lake, "main", 20..25).await.unwrap();
        assert_eq!(all(&lake, &At::default()).await.unwrap(), rows(0..25));
        assert_eq!(lake.log(&At::default(), 100).await.unwrap().len(), 5, "fences are no commits");
    });
}

#[test]
fn a_deleted_branch_comes_back_within_the_retention() {
    block_on(async {
        let lake = lake(memory(), &[0..10]).await.unwrap();
        lake.create_branch("exp", &At::default()).await.unwrap();
        append(&lake, "exp", 10..20).await.unwrap();
        lake.delete_branch("exp").await.unwrap();
        collect(&lake, &GcOptions::default().with_grace(Duration::ZERO)).await;
        lake.undelete_branch("exp").await.unwrap();
        collect(&lake, &strict()).await;
        assert_eq!(all(&lake, &branch("exp")).await.unwrap(), rows(0..20));
        sound(&lake).await;
    });
}

#[test]
fn a_commit_that_is_younger_than_a_pin_keeps_what_it_follows() {
    block_on(async {
        let lake = lake(memory(), &[0..10]).await.unwrap();
        lake.create_branch("exp", &At::default()).await.unwrap();
        append(&lake, "exp", 10..20).await.unwrap();
        std::thread::sleep(Duration::from_millis(10));
        let (_, pin) = lake.pin(&At::default(), Duration::from_secs(600), "a test").await.unwrap();
        std::thread::sleep(Duration::from_millis(10));
        append(&lake, "exp", 20..30).await.unwrap();
        lake.delete_branch("exp").await.unwrap();
        assert_eq!(collect(&lake, &strict()).await.garbage, 0);
        lake.undelete_branch("exp").await.unwrap();
        sound(&lake).await;
        pin.release().await;
        assert_eq!(collect(&lake, &strict()).await.garbage, 0);
        assert_eq!(all(&lake, &branch("exp")).await.unwrap(), rows(0..30));
    });
}

#[test]
fn what_a_stopped_collection_left_in_part_stops_no_other_one() {
    block_on(async {
        for kind in [b"CMIT", b"PAGE"] {
            let storage = memory();
            let lake = lake(storage.clone(), &(0..60).map(|i| i..i + 1).collect::<Vec<_>>()).await.unwrap();
            let kept = objects(&storage).await;
            lake.create_branch("exp", &At::default()).await.unwrap();
            for i in 60..120 {
                append(&lake, "exp", i..i + 1).await.unwrap();
            }
            lake.delete_branch("exp").await.unwrap();
            // The newest commit is there, and what it leads to is not.
            let newest = format!("meta/{}", lake.entries("exp", 1).await.unwrap()[0].commit);
            for path in objects(&storage).await.difference(&kept).filter(|path| **path != newest) {
                if storage.get(path).await.unwrap()[..32].windows(4).any(|found| found == kind) {
                    storage.delete(path).await.unwrap();
                }
            }
            let retained = collect(&lake, &GcOptions::default().with_grace(Duration::ZERO)).await;
            assert!(retained.kept > kept.len() as u64, "{retained:?}");
            collect(&lake, &strict()).await;
            assert_eq!(objects(&storage).await, kept);
            sound(&lake).await;
        }
    });
}

#[test]
fn a_pin_keeps_a_version_that_nothing_else_leads_to() {
    block_on(async {
        let lake = lake(memory(), &[0..10]).await.unwrap();
        lake.create_branch("exp", &At::default()).await.unwrap();
        append(&lake, "exp", 10..20).await.unwrap();
        let (snapshot, pin) = lake.pin(&branch("exp"), Duration::from_secs(600), "a test").await.unwrap();
        lake.delete_branch("exp").await.unwrap();
        let report = collect(&lake, &strict()).await;
        assert_eq!(report.pins, 1);
        assert_eq!(all(&lake, &At::Commit(snapshot.id())).await.unwrap(), rows(0..20));
        pin.release().await;
        collect(&lake, &strict()).await;
        assert!(matches!(all(&lake, &At::Commit(snapshot.id())).await, Err(Error::UnknownCommit { .. })));
        assert!(lake.pin(&At::Commit(snapshot.id()), Duration::from_secs(600), "").await.is_err());
    });
}

#[test]
fn a_pin_is_renewed_and_ends_with_its_lease_when_its_holder_is_gone() {
    block_on(async {
        let storage = memory();
        let lake = lake(storage.clone(), &[0..10]).await.unwrap();
        lake.create_branch("exp", &At::default()).await.unwrap();
        append(&lake, "exp", 10..20).await.unwrap();
        let lease = Duration::from_millis(600);
        let (snapshot, pin) = lake.pin(&branch("exp"), lease, "a test").await.unwrap();
        lake.delete_branch("exp").await.unwrap();
        let written = storage.list("pins").await.unwrap()[0].modified;
        while storage.list("pins").await.unwrap()[0].modified == written {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        drop(pin);
        while collect(&lake, &strict()).await.pins == 1 {}
        assert!(matches!(lake.snapshot(&At::Commit(snapshot.id())).await, Err(Error::UnknownCommit { .. })));
        while !storage.list("pins").await.unwrap().is_empty() {
            collect(&lake, &strict()).await;
        }
    });
}

#[test]
fn a_branch_of_a_transaction_is_unseen_and_goes_with_its_holder() {
    block_on(async {
        let storage = memory();
        let lake = lake(storage.clone(), &[0..10]).await.unwrap();
        let held = lake.scratch(&At::default(), Duration::from_secs(600)).await.unwrap();
        let mut left = Vec::new();
        for rows in [10..20, 20..30] {
            let gone = lake.scratch(&At::default(), Duration::from_millis(1)).await.unwrap();
            append(&lake, gone.branch(), rows).await.unwrap();
            left.push(gone.branch().to_owned());
            drop(gone);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(lake.branches().await.unwrap(), ["main"]);
        let unknown = async |name: &str| matches!(lake.snapshot(&branch(name)).await, Err(Error::UnknownBranch { .. }));
        assert!(unknown(&left[0]).await && !unknown(&left[1]).await);
        collect(&lake, &strict()).await;
        assert!(unknown(&left[1]).await);
        append(&lake, held.branch(), 30..40).await.unwrap();
        lake.merge("main", &branch(held.branch()), &MergeOptions::default()).await.unwrap();
        held.end().await.unwrap();
        assert!(storage.list("pins").await.unwrap().is_empty());
        let expected: Vec<_> = rows(0..10).into_iter().chain(rows(30..40)).collect();
        assert_eq!(all(&lake, &At::default()).await.unwrap(), expected);
        let taken = lake.create_branch(&left[0], &At::default()).await;
        assert!(matches!(taken, Err(Error::InvalidName { .. })), "{taken:?}");
        sound(&lake).await;
    });
}

#[test]
fn a_transaction_that_a_collection_overtakes_is_safe_by_age_or_pin_or_fails() {
    block_on(async {
        let lake = lake(memory(), &[0..10]).await.unwrap();
        let mut old = lake.begin("main").await.unwrap();
        write(&mut old, &rows(10..20)).await.unwrap();
        let (_, pin) = lake.pin(&At::default(), Duration::from_secs(600), "a test").await.unwrap();
        let mut pinned = lake.begin("main").await.unwrap();
        pinned.hold(&pin);
        write(&mut pinned, &rows(20..30)).await.unwrap();
        let mut edit = lake.begin("main").await.unwrap();
        edit.hold(&pin);
        let table = edit.base().table("main").await.unwrap();
        edit.delete(&Selection::new(table, Rows::List([0].into())).unwrap()).unwrap();
        collect(&lake, &strict()).await;
        let error = old.commit("old", "tester").await.unwrap_err();
        assert!(matches!(error, Error::Fenced { epoch: 1, .. }), "{error}");
        pinned.commit("pinned", "tester").await.unwrap();
        edit.commit("edit", "tester").await.unwrap();
        pin.release().await;

        let mut young = lake.begin("main").await.unwrap();
        write(&mut young, &rows(30..40)).await.unwrap();
        collect(&lake, &GcOptions::default()).await;
        young.commit("young", "tester").await.unwrap();
        let expected: Vec<_> = rows(1..10).into_iter().chain(rows(20..40)).collect();
        assert_eq!(all(&lake, &At::default()).await.unwrap(), expected);
        sound(&lake).await;
        collect(&lake, &strict()).await;
        sound(&lake).await;
    });
}

#[test]
fn old_commits_expire_and_what_is_kept_still_merges_and_compares() {
    block_on(async {
        let storage = memory();
        let lake = lake(storage.clone(), &[0..10]).await.unwrap();
        append(&lake, "main", 10..12).await.unwrap();
        let base = lake.snapshot(&At::default()).await.unwrap().id();
        lake.create_branch("exp", &At::default()).await.unwrap();
        append(&lake, "exp", 12..14).await.unwrap();
        // Compacting leaves files to the older commits alone.
        let mut old = Vec::new();
        for ids in [20..22, 22..24] {
            let mut transaction = lake.begin("main").await.unwrap();
            let table = transaction.base().table("main").await.unwrap();
            transaction.compact(&table, CompactOptions::default()).await.unwrap();
            transaction.commit("compact", "tester").await.unwrap();
            old.push(append(&lake, "main", ids).await.unwrap().id());
        }
        let first = old[0];
        let before = objects(&storage).await.len();
        let report = collect(&lake, &strict().expiring()).await;
        assert!(report.expired > 3 && report.deleted > 0, "{report:?}");
        assert!(objects(&storage).await.len() < before);
        sound(&lake).await;
        assert_eq!(lake.log(&At::default(), 100).await.unwrap().len(), 8, "the commits are still there");

        let error = all(&lake, &At::Commit(first)).await.unwrap_err();
        assert!(matches!(error, Error::Expired { commit } if commit == first), "{error}");
        let error = lake.create_branch("old", &At::Commit(first)).await.unwrap_err();
        assert!(matches!(error, Error::Expired { .. }), "{error}");
        assert_eq!(all(&lake, &At::Commit(base)).await.unwrap(), rows(0..12), "the base of both branches is kept");
        let diff = lake.diff(&branch("exp"), &At::default()).await.unwrap();
        assert_eq!((diff[0].rows_added, diff[0].rows_deleted), (4, 2));
        lake.merge("main", &branch("exp"), &MergeOptions::by("tester")).await.unwrap();
        let mut ids: Vec<_> = all(&lake, &At::default()).await.unwrap().iter().map(|row| row.id).collect();
        ids.sort_unstable();
        assert_eq!(ids, (0..14).chain(20..24).collect::<Vec<_>>());
        collect(&lake, &strict().expiring()).await;
        sound(&lake).await;
    });
}

#[test]
fn a_collection_that_stopped_blocks_nobody() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let storage = memory();
        let lake = lake(storage.clone(), &[0..10]).await.unwrap();
        lake.create_tag("v1", &At::default(), "tester").await.unwrap();
        let faults = Arc::new(FaultStore::new(storage.store().unwrap(), 1));
        // It stops when it has fenced the branches.
        faults.add(Rule::new(Fault::StopBefore).on(OpKind::Create).path("verdict"));
        let stopped = Lake::open(Storage::from_store(faults.clone(), "stopped")).await.unwrap();
        assert!(stopped.gc(&strict(), |_| {}).await.is_err());
        // A branch's newest commit is safe at once, for a tag the collection is called off.
        let asked = tokio::time::Instant::now();
        lake.create_branch("exp", &At::default()).await.unwrap();
        assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
        lake.create_branch("from-tag", &At::Tag("v1".into())).await.unwrap();
        assert!(asked.elapsed() < Duration::from_secs(60), "{:?}", asked.elapsed());
        assert_eq!(collect(&lake, &strict()).await.epoch, 2);
        sound(&lake).await;
    });
}

/// Works on branches, and collects in between, until something fails. Gives the steps that were done.
async fn history(storage: &Storage) -> usize {
    let mut done = 0;
    let steps = async {
        let lake = Lake::open(storage.clone()).await?;
        lake.create_branch("exp", &At::default()).await?;
        append(&lake, "exp", 10..12).await?;
        append(&lake, "main", 20..22).await?;
        done = 1;
        let mut transaction = lake.begin("main").await?;
        let table = transaction.base().table("main").await?;
        transaction.compact(&table, CompactOptions::default()).await?;
        transaction.commit("compact", "tester").await?;
        std::thread::sleep(Duration::from_millis(2));
        lake.gc(&strict().expiring(), |_| {}).await?;
        lake.merge("main", &branch("exp"), &MergeOptions::by("tester")).await?;
        done = 2;
        lake.delete_branch("exp").await?;
        std::thread::sleep(Duration::from_millis(2));
        lake.gc(&strict(), |_| {}).await?;
        append(&lake, "main", 30..31).await?;
        done = 3;
        Ok::<_, Error>(())
    };
    let _ = steps.await;
    done
}

#[test]
fn a_process_that_stops_anywhere_in_a_collection_loses_nothing_and_leaves_nothing() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let ids = |rows: Vec<crate::support::Row>| -> Vec<i64> {
        let mut ids: Vec<_> = rows.iter().map(|row| row.id).collect();
        ids.sort_unstable();
        ids
    };
    let states: [Vec<i64>; 4] = [
        (0..10).collect(),
        (0..10).chain(20..22).collect(),
        (0..12).chain(20..22).collect(),
        (0..12).chain(20..22).chain(30..31).collect(),
    ];
    runtime.block_on(async {
        let mut stops = 0;
        for after in [false, true] {
            for operation in 0.. {
                let real = memory();
                let lake = lake(real.clone(), &[0..10]).await.unwrap();
                let faults = Arc::new(FaultStore::new(real.store().unwrap(), 1));
                let storage = Storage::from_store(faults.clone(), "faulty");
                let fault = if after { Fault::StopAfter } else { Fault::StopBefore };
                faults.add(Rule::new(fault).nth(operation));
                let done = history(&storage).await;
                let found = ids(all(&lake, &At::default()).await.unwrap());
                let possible = &states[done..(done + 2).min(4)];
                assert!(possible.contains(&found), "operation {operation}, after {done} steps: {found:?}");
                sound(&lake).await;
                // After grace nothing is left that no version leads to. Pins of the stopped process have run out.
                for pin in real.list("pins").await.unwrap() {
                    real.delete(&pin.path).await.unwrap();
                }
                let report = collect(&lake, &strict()).await;
                assert_eq!(report.young, 0);
                assert_eq!(objects(&real).await.len() as u64, report.kept);
                assert_eq!(ids(all(&lake, &At::default()).await.unwrap()), found);
                sound(&lake).await;
                if !faults.is_stopped() {
                    assert_eq!(done, 3);
                    break;
                }
                stops += 1;
            }
        }
        assert!(stops > 200, "{stops} operations in all");
    });
}
