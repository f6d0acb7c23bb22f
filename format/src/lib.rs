//! Forebay's bytes: typed columns in data files, and the metadata that versions them.
//!
//! This crate is sans-IO: it turns typed columns into bytes and bytes into typed columns, over slices and
//! [`std::io::Write`]. It has no async code, no threads and no idea where an object is kept, so a reader for another
//! framework can be built on it alone.
//!
//! | to | use |
//! |---|---|
//! | describe a table | [`Schema`], [`Column`], [`DType`], [`Dim`], [`Kind`] |
//! | point at bytes elsewhere | [`Link`] |
//! | write rows | [`DataFileWriter`] over [`ColumnSlice`]s |
//! | read rows | [`Footer`], [`FileIndex`], [`ColumnIndex`], then [`ColumnIndex::decode_block`] |
//! | version them | [`meta`]: lake marker, commit, table root, manifest page, ref entry, tag; [`RowSet`] |
//! | check a whole file | [`FileIndex::sections`], [`FileIndex::check_section`] |
//!
//! ```
//! use forebay_format::*;
//!
//! # fn main() -> Result<()> {
//! let column = Column::new("image", DType::U8, [Dim::Fixed(2), Dim::Fixed(3)])?;
//! let mut writer = DataFileWriter::new(Vec::new(), FileId::random(), &[column], WriteOptions::default())?;
//! writer.push(&[ColumnSlice { rows: 2, values: Values::Fixed(b"abcdefuvwxyz"), validity: None }])?;
//! let (bytes, file) = writer.finish()?;
//!
//! let index = FileIndex::parse(&bytes[file.index_offset as usize..], &file)?;
//! let column = &index.columns()[0];
//! let block = |block: &Block| Ok::<_, Error>(&bytes[block.offset as usize..][..block.stored as usize]);
//! assert_eq!(column.read_rows(1..2, block)?.values, OwnedValues::Fixed(b"uvwxyz".to_vec()));
//! // Uncompressed rows of fixed shape lie in the file as they are in memory.
//! assert_eq!(&bytes[column.row_offset(1).unwrap() as usize..][..6], b"uvwxyz");
//! # Ok(())
//! # }
//! ```
//!
//! The bytes are specified in `docs/format.md`. Input is hostile: whatever is parsed is verified first, under limits, and an
//! error names its place.

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
mod link;
pub mod meta;
mod rows;
mod schema;

pub use checksum::crc32c;
pub use column::{Bitmap, ColumnData, ColumnSlice, OwnedValues, Values};
pub use data::{
    Block, Bound, ChunkIndex, ColumnIndex, DataFileWriter, FileIndex, Footer, Head, Part, RaggedBlock, Section, Stats,
    WriteOptions,
};
pub use dtype::DType;
pub use error::{Error, Result};
pub use id::{CommitId, FieldId, FileId, FragmentId, Id, LakeId, ObjectId, PinId, PurgeId, TableId, of};
pub use link::Link;
pub use rows::RowSet;
pub use schema::{Codec, Column, Compression, Dim, Kind, Layout, Schema};
