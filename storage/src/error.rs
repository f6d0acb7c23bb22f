//! The one error type of this crate.

use std::error::Error as StdError;
use std::io;
use std::ops::Range;
use std::path::PathBuf;

use crate::clouds::Rejected;

/// The result of every operation of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, with which object of which store, and what to do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The object is not there.
    #[error("no object `{path}` in {url}")]
    NotFound {
        /// The storage that was asked.
        url: String,
        /// The object, relative to the storage.
        path: String,
    },

    /// The URL of a storage cannot be understood.
    #[error("cannot open `{url}`: {reason}")]
    InvalidUrl {
        /// The URL as given.
        url: String,
        /// What is wrong with it and what would be right.
        reason: String,
    },

    /// The name of an object cannot be used.
    #[error("`{path}` cannot name an object: {reason}")]
    InvalidPath {
        /// The name as given.
        path: String,
        /// What is wrong with it.
        reason: String,
    },

    /// A byte range whose end lies before its start.
    #[error("bytes {}..{} of `{path}` in {url} are no range: the end lies before the start", range.start, range.end)]
    InvalidRange {
        /// The storage that was asked.
        url: String,
        /// The object.
        path: String,
        /// The range as given.
        range: Range<u64>,
    },

    /// An option that this crate does not know.
    #[error("unknown storage option `{option}`; {hint}")]
    UnknownOption {
        /// The option as given.
        option: String,
        /// The options there are.
        hint: String,
    },

    /// An option whose value cannot be used.
    #[error("storage option `{option}` cannot be `{value}`: {reason}")]
    InvalidOption {
        /// The option.
        option: String,
        /// The value as given; secrets are never shown here.
        value: String,
        /// What values are possible.
        reason: String,
    },

    /// Nothing says who is asking, and asking an instance metadata service was not wished for.
    #[error("no credentials for {url}: {hint}")]
    NoCredentials {
        /// The storage.
        url: String,
        /// What to set.
        hint: String,
    },

    /// The source of credentials gave none, or one that this kind of store does not take.
    #[error("cannot get credentials for {url}: {source}")]
    Credentials {
        /// The storage.
        url: String,
        /// What the source said.
        source: Box<dyn StdError + Send + Sync>,
    },

    /// The bucket or container of the storage is not there.
    #[error(
        "cannot {operation} `{path}`: there is no bucket or container as {url} names it; check the URL, and the endpoint and region if it has some"
    )]
    NoBucket {
        /// What was tried.
        operation: &'static str,
        /// The storage.
        url: String,
        /// The object or folder.
        path: String,
    },

    /// The store's put-if-absent is none, so that commits could be lost on it.
    #[error(
        "{url} cannot hold a lake: its put-if-absent is not atomic ({reason}), so two commits at once could both be reported and one of them be lost; use a store with conditional writes (S3, MinIO, R2, SeaweedFS, Google, Azure), or a newer version of this one"
    )]
    NotAtomic {
        /// The storage.
        url: String,
        /// What it did.
        reason: String,
    },

    /// The storage can only be read.
    #[error(
        "cannot {operation} `{path}`: {url} can only be read; open the lake where it is written, by s3://, gs://, az:// or its folder"
    )]
    ReadOnly {
        /// What was tried.
        operation: &'static str,
        /// The storage.
        url: String,
        /// The object.
        path: String,
    },

    /// The storage cannot say what objects there are.
    #[error("cannot list `{path}`: {url} is a web server, which reads objects by name and lists none")]
    NoListing {
        /// The storage.
        url: String,
        /// The folder.
        path: String,
    },

    /// The store knows who is asking and says no, or does not know.
    #[error("{url} refuses to {operation} `{path}`: {source}; check the credentials and what they are allowed to do")]
    Denied {
        /// What was tried.
        operation: &'static str,
        /// The storage.
        url: String,
        /// The object.
        path: String,
        /// The store's answer.
        source: object_store::Error,
    },

    /// Fewer (or more) bytes came than were asked for.
    #[error("asked for bytes {}..{} of `{path}` in {url} and got {got}: the object is shorter than expected or the reply was cut off", range.start, range.end)]
    ShortRead {
        /// The storage.
        url: String,
        /// The object.
        path: String,
        /// The bytes that were asked for.
        range: Range<u64>,
        /// How many bytes came.
        got: u64,
    },

    /// An object is not the one that was meant: it was replaced since.
    #[error("`{path}` in {url} changed: {reason}")]
    Changed {
        /// The storage that was asked.
        url: String,
        /// The object.
        path: String,
        /// In what it differs.
        reason: String,
    },

    /// The store failed or cannot be reached, after the retries that make sense.
    #[error("cannot {operation} `{path}`{} in {url}{}: {source}", of_range(range), after(*attempts))]
    Store {
        /// What was tried.
        operation: &'static str,
        /// The storage.
        url: String,
        /// The object or folder.
        path: String,
        /// The bytes it was about, if it was about some.
        range: Option<Range<u64>>,
        /// How often it was tried here; the clients of clouds count their own tries of writes in the cause.
        attempts: u32,
        /// The cause.
        source: object_store::Error,
    },

    /// The disk is full or a quota is used up.
    #[error("no space left to {operation} {}: {source}; free some space or choose another folder, nothing was published", path.display())]
    DiskFull {
        /// What was tried.
        operation: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },

    /// The folder may not be changed (or read).
    #[error("not permitted to {operation} {}: {source}; check the permissions of the folder and whether it is mounted read-only", path.display())]
    NotPermitted {
        /// What was tried.
        operation: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },

    /// The filesystem has no hard links, which put-if-absent stands on.
    #[error("cannot {operation} {}: {source}; this filesystem has no hard links, so commits cannot be made safe on it: use another one (ext4, xfs, btrfs, APFS, NTFS, ...)", path.display())]
    NoHardLinks {
        /// What was tried.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },

    /// A file is in place but the disk did not confirm that it would survive a power loss.
    #[error("{} was written, but the disk did not confirm it: {source}; check the disk before you go on", path.display())]
    NotDurable {
        /// The folder whose entries could not be made durable.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },

    /// Another failure of the local disk.
    #[error("cannot {operation} {}: {source}", path.display())]
    Disk {
        /// What was tried.
        operation: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },

    /// A writer was used after a write of it had failed; what it had written is discarded.
    #[error("the write of `{path}` in {url} failed before, so it cannot be finished; write it again from the start")]
    WriterFailed {
        /// The storage.
        url: String,
        /// The object.
        path: String,
    },

    /// The background threads could not be started.
    #[error("cannot start the threads for input and output: {source}")]
    Runtime {
        /// The cause.
        source: io::Error,
    },

    /// The runtime was to be configured after it had started.
    #[error("the runtime runs already; configure it before the first use of any storage")]
    RuntimeStarted,
}

/// ` bytes a..b` for messages about a range, nothing for those about a whole object.
fn of_range(range: &Option<Range<u64>>) -> String {
    range.as_ref().map_or_else(String::new, |r| format!(" bytes {}..{}", r.start, r.end))
}

/// ` after n attempts` if there were several.
fn after(attempts: u32) -> String {
    if attempts > 1 { format!(" after {attempts} attempts") } else { String::new() }
}

impl Error {
    /// Whether the object simply is not there.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound { .. })
    }

    /// Whether the write that failed with this error surely had no effect and never will have one.
    ///
    /// A request that got no answer is not in this class: it may still arrive.
    pub fn had_no_effect(&self) -> bool {
        match self {
            Self::NotDurable { .. } | Self::ShortRead { .. } | Self::Runtime { .. } | Self::WriterFailed { .. } => {
                false
            }
            Self::Store { source, .. } => never_sent(source),
            _ => true,
        }
    }

    /// A failed operation on a local file, sorted by what the user can do about it.
    pub(crate) fn disk(operation: &'static str, path: impl Into<PathBuf>, source: io::Error) -> Self {
        let path = path.into();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::DiskFull { operation, path, source },
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                Self::NotPermitted { operation, path, source }
            }
            _ => Self::Disk { operation, path, source },
        }
    }

    /// A failed operation of an object store, sorted by what the user can do about it.
    pub(crate) fn store(
        operation: &'static str,
        url: &str,
        path: &str,
        range: Option<Range<u64>>,
        source: object_store::Error,
    ) -> Self {
        let (url, path) = (url.to_owned(), path.to_owned());
        if let Some(Rejected::NoBucket) = cause(&source) {
            return Self::NoBucket { operation, url, path };
        }
        match source {
            object_store::Error::NotFound { .. } => Self::NotFound { url, path },
            object_store::Error::PermissionDenied { .. } | object_store::Error::Unauthenticated { .. } => {
                Self::Denied { operation, url, path, source }
            }
            // Our own local store hands its typed errors through the foreign type.
            object_store::Error::Generic { store, source } => match source.downcast::<Self>() {
                Ok(ours) => *ours,
                Err(source) => Self::Store {
                    operation,
                    url,
                    path,
                    range,
                    attempts: 1,
                    source: object_store::Error::Generic { store, source },
                },
            },
            source => Self::Store { operation, url, path, range, attempts: 1, source },
        }
    }

    /// The error with how often it was tried, where it has a place for that.
    pub(crate) fn after(self, tried: u32) -> Self {
        match self {
            Self::Store { operation, url, path, range, source, .. } => {
                Self::Store { operation, url, path, range, attempts: tried, source }
            }
            other => other,
        }
    }
}

