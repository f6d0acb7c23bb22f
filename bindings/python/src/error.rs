//! Errors, and the Python exceptions that they become: classes of `forebay._errors`.

use std::{any::Any, error::Error as StdError};

use forebay_format::{DType, Error as FormatError};
use forebay_gpu::Error as GpuError;
use forebay_loader::Error as LoaderError;
use forebay_query::Error as QueryError;
use forebay_storage::Error as StorageError;
use forebay_versioning::Error as VersionError;
use pyo3::{exceptions::PyIndexError, prelude::*};

/// A result of this crate.
pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong between Python and the crates below.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum Error {
    /// Columns, schemas or bytes.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The store.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// Lakes and their versions.
    #[error(transparent)]
    Version(#[from] VersionError),
    /// Loading.
    #[error(transparent)]
    Loader(#[from] LoaderError),
    /// Devices.
    #[error(transparent)]
    Gpu(#[from] GpuError),
    /// Filters.
    #[error(transparent)]
    Query(#[from] QueryError),
    /// NumPy can't hold the dtype.
    #[error("NumPy has no {dtype}{hint}")]
    NoNumpyDType {
        /// The dtype.
        dtype: DType,
        /// What to do.
        hint: &'static str,
    },
    /// A schema given by hand has a codec that nobody knows.
    #[error("unknown compression '{name}'")]
    UnknownCodec {
        /// The codec.
        name: String,
    },
    /// A table exists, with other columns than asked for.
    #[error("table '{name}' exists with other columns:\n{found}\nasked for:\n{wanted}")]
    OtherSchema {
        /// The table.
        name: String,
        /// Its columns.
        found: String,
        /// The columns asked for.
        wanted: String,
    },
    /// A write through a handle that has no branch.
    #[error("this handle is at {at}, which never changes: open a branch to write")]
    ReadOnly {
        /// The tag or commit.
        at: String,
    },
    /// A handle was closed.
    #[error("this handle was closed")]
    Closed,
    /// Rows are waiting for a commit.
    #[error("{rows} appended rows are not committed: commit() or discard() them first")]
    Pending {
        /// How many.
        rows: u64,
    },
    /// An earlier append or commit failed half way.
    #[error(
        "an earlier {step} failed ({reason}), so the rows appended since the last commit are lost: call discard(), then append them again"
    )]
    Spoiled {
        /// What failed.
        step: &'static str,
        /// Why.
        reason: String,
    },
    /// What an argument holds makes no sense.
    #[error("{reason}")]
    Argument {
        /// Why.
        reason: String,
    },
    /// Something that can't be.
    #[error("{reason}: this is a bug in forebay, please report it")]
    Internal {
        /// What.
        reason: String,
    },
    /// Python raised, mostly KeyboardInterrupt.
    #[error(transparent)]
    Python(#[from] PyErr),
}

impl Error {
    pub(crate) fn argument(reason: impl Into<String>) -> Self {
        Self::Argument { reason: reason.into() }
    }

    pub(crate) fn internal(reason: impl Into<String>) -> Self {
        Self::Internal { reason: reason.into() }
    }

    /// A panic that was caught.
    pub(crate) fn panic(panic: &(dyn Any + Send)) -> Self {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        Self::internal(text.unwrap_or_else(|| "a panic".to_owned()))
    }

    /// The name of the exception's class in `forebay._errors`.
    fn class(&self) -> &'static str {
        match self {
            Self::Format(error) => of_format(error),
            Self::Storage(error) => of_storage(error),
            Self::Version(error) => of_version(error),
            Self::Loader(error) => of_loader(error),
            Self::Gpu(_) => "LoaderError",
            Self::Query(error) => of_query(error),
            Self::NoNumpyDType { .. } => "DTypeError",
            Self::UnknownCodec { .. } => "SchemaError",
            Self::OtherSchema { .. } => "ExistsError",
            Self::ReadOnly { .. } => "ReadOnlyError",
            Self::Closed => "ClosedError",
            Self::Pending { .. } | Self::Spoiled { .. } => "UncommittedError",
            Self::Argument { .. } => "ArgumentError",
            Self::Internal { .. } | Self::Python(_) => "InternalError",
        }
    }

    /// The first of its causes that is of a type.
    fn cause<E: StdError + 'static>(&self) -> Option<&E> {
        let mut cause: Option<&(dyn StdError + 'static)> = Some(self);
        while let Some(error) = cause {
            if let Some(found) = error.downcast_ref::<E>() {
                return Some(found);
            }
            cause = error.source();
        }
        None
    }

    /// The operating system's number of an error, wherever it is among the causes.
    fn errno(&self) -> Option<i32> {
        let mut cause: Option<&(dyn StdError + 'static)> = Some(self);
        while let Some(error) = cause {
            if let Some(io) = error.downcast_ref::<std::io::Error>() {
                if let Some(number) = io.raw_os_error() {
                    return Some(number);
                }
                // An io error that wraps another shows the inner one's causes, not the inner one.
                cause = io.get_ref().map(|inner| inner as &(dyn StdError + 'static));
            } else {
                cause = error.source();
            }
        }
        None
    }
}

fn of_format(error: &FormatError) -> &'static str {
    match error {
        FormatError::MalformedId { .. } => "UnknownVersionError",
        FormatError::UnknownDType { .. } | FormatError::InvalidSchema { .. } => "SchemaError",
        FormatError::UnknownColumn { .. } => "UnknownColumnError",
        FormatError::ColumnMismatch { .. } => "DataError",
        FormatError::Unsupported { .. } => "UnsupportedError",
        FormatError::Sink(_) => "StorageError",
        FormatError::Corrupt { .. } | FormatError::Checksum { .. } => "CorruptError",
        FormatError::Limit { .. } => "DataError",
        _ => "Error",
    }
}

fn of_storage(error: &StorageError) -> &'static str {
    match error {
        StorageError::NotFound { .. } => "NotFoundError",
        StorageError::InvalidUrl { .. }
        | StorageError::InvalidPath { .. }
        | StorageError::UnknownOption { .. }
        | StorageError::InvalidOption { .. } => "ArgumentError",
        StorageError::NoCredentials { .. }
        | StorageError::Credentials { .. }
        | StorageError::Denied { .. }
        | StorageError::NotPermitted { .. } => "AccessError",
        StorageError::ReadOnly { .. } => "ReadOnlyError",
        StorageError::NoListing { .. } | StorageError::NotAtomic { .. } => "UnsupportedError",
        _ => "StorageError",
    }
}

fn of_version(error: &VersionError) -> &'static str {
    match error {
        VersionError::NotALake { .. } => "NotFoundError",
        VersionError::LakeExists { .. }
        | VersionError::BranchExists { .. }
        | VersionError::TagExists { .. }
        | VersionError::TableExists { .. } => "ExistsError",
        VersionError::UnknownBranch { .. } | VersionError::UnknownTag { .. } | VersionError::UnknownCommit { .. } => {
            "UnknownVersionError"
        }
        VersionError::UnknownTable { .. } => "UnknownTableError",
        VersionError::InvalidName { .. } | VersionError::Misuse { .. } => "ArgumentError",
        VersionError::DuplicateKey { .. } => "DataError",
        VersionError::Conflict { .. }
        | VersionError::Contention { .. }
        | VersionError::OutcomeUnknown { .. }
        | VersionError::Fenced { .. }
        | VersionError::NotFastForward { .. }
        | VersionError::Collecting { .. }
        | VersionError::CalledOff { .. } => "ConflictError",
        VersionError::Collected { .. } | VersionError::Expired { .. } => "UnknownVersionError",
        VersionError::NothingToCommit { .. } => "NothingToCommitError",
        VersionError::Object { source, .. } => match of_format(source) {
            "DataError" => "CorruptError", // A limit that bytes in the lake break, not the caller's data.
            class => class,
        },
        VersionError::Missing { .. } | VersionError::Inconsistent { .. } => "CorruptError",
        VersionError::Data(error) => of_format(error),
        VersionError::Storage(error) => of_storage(error),
        _ => "Error",
    }
}

fn of_loader(error: &LoaderError) -> &'static str {
    match error {
        LoaderError::Option { .. } | LoaderError::Budget { .. } | LoaderError::Mix { .. } => "ArgumentError",
        LoaderError::Read { source, .. } => of_version(source),
        LoaderError::Lake(error) => of_version(error),
        LoaderError::Data(error) => of_format(error),
        LoaderError::Storage(error) => of_storage(error),
        LoaderError::Finish { .. } => "TransformError",
        LoaderError::State { .. } => "StateError",
        LoaderError::TooManyFaults { .. } | LoaderError::Decode { .. } => "CorruptError",
        LoaderError::Died { .. } => "InternalError",
        _ => "LoaderError",
    }
}

fn of_query(error: &QueryError) -> &'static str {
    match error {
        QueryError::NoColumns { .. } => "ArgumentError",
        QueryError::Mask { .. } => "DataError",
        QueryError::Lake(error) => of_version(error),
        _ => "Error",
    }
}

impl From<Error> for PyErr {
    fn from(error: Error) -> Self {
        match &error {
            Error::Python(raised) => return Python::attach(|py| raised.clone_ref(py)),
            Error::Version(VersionError::RowOutOfRange { .. }) => return PyIndexError::new_err(error.to_string()),
            _ => {}
        }
        Python::attach(|py| {
            let (class, message) = (error.class(), error.to_string());
            let errno =
                matches!(class, "StorageError" | "NotFoundError" | "AccessError").then(|| error.errno()).flatten();
            let made =
                py.import("forebay._errors").and_then(|module| module.getattr(class)).and_then(|class| match errno {
                    Some(errno) => class.call1((errno, message.as_str())),
                    None => class.call1((message.as_str(),)),
                });
            let made = made.map_or_else(|failed| failed, PyErr::from_value);
            // What a callable of the user's raised is shown with where it was raised.
            let raised = error.cause::<PyErr>().map(|raised| raised.clone_ref(py));
            if raised.is_some() {
                made.set_cause(py, raised);
            }
            made
        })
    }
}
