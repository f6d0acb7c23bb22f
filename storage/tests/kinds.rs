//! The kinds of storage that the conformance tests run over.

use forebay_storage::{Options, Storage};
use tempfile::TempDir;

/// An empty storage of some kind, and what must outlive it.
pub(crate) struct Fresh {
    pub(crate) storage: Storage,
    pub(crate) kind: &'static str,
    _folder: Option<TempDir>,
}

/// One empty storage of each kind that can be had here.
pub(crate) fn all() -> Vec<Fresh> {
    vec![
        local(),
        memory(),
        wrapped(),
        #[cfg(feature = "s3-tests")]
        s3(),
    ]
}

pub(crate) fn local() -> Fresh {
    let folder = tempfile::tempdir().unwrap();
    // The root does not exist yet and has characters that URLs treat specially.
    let root = folder.path().join("my lake #1 100%");
    let storage = Storage::open(root.to_str().unwrap(), &Options::new()).unwrap();
    Fresh { storage, kind: "local", _folder: Some(folder) }
}

pub(crate) fn memory() -> Fresh {
    let name = uuid::Uuid::new_v4();
    let storage = Storage::open(&format!("memory://{name}/some/prefix"), &Options::new()).unwrap();
    Fresh { storage, kind: "memory", _folder: None }
}

/// The local store behind nothing but the `ObjectStore` trait.
pub(crate) fn wrapped() -> Fresh {
    let Fresh { storage, _folder, .. } = local();
    let storage = Storage::from_store(storage.store().unwrap(), "wrapped");
    Fresh { storage, kind: "wrapped", _folder }
}

#[cfg(feature = "s3-tests")]
pub(crate) fn s3() -> Fresh {
    let storage = Storage::open(&s3_url(), &s3_options()).unwrap();
    Fresh { storage, kind: "s3", _folder: None }
}

#[cfg(feature = "s3-tests")]
pub(crate) fn s3_url() -> String {
    format!("s3://forebay-test/{}", uuid::Uuid::new_v4())
}

#[cfg(feature = "s3-tests")]
pub(crate) fn s3_options() -> Options {
    let endpoint = std::env::var("FOREBAY_TEST_S3").expect("set FOREBAY_TEST_S3 to the URL of a moto server");
    Options::new()
        .with("endpoint", endpoint)
        .with("region", "us-east-1")
        .with("access_key_id", "test")
        .with("secret_access_key", "test")
}
