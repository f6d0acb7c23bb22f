//! Stores across a network: what options and variables of each cloud mean, and the clients they make.

mod azure;
mod google;
mod http;
mod s3;
mod service;

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::str::FromStr;
use std::sync::Arc;

use object_store::{ClientConfigKey, ClientOptions, ObjectStore, RetryConfig};

use crate::credentials::{Credentials, Renewed};
use crate::error::{Error, Result};
use crate::location::Remote;
use crate::options::{OWN, Options, Tuning, is_secret};
use service::Connector;
pub(crate) use service::Rejected;

/// Where a variable of the environment comes from; the real one, or a test's.
pub(crate) type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The process's own variables.
pub(crate) fn process_environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// What the makers of a client are given.
pub(crate) struct Making {
    pub(crate) options: ClientOptions,
    pub(crate) retry: RetryConfig,
    pub(crate) connector: Connector,
    /// Credentials given in code, which go before all others.
    pub(crate) credentials: Option<Arc<Renewed>>,
}

/// A bucket, a container or a site: everything that makes a client of it, again after a fork.
pub(crate) trait Cloud: fmt::Debug + Send + Sync {
    /// Makes a client; no request is sent.
    fn client(&self, making: Making) -> object_store::Result<Arc<dyn ObjectStore>>;
}

/// Everything needed to make the clients of a remote storage, again after a fork.
#[derive(Debug)]
pub(crate) struct Config {
    url: String,
    cloud: Box<dyn Cloud>,
    client: Vec<(ClientConfigKey, String)>,
    headers: http::Headers,
    tuning: Tuning,
    credentials: Option<Arc<dyn Credentials>>,
}

/// The two clients of a remote storage.
pub(crate) struct Clients {
    /// Retries by itself.
    pub(crate) store: Arc<dyn ObjectStore>,
    /// Never retries, so that a claim knows how each of its requests ended, and reads are retried by the engine.
    pub(crate) once: Arc<dyn ObjectStore>,
}

/// What is said about a remote storage.
pub(crate) struct Asked<'a> {
    pub(crate) url: &'a str,
    pub(crate) options: &'a Options,
    pub(crate) environment: Environment<'a>,
    /// Whether credentials are given in code, so that none need to be found.
    pub(crate) credentials: bool,
}

impl Asked<'_> {
    pub(crate) fn missing<T>(&self, hint: impl Into<String>) -> Result<T> {
        Err(Error::NoCredentials { url: self.url.to_owned(), hint: hint.into() })
    }
}

impl Config {
    /// Puts options over variables and checks that something says who is asking.
    pub(crate) fn new(
        asked: &Asked<'_>,
        remote: &Remote,
        tuning: Tuning,
        credentials: Option<Arc<dyn Credentials>>,
    ) -> Result<Self> {
        let (cloud, client): (Box<dyn Cloud>, _) = match remote {
            Remote::S3 { bucket } => boxed(s3::Bucket::new(asked, bucket)?),
            Remote::Google { bucket } => boxed(google::Bucket::new(asked, bucket)?),
            Remote::Azure { account, container } => boxed(azure::Container::new(asked, account.as_deref(), container)?),
            Remote::Http { base } => boxed(http::Site::new(asked, base)?),
        };
        let headers = http::headers(asked, remote)?;
        Ok(Self { url: asked.url.to_owned(), cloud, client, headers, tuning, credentials })
    }

    /// Makes the clients; no request is sent.
    pub(crate) fn clients(&self) -> Result<Clients> {
        let once = RetryConfig { max_retries: 0, ..Default::default() };
        let retries = RetryConfig {
            max_retries: self.tuning.max_retries,
            retry_timeout: self.tuning.retry_timeout,
            ..Default::default()
        };
        let credentials = self.credentials.clone().map(|source| Arc::new(Renewed::new(&self.url, source)));
        Ok(Clients { store: self.client(retries, credentials.clone())?, once: self.client(once, credentials)? })
    }

    fn client(&self, retry: RetryConfig, credentials: Option<Arc<Renewed>>) -> Result<Arc<dyn ObjectStore>> {
        // As many idle connections are kept as requests may be in flight, so that a burst reuses all of them.
        let mut options = ClientOptions::new()
            .with_http1_only()
            .with_timeout(self.tuning.timeout)
            .with_connect_timeout(self.tuning.connect_timeout)
            .with_pool_max_idle_per_host(self.tuning.most_requests())
            .with_default_headers(self.headers.0.clone());
        for (key, value) in &self.client {
            options = options.with_config(*key, value);
        }
        let connector = Connector { retries: retry.max_retries > 0 };
        let making = Making { options, retry, connector, credentials };
        let made = self.cloud.client(making);
        made.map_err(|error| Error::InvalidUrl { url: self.url.clone(), reason: error.to_string() })
    }
}

