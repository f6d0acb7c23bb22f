//! Where rows are, in all versions of a table.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{Mutex, PoisonError},
};

use forebay_format::{
    CommitId, FileId, FragmentId, ObjectId, RowSet, TableId,
    meta::{DataFileRef, Fragment, PageLocation, RootRef, TableRoot},
};
use futures::{StreamExt as _, stream};

use super::gone;
use crate::{At, Lake, Result, gc, lake, manifest, names, snapshot};

/// Versions looked at at once.
const CONCURRENCY: usize = 16;

/// Rows that are still there: in manifests, which have to hide them, or in files.
#[derive(Default)]
pub(super) struct Held {
    pub(super) hidden: HashMap<FragmentId, RowSet>,
    pub(super) files: HashMap<FileId, (DataFileRef, RowSet)>,
}

impl Held {
    pub(super) fn is_empty(&self) -> bool {
        self.hidden.is_empty()
    }

    fn file(&mut self, file: &DataFileRef, rows: &RowSet) {
        let (_, all) = self.files.entry(file.id).or_insert_with(|| (file.clone(), RowSet::new()));
        *all = all.union(rows);
    }
}

/// What was looked at.
#[derive(Default)]
struct Looked {
    fragments: HashSet<(FragmentId, Vec<FileId>)>,
    files: HashMap<FileId, bool>,
}

impl Looked {
    /// Whether a fragment, as it is here, wasn't looked at before.
    fn first(&mut self, fragment: &Fragment) -> bool {
        self.fragments.insert((fragment.id, fragment.all_files().map(|file| file.id).collect()))
    }

    /// Whether a file is there: one that was lost or collected holds nothing.
    async fn there(&mut self, lake: &Lake, file: FileId) -> Result<bool> {
        if let Some(there) = self.files.get(&file) {
            return Ok(*there);
        }
        let there = match lake.storage().head(&names::data(file)).await {
            Ok(_) => true,
            Err(error) if error.is_not_found() => false,
            Err(error) => return Err(error.into()),
        };
        self.files.insert(file, there);
        Ok(there)
    }
}

impl Lake {
    /// Where rows, given by the fragments that they were first written in, aren't hidden or lie in files, in any version of the
    /// table.
    pub(super) async fn holders(&self, table: TableId, leaves: &BTreeMap<FragmentId, RowSet>) -> Result<Held> {
        let (mut held, seen) = (Held::default(), Mutex::new(HashSet::new()));
        let mut looked = Looked::default();
        let commits = gc::commits(self).await?;
        // What branches and tags lead to goes first: of it nothing may be missing.
        for retained in [false, true] {
            let commits = commits.iter().filter(|commit| commit.retained == retained);
            let mut roots =
                stream::iter(commits).map(|commit| self.root_of(commit.id, table, &seen)).buffer_unordered(CONCURRENCY);
            while let Some(root) = roots.next().await {
                let Some(root) = unless_collected(root, retained)?.flatten() else { continue };
                for page in &root.pages {
                    if matches!(&page.page, PageLocation::Object(pointer) if !first(&seen, pointer.id)) {
                        continue;
                    }
                    let single = TableRoot { pages: vec![page.clone()], ..root.clone() };
                    let read = manifest::fragments(self, &single, "a version of a table that is purged").await;
                    for fragment in unless_collected(read, retained)?.unwrap_or_default() {
                        if looked.first(&fragment) {
                            self.hold(&fragment, retained, leaves, (&mut held, &mut looked)).await?;
                        }
                    }
                }
            }
        }
        Ok(held)
    }

    /// The root of a table in a commit, unless it was seen.
    async fn root_of(
        &self,
        commit: CommitId,
        table: TableId,
        seen: &Mutex<HashSet<ObjectId>>,
    ) -> Result<Option<TableRoot>> {
        let (_, _, commit) = lake::find(self.storage(), &At::Commit(commit)).await?;
        let Some(entry) = commit.tables.iter().find(|entry| entry.id == table) else { return Ok(None) };
        match &entry.root {
            RootRef::Object(pointer) if !first(seen, pointer.id) => Ok(None),
            _ => snapshot::root(self, commit.id, entry).await.map(Some),
        }
    }

    /// Takes in what a fragment holds of the rows.
    async fn hold(
        &self,
        fragment: &Fragment,
        retained: bool,
        leaves: &BTreeMap<FragmentId, RowSet>,
        (held, looked): (&mut Held, &mut Looked),
    ) -> Result<()> {
        if fragment.origins.is_none() && !leaves.contains_key(&fragment.id) {
            return Ok(());
        }
        let mut rows = RowSet::new();
        match unless_collected(self.side(fragment).await, retained)? {
            Some(side) => {
                for (leaf, pieces) in side.leaves() {
                    let Some(wanted) = leaves.get(&leaf) else { continue };
                    let held = pieces.iter().map(|piece| piece.to_carrier(&piece.rows.intersect(wanted)));
                    rows = held.fold(rows, |rows, held| rows.union(&held));
                }
            }
            // Nobody can tell any more which rows these are.
            None => rows = RowSet::range(0..fragment.rows),
        }
        let purges = self.known_purges();
        let mut found = !rows.subtract(&purges.hidden_of(fragment.id)).is_empty();
        // A row may be hidden and still lie in a file that was written while the record was.
        let lying = |file: &DataFileRef| rows.subtract(&purges.blank(file.id, fragment.id));
        for file in &fragment.files {
            let rows = lying(file);
            if !rows.is_empty() && looked.there(self, file.id).await? {
                held.file(file, &rows);
                found = true;
            }
        }
        for overlay in &fragment.overlays {
            let places = overlay.rows.places(&lying(&overlay.file).intersect(&overlay.rows)).moved_up(overlay.first);
            if !places.is_empty() && looked.there(self, overlay.file.id).await? {
                held.file(&overlay.file, &places);
                found = true;
            }
        }
        if found {
            let hidden = held.hidden.entry(fragment.id).or_default();
            *hidden = hidden.union(&rows);
        }
        Ok(())
    }
}

/// What was read, or nothing if it was collected: a part of what is only retained.
fn unless_collected<T>(read: Result<T>, retained: bool) -> Result<Option<T>> {
    match read {
        Err(error) if retained && gone(&error) => Ok(None),
        read => read.map(Some),
    }
}

/// Whether an object wasn't seen before.
fn first(seen: &Mutex<HashSet<ObjectId>>, id: ObjectId) -> bool {
    seen.lock().unwrap_or_else(PoisonError::into_inner).insert(id)
}
