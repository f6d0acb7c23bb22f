//! The options of a storage: strings by name, checked when the storage is opened.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::cache::Sizes;
use crate::error::{Error, Result};
use crate::plan::Limits;

/// Options by name, as a user or a configuration file gives them.
///
/// | option | meaning | default |
/// |---|---|---|
/// | `concurrency` | requests in flight at once: a number, or `auto` to find where more bring no more, from 32 to 256 | auto |
/// | `hedge` | `true`: ask a second time when an answer is later than nearly all, for at most 2% more bytes | true |
/// | `cache_memory` | bytes of what was read across a network that are kept in memory: `4GiB`, `500MB` or a number | 0 |
/// | `cache_dir` | a folder on a local disk that keeps what was read across a network, shared by the processes of a machine | none |
/// | `cache_size` | bytes that the folder may hold | 100 GiB |
/// | `mirrors` | URLs of other places that hold the same objects, with spaces or commas between: as [`StorageBuilder::mirrors`](crate::StorageBuilder::mirrors) | none |
/// | `mirror_order` | `nearest` or `first`: which mirror is read from, of those that work | nearest |
/// | `coalesce_gap` | ranges at most this many bytes apart are read together | 256 KiB remote, 16 KiB local |
/// | `read_size` | longest single read, bytes | 8 MiB |
/// | `part_size` | bytes of one part of an upload, at least 5 MiB | 8 MiB |
/// | `parts_in_flight` | parts of one upload on their way at once | 6 |
/// | `timeout` | time for one request, `30s`, `500ms` or seconds | 30s |
/// | `connect_timeout` | time to connect | 5s |
/// | `retry_timeout` | no retry starts after this time | 60s |
/// | `max_retries` | retries of one request; 0 for none | 8 |
/// | `anonymous` | `true`: do not sign requests | false |
/// | `metadata_service` | `true`: ask the instance metadata service for credentials | false |
/// | `authorization` | what a web server is sent as the header of that name | none |
/// | `user_project` | the project that pays for requests to Google | none |
/// | `connection_string` | Azure's account, key and endpoint in one | `AZURE_STORAGE_CONNECTION_STRING` |
/// | `endpoint`, `region`, `access_key_id`, `secret_access_key`, `session_token`, `request_payer`, `server_side_encryption`, `sse_kms_key_id`, ... | every option of [`object_store::aws::AmazonS3ConfigKey`], with or without `aws_` in front | the `AWS_*` variables |
/// | `endpoint`, `service_account`, `service_account_key`, `application_credentials`, ... | every option of [`object_store::gcp::GoogleConfigKey`], with or without `google_` in front | the `GOOGLE_*` variables |
/// | `endpoint`, `account_name`, `account_key`, `sas_token`, `bearer_token`, `client_id`, `tenant_id`, `client_secret`, ... | every option of [`object_store::azure::AzureConfigKey`], with or without `azure_` or `azure_storage_` in front | the `AZURE_*` variables |
/// | `allow_http`, `proxy_url`, ... | every option of [`object_store::ClientConfigKey`] | none |
///
/// Names are not case-sensitive. Options of other kinds of storage are accepted and have no effect, so that one set of
/// options serves all URLs of a program; a name that nobody knows is an error everywhere.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Options(BTreeMap<String, String>);

impl Options {
    /// No options: the defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// These options with one more; a later value replaces an earlier one.
    #[must_use]
    pub fn with(mut self, name: impl AsRef<str>, value: impl Into<String>) -> Self {
        self.0.insert(name.as_ref().trim().to_ascii_lowercase(), value.into());
        self
    }

    /// The value of an option, if it was given.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Every option, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(k, v)| (k.as_str(), v.as_str()))
    }
}

impl<K: AsRef<str>, V: Into<String>> FromIterator<(K, V)> for Options {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(iter: I) -> Self {
        iter.into_iter().fold(Self::new(), |options, (k, v)| options.with(k, v))
    }
}

impl From<BTreeMap<String, String>> for Options {
    fn from(map: BTreeMap<String, String>) -> Self {
        map.into_iter().collect()
    }
}

/// Shows the names and those values that are not secret.
impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter().map(|(k, v)| (k, if is_secret(k) { "***" } else { v }))).finish()
    }
}

/// Whether the value of this option must not be shown.
pub(crate) fn is_secret(name: &str) -> bool {
    ["secret", "token", "password", "key", "sas", "authorization", "connection_string"]
        .iter()
        .any(|part| name.contains(part))
}

