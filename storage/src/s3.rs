//! S3 and what speaks like it: options and variables into clients.

use std::collections::HashMap;
use std::str::FromStr;
use std::sync::Arc;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey as Key};
use object_store::{ClientConfigKey, ClientOptions, ObjectStore, RetryConfig};

use crate::error::{Error, Result};
use crate::options::{Options, TUNING, Tuning, flag, is_secret};

/// Where a variable of the environment comes from; the real one, or a test's.
pub(crate) type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The process's own variables.
pub(crate) fn process_environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// The variables that are read, with the option each one stands for.
const VARIABLES: [(&str, Key); 15] = [
    ("AWS_ACCESS_KEY_ID", Key::AccessKeyId),
    ("AWS_SECRET_ACCESS_KEY", Key::SecretAccessKey),
    ("AWS_SESSION_TOKEN", Key::Token),
    ("AWS_DEFAULT_REGION", Key::Region),
    ("AWS_REGION", Key::Region),
    ("AWS_ENDPOINT_URL", Key::Endpoint),
    ("AWS_ENDPOINT_URL_S3", Key::Endpoint),
    ("AWS_WEB_IDENTITY_TOKEN_FILE", Key::WebIdentityTokenFile),
    ("AWS_ROLE_ARN", Key::RoleArn),
    ("AWS_ROLE_SESSION_NAME", Key::RoleSessionName),
    ("AWS_ENDPOINT_URL_STS", Key::StsEndpoint),
    ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", Key::ContainerCredentialsRelativeUri),
    ("AWS_CONTAINER_CREDENTIALS_FULL_URI", Key::ContainerCredentialsFullUri),
    ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", Key::ContainerAuthorizationTokenFile),
    ("AWS_SKIP_SIGNATURE", Key::SkipSignature),
];

/// Everything needed to make the clients of one bucket, again after a fork.
#[derive(Clone)]
pub(crate) struct Config {
    url: String,
    bucket: String,
    s3: HashMap<Key, String>,
    client: Vec<(ClientConfigKey, String)>,
    tuning: Tuning,
}

/// The two clients of a bucket.
pub(crate) struct Clients {
    /// Retries by itself.
    pub(crate) store: Arc<dyn ObjectStore>,
    /// Never retries, so that a claim knows how each of its requests ended.
    pub(crate) claims: Arc<dyn ObjectStore>,
}

/// Which kind of setting an option is.
enum Setting {
    S3(Key),
    Client(ClientConfigKey),
    Ours,
}

/// Looks an option up, whether or not it is of use to the storage at hand.
pub(crate) fn check_name(name: &str) -> Result<()> {
    setting(name).map(|_| ())
}

fn setting(name: &str) -> Result<Setting> {
    let bare = name.strip_prefix("aws_").unwrap_or(name);
    if TUNING.contains(&name) || matches!(name, "anonymous" | "metadata_service") {
        return Ok(Setting::Ours);
    }
    if let Ok(key) = ClientConfigKey::from_str(bare) {
        return Ok(Setting::Client(key));
    }
    match Key::from_str(name).or_else(|_| Key::from_str(bare)) {
        // Client settings come through here too, wrapped.
        Ok(Key::Client(key)) => Ok(Setting::Client(key)),
        // The bucket is part of the URL, and the region has two names.
        Ok(Key::DefaultRegion) => Ok(Setting::S3(Key::Region)),
        Ok(Key::S3Endpoint) => Ok(Setting::S3(Key::Endpoint)),
        Ok(key) if key != Key::Bucket => Ok(Setting::S3(key)),
        _ => Err(Error::UnknownOption {
            option: name.to_owned(),
            hint: format!(
                "known are {}, anonymous, metadata_service, endpoint, region, access_key_id, secret_access_key, \
                 session_token, allow_http and the other S3 and HTTP client options of object_store",
                TUNING.join(", ")
            ),
        }),
    }
}

