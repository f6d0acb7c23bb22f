//! Values of rows by leaf, compared, put together and written as overlays.

use std::collections::BTreeMap;

use forebay_format::{
    Bitmap, Bound, Column, ColumnData, ColumnSlice, DataFileWriter, Dim, FieldId, FileId, FragmentId, Layout,
    OwnedValues, RowSet, WriteOptions,
    meta::{DataFileRef, Fragment, Overlay, TableEntry, TableRoot},
};
use forebay_storage::Storage;

use crate::{
    Error, Lake, Result, Snapshot, Table,
    leaf::Side,
    manifest, names,
    read::{concat, empty},
};

/// A version of a table, or a part of it, to be compared with others.
pub(crate) struct Version {
    pub(crate) root: TableRoot,
    pub(crate) side: Side,
    table: Table,
}

impl Version {
    /// A version of some fragments.
    pub(crate) async fn load(snapshot: &Snapshot, root: TableRoot, fragments: Vec<Fragment>) -> Result<Self> {
        let lake = snapshot.lake();
        let mut origins = std::collections::HashMap::new();
        for fragment in &fragments {
            if let Some(pointer) = &fragment.origins {
                origins.insert(fragment.id, manifest::origins(lake, pointer).await?);
            }
        }
        let rows = fragments.iter().map(|fragment| u64::from(fragment.live())).sum();
        let entry = TableEntry {
            name: "(compared)".to_owned(),
            id: forebay_format::TableId::from_bytes([0; 16]),
            rows,
            root: forebay_format::meta::RootRef::Inline(root.clone()),
        };
        let side = Side::new(fragments.clone(), &origins);
        let table = Table::new(snapshot.clone(), &entry, root.clone(), fragments)?;
        Ok(Self { root, side, table })
    }

    /// Its column, if it has it.
    pub(crate) fn column(&self, field: FieldId) -> Option<&Column> {
        self.root.schema.columns.iter().find(|column| column.field == field)
    }

    /// A column's values in rows of a leaf, ascending, deleted ones among them. All of them must be somewhere.
    pub(crate) async fn values(&self, column: &Column, leaf: FragmentId, rows: &RowSet) -> Result<ColumnData> {
        let (mut pieces, mut parts) = (Vec::new(), Vec::new());
        for piece in self.side.leaf(leaf) {
            let here = piece.rows.intersect(rows);
            if !here.is_empty() {
                pieces.push(self.table.cells(column, piece.carrier, &piece.to_carrier(&here)).await?);
                parts.push(here);
            }
        }
        Ok(joined(column, parts, pieces).1)
    }

    /// Bounds of a column's values in a fragment, from the statistics of its file; `None` if they aren't known.
    pub(crate) async fn bounds(&self, carrier: usize, column: &Column) -> Result<Option<(Bound, Bound)>> {
        if !self.table.is_plain(carrier, column.field) {
            return Ok(None);
        }
        let file = self.table.file(carrier, column.field).await?;
        let Some(index) = file.index().column(column.field) else { return Ok(None) };
        let mut bounds: Option<(Bound, Bound)> = None;
        for chunk in index.chunks() {
            let Some((min, max)) = chunk.stats.as_ref().and_then(|stats| stats.min.clone().zip(stats.max.clone()))
            else {
                return Ok(None);
            };
            // A NaN lies in no bounds, and equals itself as a key.
            if matches!(min, Bound::Float(_)) && chunk.stats.as_ref().and_then(|stats| stats.nans) != Some(0) {
                return Ok(None);
            }
            bounds = Some(match bounds {
                None => (min, max),
                Some((low, high)) => (if min < low { min } else { low }, if max > high { max } else { high }),
            });
        }
        Ok(bounds)
    }

    /// Whole rows of a carrier, for all of its columns.
    pub(crate) async fn carried(&self, column: &Column, carrier: usize, rows: &RowSet) -> Result<ColumnData> {
        self.table.cells(column, carrier, rows).await
    }
}

/// Parts of a column, each with the rows it has (which no other part has), as one: in ascending order of the rows.
pub(crate) fn joined(column: &Column, parts: Vec<RowSet>, pieces: Vec<ColumnData>) -> (RowSet, ColumnData) {
    let all = parts.iter().fold(RowSet::new(), |all, part| all.union(part));
    let mut positions = vec![0_usize; all.len() as usize];
    let mut next = 0;
    for part in &parts {
        for row in part.iter() {
            if let Some(place) = all.position(row) {
                positions[place as usize] = next;
            }
            next += 1;
        }
    }
    let read = if pieces.is_empty() { empty(column) } else { concat(column, pieces) };
    if positions.is_sorted() { (all, read) } else { (all, read.take(&positions)) }
}

/// Whether a row of one column is a row of another.
pub(crate) fn equal(a: &ColumnData, i: usize, b: &ColumnData, j: usize) -> bool {
    let valid = |data: &ColumnData, row| data.validity.as_deref().is_none_or(|bits| Bitmap(bits).get(row));
    match (valid(a, i), valid(b, j)) {
        (true, true) => row(a, i) == row(b, j),
        (one, other) => one == other,
    }
}

/// The shape and the bytes of a row.
pub(crate) fn row(data: &ColumnData, row: usize) -> (&[u32], &[u8]) {
    match &data.values {
        OwnedValues::Fixed(bytes) => {
            let size = bytes.len().checked_div(data.rows).unwrap_or(0);
            (&[], &bytes[row * size..(row + 1) * size])
        }
        OwnedValues::Ragged { offsets, shapes, bytes } => {
            let rank = shapes.len().checked_div(data.rows).unwrap_or(0);
            (&shapes[row * rank..(row + 1) * rank], &bytes[offsets[row] as usize..offsets[row + 1] as usize])
        }
    }
}