/// The names of options that are ours, and no cloud's.
pub(crate) const OWN: [&str; 20] = [
    "cache_memory",
    "cache_dir",
    "cache_size",
    "hedge",
    "mirrors",
    "mirror_order",
    "anonymous",
    "metadata_service",
    "authorization",
    "user_project",
    "connection_string",
    "concurrency",
    "coalesce_gap",
    "read_size",
    "part_size",
    "parts_in_flight",
    "timeout",
    "connect_timeout",
    "retry_timeout",
    "max_retries",
];

/// How a storage uses its store: the numbers, checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tuning {
    /// Whether there is a network between.
    pub(crate) remote: bool,
    pub(crate) concurrency: Concurrency,
    pub(crate) hedge: bool,
    /// Of several sources, whether the nearest is read from, and not the first in the order given.
    pub(crate) nearest: bool,
    pub(crate) limits: Limits,
    pub(crate) part_size: usize,
    pub(crate) parts_in_flight: usize,
    pub(crate) timeout: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) retry_timeout: Duration,
    pub(crate) max_retries: usize,
    /// The most that the first wait before another attempt of a read takes; it doubles.
    pub(crate) retry_wait: Duration,
    /// The wait before a claim is tried again; it triples each time.
    pub(crate) claim_backoff: Duration,
}

/// How many requests are in flight at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Concurrency {
    Fixed(usize),
    /// As many as bring more, found while reading.
    Auto,
}

impl Concurrency {
    /// What may be found.
    pub(crate) const BOUNDS: std::ops::RangeInclusive<usize> = 32..=256;

    /// The most, where the search starts: a first batch, of as many rows in as many places, must not wait for it.
    pub(crate) fn most(self) -> usize {
        match self {
            Self::Fixed(n) => n,
            Self::Auto => *Self::BOUNDS.end(),
        }
    }
}

/// The smallest part that S3 takes, the last one of an upload aside.
const SMALLEST_PART: u64 = 5 << 20;

impl Tuning {
    /// The defaults for a store across a network.
    pub(crate) const REMOTE: Self = Self {
        remote: true,
        concurrency: Concurrency::Auto,
        hedge: true,
        nearest: true,
        limits: Limits { gap: 256 << 10, max: 8 << 20 },
        part_size: 8 << 20,
        parts_in_flight: 6,
        timeout: Duration::from_secs(30),
        connect_timeout: Duration::from_secs(5),
        retry_timeout: Duration::from_secs(60),
        max_retries: 8,
        retry_wait: Duration::from_millis(100),
        claim_backoff: Duration::from_millis(50),
    };

    /// The defaults for memory, local disk and test wrappers.
    pub(crate) const LOCAL: Self = Self {
        remote: false,
        concurrency: Concurrency::Fixed(256),
        hedge: false,
        // A disk or a test's store says at once what it will say again.
        max_retries: 0,
        limits: Limits { gap: 16 << 10, max: 8 << 20 },
        claim_backoff: Duration::from_millis(1),
        ..Self::REMOTE
    };

    /// The most requests that may ever be in flight.
    pub(crate) fn most_requests(&self) -> usize {
        self.concurrency.most()
    }

    /// These defaults with what the options say.
    pub(crate) fn with(mut self, options: &Options) -> Result<Self> {
        let o = options;
        if o.get("concurrency").is_some_and(|text| text.trim().eq_ignore_ascii_case("auto")) {
            self.concurrency = Concurrency::Auto;
        } else if let Some(n) = number(o, "concurrency", 1..=100_000)? {
            self.concurrency = Concurrency::Fixed(n as usize);
        }
        self.hedge &= o.get("hedge").is_none() || flag(o, "hedge")?;
        match o.get("mirror_order").map(|text| text.trim().to_ascii_lowercase()).as_deref() {
            None => {}
            Some("nearest") => self.nearest = true,
            Some("first") => self.nearest = false,
            Some(other) => {
                return Err(Error::InvalidOption {
                    option: "mirror_order".to_owned(),
                    value: other.to_owned(),
                    reason: "give `nearest` or `first`".to_owned(),
                });
            }
        }
        if let Some(n) = number(o, "coalesce_gap", 0..=u64::MAX)? {
            self.limits.gap = n;
        }
        if let Some(n) = number(o, "read_size", 4096..=1 << 40)? {
            self.limits.max = n;
        }
        if let Some(n) = number(o, "part_size", SMALLEST_PART..=5 << 30)? {
            self.part_size = n as usize;
        }
        if let Some(n) = number(o, "parts_in_flight", 1..=1024)? {
            self.parts_in_flight = n as usize;
        }
        if let Some(n) = number(o, "max_retries", 0..=1000)? {
            self.max_retries = n as usize;
        }
        for (name, field) in [
            ("timeout", &mut self.timeout),
            ("connect_timeout", &mut self.connect_timeout),
            ("retry_timeout", &mut self.retry_timeout),
        ] {
            if let Some(time) = duration(o, name)? {
                *field = time;
            }
        }
        Ok(self)
    }
}

