//! A table of a snapshot.

use std::{fmt, sync::Arc};

use forebay_format::{
    Column, FieldId, FileId, Schema, TableId,
    meta::{DataFileRef, Fragment, TableEntry, TableRoot},
};
use forebay_storage::Storage;
use futures::{StreamExt as _, TryStreamExt as _, stream};

use crate::{Error, OpenFile, Result, Snapshot, names};

/// Where a row is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Location {
    /// The fragment's place in [`Table::fragments`].
    pub fragment: usize,
    /// The row in it.
    pub row: u32,
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
    schema: Schema,
    fragments: Vec<Fragment>,
    /// The first row of each fragment, and the number of rows behind the last.
    starts: Vec<u64>,
    bytes: u64,
    /// Keeps this table's files open as long as the table is used.
    files: Vec<std::sync::OnceLock<Arc<OpenFile>>>,
    /// The first of `files` of each fragment.
    file_starts: Vec<usize>,
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
        let (mut rows, mut files, mut bytes) = (0, 0, 0);
        for fragment in &fragments {
            starts.push(rows);
            file_starts.push(files);
            rows += u64::from(fragment.rows);
            files += fragment.files.len();
            bytes += fragment.files.iter().map(|file| file.size).sum::<u64>();
        }
        starts.push(rows);
        file_starts.push(files);
        if rows != entry.rows {
            let reason = format!("its fragments have {rows} rows, commit {} says {}", snapshot.id(), entry.rows);
            return Err(Error::Inconsistent { path: format!("table '{}'", entry.name), reason });
        }
        let files = (0..files).map(|_| std::sync::OnceLock::new()).collect();
        let (id, name, schema) = (entry.id, entry.name.clone(), root.schema);
        Ok(Self { inner: Arc::new(Inner { snapshot, id, name, schema, fragments, starts, bytes, files, file_starts }) })
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
        &self.inner.schema
    }

    /// Its rows.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.inner.starts.last().copied().unwrap_or(0)
    }

    /// Bytes of its data files.
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

    /// The first row of fragment `fragment`; for the number of fragments, the number of rows.
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
        let fragment = self.inner.starts.partition_point(|start| *start <= row) - 1;
        Ok(Location { fragment, row: (row - self.inner.starts[fragment]) as u32 })
    }

    /// The data file that holds a column of a fragment, opened once.
    ///
    /// # Errors
    /// [`Error::Inconsistent`] if no file of the fragment has the column; [`Error::Missing`] or [`Error::Object`] if the
    /// file is gone or damaged; and what the store reports.
    pub async fn file(&self, fragment: usize, field: FieldId) -> Result<Arc<OpenFile>> {
        let slot = self.slot(fragment, field)?;
        if let Some(file) = self.inner.files[slot].get() {
            return Ok(file.clone());
        }
        let lake = self.inner.snapshot.lake();
        let reference = &self.inner.fragments[fragment].files[slot - self.inner.file_starts[fragment]];
        let file = match lake.opened(reference.id) {
            Some(file) => file,
            None => {
                let file = OpenFile::open(self.storage(), reference).await?;
                self.check(fragment, reference, &file)?;
                lake.remember(reference.id, file)
            }
        };
        Ok(self.inner.files[slot].get_or_init(|| file).clone())
    }

    /// The data file that holds a column of a fragment, if this table has it open already.
    ///
    /// # Errors
    /// [`Error::Inconsistent`] if no file of the fragment has the column.
    pub fn opened(&self, fragment: usize, field: FieldId) -> Result<Option<&Arc<OpenFile>>> {
        Ok(self.inner.files[self.slot(fragment, field)?].get())
    }

    /// Opens the files that hold `columns` of the given fragments, many at once.
    ///
    /// # Errors
    /// As [`Table::file`].
    pub async fn open_files(&self, columns: &[&Column], fragments: impl IntoIterator<Item = usize>) -> Result<()> {
        let mut wanted = std::collections::BTreeMap::new();
        for fragment in fragments {
            for column in columns {
                wanted.entry(self.slot(fragment, column.field)?).or_insert((fragment, column.field));
            }
        }
        stream::iter(wanted.into_values())
            .map(|(fragment, field)| async move { self.file(fragment, field).await.map(drop) })
            .buffer_unordered(CONCURRENCY)
            .try_collect()
            .await
    }

    fn slot(&self, fragment: usize, field: FieldId) -> Result<usize> {
        let files = &self.inner.fragments[fragment].files;
        match files.iter().position(|file| file.fields.contains(&field)) {
            Some(file) => Ok(self.inner.file_starts[fragment] + file),
            None => Err(Error::Inconsistent {
                path: format!("table '{}'", self.inner.name),
                reason: format!("fragment {} has no file with column {field}", self.inner.fragments[fragment].id),
            }),
        }
    }

    fn check(&self, fragment: usize, reference: &DataFileRef, file: &OpenFile) -> Result<()> {
        let (found, expected) = (file.index().rows(), self.inner.fragments[fragment].rows);
        if found != expected {
            let reason = format!("it has {found} rows, the manifest says {expected}");
            return Err(Error::Inconsistent { path: names::data(reference.id), reason });
        }
        for column in self.inner.schema.columns.iter().filter(|column| reference.fields.contains(&column.field)) {
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
        self.inner.fragments.iter().flat_map(|fragment| &fragment.files).map(|file| (file.id, file))
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table").field("name", &self.inner.name).field("rows", &self.rows()).finish_non_exhaustive()
    }
}
