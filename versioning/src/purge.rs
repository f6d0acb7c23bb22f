//! Erasing rows from all history, where the law demands it: the one exception to what is committed never changing.
//!
//! Files that hold the rows are written anew without them, then a record makes every version read those and hide the rows,
//! then the old files are deleted. What other writers take over from old files meanwhile is found behind a fence in every
//! branch's log, and erased as well.

use std::collections::{BTreeMap, HashMap, HashSet};

use bytes::Bytes;
use forebay_format::{
    Column, ColumnData, FileId, FragmentId, PurgeId, RowSet, TableId,
    meta::{DataFileRef, Fragment, GcRecord, LakeMarker, Origins, PageLocation, Purge, RootRef},
};
use forebay_storage::Claim;

use crate::{
    At, Error, Lake, Result, RowId, Selection, epochs, gc,
    lake::now,
    leaf::Side,
    manifest, names,
    purges::Purges,
    read, snapshot,
    values::{FileWriter, blocking, joined, nothing},
};

/// What a purge did, or has done so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PurgeReport {
    /// Rows that are erased.
    pub rows: u64,
    /// Fragments, of all versions, that held them.
    pub fragments: u64,
    /// Files written anew.
    pub files: u64,
    /// Bytes of the files that were deleted.
    pub bytes: u64,
}

/// How often what others took over meanwhile is looked for.
const ROUNDS: u32 = 10;
/// Bytes of rows that are in memory at once.
const BATCH_BYTES: u64 = 16 << 20;

impl Lake {
    /// Erases rows from every version of a table: all commits stay, and none has these rows any more. The bytes of the rows
    /// are gone when it returns; a record, [`Lake::purges`], says who did it, when, how much and why.
    ///
    /// Handles that are open at a tag or commit find rows of the files in question missing and have to be opened again. Copies of the
    /// lake keep the rows until the purge is pushed to them.
    ///
    /// # Errors
    /// [`Error::Contention`] if others keep writing these rows anew; as [`Lake::gc`]; and what reading and writing reports. What
    /// was stopped, [`finish_purges`](Self::finish_purges) brings to its end; if there is no record yet, nothing was changed.
    pub async fn purge(
        &self,
        rows: &Selection,
        author: &str,
        reason: &str,
        mut progress: impl FnMut(&PurgeReport),
    ) -> Result<PurgeReport> {
        let leaves = self.leaves(rows).await?;
        let what = What { table: rows.table().id(), leaves, author, reason, rows: rows.len() };
        self.announce_purges().await?;
        self.erase(what, &mut progress).await
    }

    /// Finishes purges that were stopped: one whose record is written hides its rows already, and old files or what others took over
    /// from them may still hold their bytes.
    ///
    /// # Errors
    /// As [`purge`](Self::purge).
    pub async fn finish_purges(&self, mut progress: impl FnMut(&PurgeReport)) -> Result<Vec<PurgeReport>> {
        let mut tables: BTreeMap<TableId, (BTreeMap<FragmentId, RowSet>, Purge)> = BTreeMap::new();
        for purge in self.purges().await? {
            let (leaves, _) = tables.entry(purge.table).or_insert_with(|| (BTreeMap::new(), purge.clone()));
            for (fragment, rows) in purge.hidden {
                let all = leaves.entry(fragment).or_default();
                *all = all.union(&rows);
            }
        }
        let mut reports = Vec::new();
        for (table, (leaves, Purge { author, reason, rows, .. })) in tables {
            let what = What { table, leaves, author: &author, reason: &reason, rows };
            reports.push(self.erase(what, &mut progress).await?);
        }
        Ok(reports)
    }

    async fn erase(&self, what: What<'_>, progress: &mut impl FnMut(&PurgeReport)) -> Result<PurgeReport> {
        let mut report = PurgeReport { rows: what.rows, ..PurgeReport::default() };
        let mut fenced = false;
        for _ in 0..ROUNDS {
            self.reload_purges().await?;
            let held = self.holders(what.table, &what.leaves).await?;
            if held.hidden.is_empty() && fenced {
                self.delete_replaced(&mut report, progress).await?;
                return Ok(report);
            }
            if !held.hidden.is_empty() {
                self.replace(&what, held, &mut report, progress).await?;
            }
            // What writers that began before this have prepared may hold the rows: they fail, or are seen in the next round.
            self.fence_all().await?;
            fenced = true;
        }
        Err(Error::Contention { branch: format!("of table {}", what.table), attempts: ROUNDS })
    }

