//! Where rows are, in all versions of a table.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{Mutex, PoisonError},
};

use forebay_format::{
    CommitId, FileId, FragmentId, ObjectId, RowSet, TableId,
    meta::{DataFileRef, Fragment, PageLocation, RootRef, TableRoot},
};
use futures::{StreamExt as _, TryStreamExt as _, stream};

use crate::{At, Lake, Result, gc, lake, manifest, snapshot};

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

impl Lake {
    /// Where rows, given by the fragments that they were first written in, aren't hidden or lie in files, in any version of the
    /// table.
    pub(super) async fn holders(&self, table: TableId, leaves: &BTreeMap<FragmentId, RowSet>) -> Result<Held> {
        let (mut held, mut looked) = (Held::default(), HashSet::new());
        let seen = Mutex::new(HashSet::new());
        let mut roots = stream::iter(gc::commits(self).await?)
            .map(|commit| self.root_of(commit, table, &seen))
            .buffer_unordered(CONCURRENCY);
        while let Some(root) = roots.try_next().await? {
            let Some(mut root) = root else { continue };
            root.pages.retain(|page| match &page.page {
                PageLocation::Object(pointer) => first(&seen, pointer.id),
                PageLocation::Inline(_) => true,
            });
            for fragment in manifest::fragments(self, &root, "a version of a table that is purged").await? {
                let files: Vec<FileId> = fragment.all_files().map(|file| file.id).collect();
                if looked.insert((fragment.id, files)) {
                    self.hold(&fragment, leaves, &mut held).await?;
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
    async fn hold(&self, fragment: &Fragment, leaves: &BTreeMap<FragmentId, RowSet>, held: &mut Held) -> Result<()> {
        if fragment.origins.is_none() && !leaves.contains_key(&fragment.id) {
            return Ok(());
        }
        let side = self.side(fragment).await?;
        let mut rows = RowSet::new();
        for (leaf, pieces) in side.leaves() {
            let Some(wanted) = leaves.get(&leaf) else { continue };
            rows = pieces.iter().fold(rows, |rows, piece| rows.union(&piece.to_carrier(&piece.rows.intersect(wanted))));
        }
        let purges = self.known_purges();
        let mut found = !rows.subtract(&purges.hidden_of(fragment.id)).is_empty();
        // A row may be hidden and still lie in a file that was written while the record was.
        let lying = |file: &DataFileRef| rows.subtract(&purges.blank(file.id, fragment.id));
        for file in &fragment.files {
            let rows = lying(file);
            if !rows.is_empty() {
                held.file(file, &rows);
                found = true;
            }
        }
        for overlay in &fragment.overlays {
            let places = overlay.rows.places(&lying(&overlay.file).intersect(&overlay.rows)).moved_up(overlay.first);
            if !places.is_empty() {
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

/// Whether an object wasn't seen before.
fn first(seen: &Mutex<HashSet<ObjectId>>, id: ObjectId) -> bool {
    seen.lock().unwrap_or_else(PoisonError::into_inner).insert(id)
}
