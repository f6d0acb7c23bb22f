//! Indexes of vectors: inverted files (Jégou, Douze and Schmid 2011) with the vectors themselves in them.
//!
//! The first row of an index has the centroids; each other row has the vectors of a fragment that are nearest to one of them.

mod build;
mod centroids;

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use arrow::{
    array::{AsArray, LargeListArray},
    datatypes::{Float32Type, UInt32Type},
};
use forebay_format::{Column, DType, Dim, FragmentId, Kind, OwnedValues, Schema};
use forebay_versioning::Table;
use tokio::{sync::OnceCell, task::JoinSet};

use super::Of;
use crate::{Result, arrays, functions::Metric};
pub(super) use build::build;
use centroids::Centroids;

/// The kind of the column that describes an index.
pub(super) const KIND: &str = "ivf";
/// In the cell of the row that has the centroids.
const CENTROIDS: i32 = -1;

/// What is chosen when an index is made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    /// The vectors' length.
    length: u32,
    /// Cells that vectors are sorted into.
    lists: usize,
    /// Cells that a query looks into, if it doesn't say.
    probes: usize,
}

impl Settings {
    pub(super) fn new(length: u32, rows: u64, lists: Option<usize>, probes: Option<usize>) -> Self {
        let lists = lists.unwrap_or_else(|| (rows as f64).sqrt().ceil().clamp(1.0, 65_536.0) as usize);
        Self { length, lists, probes: probes.unwrap_or_else(|| lists.div_ceil(32).max(4)) }
    }

    /// The columns of the index: cell, fragment, rows of the fragment, their vectors.
    pub(super) fn schema(&self, of: &Of) -> Result<Schema> {
        let mut cell = Column::new("cell", DType::I32, [])?;
        let mut metadata = of.metadata();
        metadata.insert("probes".to_owned(), self.probes.to_string());
        cell.kind = Kind { name: KIND.to_owned(), metadata };
        Ok(Schema::new(vec![
            cell,
            Column::new("fragment", DType::Bytes, [])?,
            Column::new("rows", DType::U32, [Dim::Free])?,
            Column::new("vectors", DType::F32, [Dim::Free, Dim::Fixed(self.length)])?,
        ])?)
    }
}

/// An index of a column, opened.
#[derive(Debug)]
pub(crate) struct Vectors {
    pub(crate) name: String,
    pub(crate) of: Of,
    /// The vectors' length.
    pub(crate) length: usize,
    /// Cells that a query looks into, if it doesn't say.
    pub(crate) probes: usize,
    table: Table,
    opened: OnceCell<Directory>,
}

/// What is read of an index once.
#[derive(Debug)]
struct Directory {
    centroids: Arc<Centroids>,
    /// The rows of the index by cell, with their fragment.
    cells: HashMap<i32, Vec<(u64, FragmentId)>>,
    fragments: HashSet<FragmentId>,
}

/// A row of the indexed table near what is searched for.
pub(crate) type Candidate = (f64, u64);

impl Vectors {
    pub(super) fn of(table: Table, name: String, of: Of) -> Option<Self> {
        let columns = &table.schema().columns;
        let [Dim::Free, Dim::Fixed(length)] = columns.get(3)?.shape[..] else { return None };
        let probes = columns.first()?.kind.metadata.get("probes")?.parse().ok()?;
        Some(Self { name, of, length: length as usize, probes, table, opened: OnceCell::new() })
    }

    async fn directory(&self) -> Result<&Directory> {
        self.opened.get_or_try_init(|| self.open()).await
    }

    async fn open(&self) -> Result<Directory> {
        let all = 0..self.table.rows();
        let (cells, ids) =
            futures::try_join!(self.table.read("cell", all.clone()), self.table.read("fragment", all.clone()))?;
        let (OwnedValues::Fixed(cells), OwnedValues::Ragged { offsets, bytes, .. }) = (cells.values, ids.values) else {
            return Err(super::broken(&self.name, "its columns are of other types"));
        };
        let (cells, _) = cells.as_chunks::<4>();
        let mut by_cell: HashMap<i32, Vec<(u64, FragmentId)>> = HashMap::new();
        let (mut centroids, mut fragments) = (None, HashSet::new());
        for ((row, cell), ends) in all.zip(cells).zip(offsets.windows(2)) {
            let cell = i32::from_le_bytes(*cell);
            if cell == CENTROIDS {
                centroids = Some(row);
                continue;
            }
            let id = &bytes[ends[0] as usize..ends[1] as usize];
            let id = id.try_into().map_err(|_| super::broken(&self.name, "a fragment's identity is cut short"))?;
            let id = FragmentId::from_bytes(id);
            fragments.insert(id);
            by_cell.entry(cell).or_default().push((row, id));
        }
        let row = centroids.ok_or_else(|| super::broken(&self.name, "it has no centroids"))?;
        let vectors = lists(&self.table, "vectors", &[row]).await?;
        let vectors = vectors.values().as_primitive::<Float32Type>().values().to_vec();
        let centroids = Arc::new(Centroids::new(vectors, self.length));
        Ok(Directory { centroids, cells: by_cell, fragments })
    }

