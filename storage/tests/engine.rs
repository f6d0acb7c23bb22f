//! Reads from a store across a network that misbehaves: every byte, or an error that says what was tried.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use forebay_storage::object_store::memory::InMemory;
use forebay_storage::testing::{Fault, FaultStore, Lie, LyingStore, OpKind, Rule};
use forebay_storage::{Error, Options, Storage};

const SIZE: usize = 1 << 20;

fn bytes() -> Vec<u8> {
    (0..SIZE).map(|i| (i * 31 % 251) as u8).collect()
}

/// A store of one object, and a storage that reads it as from a cloud.
async fn remote(options: &[(&str, &str)]) -> (Arc<FaultStore>, Storage) {
    let store = Arc::new(FaultStore::new(Arc::new(InMemory::new()), 7));
    let storage = Storage::from_remote_store(store.clone(), "cloud", &options.iter().copied().collect()).unwrap();
    storage.put("x", bytes().into()).await.unwrap();
    store.clear();
    (store, storage)
}

async fn read_all(storage: &Storage) -> Result<(), Error> {
    let (all, mut parts) = (bytes(), vec![0; 5000]);
    assert_eq!(storage.get("x").await?, all);
    assert_eq!(storage.get_range("x", 100..90_000).await?, all[100..90_000]);
    assert_eq!(storage.get_ranges("x", &[7..9, SIZE as u64 - 5..SIZE as u64]).await?, [&all[7..9], &all[SIZE - 5..]]);
    let (one, two) = parts.split_at_mut(1234);
    storage.read_into("x", 77, vec![one, two]).await?;
    assert_eq!(parts, all[77..5077]);
    Ok(())
}

#[tokio::test]
async fn failures_that_pass_are_tried_again_and_every_byte_is_right() {
    for fault in [Fault::ErrorBefore, Fault::ErrorAfter, Fault::Truncate(None), Fault::Break(None), Fault::Throttle] {
        let (store, storage) = remote(&[("max_retries", "40")]).await;
        store.add(Rule::new(fault).on(OpKind::Get).chance(0.4));
        for _ in 0..4 {
            read_all(&storage).await.unwrap();
        }
        let stats = storage.stats();
        assert!(stats.retries > 0 && stats.bytes > 0, "{fault:?}: {stats:?}");
        assert_eq!(stats.throttled > 0, fault == Fault::Throttle, "{stats:?}");
    }
}

#[tokio::test]
async fn a_failure_that_stays_ends_with_object_range_attempts_and_cause() {
    let (store, storage) = remote(&[("max_retries", "2")]).await;
    store.add(Rule::new(Fault::ErrorBefore).on(OpKind::Get));
    let error = storage.get_range("x", 10..20).await.unwrap_err();
    assert!(matches!(&error, Error::Store { attempts: 3, range: Some(range), .. } if *range == (10..20)), "{error:?}");
    for said in ["`x`", "10..20", "cloud", "3 attempts", "an error before any effect"] {
        assert!(error.to_string().contains(said), "{said}: {error}");
    }
    assert_eq!(store.count(OpKind::Get), 3);
}

#[tokio::test]
async fn the_deadline_ends_it_however_many_tries_are_left() {
    let (store, storage) = remote(&[("max_retries", "1000"), ("retry_timeout", "300ms")]).await;
    store.add(Rule::new(Fault::ErrorBefore).on(OpKind::Get));
    let start = Instant::now();
    assert!(storage.get_range("x", 10..20).await.is_err());
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    assert!(store.count(OpKind::Get) > 1);
}

#[tokio::test]
async fn what_will_not_change_is_asked_once() {
    let (store, storage) = remote(&[]).await;
    assert!(storage.get_range("y", 0..5).await.unwrap_err().is_not_found());
    store.add(Rule::new(Fault::Refuse).on(OpKind::Get));
    assert!(matches!(storage.get_range("x", 0..5).await.unwrap_err(), Error::Denied { .. }));
    assert_eq!(store.count(OpKind::Get), 2);
}

