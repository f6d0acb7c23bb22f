//! Versions of tables on plain object storage: a commit graph whose only primitive is put-if-absent.
//!
//! A [`Lake`] is a prefix of an object store with named tables and one commit graph over all of them. Everything it
//! holds is immutable but the logs of its branches, and those only grow: entry `n + 1` of a branch is *claimed*, and a
//! claim that is lost is rebased over the winner.
//!
//! ```text
//!   forebay                              the marker
//!   data/<id>                            rows           <- TableWriter
//!   meta/<id>                            pages, roots, commits
//!   refs/heads/<branch>/<seq>            the log        <- Transaction::commit claims the next entry
//!   refs/heads/<branch>/hint             where the log's end was: a hint, never trusted
//!   refs/tags/<name>
//!   purges/<id>                          what was erased
//!   pins/<id>  gc/<n>/<step>             what is in use, and what was collected
//! ```
//!
//! | to | use |
//! |---|---|
//! | make or open a lake | [`Lake::create`], [`Lake::open`] |
//! | see a version | [`Lake::snapshot`] at a branch, tag or commit, then [`Snapshot::table`] |
//! | read rows | [`Table::read`], [`Table::take`] |
//! | choose rows for a loader | [`Selection`] |
//! | follow links to bytes elsewhere | [`Lake::allow_links`], [`Table::take_linked`], [`Lake::verify_links`] |
//! | write | [`Lake::begin`], [`TableWriter`], [`Transaction::commit`] |
//! | delete, update, upsert rows; change columns | [`Transaction::delete`], [`Transaction::update`], [`Transaction::upsert`], [`Transaction::add_column`] |
//! | bring branches together | [`Lake::merge`], [`Lake::cherry_pick`], [`Lake::revert`], [`Policy`] |
//! | copy between lakes | [`Lake::clone_to`], [`Lake::push`] |
//! | make several commits seen at once | [`Lake::scratch`], then [`Lake::merge`] |
//! | keep a version while it is used | [`Lake::pin`] |
//! | erase rows from all history | [`Lake::purge`] |
//! | delete what nothing leads to | [`Lake::gc`] |
//! | find damage, and what it means | [`Lake::verify`], [`Lake::assess`] |
//! | see what differs | [`Lake::diff`], [`Lake::diff_rows`] |

mod commit;
mod copy;
mod diff;
mod epochs;
mod error;
mod file;
mod gc;
mod graph;
mod history;
mod lake;
mod leaf;
mod links;
mod manifest;
mod merge;
mod names;
mod pause;
mod pin;
mod purge;
mod read;
mod refs;
mod repair;
mod scratch;
mod scrub;
mod selection;
mod snapshot;
mod table;
mod transaction;
mod values;
mod verify;
mod writer;

pub use copy::CopyReport;
pub use diff::{RowChanges, RowDiff, TableDiff};
pub use error::{Error, Result};
pub use file::{OpenFile, Verify};
pub use gc::{GcOptions, GcReport};
pub use history::{LogEntry, MergeOptions, MergeOutcome, MergeReport};
pub use lake::{At, Lake};
pub use links::{LinkFault, LinkReport, Linked};
pub use merge::{Choice, Clash, Conflict, ConflictKind, Decide, MergeSide, Policy};
#[doc(hidden)]
pub use pause::seed_pauses;
pub use pin::{DEFAULT_LEASE, Pin};
pub use purge::PurgeReport;
pub use repair::{BranchState, Damage, Loss};
pub use scratch::Scratch;
pub use selection::{Rows, Selection};
pub use snapshot::Snapshot;
pub use table::{Location, RowId, Table};
pub use transaction::{CompactOptions, Transaction};
pub use verify::{Fault, Verification};
pub use writer::{TableWriter, Written};

/// The branch that a new lake starts with.
pub const DEFAULT_BRANCH: &str = "main";
