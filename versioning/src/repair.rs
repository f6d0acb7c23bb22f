//! What damage means: which rows and columns are lost, and which commit of each branch is whole. Nothing is changed or guessed.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use forebay_format::{
    CommitId, FieldId,
    meta::{Commit, DataFileRef, Fragment, PageLocation, Pointer, RefKind, RootRef, TableEntry, TableRoot},
};

use crate::{At, Error, Lake, Result, Verification, commit, names, verify::Walk};

/// Rows that a version lost.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Loss {
    /// The table.
    pub table: String,
    /// The column; `None` for whole rows.
    pub column: Option<String>,
    /// Rows whose values can't be read, or may be wrong.
    pub rows: u64,
    /// The objects that are missing or damaged.
    pub objects: Vec<String>,
}

/// The state of a branch.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BranchState {
    /// The branch.
    pub branch: String,
    /// Its newest commit that can be read; `None` if there is none.
    pub newest: Option<CommitId>,
    /// What that commit lost; empty if it is whole.
    pub losses: Vec<Loss>,
    /// The newest commit of its history of which nothing is lost; `None` if there is none.
    pub whole: Option<CommitId>,
    /// Commits that it follows, or its newest one, whose objects are missing or damaged: histories are followed through them as far as
    /// logs have copies.
    pub commits_lost: Vec<CommitId>,
    /// Entries of its log that can't be read.
    pub entries_lost: u64,
}

/// What is damaged, and what that means.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Damage {
    /// What was read, and every place that is wrong.
    pub verification: Verification,
    /// Each branch.
    pub branches: Vec<BranchState>,
}

/// Losses by table and column.
type Losses = BTreeMap<(String, Option<String>), (u64, BTreeSet<String>)>;

impl BranchState {
    fn new(branch: String, entries_lost: u64) -> Self {
        Self { branch, newest: None, losses: Vec::new(), whole: None, commits_lost: Vec::new(), entries_lost }
    }
}

impl From<((String, Option<String>), (u64, BTreeSet<String>))> for Loss {
    fn from(((table, column), (rows, objects)): ((String, Option<String>), (u64, BTreeSet<String>))) -> Self {
        Self { table, column, rows, objects: objects.into_iter().collect() }
    }
}

impl Lake {
    /// Reads every byte that branches and tags reach, and says what is lost and which commit of each branch is whole: a
    /// branch can be made there, or [`reset`](Self::reset) to it. Changes nothing.
    ///
    /// # Errors
    /// What the store reports, other than objects that are missing.
    pub async fn assess(&self, mut progress: impl FnMut(&Verification)) -> Result<Damage> {
        let mut walk = Walk::begin(self).await?;
        let mut states = Vec::new();
        for branch in self.storage().folders(names::HEADS).await? {
            let log = walk.log(&branch).await?;
            let newest = log.newest.filter(|entry| entry.kind != RefKind::Delete).map(|entry| entry.commit);
            if let Some(newest) = newest {
                walk.history(newest, &mut progress).await?;
            }
            if newest.is_some() || log.lost > 0 {
                states.push((branch, newest, log.lost));
            }
        }
        for tag in self.tags().await? {
            walk.version(&At::Tag(tag), &mut progress).await?;
        }
        let (found, verification) = walk.finish(progress).await?;
        let bad: BTreeSet<String> = verification.faults.iter().map(|fault| fault.path.clone()).collect();
        let mut damage = Damage { verification, branches: Vec::new() };
        for (branch, newest, lost) in states {
            let mut state = BranchState::new(branch, lost);
            if let Some(newest) = newest {
                self.judge(&mut state, newest, &found, &bad).await?;
            }
            damage.branches.push(state);
        }
        Ok(damage)
    }

