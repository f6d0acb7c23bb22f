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
    vec![local(), memory(), wrapped()].into_iter().chain(servers()).collect()
}

/// One empty storage on each server that there is.
#[cfg(not(feature = "server-tests"))]
pub(crate) fn servers() -> Vec<Fresh> {
    Vec::new()
}

/// One empty storage on each server that there is.
#[cfg(feature = "server-tests")]
pub(crate) fn servers() -> Vec<Fresh> {
    let mut servers = vec![s3(), seaweed(), google()];
    match azure() {
        Some(azure) => servers.push(azure),
        None => eprintln!("FOREBAY_TEST_AZURE is not set: nothing is shown of Azure"),
    }
    servers
}

#[cfg(feature = "server-tests")]
fn fresh(kind: &'static str, url: &str, options: Options) -> Fresh {
    let storage = Storage::open(&format!("{url}/{}", uuid::Uuid::new_v4()), &options).unwrap();
    Fresh { storage, kind, _folder: None }
}

#[cfg(feature = "server-tests")]
fn server(variable: &str) -> String {
    std::env::var(variable)
        .unwrap_or_else(|_| panic!("set {variable} to the URL of a server, as cargo xtask test does"))
}

#[cfg(feature = "server-tests")]
fn seaweed() -> Fresh {
    fresh("seaweed", "s3://forebay-test", s3_options().with("endpoint", server("FOREBAY_TEST_SEAWEED")))
}

#[cfg(feature = "server-tests")]
fn google() -> Fresh {
    const KEY: &str = r#"{"private_key": "k", "private_key_id": "i", "client_email": "e", "disable_oauth": true}"#;
    let options = Options::new().with("endpoint", server("FOREBAY_TEST_GOOGLE")).with("service_account_key", KEY);
    fresh("google", "gs://forebay-test", options)
}

/// Azurite, if there is one, with the account and the key that every Azurite has.
#[cfg(feature = "server-tests")]
fn azure() -> Option<Fresh> {
    const KEY: &str = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";
    let endpoint = std::env::var("FOREBAY_TEST_AZURE").ok()?;
    let options = Options::new()
        .with("endpoint", format!("{endpoint}/devstoreaccount1"))
        .with("account_name", "devstoreaccount1")
        .with("account_key", KEY);
    Some(fresh("azure", "az://forebay-test", options))
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

#[cfg(feature = "server-tests")]
pub(crate) fn s3() -> Fresh {
    fresh("s3", "s3://forebay-test", s3_options())
}

#[cfg(feature = "server-tests")]
pub(crate) fn s3_url() -> String {
    format!("s3://forebay-test/{}", uuid::Uuid::new_v4())
}

#[cfg(feature = "server-tests")]
pub(crate) fn s3_options() -> Options {
    let endpoint = server("FOREBAY_TEST_S3");
    Options::new()
        .with("endpoint", endpoint)
        .with("region", "us-east-1")
        .with("access_key_id", "test")
        .with("secret_access_key", "test")
}
