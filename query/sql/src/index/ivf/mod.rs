//! Indexes of vectors: inverted files (Jégou, Douze and Schmid 2011) with the vectors themselves in them.
//!
//! The first rows of an index have the centroids, one each; the others have the vectors of the table, fragment by fragment and
//! in each of them cell by cell, so that what a search compares lies side by side and is read where it lies.

mod build;
mod centroids;

use std::{
    collections::{HashMap, HashSet},
    ops::Range,
    sync::Arc,
};

use arrow::{
    array::{Array, AsArray},
    datatypes::Float32Type,
};
use forebay_format::{Codec, Column, Compression, DType, Dim, FragmentId, Kind, OwnedValues, Schema};
use forebay_versioning::Table;
use tokio::{sync::OnceCell, task::JoinSet};

use super::Of;
use crate::{Error, Result, arrays, functions::Metric, scan::mapped, tasks::joined};
pub(super) use build::build;
use centroids::Centroids;

/// The kind of the column that describes an index.
pub(super) const KIND: &str = "ivf";
/// In the cell of a row that has a centroid.
const CENTROID: i32 = -1;
/// In the cell of a row that has no vector: it says that a fragment which has none is known.
const KNOWN: i32 = -2;
/// Rows of an index whose cells are read at once.
const STEP: usize = 1 << 20;
/// Vectors that are compared together.
const TOGETHER: u64 = 512;

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
        // Of few large cells one is near everything; more of them cost more to find.
        let some = || (4.0 * (rows as f64).sqrt()).min(rows as f64 / 8.0).ceil().clamp(1.0, 65_536.0) as usize;
        let lists = lists.unwrap_or_else(some);
        Self { length, lists, probes: probes.unwrap_or_else(|| lists.div_ceil(128).max(8)) }
    }

    /// The columns of the index: cell, identity of the fragment, row in the fragment, vector.
    pub(super) fn schema(&self, of: &Of) -> Result<Schema> {
        let packed = |shuffle| Compression { codec: Codec::Zstd { level: 1 }, shuffle };
        let mut cell = Column::new("cell", DType::I32, [])?;
        let mut metadata = of.metadata();
        metadata.insert("probes".to_owned(), self.probes.to_string());
        cell.kind = Kind { name: KIND.to_owned(), metadata };
        cell.compression = packed(true);
        let mut fragment = Column::new("fragment", DType::U8, [Dim::Fixed(16)])?;
        fragment.compression = packed(false);
        let row = Column::new("row", DType::U32, [])?;
        Ok(Schema::new(vec![cell, fragment, row, Column::new("vector", DType::F32, [Dim::Fixed(self.length)])?])?)
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
    /// The rows of the index by cell, with the fragment whose vectors they have.
    cells: HashMap<usize, Vec<(Range<u64>, FragmentId)>>,
    fragments: HashSet<FragmentId>,
}

/// Rows of an index side by side, and the number of the fragment whose vectors they have.
type Run = (Range<u64>, usize);

/// A row of the indexed table near what is searched for.
pub(crate) type Candidate = (f64, u64);

impl Vectors {
    pub(super) fn of(table: Table, name: String, of: Of) -> Option<Self> {
        let columns = &table.schema().columns;
        let [Dim::Fixed(length)] = columns.get(3)?.shape[..] else { return None };
        let probes = columns.first()?.kind.metadata.get("probes")?.parse().ok()?;
        Some(Self { name, of, length: length as usize, probes, table, opened: OnceCell::new() })
    }

    async fn directory(&self) -> Result<&Directory> {
        self.opened.get_or_try_init(|| self.open()).await
    }

    async fn open(&self) -> Result<Directory> {
        let (mut centroids, mut fragments) = (Vec::new(), HashSet::new());
        let mut cells: HashMap<usize, Vec<(Range<u64>, FragmentId)>> = HashMap::new();
        for start in (0..self.table.rows()).step_by(STEP) {
            let rows = start..self.table.rows().min(start + STEP as u64);
            let read = futures::try_join!(self.table.read("cell", rows.clone()), self.table.read("fragment", rows))?;
            let (OwnedValues::Fixed(numbers), OwnedValues::Fixed(ids)) = (read.0.values, read.1.values) else {
                return Err(wrong(&self.table));
            };
            let keys = numbers.as_chunks::<4>().0.iter().zip(ids.as_chunks::<16>().0).collect::<Vec<_>>();
            let mut row = start;
            for run in keys.chunk_by(|a, b| a == b) {
                let (cell, id) = (i32::from_le_bytes(*run[0].0), FragmentId::from_bytes(*run[0].1));
                let rows = row..row + run.len() as u64;
                row = rows.end;
                if cell == CENTROID {
                    centroids.extend(rows);
                    continue;
                }
                fragments.insert(id);
                if let Ok(cell) = usize::try_from(cell) {
                    cells.entry(cell).or_default().push((rows, id));
                }
            }
        }
        let field = self.vector()?.field;
        self.table.open_files((0..self.table.fragments().len()).map(|fragment| (fragment, field))).await?;
        let OwnedValues::Fixed(bytes) = self.table.take("vector", &centroids).await?.values else {
            return Err(wrong(&self.table));
        };
        let values = bytes.as_chunks::<4>().0.iter().map(|value| f32::from_le_bytes(*value)).collect();
        Ok(Directory { centroids: Arc::new(Centroids::new(values, self.length)), cells, fragments })
    }

