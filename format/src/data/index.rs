//! The index of a data file: parsed once, checked to the last rule, then asked for places.

use std::collections::HashSet;

use flatbuffers::Vector;

use super::{
    ChunkIndex, ColumnIndex, Footer, Head,
    column_index::{Content, Places, Stored, validity_blocks},
    column_writer::ALIGNMENT,
    frame::MAX_INDEX_BYTES,
    geometry::Geometry,
    stats::{self, Stats},
    validity,
    writer::WriteOptions,
};
use crate::{
    Codec, Column, Compression, Error, FieldId, FileId, Kind, Layout, Result, checksum, envelope,
    generated::data as fb,
    meta::{DataFileRef, decode},
};

/// The index of a data file.
#[derive(Clone, Debug)]
pub struct FileIndex {
    file: FileId,
    rows: u32,
    size: u64,
    index_offset: u64,
    columns: Vec<ColumnIndex>,
}

impl FileIndex {
    /// The most bytes that an index may have, 4 MiB.
    pub const MAX_BYTES: u32 = MAX_INDEX_BYTES;

    /// The index of `file`, of which `tail` are the last bytes, [`DataFileRef::tail`]: index and footer.
    ///
    /// What it then says is consistent: blocks lie in their chunks, chunks in the file and apart from each other, and
    /// rows add up. It takes memory in proportion to the length of `tail`.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Checksum`], [`Error::Unsupported`] or [`Error::Limit`].
    pub fn parse(tail: &[u8], file: &DataFileRef) -> Result<Self> {
        file.check()?;
        let corrupt = |reason: String| corrupt(file.index_offset, reason);
        if tail.len() as u64 != file.size - file.index_offset {
            return corrupt(format!("{} bytes instead of {}", tail.len(), file.size - file.index_offset));
        }
        let (index, footer) = tail.split_at(file.index_length as usize);
        let footer = Footer::parse(footer)?;
        if footer.id != file.id || footer.index_offset != file.index_offset || footer.index_length != file.index_length
        {
            return corrupt(format!("the footer is of file {}, with its index elsewhere", footer.id));
        }
        checksum::check(|| WHAT.into(), file.index_offset, index, footer.index_crc32c)?;
        let root = envelope::root::<fb::Index<'_>>(WHAT, file.index_offset, index)?;
        if decode::id::<crate::of::File>(WHAT, root.file())? != file.id || root.rows() != footer.rows {
            return corrupt("it is of another file, or of other rows, than its footer".into());
        }
        let parser = Parser { offset: file.index_offset, rows: root.rows() };
        let columns: Vec<_> = root.columns().iter().map(|column| parser.column(column)).collect::<Result<_>>()?;
        if !columns.iter().map(ColumnIndex::field).eq(file.fields.iter().copied()) {
            return corrupt("its columns are not those that the manifest names".into());
        }
        if columns.iter().map(ColumnIndex::field).collect::<HashSet<_>>().len() != columns.len() {
            return corrupt("two of its columns have the same identity".into());
        }
        let parsed =
            Self { file: file.id, rows: root.rows(), size: file.size, index_offset: file.index_offset, columns };
        parsed.check_apart()?;
        Ok(parsed)
    }

    /// The file's identity.
    #[must_use]
    pub fn file(&self) -> FileId {
        self.file
    }

    /// Rows in the file.
    #[must_use]
    pub fn rows(&self) -> u32 {
        self.rows
    }

    /// The file's size in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Where its index starts.
    #[must_use]
    pub fn index_offset(&self) -> u64 {
        self.index_offset
    }

    /// Its columns.
    #[must_use]
    pub fn columns(&self) -> &[ColumnIndex] {
        &self.columns
    }

    /// The column of this identity.
    #[must_use]
    pub fn column(&self, field: FieldId) -> Option<&ColumnIndex> {
        self.columns.iter().find(|column| column.field == field)
    }

    /// Every chunk with its column, in order of place.
    pub(crate) fn chunks_by_place(&self) -> Vec<(&ColumnIndex, &ChunkIndex)> {
        let chunks = self.columns.iter().flat_map(|column| column.chunks.iter().map(move |chunk| (column, chunk)));
        let mut chunks: Vec<_> = chunks.collect();
        // A chunk without bytes may share its place with the next one.
        chunks.sort_by_key(|(_, chunk)| (chunk.offset, chunk.length));
        chunks
    }

    fn check_apart(&self) -> Result<()> {
        let mut end = Head::SIZE as u64;
        for (column, chunk) in self.chunks_by_place() {
            if chunk.offset < end || chunk.range().end > self.index_offset {
                let reason = format!(
                    "a chunk of column '{}' at {}, of {} bytes, overlaps another or the file's ends",
                    column.name, chunk.offset, chunk.length
                );
                return corrupt(self.index_offset, reason);
            }
            end = chunk.range().end;
        }
        Ok(())
    }
}

