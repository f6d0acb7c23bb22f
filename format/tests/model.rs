//! The plain model of a column: a list of rows, each a shape and bytes, or null.

use std::ops::Range;

use forebay_format::*;

#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub valid: bool,
    pub shape: Vec<u32>,
    pub bytes: Vec<u8>,
}

/// Rows as a batch that a writer takes.
pub fn batch(column: &Column, rows: &[Row]) -> ColumnData {
    let bytes: Vec<u8> = rows.iter().flat_map(|row| row.bytes.iter().copied()).collect();
    let values = match column.layout() {
        Layout::Fixed { .. } => OwnedValues::Fixed(bytes),
        Layout::Ragged { .. } => OwnedValues::Ragged {
            offsets: rows
                .iter()
                .scan(0, |end, row| {
                    *end += row.bytes.len() as u64;
                    Some(*end)
                })
                .fold(vec![0], |mut offsets, end| {
                    offsets.push(end);
                    offsets
                }),
            shapes: rows.iter().flat_map(|row| row.shape.iter().copied()).collect(),
            bytes,
        },
    };
    let validity = rows.iter().any(|row| !row.valid).then(|| {
        let mut bits = vec![0; rows.len().div_ceil(8)];
        for (index, row) in rows.iter().enumerate() {
            bits[index / 8] |= u8::from(row.valid) << (index % 8);
        }
        bits
    });
    ColumnData { rows: rows.len(), values, validity }
}

/// A data file in memory.
#[derive(Clone, Debug)]
pub struct File {
    pub bytes: Vec<u8>,
    pub reference: meta::DataFileRef,
}

impl File {
    /// Writes columns of rows in pushes of `push` rows.
    pub fn write(columns: &[(Column, Vec<Row>)], push: usize, options: WriteOptions) -> Result<Self> {
        Self::write_as(FileId::random(), columns, push, options)
    }

    pub fn write_as(id: FileId, columns: &[(Column, Vec<Row>)], push: usize, options: WriteOptions) -> Result<Self> {
        let described: Vec<_> = columns.iter().map(|(column, _)| column.clone()).collect();
        let mut writer = DataFileWriter::new(Vec::new(), id, &described, options)?;
        let rows = columns[0].1.len();
        for start in (0..rows).step_by(push) {
            let end = rows.min(start + push);
            let batches: Vec<_> = columns.iter().map(|(column, rows)| batch(column, &rows[start..end])).collect();
            let slices: Vec<_> = batches.iter().map(ColumnData::as_slice).collect();
            writer.push(&slices)?;
        }
        assert_eq!(writer.rows() as usize, rows);
        let (bytes, reference) = writer.finish()?;
        assert_eq!(bytes.len() as u64, reference.size);
        Ok(Self { bytes, reference })
    }

    pub fn index(&self) -> Result<FileIndex> {
        FileIndex::parse(&self.bytes[self.reference.index_offset as usize..], &self.reference)
    }

    pub fn fetch(&self, block: &Block) -> Result<&[u8]> {
        Ok(&self.bytes[block.offset as usize..][..block.stored as usize])
    }

    pub fn read(&self, column: &ColumnIndex, rows: Range<u32>) -> Result<ColumnData> {
        column.read_rows(rows, |block| self.fetch(block))
    }

    /// Checks every byte.
    pub fn verify(&self) -> Result<()> {
        let index = self.index()?;
        let mut end = 0;
        for section in index.sections() {
            assert_eq!(section.range.start, end, "sections adjoin");
            end = section.range.end;
            index.check_section(&section, &self.bytes[section.range.start as usize..end as usize])?;
        }
        assert_eq!(end, self.reference.size, "sections cover the file");
        Ok(())
    }
}
