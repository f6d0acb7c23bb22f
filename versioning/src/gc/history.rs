//! All commits that branches, tags and pins lead to.

use std::collections::{BTreeMap, HashMap, HashSet};

use forebay_format::{
    CommitId,
    meta::{Commit, Fragment, PageLocation, Pointer, RefKind, RootRef, TableRoot},
};
use forebay_storage::{Entry, Storage};
use futures::{StreamExt as _, TryStreamExt as _, stream};

use super::CONCURRENCY;
use crate::{
    At, Error, Lake, Result, commit, epochs, lake, names,
    pin::{Listed, micros},
    purge::Purges,
    refs,
};

/// What a commit, root or page names by itself.
#[derive(Debug, Default)]
pub(super) struct Contents {
    /// Table roots that are objects.
    pub(super) roots: Vec<Pointer>,
    pub(super) pages: Vec<Pointer>,
    /// Data files and lists of origins.
    pub(super) paths: Vec<String>,
}

impl Contents {
    fn of(commit: &Commit, purges: &Purges) -> Self {
        let mut contents = Self::default();
        for table in &commit.tables {
            match &table.root {
                RootRef::Inline(root) => contents.add_root(root, purges),
                RootRef::Object(pointer) => contents.roots.push(*pointer),
            }
        }
        contents
    }

    pub(super) fn add_root(&mut self, root: &TableRoot, purges: &Purges) {
        self.paths.extend(root.defaults.iter().map(|file| names::data(file.id)));
        for page in &root.pages {
            match &page.page {
                PageLocation::Inline(page) => self.add_fragments(&page.fragments, purges),
                PageLocation::Object(pointer) => self.pages.push(*pointer),
            }
        }
    }

    pub(super) fn add_fragments(&mut self, fragments: &[Fragment], purges: &Purges) {
        for fragment in purges.applied(fragments) {
            self.paths.extend(fragment.all_files().map(|file| names::data(file.id)));
            self.paths.extend(fragment.origins.as_ref().map(|origins| names::meta(origins.id)));
        }
    }
}

struct Known {
    parents: Vec<Pointer>,
    contents: Contents,
}

/// The commits, and those among them that are kept whole for what leads to them directly.
#[derive(Default)]
pub(super) struct History {
    commits: HashMap<CommitId, Known>,
    /// The commits in the order in which they were found.
    order: Vec<CommitId>,
    whole: HashSet<CommitId>,
    /// Those that only logs and pins lead to. An earlier collection may have taken some of what they lead to and left them for being
    /// young, or was told to retain less: what isn't there is no part of the history, and no damage.
    retained: HashSet<CommitId>,
}

impl History {
    /// `since`: a commit that was a branch's newest after it, in microseconds of the store's clock, is kept whole.
    pub(super) async fn load(lake: &Lake, pins: &[Listed], since: i64) -> Result<Self> {
        let storage = lake.storage();
        let mut history = Self::default();
        let (mut queue, mut retained): (Vec<Pointer>, Vec<Pointer>) = (Vec::new(), Vec::new());
        // Commits by id, out of the logs: most of the graph without following it commit by commit.
        let mut logged: HashMap<CommitId, Commit> = HashMap::new();
        for branch in storage.folders(names::HEADS).await? {
            let entries = log(storage, &branch).await?;
            let alive = entries.last_key_value().is_some_and(|(_, (entry, _))| entry.kind != RefKind::Delete);
            let mut next: Option<i64> = None;
            for (entry, modified) in entries.into_values().rev() {
                let commit = Commit::decode(&entry.embedded).map_err(Error::object(names::meta(entry.commit.id)))?;
                // It was the newest until the next entry came; the last one still is, or the branch is deleted.
                let until = next.unwrap_or(if alive { i64::MAX } else { modified });
                if until == i64::MAX {
                    history.whole.insert(commit.id);
                    queue.push(entry.commit);
                } else if until >= since {
                    retained.push(entry.commit);
                }
                next = Some(modified);
                logged.insert(commit.id, commit);
            }
        }
        for tag in lake.tags().await? {
            let (id, pointer, commit) = match lake::find(storage, &At::Tag(tag)).await {
                // Deleted meanwhile.
                Err(Error::UnknownTag { .. }) => continue,
                found => found?,
            };
            history.whole.insert(id);
            queue.push(pointer);
            logged.insert(id, commit);
        }
        history.follow(lake, queue, &mut logged, false).await?;
        retained.extend(pins.iter().flat_map(|pin| &pin.pin.commits));
        history.follow(lake, retained.clone(), &mut logged, true).await?;
        let there = retained.iter().map(|pointer| pointer.id.cast()).filter(|id| history.commits.contains_key(id));
        let there: Vec<CommitId> = there.collect();
        history.whole.extend(there);
        Ok(history)
    }