const WHAT: &str = "index of a data file";

fn corrupt<T>(offset: u64, reason: String) -> Result<T> {
    Err(Error::Corrupt { what: WHAT.into(), offset, reason })
}

type List<'a> = Option<Vector<'a, u32>>;

fn length(list: List<'_>) -> u64 {
    list.map_or(0, |list| list.len() as u64)
}

fn values(list: List<'_>) -> impl Iterator<Item = u32> {
    list.into_iter().flat_map(|list| list.iter())
}

struct Parser {
    offset: u64,
    rows: u32,
}

impl Parser {
    fn column(&self, column: fb::Column<'_>) -> Result<ColumnIndex> {
        let name = column.name();
        let what = format!("column '{name}' of an {WHAT}");
        let described = Column {
            name: name.to_owned(),
            field: FieldId(column.field()),
            dtype: decode::dtype(&what, column.dtype())?,
            shape: decode::dims(&what, column.shape())?,
            nullable: column.nullable(),
            compression: Compression {
                codec: decode::codec(&what, column.codec(), column.level())?,
                shuffle: column.shuffle(),
            },
            kind: Kind::default(),
        };
        described.check().or_else(|error| corrupt(self.offset, error.to_string()))?;
        let block_bytes = column.block_bytes();
        if !(WriteOptions::MIN_BLOCK_BYTES..=WriteOptions::MAX_BLOCK_BYTES).contains(&(block_bytes as usize)) {
            return corrupt(self.offset, format!("column '{name}' has blocks of {block_bytes} bytes"));
        }
        let layout = described.layout();
        let places = match layout {
            Layout::Ragged { .. } => Places::Ragged(Vec::new(), Vec::new()),
            Layout::Fixed { row_bytes } => {
                let geometry = Geometry::new(row_bytes, block_bytes);
                match described.compression.codec {
                    Codec::None => Places::Direct(geometry),
                    _ => Places::Coded(geometry, Vec::new()),
                }
            }
        };
        let mut index = ColumnIndex {
            field: described.field,
            name: described.name,
            dtype: described.dtype,
            shape: described.shape,
            nullable: described.nullable,
            compression: described.compression,
            layout,
            rows: self.rows,
            chunks: Vec::new(),
            crc: Vec::new(),
            places,
            validity: Vec::new(),
        };
        let mut first_row = 0;
        for chunk in column.chunks().into_iter().flat_map(|chunks| chunks.iter()) {
            let place = (index.chunks.len(), first_row);
            first_row = self.chunk(&mut index, block_bytes, first_row, chunk).map_err(|reason| Error::Corrupt {
                what: WHAT.into(),
                offset: self.offset,
                reason: format!("chunk {} (from row {}) of column '{}': {reason}", place.0, place.1, index.name),
            })?;
        }
        if first_row != self.rows {
            return corrupt(
                self.offset,
                format!("the chunks of column '{}' have {first_row} rows, the file {}", index.name, self.rows),
            );
        }
        Ok(index)
    }

    /// Adds a chunk that starts at `first_row`; gives the row behind it.
    fn chunk(
        &self,
        column: &mut ColumnIndex,
        block_bytes: u32,
        first_row: u32,
        chunk: fb::Chunk<'_>,
    ) -> Result<u32, String> {
        let (rows, offset) = (chunk.rows(), chunk.offset());
        let end_row = first_row.checked_add(rows).filter(|end| rows > 0 && *end <= self.rows);
        let Some(end_row) = end_row else { return Err(format!("{rows} rows are none, or too many")) };
        if offset % ALIGNMENT != 0 {
            return Err(format!("its offset {offset} is no multiple of {ALIGNMENT}"));
        }
        let first_block = column.crc.len();
        let values_length = add_blocks(column, block_bytes, first_row, &chunk)?;
        column.crc.extend(values(chunk.block_crc()));

        let validity_blocks_count = length(chunk.validity_crc());
        if validity_blocks_count > 0 {
            if validity_blocks_count != u64::from(rows.div_ceil(validity::BLOCK_ROWS)) {
                return Err(format!("{validity_blocks_count} validity blocks for {rows} rows"));
            }
            if !column.nullable {
                return Err("validity bitmaps in a column that has no nulls".into());
            }
        }
        let end =
            offset.checked_add(values_length).filter(|end| *end <= self.offset).ok_or("it ends behind the index")?;
        let first_validity = column.validity.len();
        column.validity.extend(validity_blocks(first_row, rows, end, values(chunk.validity_crc())));
        let bitmap: u64 = column.validity[first_validity..].iter().map(|block| u64::from(block.stored)).sum();
        if chunk.length() != values_length + bitmap {
            return Err(format!("its length is {}, its blocks' {}", chunk.length(), values_length + bitmap));
        }

        let (media_rank, lengths) = (usize::from(chunk.media_rank()), length(chunk.media_shapes()));
        let every = rows as u64 * media_rank as u64;
        if media_rank > Column::MAX_RANK || (lengths != every && lengths != media_rank as u64) {
            return Err(format!("{lengths} lengths of decoded shapes of rank {media_rank} for {rows} rows"));
        }
        column.chunks.push(ChunkIndex {
            first_row,
            rows,
            offset,
            length: chunk.length(),
            values_length,
            blocks: first_block..column.crc.len(),
            validity_blocks: first_validity..column.validity.len(),
            stats: chunk.stats().map(|found| stats(column.dtype, found)),
            media_rank,
            media_shapes: values(chunk.media_shapes()).collect(),
        });
        Ok(end_row)
    }
}

