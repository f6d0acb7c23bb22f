//! Data files: the columns of a fragment.

mod chunk;
mod codec;
mod column_index;
mod column_writer;
mod frame;
mod geometry;
#[cfg(test)]
mod hostile;
mod index;
mod ragged;
mod read;
mod sections;
mod stats;
mod validity;
mod writer;

pub use column_index::{Block, ChunkIndex, ColumnIndex};
pub use frame::{Footer, Head};
pub use index::FileIndex;
pub use ragged::RaggedBlock;
pub use sections::{Part, Section};
pub use stats::{Bound, Stats};
pub use writer::{DataFileWriter, WriteOptions};
