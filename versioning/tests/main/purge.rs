//! Rows erased from all history.

use std::{sync::Arc, time::Duration};

use forebay_format::{ColumnData, OwnedValues};
use forebay_storage::{
    Options, Storage,
    testing::{Fault, FaultStore, OpKind, Rule},
};
use forebay_versioning::{
    At, CompactOptions, Error, GcOptions, Lake, MergeOptions, PurgeReport, Rows, Selection, Transaction,
};

use crate::support::{Row, all, append, block_on, lake};

fn memory() -> Storage {
    Storage::open(&format!("memory://{}", uuid::Uuid::new_v4()), &Options::default()).unwrap()
}

fn branch(name: &str) -> At {
    At::Branch(name.into())
}

/// Rows of a version by their ids.
async fn select(lake: &Lake, at: &At, ids: &[i64]) -> Selection {
    let table = lake.snapshot(at).await.unwrap().table("main").await.unwrap();
    let found = all(lake, at).await.unwrap();
    let numbers: Vec<u64> = (0..).zip(&found).filter(|(_, row)| ids.contains(&row.id)).map(|(n, _)| n).collect();
    Selection::new(table, Rows::List(numbers.into())).unwrap()
}

async fn update(lake: &Lake, name: &str, id: i64, text: &str) {
    let mut transaction = lake.begin(name).await.unwrap();
    prepare(&mut transaction, id, text).await;
    transaction.commit("update", "tester").await.unwrap();
}

/// Gives a row of a transaction's base another text.
async fn prepare(transaction: &mut Transaction, id: i64, text: &str) {
    let base = transaction.base();
    let rows = select(base.lake(), &At::Commit(base.id()), &[id]).await;
    let values = OwnedValues::Ragged { offsets: vec![0, text.len() as u64], shapes: vec![], bytes: text.into() };
    let text = ColumnData { rows: 1, values, validity: None };
    transaction.update(&rows, &[("text", text.as_slice())]).await.unwrap();
}

/// Lets the store's clock move on, so that what was written before is older than what comes.
fn tick() {
    std::thread::sleep(Duration::from_millis(5));
}

async fn compact(lake: &Lake, name: &str) {
    let mut transaction = lake.begin(name).await.unwrap();
    let table = transaction.base().table("main").await.unwrap();
    transaction.compact(&table, CompactOptions::default()).await.unwrap();
    transaction.commit("compact", "tester").await.unwrap();
}

/// A lake in which row 7 went through an update, a branch and a compaction, and whose text says `SECRET`.
async fn secretive(storage: Storage) -> Lake {
    let lake = lake(storage, &[0..10, 10..20]).await.unwrap();
    update(&lake, "main", 7, "SECRET one").await;
    lake.create_tag("v1", &At::default(), "tester").await.unwrap();
    lake.create_branch("exp", &At::default()).await.unwrap();
    update(&lake, "exp", 7, "SECRET two").await;
    compact(&lake, "exp").await;
    append(&lake, "exp", 20..25).await.unwrap();
    lake.create_branch("gone", &branch("exp")).await.unwrap();
    update(&lake, "gone", 7, "SECRET three").await;
    lake.delete_branch("gone").await.unwrap();
    lake
}

async fn secrets(storage: &Storage) -> usize {
    let mut found = 0;
    for entry in storage.list("").await.unwrap() {
        let bytes = storage.get(&entry.path).await.unwrap();
        found += bytes.windows(6).filter(|window| window == b"SECRET").count();
    }
    found
}

fn ids(rows: &[Row]) -> Vec<i64> {
    let mut ids: Vec<_> = rows.iter().map(|row| row.id).collect();
    ids.sort_unstable();
    ids
}

fn without(ids: std::ops::Range<i64>, gone: i64) -> Vec<i64> {
    ids.filter(|id| *id != gone).collect()
}

async fn sound(lake: &Lake) {
    let mut versions: Vec<_> = lake.branches().await.unwrap().into_iter().map(At::Branch).collect();
    versions.extend(lake.tags().await.unwrap().into_iter().map(At::Tag));
    assert_eq!(lake.verify_all(&versions, |_| {}).await.unwrap().faults, []);
}

