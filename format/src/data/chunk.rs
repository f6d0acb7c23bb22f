//! A chunk as the index knows it, while it is written.

use flatbuffers::{FlatBufferBuilder, Vector, WIPOffset};

use super::{Footer, Stats, frame::MAX_INDEX_BYTES, stats::Bound, validity::Bits};
use crate::{Column, Error, FileId, Result, checksum::crc32c, generated::data as fb, meta::encode};

/// What the index will say of a chunk.
#[derive(Debug, Default)]
pub(crate) struct ChunkDraft {
    pub(crate) rows: u32,
    pub(crate) offset: u64,
    pub(crate) length: u64,
    pub(crate) crc: Vec<u32>,
    pub(crate) stored: Vec<u32>,
    pub(crate) block_rows: Vec<u32>,
    pub(crate) block_raw: Vec<u32>,
    pub(crate) validity_crc: Vec<u32>,
    pub(crate) media_rank: u8,
    pub(crate) media_shapes: Vec<u32>,
    pub(crate) stats: Stats,
}

impl ChunkDraft {
    /// About how many bytes of index it takes, never too few.
    pub(crate) fn index_bytes(&self) -> u64 {
        let lists =
            [&self.crc, &self.stored, &self.block_rows, &self.block_raw, &self.validity_crc, &self.media_shapes];
        CHUNK_INDEX_BYTES + lists.iter().map(|list| list.len() as u64 * 4).sum::<u64>()
    }

    /// Keeps one shape when all rows have the same.
    pub(crate) fn fold_shapes(&mut self) {
        let rank = usize::from(self.media_rank);
        if rank == 0 {
            return;
        }
        let (first, rest) = self.media_shapes.split_at(rank);
        if rest.chunks_exact(rank).all(|shape| shape == first) {
            self.media_shapes.truncate(rank);
        }
    }
}

/// What a chunk takes in the index at most, its lists aside.
pub(crate) const CHUNK_INDEX_BYTES: u64 = 320;
/// What a column takes in the index at most, its name and its chunks aside.
pub(crate) const COLUMN_INDEX_BYTES: u64 = 320;

/// The index and footer of a file, of which `end` bytes were written.
pub(crate) fn tail(
    file: FileId,
    rows: u32,
    block_bytes: u32,
    columns: &[(&Column, &[ChunkDraft])],
    end: u64,
) -> Result<(Vec<u8>, Footer)> {
    let mut b = FlatBufferBuilder::new();
    let columns: Vec<_> =
        columns.iter().map(|(column, chunks)| index_column(&mut b, column, chunks, block_bytes)).collect();
    let columns = Some(b.create_vector(&columns));
    let id = Some(b.create_vector(file.as_bytes()));
    let root = fb::Index::create(&mut b, &fb::IndexArgs { file: id, rows, columns });
    b.finish_minimal(root);
    let index = b.finished_data();
    if index.len() > MAX_INDEX_BYTES as usize {
        return Err(Error::Limit {
            what: "bytes of a data file's index".into(),
            found: index.len() as u64,
            limit: u64::from(MAX_INDEX_BYTES),
        });
    }
    let footer =
        Footer { id: file, rows, index_offset: end, index_length: index.len() as u32, index_crc32c: crc32c(index) };
    let mut bytes = index.to_vec();
    bytes.extend_from_slice(&footer.encode());
    Ok((bytes, footer))
}

fn index_column<'a>(
    b: &mut FlatBufferBuilder<'a>,
    column: &Column,
    chunks: &[ChunkDraft],
    block_bytes: u32,
) -> WIPOffset<fb::Column<'a>> {
    let chunks: Vec<_> = chunks.iter().map(|chunk| index_chunk(b, chunk)).collect();
    let shape = encode::dims(&column.shape);
    let (codec, level) = encode::codec(column.compression.codec);
    let args = fb::ColumnArgs {
        field: column.field.0,
        name: Some(b.create_string(&column.name)),
        dtype: Some(b.create_string(column.dtype.name())),
        shape: (!shape.is_empty()).then(|| b.create_vector(&shape)),
        nullable: column.nullable,
        codec: Some(b.create_string(codec)),
        level,
        shuffle: column.compression.shuffle,
        block_bytes,
        chunks: Some(b.create_vector(&chunks)),
    };
    fb::Column::create(b, &args)
}

fn index_chunk<'a>(b: &mut FlatBufferBuilder<'a>, chunk: &ChunkDraft) -> WIPOffset<fb::Chunk<'a>> {
    let args = fb::ChunkArgs {
        rows: chunk.rows,
        offset: chunk.offset,
        length: chunk.length,
        block_crc: scalars(b, &chunk.crc),
        block_stored: scalars(b, &chunk.stored),
        block_rows: scalars(b, &chunk.block_rows),
        block_raw: scalars(b, &chunk.block_raw),
        validity_crc: scalars(b, &chunk.validity_crc),
        media_rank: chunk.media_rank,
        media_shapes: scalars(b, &chunk.media_shapes),
        stats: Some(index_stats(b, &chunk.stats)),
    };
    fb::Chunk::create(b, &args)
}

fn scalars<'a>(b: &mut FlatBufferBuilder<'a>, values: &[u32]) -> Option<WIPOffset<Vector<'a, u32>>> {
    (!values.is_empty()).then(|| b.create_vector(values))
}

fn index_stats<'a>(b: &mut FlatBufferBuilder<'a>, stats: &Stats) -> WIPOffset<fb::Stats<'a>> {
    let mut bound = |bound: &Option<Bound>| {
        bound.as_ref().map(|bound| match bound {
            Bound::Int(value) => b.create_vector(&value.to_le_bytes()),
            Bound::Uint(value) => b.create_vector(&value.to_le_bytes()),
            Bound::Float(value) => b.create_vector(&value.to_le_bytes()),
            Bound::Text(text) => b.create_vector(text.as_bytes()),
        })
    };
    let (min, max) = (bound(&stats.min), bound(&stats.max));
    fb::Stats::create(b, &fb::StatsArgs { nulls: stats.nulls, nans: stats.nans, distinct: stats.distinct, min, max })
}

impl ChunkDraft {
    /// Writes the validity blocks of the chunk's rows, unless all are valid.
    pub(crate) fn put_validity(&mut self, bits: &Bits, out: &mut dyn std::io::Write) -> Result<()> {
        for block in bits.blocks() {
            self.validity_crc.push(crc32c(block));
            self.length += block.len() as u64;
            out.write_all(block)?;
        }
        Ok(())
    }
}