impl Config {
    /// Puts options over variables and checks that something says who is asking.
    pub(crate) fn new(
        url: &str,
        bucket: &str,
        options: &Options,
        tuning: Tuning,
        environment: Environment<'_>,
    ) -> Result<Self> {
        let mut s3 = HashMap::new();
        for (name, key) in VARIABLES {
            if let Some(value) = environment(name).filter(|v| !v.trim().is_empty()) {
                s3.insert(key, value);
            }
        }
        let mut client = Vec::new();
        if let Some(value) = environment("AWS_ALLOW_HTTP") {
            client.push((ClientConfigKey::AllowHttp, value));
        }
        // Credentials belong together: a key from the options never meets a secret or a token from the variables.
        let credentials = [Key::AccessKeyId, Key::SecretAccessKey, Key::Token];
        let given: Vec<Key> = options
            .iter()
            .filter_map(|(name, _)| match setting(name) {
                Ok(Setting::S3(key)) => Some(key),
                _ => None,
            })
            .collect();
        if credentials.iter().any(|key| given.contains(key)) {
            credentials.iter().for_each(|key| drop(s3.remove(key)));
        }
        for (name, value) in options.iter() {
            match setting(name)? {
                Setting::S3(key) => drop(s3.insert(key, value.to_owned())),
                Setting::Client(key) => client.push((key, value.to_owned())),
                Setting::Ours => {}
            }
        }
        if flag(options, "anonymous")? {
            s3.insert(Key::SkipSignature, "true".to_owned());
        }
        if s3.get(&Key::Endpoint).is_some_and(|e| e.trim().to_ascii_lowercase().starts_with("http://")) {
            client.push((ClientConfigKey::AllowHttp, "true".to_owned()));
        }
        check_endpoint(&s3)?;
        check_credentials(url, &s3, flag(options, "metadata_service")?, environment)?;
        Ok(Self { url: url.to_owned(), bucket: bucket.to_owned(), s3, client, tuning })
    }

    /// Makes the clients; no request is sent.
    pub(crate) fn clients(&self) -> Result<Clients> {
        let once = RetryConfig { max_retries: 0, ..Default::default() };
        let retries = RetryConfig {
            max_retries: self.tuning.max_retries,
            retry_timeout: self.tuning.retry_timeout,
            ..Default::default()
        };
        Ok(Clients { store: self.client(retries)?, claims: self.client(once)? })
    }

    fn client(&self, retries: RetryConfig) -> Result<Arc<dyn ObjectStore>> {
        // As many idle connections are kept as requests may be in flight, so that a burst reuses all of them.
        let mut options = ClientOptions::new()
            .with_http1_only()
            .with_timeout(self.tuning.timeout)
            .with_connect_timeout(self.tuning.connect_timeout)
            .with_pool_max_idle_per_host(self.tuning.concurrency);
        for (key, value) in &self.client {
            options = options.with_config(*key, value);
        }
        let mut builder =
            AmazonS3Builder::new().with_bucket_name(&self.bucket).with_client_options(options).with_retry(retries);
        for (key, value) in &self.s3 {
            builder = builder.with_config(*key, value);
        }
        let store = builder.build().map_err(|e| self.unusable(&e))?;
        Ok(Arc::new(store))
    }

    fn unusable(&self, error: &object_store::Error) -> Error {
        Error::InvalidUrl { url: self.url.clone(), reason: error.to_string() }
    }
}

fn check_endpoint(s3: &HashMap<Key, String>) -> Result<()> {
    let Some(endpoint) = s3.get(&Key::Endpoint) else { return Ok(()) };
    let usable = url::Url::parse(endpoint.trim()).is_ok_and(|u| matches!(u.scheme(), "http" | "https") && u.has_host());
    if usable {
        return Ok(());
    }
    Err(Error::InvalidOption {
        option: "endpoint".to_owned(),
        value: endpoint.clone(),
        reason: "give a URL like https://host:port or http://host:port".to_owned(),
    })
}