    fn vector(&self) -> Result<&Column> {
        Ok(self.table.schema().column("vector")?)
    }

    /// Which fragments of the indexed table a search finds the rows of.
    pub(crate) async fn covered(&self, table: &Table) -> Result<Vec<bool>> {
        let known = &self.directory().await?.fragments;
        let fragments = table.fragments().iter().enumerate();
        Ok(fragments.map(|(at, f)| known.contains(&f.id) && table.is_plain(at, self.of.field)).collect())
    }

    /// The cells with their distances, by several threads.
    pub(crate) async fn cells(
        &self,
        (metric, query): (Metric, &Arc<[f32]>),
        threads: usize,
    ) -> Result<Vec<(f64, usize)>> {
        let centroids = &self.directory().await?.centroids;
        let each = centroids.len().div_ceil(threads.max(1)).max(1);
        let mut tasks = JoinSet::new();
        for start in (0..centroids.len()).step_by(each) {
            let (centroids, query) = (centroids.clone(), query.clone());
            let cells = start..centroids.len().min(start + each);
            let distance = move |cell| (metric.distance(&query, centroids.of(cell)), cell);
            tasks.spawn(async move { Ok(cells.map(distance).collect::<Vec<_>>()) });
        }
        Ok(joined(tasks).await?.concat())
    }

    /// The live rows of `cells` that lie in `covered` fragments of `table`, with their distances, in no order.
    pub(crate) async fn candidates(
        &self,
        table: &Table,
        covered: &[bool],
        cells: &[(f64, usize)],
        (metric, query): (Metric, &Arc<[f32]>),
        threads: usize,
    ) -> Result<Vec<Candidate>> {
        let directory = self.directory().await?;
        let fragments = table.fragments().iter().enumerate().filter(|(at, _)| covered[*at]);
        let places: HashMap<FragmentId, usize> = fragments.map(|(at, fragment)| (fragment.id, at)).collect();
        let mut runs: Vec<Run> = Vec::new();
        for (rows, fragment) in cells.iter().filter_map(|(_, cell)| directory.cells.get(cell)).flatten() {
            if let Some(place) = places.get(fragment) {
                let cuts = rows.clone().step_by(TOGETHER as usize);
                runs.extend(cuts.map(|start| (start..rows.end.min(start + TOGETHER), *place)));
            }
        }
        runs.sort_unstable_by_key(|(rows, _)| rows.start);
        let rows = runs.iter().map(|(rows, _)| rows.end - rows.start).sum::<u64>();
        let mut tasks = JoinSet::new();
        for part in shared(runs, rows.div_ceil(threads.max(1) as u64)) {
            let (index, table, query) = (self.table.clone(), table.clone(), query.clone());
            tasks.spawn(async move { compared(&index, &table, &part, metric, &query).await });
        }
        Ok(joined(tasks).await?.concat())
    }
}

/// Runs in parts of about so many rows.
fn shared(runs: Vec<Run>, rows: u64) -> Vec<Vec<Run>> {
    let (mut parts, mut count): (Vec<Vec<Run>>, u64) = (Vec::new(), rows);
    for run in runs {
        if count >= rows {
            parts.push(Vec::new());
            count = 0;
        }
        count += run.0.end - run.0.start;
        parts.last_mut().into_iter().for_each(|part| part.push(run.clone()));
    }
    parts
}

/// The vectors of some runs of rows of an index, each of one fragment, against one vector.
async fn compared(index: &Table, table: &Table, runs: &[Run], metric: Metric, query: &[f32]) -> Result<Vec<Candidate>> {
    let column = index.schema().column("vector")?;
    let distances_of = |vectors: &dyn Array| -> Vec<f64> {
        let vectors = vectors.as_fixed_size_list().values().as_primitive::<Float32Type>().values();
        vectors.chunks_exact(query.len().max(1)).map(|vector| metric.distance(query, vector)).collect()
    };
    let mut found = Vec::new();
    let mut add = |fragment: usize, rows: &[u8], distances: &[f64]| {
        let deleted = &table.fragments()[fragment].deleted;
        for (row, distance) in rows.as_chunks::<4>().0.iter().zip(distances) {
            let row = u32::from_le_bytes(*row);
            if !deleted.contains(row) {
                let number = table.first_row(fragment) + u64::from(row - deleted.rank(row));
                found.push((*distance, number));
            }
        }
    };
    // What can't be compared where it lies is fetched together.
    let (mut rest, mut numbers) = (Vec::new(), Vec::new());
    for (run, fragment) in runs {
        match mapped(index, column, run.clone())? {
            Some(vectors) => {
                let OwnedValues::Fixed(rows) = index.read("row", run.clone()).await?.values else {
                    return Err(wrong(index));
                };
                add(*fragment, &rows, &distances_of(&vectors));
            }
            None => {
                let start = numbers.len();
                numbers.extend(run.clone());
                rest.push((start..numbers.len(), *fragment));
            }
        }
    }
    let (rows, vectors) = futures::try_join!(index.take("row", &numbers), index.take("vector", &numbers))?;
    let distances = distances_of(&arrays::array(column, vectors)?);
    let OwnedValues::Fixed(rows) = rows.values else { return Err(wrong(index)) };
    for (places, fragment) in rest {
        add(fragment, &rows[4 * places.start..4 * places.end], &distances[places]);
    }
    Ok(found)
}

fn wrong(index: &Table) -> Error {
    super::broken(index.name(), "its columns are of other types")
}
