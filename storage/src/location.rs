//! What a URL means: pure parsing.

use std::path::PathBuf;

use crate::error::{Error, Result};

/// Where a storage lives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Location {
    /// A folder of this machine, absolute.
    Local(PathBuf),
    /// A named store in this process's memory, and a prefix in it.
    Memory { name: String, prefix: String },
    /// A store across a network and a prefix in it; `url` is how both are written.
    Remote { remote: Remote, prefix: String, url: String },
}

/// A bucket, a container or a site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Remote {
    S3 {
        bucket: String,
    },
    Google {
        bucket: String,
    },
    /// The account is in the URL or else in the options.
    Azure {
        account: Option<String>,
        container: String,
    },
    /// A folder of a web server, which is only read.
    Http {
        base: String,
    },
}

impl Location {
    /// Reads a plain path or a URL.
    pub(crate) fn parse(url: &str) -> Result<Self> {
        let invalid = |reason: &str| Error::InvalidUrl { url: url.to_owned(), reason: reason.to_owned() };
        if url.trim().is_empty() {
            return Err(invalid("it is empty; give a folder or a URL like s3://bucket/prefix"));
        }
        if url.contains('\0') {
            return Err(invalid("it holds a NUL character"));
        }
        let Some((scheme, rest)) = split_scheme(url) else {
            return absolute(url, url);
        };
        match scheme.to_ascii_lowercase().as_str() {
            "file" => {
                let parsed = url::Url::parse(url).map_err(|e| invalid(&e.to_string()))?;
                let path = parsed.to_file_path().map_err(|()| {
                    invalid("a file URL needs an absolute path and no host: file:///folder; for a relative one leave `file://` out")
                })?;
                if parsed.query().is_some() || parsed.fragment().is_some() {
                    return Err(invalid("write `?` and `#` in a file URL as %3F and %23, or give the plain path"));
                }
                Ok(Self::Local(path))
            }
            "memory" => {
                let (name, prefix) = name_and_prefix(rest);
                if name.is_empty() {
                    return Err(invalid("name the store: memory://name"));
                }
                Ok(Self::Memory { name, prefix: checked_prefix(url, prefix)? })
            }
            "s3" | "s3a" => {
                let (bucket, prefix) = bucket_and_prefix(url, "s3", rest)?;
                Ok(Self::remote("s3", Remote::S3 { bucket: bucket.clone() }, &bucket, prefix))
            }
            "gs" | "gcs" => {
                let (bucket, prefix) = bucket_and_prefix(url, "gs", rest)?;
                Ok(Self::remote("gs", Remote::Google { bucket: bucket.clone() }, &bucket, prefix))
            }
            scheme @ ("az" | "azure" | "abfs" | "abfss") => azure(url, scheme, rest),
            scheme @ ("http" | "https") => site(url, scheme),
            other => Err(invalid(&format!(
                "`{other}://` is not supported; use a path, file://, memory://, s3://, gs://, az://, abfss://, http:// or https://"
            ))),
        }
    }
}

impl Location {
    fn remote(scheme: &str, remote: Remote, host: &str, prefix: String) -> Self {
        let url = format!("{scheme}://{host}/{prefix}").trim_end_matches('/').to_owned();
        Self::Remote { remote, prefix, url }
    }
}

/// `container/prefix`, or `container@account.dfs.core.windows.net/prefix`.
fn azure(url: &str, scheme: &str, rest: &str) -> Result<Location> {
    let (host, prefix) = name_and_prefix(rest);
    let (container, account) = match host.split_once('@') {
        None => (host.as_str(), None),
        Some((container, host)) => match host.split_once('.') {
            Some((account, "dfs.core.windows.net" | "blob.core.windows.net")) if !account.is_empty() => {
                (container, Some(account.to_owned()))
            }
            _ => {
                return Err(Error::InvalidUrl {
                    url: url.to_owned(),
                    reason: "behind the @ stands account.dfs.core.windows.net; another endpoint goes into the options"
                        .to_owned(),
                });
            }
        },
    };
    let container = checked_bucket(url, "az", "container", container)?;
    let scheme = if account.is_some() { scheme } else { "az" };
    let remote = Remote::Azure { account, container };
    Ok(Location::remote(scheme, remote, &host, checked_prefix(url, prefix)?))
}

/// A folder of a web server.
fn site(url: &str, scheme: &str) -> Result<Location> {
    let invalid = |reason: &str| Error::InvalidUrl { url: url.to_owned(), reason: reason.to_owned() };
    let parsed = url::Url::parse(url).map_err(|e| invalid(&e.to_string()))?;
    if !parsed.username().is_empty() || parsed.password().is_some() {
        let hidden = format!("{scheme}://***@{}", parsed.host_str().unwrap_or_default());
        let reason = "a name and a password in a URL end up in messages; give the option `authorization` instead";
        return Err(Error::InvalidUrl { url: hidden, reason: reason.to_owned() });
    }
    if parsed.query().is_some() || parsed.fragment().is_some() {
        return Err(invalid("a lake is many objects below a folder; a URL with `?` or `#` names one object"));
    }
    let base = parsed.as_str().trim_end_matches('/').to_owned();
    Ok(Location::Remote { remote: Remote::Http { base: base.clone() }, prefix: String::new(), url: base })
}

fn bucket_and_prefix(url: &str, scheme: &str, rest: &str) -> Result<(String, String)> {
    let (bucket, prefix) = name_and_prefix(rest);
    Ok((checked_bucket(url, scheme, "bucket", &bucket)?, checked_prefix(url, prefix)?))
}

fn checked_bucket(url: &str, scheme: &str, what: &str, bucket: &str) -> Result<String> {
    let invalid = |reason: String| Err(Error::InvalidUrl { url: url.to_owned(), reason });
    if bucket.is_empty() {
        return invalid(format!("name the {what}: {scheme}://{what}/prefix"));
    }
    if !bucket.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':' | '$')) {
        return invalid(format!(
            "a {what} name has letters, digits, dots and dashes; credentials and the endpoint go into the options"
        ));
    }
    Ok(bucket.to_owned())
}

/// Splits `scheme://rest`; a Windows drive (`C:\`) is no scheme.
fn split_scheme(url: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = url.split_once("://")?;
    let valid = scheme.len() > 1
        && scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'));
    valid.then_some((scheme, rest))
}

fn name_and_prefix(rest: &str) -> (String, String) {
    let (name, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    (name.to_owned(), prefix.trim_matches('/').to_owned())
}

fn checked_prefix(url: &str, prefix: String) -> Result<String> {
    match object_store::path::Path::parse(&prefix) {
        Ok(_) => Ok(prefix),
        Err(e) => Err(Error::InvalidUrl { url: url.to_owned(), reason: e.to_string() }),
    }
}

fn absolute(url: &str, path: &str) -> Result<Location> {
    std::path::absolute(path)
        .map(Location::Local)
        .map_err(|e| Error::InvalidUrl { url: url.to_owned(), reason: format!("it is no path: {e}") })
}
