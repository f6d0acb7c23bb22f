//! The same on real servers, whose URLs are in `FOREBAY_TEST_S3` and `FOREBAY_TEST_AZURE`; `cargo xtask test` starts them.

use forebay_storage::{Options, Storage};

use crate::processes::{commits, race};

/// The account that every Azurite has, and its key, which is no secret: Microsoft's documentation prints it.
const ACCOUNT: (&str, &str) =
    ("devstoreaccount1", "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==");

/// Sixteen processes on one branch of a new lake. They are programs of their own: they take everything from the environment, as
/// users' programs do.
fn sixteen(scheme: &str, options: &Options, variables: &[(&str, &str)]) {
    let url = format!("{scheme}://forebay-test/race-{}", uuid::Uuid::new_v4());
    race(Storage::open(&url, options).unwrap(), variables, 16, commits(4, 20), 3);
}

#[test]
fn sixteen_processes_on_s3_lose_and_double_no_row_on_one_branch() {
    let endpoint = std::env::var("FOREBAY_TEST_S3").expect("FOREBAY_TEST_S3 names an S3 server: run cargo xtask test");
    let options = Options::new()
        .with("endpoint", &endpoint)
        .with("access_key_id", "test")
        .with("secret_access_key", "test")
        .with("region", "us-east-1");
    let variables = [
        ("AWS_ENDPOINT_URL", endpoint.as_str()),
        ("AWS_ACCESS_KEY_ID", "test"),
        ("AWS_SECRET_ACCESS_KEY", "test"),
        ("AWS_REGION", "us-east-1"),
    ];
    sixteen("s3", &options, &variables);
}

#[test]
fn sixteen_processes_on_azurite_lose_and_double_no_row_on_one_branch() {
    let Ok(server) = std::env::var("FOREBAY_TEST_AZURE") else {
        return println!("FOREBAY_TEST_AZURE is not set: nothing is shown of Azure");
    };
    let (name, key) = ACCOUNT;
    let endpoint = format!("{server}/{name}");
    let options = Options::new().with("endpoint", &endpoint).with("account_name", name).with("account_key", key);
    let variables = [
        ("AZURE_STORAGE_ACCOUNT_NAME", name),
        ("AZURE_STORAGE_ACCOUNT_KEY", key),
        ("AZURE_STORAGE_ENDPOINT", endpoint.as_str()),
    ];
    sixteen("az", &options, &variables);
}