fn boxed<C: Cloud + 'static>(
    (cloud, client): (C, Vec<(ClientConfigKey, String)>),
) -> (Box<dyn Cloud>, Vec<(ClientConfigKey, String)>) {
    (Box::new(cloud), client)
}

/// Looks an option up, whether or not it is of use to the storage at hand.
pub(crate) fn check_name(name: &str) -> Result<()> {
    let known = OWN.contains(&name)
        || s3::setting(name).is_some()
        || google::setting(name).is_some()
        || azure::setting(name).is_some();
    if known {
        return Ok(());
    }
    Err(Error::UnknownOption {
        option: name.to_owned(),
        hint: format!(
            "known are {}, endpoint, region, access_key_id, secret_access_key, session_token, service_account_key, \
             account_name, account_key, sas_token, allow_http and the other options of object_store's clients for S3, \
             Google and Azure",
            OWN.join(", ")
        ),
    })
}

/// Which kind of setting an option is.
pub(crate) enum Setting<K> {
    Own(K),
    Client(ClientConfigKey),
}

/// The settings of one cloud, by its own keys, and those of any HTTP client.
pub(crate) struct Settings<K> {
    own: HashMap<K, String>,
    pub(crate) client: Vec<(ClientConfigKey, String)>,
}

impl<K: Copy + Eq + Hash + 'static> Settings<K> {
    /// Puts options over variables; of several variables for one key the last one counts.
    ///
    /// `credentials` belong together: one that is given as an option never meets another one from a variable.
    pub(crate) fn gather(
        asked: &Asked<'_>,
        variables: &[(&str, K)],
        credentials: &[K],
        setting: impl Fn(&str) -> Option<Setting<K>>,
    ) -> Self {
        let mut own = HashMap::new();
        for (name, key) in variables {
            if let Some(value) = (asked.environment)(name).filter(|value| !value.trim().is_empty()) {
                own.insert(*key, value);
            }
        }
        let given = asked.options.iter().filter(|(name, _)| !OWN.contains(name));
        let given: Vec<_> = given.filter_map(|(name, value)| setting(name).map(|key| (key, value))).collect();
        if given.iter().any(|(key, _)| matches!(key, Setting::Own(key) if credentials.contains(key))) {
            credentials.iter().for_each(|key| drop(own.remove(key)));
        }
        let mut client = Vec::new();
        for (key, value) in given {
            match key {
                Setting::Own(key) => drop(own.insert(key, value.to_owned())),
                Setting::Client(key) => client.push((key, value.to_owned())),
            }
        }
        Self { own, client }
    }

    pub(crate) fn get(&self, key: K) -> Option<&str> {
        self.own.get(&key).map(String::as_str)
    }

    /// Whether there is a value that says something.
    pub(crate) fn has(&self, key: K) -> bool {
        self.get(key).is_some_and(|value| !value.trim().is_empty())
    }

    /// Whether there is a value that says yes.
    pub(crate) fn yes(&self, key: K) -> bool {
        self.get(key)
            .is_some_and(|v| matches!(v.to_ascii_lowercase().as_str(), "true" | "1" | "yes" | "on" | "y" | "t"))
    }

    pub(crate) fn set(&mut self, key: K, value: impl Into<String>) {
        self.own.insert(key, value.into());
    }

    /// Checks that the endpoint is a URL, and allows plain HTTP when it says so.
    pub(crate) fn check_endpoint(&mut self, key: K) -> Result<()> {
        let Some(endpoint) = self.get(key).map(|endpoint| endpoint.trim().to_owned()) else { return Ok(()) };
        let usable = url::Url::parse(&endpoint).is_ok_and(|u| matches!(u.scheme(), "http" | "https") && u.has_host());
        if !usable {
            return Err(Error::InvalidOption {
                option: "endpoint".to_owned(),
                value: endpoint,
                reason: "give a URL like https://host:port or http://host:port".to_owned(),
            });
        }
        if endpoint.to_ascii_lowercase().starts_with("http://") {
            self.client.push((ClientConfigKey::AllowHttp, "true".to_owned()));
        }
        Ok(())
    }

    /// The settings of the cloud itself, and apart from them those of the HTTP client.
    pub(crate) fn split(self) -> (HashMap<K, String>, Vec<(ClientConfigKey, String)>) {
        (self.own, self.client)
    }
}

/// A setting of any HTTP client, by its name without what its cloud puts in front.
pub(crate) fn client_setting<K>(bare: &str) -> Option<Setting<K>> {
    ClientConfigKey::from_str(bare).ok().map(Setting::Client)
}

/// Shows settings, and of secrets only that they are there.
pub(crate) fn show<K: AsRef<str>>(f: &mut fmt::Formatter<'_>, own: &HashMap<K, String>) -> fmt::Result {
    let shown = own.iter().map(|(key, value)| {
        let name = key.as_ref();
        (name, if is_secret(name) { "***" } else { value.as_str() })
    });
    f.debug_map().entries(shown).finish()
}