/// Makes sure that the clients will not end up asking a metadata service that may not be there, which takes minutes.
fn check_credentials(
    url: &str,
    s3: &HashMap<Key, String>,
    metadata_service: bool,
    environment: Environment<'_>,
) -> Result<()> {
    let has = |key: Key| s3.get(&key).is_some_and(|v| !v.trim().is_empty());
    let skip = s3
        .get(&Key::SkipSignature)
        .is_some_and(|v| matches!(v.to_ascii_lowercase().as_str(), "true" | "1" | "yes" | "on" | "y" | "t"));
    let missing = |hint: &str| Err(Error::NoCredentials { url: url.to_owned(), hint: hint.to_owned() });
    match (has(Key::AccessKeyId), has(Key::SecretAccessKey)) {
        (true, true) => return Ok(()),
        _ if skip => return Ok(()),
        (true, false) => {
            return missing(
                "an access key is given without its secret; set the option secret_access_key or the variable AWS_SECRET_ACCESS_KEY",
            );
        }
        (false, true) => {
            return missing(
                "a secret is given without its access key; set the option access_key_id or the variable AWS_ACCESS_KEY_ID",
            );
        }
        (false, false) => {}
    }
    let web_identity = has(Key::WebIdentityTokenFile) && has(Key::RoleArn);
    let container = has(Key::ContainerCredentialsRelativeUri)
        || (has(Key::ContainerCredentialsFullUri) && has(Key::ContainerAuthorizationTokenFile));
    if web_identity || container || metadata_service || has(Key::MetadataEndpoint) {
        return Ok(());
    }
    let profile = match environment("AWS_PROFILE") {
        Some(name) if !name.is_empty() => format!(
            "; AWS_PROFILE is set to `{name}`, but profile files are not read: run \
             `eval \"$(aws configure export-credentials --profile {name} --format env)\"` first"
        ),
        _ => String::new(),
    };
    missing(&format!(
        "set the variables AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (or the options access_key_id and \
         secret_access_key), or anonymous=true for a public bucket, or metadata_service=true on a cloud machine with a \
         role{profile}"
    ))
}

