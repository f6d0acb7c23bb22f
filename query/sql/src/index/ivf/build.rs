//! Making indexes, and taking in what was appended since.

use std::sync::Arc;

use arrow::{
    array::{Array, AsArray, FixedSizeListArray},
    datatypes::Float32Type,
};
use forebay_format::{Column, ColumnData, ColumnSlice, FragmentId, OwnedValues};
use forebay_versioning::{Table, TableWriter};

use super::{CENTROID, KNOWN, Settings, Vectors, centroids::Centroids};
use crate::{Result, arrays, change::blocking};

/// Vectors that centroids are found from, for each of them.
const SAMPLE: usize = 32;
/// Bytes of vectors that are sorted into cells at once.
const AT_ONCE: usize = 256 << 20;

/// Finds centroids, and sorts a table's vectors into their cells.
pub(in crate::index) async fn build(
    table: &Table,
    column: &Column,
    settings: &Settings,
    writer: TableWriter,
) -> Result<(TableWriter, u64)> {
    let Settings { length, lists, .. } = *settings;
    let sample = sampled(table, column, lists * SAMPLE).await?;
    let train = move || Ok(Arc::new(Centroids::train(&sample, length as usize, lists, lists as u64)));
    let centroids = blocking(train).await?;
    let mut first = Cells::default();
    for (number, centroid) in (0..).zip(centroids.iter()) {
        first.add(CENTROID, &[0; 16], number, centroid);
    }
    let writer = push(writer, first).await?;
    sort_into(table, column, (0..table.fragments().len()).collect(), &centroids, writer).await
}

impl Vectors {
    /// Sorts the vectors of fragments that aren't known yet into cells; gives how many there are.
    pub(in crate::index) async fn take_in(
        &self,
        table: &Table,
        column: &Column,
        writer: TableWriter,
    ) -> Result<(TableWriter, u64)> {
        let directory = self.directory().await?;
        let missing = |at: &usize| !directory.fragments.contains(&table.fragments()[*at].id);
        let missing = (0..table.fragments().len()).filter(missing).collect();
        sort_into(table, column, missing, &directory.centroids, writer).await
    }
}

/// At most `count` vectors, spread evenly over the table.
async fn sampled(table: &Table, column: &Column, count: usize) -> Result<Vec<f32>> {
    let rows = table.rows();
    let step = rows.div_ceil(count.max(1) as u64).max(1);
    let chosen: Vec<u64> = (0..rows).step_by(step as usize).collect();
    let row_bytes = crate::types::row_bytes(column).max(1);
    let mut sample = Vec::new();
    for part in chosen.chunks((AT_ONCE / row_bytes).max(1)) {
        let array = arrays::array(column, table.take(&column.name, part).await?)?;
        each(&array, |_, vector| sample.extend_from_slice(vector))?;
    }
    Ok(sample)
}

/// Calls `with` for each vector, with its place.
fn each(array: &dyn Array, mut with: impl FnMut(usize, &[f32])) -> Result<()> {
    let item = Arc::new(arrow::datatypes::Field::new_list_field(arrow::datatypes::DataType::Float32, true));
    let lists: &FixedSizeListArray = array.as_fixed_size_list();
    let wide = arrow::datatypes::DataType::FixedSizeList(item, lists.value_length());
    let wide = arrow::compute::cast(array, &wide)?;
    let wide = wide.as_fixed_size_list();
    let length = wide.value_length() as usize;
    let values = wide.values().as_primitive::<Float32Type>().values();
    for row in (0..wide.len()).filter(|row| wide.is_valid(*row)) {
        let start = wide.value_offset(row) as usize;
        with(row, &values[start..start + length]);
    }
    Ok(())
}

/// Sorts the vectors of fragments into cells and writes these; gives how many vectors they are. Fragments whose vectors were
/// changed in place are left out.
async fn sort_into(
    table: &Table,
    column: &Column,
    fragments: Vec<usize>,
    centroids: &Arc<Centroids>,
    mut writer: TableWriter,
) -> Result<(TableWriter, u64)> {
    let mut taken = 0;
    for at in fragments.into_iter().filter(|at| table.is_plain(*at, column.field)) {
        let rows = table.first_row(at)..table.first_row(at + 1);
        let step = (AT_ONCE / (4 * centroids.length()).max(1)).max(1);
        // A fragment without a row is known as well.
        for start in rows.clone().step_by(step).chain(rows.is_empty().then_some(rows.start)) {
            let numbers = start..rows.end.min(start + step as u64);
            let array = arrays::array(column, table.read(&column.name, numbers.clone()).await?)?;
            let stored = numbers.map(|row| Ok(table.locate(row)?.row)).collect::<Result<Vec<u32>>>()?;
            let (id, centroids) = (table.fragments()[at].id, centroids.clone());
            let (made, count) = blocking(move || sorted(id, &stored, &array, &centroids)).await?;
            writer = push(writer, made).await?;
            taken += count;
        }
    }
    Ok((writer, taken))
}

/// Rows of an index for some rows of a fragment, cell by cell; one that says that the fragment is known if it has no vector.
fn sorted(id: FragmentId, stored: &[u32], array: &dyn Array, centroids: &Centroids) -> Result<(Cells, u64)> {
    let (mut rows, mut vectors) = (Vec::new(), Vec::new());
    each(array, |place, vector| {
        rows.push(stored[place]);
        vectors.extend_from_slice(vector);
    })?;
    let (nearest, length) = (centroids.nearest(&vectors), centroids.length());
    let mut order: Vec<usize> = (0..nearest.len()).collect();
    order.sort_by_key(|place| nearest[*place]);
    let mut made = Cells::default();
    for place in &order {
        made.add(nearest[*place], id.as_bytes(), rows[*place], &vectors[place * length..(place + 1) * length]);
    }
    if order.is_empty() {
        made.add(KNOWN, id.as_bytes(), 0, &vec![0.0; length]);
    }
    Ok((made, order.len() as u64))
}

async fn push(mut writer: TableWriter, cells: Cells) -> Result<TableWriter> {
    blocking(move || {
        let data = cells.data();
        let slices: Vec<ColumnSlice<'_>> = data.iter().map(ColumnData::as_slice).collect();
        writer.push(&slices)?;
        Ok(writer)
    })
    .await
}

/// Rows of an index on their way to a file.
#[derive(Default)]
struct Cells {
    cells: Vec<u8>,
    fragments: Vec<u8>,
    rows: Vec<u8>,
    vectors: Vec<u8>,
}

impl Cells {
    fn add(&mut self, cell: i32, fragment: &[u8; 16], row: u32, vector: &[f32]) {
        self.cells.extend(cell.to_le_bytes());
        self.fragments.extend(fragment);
        self.rows.extend(row.to_le_bytes());
        self.vectors.extend(vector.iter().flat_map(|value| value.to_le_bytes()));
    }

    fn data(self) -> [ColumnData; 4] {
        let rows = self.cells.len() / 4;
        [self.cells, self.fragments, self.rows, self.vectors].map(|bytes| ColumnData {
            rows,
            values: OwnedValues::Fixed(bytes),
            validity: None,
        })
    }
}
