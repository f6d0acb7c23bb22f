//! Metadata objects: plain structures, and their bytes.
//!
//! Every object is an envelope (magic, kind, version, feature bits, length, crc32c) around a flatbuffer; `encode`
//! gives its bytes, `decode` checks them and rebuilds the structure.

pub(crate) mod decode;
pub(crate) mod encode;
mod keep;
mod page;
mod pointer;
mod purge;

use std::{collections::BTreeMap, sync::Arc};

pub use keep::{GcRecord, Pin};
pub use purge::Purge;

use crate::{CommitId, FieldId, FileId, FragmentId, LakeId, ObjectId, RowSet, Schema, TableId};

const KIND_LAKE: [u8; 4] = *b"LAKE";
const KIND_COMMIT: [u8; 4] = *b"CMIT";
const KIND_ROOT: [u8; 4] = *b"ROOT";
const KIND_PAGE: [u8; 4] = *b"PAGE";
const KIND_REF: [u8; 4] = *b"REFE";
const KIND_ORIGINS: [u8; 4] = *b"ORIG";
const KIND_TAG: [u8; 4] = *b"TAGG";
const KIND_PIN: [u8; 4] = *b"PINN";
const KIND_GC: [u8; 4] = *b"GCRC";
const KIND_PURGE: [u8; 4] = *b"PURG";

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
    /// Whether rows were erased from it: then every reader looks at the records, `purges/`.
    pub purges: bool,
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
    /// Its rows, without deleted ones.
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
    /// What was done: `create`, `append`, `delete`, `update`, `schema`, `compact`, `drop`, `rename`, `merge`, and kinds to come.
    pub kind: String,
    /// Rows added.
    pub rows_added: u64,
    /// Fragments added or changed.
    pub fragments: Vec<FragmentId>,
    /// Columns added or changed.
    pub fields: Vec<FieldId>,
    /// Rows deleted.
    pub rows_deleted: u64,
    /// Rows of which cells were updated.
    pub rows_changed: u64,
}

/// A table: schema and pages of fragments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableRoot {
    /// Its columns.
    pub schema: Schema,
    /// Its fragments, in order, in pages.
    pub pages: Vec<PageRef>,
    /// The columns whose values together differ from row to row; empty if the table has no key.
    pub key: Vec<FieldId>,
    /// Files of one row: the value of their columns in all rows of fragments that have no file with them.
    pub defaults: Vec<DataFileRef>,
}

/// A page of a table's manifest, and what is in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageRef {
    /// Fragments in it.
    pub fragments: u32,
    /// Rows in it, without deleted ones.
    pub rows: u64,
    /// Bytes of the data files it names, without those of overlays.
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
    /// Rows in its files, deleted ones included.
    pub rows: u32,
    /// The data files that hold its columns, but for those that have the table's default in all of its rows.
    pub files: Vec<DataFileRef>,
    /// Rows that are there no more.
    pub deleted: RowSet,
    /// New values of some cells; where overlays meet, the last one counts.
    pub overlays: Vec<Overlay>,
    /// Where its rows were first written, if that was in other fragments: to an [`Origins`].
    pub origins: Option<Box<Pointer>>,
}

/// New values of some rows of some columns of a fragment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overlay {
    /// The file: from row `first` on a row for each of `rows`, in their order. Overlays of several fragments may share one.
    pub file: DataFileRef,
    /// The fragment's rows that it has values for.
    pub rows: RowSet,
    /// Where in the file they begin.
    pub first: u32,
}

/// Where the rows of a fragment were first written: object kind `ORIG`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Origins {
    /// In the order of the fragment's rows.
    pub origins: Vec<Origin>,
}

/// Rows of a fragment that were first written in another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The fragment that they were first written in.
    pub fragment: FragmentId,
    /// Its rows that are meant. They lie side by side, in this order.
    pub rows: RowSet,
    /// The overlays that these rows went through since.
    pub edits: Vec<Edit>,
}

/// An overlay that rows went through, by row numbers of the fragment that they were first written in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// The overlay's file.
    pub file: FileId,
    /// The rows it had values for.
    pub rows: RowSet,
    /// The columns it had.
    pub fields: Vec<FieldId>,
}

impl Fragment {
    /// A fragment just written.
    #[must_use]
    pub fn new(id: FragmentId, rows: u32, files: Vec<DataFileRef>) -> Self {
        Self { id, rows, files, deleted: RowSet::new(), overlays: Vec::new(), origins: None }
    }

    /// Its rows without deleted ones.
    #[must_use]
    pub fn live(&self) -> u32 {
        self.rows - self.deleted.len()
    }

    /// Its data files, those of overlays included.
    pub fn all_files(&self) -> impl Iterator<Item = &DataFileRef> {
        self.files.iter().chain(self.overlays.iter().map(|overlay| &overlay.file))
    }
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
    /// The columns in it. Files of a page share what is alike.
    pub fields: Arc<[FieldId]>,
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
    /// No collection up to this one may drop the commit. Never less than that of the entry before.
    pub epoch: u64,
    /// Purges that were fenced up to this epoch must be known to whoever reads the branch. Never less than that of the entry
    /// before.
    pub purged: u64,
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
    /// Moves it to any commit.
    Reset,
    /// Ends the branch, at its last commit. An entry of kind [`Create`](Self::Create) may follow.
    Delete,
    /// Changes nothing, and says that a collection of garbage has begun: who loses a claim to it and took more time than
    /// its grace must find his pin among those it honoured.
    Fence,
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