#[test]
fn a_purged_row_is_gone_from_every_version_and_every_byte() {
    block_on(async {
        let storage = memory();
        let lake = secretive(storage.clone()).await;
        let log = lake.log(&branch("exp"), 100).await.unwrap();
        assert!(secrets(&storage).await >= 3);
        let before = all(&lake, &branch("exp")).await.unwrap();
        let chosen = select(&lake, &At::default(), &[7]).await;
        let report = lake.purge(&chosen, "Ada", "a request", |_| {}).await.unwrap();
        assert_eq!(report.rows, 1);
        assert!(report.files >= 4 && report.fragments >= 2, "{report:?}");
        assert_eq!(secrets(&storage).await, 0);

        for lake in [lake.clone(), Lake::open(storage.clone()).await.unwrap()] {
            for (at, end) in [(At::default(), 20), (At::Tag("v1".into()), 20), (branch("exp"), 25)] {
                assert_eq!(ids(&all(&lake, &at).await.unwrap()), without(0..end, 7), "{at}");
            }
            assert_eq!(lake.log(&branch("exp"), 100).await.unwrap(), log, "commits stay as they are");
            for commit in &log[..log.len() - 2] {
                let rows = all(&lake, &At::Commit(commit.id)).await.unwrap();
                assert!(rows.iter().all(|row| row.id != 7), "commit {}", commit.id);
            }
            let after = all(&lake, &branch("exp")).await.unwrap();
            assert!(after.iter().all(|row| before.contains(row)), "other rows stay as they were");
            sound(&lake).await;
        }
        let records = lake.purges().await.unwrap();
        assert_eq!((records[0].author.as_str(), records[0].reason.as_str()), ("Ada", "a request"));
        assert_eq!(records[0].rows, 1);
        // The branch comes back without the row, and everything goes on.
        lake.undelete_branch("gone").await.unwrap();
        assert_eq!(ids(&all(&lake, &branch("gone")).await.unwrap()), without(0..25, 7));
        lake.merge("main", &branch("exp"), &MergeOptions::by("tester")).await.unwrap();
        compact(&lake, "main").await;
        assert_eq!(ids(&all(&lake, &At::default()).await.unwrap()), without(0..25, 7));
        sound(&lake).await;
        // And again, another row.
        let chosen = select(&lake, &At::default(), &[3]).await;
        lake.purge(&chosen, "Ada", "another request", |_| {}).await.unwrap();
        let left = all(&lake, &At::Tag("v1".into())).await.unwrap();
        assert_eq!(ids(&left), without(0..20, 7).into_iter().filter(|id| *id != 3).collect::<Vec<_>>());
        sound(&lake).await;
        assert_eq!(secrets(&storage).await, 0);
    });
}

#[test]
fn writers_and_readers_that_began_before_a_purge_bring_nothing_back() {
    block_on(async {
        let storage = memory();
        let lake = secretive(storage.clone()).await;
        let other = Lake::open(storage.clone()).await.unwrap();
        let mut compaction = other.begin("main").await.unwrap();
        let table = compaction.base().table("main").await.unwrap();
        compaction.compact(&table, CompactOptions::default()).await.unwrap();
        let reader = other.snapshot(&At::Tag("v1".into())).await.unwrap().table("main").await.unwrap();
        let chosen = select(&lake, &At::default(), &[7]).await;
        lake.purge(&chosen, "Ada", "a request", |_| {}).await.unwrap();
        let error = compaction.commit("compact", "tester").await.unwrap_err();
        assert!(matches!(error, Error::Fenced { .. }), "{error}");
        let error = reader.read("text", 0..20).await.unwrap_err();
        assert!(matches!(error, Error::Erased { .. }), "{error}");
        // Its next look at a branch tells it.
        compact(&other, "main").await;
        assert_eq!(ids(&all(&other, &At::default()).await.unwrap()), without(0..20, 7));
        sound(&other).await;
    });
}

