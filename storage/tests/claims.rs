//! Claims under every combination of faults: nobody is ever told something that is not so.

use std::sync::Arc;

use bytes::Bytes;
use forebay_storage::object_store::memory::InMemory;
use forebay_storage::testing::{Fault, FaultStore, OpKind, Rule};
use forebay_storage::{Claim, Error, Storage};

const PATH: &str = "refs/heads/main/00000000000000000001";

/// What may befall one request to create the object.
const CREATE: [Option<Fault>; 7] = [
    None,
    Some(Fault::ErrorBefore),
    Some(Fault::ErrorAfter),
    Some(Fault::Late(1)),
    Some(Fault::Late(2)),
    Some(Fault::Late(3)),
    Some(Fault::Refuse),
];

/// What may befall one reading back.
const READ: [Option<Fault>; 3] = [None, Some(Fault::ErrorBefore), Some(Fault::Truncate(Some(1)))];

/// Who else wants the name, and when.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Rival {
    Nobody,
    Before,
    After,
}

/// Runs one claim under faults, lets everything late arrive, and compares what was said with what is so.
async fn check(creates: &[Option<Fault>], reads: &[Option<Fault>], rival: Rival) {
    let inner: Arc<InMemory> = Arc::default();
    let quiet = Storage::from_store(inner.clone(), "quiet");
    if rival == Rival::Before {
        quiet.put(PATH, "theirs".into()).await.unwrap();
    }
    let store = Arc::new(FaultStore::new(inner, 0));
    for (kind, faults) in [(OpKind::Create, creates), (OpKind::Get, reads)] {
        for (n, fault) in faults.iter().enumerate() {
            if let Some(fault) = fault {
                store.add(Rule::new(*fault).on(kind).nth(n as u64));
            }
        }
    }
    let claim = Storage::from_store(store.clone(), "faulty").claim(PATH, "ours".into()).await;
    if rival == Rival::After {
        quiet.claim(PATH, "theirs".into()).await.unwrap();
    }
    store.settle().await;
    let holds = match quiet.get(PATH).await {
        Ok(bytes) => Some(bytes),
        Err(error) => {
            assert!(error.is_not_found());
            None
        }
    };
    let case = format!("{creates:?} {reads:?} {rival:?}: {claim:?}, in the end {holds:?}");
    match claim {
        Ok(Claim::Ours) => assert_eq!(holds.as_deref(), Some(&b"ours"[..]), "{case}"),
        Ok(Claim::Theirs(bytes)) => {
            assert_eq!(bytes, "theirs", "{case}");
            assert_eq!(holds, Some(bytes), "{case}");
        }
        // Nobody can say: whatever the name holds is possible. It is only said when something was in the way.
        Ok(Claim::Unknown(_)) => {
            assert!(creates.iter().chain(reads).flatten().count() > 1, "{case}");
        }
        Err(error) => {
            assert!(matches!(error, Error::Denied { .. }), "{case}");
            assert_ne!(holds.as_deref(), Some(&b"ours"[..]), "{case}");
        }
    }
}

/// The waits between attempts pass at once: time stands still but for them.
#[tokio::test(start_paused = true)]
async fn no_combination_of_faults_makes_a_claim_say_what_is_not_so() {
    for first in CREATE {
        for second in CREATE {
            for third in [None, Some(Fault::ErrorBefore), Some(Fault::ErrorAfter), Some(Fault::Refuse)] {
                for one in READ {
                    for two in READ {
                        for rival in [Rival::Nobody, Rival::Before, Rival::After] {
                            check(&[first, second, third], &[one, two], rival).await;
                        }
                    }
                }
            }
        }
    }
}

fn store_with(rules: impl IntoIterator<Item = Rule>) -> (Arc<FaultStore>, Storage) {
    let store = Arc::new(FaultStore::new(Arc::new(InMemory::new()), 1));
    for rule in rules {
        store.add(rule);
    }
    let storage = Storage::from_store(store.clone(), "faulty");
    (store, storage)
}

#[tokio::test]
async fn a_claim_without_trouble_is_one_request() {
    let (store, storage) = store_with([]);
    assert!(matches!(storage.claim(PATH, "x".into()).await.unwrap(), Claim::Ours));
    assert_eq!(store.operations().len(), 1);
}

#[tokio::test]
async fn a_store_that_never_answers_leaves_the_claim_unknown_after_a_few_tries() {
    let (store, storage) = store_with([Rule::new(Fault::ErrorBefore)]);
    let Claim::Unknown(error) = storage.claim(PATH, "x".into()).await.unwrap() else { panic!("it cannot know") };
    assert!(error.to_string().contains(PATH), "{error}");
    assert_eq!(store.count(OpKind::Create), 5);
}

#[tokio::test]
async fn a_refused_claim_is_an_error_because_nothing_can_have_happened() {
    let (store, storage) = store_with([Rule::new(Fault::Refuse)]);
    let error = storage.claim(PATH, "x".into()).await.unwrap_err();
    assert!(matches!(error, Error::Denied { operation: "claim", .. }), "{error}");
    assert!(error.to_string().contains("credentials"), "{error}");
    assert_eq!(store.count(OpKind::Create), 1);
}

#[tokio::test]
async fn a_process_that_dies_right_after_its_claim_has_claimed() {
    let (store, storage) = store_with([Rule::new(Fault::StopAfter).on(OpKind::Create)]);
    assert!(matches!(storage.claim(PATH, "x".into()).await.unwrap(), Claim::Unknown(_)));
    assert!(store.is_stopped());
    assert!(storage.get(PATH).await.is_err(), "a dead process reads nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn racing_claims_over_a_bad_network_still_have_one_winner() {
    for seed in 0..30 {
        let inner: Arc<InMemory> = Arc::default();
        let mut tasks = Vec::new();
        let mut stores = Vec::new();
        for claimant in 0..8u64 {
            let store = Arc::new(FaultStore::new(inner.clone(), seed * 100 + claimant));
            store.add(Rule::new(Fault::ErrorAfter).chance(0.2));
            store.add(Rule::new(Fault::ErrorBefore).chance(0.2));
            store.add(Rule::new(Fault::Late(2)).on(OpKind::Create).chance(0.2));
            let storage = Storage::from_store(store.clone(), "faulty");
            stores.push(store);
            let bytes = Bytes::from(format!("claimant {claimant}"));
            tasks.push(tokio::spawn(async move { (bytes.clone(), storage.claim(PATH, bytes).await.unwrap()) }));
        }
        let mut said = Vec::new();
        for task in tasks {
            said.push(task.await.unwrap());
        }
        for store in stores {
            store.settle().await;
        }
        let holds = Storage::from_store(inner, "quiet").get(PATH).await.ok();
        for (mine, claim) in &said {
            match claim {
                Claim::Ours => assert_eq!(Some(mine), holds.as_ref(), "seed {seed}: {said:?}"),
                Claim::Theirs(bytes) => assert_eq!(Some(bytes), holds.as_ref(), "seed {seed}: {said:?}"),
                Claim::Unknown(_) => {}
            }
        }
        assert!(said.iter().filter(|(_, c)| matches!(c, Claim::Ours)).count() <= 1, "seed {seed}: {said:?}");
    }
}
