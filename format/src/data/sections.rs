//! A data file, byte for byte: what a full verification reads and checks.

use std::ops::Range;

use super::{Block, FileIndex, Footer, Head};
use crate::{Error, Result, meta::DataFileRef};

/// A part of a data file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// Its bytes in the file.
    pub range: Range<u64>,
    /// What they are.
    pub part: Part,
}

/// What a part of a data file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Part {
    /// The head.
    Head,
    /// A chunk.
    Chunk {
        /// The number of its column.
        column: usize,
        /// Its number in the column.
        chunk: usize,
    },
    /// Zeros up to what comes next.
    Padding,
    /// The index and the footer.
    Tail,
}

impl FileIndex {
    /// The parts of the file in order: together they are all of its bytes. Chunks of no bytes are left out.
    #[must_use]
    pub fn sections(&self) -> Vec<Section> {
        let mut sections = vec![Section { range: 0..Head::SIZE as u64, part: Part::Head }];
        let mut end = Head::SIZE as u64;
        let mut add = |range: Range<u64>, part| {
            if range.start > end {
                sections.push(Section { range: end..range.start, part: Part::Padding });
            }
            end = range.end;
            if !range.is_empty() {
                sections.push(Section { range, part });
            }
        };
        let mut chunks: Vec<_> = self
            .columns()
            .iter()
            .enumerate()
            .flat_map(|(column, index)| {
                index
                    .chunks()
                    .iter()
                    .enumerate()
                    .map(move |(chunk, found)| (found.range(), Part::Chunk { column, chunk }))
            })
            .collect();
        chunks.sort_by_key(|(range, _)| (range.start, range.end));
        chunks.into_iter().for_each(|(range, part)| add(range, part));
        add(self.index_offset()..self.size(), Part::Tail);
        sections
    }

    /// Checks all bytes of a section: checksums, and that they decode.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Checksum`], [`Error::Unsupported`]: what is wrong and where.
    pub fn check_section(&self, section: &Section, bytes: &[u8]) -> Result<()> {
        let start = section.range.start;
        let corrupt = |offset, what: &str, reason: String| Err(Error::Corrupt { what: what.into(), offset, reason });
        if bytes.len() as u64 != section.range.end - start {
            let expected = section.range.end - start;
            return corrupt(start, "part of a data file", format!("{} bytes instead of {expected}", bytes.len()));
        }
        match section.part {
            Part::Head => {
                let head = Head::parse(bytes)?;
                if head.id != self.file() {
                    return corrupt(0, "head of a data file", format!("it is of file {}", head.id));
                }
                Ok(())
            }
            Part::Padding => match bytes.iter().position(|byte| *byte != 0) {
                Some(at) => corrupt(start + at as u64, "padding", "a byte is not zero".into()),
                None => Ok(()),
            },
            Part::Tail => {
                let file = DataFileRef {
                    id: self.file(),
                    size: self.size(),
                    index_offset: self.index_offset(),
                    index_length: (self.size() - self.index_offset()) as u32 - Footer::SIZE as u32,
                    fields: self.columns().iter().map(super::ColumnIndex::field).collect(),
                };
                Self::parse(bytes, &file).map(drop)
            }
            Part::Chunk { column, chunk } => {
                let column = &self.columns()[column];
                let chunk = &column.chunks()[chunk];
                let stored = |block: &Block| {
                    let (from, to) = (block.range().start - start, block.range().end - start);
                    Ok::<_, Error>(&bytes[from as usize..to as usize])
                };
                if column.direct().is_none() {
                    return column.read_rows(chunk.row_range(), stored).map(drop);
                }
                for block in chunk.blocks.clone() {
                    column.check_block(block, stored(&column.block(block))?)?;
                }
                for block in column.validity_blocks_of(chunk.row_range()) {
                    column.check_validity(block, stored(block)?)?;
                }
                Ok(())
            }
        }
    }
}
