//! Forebay's bytes: typed columns in data files, and the metadata that versions them.
//!
//! This crate is sans-IO: it turns typed columns into bytes and bytes into typed columns, over slices and
//! [`std::io::Write`]. It has no async code, no threads and no idea where an object is kept, so a reader for another
//! framework can be built on it alone.
//!
//! | to | use |
//! |---|---|
//! | describe a table | [`Schema`], [`Column`], [`DType`], [`Dim`], [`Kind`] |
//! | write rows | [`DataFileWriter`] over [`ColumnSlice`]s |
//! | read rows | [`Footer`], [`FileIndex`], [`ColumnIndex`], then [`ColumnIndex::decode_block`] |
//! | version them | [`meta`]: lake marker, commit, table root, manifest page, ref entry, tag |

mod bytes;
mod checksum;
mod column;
mod data;
mod dtype;
mod envelope;
mod error;
#[rustfmt::skip]
mod generated;
mod id;
pub mod meta;
mod schema;

pub use checksum::crc32c;
pub use column::{Bitmap, ColumnData, ColumnSlice, OwnedValues, Values};
pub use data::{
    Block, Bound, ChunkIndex, ColumnIndex, DataFileWriter, FileIndex, Footer, Head, Part, RaggedBlock, Section, Stats,
    WriteOptions,
};
pub use dtype::DType;
pub use error::{Error, Result};
pub use id::{CommitId, FieldId, FileId, FragmentId, Id, LakeId, ObjectId, TableId, of};
pub use schema::{Codec, Column, Compression, Dim, Kind, Layout, Schema};
