//! A table of a snapshot.

use std::{
    fmt,
    ops::{Range, RangeInclusive},
    sync::Arc,
};

use forebay_format::{
    Column, FieldId, FileId, FragmentId, RowSet, Schema, TableId,
    meta::{DataFileRef, Fragment, TableEntry, TableRoot},
};
use forebay_storage::Storage;
use futures::{StreamExt as _, TryStreamExt as _, stream};

use crate::{Error, OpenFile, Result, Snapshot, names};

/// Where a row is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Location {
    /// The fragment's place in [`Table::fragments`]. For a [cell](Table::cell), the source's number.
    pub fragment: usize,
    /// The row in it, deleted ones counted.
    pub row: u32,
}

/// The identity of a row: the same on every branch, whatever else changes, until its fragment is compacted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowId {
    /// The fragment.
    pub fragment: FragmentId,
    /// The row in it, deleted ones counted.
    pub row: u32,
}

impl fmt::Display for RowId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.fragment, self.row)
    }
}

/// A table of a snapshot: schema and fragments. It never changes; clones are cheap and share open files.
#[derive(Clone)]
pub struct Table {
    inner: Arc<Inner>,
}

struct Inner {
    snapshot: Snapshot,
    id: TableId,
    name: String,
    root: TableRoot,
    fragments: Vec<Fragment>,
    /// The first row of each fragment, and the number of rows behind the last.
    starts: Vec<u64>,
    bytes: u64,
    /// Keeps this table's files open as long as the table is used.
    files: Vec<std::sync::OnceLock<Arc<OpenFile>>>,
    /// The first of `files` of each fragment; behind those of all fragments are those of overlays and defaults.
    file_starts: Vec<usize>,
    /// The number of the first overlay of each fragment, and the number of all overlays.
    overlay_starts: Vec<usize>,
    /// The fragment of each overlay.
    overlaid: Vec<usize>,
}

/// Files opened at once.
const CONCURRENCY: usize = 32;

impl Table {
    pub(crate) fn new(
        snapshot: Snapshot,
        entry: &TableEntry,
        root: TableRoot,
        fragments: Vec<Fragment>,
    ) -> Result<Self> {
        let mut starts = Vec::with_capacity(fragments.len() + 1);
        let mut file_starts = Vec::with_capacity(fragments.len() + 1);
        let mut overlay_starts = Vec::with_capacity(fragments.len() + 1);
        let mut overlaid = Vec::new();
        let (mut rows, mut files, mut bytes) = (0, 0, 0);
        for (number, fragment) in fragments.iter().enumerate() {
            starts.push(rows);
            file_starts.push(files);
            overlay_starts.push(overlaid.len());
            rows += u64::from(fragment.live());
            files += fragment.files.len();
            overlaid.extend(fragment.overlays.iter().map(|_| number));
            bytes += fragment.files.iter().map(|file| file.size).sum::<u64>();
        }
        starts.push(rows);
        file_starts.push(files);
        overlay_starts.push(overlaid.len());
        files += overlaid.len() + root.defaults.len();
        let files = (0..files).map(|_| std::sync::OnceLock::new()).collect();
        let (id, name) = (entry.id, entry.name.clone());
        let inner =
            Inner { snapshot, id, name, root, fragments, starts, bytes, files, file_starts, overlay_starts, overlaid };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The version that it belongs to.
    #[must_use]
    pub fn snapshot(&self) -> &Snapshot {
        &self.inner.snapshot
    }

    /// Where it is kept.
    #[must_use]
    pub fn storage(&self) -> &Storage {
        self.inner.snapshot.lake().storage()
    }

    /// Its identity, kept through renames.
    #[must_use]
    pub fn id(&self) -> TableId {
        self.inner.id
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Its columns.
    #[must_use]
    pub fn schema(&self) -> &Schema {
        &self.inner.root.schema
    }

    /// The columns whose values together differ from row to row; none if the table has no key.
    #[must_use]
    pub fn key(&self) -> Vec<&Column> {
        let columns = &self.schema().columns;
        self.inner.root.key.iter().filter_map(|key| columns.iter().find(|column| column.field == *key)).collect()
    }

    pub(crate) fn root(&self) -> &TableRoot {
        &self.inner.root
    }

    /// Its rows.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.inner.starts.last().copied().unwrap_or(0)
    }

    /// Bytes of its data files, without those of overlays.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.inner.bytes
    }

    /// Mean bytes of a row in the data files, all columns together, at least 1; from the manifest alone.
    #[must_use]
    pub fn mean_row_bytes(&self) -> u64 {
        (self.inner.bytes / self.rows().max(1)).max(1)
    }

    /// Its fragments, in order.
    #[must_use]
    pub fn fragments(&self) -> &[Fragment] {
        &self.inner.fragments
    }

