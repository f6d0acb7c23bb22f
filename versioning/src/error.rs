//! What can go wrong between a lake and its user.

use forebay_format::CommitId;

use crate::{Conflict, RowId};

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a lake could not be read or changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no lake at the URL.
    #[error("no lake at {url}: create one, or check the URL")]
    NotALake {
        /// The URL.
        url: String,
    },
    /// There is a lake at the URL already.
    #[error("a lake exists at {url}: open it, or choose another URL")]
    LakeExists {
        /// The URL.
        url: String,
    },
    /// A branch isn't there.
    #[error("no branch '{name}' in {url}; there are: {}", known.join(", "))]
    UnknownBranch {
        /// The lake's URL.
        url: String,
        /// The name asked for.
        name: String,
        /// The names there are.
        known: Vec<String>,
    },
    /// A tag isn't there.
    #[error("no tag '{name}' in {url}; there are: {}", if known.is_empty() { "none".to_owned() } else { known.join(", ") })]
    UnknownTag {
        /// The lake's URL.
        url: String,
        /// The name asked for.
        name: String,
        /// The names there are.
        known: Vec<String>,
    },
    /// A commit isn't there.
    #[error("no commit {id} in {url}")]
    UnknownCommit {
        /// The lake's URL.
        url: String,
        /// The id asked for.
        id: CommitId,
    },
    /// A table isn't in the commit.
    #[error("no table '{name}' in commit {commit}; there are: {}", if known.is_empty() { "none".to_owned() } else { known.join(", ") })]
    UnknownTable {
        /// The commit.
        commit: CommitId,
        /// The name asked for.
        name: String,
        /// The names there are.
        known: Vec<String>,
    },
    /// A branch of that name is there already.
    #[error("branch '{name}' exists: choose another name")]
    BranchExists {
        /// The name.
        name: String,
    },
    /// A tag of that name is there already; a tag never moves.
    #[error("tag '{name}' exists, and a tag never moves: choose another name")]
    TagExists {
        /// The name.
        name: String,
    },
    /// A table of that name is there already.
    #[error("table '{name}' exists on branch '{branch}': append to it, or choose another name")]
    TableExists {
        /// The branch.
        branch: String,
        /// The name.
        name: String,
    },
    /// A name of a branch, tag or table breaks a rule.
    #[error("'{name}' is no name for a {what}: {reason}")]
    InvalidName {
        /// Branch, tag or table.
        what: &'static str,
        /// The name.
        name: String,
        /// The rule.
        reason: &'static str,
    },
    /// A row number is past the end of the table.
    #[error("row {row} is out of range: table '{table}' has {rows} rows")]
    RowOutOfRange {
        /// The table.
        table: String,
        /// The row asked for.
        row: u64,
        /// The rows there are.
        rows: u64,
    },
    /// Both sides changed the same, each in its own way: another commit on the branch and this one, or two branches.
    #[error("conflict on branch '{branch}': {}; nothing was committed", listed(conflicts))]
    Conflict {
        /// The branch.
        branch: String,
        /// All conflicts, with their rows and columns.
        conflicts: Vec<Conflict>,
    },
    /// Two rows of a table would have the same key.
    #[error("table '{table}': row {row} has the same {} as another row", columns.join(", "))]
    DuplicateKey {
        /// The table.
        table: String,
        /// The key's columns.
        columns: Vec<String>,
        /// The row.
        row: RowId,
    },
    /// A table has no such row.
    #[error("table '{table}' has no row {row}: it was deleted, compacted, or is of another table")]
    UnknownRow {
        /// The table.
        table: String,
        /// The row.
        row: RowId,
    },
    /// A call that makes no sense where it is.
    #[error("{reason}")]
    Misuse {
        /// What is wrong, and what to do.
        reason: String,
    },
    /// The runtime shut down under a write.
    #[error("the runtime shut down while data was written")]
    Cancelled {
        /// What it said.
        source: tokio::task::JoinError,
    },
    /// Other writers won every attempt.
    #[error(
        "branch '{branch}': {attempts} attempts to commit were all overtaken by other writers; nothing was committed: try again"
    )]
    Contention {
        /// The branch.
        branch: String,
        /// How often it was tried.
        attempts: u32,
    },
    /// The store answered neither yes nor no, for so long that we gave up: the commit may or may not be on the branch.
    #[error(
        "commit {commit} may or may not be entry {sequence} of branch '{branch}': the store kept failing; look at the log before you try again"
    )]
    OutcomeUnknown {
        /// The branch.
        branch: String,
        /// The entry.
        sequence: u64,
        /// The commit.
        commit: CommitId,
        /// The last failure.
        source: forebay_storage::Error,
    },
    /// A transaction was committed without a change.
    #[error("nothing to commit on branch '{branch}'")]
    NothingToCommit {
        /// The branch.
        branch: String,
    },
    /// An object's bytes are not what they must be.
    #[error("{path}: {source}")]
    Object {
        /// The object.
        path: String,
        /// What is wrong with it.
        source: forebay_format::Error,
    },
    /// An object that the graph points at is missing.
    #[error("{path} is missing, though {referrer} points at it: the lake is damaged")]
    Missing {
        /// The object.
        path: String,
        /// What points at it.
        referrer: String,
    },
    /// Two parts of a lake contradict each other.
    #[error("{path}: {reason}: the lake is damaged")]
    Inconsistent {
        /// The object.
        path: String,
        /// The contradiction.
        reason: String,
    },
    /// Columns or a schema handed in are wrong.
    #[error(transparent)]
    Data(#[from] forebay_format::Error),
    /// The store failed.
    #[error(transparent)]
    Storage(#[from] forebay_storage::Error),
}

/// The first few conflicts.
fn listed(conflicts: &[Conflict]) -> String {
    const SHOWN: usize = 5;
    let mut shown: Vec<_> = conflicts.iter().take(SHOWN).map(ToString::to_string).collect();
    if conflicts.len() > SHOWN {
        shown.push(format!("and {} more", conflicts.len() - SHOWN));
    }
    shown.join("; ")
}

impl Error {
    /// Wraps a format error with the object it is about.
    pub(crate) fn object(path: impl Into<String>) -> impl FnOnce(forebay_format::Error) -> Self {
        let path = path.into();
        move |source| match source {
            // A sink's failure is the store's, and names its object itself when it comes from our own writer.
            forebay_format::Error::Sink(io) => match io.downcast::<forebay_storage::Error>() {
                Ok(storage) => Self::Storage(storage),
                Err(io) => Self::Object { path, source: forebay_format::Error::Sink(io) },
            },
            source => Self::Object { path, source },
        }
    }
}