    /// Looks for the newest whole commit of a branch.
    async fn judge(
        &self,
        state: &mut BranchState,
        newest: Pointer,
        found: &Walk<'_>,
        bad: &BTreeSet<String>,
    ) -> Result<()> {
        let mut seen = HashSet::from([newest.id]);
        let mut queue = BTreeMap::new();
        let (mut next, mut referrer) = (vec![newest], format!("branch '{}'", state.branch));
        loop {
            for pointer in next {
                if found.lost.contains(&pointer.id.cast()) {
                    state.commits_lost.push(pointer.id.cast());
                }
                match found.commit(&pointer, &referrer).await {
                    Ok(commit) => drop(queue.insert((commit.generation, commit.id), commit)),
                    Err(Error::Object { .. } | Error::Missing { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
            let Some((_, commit)) = queue.pop_last() else { return Ok(()) };
            if state.whole.is_none() && !found.expired.contains(&commit.id) {
                let losses = self.losses(&commit, bad).await?;
                if losses.is_empty() && !found.lost.contains(&commit.id) {
                    state.whole = Some(commit.id);
                }
                if commit.id == newest.id.cast() {
                    state.losses = losses.into_iter().map(Loss::from).collect();
                }
            }
            state.newest.get_or_insert(commit.id);
            if state.whole.is_some() && found.lost.is_empty() {
                return Ok(());
            }
            referrer = format!("commit {}", commit.id);
            next = commit.parents.into_iter().filter(|parent| seen.insert(parent.id)).collect();
        }
    }

    /// What a commit lost, given the objects that are missing or damaged.
    async fn losses(&self, commit: &Commit, bad: &BTreeSet<String>) -> Result<Losses> {
        let mut losses = Losses::new();
        for entry in &commit.tables {
            let root = match &entry.root {
                RootRef::Inline(root) => root.clone(),
                RootRef::Object(pointer) if lose_meta(entry, pointer, entry.rows, bad, &mut losses) => continue,
                RootRef::Object(pointer) => {
                    let bytes = commit::fetch(self.storage(), pointer, &format!("table '{}'", entry.name)).await?;
                    TableRoot::decode(&bytes).map_err(Error::object(names::meta(pointer.id)))?
                }
            };
            for reference in &root.pages {
                let fragments = match &reference.page {
                    PageLocation::Inline(page) => self.known_purges().applied(&page.fragments),
                    PageLocation::Object(pointer) if lose_meta(entry, pointer, reference.rows, bad, &mut losses) => {
                        continue;
                    }
                    PageLocation::Object(pointer) => {
                        let page = self.page(pointer, "a commit that is assessed").await?;
                        self.known_purges().applied(&page.fragments)
                    }
                };
                lose_of_fragments(entry, &root, &fragments, bad, &mut losses);
            }
        }
        Ok(losses)
    }
}

/// Whether a root or page, of so many rows, is lost, and those with it.
fn lose_meta(entry: &TableEntry, object: &Pointer, rows: u64, bad: &BTreeSet<String>, losses: &mut Losses) -> bool {
    let path = names::meta(object.id);
    let lost = bad.contains(&path);
    if lost {
        lose(losses, entry, None, rows, path);
    }
    lost
}

/// What fragments lost.
fn lose_of_fragments(
    entry: &TableEntry,
    root: &TableRoot,
    fragments: &[Fragment],
    bad: &BTreeSet<String>,
    losses: &mut Losses,
) {
    let mut lost = |file: &DataFileRef, rows: u64, without: &dyn Fn(FieldId) -> bool| {
        let path = names::data(file.id);
        if rows > 0 && bad.contains(&path) {
            for column in root.schema.columns.iter().filter(|column| file.fields.contains(&column.field)) {
                if !without(column.field) {
                    lose(losses, entry, Some(column.name.clone()), rows, path.clone());
                }
            }
        }
    };
    for fragment in fragments {
        let live = u64::from(fragment.live());
        fragment.files.iter().for_each(|file| lost(file, live, &|_| false));
        for overlay in &fragment.overlays {
            let rows = overlay.rows.subtract(&fragment.deleted).len();
            lost(&overlay.file, u64::from(rows), &|_| false);
        }
        let own = |field: FieldId| fragment.files.iter().any(|file| file.fields.contains(&field));
        root.defaults.iter().for_each(|file| lost(file, live, &own));
    }
}

fn lose(losses: &mut Losses, entry: &TableEntry, column: Option<String>, rows: u64, object: String) {
    let (all, objects) = losses.entry((entry.name.clone(), column)).or_default();
    *all += rows;
    objects.insert(object);
}
