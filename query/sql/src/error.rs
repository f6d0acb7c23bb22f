//! What can go wrong between a statement and its result.

use datafusion::{
    common::{DataFusionError, SchemaError},
    sql::sqlparser::{parser::ParserError, tokenizer::Location},
};

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a statement gave no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The text is no SQL, or names what isn't there.
    #[error("{}{message}{}", place(*line, *column), hint.as_ref().map(|hint| format!("; {hint}")).unwrap_or_default())]
    Sql {
        /// What is wrong.
        message: String,
        /// The line, from 1; 0 if no place is known.
        line: u64,
        /// The column, from 1, in characters.
        column: u64,
        /// What may have been meant.
        hint: Option<String>,
    },
    /// The statement is SQL, but not what this engine does, or does here.
    #[error("{what}")]
    Unsupported {
        /// What isn't done, and what is instead.
        what: String,
    },
    /// A value doesn't fit its column.
    #[error("column '{column}': {reason}")]
    Value {
        /// The column.
        column: String,
        /// What doesn't fit.
        reason: String,
    },
    /// A parameter is missing, or of a type that SQL doesn't have.
    #[error("parameter {name}: {reason}")]
    Parameter {
        /// Its name or number.
        name: String,
        /// What is wrong.
        reason: String,
    },
    /// A change was asked of a tag or a commit.
    #[error("{at} never changes: open a branch to change it")]
    ReadOnly {
        /// Tag or commit.
        at: String,
    },
    /// A statement names a file, and files were not allowed.
    #[error("'{path}': statements may touch files only below a folder that the caller allows: {reason}")]
    File {
        /// The path in the statement.
        path: String,
        /// Why not this one.
        reason: String,
    },
    /// The query needs more memory than it may take, on disk too.
    #[error("the query needs more than the {limit} bytes of memory that it may take: {reason}")]
    Memory {
        /// The limit.
        limit: u64,
        /// What asked for more.
        reason: String,
    },
    /// The query failed while it ran, by a value or by a function.
    #[error("{0}")]
    Run(Box<DataFusionError>),
    /// A file that the caller named could not be read or written.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The lake could not be read or changed.
    #[error(transparent)]
    Lake(#[from] forebay_versioning::Error),
}

fn place(line: u64, column: u64) -> String {
    if line == 0 { String::new() } else { format!("line {line}, column {column}: ") }
}

impl Error {
    pub(crate) fn sql(message: impl Into<String>, at: Location) -> Self {
        Self::Sql { message: message.into(), line: at.line, column: at.column, hint: None }
    }

    /// Says how much memory there was, where that was too little.
    pub(crate) fn with_limit(self, bytes: usize) -> Self {
        match self {
            Self::Memory { reason, .. } => Self::Memory { limit: bytes as u64, reason },
            other => other,
        }
    }

    pub(crate) fn unsupported(what: impl Into<String>) -> Self {
        Self::Unsupported { what: what.into() }
    }
}

impl From<arrow::error::ArrowError> for Error {
    fn from(error: arrow::error::ArrowError) -> Self {
        DataFusionError::from(error).into()
    }
}

impl From<forebay_format::Error> for Error {
    fn from(error: forebay_format::Error) -> Self {
        Self::Lake(error.into())
    }
}

impl From<forebay_storage::Error> for Error {
    fn from(error: forebay_storage::Error) -> Self {
        Self::Lake(error.into())
    }
}

/// For code that DataFusion calls: our errors travel through it and are found again by [`Error::from`].
impl From<Error> for DataFusionError {
    fn from(error: Error) -> Self {
        Self::External(Box::new(error))
    }
}

impl From<ParserError> for Error {
    fn from(error: ParserError) -> Self {
        let text = match error {
            ParserError::ParserError(text) | ParserError::TokenizerError(text) => text,
            ParserError::RecursionLimitExceeded => "the statement is nested too deeply".to_owned(),
        };
        let Some((message, rest)) = text.rsplit_once(" at Line: ") else {
            return Self::sql(text, Location { line: 0, column: 0 });
        };
        let mut numbers = rest.split(", Column: ").map(|number| number.trim().parse().unwrap_or(0));
        let (line, column) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        Self::sql(message, Location { line, column })
    }
}

impl From<DataFusionError> for Error {
    fn from(error: DataFusionError) -> Self {
        let span = error.diagnostic().and_then(|diagnostic| diagnostic.span);
        let at = span.map_or(Location { line: 0, column: 0 }, |span| Location {
            line: span.start.line,
            column: span.start.column,
        });
        convert(error, at)
    }
}

fn convert(error: DataFusionError, at: Location) -> Error {
    match error {
        DataFusionError::Diagnostic(_, inner) | DataFusionError::Context(_, inner) => convert(*inner, at),
        DataFusionError::Shared(shared) => match std::sync::Arc::try_unwrap(shared) {
            Ok(inner) => convert(inner, at),
            Err(shared) => run_or_plan(shared.to_string(), at),
        },
        DataFusionError::Collection(mut errors) if !errors.is_empty() => convert(errors.swap_remove(0), at),
        DataFusionError::External(inner) => match inner.downcast::<Error>() {
            Ok(ours) => *ours,
            Err(inner) => match inner.downcast::<DataFusionError>() {
                Ok(theirs) => convert(*theirs, at),
                Err(inner) => Error::Run(Box::new(DataFusionError::External(inner))),
            },
        },
        DataFusionError::ArrowError(inner, trace) => match *inner {
            arrow::error::ArrowError::ExternalError(inner) => convert(DataFusionError::External(inner), at),
            other => Error::Run(Box::new(DataFusionError::ArrowError(Box::new(other), trace))),
        },
        DataFusionError::SQL(parser, _) => (*parser).into(),
        DataFusionError::SchemaError(inner, _) => match *inner {
            SchemaError::FieldNotFound { field, valid_fields } => {
                let names: Vec<&str> = valid_fields.iter().map(|field| field.name()).collect();
                Error::Sql {
                    message: format!("no column {}", field.flat_name()),
                    line: at.line,
                    column: at.column,
                    hint: Some(crate::hint::of(field.name(), &names)),
                }
            }
            other => Error::sql(other.to_string(), at),
        },
        DataFusionError::Plan(message) => Error::sql(message, at),
        DataFusionError::NotImplemented(what) => Error::Unsupported { what },
        DataFusionError::ResourcesExhausted(reason) => Error::Memory { limit: 0, reason },
        other => Error::Run(Box::new(other)),
    }
}

fn run_or_plan(message: String, at: Location) -> Error {
    if at.line > 0 { Error::sql(message, at) } else { Error::Run(Box::new(DataFusionError::Execution(message))) }
}
