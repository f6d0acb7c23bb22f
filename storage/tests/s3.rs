//! S3 beyond what every storage does: connecting, and failing to.

use std::time::{Duration, Instant};

use forebay_storage::{Error, Storage};

use crate::kinds::{s3, s3_options, s3_url};

#[tokio::test]
async fn prefixes_keep_storages_of_one_bucket_apart() {
    let (a, b) = (s3(), s3());
    a.storage.put("x", "a".into()).await.unwrap();
    assert!(b.storage.get("x").await.unwrap_err().is_not_found());
    let longer = Storage::open(&format!("{}x", a.storage.url()), &s3_options()).unwrap();
    longer.put("y", "y".into()).await.unwrap();
    assert_eq!(a.storage.list("").await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_bucket_that_does_not_exist_is_an_error_that_names_it() {
    let storage = Storage::open("s3://no-such-bucket-forebay/lake", &s3_options()).unwrap();
    let error = storage.put("x", "x".into()).await.unwrap_err();
    assert!(error.to_string().contains("no-such-bucket-forebay"), "{error}");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_an_error_soon() {
    let options = s3_options().with("endpoint", "http://127.0.0.1:9").with("max_retries", "1");
    let storage = Storage::open(&s3_url(), &options).unwrap();
    let start = Instant::now();
    let error = storage.get("x").await.unwrap_err();
    assert!(matches!(error, Error::Store { operation: "read", .. }) && error.had_no_effect(), "{error}");
    let claim = storage.claim("x", "x".into()).await;
    assert!(claim.is_err(), "no connection was made, so nothing can have happened: {claim:?}");
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
}

#[tokio::test]
async fn reads_that_hang_end_in_an_error() {
    // It accepts connections and never answers.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let options = s3_options().with("endpoint", endpoint).with("timeout", "200ms").with("max_retries", "2");
    let storage = Storage::open(&s3_url(), &options).unwrap();
    let start = Instant::now();
    assert!(storage.get_range("x", 0..10).await.is_err());
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
}

#[test]
fn many_readers_share_a_storage_across_runtimes() {
    let fresh = s3();
    let storage = fresh.storage.clone();
    let runtime = forebay_storage::runtime().unwrap();
    runtime.block_on(storage.put("x", vec![3; 100_000].into())).unwrap();
    let threads: Vec<_> = (0..8u64)
        .map(|i| {
            let storage = storage.clone();
            std::thread::spawn(move || {
                let runtime = forebay_storage::runtime().unwrap();
                let ranges: Vec<_> = (0..4).map(|k| i * 1000 + k * 10..i * 1000 + k * 10 + 5).collect();
                runtime.block_on(storage.get_ranges("x", &ranges)).unwrap()
            })
        })
        .collect();
    for thread in threads {
        assert!(thread.join().unwrap().iter().all(|b| b == &vec![3u8; 5]));
    }
}

#[test]
fn wrong_endpoints_are_refused_when_opened() {
    for endpoint in ["localhost:9000", "ftp://host", "http://", "not a url"] {
        let error = Storage::open(&s3_url(), &s3_options().with("endpoint", endpoint)).unwrap_err();
        assert!(matches!(&error, Error::InvalidOption { option, .. } if option == "endpoint"), "{endpoint}: {error}");
    }
}
