//! Errors, and the Python exceptions that they become: classes of `forebay._errors`.

use std::any::Any;

use forebay_sql::Error as SqlError;
use forebay_storage::Error as StorageError;
use forebay_versioning::Error as VersionError;
use pyo3::prelude::*;

use crate::exceptions::{self, of_version};

/// A result of this crate.
pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong between Python and the engine.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum Error {
    /// The engine, or the lake below it.
    #[error(transparent)]
    Sql(#[from] SqlError),
    /// What an argument holds makes no sense.
    #[error("{reason}")]
    Argument {
        /// Why.
        reason: String,
    },
    /// Something that can't be.
    #[error("{reason}: this is a bug in forebay-sql, please report it")]
    Internal {
        /// What.
        reason: String,
    },
    /// Python raised, mostly KeyboardInterrupt.
    #[error(transparent)]
    Python(#[from] PyErr),
}

impl Error {
    /// A panic that was caught.
    pub(crate) fn panic(panic: &(dyn Any + Send)) -> Self {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        Self::Internal { reason: text.unwrap_or_else(|| "a panic".to_owned()) }
    }

    /// The name of the exception's class in `forebay._errors`.
    fn class(&self) -> &'static str {
        match self {
            Self::Sql(error) => of_sql(error),
            Self::Argument { .. } => "ArgumentError",
            Self::Internal { .. } | Self::Python(_) => "InternalError",
        }
    }
}

impl From<VersionError> for Error {
    fn from(error: VersionError) -> Self {
        Self::Sql(error.into())
    }
}

impl From<StorageError> for Error {
    fn from(error: StorageError) -> Self {
        Self::Sql(error.into())
    }
}

fn of_sql(error: &SqlError) -> &'static str {
    match error {
        SqlError::Sql { .. } | SqlError::Parameter { .. } | SqlError::Run(_) => "SqlError",
        SqlError::Unsupported { .. } => "UnsupportedError",
        SqlError::Value { .. } => "DataError",
        SqlError::ReadOnly { .. } => "ReadOnlyError",
        SqlError::File { .. } | SqlError::Io { .. } => "AccessError",
        SqlError::Memory { .. } => "LoaderError",
        SqlError::Lake(error) => of_version(error),
        _ => "Error",
    }
}

impl From<Error> for PyErr {
    fn from(error: Error) -> Self {
        match &error {
            Error::Python(raised) => Python::attach(|py| raised.clone_ref(py)),
            _ => exceptions::raised(error.class(), &error),
        }
    }
}