#[tokio::test]
async fn a_stall_ends_in_time_and_is_never_called_not_found() {
    for fault in [Fault::Stall, Fault::StallBody] {
        let (store, storage) = remote(&[("timeout", "50ms"), ("max_retries", "1")]).await;
        store.add(Rule::new(fault).on(OpKind::Get));
        for error in [storage.get_range("x", 10..20).await.unwrap_err(), storage.get("x").await.unwrap_err()] {
            assert!(matches!(&error, Error::Store { attempts: 2, .. }) && !error.is_not_found(), "{error:?}");
            assert!(error.to_string().contains("no whole answer within 50ms"), "{error}");
        }
        assert_eq!(storage.stats().timeouts, 4);
        store.clear();
        store.add(Rule::new(fault).on(OpKind::Get).nth(0));
        assert_eq!(storage.get_range("x", 10..20).await.unwrap(), bytes()[10..20]);
    }
}

#[tokio::test]
async fn an_answer_that_is_late_is_asked_for_a_second_time_within_two_hundredths_of_the_bytes() {
    let (store, storage) = remote(&[("timeout", "120s")]).await;
    store.add(Rule::new(Fault::Stall).on(OpKind::Get).nth(200));
    for i in 0..300_u64 {
        assert_eq!(storage.get_range("x", i..i + 1000).await.unwrap(), bytes()[i as usize..i as usize + 1000]);
    }
    let stats = storage.stats();
    assert!(stats.hedges_won >= 1 && stats.timeouts == 0, "{stats:?}");
    assert!(stats.hedged_bytes <= 300 * 1000 / 50, "{stats:?}");
    let off = remote(&[("hedge", "false"), ("timeout", "200ms")]).await;
    off.0.add(Rule::new(Fault::Stall).on(OpKind::Get).nth(200));
    for i in 0..300_u64 {
        off.1.get_range("x", i..i + 1000).await.unwrap();
    }
    assert_eq!((off.1.stats().hedges, off.1.stats().timeouts), (0, 1));
}

#[tokio::test]
async fn a_store_that_asks_for_patience_is_asked_less() {
    let (store, storage) = remote(&[]).await;
    let before = storage.stats();
    assert_eq!((before.limit, before.pace), (256, None));
    store.add(Rule::new(Fault::Throttle).on(OpKind::Get).nth(0));
    storage.get("x").await.unwrap();
    let after = storage.stats();
    assert!(after.limit == 128 && after.pace.is_some() && after.throttled == 1, "{after:?}");
    let fixed = remote(&[("concurrency", "5")]).await.1;
    assert_eq!((fixed.stats().limit, fixed.concurrency()), (5, 5));
}

#[tokio::test(flavor = "multi_thread")]
async fn never_more_requests_are_in_flight_than_said() {
    let (store, storage) = remote(&[("concurrency", "3")]).await;
    store.add(Rule::new(Fault::Jitter(Duration::from_millis(3))).on(OpKind::Get));
    let most = std::sync::atomic::AtomicUsize::new(0);
    let reads = (0..60_u64).map(|i| {
        let (storage, most) = (&storage, &most);
        async move {
            let got = storage.get_range("x", i..i + 10).await.unwrap();
            most.fetch_max(storage.stats().in_flight, std::sync::atomic::Ordering::SeqCst);
            got
        }
    });
    let got: Vec<Bytes> = futures::future::join_all(reads).await;
    assert!(got.iter().enumerate().all(|(i, got)| got == &bytes()[i..i + 10]));
    assert!(most.into_inner() <= 3);
}

#[tokio::test]
async fn a_put_if_absent_that_is_none_is_recognised_and_refused() {
    for lie in [Lie::LooksFirst, Lie::NeverLooks] {
        let store = Arc::new(LyingStore::new(Arc::new(InMemory::new()), lie));
        let storage = Storage::from_remote_store(store, "liar", &Options::new()).unwrap();
        let error = storage.probe("probe/1").await.unwrap_err();
        assert!(matches!(error, Error::NotAtomic { .. }), "{lie:?}: {error:?}");
        assert!(error.to_string().contains("liar") && error.to_string().contains("conditional writes"), "{error}");
        assert!(storage.list("").await.unwrap().is_empty(), "the probe takes its object away");
    }
    let (_, honest) = remote(&[]).await;
    honest.probe("probe/1").await.unwrap();
    assert_eq!(honest.list("").await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_probe_that_was_not_answered_proves_nothing() {
    let (store, storage) = remote(&[]).await;
    store.add(Rule::new(Fault::ErrorBefore).on(OpKind::Create));
    assert!(matches!(storage.probe("probe/1").await.unwrap_err(), Error::Store { operation: "probe", .. }));
}