fn number(options: &Options, name: &str, allowed: std::ops::RangeInclusive<u64>) -> Result<Option<u64>> {
    let Some(text) = options.get(name) else { return Ok(None) };
    match text.trim().replace('_', "").parse() {
        Ok(n) if allowed.contains(&n) => Ok(Some(n)),
        _ => Err(Error::InvalidOption {
            option: name.to_owned(),
            value: text.to_owned(),
            reason: format!("give a whole number from {} to {}", allowed.start(), allowed.end()),
        }),
    }
}

/// The caches that the options ask for.
pub(crate) fn cache_sizes(options: &Options) -> Result<Sizes> {
    let memory = size(options, "cache_memory")?.unwrap_or(0);
    let limit = size(options, "cache_size")?;
    let folder = options.get("cache_dir").map(str::trim).filter(|folder| !folder.is_empty());
    let disk = match (folder, limit) {
        (None, None) => None,
        (None, Some(_)) => {
            return Err(Error::InvalidOption {
                option: "cache_dir".to_owned(),
                value: String::new(),
                reason: "a cache_size is given: name the folder that it is for".to_owned(),
            });
        }
        (Some(folder), limit) => {
            let absolute = std::path::absolute(folder).map_err(|error| Error::InvalidOption {
                option: "cache_dir".to_owned(),
                value: folder.to_owned(),
                reason: error.to_string(),
            })?;
            Some((absolute, limit.unwrap_or(CACHE_SIZE)))
        }
    };
    Ok(Sizes { memory, disk })
}

/// What a folder may hold if nobody says.
const CACHE_SIZE: u64 = 100 << 30;

fn size(options: &Options, name: &str) -> Result<Option<u64>> {
    let Some(text) = options.get(name) else { return Ok(None) };
    parse_size(text).map(Some).ok_or_else(|| Error::InvalidOption {
        option: name.to_owned(),
        value: text.to_owned(),
        reason: "give a number of bytes like `4GiB`, `500MB` or 1000000".to_owned(),
    })
}

fn parse_size(text: &str) -> Option<u64> {
    let text = text.trim().to_ascii_lowercase();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic() || c == ' ');
    let unit: u64 = match text[digits.len()..].trim() {
        "" | "b" => 1,
        "kb" => 1000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        "kib" => 1 << 10,
        "mib" => 1 << 20,
        "gib" => 1 << 30,
        "tib" => 1 << 40,
        _ => return None,
    };
    let number: f64 = digits.replace('_', "").parse().ok().filter(|number: &f64| *number >= 0.0)?;
    let bytes = number * unit as f64;
    (bytes < u64::MAX as f64).then_some(bytes as u64)
}

fn duration(options: &Options, name: &str) -> Result<Option<Duration>> {
    let Some(text) = options.get(name) else { return Ok(None) };
    parse_duration(text).map(Some).ok_or_else(|| Error::InvalidOption {
        option: name.to_owned(),
        value: text.to_owned(),
        reason: "give a time above zero like `30s`, `500ms`, `2m` or a number of seconds".to_owned(),
    })
}

fn parse_duration(text: &str) -> Option<Duration> {
    let text = text.trim();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic() || c == ' ');
    let unit = match text[digits.len()..].trim() {
        "" | "s" | "sec" | "seconds" => 1.0,
        "ms" => 0.001,
        "m" | "min" | "minutes" => 60.0,
        _ => return None,
    };
    let seconds: f64 = digits.parse::<f64>().ok()? * unit;
    (seconds > 0.0).then(|| Duration::try_from_secs_f64(seconds).ok()).flatten()
}

/// The value of a yes-or-no option.
pub(crate) fn flag(options: &Options, name: &str) -> Result<bool> {
    let Some(text) = options.get(name) else { return Ok(false) };
    match text.trim().to_ascii_lowercase().as_str() {
        "true" | "1" | "yes" | "on" => Ok(true),
        "false" | "0" | "no" | "off" | "" => Ok(false),
        _ => Err(Error::InvalidOption {
            option: name.to_owned(),
            value: text.to_owned(),
            reason: "give `true` or `false`".to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, bytes) in
            [("0", 0), ("1_000", 1000), ("4GiB", 4 << 30), (" 1.5 mib ", 3 << 19), ("2TB", 2_000_000_000_000)]
        {
            assert_eq!(parse_size(text), Some(bytes), "{text}");
        }
        for text in ["", "GiB", "-1", "1 pound", "1e400", "nan"] {
            assert_eq!(parse_size(text), None, "{text}");
        }
    }
}
