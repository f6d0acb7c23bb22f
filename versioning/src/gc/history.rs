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
    fn of(commit: &Commit) -> Self {
        let mut contents = Self::default();
        for table in &commit.tables {
            match &table.root {
                RootRef::Inline(root) => contents.add_root(root),
                RootRef::Object(pointer) => contents.roots.push(*pointer),
            }
        }
        contents
    }

    pub(super) fn add_root(&mut self, root: &TableRoot) {
        self.paths.extend(root.defaults.iter().map(|file| names::data(file.id)));
        for page in &root.pages {
            match &page.page {
                PageLocation::Inline(page) => self.add_fragments(&page.fragments),
                PageLocation::Object(pointer) => self.pages.push(*pointer),
            }
        }
    }

    pub(super) fn add_fragments(&mut self, fragments: &[Fragment]) {
        for fragment in fragments {
            self.paths.extend(fragment.all_files().map(|file| names::data(file.id)));
            self.paths.extend(fragment.origins.map(|origins| names::meta(origins.id)));
        }
    }
}

pub(super) struct Known {
    parents: Vec<Pointer>,
    pub(super) contents: Contents,
}

/// The commits, and those among them that are kept whole for what leads to them directly.
pub(super) struct History {
    pub(super) commits: HashMap<CommitId, Known>,
    whole: HashSet<CommitId>,
}

impl History {
    /// `since`: a commit that was a branch's newest after it, in microseconds of the store's clock, is kept whole.
    pub(super) async fn load(lake: &Lake, pins: &[Listed], since: i64) -> Result<Self> {
        let storage = lake.storage();
        let mut history = Self { commits: HashMap::new(), whole: HashSet::new() };
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
        history.follow(lake, queue, &mut logged).await?;
        // What an earlier collection took is gone: a pin whose holder came too late, and was told so, or an entry of a log that
        // was not to be retained then.
        retained.extend(pins.iter().flat_map(|pin| &pin.pin.commits));
        let mut queue = Vec::new();
        for pointer in retained {
            let known = history.commits.contains_key(&pointer.id.cast());
            if known || exists(storage, &names::meta(pointer.id)).await? {
                history.whole.insert(pointer.id.cast());
                queue.push(pointer);
            }
        }
        history.follow(lake, queue, &mut logged).await?;
        Ok(history)
    }

    /// Takes in commits and all that they follow.
    async fn follow(
        &mut self,
        lake: &Lake,
        mut queue: Vec<Pointer>,
        logged: &mut HashMap<CommitId, Commit>,
    ) -> Result<()> {
        while !queue.is_empty() {
            let wave: HashMap<CommitId, Pointer> =
                queue.drain(..).map(|pointer| (pointer.id.cast(), pointer)).collect();
            let new = wave.into_iter().filter(|(id, _)| !self.commits.contains_key(id));
            let new: Vec<_> = new.map(|(id, pointer)| (pointer, logged.remove(&id))).collect();
            let mut loaded = stream::iter(new)
                .map(|(pointer, known)| async move {
                    match known {
                        Some(commit) => Ok(commit),
                        None => commit::load(lake.storage(), &pointer, "the history of a branch, tag or pin").await,
                    }
                })
                .buffer_unordered(CONCURRENCY);
            while let Some(commit) = loaded.try_next().await? {
                queue.extend(&commit.parents);
                let known = Known { parents: commit.parents.clone(), contents: Contents::of(&commit) };
                self.commits.insert(commit.id, known);
            }
        }
        Ok(())
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
