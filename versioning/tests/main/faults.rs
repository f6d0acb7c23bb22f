//! Requests that fail, before and after they took effect.

use std::{sync::Arc, time::Duration};

use forebay_storage::{
    Options, Storage,
    testing::{Fault, FaultStore, OpKind, Rule},
};
use forebay_versioning::{At, Lake};

use crate::support::{all, append, block_on, lake, rows};

/// A lake in memory with ten rows, the storage to judge it by, and the same storage with faults to come.
async fn faulty() -> (Storage, Arc<FaultStore>, Storage) {
    let real = Storage::open(&format!("memory://{}", uuid::Uuid::new_v4()), &Options::default()).unwrap();
    lake(real.clone(), &[0..10]).await.unwrap();
    let faults = Arc::new(FaultStore::new(real.store().unwrap(), 1));
    let storage = Storage::from_store(faults.clone(), "faulty");
    (real, faults, storage)
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
