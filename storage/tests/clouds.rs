//! What is sent to a cloud for what options and code say, and what its refusals become.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use forebay_storage::{Claim, Credential, Credentials, Error, Issued, Options, Storage};

use crate::web::{Answer, Web};

const KEY: &str = r#"{"private_key": "k", "private_key_id": "i", "client_email": "e", "disable_oauth": true}"#;

/// The three clouds at one server, by their URL and the options that reach it.
fn clouds(web: &Web) -> [(&'static str, Options); 3] {
    let at = || Options::new().with("max_retries", "0").with("endpoint", web.url.clone());
    let s3 = at().with("access_key_id", "id").with("secret_access_key", "secret").with("region", "r");
    let azure = at().with("account_name", "acc").with("account_key", "Zm9yZWJheQ==");
    [("s3://bucket/lake", s3), ("gs://bucket/lake", at().with("service_account_key", KEY)), ("az://bucket/lake", azure)]
}

#[tokio::test]
async fn encryption_and_who_pays_are_said_with_every_request_they_belong_to() {
    let web = Web::new(|request| match request.method.as_str() {
        "PUT" => Answer::new(200, "").with("etag", "\"1\""),
        _ => Answer::object(request, b"0123456789"),
    });
    let [(url, options), ..] = clouds(&web);
    let options = options
        .with("server_side_encryption", "aws:kms")
        .with("sse_kms_key_id", "key-7")
        .with("aws_sse_bucket_key_enabled", "true")
        .with("request_payer", "true");
    let storage = Storage::open(url, &options).unwrap();
    storage.put("x", "0123456789".into()).await.unwrap();
    assert!(matches!(storage.claim("y", "1".into()).await.unwrap(), Claim::Ours));
    assert_eq!(storage.get_range("x", 2..5).await.unwrap(), "234");
    let seen = web.seen();
    for request in &seen {
        assert_eq!(request.header("x-amz-request-payer"), Some("requester"), "{request:?}");
    }
    for put in &seen[..2] {
        assert_eq!(put.header("x-amz-server-side-encryption"), Some("aws:kms"));
        assert_eq!(put.header("x-amz-server-side-encryption-aws-kms-key-id"), Some("key-7"));
        assert_eq!(put.header("x-amz-server-side-encryption-bucket-key-enabled"), Some("true"));
    }
    assert_eq!((seen[1].header("if-none-match"), seen[2].header("range")), (Some("*"), Some("bytes=2-4")));
}

#[tokio::test]
async fn a_put_if_absent_is_conditional_in_each_clouds_own_words() {
    let web = Web::new(|_| Answer::new(201, "").with("etag", "\"1\"").with("x-goog-generation", "1"));
    for ((url, options), (header, value)) in clouds(&web).into_iter().zip([
        ("if-none-match", "*"),
        ("x-goog-if-generation-match", "0"),
        ("if-none-match", "*"),
    ]) {
        let storage = Storage::open(url, &options.with("user_project", "p")).unwrap();
        assert!(matches!(storage.claim("x", "1".into()).await.unwrap(), Claim::Ours));
        let request = web.seen().pop().unwrap();
        assert_eq!(request.header(header), Some(value), "{url}: {request:?}");
        assert_eq!(request.header("x-goog-user-project"), url.starts_with("gs").then_some("p"));
    }
}

#[tokio::test]
async fn each_cloud_says_typed_that_it_refuses() {
    let web = Web::new(|_| Answer::new(403, "<Error><Code>AccessDenied</Code></Error>"));
    for (url, options) in clouds(&web) {
        let storage = Storage::open(url, &options).unwrap();
        for error in [storage.get("a/x").await.unwrap_err(), storage.put("a/x", "1".into()).await.unwrap_err()] {
            assert!(matches!(&error, Error::Denied { path, .. } if path == "a/x"), "{url}: {error:?}");
            assert!(error.to_string().contains(url) && error.had_no_effect(), "{error}");
        }
    }
}

#[tokio::test]
async fn all_of_an_object_instead_of_a_range_is_a_mistake_that_may_pass_or_stays() {
    for mistakes in [2, 1000] {
        for cloud in 0..3 {
            let asked = AtomicUsize::new(0);
            let web = Web::new(move |request| {
                if asked.fetch_add(1, Ordering::Relaxed) < mistakes {
                    return Answer::new(200, "0123456789").with("etag", "\"1\"");
                }
                Answer::object(request, b"0123456789")
            });
            let (url, options) = clouds(&web)[cloud].clone();
            let storage = Storage::open(url, &options.with("max_retries", "5")).unwrap();
            match storage.get_range("x", 2..5).await {
                Ok(bytes) => assert_eq!((&bytes[..], mistakes), (&b"234"[..], 2), "{url}"),
                Err(error) => {
                    assert_eq!(mistakes, 1000, "{url}: {error}");
                    let said = error.to_string();
                    assert!(said.contains("200 with 10 bytes instead of the range"), "{said}");
                    assert!(said.contains("bytes 2..5") && said.contains("3 "), "{said}");
                }
            }
            assert_eq!(web.seen().len(), 3, "{url}");
        }
    }
}

#[tokio::test]
async fn a_bucket_that_is_not_there_is_told_from_an_object_that_is_not() {
    let web = Web::new(|request| {
        let azure = request.header("x-ms-version").is_some();
        match (azure, request.path().contains("missing")) {
            (true, true) => Answer::new(404, "").with("x-ms-error-code", "ContainerNotFound"),
            (true, false) => Answer::new(404, "").with("x-ms-error-code", "BlobNotFound"),
            (false, true) => Answer::new(404, "<?xml version='1.0'?><Error><Code>NoSuchBucket</Code></Error>"),
            (false, false) => Answer::new(404, "<?xml version='1.0'?><Error><Code>NoSuchKey</Code></Error>"),
        }
    });
    for (url, options) in clouds(&web) {
        assert!(Storage::open(url, &options).unwrap().get("x").await.unwrap_err().is_not_found(), "{url}");
        let missing = url.replace("bucket", "missing");
        let storage = Storage::open(&missing, &options).unwrap();
        for error in [storage.get("x").await.unwrap_err(), storage.claim("x", "1".into()).await.unwrap_err()] {
            assert!(matches!(error, Error::NoBucket { .. }) && !error.is_not_found(), "{url}: {error:?}");
            assert!(error.to_string().contains(&missing), "{error}");
        }
    }
}

/// Hands out a new credential each time, which holds for `life`.
#[derive(Debug)]
struct Broker {
    asked: AtomicUsize,
    life: Duration,
    make: fn(usize) -> Credential,
}

#[async_trait::async_trait]
impl Credentials for Broker {
    async fn issue(&self) -> Result<Issued, Box<dyn std::error::Error + Send + Sync>> {
        let credential = (self.make)(self.asked.fetch_add(1, Ordering::SeqCst));
        Ok(Issued { credential, expires: Some(SystemTime::now() + self.life) })
    }
}

#[tokio::test]
async fn credentials_from_code_sign_requests_and_are_renewed_when_they_expire() {
    let web = Web::new(|request| Answer::object(request, b"0123456789"));
    let make: [fn(usize) -> Credential; 3] = [
        |n| Credential::S3 {
            access_key_id: format!("id{n}"),
            secret_access_key: "s".into(),
            session_token: Some(format!("token{n}")),
        },
        |n| Credential::Bearer { token: format!("token{n}") },
        |n| Credential::AzureSas { sas_token: format!("?sv=1&sig=token{n}") },
    ];
    for (i, (url, _)) in clouds(&web).into_iter().enumerate() {
        for life in [Duration::ZERO, Duration::from_secs(3600)] {
            let broker = Arc::new(Broker { asked: AtomicUsize::new(0), life, make: make[i] });
            let options = Options::new().with("endpoint", web.url.clone()).with("account_name", "acc");
            let storage = Storage::builder(url).options(options).credentials(broker.clone()).open().unwrap();
            for round in 0..2 {
                storage.get("x").await.unwrap();
                let request = web.seen().pop().unwrap();
                let said = format!("{:?} {}", request.headers, request.target);
                let expected = if life.is_zero() { round } else { 0 };
                assert!(said.contains(&format!("token{expected}")), "{url} {round}: {said}");
            }
            assert_eq!(broker.asked.load(Ordering::SeqCst), if life.is_zero() { 2 } else { 1 }, "{url}");
        }
    }
}

#[tokio::test]
async fn a_credential_of_another_cloud_is_a_typed_error_that_shows_no_secret() {
    let web = Web::new(|_| Answer::new(500, ""));
    let [_, (url, _), _] = clouds(&web);
    let wrong =
        Credential::S3 { access_key_id: "hunter2".into(), secret_access_key: "hunter2".into(), session_token: None };
    let options = Options::new().with("endpoint", web.url.clone());
    let storage = Storage::builder(url).options(options).credentials(Arc::new(wrong)).open().unwrap();
    for error in [storage.get("x").await.unwrap_err(), storage.put("x", "1".into()).await.unwrap_err()] {
        assert!(matches!(error, Error::Credentials { .. }), "{error:?}");
        assert!(error.to_string().contains("a bearer token") && !format!("{error:?}").contains("hunter2"), "{error:?}");
    }
    assert!(web.seen().is_empty(), "nothing is sent without credentials");
}

#[tokio::test]
async fn a_web_server_is_read_by_name_and_nothing_else() {
    let web = Web::new(|request| match request.path() {
        "/files/my%20lake/data/x" => Answer::object(request, b"0123456789"),
        _ => Answer::new(404, "no"),
    });
    let options = Options::new().with("authorization", "Bearer hunter2");
    let storage = Storage::open(&format!("{}/files/my%20lake/", web.url), &options).unwrap();
    assert_eq!(storage.get("data/x").await.unwrap(), "0123456789");
    assert_eq!(storage.get_ranges("data/x", &[7..10, 1..3]).await.unwrap(), ["789", "12"]);
    assert_eq!(storage.head("data/x").await.unwrap().size, 10);
    assert!(matches!(storage.get_range("data/x", 5..11).await.unwrap_err(), Error::ShortRead { .. }));
    assert!(storage.get("data/y").await.unwrap_err().is_not_found());
    assert!(web.seen().iter().all(|request| request.header("authorization") == Some("Bearer hunter2")));
    let asked = web.seen().len();
    let refused = [
        storage.put("x", "1".into()).await.unwrap_err(),
        storage.claim("x", "1".into()).await.unwrap_err(),
        storage.delete("x").await.unwrap_err(),
        storage.writer("x").unwrap_err(),
    ];
    assert!(
        refused.iter().all(|error| matches!(error, Error::ReadOnly { .. }) && error.had_no_effect()),
        "{refused:?}"
    );
    assert!(matches!(storage.list("").await.unwrap_err(), Error::NoListing { .. }));
    assert!(matches!(storage.folders("").await.unwrap_err(), Error::NoListing { .. }));
    assert_eq!(web.seen().len(), asked, "what cannot be is not asked for");
    assert!(!format!("{storage:?} {options:?}").contains("hunter2"));
}

#[tokio::test]
async fn a_web_server_that_knows_no_ranges_is_an_error_and_not_a_whole_object() {
    let web = Web::new(|_| Answer::new(200, "0123456789").with("last-modified", "Sat, 28 Nov 2026 10:00:00 GMT"));
    let storage = Storage::open(&web.url, &Options::new()).unwrap();
    let error = storage.get_range("x", 2..4).await.unwrap_err();
    assert!(matches!(error, Error::Store { .. }), "{error:?}");
}

#[test]
fn wrong_urls_are_refused_when_opened_and_say_what_would_be_right() {
    for (url, hint) in [
        ("gs:///x", "gs://bucket"),
        ("az://", "az://container"),
        ("gs://key:secret@bucket", "credentials and the endpoint go into the options"),
        ("abfss://c@host/x", "account.dfs.core.windows.net"),
        ("abfss://c@.dfs.core.windows.net/x", "account.dfs.core.windows.net"),
        ("https://host/x?sig=1", "names one object"),
        ("ftp://host/x", "https://"),
    ] {
        let error = Storage::open(url, &Options::new()).unwrap_err();
        assert!(matches!(error, Error::InvalidUrl { .. }) && error.to_string().contains(hint), "{url}: {error}");
    }
    let error = Storage::open("https://me:hunter2@host/x", &Options::new()).unwrap_err();
    assert!(error.to_string().contains("authorization") && !format!("{error:?}").contains("hunter2"), "{error}");
}

#[test]
fn a_storages_url_opens_it_again() {
    let options = Options::new().with("anonymous", "true").with("account_name", "acc");
    for (url, same) in [
        ("gcs://b/p/", "gs://b/p"),
        ("azure://c/p", "az://c/p"),
        ("abfss://c@acc.dfs.core.windows.net/p/", "abfss://c@acc.dfs.core.windows.net/p"),
        ("https://host:8080/p/", "https://host:8080/p"),
    ] {
        let storage = Storage::open(url, &options).unwrap();
        assert_eq!(storage.url(), same);
        assert_eq!(Storage::open(storage.url(), &options).unwrap().url(), same);
    }
}