    /// Writes files anew, and the record that puts them in place of the old ones.
    async fn replace(
        &self,
        what: &What<'_>,
        mut held: Held,
        report: &mut PurgeReport,
        progress: &mut impl FnMut(&PurgeReport),
    ) -> Result<()> {
        report.fragments += held.hidden.len() as u64;
        let mut files = Vec::with_capacity(held.files.len());
        for (file, rows) in held.files.into_values() {
            files.push((file.id, self.rewrite(&file, &rows).await?));
            report.files += 1;
            progress(report);
        }
        // So that a purge that stopped can be finished: what is compacted from now on is known by where it came from.
        for (leaf, rows) in &what.leaves {
            let all = held.hidden.entry(*leaf).or_default();
            *all = all.union(rows);
        }
        let mut hidden: Vec<_> = held.hidden.into_iter().collect();
        hidden.sort_by_key(|(fragment, _)| *fragment);
        let What { table, author, reason, rows, .. } = what;
        let (author, reason) = ((*author).to_owned(), (*reason).to_owned());
        let id = PurgeId::random();
        let purge = Purge { id, table: *table, author, reason, time: now(), rows: *rows, hidden, files };
        let path = names::purge(self.known_purges().next());
        match self.storage().claim(&path, Bytes::from(purge.encode()?)).await? {
            Claim::Ours => Ok(()),
            Claim::Theirs(_) => {
                // Another purge was first: what we wrote may hold what it erased. The next round looks again.
                for (_, file) in &purge.files {
                    self.storage().delete(&names::data(file.id)).await?;
                }
                Ok(())
            }
            Claim::Unknown(error) => Err(error.into()),
        }
    }

    /// Deletes the files that others took the place of.
    async fn delete_replaced(&self, report: &mut PurgeReport, progress: &mut impl FnMut(&PurgeReport)) -> Result<()> {
        for (file, _) in self.known_purges().records().iter().flat_map(|purge| &purge.files) {
            let path = names::data(*file);
            match self.storage().head(&path).await {
                Ok(entry) => report.bytes += entry.size,
                Err(error) if error.is_not_found() => continue,
                Err(error) => return Err(error.into()),
            }
            self.storage().delete(&path).await?;
            progress(report);
        }
        Ok(())
    }

    /// The records of all purges.
    ///
    /// # Errors
    /// [`Error::Object`] if one is damaged, and what the store reports.
    pub async fn purges(&self) -> Result<Vec<Purge>> {
        Ok(Purges::load(self.storage()).await?.records().to_vec())
    }

    /// Makes the marker say that there are purges: a reader that knows nothing of them must not go on.
    pub(crate) async fn announce_purges(&self) -> Result<()> {
        let path = names::MARKER;
        let marker = LakeMarker::decode(&self.storage().get(path).await?).map_err(Error::object(path))?;
        if !marker.purges {
            let marker = LakeMarker { purges: true, ..marker };
            self.storage().put(path, Bytes::from(marker.encode()?)).await?;
        }
        Ok(())
    }

    /// Fences off all writers that began before; they fail if they prepared anything that may hold the rows.
    async fn fence_all(&self) -> Result<()> {
        let storage = self.storage();
        loop {
            let (epoch, _) = gc::start(storage, std::time::Duration::ZERO).await?;
            let none = GcRecord::Pins { nonce: rand::random(), pins: Vec::new() };
            if epochs::claim(storage, epoch, &none).await? {
                gc::fence(storage, epoch, true).await?;
            }
            let steps = epochs::steps(storage).await?;
            epochs::call_off(storage, &steps, epoch).await?;
            // A later collection may have fenced a branch before us, and then ours isn't there.
            if steps.keys().next_back() == Some(&epoch) {
                return Ok(());
            }
        }
    }

    /// The rows by the fragments that they were first written in.
    async fn leaves(&self, rows: &Selection) -> Result<BTreeMap<FragmentId, RowSet>> {
        let table = rows.table();
        let mut chosen: BTreeMap<FragmentId, Vec<u32>> = BTreeMap::new();
        for number in 0..rows.len() {
            let RowId { fragment, row } = table.row_id(rows.row(number)?)?;
            chosen.entry(fragment).or_default().push(row);
        }
        let mut leaves: BTreeMap<FragmentId, RowSet> = BTreeMap::new();
        for fragment in table.fragments() {
            let Some(rows) = chosen.remove(&fragment.id) else { continue };
            let rows = RowSet::of(rows);
            let side = self.side(fragment).await?;
            for origin in side.origins_of(0, &rows) {
                let all = leaves.entry(origin.fragment).or_default();
                *all = all.union(&origin.rows);
            }
        }
        Ok(leaves)
    }