/// Whether no byte of the request can have reached the store, because no connection was made.
fn never_sent(error: &object_store::Error) -> bool {
    use object_store::client::{HttpError, HttpErrorKind};
    cause::<HttpError>(error).is_some_and(|http| http.kind() == HttpErrorKind::Connect)
}

/// The first error of a type among the causes of an error.
pub(crate) fn cause<'a, E: StdError + 'static>(error: &'a (dyn StdError + 'static)) -> Option<&'a E> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(found) = error.downcast_ref::<E>() {
            return Some(found);
        }
        cause = error.source();
    }
    None
}

impl From<Error> for object_store::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::NotFound { path, .. } => Self::NotFound { path, source: "no such file".into() },
            other => Self::Generic { store: "local disk", source: Box::new(other) },
        }
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let kind = match &error {
            Error::NotFound { .. } => io::ErrorKind::NotFound,
            Error::DiskFull { source, .. }
            | Error::NotPermitted { source, .. }
            | Error::NoHardLinks { source, .. }
            | Error::NotDurable { source, .. }
            | Error::Disk { source, .. }
            | Error::Runtime { source } => source.kind(),
            Error::Denied { .. } | Error::Credentials { .. } | Error::NoCredentials { .. } => {
                io::ErrorKind::PermissionDenied
            }
            Error::ReadOnly { .. } => io::ErrorKind::ReadOnlyFilesystem,
            Error::NoBucket { .. } => io::ErrorKind::NotFound,
            Error::ShortRead { .. } => io::ErrorKind::UnexpectedEof,
            _ => io::ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}