    /// The first row, without deleted ones, of fragment `fragment`; for the number of fragments, the number of rows.
    ///
    /// # Panics
    /// If `fragment` is larger than that.
    #[must_use]
    pub fn first_row(&self, fragment: usize) -> u64 {
        self.inner.starts[fragment]
    }

    /// Where a row is, in O(log fragments).
    ///
    /// # Errors
    /// [`Error::RowOutOfRange`].
    pub fn locate(&self, row: u64) -> Result<Location> {
        if row >= self.rows() {
            return Err(Error::RowOutOfRange { table: self.inner.name.clone(), row, rows: self.rows() });
        }
        // Fragments without rows share their start with the next one.
        let fragment = self.inner.starts.partition_point(|start| *start <= row) - 1;
        let live = (row - self.inner.starts[fragment]) as u32;
        Ok(Location { fragment, row: self.inner.fragments[fragment].deleted.get_missing(live) })
    }

    /// Where a column's value in a row is: the row of a source, which is the fragment itself or an overlay of it, or the
    /// column's default. Sources are numbered through, those of fragments first, and are asked for as fragments are.
    #[must_use]
    pub fn cell(&self, location: Location, field: FieldId) -> Location {
        let fragment = &self.inner.fragments[location.fragment];
        for (number, overlay) in fragment.overlays.iter().enumerate().rev() {
            if overlay.file.fields.contains(&field)
                && let Some(row) = overlay.rows.position(location.row)
            {
                let before = self.inner.overlay_starts[location.fragment];
                return Location { fragment: self.inner.fragments.len() + before + number, row: overlay.first + row };
            }
        }
        if !fragment.files.is_empty() && fragment.files.iter().any(|file| file.fields.contains(&field)) {
            return location;
        }
        match self.inner.root.defaults.iter().position(|file| file.fields.contains(&field)) {
            Some(number) => {
                Location { fragment: self.inner.fragments.len() + self.inner.overlaid.len() + number, row: 0 }
            }
            None => location,
        }
    }

    /// How many sources there are: fragments, overlays, defaults.
    #[must_use]
    pub fn sources(&self) -> usize {
        self.inner.fragments.len() + self.inner.overlaid.len() + self.inner.root.defaults.len()
    }

    /// Whether a column's values in a fragment all lie in the fragment's own file.
    #[must_use]
    pub fn is_plain(&self, fragment: usize, field: FieldId) -> bool {
        let fragment = &self.inner.fragments[fragment];
        fragment.overlays.iter().all(|overlay| !overlay.file.fields.contains(&field))
            && fragment.files.iter().any(|file| file.fields.contains(&field))
    }

    /// Where a column's values in a range of rows are: runs of rows of sources, in the order of the rows.
    ///
    /// # Errors
    /// [`Error::RowOutOfRange`].
    pub fn pieces(&self, field: FieldId, rows: Range<u64>) -> Result<Vec<(usize, Range<u32>)>> {
        let mut pieces: Vec<(usize, Range<u32>)> = Vec::new();
        let mut row = rows.start;
        while row < rows.end {
            let at = self.locate(row)?;
            let end = rows.end.min(self.first_row(at.fragment + 1));
            let live = (end - row) as u32;
            let deleted = &self.inner.fragments[at.fragment].deleted;
            if self.is_plain(at.fragment, field) {
                let last = self.locate(end - 1)?.row;
                for run in RowSet::range(at.row..last + 1).subtract(deleted).runs() {
                    pieces.push((at.fragment, run));
                }
            } else {
                let first = (row - self.first_row(at.fragment)) as u32;
                for live in first..first + live {
                    let at = Location { fragment: at.fragment, row: deleted.get_missing(live) };
                    let cell = self.cell(at, field);
                    match pieces.last_mut() {
                        Some((source, run)) if *source == cell.fragment && run.end == cell.row => run.end += 1,
                        _ => pieces.push((cell.fragment, cell.row..cell.row + 1)),
                    }
                }
            }
            row = end;
        }
        Ok(pieces)
    }

    /// The identity of a row.
    ///
    /// # Errors
    /// [`Error::RowOutOfRange`].
    pub fn row_id(&self, row: u64) -> Result<RowId> {
        let at = self.locate(row)?;
        Ok(RowId { fragment: self.inner.fragments[at.fragment].id, row: at.row })
    }

    /// The number of a row.
    ///
    /// # Errors
    /// [`Error::UnknownRow`] if it isn't there.
    pub fn find(&self, id: RowId) -> Result<u64> {
        let fragments = &self.inner.fragments;
        let number = fragments.iter().position(|fragment| fragment.id == id.fragment);
        let number = number.filter(|number| id.row < fragments[*number].rows);
        match number.filter(|number| !fragments[*number].deleted.contains(id.row)) {
            Some(number) => {
                let deleted = fragments[number].deleted.rank(id.row);
                Ok(self.inner.starts[number] + u64::from(id.row - deleted))
            }
            None => Err(Error::UnknownRow { table: self.inner.name.clone(), row: id }),
        }
    }