/// Adds a chunk's blocks to `column`; gives their stored length.
fn add_blocks(
    column: &mut ColumnIndex,
    block_bytes: u32,
    first_row: u32,
    chunk: &fb::Chunk<'_>,
) -> Result<u64, String> {
    let (rows, blocks) = (chunk.rows(), length(chunk.block_crc()));
    let expect = |name: &str, found: u64, expected: u64| match found == expected {
        true => Ok(()),
        false => Err(format!("{found} {name} where {expected} are due")),
    };
    let coded = column.is_coded();
    let row_bytes = match column.layout {
        Layout::Fixed { row_bytes } => row_bytes as u64,
        Layout::Ragged { .. } => 0,
    };
    if let Places::Direct(geometry) | Places::Coded(geometry, _) = &column.places {
        expect("checksums of blocks", blocks, geometry.blocks(rows))?;
    }
    expect("stored lengths", length(chunk.block_stored()), if coded { blocks } else { 0 })?;
    match &mut column.places {
        Places::Direct(_) => Ok(u64::from(rows) * row_bytes),
        Places::Coded(geometry, places) => {
            let mut offset = chunk.offset();
            for (block, stored) in values(chunk.block_stored()).enumerate() {
                let raw = geometry.place(block as u64, rows).raw;
                offset = put(places, offset, stored, raw)?;
            }
            Ok(offset - chunk.offset())
        }
        Places::Ragged(places, contents) => {
            expect("row counts of blocks", length(chunk.block_rows()), blocks)?;
            expect("raw lengths", length(chunk.block_raw()), blocks)?;
            let mut offset = chunk.offset();
            let mut row = u64::from(first_row);
            let end_row = row + u64::from(rows);
            let mut stored = values(chunk.block_stored());
            let mut last: Option<Content> = None;
            let header = match column.layout {
                Layout::Ragged { rank } => 4 + 4 * rank as u32,
                Layout::Fixed { .. } => 4,
            };
            for (rows, raw) in values(chunk.block_rows()).zip(values(chunk.block_raw())) {
                if raw > block_bytes || raw == 0 {
                    return Err(format!("a block of {raw} raw bytes"));
                }
                let content = match last {
                    _ if rows > 0 => Content { raw, first_row: row as u32, rows, part: 0 },
                    Some(last) if last.rows == 1 || last.part > 0 => {
                        let before = if last.rows == 1 { last.raw.saturating_sub(header) } else { last.raw };
                        let part = last.part.checked_add(before).filter(|part| *part > 0).ok_or("a row too long")?;
                        Content { raw, first_row: last.first_row, rows, part }
                    }
                    _ => return Err("a block that goes on with no row".into()),
                };
                row += u64::from(rows);
                if row > end_row {
                    return Err("blocks of more rows than it has".into());
                }
                offset = put(places, offset, if coded { stored.next().unwrap_or(0) } else { raw }, raw)?;
                contents.push(content);
                last = Some(content);
            }
            expect("rows in blocks", row, end_row)?;
            Ok(offset - chunk.offset())
        }
    }
}

/// Adds a block at `offset`; gives where the next one is.
fn put(places: &mut Vec<Stored>, offset: u64, stored: u32, raw: u32) -> Result<u64, String> {
    if stored == 0 || stored > raw {
        return Err(format!("a block of {stored} stored bytes for {raw} raw ones"));
    }
    places.push(Stored { offset, length: stored });
    offset.checked_add(u64::from(stored)).ok_or_else(|| "a block that ends nowhere".to_owned())
}

fn stats(dtype: crate::DType, found: fb::Stats<'_>) -> Stats {
    Stats {
        nulls: found.nulls(),
        nans: found.nans(),
        distinct: found.distinct(),
        min: found.min().and_then(|bytes| stats::bound(dtype, bytes.bytes())),
        max: found.max().and_then(|bytes| stats::bound(dtype, bytes.bytes())),
    }
}
