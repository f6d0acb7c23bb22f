//! Rows erased from all history.

use std::sync::Arc;

use forebay_format::{ColumnData, OwnedValues};
use forebay_storage::{
    Options, Storage,
    testing::{Fault, FaultStore, Rule},
};
use forebay_versioning::{At, CompactOptions, Error, Lake, MergeOptions, PurgeReport, Rows, Selection};

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
    let rows = select(lake, &branch(name), &[id]).await;
    let values = OwnedValues::Ragged { offsets: vec![0, text.len() as u64], shapes: vec![], bytes: text.into() };
    let text = ColumnData { rows: 1, values, validity: None };
    let base = transaction.base().table("main").await.unwrap();
    let rows = Selection::new(base, rows.rows().clone()).unwrap();
    transaction.update(&rows, &[("text", text.as_slice())]).await.unwrap();
    transaction.commit("update", "tester").await.unwrap();
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

#[test]
fn a_purge_that_stops_anywhere_is_finished_by_running_it_again() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let mut stops = 0;
        for after in [false, true] {
            for operation in 0.. {
                let real = memory();
                let lake = secretive(real.clone()).await;
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