    /// Which fragments of the indexed table a search finds the rows of.
    pub(crate) async fn covered(&self, table: &Table) -> Result<Vec<bool>> {
        let known = &self.directory().await?.fragments;
        let fragments = table.fragments().iter().enumerate();
        Ok(fragments.map(|(at, f)| known.contains(&f.id) && table.is_plain(at, self.of.field)).collect())
    }

    /// The cells in the order of their distance.
    pub(crate) async fn nearest(&self, metric: Metric, query: &[f32]) -> Result<Vec<i32>> {
        let centroids = &self.directory().await?.centroids;
        let mut cells: Vec<(f64, i32)> =
            centroids.iter().zip(0..).map(|(centroid, cell)| (metric.distance(query, centroid), cell)).collect();
        cells.sort_by(|a, b| a.0.total_cmp(&b.0));
        Ok(cells.into_iter().map(|(_, cell)| cell).collect())
    }

    /// The live rows of `cells` that lie in `covered` fragments of `table`, with their distances, in no order.
    pub(crate) async fn candidates(
        &self,
        table: &Table,
        covered: &[bool],
        cells: &[i32],
        (metric, query): (Metric, &Arc<[f32]>),
        threads: usize,
    ) -> Result<Vec<Candidate>> {
        let directory = self.directory().await?;
        let fragments = table.fragments().iter().enumerate().filter(|(at, _)| covered[*at]);
        let places: HashMap<FragmentId, usize> = fragments.map(|(at, fragment)| (fragment.id, at)).collect();
        let mut rows: Vec<(u64, usize)> = cells
            .iter()
            .filter_map(|cell| directory.cells.get(cell))
            .flatten()
            .filter_map(|(row, fragment)| Some((*row, *places.get(fragment)?)))
            .collect();
        rows.sort_unstable();
        let mut tasks = JoinSet::new();
        for part in rows.chunks(rows.len().div_ceil(threads.max(1)).max(1)) {
            let (index, table, query, part) = (self.table.clone(), table.clone(), query.clone(), part.to_vec());
            tasks.spawn(async move { compared(&index, &table, &part, metric, &query).await });
        }
        let mut found = Vec::new();
        while let Some(part) = tasks.join_next().await {
            match part {
                Ok(part) => found.extend(part?),
                Err(source) => match source.try_into_panic() {
                    Ok(panic) => std::panic::resume_unwind(panic),
                    Err(source) => return Err(forebay_versioning::Error::Cancelled { source }.into()),
                },
            }
        }
        Ok(found)
    }
}

/// The vectors of some rows of an index against one vector.
async fn compared(
    index: &Table,
    table: &Table,
    part: &[(u64, usize)],
    metric: Metric,
    query: &[f32],
) -> Result<Vec<Candidate>> {
    let numbers: Vec<u64> = part.iter().map(|(row, _)| *row).collect();
    let (rows, vectors) = futures::try_join!(lists(index, "rows", &numbers), lists(index, "vectors", &numbers))?;
    let vectors = vectors.values().as_primitive::<Float32Type>().values().clone();
    let mut vectors = vectors.chunks_exact(query.len().max(1));
    let mut found = Vec::new();
    for ((_, fragment), rows) in part.iter().zip(rows.iter().flatten()) {
        let deleted = &table.fragments()[*fragment].deleted;
        for (row, vector) in rows.as_primitive::<UInt32Type>().values().iter().zip(&mut vectors) {
            if !deleted.contains(*row) {
                let number = table.first_row(*fragment) + u64::from(row - deleted.rank(*row));
                found.push((metric.distance(query, vector), number));
            }
        }
    }
    Ok(found)
}

/// The flat elements of a ragged column in some rows.
async fn lists(table: &Table, column: &str, rows: &[u64]) -> Result<LargeListArray> {
    let column = table.schema().column(column)?;
    let array = arrays::array(column, table.take(&column.name, rows).await?)?;
    Ok(array.as_struct().column(0).as_list().clone())
}
