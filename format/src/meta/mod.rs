//! Metadata objects: plain structures, and their bytes.
//!
//! Every object is an envelope (magic, kind, version, feature bits, length, crc32c) around a flatbuffer; `encode`
//! gives its bytes, `decode` checks them and rebuilds the structure.

pub(crate) mod decode;
pub(crate) mod encode;
mod pointer;

use std::collections::BTreeMap;

use crate::{CommitId, FieldId, FileId, FragmentId, LakeId, ObjectId, Schema, TableId};

const KIND_LAKE: [u8; 4] = *b"LAKE";
const KIND_COMMIT: [u8; 4] = *b"CMIT";
const KIND_ROOT: [u8; 4] = *b"ROOT";
const KIND_PAGE: [u8; 4] = *b"PAGE";
const KIND_REF: [u8; 4] = *b"REFE";
const KIND_TAG: [u8; 4] = *b"TAGG";

/// A pointer to a metadata object `meta/<id>`: the graph of objects is a Merkle graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pointer {
    /// The object.
    pub id: ObjectId,
    /// Its length in bytes.
    pub length: u32,
    /// The BLAKE3 hash of its bytes.
    pub hash: [u8; 32],
}

/// `forebay` at the root of a lake: says that it is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LakeMarker {
    /// The lake's identity.
    pub id: LakeId,
    /// When it was made, in microseconds since 1970 UTC.
    pub created: i64,
}

/// A state of the whole lake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    /// Its identity: the object `meta/<id>` holds it.
    pub id: CommitId,
    /// The commits it follows: none for the first, two for a merge.
    pub parents: Vec<Pointer>,
    /// Distance from the first commit: 1 + the largest of its parents'.
    pub generation: u64,
    /// Who made it.
    pub author: String,
    /// Why.
    pub message: String,
    /// When, in microseconds since 1970 UTC, by the writer's clock.
    pub time: i64,
    /// The tables, by name.
    pub tables: Vec<TableEntry>,
    /// What it changed against its first parent.
    pub changes: Vec<Change>,
    /// What the writer wants to remember: run id, metrics.
    pub properties: BTreeMap<String, String>,
}

/// A table in a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableEntry {
    /// Its name.
    pub name: String,
    /// Its identity.
    pub id: TableId,
    /// Its rows.
    pub rows: u64,
    /// Its root, in the commit when it is small.
    pub root: RootRef,
}

/// Where a table root is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RootRef {
    /// Embedded.
    Inline(TableRoot),
    /// An object of its own.
    Object(Pointer),
}

/// What a commit did to a table; enough to tell whether another commit's work can be rebased over it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The table.
    pub table: TableId,
    /// What was done: `create`, `append`, `schema`, and kinds to come.
    pub kind: String,
    /// Rows added.
    pub rows_added: u64,
    /// Fragments added or changed.
    pub fragments: Vec<FragmentId>,
    /// Columns added or changed.
    pub fields: Vec<FieldId>,
}

/// A table: schema and pages of fragments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableRoot {
    /// Its columns.
    pub schema: Schema,
    /// Its fragments, in order, in pages.
    pub pages: Vec<PageRef>,
}

/// A page of a table's manifest, and what is in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageRef {
    /// Fragments in it.
    pub fragments: u32,
    /// Rows in it.
    pub rows: u64,
    /// Bytes of the data files it names.
    pub bytes: u64,
    /// Where it is.
    pub page: PageLocation,
}

/// Where a manifest page is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PageLocation {
    /// Embedded in the root: a small table opens without another request.
    Inline(Page),
    /// An object of its own.
    Object(Pointer),
}

/// A run of a table's fragments.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Page {
    /// The fragments.
    pub fragments: Vec<Fragment>,
}

/// Rows written together. Its membership never changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// Its identity: with a row number it names a row on every branch.
    pub id: FragmentId,
    /// Rows in it.
    pub rows: u32,
    /// The data files that hold its columns.
    pub files: Vec<DataFileRef>,
}

/// A data file in a manifest, with what a reader needs to fetch its index in one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataFileRef {
    /// The object `data/<id>`.
    pub id: FileId,
    /// Its size in bytes.
    pub size: u64,
    /// Where its index starts.
    pub index_offset: u64,
    /// The index's length.
    pub index_length: u32,
    /// The columns in it.
    pub fields: Vec<FieldId>,
}

/// An entry of a branch's log, `refs/heads/<branch>/<seq>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefEntry {
    /// What the entry does.
    pub kind: RefKind,
    /// A random number that tells this entry from an equal one of another writer.
    pub nonce: u64,
    /// The branch's commit from here on.
    pub commit: Pointer,
    /// That commit's object, byte for byte.
    pub embedded: Vec<u8>,
    /// When, in microseconds since 1970 UTC, by the writer's clock.
    pub time: i64,
}

/// What an entry of a branch's log does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RefKind {
    /// Starts the branch at a commit.
    Create,
    /// Moves it to a child of its commit.
    Commit,
    /// Occupies the sequence number and changes nothing, so that a late request can't.
    Noop,
}

/// A tag, `refs/tags/<name>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tag {
    /// The commit it names.
    pub commit: Pointer,
    /// That commit's object, byte for byte.
    pub embedded: Vec<u8>,
    /// Who made it.
    pub author: String,
    /// When, in microseconds since 1970 UTC.
    pub time: i64,
}
