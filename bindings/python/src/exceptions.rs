//! Which exceptions of `forebay._errors` the errors of a lake become. The library of SQL has this file as well.

use std::error::Error as StdError;

use forebay_format::Error as FormatError;
use forebay_storage::Error as StorageError;
use forebay_versioning::Error as VersionError;
use pyo3::prelude::*;

/// The exception of a class by its name: with the system's number of the error where there is one, and with the exception of the
/// user's code that it came from.
pub(crate) fn raised(class: &'static str, error: &(dyn StdError + 'static)) -> PyErr {
    Python::attach(|py| {
        let message = error.to_string();
        let errno = matches!(class, "StorageError" | "NotFoundError" | "AccessError").then(|| errno(error)).flatten();
        let made =
            py.import("forebay._errors").and_then(|module| module.getattr(class)).and_then(|class| match errno {
                Some(errno) => class.call1((errno, message.as_str())),
                None => class.call1((message.as_str(),)),
            });
        let made = made.map_or_else(|failed| failed, PyErr::from_value);
        // What a callable of the user's raised is shown with where it was raised.
        let raised = cause::<PyErr>(error).map(|raised| raised.clone_ref(py));
        if raised.is_some() {
            made.set_cause(py, raised);
        }
        made
    })
}

/// An error, and what caused it. An io error shows the causes of an error that it wraps, and not that one itself.
fn causes<'a>(error: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |error: &&'a (dyn StdError + 'static)| {
        let error: &'a (dyn StdError + 'static) = *error;
        match error.downcast_ref::<std::io::Error>() {
            Some(io) => io.get_ref().map(|inner| inner as &(dyn StdError + 'static)),
            None => error.source(),
        }
    })
}

/// The first of an error's causes that is of a type.
fn cause<'a, E: StdError + 'static>(error: &'a (dyn StdError + 'static)) -> Option<&'a E> {
    causes(error).find_map(|error| error.downcast_ref())
}

/// The operating system's number of an error, wherever it is among the causes.
fn errno(error: &(dyn StdError + 'static)) -> Option<i32> {
    causes(error).find_map(|error| error.downcast_ref::<std::io::Error>()?.raw_os_error())
}

/// The class of an error of columns, schemas or bytes.
pub(crate) fn of_format(error: &FormatError) -> &'static str {
    match error {
        FormatError::MalformedId { .. } => "UnknownVersionError",
        FormatError::UnknownDType { .. } | FormatError::InvalidSchema { .. } => "SchemaError",
        FormatError::UnknownColumn { .. } => "UnknownColumnError",
        FormatError::ColumnMismatch { .. } | FormatError::InvalidLink { .. } => "DataError",
        FormatError::Unsupported { .. } => "UnsupportedError",
        FormatError::Sink(_) => "StorageError",
        FormatError::Corrupt { .. } | FormatError::Checksum { .. } => "CorruptError",
        FormatError::Limit { .. } => "DataError",
        _ => "Error",
    }
}

/// The class of an error of the store.
pub(crate) fn of_storage(error: &StorageError) -> &'static str {
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

/// The class of an error of lakes and their versions.
pub(crate) fn of_version(error: &VersionError) -> &'static str {
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
        | VersionError::PurgeContention { .. }
        | VersionError::OutcomeUnknown { .. }
        | VersionError::Fenced { .. }
        | VersionError::NotFastForward { .. }
        | VersionError::Collecting { .. }
        | VersionError::CalledOff { .. } => "ConflictError",
        VersionError::Collected { .. } | VersionError::Expired { .. } | VersionError::Erased { .. } => {
            "UnknownVersionError"
        }
        VersionError::NothingToCommit { .. } => "NothingToCommitError",
        VersionError::Object { source, .. } => match of_format(source) {
            "DataError" => "CorruptError", // A limit that bytes in the lake break, not the caller's data.
            class => class,
        },
        VersionError::Missing { .. } | VersionError::Inconsistent { .. } => "CorruptError",
        VersionError::LinkBroken { .. } => "LinkError",
        VersionError::LinkForbidden { .. } => "AccessError",
        VersionError::Data(error) => of_format(error),
        VersionError::Storage(error) => of_storage(error),
        _ => "Error",
    }
}