#[test]
fn what_others_wrote_and_did_not_commit_is_gone_as_well() {
    block_on(async {
        let storage = memory();
        let lake = secretive(storage.clone()).await;
        // A compaction that nobody commits holds the row, too.
        let mut forgotten = lake.begin("main").await.unwrap();
        let table = forgotten.base().table("main").await.unwrap();
        forgotten.compact(&table, CompactOptions::default()).await.unwrap();
        drop(forgotten);
        let (_, pin) = lake.pin(&At::default(), Duration::from_secs(60), "reader").await.unwrap();
        tick();
        let chosen = select(&lake, &At::default(), &[7]).await;
        let report = lake.purge(&chosen, "Ada", "a request", |_| {}).await.unwrap();
        assert_eq!(report.unreachable, 0, "it was written before the pin");
        assert_eq!(secrets(&storage).await, 0);
        // What was written since a pin stays for its holder, who can't commit it: it is told, and goes with the pin.
        update(&lake, "main", 8, "SECRET of the next").await;
        let mut forgotten = lake.begin("main").await.unwrap();
        let table = forgotten.base().table("main").await.unwrap();
        forgotten.compact(&table, CompactOptions::default()).await.unwrap();
        forgotten.hold(&pin);
        tick();
        let chosen = select(&lake, &At::default(), &[8]).await;
        let report = lake.purge(&chosen, "Ada", "a request", |_| {}).await.unwrap();
        assert!(report.unreachable > 0, "{report:?}");
        let error = forgotten.commit("compact", "tester").await.unwrap_err();
        assert!(matches!(error, Error::Fenced { .. }), "{error}");
        pin.release().await;
        tick();
        let reports = lake.finish_purges(|_| {}).await.unwrap();
        assert_eq!(reports[0].unreachable, 0);
        assert_eq!(secrets(&storage).await, 0);
        sound(&lake).await;
    });
}

#[test]
fn what_was_collected_in_part_stops_no_purge_and_keeps_no_row() {
    block_on(async {
        for (kind, readable) in [("CMIT", true), ("PAGE", false), ("ORIG", true), ("data", false)] {
            let storage = memory();
            let parts: Vec<_> = (0..400).map(|part| part * 2..part * 2 + 2).collect();
            let lake = lake(storage.clone(), &parts).await.unwrap();
            lake.create_branch("gone", &At::default()).await.unwrap();
            let before: Vec<_> = storage.list("").await.unwrap().into_iter().map(|entry| entry.path).collect();
            update(&lake, "gone", 7, "SECRET one").await;
            // So many fragments fill a page, and the compacted one doesn't.
            if kind != "PAGE" {
                compact(&lake, "gone").await;
            }
            let last = append(&lake, "gone", 800..802).await.unwrap().id();
            lake.delete_branch("gone").await.unwrap();
            let mut lost = 0;
            for entry in storage.list("").await.unwrap() {
                let bytes = storage.get(&entry.path).await.unwrap();
                let held = |what: &str| bytes.windows(what.len()).any(|bytes| bytes == what.as_bytes());
                let gone = match kind {
                    "data" => entry.path.starts_with("data/") && held("SECRET"),
                    _ => entry.path.starts_with("meta/") && bytes[..32].windows(4).any(|b| b == kind.as_bytes()),
                };
                if gone && !before.contains(&entry.path) && entry.path != format!("meta/{last}") {
                    storage.delete(&entry.path).await.unwrap();
                    lost += 1;
                }
            }
            assert!(lost > 0, "{kind}");
            tick();
            let chosen = select(&lake, &At::default(), &[7]).await;
            let report = lake.purge(&chosen, "Ada", "a request", |_| {}).await.unwrap();
            assert_eq!((report.rows, report.unreachable, secrets(&storage).await), (1, 0, 0), "{kind}");
            let lake = Lake::open(storage.clone()).await.unwrap();
            assert_eq!(ids(&all(&lake, &At::default()).await.unwrap()), without(0..800, 7));
            let found = all(&lake, &At::Commit(last)).await;
            assert_eq!(found.is_ok(), readable, "{kind}: {found:?}");
            assert!(found.iter().flatten().all(|row| row.id != 7), "{kind}");
            sound(&lake).await;
        }
    });
}

