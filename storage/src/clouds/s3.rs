//! S3 and what speaks like it.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey as Key, AwsCredential};
use object_store::client::CredentialProvider;
use object_store::{ClientConfigKey, ObjectStore};

use super::{Asked, Cloud, Making, Setting, Settings, client_setting, show};
use crate::credentials::{Credential, Renewed};
use crate::error::Result;
use crate::options::flag;

/// The variables that are read, with the option each one stands for.
const VARIABLES: [(&str, Key); 16] = [
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
    ("AWS_REQUEST_PAYER", Key::RequestPayer),
];

/// What belongs together: see [`Settings::gather`].
const CREDENTIALS: [Key; 3] = [Key::AccessKeyId, Key::SecretAccessKey, Key::Token];

/// A bucket and what is said about it.
pub(super) struct Bucket {
    name: String,
    own: HashMap<Key, String>,
}

/// The setting that an option stands for, if it is one of S3's.
pub(super) fn setting(name: &str) -> Option<Setting<Key>> {
    let bare = name.strip_prefix("aws_").unwrap_or(name);
    if let Some(client) = client_setting(bare) {
        return Some(client);
    }
    match Key::from_str(name).or_else(|_| Key::from_str(bare)) {
        // Client settings come through here too, wrapped.
        Ok(Key::Client(key)) => Some(Setting::Client(key)),
        // The bucket is part of the URL, and the region has two names.
        Ok(Key::DefaultRegion) => Some(Setting::Own(Key::Region)),
        Ok(Key::S3Endpoint) => Some(Setting::Own(Key::Endpoint)),
        Ok(key) if key != Key::Bucket => Some(Setting::Own(key)),
        _ => None,
    }
}

impl Bucket {
    /// Puts options over variables and checks that something says who is asking.
    pub(super) fn new(asked: &Asked<'_>, name: &str) -> Result<(Self, Vec<(ClientConfigKey, String)>)> {
        let mut settings = Settings::gather(asked, &VARIABLES, &CREDENTIALS, setting);
        if let Some(value) = (asked.environment)("AWS_ALLOW_HTTP") {
            settings.client.insert(0, (ClientConfigKey::AllowHttp, value));
        }
        if flag(asked.options, "anonymous")? {
            settings.set(Key::SkipSignature, "true");
        }
        settings.check_endpoint(Key::Endpoint)?;
        if !asked.credentials {
            check_credentials(asked, &settings)?;
        }
        let (own, client) = settings.split();
        Ok((Self { name: name.to_owned(), own }, client))
    }
}

impl Cloud for Bucket {
    fn client(&self, making: Making) -> object_store::Result<Arc<dyn ObjectStore>> {
        let mut builder = AmazonS3Builder::new()
            .with_bucket_name(&self.name)
            .with_client_options(making.options)
            .with_retry(making.retry)
            .with_http_connector(making.connector);
        for (key, value) in &self.own {
            builder = builder.with_config(*key, value);
        }
        if let Some(renewed) = making.credentials {
            builder = builder.with_credentials(Arc::new(Given(renewed)));
        }
        Ok(Arc::new(builder.build()?))
    }
}

/// Credentials from code.
#[derive(Debug)]
struct Given(Arc<Renewed>);

#[async_trait::async_trait]
impl CredentialProvider for Given {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AwsCredential>> {
        match self.0.current().await? {
            Credential::S3 { access_key_id, secret_access_key, session_token } => Ok(Arc::new(AwsCredential {
                key_id: access_key_id,
                secret_key: secret_access_key,
                token: session_token,
            })),
            other => Err(self.0.unfit(&other, "an access key id and its secret")),
        }
    }
}

/// Makes sure that the clients will not end up asking a metadata service that may not be there, which takes minutes.
fn check_credentials(asked: &Asked<'_>, settings: &Settings<Key>) -> Result<()> {
    let has = |key| settings.has(key);
    match (has(Key::AccessKeyId), has(Key::SecretAccessKey)) {
        (true, true) => return Ok(()),
        _ if settings.yes(Key::SkipSignature) => return Ok(()),
        (true, false) => {
            return asked.missing(
                "an access key is given without its secret; set the option secret_access_key or the variable AWS_SECRET_ACCESS_KEY",
            );
        }
        (false, true) => {
            return asked.missing(
                "a secret is given without its access key; set the option access_key_id or the variable AWS_ACCESS_KEY_ID",
            );
        }
        (false, false) => {}
    }
    let web_identity = has(Key::WebIdentityTokenFile) && has(Key::RoleArn);
    let container = has(Key::ContainerCredentialsRelativeUri)
        || (has(Key::ContainerCredentialsFullUri) && has(Key::ContainerAuthorizationTokenFile));
    if web_identity || container || flag(asked.options, "metadata_service")? || has(Key::MetadataEndpoint) {
        return Ok(());
    }
    let profile = match (asked.environment)("AWS_PROFILE") {
        Some(name) if !name.is_empty() => format!(
            "; AWS_PROFILE is set to `{name}`, but profile files are not read: run \
             `eval \"$(aws configure export-credentials --profile {name} --format env)\"` first"
        ),
        _ => String::new(),
    };
    asked.missing(format!(
        "set the variables AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (or the options access_key_id and \
         secret_access_key), or anonymous=true for a public bucket, or metadata_service=true on a cloud machine with a \
         role{profile}"
    ))
}

/// Shows no secrets.
impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show(f, &self.own)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{Error, Options, Storage};

    fn open(options: &[(&str, &str)], variables: &[(&str, &str)]) -> Result<Storage> {
        let environment = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
        Storage::builder("s3://bucket/lake").options(options.iter().copied().collect()).open_in(&environment)
    }

    fn config(options: &[(&str, &str)], variables: &[(&str, &str)]) -> HashMap<Key, String> {
        let environment = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
        let options = options.iter().copied().collect();
        let asked = Asked { url: "s3://bucket/lake", options: &options, environment: &environment, credentials: false };
        Bucket::new(&asked, "bucket").unwrap().0.own
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
        let options: Options =
            [("access_key_id", "hunter2"), ("secret_access_key", "hunter2"), ("region", "eu")].into_iter().collect();
        let asked = Asked { url: "s3://b", options: &options, environment: &|_| None, credentials: false };
        let shown = format!("{:?}", Bucket::new(&asked, "b").unwrap().0);
        assert!(!shown.contains("hunter2") && shown.contains("eu"), "{shown}");
    }
}
