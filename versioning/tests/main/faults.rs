//! Requests that fail, before and after they took effect.

use std::{sync::Arc, time::Duration};

use forebay_format::{ColumnData, OwnedValues};
use forebay_storage::{
    Options, Storage,
    testing::{Fault, FaultStore, OpKind, Rule},
};
use forebay_versioning::{At, CompactOptions, Lake, MergeOptions, Rows, Selection};

use crate::support::{Row, all, append, block_on, lake, rows};

/// A lake in memory with ten rows, the storage to judge it by, and the same storage with faults to come.
async fn faulty() -> (Storage, Arc<FaultStore>, Storage) {
    let real = Storage::open(&format!("memory://{}", uuid::Uuid::new_v4()), &Options::default()).unwrap();
    lake(real.clone(), &[0..10]).await.unwrap();
    let faults = Arc::new(FaultStore::new(real.store().unwrap(), 1));
    let storage = Storage::from_store(faults.clone(), "faulty");
    (real, faults, storage)
}

/// Does everything that moves a branch, one after the other, until something fails. Gives what `main` held after each step
/// that was reported as done.
async fn history(storage: &Storage) -> Result<(), (usize, forebay_versioning::Error)> {
    let (main, exp) = (At::default(), At::Branch("exp".into()));
    let select = |table: forebay_versioning::Table, row| Selection::new(table, Rows::List([row].into()));
    let by = MergeOptions::by("tester");
    let mut done = 0;
    let steps = async {
        let lake = Lake::open(storage.clone()).await?;
        lake.create_branch("exp", &main).await?;
        append(&lake, "exp", 10..12).await?;
        let mut transaction = lake.begin("main").await?;
        let table = transaction.base().table("main").await?;
        transaction.delete(&select(table.clone(), 0)?)?;
        let id = ColumnData { rows: 1, values: OwnedValues::Fixed(50_i64.to_le_bytes().to_vec()), validity: None };
        transaction.update(&select(table, 5)?, &[("id", id.as_slice())]).await?;
        transaction.commit("edit", "tester").await?;
        done = 1;
        lake.merge("main", &exp, &by).await?;
        done = 2;
        let mut transaction = lake.begin("main").await?;
        let table = transaction.base().table("main").await?;
        transaction.compact(&table, CompactOptions::default()).await?;
        transaction.commit("compact", "tester").await?;
        done = 3;
        let picked = lake.log(&exp, 1).await?[0].id;
        lake.revert("main", &At::Commit(picked), &by).await?;
        done = 4;
        lake.delete_branch("exp").await?;
        lake.reset("main", &At::Commit(picked)).await?;
        done = 5;
        Ok::<_, forebay_versioning::Error>(())
    };
    steps.await.map_err(|error| (done, error))
}

/// What `main` holds after each number of steps of [`history`].
fn states() -> [Vec<Row>; 6] {
    let edit = |rows: Vec<Row>| -> Vec<Row> {
        let rows = rows.into_iter().filter(|row| row.id != 0);
        rows.map(|row| if row.id == 5 { Row { id: 50, ..row } } else { row }).collect()
    };
    let merged = edit(rows(0..12));
    [rows(0..10), edit(rows(0..10)), merged.clone(), merged, edit(rows(0..10)), rows(0..12)]
}

#[test]
fn a_process_that_stops_anywhere_in_a_history_leaves_one_of_its_states() {
    // The clock jumps over the pauses of those who ask a stopped store again.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let mut stops = 0;
        for after in [false, true] {
            for operation in 0.. {
                let (real, faults, storage) = faulty().await;
                let fault = if after { Fault::StopAfter } else { Fault::StopBefore };
                faults.add(Rule::new(fault).nth(operation));
                let done = history(&storage).await.err().map_or(5, |(done, _)| done);
                let lake = Lake::open(real).await.unwrap();
                let found = all(&lake, &At::default()).await.unwrap();
                // The step that was cut may have been the last to take effect.
                let possible = &states()[done..(done + 2).min(6)];
                assert!(possible.contains(&found), "operation {operation}, after {done} steps: {found:?}");
                let branches: Vec<_> = lake.branches().await.unwrap().into_iter().map(At::Branch).collect();
                assert_eq!(lake.verify_all(&branches, |_| {}).await.unwrap().faults, []);
                if !faults.is_stopped() {
                    assert_eq!(done, 5);
                    break;
                }
                stops += 1;
            }
        }
        assert!(stops > 100, "{stops} operations in all");
    });
}

#[test]
fn a_history_whose_replies_are_lost_is_the_same_history() {
    block_on(async {
        let lost = async |kind, fault, operation| {
            let (real, faults, storage) = faulty().await;
            faults.add(Rule::new(fault).on(kind).nth(operation));
            let done = history(&storage).await.err().map_or(5, |(done, _)| done);
            let lake = Lake::open(real).await.unwrap();
            let found = all(&lake, &At::default()).await.unwrap();
            assert!(states()[done..(done + 2).min(6)].contains(&found), "{kind:?} {operation} {fault:?}: {done} steps");
        };
        for operation in 0..10 {
            for fault in [Fault::ErrorAfter, Fault::Late(2)] {
                lost(OpKind::Create, fault, operation).await;
            }
        }
    });
}