#[test]
fn what_is_committed_while_the_record_is_written_is_found_behind_the_fence() {
    block_on(async {
        let storage = memory();
        let lake = secretive(storage.clone()).await;
        let other = Lake::open(storage.clone()).await.unwrap();
        let faults = Arc::new(FaultStore::new(storage.store().unwrap(), 1));
        faults.add(Rule::new(Fault::Delay(Duration::from_secs(3))).on(OpKind::Create).path("purges/").nth(0));
        let slow = Lake::open(Storage::from_store(faults.clone(), "slow")).await.unwrap();
        let chosen = select(&slow, &At::default(), &[7]).await;
        // Prepared before, committed when the purge has seen all fragments: an overlay of a row that the record hides, and rows that
        // were compacted.
        let mut overlay = other.begin("main").await.unwrap();
        prepare(&mut overlay, 7, "SECRET four").await;
        let mut compaction = other.begin("exp").await.unwrap();
        let table = compaction.base().table("main").await.unwrap();
        compaction.compact(&table, CompactOptions::default().with_small_bytes(u64::MAX)).await.unwrap();
        let act = async {
            while !faults.operations().iter().any(|o| o.kind == OpKind::Create && o.path.starts_with("purges/")) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            overlay.commit("overlay", "tester").await.unwrap();
            compaction.commit("compact", "tester").await.unwrap();
        };
        let (report, ()) = futures::join!(slow.purge(&chosen, "Ada", "a request", |_| {}), act);
        assert_eq!(report.unwrap().rows, 1);
        assert_eq!(secrets(&storage).await, 0);
        for (at, end) in [(At::default(), 20), (branch("exp"), 25)] {
            let lake = Lake::open(storage.clone()).await.unwrap();
            assert_eq!(ids(&all(&lake, &at).await.unwrap()), without(0..end, 7), "{at}");
            assert_eq!(ids(&all(&other, &at).await.unwrap()), without(0..end, 7), "{at}");
        }
        sound(&Lake::open(storage.clone()).await.unwrap()).await;
        assert_eq!(lake.purges().await.unwrap().len(), 2, "the second record has what came meanwhile");
    });
}

#[test]
fn a_table_that_was_opened_before_brings_nothing_back() {
    block_on(async {
        let storage = memory();
        let lake = secretive(storage.clone()).await;
        let other = Lake::open(storage.clone()).await.unwrap();
        let base = other.snapshot(&At::default()).await.unwrap();
        let stale = base.table("main").await.unwrap();
        let chosen = select(&lake, &At::default(), &[7]).await;
        lake.purge(&chosen, "Ada", "a request", |_| {}).await.unwrap();
        let mut transaction = other.begin_at("main", &base).await.unwrap();
        let error = transaction.compact(&stale, CompactOptions::default()).await.unwrap_err();
        assert!(matches!(error, Error::Erased { .. }), "{error}");
        let fresh = transaction.base().table("main").await.unwrap();
        transaction.compact(&fresh, CompactOptions::default()).await.unwrap();
        transaction.commit("compact", "tester").await.unwrap();
        assert_eq!(ids(&all(&other, &At::default()).await.unwrap()), without(0..20, 7));
    });
}

#[test]
fn collections_merges_and_comparisons_go_on_after_a_purge() {
    block_on(async {
        let storage = memory();
        let lake = secretive(storage.clone()).await;
        let chosen = select(&lake, &At::default(), &[7, 12]).await;
        lake.purge(&chosen, "Ada", "a request", |_| {}).await.unwrap();
        assert_eq!(
            lake.purge(&select(&lake, &At::default(), &[7]).await, "", "", |_| {}).await.unwrap(),
            PurgeReport::default()
        );
        let strict = GcOptions::default().with_grace(Duration::ZERO).with_retention(Duration::ZERO).expiring();
        tick();
        lake.gc(&strict, |_| {}).await.unwrap();
        sound(&lake).await;
        let diff = lake.diff(&At::Tag("v1".into()), &branch("exp")).await.unwrap();
        assert_eq!((diff[0].rows_added, diff[0].rows_deleted, diff[0].rows_changed), (5, 0, 0));
        update(&lake, "main", 3, "changed here").await;
        update(&lake, "exp", 4, "changed there").await;
        lake.merge("main", &branch("exp"), &MergeOptions::by("tester")).await.unwrap();
        let found = all(&lake, &At::default()).await.unwrap();
        assert_eq!(found.len(), 23);
        for (id, text) in [(3, "changed here"), (4, "changed there")] {
            assert!(found.iter().any(|row| row.id == id && row.text.as_deref() == Some(text)));
        }
        tick();
        lake.gc(&strict, |_| {}).await.unwrap();
        sound(&Lake::open(storage.clone()).await.unwrap()).await;
        assert_eq!(secrets(&storage).await, 0);
    });
}