/// Writes columns of equally many rows as a data file.
pub(crate) async fn write_file(storage: &Storage, columns: Vec<Column>, data: Vec<ColumnData>) -> Result<DataFileRef> {
    let storage = storage.clone();
    blocking(move || FileWriter::begin(&storage, &columns)?.push(data)?.finish()).await
}

/// Writes a data file, some rows at a time. Blocking.
pub(crate) struct FileWriter {
    path: String,
    writer: DataFileWriter<forebay_storage::ObjectWriter>,
}

impl FileWriter {
    pub(crate) fn begin(storage: &Storage, columns: &[Column]) -> Result<Self> {
        let file = FileId::random();
        let path = names::data(file);
        let sink = storage.writer(&path)?;
        let writer = DataFileWriter::new(sink, file, columns, WriteOptions::default()).map_err(Error::object(&path))?;
        Ok(Self { path, writer })
    }

    pub(crate) fn push(mut self, data: Vec<ColumnData>) -> Result<Self> {
        let slices: Vec<ColumnSlice<'_>> = data.iter().map(ColumnData::as_slice).collect();
        self.writer.push(&slices).map_err(Error::object(&self.path))?;
        Ok(self)
    }

    pub(crate) fn finish(self) -> Result<DataFileRef> {
        let (sink, reference) = self.writer.finish().map_err(Error::object(&self.path))?;
        sink.finish()?;
        Ok(reference)
    }
}

/// Runs what blocks where it may.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // Only a runtime that shuts down cancels its blocking tasks.
            Err(error) => Err(Error::Cancelled { source: error }),
        },
    }
}

/// New values of a fragment's cells, gathered before they are written.
#[derive(Default)]
pub(crate) struct Patch {
    cells: BTreeMap<FieldId, (Vec<RowSet>, Vec<ColumnData>)>,
}

impl Patch {
    /// Values for rows of the fragment, ascending; no cell may come twice.
    pub(crate) fn add(&mut self, field: FieldId, rows: RowSet, values: ColumnData) {
        if !rows.is_empty() {
            let (sets, data) = self.cells.entry(field).or_default();
            sets.push(rows);
            data.push(values);
        }
    }

    /// Overlays that say what cells have values, and are nowhere.
    pub(crate) fn sketch(self) -> Vec<Overlay> {
        let overlay = |(field, (sets, _)): (FieldId, (Vec<RowSet>, _))| {
            let rows = sets.iter().fold(RowSet::new(), |all, rows| all.union(rows));
            let file =
                DataFileRef { id: FileId::random(), size: 0, index_offset: 0, index_length: 0, fields: [field].into() };
            Overlay { file, rows, first: 0 }
        };
        self.cells.into_iter().map(overlay).collect()
    }

    /// Writes the values as overlays, one for all columns that have the same rows.
    pub(crate) async fn write(self, lake: &Lake, columns: &[Column]) -> Result<Vec<Overlay>> {
        let mut groups: Vec<(RowSet, Vec<Column>, Vec<ColumnData>)> = Vec::new();
        for (field, (sets, data)) in self.cells {
            let Some(column) = columns.iter().find(|column| column.field == field) else { continue };
            let (rows, data) = joined(column, sets, data);
            match groups.iter_mut().find(|(other, ..)| *other == rows) {
                Some((_, columns, all)) => {
                    columns.push(column.clone());
                    all.push(data);
                }
                None => groups.push((rows, vec![column.clone()], vec![data])),
            }
        }
        let mut overlays = Vec::with_capacity(groups.len());
        for (rows, columns, data) in groups {
            overlays.push(Overlay { file: write_file(lake.storage(), columns, data).await?, rows, first: 0 });
        }
        Ok(overlays)
    }
}

/// One row without a value: null if the column may be, else zeros or empty.
pub(crate) fn nothing(column: &Column) -> ColumnData {
    let validity = column.nullable.then(|| vec![0]);
    let values = match column.layout() {
        Layout::Fixed { row_bytes } => OwnedValues::Fixed(vec![0; row_bytes]),
        Layout::Ragged { rank } => {
            // A ragged row that isn't null has as many values as its lengths say: none.
            let free = |dim: &Dim| match dim {
                Dim::Fixed(length) => *length,
                Dim::Free => 0,
            };
            let shapes = column.shape.iter().take(rank).map(free).collect();
            OwnedValues::Ragged { offsets: vec![0, 0], shapes, bytes: Vec::new() }
        }
    };
    ColumnData { rows: 1, values, validity }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use forebay_format::DType;

    use super::*;

    #[test]
    fn a_row_without_a_value_fits_every_column() {
        for nullable in [false, true] {
            for (dtype, shape) in [
                (DType::F32, vec![Dim::Fixed(3)]),
                (DType::U8, vec![Dim::Free, Dim::Fixed(2)]),
                (DType::Utf8, vec![]),
                (DType::Bytes, vec![]),
            ] {
                let mut column = Column::new("c", dtype, shape).unwrap();
                column.nullable = nullable;
                nothing(&column).as_slice().check(&column).unwrap();
                assert_eq!(nothing(&column).validity.is_some_and(|bits| !Bitmap(&bits).get(0)), nullable);
            }
        }
    }
}
