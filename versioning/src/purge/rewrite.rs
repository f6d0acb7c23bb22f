//! Files written anew, with nothing in some of their rows.

use std::sync::Arc;

use forebay_format::{Column, ColumnData, ColumnIndex, Kind, OwnedValues, RowSet, meta::DataFileRef};

use crate::{
    Lake, OpenFile, Result, read,
    values::{FileWriter, blocking, joined, nothing},
};

/// Bytes of rows that are in memory at once.
const BATCH_BYTES: u64 = 16 << 20;

impl Lake {
    /// Writes a file anew, with nothing in some of its rows.
    pub(super) async fn rewrite(&self, file: &DataFileRef, rows: &RowSet) -> Result<DataFileRef> {
        let open = Arc::new(OpenFile::open(self.storage(), file).await?);
        let columns: Vec<Column> = open.index().columns().iter().map(described).collect();
        let mut writer = FileWriter::begin(self.storage(), &columns)?;
        let total = open.index().rows();
        let step = (BATCH_BYTES / (file.size / u64::from(total.max(1))).max(1)).clamp(1, u64::from(u32::MAX)) as u32;
        let mut from = 0;
        while from < total {
            let range = RowSet::range(from..from.saturating_add(step).min(total));
            let (kept, gone) = (range.subtract(rows), range.intersect(rows));
            let mut batch = Vec::with_capacity(columns.len());
            for column in &columns {
                let data = read::rows_of_file(self.storage(), open.clone(), column, &kept).await?;
                let blank = blank(column, gone.len() as usize, &data);
                batch.push(match (kept.is_empty(), gone.is_empty()) {
                    (_, true) => data,
                    (true, _) => blank,
                    _ => joined(column, vec![kept.clone(), gone.clone()], vec![data, blank]).1,
                });
            }
            writer = blocking(move || writer.push(batch)).await?;
            from += range.len();
        }
        blocking(move || writer.finish()).await
    }
}

/// A column as its file describes it.
fn described(index: &ColumnIndex) -> Column {
    Column {
        name: index.name().to_owned(),
        field: index.field(),
        dtype: index.dtype(),
        shape: index.shape().to_vec(),
        nullable: index.nullable(),
        compression: index.compression(),
        kind: Kind::default(),
    }
}

/// Rows without values, of the form of others of the column.
fn blank(column: &Column, rows: usize, like: &ColumnData) -> ColumnData {
    let one = nothing(column);
    let values = match one.values {
        OwnedValues::Fixed(bytes) => OwnedValues::Fixed(vec![0; bytes.len() * rows]),
        OwnedValues::Ragged { mut shapes, bytes, .. } => {
            // Encoded media have decoded shapes beside them.
            if let OwnedValues::Ragged { shapes: other, .. } = &like.values
                && shapes.is_empty()
                && like.rows > 0
            {
                shapes = vec![0; other.len() / like.rows];
            }
            OwnedValues::Ragged { offsets: vec![0; rows + 1], shapes: shapes.repeat(rows), bytes }
        }
    };
    ColumnData { rows, values, validity: one.validity.map(|_| vec![0; rows.div_ceil(8)]) }
}