#[test]
fn a_key_of_a_purged_row_is_free_again() {
    block_on(async {
        let lake = Lake::create(memory()).await.unwrap();
        let mut transaction = lake.begin("main").await.unwrap();
        transaction.create_table_with_key("main", crate::support::schema(), &["id"]).unwrap();
        transaction.commit("create", "tester").await.unwrap();
        append(&lake, "main", 0..5).await.unwrap();
        assert!(matches!(append(&lake, "main", 3..4).await, Err(Error::DuplicateKey { .. })));
        let chosen = select(&lake, &At::default(), &[3]).await;
        lake.purge(&chosen, "Ada", "a request", |_| {}).await.unwrap();
        append(&lake, "main", 3..4).await.unwrap();
        assert_eq!(ids(&all(&lake, &At::default()).await.unwrap()), [0, 1, 2, 3, 4]);
    });
}

#[test]
fn copies_lose_the_rows_when_the_purge_is_pushed() {
    block_on(async {
        let lake = secretive(memory()).await;
        let target = memory();
        let (copy, _) = lake.clone_to(target.clone(), |_| {}).await.unwrap();
        let chosen = select(&lake, &At::default(), &[7]).await;
        lake.purge(&chosen, "Ada", "a request", |_| {}).await.unwrap();
        let (fresh, _) = lake.clone_to(memory(), |_| {}).await.unwrap();
        assert_eq!(ids(&all(&fresh, &branch("exp")).await.unwrap()), without(0..25, 7));
        sound(&fresh).await;
        append(&lake, "main", 30..31).await.unwrap();
        lake.push("main", &copy, "main", |_| {}).await.unwrap();
        let copy = Lake::open(target.clone()).await.unwrap();
        for (at, end) in [(At::Tag("v1".into()), 20), (branch("exp"), 25)] {
            assert_eq!(ids(&all(&copy, &at).await.unwrap()), without(0..end, 7), "{at}");
        }
        sound(&copy).await;
        assert_eq!(secrets(&target).await, 0);
    });
}

/// Another store with the same objects.
async fn copied(storage: &Storage) -> Storage {
    let copy = memory();
    for entry in storage.list("").await.unwrap() {
        copy.put(&entry.path, storage.get(&entry.path).await.unwrap()).await.unwrap();
    }
    copy
}

#[test]
fn a_purge_that_stops_anywhere_is_finished_by_running_it_again() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let mut stops = 0;
        let original = memory();
        secretive(original.clone()).await;
        for after in [false, true] {
            for operation in 0.. {
                let real = copied(&original).await;
                let lake = Lake::open(real.clone()).await.unwrap();
                let chosen = select(&lake, &At::default(), &[7]).await;
                let faults = Arc::new(FaultStore::new(real.store().unwrap(), 1));
                let fault = if after { Fault::StopAfter } else { Fault::StopBefore };
                faults.add(Rule::new(fault).nth(operation));
                let purge = async {
                    let faulty = Lake::open(Storage::from_store(faults.clone(), "faulty")).await?;
                    let table = faulty.snapshot(&At::default()).await?.table("main").await?;
                    let rows = Selection::new(table, chosen.rows().clone())?;
                    faulty.purge(&rows, "Ada", "a request", |_| {}).await
                };
                let done: Result<PurgeReport, _> = purge.await;
                // Whatever happened, every version is whole, with the row or without it.
                let lake = Lake::open(real.clone()).await.unwrap();
                sound(&lake).await;
                let found = ids(&all(&lake, &At::default()).await.unwrap());
                assert!(found == without(0..20, 7) || (done.is_err() && found == (0..20).collect::<Vec<_>>()));
                if lake.finish_purges(|_| {}).await.unwrap().is_empty() {
                    lake.purge(&chosen, "Ada", "a request", |_| {}).await.unwrap();
                }
                assert_eq!(ids(&all(&lake, &At::default()).await.unwrap()), without(0..20, 7));
                sound(&lake).await;
                if faults.is_stopped() {
                    stops += 1;
                    // Files that were written anew and then forgotten hold no secrets; old ones are deleted.
                    assert_eq!(secrets(&real).await, 0, "operation {operation}");
                    continue;
                }
                assert!(done.is_ok());
                break;
            }
        }
        assert!(stops > 50, "{stops} operations in all");
    });
}