async fn append_twice(storage: &Storage) -> (bool, bool) {
    let Ok(lake) = Lake::open(storage.clone()).await else { return (false, false) };
    let first = append(&lake, "main", 10..15).await.is_ok();
    (first, append(&lake, "main", 15..17).await.is_ok())
}

#[test]
fn a_process_that_stops_at_any_operation_leaves_old_or_new_and_what_it_reported() {
    block_on(async {
        let mut stops = 0;
        for after in [false, true] {
            for operation in 0.. {
                let (real, faults, storage) = faulty().await;
                let fault = if after { Fault::StopAfter } else { Fault::StopBefore };
                faults.add(Rule::new(fault).nth(operation));
                let (first, second) = append_twice(&storage).await;
                let lake = Lake::open(real).await.unwrap();
                let found = all(&lake, &At::default()).await.unwrap();
                let possible: Vec<_> = [10, 15, 17].into_iter().map(|end| rows(0..end)).collect();
                let state = possible.iter().position(|rows| rows == &found);
                let state = state.unwrap_or_else(|| panic!("operation {operation}: neither old nor new: {found:?}"));
                assert!(state >= usize::from(first) + usize::from(second), "operation {operation}: a commit is lost");
                assert_eq!(lake.verify(&At::default(), |_| {}).await.unwrap().faults, []);
                if !faults.is_stopped() {
                    assert!(first && second);
                    break;
                }
                stops += 1;
            }
        }
        assert!(stops > 20, "{stops} operations in all");
    });
}

#[test]
fn a_commit_whose_replies_are_lost_is_made_once() {
    block_on(async {
        for kind in [OpKind::Put, OpKind::Create, OpKind::Get] {
            for fault in [Fault::ErrorAfter, Fault::ErrorBefore, Fault::Late(1), Fault::Late(2), Fault::Late(3)] {
                for operation in 0..6 {
                    let (real, faults, storage) = faulty().await;
                    faults.add(Rule::new(fault).on(kind).nth(operation));
                    let (first, second) = append_twice(&storage).await;
                    let lake = Lake::open(real).await.unwrap();
                    let found = all(&lake, &At::default()).await.unwrap();
                    let mut expected = rows(0..10);
                    expected.extend(rows(10..15).into_iter().filter(|_| first));
                    expected.extend(rows(15..17).into_iter().filter(|_| second));
                    assert_eq!(found, expected, "{kind:?} {operation} {fault:?}: reported {first}, {second}");
                    let log = lake.log(&At::default(), 100).await.unwrap();
                    assert_eq!(log.len(), 3 + usize::from(first) + usize::from(second));
                }
            }
        }
    });
}

#[test]
fn a_write_that_lands_when_everything_is_over_is_the_one_commit_or_none() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let mut unknown = 0;
        for kind in [OpKind::Put, OpKind::Create] {
            // One write is late, or all from one on are.
            for (operation, all_of_them) in (0..8).flat_map(|operation| [(operation, false), (operation, true)]) {
                let (real, faults, storage) = faulty().await;
                let rule = Rule::new(Fault::Late(1_000_000)).on(kind);
                faults.add(if all_of_them { rule.from(operation) } else { rule.nth(operation) });
                let lake = Lake::open(storage).await.unwrap();
                let reported = append(&lake, "main", 10..15).await;
                let committed = async || {
                    let lake = Lake::open(real.clone()).await.unwrap();
                    let log = lake.log(&At::default(), 100).await.unwrap();
                    let made = log.iter().filter(|commit| commit.message == "rows 10..15").count();
                    let rows = all(&lake, &At::default()).await.unwrap();
                    assert_eq!(rows.iter().filter(|row| (10..15).contains(&row.id)).count(), 5 * made);
                    assert_eq!(lake.verify(&At::default(), |_| {}).await.unwrap().faults, []);
                    made
                };
                let before = committed().await;
                faults.settle().await;
                let after = committed().await;
                match &reported {
                    Ok(_) => assert_eq!((before, after), (1, 1), "{kind:?} {operation}"),
                    Err(forebay_versioning::Error::OutcomeUnknown { .. }) => {
                        unknown += 1;
                        assert!(before <= after && after <= 1, "{kind:?} {operation}: {before}, then {after}");
                    }
                    Err(error) => assert_eq!((before, after), (0, 0), "{kind:?} {operation}: {error}"),
                }
                // The branch goes on, and nothing of the old writes comes up in it.
                let lake = Lake::open(real.clone()).await.unwrap();
                append(&lake, "main", 20..21).await.unwrap();
                assert_eq!(committed().await, after);
            }
        }
        assert!(unknown > 0, "no outcome was ever unknown");
    });
}

