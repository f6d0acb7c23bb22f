//! Reads and writes over a store that misbehaves, and what the fault store itself promises.

use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_storage::object_store::memory::InMemory;
use forebay_storage::testing::{Fault, FaultStore, OpKind, Rule};
use forebay_storage::{Error, Storage};

fn faulty() -> (Arc<FaultStore>, Storage) {
    let store = Arc::new(FaultStore::new(Arc::new(InMemory::new()), 42));
    (store.clone(), Storage::from_store(store, "faulty"))
}

#[tokio::test]
async fn a_body_that_is_cut_off_is_an_error_and_never_shorter_data() {
    let (store, storage) = faulty();
    storage.put("x", vec![7; 1000].into()).await.unwrap();
    store.add(Rule::new(Fault::Truncate(None)).on(OpKind::Get));
    for error in [
        storage.get("x").await.unwrap_err(),
        storage.get_range("x", 100..900).await.unwrap_err(),
        storage.get_ranges("x", &[0..10, 900..1000]).await.unwrap_err(),
    ] {
        assert!(matches!(error, Error::ShortRead { .. }), "{error}");
        assert!(error.to_string().contains('x') && error.to_string().contains("faulty"), "{error}");
    }
}

#[tokio::test]
async fn near_ranges_are_one_request_and_far_ones_are_several() {
    let (store, storage) = faulty();
    storage.put("x", vec![7; 1 << 20].into()).await.unwrap();
    store.clear();
    storage.get_ranges("x", &[0..100, 200..300, 500_000..500_100, 5000..6000]).await.unwrap();
    let mut ranges: Vec<_> = store.operations().into_iter().map(|o| (o.range.unwrap(), o.bytes)).collect();
    ranges.sort_unstable_by_key(|(r, _)| r.start);
    assert_eq!(ranges, [(0..6000, 6000), (500_000..500_100, 100)]);
}

#[tokio::test]
async fn one_request_that_fails_fails_the_whole_read_with_its_range() {
    let (store, storage) = faulty();
    storage.put("x", vec![7; 1 << 20].into()).await.unwrap();
    store.add(Rule::new(Fault::ErrorBefore).on(OpKind::Get).nth(1));
    let error = storage.get_ranges("x", &[0..100, 500_000..500_100]).await.unwrap_err();
    assert!(matches!(&error, Error::Store { range: Some(r), .. } if *r == (500_000..500_100)), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_run_side_by_side_up_to_the_limit() {
    let store = Arc::new(FaultStore::new(Arc::new(InMemory::new()), 0).with_latency(Duration::from_millis(30)));
    let storage = Storage::from_store(store.clone(), "slow");
    storage.put("x", vec![7; 64 << 20].into()).await.unwrap();
    let ranges: Vec<_> = (0..64u64).map(|i| i << 20..(i << 20) + 10).collect();
    let start = Instant::now();
    storage.get_ranges("x", &ranges).await.unwrap();
    let took = start.elapsed();
    assert_eq!(store.count(OpKind::Get), 64);
    assert!(took < Duration::from_millis(64 * 30 / 2), "64 reads of 30 ms took {took:?}");
}

#[tokio::test]
async fn a_part_that_fails_fails_the_writer_and_nothing_stays() {
    for kind in [OpKind::Begin, OpKind::Part, OpKind::Complete] {
        let (store, storage) = faulty();
        store.add(Rule::new(Fault::ErrorBefore).on(kind).from(if kind == OpKind::Part { 1 } else { 0 }));
        let mut writer = storage.writer("data/x").unwrap();
        let wrote = (0..60).try_for_each(|_| writer.write_all(&[1; 1 << 20]));
        let after = writer.write_all(b"more");
        let finished = writer.finish();
        assert!(finished.is_err(), "{kind:?}");
        if wrote.is_err() {
            assert!(after.is_err(), "{kind:?}: a writer that failed takes no more");
            assert!(matches!(finished.unwrap_err(), Error::WriterFailed { .. }));
        }
        assert!(storage.list("").await.unwrap().is_empty());
        if kind != OpKind::Begin {
            assert_eq!(store.count(OpKind::Abort), 1, "{kind:?}: the parts are given back");
        }
    }
}

#[tokio::test]
async fn a_small_object_is_one_put_and_a_large_one_is_parts() {
    let (store, storage) = faulty();
    let mut writer = storage.writer("small").unwrap();
    writer.write_all(&[1; 1000]).unwrap();
    writer.finish().unwrap();
    assert_eq!(store.operations().iter().map(|o| o.kind).collect::<Vec<_>>(), [OpKind::Put]);
    store.clear();
    let mut writer = storage.writer("large").unwrap();
    writer.write_all(&vec![1; 40 << 20]).unwrap();
    writer.finish().unwrap();
    let parts: Vec<u64> = store.operations().iter().filter(|o| o.kind == OpKind::Part).map(|o| o.bytes).collect();
    assert_eq!(parts.iter().sum::<u64>(), 40 << 20);
    assert_eq!(parts.len(), 5);
    assert_eq!(store.count(OpKind::Put), 0);
}

#[tokio::test]
async fn the_same_seed_gives_the_same_faults() {
    let run = async |seed| {
        let store = Arc::new(FaultStore::new(Arc::new(InMemory::new()), seed));
        store.add(Rule::new(Fault::ErrorAfter).chance(0.5));
        let storage = Storage::from_store(store.clone(), "x");
        let mut outcomes = Vec::new();
        for i in 0..64 {
            outcomes.push(storage.put(&format!("o/{i}"), "x".into()).await.is_ok());
        }
        outcomes
    };
    assert_eq!(run(1).await, run(1).await);
    assert_ne!(run(1).await, run(2).await);
    assert!(run(1).await.contains(&true) && run(1).await.contains(&false));
}

#[tokio::test]
async fn exactly_one_bit_is_flipped() {
    let (store, storage) = faulty();
    let bytes = vec![0u8; 100];
    storage.put("x", bytes.clone().into()).await.unwrap();
    store.add(Rule::new(Fault::Flip(Some(17))).on(OpKind::Get).nth(0));
    store.add(Rule::new(Fault::Flip(None)).on(OpKind::Get).nth(1));
    let first = storage.get("x").await.unwrap();
    assert_eq!((first[2], first.iter().map(|b| b.count_ones()).sum::<u32>()), (2, 1));
    assert_eq!(storage.get("x").await.unwrap().iter().map(|b| b.count_ones()).sum::<u32>(), 1);
    assert_eq!(storage.get("x").await.unwrap(), bytes);
}

#[tokio::test]
async fn a_stop_at_each_operation_leaves_what_was_done_before_it() {
    for after in [false, true] {
        for k in 0..6u64 {
            let inner: Arc<InMemory> = Arc::default();
            let store = Arc::new(FaultStore::new(inner.clone(), 0));
            store.add(Rule::new(if after { Fault::StopAfter } else { Fault::StopBefore }).nth(k));
            let storage = Storage::from_store(store, "mortal");
            let mut succeeded = 0;
            for i in 0..6 {
                succeeded += u64::from(storage.put(&format!("o/{i}"), "x".into()).await.is_ok());
            }
            assert_eq!(succeeded, k);
            let survivors = Storage::from_store(inner, "quiet").list("").await.unwrap().len() as u64;
            assert_eq!(survivors, k + u64::from(after));
        }
    }
}
