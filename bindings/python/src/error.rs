//! Errors, and the Python exceptions that they become: classes of `forebay._errors`.

use std::any::Any;

use forebay_format::{DType, Error as FormatError};
use forebay_gpu::Error as GpuError;
use forebay_loader::Error as LoaderError;
use forebay_query::Error as QueryError;
use forebay_storage::Error as StorageError;
use forebay_versioning::Error as VersionError;
use pyo3::{exceptions::PyIndexError, prelude::*};

use crate::exceptions::{self, of_format, of_storage, of_version};

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
}

fn of_loader(error: &LoaderError) -> &'static str {
    match error {
        LoaderError::Option { .. } | LoaderError::Budget { .. } | LoaderError::Mix { .. } => "ArgumentError",
        LoaderError::Read { source, .. } | LoaderError::Link { source, .. } => of_version(source),
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
            Error::Python(raised) => Python::attach(|py| raised.clone_ref(py)),
            Error::Version(VersionError::RowOutOfRange { .. }) => PyIndexError::new_err(error.to_string()),
            _ => exceptions::raised(error.class(), &error),
        }
    }
}
