//! Names of branches, tags and tables, and the paths of objects.

use forebay_format::{CommitId, FileId, Id, PinId};

use crate::{Error, Result};

pub(crate) const MARKER: &str = "forebay";

pub(crate) fn data(id: FileId) -> String {
    format!("data/{id}")
}

pub(crate) fn meta<T>(id: Id<T>) -> String {
    format!("meta/{id}")
}

pub(crate) const HEADS: &str = "refs/heads";
pub(crate) const TAGS: &str = "refs/tags";
pub(crate) const DELETED_TAGS: &str = "refs/deleted-tags";

pub(crate) const PINS: &str = "pins";
pub(crate) const GC: &str = "gc";
pub(crate) const PURGES: &str = "purges";
pub(crate) const META: &str = "meta";
pub(crate) const DATA: &str = "data";

pub(crate) fn pin(id: PinId) -> String {
    format!("{PINS}/{id}")
}

/// Purges are numbered, so that two at once meet.
pub(crate) fn purge(number: u64) -> String {
    format!("{PURGES}/{number:020}")
}

/// A step of a collection.
pub(crate) fn gc(epoch: u64, step: &str) -> String {
    format!("{GC}/{epoch:020}/{step}")
}

pub(crate) fn entry(branch: &str, sequence: u64) -> String {
    format!("{HEADS}/{branch}/{sequence:020}")
}

pub(crate) fn hint(branch: &str) -> String {
    format!("{HEADS}/{branch}/hint")
}

pub(crate) fn tag(name: &str) -> String {
    format!("{TAGS}/{name}")
}

/// Where it says that a tag was deleted.
pub(crate) fn deleted_tag(name: &str) -> String {
    format!("{DELETED_TAGS}/{name}")
}

/// The name of a branch that is a transaction's own.
pub(crate) fn scratch(id: CommitId) -> String {
    format!("{SCRATCH}{id}")
}

const SCRATCH: &str = "transaction-";

/// Whether a branch is a transaction's own.
pub(crate) fn is_scratch(branch: &str) -> bool {
    branch.strip_prefix(SCRATCH).is_some_and(|id| id.parse::<CommitId>().is_ok())
}

/// Names become parts of object paths on every store, so they keep to what all of them take alike.
pub(crate) fn check(what: &'static str, name: &str) -> Result<()> {
    let fail = |reason| Err(Error::InvalidName { what, name: name.to_owned(), reason });
    if name.is_empty() || name.len() > 200 {
        return fail("it needs 1 to 200 characters");
    }
    if !name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b)) {
        return fail("use letters, digits, '-', '_' and '.'");
    }
    if name.starts_with('.') || name.ends_with('.') {
        return fail("it starts or ends with '.'");
    }
    Ok(())
}
