//! What damage means: which rows and columns are lost, and which commit of each branch is whole. Nothing is changed or guessed.

use std::collections::{BTreeMap, BTreeSet};

use forebay_format::{
    CommitId, FieldId,
    meta::{Commit, DataFileRef, Page, PageLocation, RefKind, RootRef, TableEntry, TableRoot},
};

use crate::{At, Error, Lake, Result, Verification, commit, epochs, names, refs};

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
    /// The newest commit of its log of which nothing is lost; `None` if there is none.
    pub whole: Option<CommitId>,
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

impl Lake {
    /// Reads every byte that branches and tags reach, and says what is lost and which commit of each branch is whole: a
    /// branch can be made there, or [`reset`](Self::reset) to it. Changes nothing.
    ///
    /// # Errors
    /// What the store reports, other than objects that are missing.
    pub async fn assess(&self, progress: impl FnMut(&Verification)) -> Result<Damage> {
        let branches = self.storage().folders(names::HEADS).await?;
        let mut versions: Vec<At> = branches.iter().cloned().map(At::Branch).collect();
        versions.extend(self.tags().await?.into_iter().map(At::Tag));
        let verification = self.verify_all(&versions, progress).await?;
        let bad: BTreeSet<String> = verification.faults.iter().map(|fault| fault.path.clone()).collect();
        let mut damage = Damage { verification, branches: Vec::new() };
        for branch in branches {
            if let Some(state) = self.state(branch, &bad).await? {
                damage.branches.push(state);
            }
        }
        Ok(damage)
    }

    /// The state of a branch; `None` if it is deleted.
    async fn state(&self, branch: String, bad: &BTreeSet<String>) -> Result<Option<BranchState>> {
        let listed = self.storage().list(&format!("{}/{branch}", names::HEADS)).await?;
        let mut numbers: Vec<u64> =
            listed.iter().filter_map(|entry| entry.path.rsplit('/').next()?.parse().ok()).collect();
        numbers.sort_unstable();
        let expired = epochs::expired(self.storage()).await?;
        let mut state =
            BranchState { branch: branch.clone(), newest: None, losses: Vec::new(), whole: None, entries_lost: 0 };
        for sequence in numbers.into_iter().rev() {
            let commit = match refs::entry(self.storage(), &branch, sequence).await {
                Ok(Some(entry)) if entry.kind == RefKind::Delete && state.newest.is_none() => return Ok(None),
                Ok(Some(entry)) => Commit::decode(&entry.embedded).map_err(Error::object(names::meta(entry.commit.id))),
                Ok(None) | Err(Error::Object { .. }) => {
                    state.entries_lost += 1;
                    continue;
                }
                Err(error) => return Err(error),
            }?;
            if expired.contains(&commit.id) {
                continue;
            }
            let losses = self.losses(&commit, bad).await?;
            state.newest.get_or_insert(commit.id);
            if losses.is_empty() {
                state.whole = Some(commit.id);
                break;
            }
            if state.newest == Some(commit.id) {
                let loss = |((table, column), (rows, objects)): ((String, Option<String>), (u64, BTreeSet<String>))| {
                    Loss { table, column, rows, objects: objects.into_iter().collect() }
                };
                state.losses = losses.into_iter().map(loss).collect();
            }
        }
        Ok(Some(state))
    }

    /// What a commit lost, given the objects that are missing or damaged.
    async fn losses(&self, commit: &Commit, bad: &BTreeSet<String>) -> Result<Losses> {
        let mut losses = Losses::new();
        for entry in &commit.tables {
            let root = match &entry.root {
                RootRef::Inline(root) => root.clone(),
                RootRef::Object(pointer) => {
                    let path = names::meta(pointer.id);
                    if bad.contains(&path) {
                        lose(&mut losses, entry, None, entry.rows, path);
                        continue;
                    }
                    let bytes = commit::fetch(self.storage(), pointer, &format!("table '{}'", entry.name)).await?;
                    TableRoot::decode(&bytes).map_err(Error::object(path))?
                }
            };
            for reference in &root.pages {
                let page = match &reference.page {
                    PageLocation::Inline(page) => page.clone(),
                    PageLocation::Object(pointer) => {
                        let path = names::meta(pointer.id);
                        if bad.contains(&path) {
                            lose(&mut losses, entry, None, reference.rows, path);
                            continue;
                        }
                        Page::clone(&*self.page(pointer, "a commit that is assessed").await?)
                    }
                };
                let mut page = page;
                self.known_purges().apply(&mut page.fragments);
                lose_of_page(entry, &root, page, bad, &mut losses);
            }
        }
        Ok(losses)
    }
}

/// What the fragments of a page lost.
fn lose_of_page(entry: &TableEntry, root: &TableRoot, page: Page, bad: &BTreeSet<String>, losses: &mut Losses) {
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
    for fragment in page.fragments {
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