    /// Takes in commits and all that they follow; of those that are only retained, what is there.
    async fn follow(
        &mut self,
        lake: &Lake,
        mut queue: Vec<Pointer>,
        logged: &mut HashMap<CommitId, Commit>,
        retained: bool,
    ) -> Result<()> {
        let (storage, purges) = (lake.storage(), lake.known_purges());
        let mut seen: HashSet<CommitId> = HashSet::new();
        while !queue.is_empty() {
            queue.retain(|pointer| !self.commits.contains_key(&pointer.id.cast()) && seen.insert(pointer.id.cast()));
            let new: Vec<_> = queue.drain(..).map(|pointer| (pointer, logged.remove(&pointer.id.cast()))).collect();
            let mut loaded = stream::iter(new)
                .map(|(pointer, known)| async move {
                    match known {
                        // A log has a copy of a commit that was collected.
                        Some(_) if retained && !exists(storage, &names::meta(pointer.id)).await? => Ok(None),
                        Some(commit) => Ok(Some(commit)),
                        None => match commit::load(storage, &pointer, "the history of a branch, tag or pin").await {
                            Err(Error::Missing { .. }) if retained => Ok(None),
                            commit => commit.map(Some),
                        },
                    }
                })
                .buffer_unordered(CONCURRENCY);
            while let Some(commit) = loaded.try_next().await? {
                let Some(commit) = commit else { continue };
                queue.extend(&commit.parents);
                let known = Known { parents: commit.parents.clone(), contents: Contents::of(&commit, &purges) };
                self.commits.insert(commit.id, known);
                self.order.push(commit.id);
                if retained {
                    self.retained.insert(commit.id);
                }
            }
        }
        Ok(())
    }

    /// The commits with what they name: all that branches and tags lead to, or all that only logs and pins do.
    pub(super) fn commits(&self, retained: bool) -> impl Iterator<Item = (CommitId, &Contents)> {
        let commits = self.order.iter().filter(move |id| self.retained.contains(*id) == retained);
        commits.filter_map(|id| Some((*id, &self.commits.get(id)?.contents)))
    }

    pub(super) fn len(&self) -> usize {
        self.commits.len()
    }

    /// The commits whose tables are not kept: those that were expired before and, if `expire`, all but those that something
    /// leads to directly and those where histories part, which are the bases that anything kept is merged from.
    pub(super) async fn expired(&self, lake: &Lake, expire: bool) -> Result<HashSet<CommitId>> {
        let mut expired = epochs::expired(lake.storage()).await?;
        expired.retain(|commit| self.commits.contains_key(commit));
        if expire {
            let mut children: HashMap<CommitId, u32> = HashMap::new();
            for parent in self.commits.values().flat_map(|commit| &commit.parents) {
                *children.entry(parent.id.cast()).or_default() += 1;
            }
            let base = |id: &CommitId| children.get(id).is_some_and(|children| *children > 1);
            expired.extend(self.commits.keys().filter(|id| !self.whole.contains(*id) && !base(id)));
        }
        Ok(expired)
    }
}

async fn exists(storage: &Storage, path: &str) -> Result<bool> {
    match storage.head(path).await {
        Ok(_) => Ok(true),
        Err(error) if error.is_not_found() => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// A branch's log by number, each entry with the time that it was written, by the store's clock.
async fn log(storage: &Storage, branch: &str) -> Result<BTreeMap<u64, (forebay_format::meta::RefEntry, i64)>> {
    let number = |entry: &Entry| entry.path.rsplit('/').next()?.parse::<u64>().ok();
    let listed = storage.list(&format!("{}/{branch}", names::HEADS)).await?;
    let listed = listed.into_iter().filter_map(|entry| Some((number(&entry)?, micros(entry.modified))));
    let mut entries = stream::iter(listed)
        .map(|(sequence, modified)| async move {
            let path = names::entry(branch, sequence);
            let referrer = "a listing of the branch's log".to_owned();
            let entry = refs::entry(storage, branch, sequence).await?.ok_or(Error::Missing { path, referrer })?;
            Ok::<_, Error>((sequence, (entry, modified)))
        })
        .buffer_unordered(CONCURRENCY);
    let mut log = BTreeMap::new();
    while let Some((sequence, entry)) = entries.try_next().await? {
        log.insert(sequence, entry);
    }
    Ok(log)
}
