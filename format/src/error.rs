//! What can go wrong between bytes and columns.

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why bytes could not be read as Forebay's, or columns could not be written.
///
/// The crate does no IO, so a variant names the place *inside* an object; callers add the object's name.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A text isn't 32 hexadecimal digits.
    #[error("'{text}' is not an id: expected 32 hexadecimal digits")]
    MalformedId {
        /// The text.
        text: String,
    },
    /// A dtype's name isn't known.
    #[error("unknown dtype '{name}'")]
    UnknownDType {
        /// The name.
        name: String,
    },
    /// A schema breaks a rule.
    #[error("column '{column}': {reason}")]
    InvalidSchema {
        /// The column's name.
        column: String,
        /// The rule.
        reason: String,
    },
    /// A column isn't in the schema.
    #[error("no column '{name}'; the table has {}", known.join(", "))]
    UnknownColumn {
        /// The name asked for.
        name: String,
        /// The names there are.
        known: Vec<String>,
    },
    /// A link breaks a rule.
    #[error("no link to '{url}': {reason}")]
    InvalidLink {
        /// The URL.
        url: String,
        /// The rule.
        reason: String,
    },
    /// Rows handed to a writer don't fit their column.
    #[error("column '{column}': expected {expected}, got {found}")]
    ColumnMismatch {
        /// The column's name.
        column: String,
        /// What fits.
        expected: String,
        /// What was given.
        found: String,
    },
    /// Bytes don't have the form that the format prescribes.
    #[error("corrupt {what} at byte {offset}: {reason}")]
    Corrupt {
        /// The structure: "footer", "index", "block 3 of column 'image'", "commit".
        what: String,
        /// Where it starts in its object.
        offset: u64,
        /// What is wrong.
        reason: String,
    },
    /// A checksum doesn't match.
    #[error("checksum mismatch in {what} at bytes {offset}..{}: stored {expected:08x}, found {found:08x}", offset + length)]
    Checksum {
        /// The structure.
        what: String,
        /// Where the checked bytes start in their object.
        offset: u64,
        /// How many there are.
        length: u64,
        /// The checksum on record.
        expected: u32,
        /// The checksum of the bytes found.
        found: u32,
    },
    /// Written by a later version of Forebay, or with a feature that this one lacks.
    #[error("{what} needs {needs}: use a newer forebay")]
    Unsupported {
        /// The structure.
        what: String,
        /// The version, feature bit or encoding that is missing here.
        needs: String,
    },
    /// A limit of the parser or the writer was passed.
    #[error("{what}: {found} is over the limit of {limit}")]
    Limit {
        /// What was counted.
        what: String,
        /// How much there was.
        found: u64,
        /// How much is allowed.
        limit: u64,
    },
    /// The sink that a writer writes to failed.
    #[error("writing failed: {0}")]
    Sink(#[from] std::io::Error),
}
