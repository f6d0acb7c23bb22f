//! Several places with the same objects.

use forebay_storage::{Error, Options, Storage};
use tempfile::TempDir;

use crate::web::{Answer, Web};

const BYTES: &[u8] = b"0123456789";

/// A folder with one object.
async fn folder(bytes: &'static [u8]) -> (TempDir, Storage) {
    let folder = tempfile::tempdir().unwrap();
    let storage = Storage::open(folder.path().to_str().unwrap(), &Options::new()).unwrap();
    storage.put("data/x", bytes.into()).await.unwrap();
    (folder, storage)
}

fn open(url: &str, mirrors: &[&str], options: Options) -> Storage {
    Storage::builder(url).mirrors(mirrors.iter().copied()).options(options).open().unwrap()
}

fn in_order() -> Options {
    Options::new().with("mirror_order", "first").with("retry_timeout", "5s").with("connect_timeout", "1s")
}

#[tokio::test]
async fn a_place_that_is_down_is_left_for_one_that_works_at_once_and_stats_say_so() {
    let (at, _) = folder(BYTES).await;
    let up = Web::new(|request| match request.path() {
        "/data/x" => Answer::object(request, BYTES),
        _ => Answer::new(404, ""),
    });
    let down = Web::new(|_| Answer::new(500, "no"));
    for mirror in [up.url.as_str(), at.path().to_str().unwrap()] {
        let storage = open(&down.url, &[mirror], in_order());
        for _ in 0..5 {
            assert_eq!(storage.get_range("data/x", 2..5).await.unwrap(), "234");
        }
        assert_eq!(storage.get("data/x").await.unwrap(), BYTES, "also what may change, while nothing else answers");
        assert!(storage.get("refs/1").await.unwrap_err().is_not_found(), "a lake is then as the mirror has it");
        let stats = storage.stats();
        assert_eq!(stats.mirrors.len(), 2);
        assert!(stats.mirrors[0].failures >= 1 && stats.mirrors[0].reads == 0, "{stats:?}");
        assert!(stats.mirrors[1].healthy && stats.mirrors[1].reads == 6, "{stats:?}");
        assert!(stats.fell_back >= 1 && stats.retries == 0, "{stats:?}");
    }
}

#[tokio::test]
async fn a_mirror_that_lags_or_is_down_makes_nothing_missing() {
    let (_empty, lagging) = folder(BYTES).await;
    lagging.delete("data/x").await.unwrap();
    let (at, _) = folder(BYTES).await;
    let storage = open(lagging.url(), &[at.path().to_str().unwrap()], in_order());
    let error = storage.get_range("data/x", 0..5).await.unwrap_err();
    assert!(error.is_not_found(), "the storage's own word counts: {error}");

    let down = Web::new(|_| Answer::new(500, "no"));
    let storage = open(&down.url, &[lagging.url()], in_order().with("max_retries", "1"));
    let error = storage.get_range("data/x", 0..5).await.unwrap_err();
    assert!(matches!(error, Error::Store { .. }) && !error.is_not_found(), "{error:?}");
}

#[tokio::test]
async fn wrong_bytes_are_told_by_the_reader_and_come_from_elsewhere_then() {
    let (wrong_at, wrong) = folder(b"0123x56789").await;
    let (right_at, right) = folder(BYTES).await;
    let storage = open(wrong_at.path().to_str().unwrap(), &[right_at.path().to_str().unwrap()], in_order());
    assert_eq!(storage.get_range("data/x", 0..10).await.unwrap(), "0123x56789");
    assert_eq!(storage.distrust("data/x").as_deref(), Some(wrong.url()));
    assert_eq!(storage.get_range("data/x", 0..10).await.unwrap(), BYTES);
    assert_eq!(storage.stats().mirrors[0].distrusted, 1);
    assert_eq!(storage.distrust("data/x").as_deref(), Some(right.url()));
}

#[tokio::test]
async fn writes_go_to_the_storage_itself() {
    let (at, first) = folder(BYTES).await;
    let (other, second) = folder(BYTES).await;
    let storage = open(at.path().to_str().unwrap(), &[other.path().to_str().unwrap()], Options::new());
    storage.put("data/y", "new".into()).await.unwrap();
    assert_eq!(first.get("data/y").await.unwrap(), "new");
    assert!(second.get("data/y").await.unwrap_err().is_not_found());
    assert_eq!(storage.get("data/y").await.unwrap(), "new");
}

#[tokio::test]
async fn mirrors_are_named_by_an_option_as_well() {
    let (at, _) = folder(BYTES).await;
    let (other, _) = folder(BYTES).await;
    let down = Web::new(|_| Answer::new(500, "no"));
    let named = format!("{}, {}", at.path().display(), other.path().display());
    let storage = Storage::builder(&down.url).options(in_order().with("mirrors", named)).open().unwrap();
    assert_eq!(storage.get_range("data/x", 2..5).await.unwrap(), "234");
    assert_eq!(storage.stats().mirrors.len(), 3);
    assert!(matches!(Storage::open(&down.url, &in_order().with("mirrors", "ftp://x")), Err(Error::InvalidUrl { .. })));
}
