//! Every way to ask wrongly, and the error that says so.

use forebay_storage::{Error, Options, Storage, configure_runtime, runtime};

fn open(url: &str) -> Result<Storage, Error> {
    Storage::open(url, &Options::new())
}

#[test]
fn urls_that_mean_nothing_are_refused_with_a_reason() {
    for (url, hint) in [
        ("", "empty"),
        ("  ", "empty"),
        ("ftp://bucket/x", "not supported"),
        ("hdfs://host/x", "not supported"),
        ("s3://", "name the bucket"),
        ("s3:///prefix", "name the bucket"),
        ("s3://user:pass@host/x", "options"),
        ("s3://bucket/a//b", "empty"),
        ("s3://bucket/../b", ".."),
        ("memory://", "name the store"),
        ("file://relative/path", "absolute"),
        ("file:///a?b", "%3F"),
    ] {
        let error = open(url).unwrap_err();
        assert!(matches!(error, Error::InvalidUrl { .. }), "{url}: {error:?}");
        assert!(error.to_string().contains(hint), "{url}: {error}");
    }
}

#[test]
fn the_same_folder_is_meant_by_its_path_and_its_url() {
    let folder = tempfile::tempdir().unwrap();
    let plain = folder.path().join("a b#1");
    let url = format!("file://{}/a%20b%231", folder.path().display());
    assert_eq!(open(&url).unwrap().local(), Some(plain.as_path()));
    assert_eq!(open(plain.to_str().unwrap()).unwrap().local(), Some(plain.as_path()));
    assert_eq!(open(open(&url).unwrap().url()).unwrap().local(), Some(plain.as_path()));
    assert!(open("some/relative").unwrap().local().unwrap().is_absolute());
    assert!(!plain.exists(), "opening makes nothing");
}

#[test]
fn names_that_cannot_be_objects_are_refused() {
    let storage = open("memory://names").unwrap();
    for name in ["", "/", "a/", "/a", "a//b", "..", "a/../b", "./a", "a\nb", "data/x#12"] {
        let error = storage.writer(name).unwrap_err();
        assert!(matches!(error, Error::InvalidPath { .. }), "{name:?}: {error:?}");
    }
}

#[test]
fn options_are_checked_when_the_storage_is_opened() {
    for (name, value, hint) in [
        ("concurency", "4", "known are"),
        ("bucket", "x", "known are"),
        ("concurrency", "0", "from 1"),
        ("concurrency", "many", "whole number"),
        ("part_size", "1000", "5242880"),
        ("timeout", "soon", "30s"),
        ("timeout", "-1", "30s"),
        ("timeout", "0", "30s"),
        ("retry_timeout", "1e300", "30s"),
    ] {
        for url in ["memory://options", "some/folder"] {
            let error = Storage::open(url, &Options::new().with(name, value)).unwrap_err();
            let expected = matches!(error, Error::UnknownOption { .. } | Error::InvalidOption { .. });
            assert!(expected && error.to_string().contains(hint) && error.to_string().contains(name), "{error}");
        }
    }
    let options: Options = [
        ("Concurrency", "1_000"),
        ("timeout", "500ms"),
        ("retry_timeout", "2m"),
        ("connect_timeout", "7"),
        ("aws_access_key_id", "of use to S3 only"),
        ("ENDPOINT", "http://host"),
        ("allow_http", "true"),
    ]
    .into_iter()
    .collect();
    assert_eq!(Storage::open("memory://options", &options).unwrap().concurrency(), 1000);
}

#[test]
fn options_do_not_show_secrets() {
    let options =
        Options::new().with("secret_access_key", "hunter2").with("session_token", "hunter2").with("region", "eu");
    let shown = format!("{options:?}");
    assert!(!shown.contains("hunter2") && shown.contains("eu"), "{shown}");
}

#[test]
fn the_runtime_is_configured_before_its_first_use_or_not_at_all() {
    assert!(matches!(configure_runtime(0).unwrap_err(), Error::InvalidOption { .. }));
    let handle = runtime().unwrap();
    assert_eq!(handle.block_on(async { 7 }), 7);
    assert!(matches!(configure_runtime(3).unwrap_err(), Error::RuntimeStarted));
}
