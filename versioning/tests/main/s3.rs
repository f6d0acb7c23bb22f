//! The same on a real S3 server, whose URL is in `FOREBAY_TEST_S3`; `cargo xtask test` starts one.

use forebay_storage::{Options, Storage};

use crate::processes::{commits, race};

#[test]
fn sixteen_processes_on_s3_lose_and_double_no_row_on_one_branch() {
    let endpoint = std::env::var("FOREBAY_TEST_S3").expect("FOREBAY_TEST_S3 names an S3 server: run cargo xtask test");
    let url = format!("s3://forebay-test/race-{}", uuid::Uuid::new_v4());
    let options = Options::new()
        .with("endpoint", &endpoint)
        .with("access_key_id", "test")
        .with("secret_access_key", "test")
        .with("region", "us-east-1");
    // The writers are programs of their own: they take everything from the environment, as users' programs do.
    let variables = [
        ("AWS_ENDPOINT_URL", endpoint.as_str()),
        ("AWS_ACCESS_KEY_ID", "test"),
        ("AWS_SECRET_ACCESS_KEY", "test"),
        ("AWS_REGION", "us-east-1"),
    ];
    race(Storage::open(&url, &options).unwrap(), &variables, 16, commits(4, 20), 3);
}
