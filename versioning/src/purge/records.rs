//! What was erased: rows that every version hides, and the files that took the place of those that held them.
//!
//! A purge leaves manifests and commits as they are, so that every pointer keeps its hash. Its record says which rows of which
//! fragments are hidden, and which file is read in place of which; whoever reads a fragment looks at the records first.

use std::collections::HashMap;

use forebay_format::{
    FileId, FragmentId, RowSet,
    meta::{DataFileRef, Fragment, Origins, Purge},
};
use forebay_storage::Storage;
use futures::{StreamExt as _, TryStreamExt as _, stream};

use crate::{Error, Result, names};

/// Records read at once.
const CONCURRENCY: usize = 32;

/// All purges of a lake.
#[derive(Debug, Default)]
pub(crate) struct Purges {
    records: Vec<Purge>,
    next: u64,
    hidden: HashMap<FragmentId, RowSet>,
    files: HashMap<FileId, DataFileRef>,
    /// Files that took the place of others: which, and by which record.
    made: HashMap<FileId, (FileId, usize)>,
}

impl Purges {
    pub(crate) async fn load(storage: &Storage) -> Result<Self> {
        let entries = storage.list(names::PURGES).await?;
        let number = |path: &str| path.rsplit('/').next()?.parse::<u64>().ok();
        let next = entries.last().and_then(|entry| number(&entry.path)).map_or(0, |last| last + 1);
        let mut read = stream::iter(entries)
            .map(|entry| async move {
                let bytes = storage.get(&entry.path).await?;
                Purge::decode(&bytes).map_err(Error::object(entry.path))
            })
            .buffered(CONCURRENCY);
        let mut purges = Self { next, ..Self::default() };
        while let Some(record) = read.try_next().await? {
            for (fragment, rows) in &record.hidden {
                let hidden = purges.hidden.entry(*fragment).or_default();
                *hidden = hidden.union(rows);
            }
            purges.files.extend(record.files.iter().cloned());
            let number = purges.records.len();
            purges.made.extend(record.files.iter().map(|(old, new)| (new.id, (*old, number))));
            purges.records.push(record);
        }
        Ok(purges)
    }

    /// The number of the next one.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    pub(crate) fn records(&self) -> &[Purge] {
        &self.records
    }

    /// Whether another file took this one's place.
    pub(crate) fn replaces(&self, file: FileId) -> bool {
        self.files.contains_key(&file)
    }

    pub(crate) fn hidden_of(&self, fragment: FragmentId) -> RowSet {
        self.hidden.get(&fragment).cloned().unwrap_or_default()
    }

    /// The rows of a fragment that a file, of it or of an overlay of it, holds nothing of: those that were hidden whenever it was
    /// written anew.
    pub(crate) fn blank(&self, mut file: FileId, fragment: FragmentId) -> RowSet {
        let mut blank = RowSet::new();
        while let Some((old, number)) = self.made.get(&file) {
            let hidden = self.records[*number].hidden.iter().filter(|(other, _)| *other == fragment);
            blank = hidden.fold(blank, |blank, (_, rows)| blank.union(rows));
            file = *old;
        }
        blank
    }

    /// Whether fragments are read as if there had been some of these purges only.
    pub(crate) fn miss(&self, fragments: &[Fragment]) -> bool {
        !self.records.is_empty()
            && fragments.iter().any(|fragment| {
                !self.hidden_of(fragment.id).subtract(&fragment.deleted).is_empty()
                    || fragment.all_files().any(|file| self.replaces(file.id))
            })
    }

    /// What is read in place of a file.
    pub(crate) fn file(&self, id: FileId) -> Option<&DataFileRef> {
        let mut found = self.files.get(&id)?;
        // Records are written for files that are read, so there is no way back.
        for _ in 0..self.files.len() {
            match self.files.get(&found.id) {
                Some(next) => found = next,
                None => break,
            }
        }
        Some(found)
    }

    /// Fragments as they are read.
    pub(crate) fn apply(&self, fragments: &mut [Fragment]) {
        if self.records.is_empty() {
            return;
        }
        for fragment in fragments {
            if let Some(hidden) = self.hidden.get(&fragment.id) {
                fragment.deleted = fragment.deleted.union(hidden);
            }
            let overlays = fragment.overlays.iter_mut().map(|overlay| &mut overlay.file);
            for file in fragment.files.iter_mut().chain(overlays) {
                if let Some(other) = self.file(file.id) {
                    file.clone_from(other);
                }
            }
        }
    }

    /// Fragments as they are read, of some as they are stored.
    pub(crate) fn applied(&self, fragments: &[Fragment]) -> Vec<Fragment> {
        let mut fragments = fragments.to_vec();
        self.apply(&mut fragments);
        fragments
    }

    /// Origins name the overlays that rows went through by their files.
    pub(crate) fn apply_to_origins(&self, origins: &mut Origins) {
        for edit in origins.origins.iter_mut().flat_map(|origin| &mut origin.edits) {
            if let Some(other) = self.file(edit.file) {
                edit.file = other.id;
            }
        }
    }
}
