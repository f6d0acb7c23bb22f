//! Google Cloud Storage.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use object_store::client::CredentialProvider;
use object_store::gcp::{GcpCredential, GoogleCloudStorageBuilder, GoogleConfigKey as Key};
use object_store::{ClientConfigKey, ObjectStore};

use super::{Asked, Cloud, Making, Setting, Settings, client_setting, show};
use crate::credentials::{Credential, Renewed};
use crate::error::Result;
use crate::options::flag;

/// The variables that are read, with the option each one stands for.
const VARIABLES: [(&str, Key); 6] = [
    ("GOOGLE_SERVICE_ACCOUNT", Key::ServiceAccount),
    ("GOOGLE_SERVICE_ACCOUNT_PATH", Key::ServiceAccount),
    ("GOOGLE_SERVICE_ACCOUNT_KEY", Key::ServiceAccountKey),
    ("GOOGLE_APPLICATION_CREDENTIALS", Key::ApplicationCredentials),
    ("STORAGE_EMULATOR_HOST", Key::BaseUrl),
    ("GOOGLE_BASE_URL", Key::BaseUrl),
];

/// One of them says who is asking: a second one from elsewhere would contradict it.
const CREDENTIALS: [Key; 3] = [Key::ServiceAccount, Key::ServiceAccountKey, Key::ApplicationCredentials];

/// A bucket and what is said about it.
pub(super) struct Bucket {
    name: String,
    own: HashMap<Key, String>,
}

/// The setting that an option stands for, if it is one of Google's.
pub(super) fn setting(name: &str) -> Option<Setting<Key>> {
    let bare = ["google_", "gcs_", "gcp_"].iter().find_map(|front| name.strip_prefix(front)).unwrap_or(name);
    if let Some(client) = client_setting(bare) {
        return Some(client);
    }
    if matches!(bare, "endpoint" | "endpoint_url") {
        return Some(Setting::Own(Key::BaseUrl));
    }
    match Key::from_str(name).or_else(|_| Key::from_str(bare)) {
        Ok(Key::Client(key)) => Some(Setting::Client(key)),
        Ok(Key::Bucket) | Err(_) => None,
        Ok(key) => Some(Setting::Own(key)),
    }
}

impl Bucket {
    /// Puts options over variables and checks that something says who is asking.
    pub(super) fn new(asked: &Asked<'_>, name: &str) -> Result<(Self, Vec<(ClientConfigKey, String)>)> {
        let mut settings = Settings::gather(asked, &VARIABLES, &CREDENTIALS, setting);
        // The variable of the emulators names a host, often without saying that it speaks plain HTTP.
        if let Some(base) = settings.get(Key::BaseUrl).filter(|base| !base.contains("://")) {
            let base = format!("http://{base}");
            settings.set(Key::BaseUrl, base);
        }
        if flag(asked.options, "anonymous")? {
            settings.set(Key::SkipSignature, "true");
        }
        settings.check_endpoint(Key::BaseUrl)?;
        if settings.has(Key::ServiceAccount) && settings.has(Key::ServiceAccountKey) {
            return asked.missing("both a service account's file and its key are given; leave one out");
        }
        if !asked.credentials && !says_who(asked, &settings)? {
            return asked.missing(
                "set the variable GOOGLE_APPLICATION_CREDENTIALS to the file of a service account, or the option \
                 service_account (a file) or service_account_key (its content), or run `gcloud auth \
                 application-default login`, or anonymous=true for a public bucket, or metadata_service=true on a \
                 machine of Google's",
            );
        }
        let (own, client) = settings.split();
        Ok((Self { name: name.to_owned(), own }, client))
    }
}

fn says_who(asked: &Asked<'_>, settings: &Settings<Key>) -> Result<bool> {
    let login = (asked.environment)("HOME").is_some_and(|home| {
        std::path::Path::new(&home).join(".config/gcloud/application_default_credentials.json").is_file()
    });
    let given = CREDENTIALS.iter().any(|key| settings.has(*key));
    Ok(given || login || settings.yes(Key::SkipSignature) || flag(asked.options, "metadata_service")?)
}

impl Cloud for Bucket {
    fn client(&self, making: Making) -> object_store::Result<Arc<dyn ObjectStore>> {
        let mut builder = GoogleCloudStorageBuilder::new()
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
    type Credential = GcpCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<GcpCredential>> {
        match self.0.current().await? {
            Credential::Bearer { token } => Ok(Arc::new(GcpCredential { bearer: token })),
            other => Err(self.0.unfit(&other, "a bearer token")),
        }
    }
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
    use crate::{Error, Storage};

    const KEY: &str = r#"{"private_key": "k", "private_key_id": "i", "client_email": "e", "disable_oauth": true}"#;

    fn open(options: &[(&str, &str)], variables: &[(&str, &str)]) -> Result<Storage> {
        let environment = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
        Storage::builder("gs://bucket/lake").options(options.iter().copied().collect()).open_in(&environment)
    }

    #[test]
    fn without_credentials_opening_fails_at_once_and_says_what_to_set() {
        let error = open(&[], &[]).unwrap_err();
        assert!(matches!(error, Error::NoCredentials { .. }));
        for hint in ["gs://bucket/lake", "GOOGLE_APPLICATION_CREDENTIALS", "service_account_key", "anonymous=true"] {
            assert!(error.to_string().contains(hint), "{error}");
        }
    }

    #[test]
    fn everything_that_says_who_asks_is_enough() {
        assert!(open(&[("service_account_key", KEY)], &[]).is_ok());
        assert!(open(&[("google_service_account_key", KEY)], &[]).is_ok());
        assert!(open(&[], &[("GOOGLE_SERVICE_ACCOUNT_KEY", KEY)]).is_ok());
        for option in [("anonymous", "true"), ("skip_signature", "true"), ("metadata_service", "yes")] {
            assert!(open(&[option], &[]).is_ok(), "{option:?}");
        }
    }

    #[test]
    fn a_file_of_credentials_that_is_not_there_is_named() {
        let error = open(&[], &[("GOOGLE_APPLICATION_CREDENTIALS", "/no/such/key.json")]).unwrap_err();
        assert!(error.to_string().contains("/no/such/key.json"), "{error}");
    }

    #[test]
    fn a_key_from_the_options_never_meets_a_file_from_the_variables() {
        let file = ("GOOGLE_APPLICATION_CREDENTIALS", "/no/such/key.json");
        assert!(open(&[("service_account_key", KEY)], &[file]).is_ok());
    }

    #[test]
    fn the_emulators_variable_may_leave_the_scheme_out() {
        let environment = |name: &str| (name == "STORAGE_EMULATOR_HOST").then(|| "localhost:4443".to_owned());
        let options = [("anonymous", "true")].into_iter().collect();
        let asked = Asked { url: "gs://b", options: &options, environment: &environment, credentials: false };
        let (bucket, client) = Bucket::new(&asked, "b").unwrap();
        assert_eq!(bucket.own[&Key::BaseUrl], "http://localhost:4443");
        assert!(client.contains(&(ClientConfigKey::AllowHttp, "true".to_owned())));
    }
}
