//! Objects that others may replace: what is read is of the version named, or an error that says what changed.

use std::sync::Arc;

use bytes::Bytes;
use forebay_storage::object_store::memory::InMemory;
use forebay_storage::testing::{Fault, FaultStore, OpKind, Rule};
use forebay_storage::{Entry, Error, Options, Storage, Version};

fn version(entry: &Entry) -> Version {
    Version { size: entry.size, etag: entry.etag.clone() }
}

/// A store of one object, and its version.
async fn remote(options: &[(&str, &str)]) -> (Arc<FaultStore>, Storage, Version) {
    let store = Arc::new(FaultStore::new(Arc::new(InMemory::new()), 7));
    let storage = Storage::from_remote_store(store.clone(), "cloud", &options.iter().copied().collect()).unwrap();
    storage.put("a/x", Bytes::from_static(b"0123456789")).await.unwrap();
    let version = version(&storage.head("a/x").await.unwrap());
    store.clear();
    (store, storage, version)
}

async fn two(storage: &Storage, version: &Version) -> Result<Vec<Bytes>, Error> {
    storage.get_ranges_of("a/x", version, &[7..10, 0..2]).await
}

fn changed(found: Result<impl std::fmt::Debug, Error>) -> String {
    match found {
        Err(error @ Error::Changed { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn an_object_that_was_replaced_is_an_error_that_says_how_and_is_not_asked_again() {
    let (store, storage, old) = remote(&[]).await;
    assert_eq!(two(&storage, &old).await.unwrap(), ["789", "01"]);
    assert_eq!(store.count(OpKind::Get), 1, "neighbours come together");
    storage.check("a/x", &old).await.unwrap();

    storage.put("a/x", Bytes::from_static(b"9876543210")).await.unwrap();
    store.clear();
    let error = changed(two(&storage, &old).await);
    assert!(error.contains("`a/x` in cloud changed: its etag is '1' and was '0'"), "{error}");
    assert_eq!((store.count(OpKind::Get), storage.stats().retries), (1, 0));
    changed(storage.check("a/x", &old).await);
    assert_eq!(two(&storage, &Version { etag: None, ..old.clone() }).await.unwrap(), ["210", "98"]);

    // Shorter than what is asked for, in part and as a whole.
    for short in ["98765432", "9876", ""] {
        storage.put("a/x", Bytes::from_static(short.as_bytes())).await.unwrap();
        let error = changed(two(&storage, &Version { etag: None, ..old.clone() }).await);
        assert!(error.contains(&format!("it has {} bytes and had 10", short.len())), "{error}");
    }
    changed(storage.get_ranges_of("a/x", &old, &[3..3]).await);
    storage.delete("a/x").await.unwrap();
    assert!(two(&storage, &old).await.unwrap_err().is_not_found());
    assert!(storage.get_ranges_of("a/x", &old, &[3..3]).await.unwrap_err().is_not_found(), "also of no bytes");
}

#[tokio::test]
async fn failures_that_pass_are_tried_again() {
    for fault in [Fault::ErrorBefore, Fault::Truncate(None), Fault::Break(None), Fault::Throttle] {
        let (store, storage, version) = remote(&[("max_retries", "40")]).await;
        store.add(Rule::new(fault).on(OpKind::Get).chance(0.5));
        for _ in 0..4 {
            assert_eq!(two(&storage, &version).await.unwrap(), ["789", "01"], "{fault:?}");
        }
        assert!(storage.stats().retries > 0, "{fault:?}");
    }
}

#[tokio::test]
async fn a_cache_keeps_versions_apart_and_what_has_no_etag_not_at_all() {
    let (store, storage, old) = remote(&[("cache_memory", "1MiB")]).await;
    for _ in 0..2 {
        assert_eq!(two(&storage, &old).await.unwrap(), ["789", "01"]);
    }
    assert_eq!(store.count(OpKind::Get), 1);
    storage.put("a/x", Bytes::from_static(b"9876543210")).await.unwrap();
    let new = version(&storage.head("a/x").await.unwrap());
    assert_eq!(two(&storage, &new).await.unwrap(), ["210", "98"]);
    assert_eq!(two(&storage, &old).await.unwrap(), ["789", "01"], "as it was");
    store.clear();
    for _ in 0..2 {
        two(&storage, &Version { etag: None, ..new.clone() }).await.unwrap();
    }
    assert_eq!(store.count(OpKind::Get), 2);
}

#[tokio::test]
async fn a_file_is_known_by_its_etag() {
    let folder = tempfile::tempdir().unwrap();
    let storage = Storage::open(folder.path().to_str().unwrap(), &Options::new()).unwrap();
    storage.put("a/x", Bytes::from_static(b"0123456789")).await.unwrap();
    let old = version(&storage.list("a").await.unwrap()[0]);
    assert!(old.etag.is_some());
    assert_eq!(two(&storage, &old).await.unwrap(), ["789", "01"]);
    storage.put("a/x", Bytes::from_static(b"9876543210")).await.unwrap();
    changed(two(&storage, &old).await);
    std::fs::remove_file(folder.path().join("a/x")).unwrap();
    assert!(two(&storage, &old).await.unwrap_err().is_not_found());
}

#[tokio::test]
async fn a_url_names_an_object_below_the_root_and_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let local = Storage::open(path, &Options::new()).unwrap();
    let keys = [("access_key_id", "a"), ("secret_access_key", "b")];
    let s3 = Storage::open("s3://bucket/photos/", &keys.iter().copied().collect()).unwrap();
    let web = Storage::open("https://host.org/photos", &Options::new()).unwrap();
    let memory = Storage::open("memory://names/photos", &Options::new()).unwrap();
    for (storage, url, name) in [
        (&local, format!("{path}/a/ä b.jpg"), Some("a/ä b.jpg")),
        (&local, format!("file://{path}/a/%C3%A4%20b.jpg"), Some("a/ä b.jpg")),
        (&local, "/etc/passwd".into(), None),
        (&local, format!("{path}-other/x"), None),
        (&s3, "s3://bucket/photos/a/b 1.jpg".into(), Some("a/b 1.jpg")),
        (&s3, "s3a://bucket/photos/a.jpg".into(), Some("a.jpg")),
        (&s3, "s3://bucket/photo/a.jpg".into(), None),
        (&s3, "s3://bucket2/photos/a.jpg".into(), None),
        (&s3, "gs://bucket/photos/a.jpg".into(), None),
        (&s3, "https://bucket/photos/a.jpg".into(), None),
        (&web, "https://host.org/photos/a b.jpg".into(), Some("a b.jpg")),
        (&web, "http://host.org/photos/a.jpg".into(), None),
        (&web, "https://host.org.evil/photos/a.jpg".into(), None),
        (&memory, "memory://names/photos/a.jpg".into(), Some("a.jpg")),
        (&memory, "memory://names/a.jpg".into(), None),
        (&memory, "no url".into(), None),
    ] {
        assert_eq!(storage.name_of(&url).unwrap().as_deref(), name, "{url}");
    }
    for url in [format!("{path}/a/../../x"), format!("{path}/"), format!("{path}//x")] {
        assert!(matches!(local.name_of(&url), Err(Error::InvalidPath { .. })), "{url}");
    }
    assert!(s3.name_of("s3://bucket/photos/../secret").is_err());
}