    /// The data file that holds a column in a source, opened once.
    ///
    /// # Errors
    /// [`Error::Inconsistent`] if no file of the source has the column; [`Error::Missing`] or [`Error::Object`] if the
    /// file is gone or damaged; and what the store reports.
    pub async fn file(&self, source: usize, field: FieldId) -> Result<Arc<OpenFile>> {
        let slot = self.slot(source, field)?;
        if let Some(file) = self.inner.files[slot].get() {
            return Ok(file.clone());
        }
        let lake = self.inner.snapshot.lake();
        let (reference, rows) = self.reference(source, slot);
        let file = match lake.opened(reference.id) {
            Some(file) => file,
            None => {
                let file = match OpenFile::open(self.storage(), reference).await {
                    Ok(file) => file,
                    Err(error) => return Err(self.snapshot().explain(error).await),
                };
                self.check(rows, reference, &file)?;
                lake.remember(reference.id, file)
            }
        };
        Ok(self.inner.files[slot].get_or_init(|| file).clone())
    }

    /// The data file that holds a column in a source, if this table has it open already.
    ///
    /// # Errors
    /// [`Error::Inconsistent`] if no file of the source has the column.
    pub fn opened(&self, source: usize, field: FieldId) -> Result<Option<&Arc<OpenFile>>> {
        Ok(self.inner.files[self.slot(source, field)?].get())
    }

    /// Opens the files of columns in sources, many at once.
    ///
    /// # Errors
    /// As [`Table::file`].
    pub async fn open_files(&self, wanted: impl IntoIterator<Item = (usize, FieldId)>) -> Result<()> {
        let mut slots = std::collections::BTreeMap::new();
        for (source, field) in wanted {
            slots.entry(self.slot(source, field)?).or_insert((source, field));
        }
        stream::iter(slots.into_values())
            .map(|(source, field)| async move { self.file(source, field).await.map(drop) })
            .buffer_unordered(CONCURRENCY)
            .try_collect()
            .await
    }

    fn slot(&self, source: usize, field: FieldId) -> Result<usize> {
        let fragments = self.inner.fragments.len();
        if source >= fragments {
            // Files of overlays and defaults come behind those of all fragments.
            return Ok(self.inner.file_starts[fragments] + (source - fragments));
        }
        match self.inner.fragments[source].files.iter().position(|file| file.fields.contains(&field)) {
            Some(file) => Ok(self.inner.file_starts[source] + file),
            None => Err(Error::Inconsistent {
                path: format!("table '{}'", self.inner.name),
                reason: format!("fragment {} has no file with column {field}", self.inner.fragments[source].id),
            }),
        }
    }

    /// The file of a slot, and the rows it must have: at least so many for an overlay.
    fn reference(&self, source: usize, slot: usize) -> (&DataFileRef, RangeInclusive<u32>) {
        let Inner { fragments, overlaid, overlay_starts, root, .. } = &*self.inner;
        if let Some(fragment) = fragments.get(source) {
            return (&fragment.files[slot - self.inner.file_starts[source]], fragment.rows..=fragment.rows);
        }
        let overlay = source - fragments.len();
        match overlaid.get(overlay) {
            Some(fragment) => {
                let overlay = &fragments[*fragment].overlays[overlay - overlay_starts[*fragment]];
                (&overlay.file, overlay.first + overlay.rows.len()..=u32::MAX)
            }
            None => (&root.defaults[overlay - overlaid.len()], 1..=1),
        }
    }

    fn check(&self, rows: RangeInclusive<u32>, reference: &DataFileRef, file: &OpenFile) -> Result<()> {
        let found = file.index().rows();
        if !rows.contains(&found) {
            let reason = format!("it has {found} rows, the manifest says {}", rows.start());
            return Err(Error::Inconsistent { path: names::data(reference.id), reason });
        }
        for column in self.schema().columns.iter().filter(|column| reference.fields.contains(&column.field)) {
            let index = file.index().column(column.field);
            if index.is_none_or(|index| index.dtype() != column.dtype || index.shape() != column.shape) {
                let reason = format!("it lacks column {column}, or has it with another type");
                return Err(Error::Inconsistent { path: names::data(reference.id), reason });
            }
        }
        Ok(())
    }

    /// The ids of all its data files.
    pub fn data_files(&self) -> impl Iterator<Item = (FileId, &DataFileRef)> {
        let files = self.inner.fragments.iter().flat_map(Fragment::all_files);
        files.chain(&self.inner.root.defaults).map(|file| (file.id, file))
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table").field("name", &self.inner.name).field("rows", &self.rows()).finish_non_exhaustive()
    }
}
