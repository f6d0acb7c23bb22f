//! Every way to ask wrongly, and the error that says so.

use forebay_storage::{Error, Options, Storage};

fn open(url: &str) -> Result<Storage, Error> {
    Storage::open(url, &Options::new())
}

#[test]
fn urls_that_mean_nothing_are_refused_with_a_reason() {
    for (url, hint) in [
        ("", "empty"),
        ("  ", "empty"),
        ("gs://bucket/x", "not supported"),
        ("http://host/x", "not supported"),
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
