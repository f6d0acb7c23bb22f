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
    /// A collection of garbage began while a transaction was prepared, and took files of it or may have.
    #[error(
        "branch '{branch}': collection {epoch} began while this was prepared, which took longer than its grace of {grace:?} without a pin, so files of it may be gone; nothing was committed: do it again, under a pin if it takes that long"
    )]
    Fenced {
        /// The branch.
        branch: String,
        /// The collection.
        epoch: u64,
        /// How old files must be for it to delete them.
        grace: std::time::Duration,
    },
    /// A commit that nothing led to was collected.
    #[error("commit {commit} was collected, as no branch, tag or pin led to it")]
    Collected {
        /// The commit.
        commit: CommitId,
    },
    /// A commit's tables were collected, as it was older than the history that is kept.
    #[error(
        "the tables of commit {commit} were collected, as it is older than the history that is kept: choose a newer commit, a branch or a tag"
    )]
    Expired {
        /// The commit.
        commit: CommitId,
    },
    /// Rows were erased from the lake, for good, while a version of it was open.
    #[error("{path} is not what it was, as rows of it were erased from the lake: open the version again")]
    Erased {
        /// The file or table.
        path: String,
    },
    /// Others kept writing rows anew that were to be erased.
    #[error(
        "table {table}: in {attempts} rounds others kept writing the rows anew that are erased; no version shows them, and copies of their bytes may be left: finish the purge once those writers are done"
    )]
    PurgeContention {
        /// The table.
        table: forebay_format::TableId,
        /// How often it was tried.
        attempts: u32,
    },
    /// A collection of garbage is deleting, or stopped while it did.
    #[error(
        "collection {epoch} is deleting objects: try again later or, if it has stopped, collect garbage again first"
    )]
    Collecting {
        /// The collection.
        epoch: u64,
    },
    /// Another collection began while this one looked for garbage, or somebody who waited for it called it off.
    #[error(
        "collection {epoch} was called off, by a later one or by somebody who waited for it; nothing was deleted: try again"
    )]
    CalledOff {
        /// The collection.
        epoch: u64,
    },
    /// A branch of another lake has commits that what is pushed to it lacks.
    #[error(
        "branch '{branch}' of {url} is at commit {theirs}, which commit {ours} doesn't follow: pull that branch, merge it and push again, or push to a branch of another name"
    )]
    NotFastForward {
        /// The other lake.
        url: String,
        /// Its branch.
        branch: String,
        /// The branch's commit.
        theirs: CommitId,
        /// The commit to be pushed.
        ours: CommitId,
    },
    /// A transaction was committed without a change.
    #[error("nothing to commit on branch '{branch}'")]
    NothingToCommit {
        /// The branch.
        branch: String,
    },
    /// A link can't be followed: what it leads to changed, is gone, or never was there.
    #[error("link to {url}: {reason}")]
    LinkBroken {
        /// Where it leads.
        url: String,
        /// What is wrong.
        reason: String,
    },
    /// A link leads to where nobody allowed this lake's links to lead.
    #[error(
        "link to {url}: it leads out of the lake {lake}, and links are followed only where you allow it: open the lake with \
         links=[\"{place}\"] (--allow {place} on the command line)"
    )]
    LinkForbidden {
        /// Where it leads.
        url: String,
        /// The lake.
        lake: String,
        /// What to allow.
        place: String,
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
