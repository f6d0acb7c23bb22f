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
    /// A bucket and a prefix in it.
    S3 { bucket: String, prefix: String },
}

impl Location {
    /// Reads a plain path, `file://`, `memory://` or `s3://` URL.
    pub(crate) fn parse(url: &str) -> Result<Self> {
        let invalid = |reason: &str| Error::InvalidUrl { url: url.to_owned(), reason: reason.to_owned() };
        if url.trim().is_empty() {
            return Err(invalid("it is empty; give a folder or an s3://bucket/prefix URL"));
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
                let (bucket, prefix) = name_and_prefix(rest);
                if bucket.is_empty() {
                    return Err(invalid("name the bucket: s3://bucket/prefix"));
                }
                if !bucket.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':')) {
                    return Err(invalid(
                        "a bucket name has letters, digits, dots and dashes; credentials and the endpoint go into the options",
                    ));
                }
                Ok(Self::S3 { bucket, prefix: checked_prefix(url, prefix)? })
            }
            other => Err(invalid(&format!("`{other}://` is not supported; use a path, file://, memory:// or s3://"))),
        }
    }
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