#[test]
fn a_commit_takes_at_most_six_requests() {
    block_on(async {
        let (_real, faults, storage) = faulty().await;
        let lake = Lake::open(storage.clone()).await.unwrap();
        let transaction = lake.begin("main").await.unwrap();
        let before = faults.operations().len();
        let mut transaction = transaction;
        crate::support::write(&mut transaction, &rows(10..11)).await.unwrap();
        transaction.commit("one row", "tester").await.unwrap();
        let requests = &faults.operations()[before..];
        assert!(requests.len() <= 6, "{requests:?}");
    });
}

/// A table of numbers in memory, in so many fragments of 1,000 rows, and its storage's record of requests.
async fn numbers(fragments: i64) -> (Arc<FaultStore>, Lake) {
    let (_real, faults, storage) = faulty().await;
    let lake = Lake::open(storage).await.unwrap();
    let mut transaction = lake.begin("main").await.unwrap();
    let column = forebay_format::Column::new("n", forebay_format::DType::I64, []).unwrap();
    transaction.create_table("numbers", forebay_format::Schema::new(vec![column]).unwrap()).unwrap();
    for fragment in 0..fragments {
        let mut writer = transaction.writer("numbers").await.unwrap();
        let bytes = (fragment * 1000..fragment * 1000 + 1000).flat_map(i64::to_le_bytes).collect();
        let data = ColumnData { rows: 1000, values: OwnedValues::Fixed(bytes), validity: None };
        let write = move || {
            writer.push(&[data.as_slice()]).unwrap();
            writer.finish().unwrap()
        };
        transaction.append(tokio::task::spawn_blocking(write).await.unwrap());
    }
    transaction.commit("numbers", "tester").await.unwrap();
    (faults, lake)
}

/// Sets 1,000 numbers of a branch that lie far apart, starting at `first`.
async fn scatter(lake: &Lake, branch: &str, rows: u64, first: u64) {
    let mut transaction = lake.begin(branch).await.unwrap();
    let table = transaction.base().table("numbers").await.unwrap();
    let chosen: Vec<u64> = (0..1000).map(|n| first + n * (rows / 1000)).collect();
    let bytes = chosen.iter().flat_map(|row| (-(*row as i64)).to_le_bytes()).collect();
    let data = ColumnData { rows: 1000, values: OwnedValues::Fixed(bytes), validity: None };
    let selection = Selection::new(table, Rows::List(chosen.into())).unwrap();
    transaction.update(&selection, &[("n", data.as_slice())]).await.unwrap();
    transaction.commit("scatter", "tester").await.unwrap();
}

#[test]
fn a_merge_of_a_large_table_reads_no_rows_and_asks_for_what_changed() {
    block_on(async {
        let by = MergeOptions::by("tester");
        let (faults, lake) = numbers(1000).await;
        lake.create_branch("exp", &At::default()).await.unwrap();
        scatter(&lake, "main", 1_000_000, 0).await;
        scatter(&lake, "exp", 1_000_000, 1).await;
        let before = faults.operations().len();
        let started = std::time::Instant::now();
        lake.merge("main", &At::Branch("exp".into()), &by).await.unwrap();
        println!("merged 1,000 and 1,000 changes of 1,000,000 rows in {:?}", started.elapsed());
        let requests: Vec<_> = faults.operations().drain(before..).collect();
        assert!(requests.len() <= 30, "{} requests", requests.len());
        assert!(requests.iter().all(|request| !request.path.contains("data/")), "{requests:?}");
        let table = lake.snapshot(&At::default()).await.unwrap().table("numbers").await.unwrap();
        let OwnedValues::Fixed(bytes) = table.take("n", &[0, 1, 2, 999_000, 999_001]).await.unwrap().values else {
            panic!("numbers")
        };
        let found: Vec<i64> = bytes.chunks_exact(8).map(|n| i64::from_le_bytes(n.try_into().unwrap())).collect();
        assert_eq!(found, [0, -1, 2, -999_000, -999_001]);
    });
}

#[test]
fn opening_a_small_lake_takes_three_requests_one_after_the_other() {
    // The clock stands still but for the latency of requests, so that requests beside each other take one latency.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let (_real, _faults, storage) = faulty().await;
        let slow = FaultStore::new(storage.store().unwrap(), 1).with_latency(Duration::from_millis(20));
        let started = tokio::time::Instant::now();
        let (_, snapshot) = Lake::open_at(Storage::from_store(Arc::new(slow), "slow"), &At::default()).await.unwrap();
        assert_eq!(snapshot.table("main").await.unwrap().rows(), 10);
        let latencies = started.elapsed().as_secs_f64() / 0.020;
        assert!(latencies < 3.5, "{latencies} latencies");
    });
}