/// Shows no secrets.
impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shown = self.s3.iter().map(|(key, value)| {
            let name = key.as_ref();
            (name, if is_secret(name) { "***" } else { value.as_str() })
        });
        f.debug_map().entries(shown).finish()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::Storage;

    fn open(options: &[(&str, &str)], variables: &[(&str, &str)]) -> Result<Storage> {
        let environment = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
        Storage::open_in("s3://bucket/lake", &options.iter().copied().collect(), &environment)
    }

    fn config(options: &[(&str, &str)], variables: &[(&str, &str)]) -> HashMap<Key, String> {
        let environment = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
        let options = options.iter().copied().collect();
        Config::new("s3://bucket/lake", "bucket", &options, Tuning::REMOTE, &environment).unwrap().s3
    }

    const KEYS: [(&str, &str); 2] = [("AWS_ACCESS_KEY_ID", "a"), ("AWS_SECRET_ACCESS_KEY", "s")];

    #[test]
    fn without_credentials_opening_fails_at_once_and_says_what_to_set() {
        let error = open(&[], &[]).unwrap_err();
        assert!(matches!(error, Error::NoCredentials { .. }));
        for hint in ["s3://bucket/lake", "AWS_ACCESS_KEY_ID", "secret_access_key", "anonymous=true", "metadata_service"]
        {
            assert!(error.to_string().contains(hint), "{error}");
        }
        // An empty variable is none.
        assert!(open(&[], &[("AWS_ACCESS_KEY_ID", ""), ("AWS_SECRET_ACCESS_KEY", " ")]).is_err());
    }

    #[test]
    fn a_profile_is_named_as_what_is_not_read() {
        let error = open(&[], &[("AWS_PROFILE", "work")]).unwrap_err().to_string();
        assert!(error.contains("AWS_PROFILE is set to `work`") && error.contains("export-credentials"), "{error}");
    }

    #[test]
    fn half_of_a_pair_of_keys_is_named() {
        for (given, missing) in [("access_key_id", "secret_access_key"), ("secret_access_key", "access_key_id")] {
            let error = open(&[(given, "x")], &[]).unwrap_err();
            assert!(matches!(error, Error::NoCredentials { .. }));
            assert!(error.to_string().contains(&format!("set the option {missing}")), "{error}");
        }
    }

    #[test]
    fn everything_that_says_who_asks_is_enough() {
        let token = [("AWS_WEB_IDENTITY_TOKEN_FILE", "/t"), ("AWS_ROLE_ARN", "arn")];
        let container =
            [("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://x"), ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "/t")];
        for variables in [&KEYS, &token, &container] {
            assert!(open(&[], variables).is_ok(), "{variables:?}");
        }
        assert!(open(&[], &[("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/x")]).is_ok());
        for option in [("anonymous", "true"), ("skip_signature", "true"), ("metadata_service", "yes")] {
            assert!(open(&[option], &[]).is_ok(), "{option:?}");
        }
        for option in [("anonymous", "false"), ("metadata_service", "no")] {
            assert!(open(&[option], &[]).is_err(), "{option:?}");
        }
        assert!(matches!(open(&[("anonymous", "maybe")], &[]), Err(Error::InvalidOption { .. })));
    }

    #[test]
    fn options_go_over_variables_and_credentials_are_never_mixed() {
        let variables =
            [KEYS[0], KEYS[1], ("AWS_SESSION_TOKEN", "t"), ("AWS_REGION", "one"), ("AWS_DEFAULT_REGION", "two")];
        let found = config(&[("access_key_id", "b"), ("aws_secret_access_key", "c")], &variables);
        assert_eq!(found.get(&Key::AccessKeyId).unwrap(), "b");
        assert_eq!(found.get(&Key::SecretAccessKey).unwrap(), "c");
        assert_eq!(found.get(&Key::Token), None, "a token belongs to the key it was issued with");
        assert_eq!(found.get(&Key::Region).unwrap(), "one");
        assert_eq!(config(&[("region", "three")], &variables).get(&Key::Region).unwrap(), "three");
        assert!(open(&[("access_key_id", "b")], &variables).is_err(), "its secret is missing");
    }

    #[test]
    fn the_endpoint_comes_from_the_option_then_the_variable_of_s3_then_the_common_one() {
        let common = ("AWS_ENDPOINT_URL", "https://common");
        let own = ("AWS_ENDPOINT_URL_S3", "http://own:9000");
        let endpoint = |options, variables: &[_]| {
            let variables: Vec<_> = KEYS.into_iter().chain(variables.iter().copied()).collect();
            config(options, &variables).remove(&Key::Endpoint)
        };
        assert_eq!(endpoint(&[], &[common]).as_deref(), Some("https://common"));
        assert_eq!(endpoint(&[], &[common, own]).as_deref(), Some("http://own:9000"));
        assert_eq!(endpoint(&[("endpoint", "https://option")], &[common, own]).as_deref(), Some("https://option"));
        assert_eq!(endpoint(&[("endpoint_url", "https://option")], &[]).as_deref(), Some("https://option"));
    }

    #[test]
    fn what_debug_shows_holds_no_secret() {
        let environment = |_: &str| None;
        let options: Options =
            [("access_key_id", "hunter2"), ("secret_access_key", "hunter2"), ("region", "eu")].into_iter().collect();
        let config = Config::new("s3://b", "b", &options, Tuning::REMOTE, &environment).unwrap();
        let shown = format!("{config:?}");
        assert!(!shown.contains("hunter2") && shown.contains("eu"), "{shown}");
    }
}