    async fn side(&self, fragment: &Fragment) -> Result<Side> {
        let mut origins: HashMap<FragmentId, Origins> = HashMap::new();
        if let Some(pointer) = &fragment.origins {
            origins.insert(fragment.id, manifest::origins(self, pointer).await?);
        }
        Ok(Side::new(vec![fragment.clone()], &origins))
    }

    /// Where rows are that aren't hidden yet, in any version of the table.
    async fn holders(&self, table: TableId, leaves: &BTreeMap<FragmentId, RowSet>) -> Result<Held> {
        let (mut held, mut seen) = (Held::default(), HashSet::new());
        for commit in gc::commits(self).await? {
            let (_, _, commit) = crate::lake::find(self.storage(), &At::Commit(commit)).await?;
            let Some(entry) = commit.tables.iter().find(|entry| entry.id == table) else { continue };
            if let RootRef::Object(pointer) = &entry.root
                && !seen.insert(pointer.id)
            {
                continue;
            }
            let mut root = snapshot::root(self, commit.id, entry).await?;
            root.pages.retain(|page| match &page.page {
                PageLocation::Object(pointer) => seen.insert(pointer.id),
                PageLocation::Inline(_) => true,
            });
            for fragment in manifest::fragments(self, &root, "a version of a table that is purged").await? {
                self.hold(&fragment, leaves, &mut held).await?;
            }
        }
        Ok(held)
    }

    /// Takes in what a fragment holds of the rows.
    async fn hold(&self, fragment: &Fragment, leaves: &BTreeMap<FragmentId, RowSet>, held: &mut Held) -> Result<()> {
        let side = self.side(fragment).await?;
        let purges = self.known_purges();
        let mut rows = RowSet::new();
        for (leaf, pieces) in side.leaves() {
            let Some(wanted) = leaves.get(&leaf) else { continue };
            rows = pieces.iter().fold(rows, |rows, piece| rows.union(&piece.to_carrier(&piece.rows.intersect(wanted))));
        }
        let rows = rows.subtract(&purges.hidden_of(fragment.id));
        if rows.is_empty() {
            return Ok(());
        }
        for file in &fragment.files {
            held.file(file, &rows);
        }
        for overlay in &fragment.overlays {
            let places = overlay.rows.intersect(&rows);
            let places = places.iter().filter_map(|row| Some(overlay.first + overlay.rows.position(row)?));
            held.file(&overlay.file, &RowSet::of(places.collect()));
        }
        let hidden = held.hidden.entry(fragment.id).or_default();
        *hidden = hidden.union(&rows);
        Ok(())
    }

    /// Writes a file anew, with nothing in some of its rows.
    async fn rewrite(&self, file: &DataFileRef, rows: &RowSet) -> Result<DataFileRef> {
        let open = std::sync::Arc::new(crate::OpenFile::open(self.storage(), file).await?);
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

/// What is to be erased, and what the record says of it.
struct What<'a> {
    table: TableId,
    leaves: BTreeMap<FragmentId, RowSet>,
    author: &'a str,
    reason: &'a str,
    rows: u64,
}

/// Rows that are still there.
#[derive(Default)]
struct Held {
    hidden: HashMap<FragmentId, RowSet>,
    files: HashMap<FileId, (DataFileRef, RowSet)>,
}

impl Held {
    fn file(&mut self, file: &DataFileRef, rows: &RowSet) {
        if !rows.is_empty() {
            let (_, all) = self.files.entry(file.id).or_insert_with(|| (file.clone(), RowSet::new()));
            *all = all.union(rows);
        }
    }
}

/// A column as its file describes it.
fn described(index: &forebay_format::ColumnIndex) -> Column {
    Column {
        name: index.name().to_owned(),
        field: index.field(),
        dtype: index.dtype(),
        shape: index.shape().to_vec(),
        nullable: index.nullable(),
        compression: index.compression(),
        kind: forebay_format::Kind::default(),
    }
}

/// Rows without values, of the form of others of the column.
fn blank(column: &Column, rows: usize, like: &ColumnData) -> ColumnData {
    use forebay_format::OwnedValues;
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
