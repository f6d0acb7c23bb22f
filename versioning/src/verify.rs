//! Reading every byte that a version reaches.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    ops::RangeInclusive,
};

use forebay_format::{
    CommitId, ObjectId,
    meta::{
        Commit, DataFileRef, Fragment, LakeMarker, Origins, Overlay, PageLocation, Pointer, RefEntry, RootRef, Tag,
    },
};
use forebay_storage::Storage;
use futures::{StreamExt as _, stream};

use crate::{At, Error, Lake, Result, commit, epochs, lake, names, refs, scrub};

/// Entries of a log read at once.
const CONCURRENCY: usize = 32;

/// A place in a lake that is not as it must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The object.
    pub path: String,
    /// What is wrong, and where in the object.
    pub reason: String,
}

/// What [`Lake::verify`] read, and what it found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verification {
    /// Commits, with all their history.
    pub commits: u64,
    /// Data files.
    pub files: u64,
    /// All objects.
    pub objects: u64,
    /// Bytes of all objects.
    pub bytes: u64,
    /// Bytes that there are to read, known once the metadata is read.
    pub total: u64,
    /// What is wrong; empty when all is well.
    pub faults: Vec<Fault>,
}

impl Lake {
    /// Reads every byte of every object that a version reaches, its whole history with it, and checks it: checksums,
    /// hashes, lengths, counts, padding. Calls `progress` now and then.
    ///
    /// # Errors
    /// As [`Lake::snapshot`] at `at`, where the version isn't there or the store fails; what is wrong with the lake is in
    /// [`Verification::faults`].
    pub async fn verify(&self, at: &At, progress: impl FnMut(&Verification)) -> Result<Verification> {
        self.verify_all(std::slice::from_ref(at), progress).await
    }

    /// As [`verify`](Self::verify), for several versions: what they share is read once.
    ///
    /// # Errors
    /// As [`verify`](Self::verify).
    pub async fn verify_all(&self, versions: &[At], mut progress: impl FnMut(&Verification)) -> Result<Verification> {
        let mut walk = Walk::begin(self).await?;
        for at in versions {
            walk.version(at, &mut progress).await?;
        }
        Ok(walk.finish(progress).await?.1)
    }
}

impl Verification {
    /// Records an error that says something about the lake; passes on one that says something about the store.
    fn fault(&mut self, path: &str, error: Error) -> Result<()> {
        let reason = match error {
            Error::Object { source, .. } => source.to_string(),
            Error::Missing { referrer, .. } => format!("missing, though {referrer} points at it"),
            Error::Inconsistent { reason, .. } => reason,
            Error::Storage(error) if error.is_not_found() => "missing".to_owned(),
            other => return Err(other),
        };
        self.faults.push(Fault { path: path.to_owned(), reason });
        Ok(())
    }

    /// As [`fault`](Self::fault), for an error that names its object itself.
    fn damaged(&mut self, error: Error) -> Result<()> {
        match &error {
            Error::Object { path, .. } | Error::Missing { path, .. } | Error::Inconsistent { path, .. } => {
                let path = path.clone();
                self.fault(&path, error)
            }
            _ => Err(error),
        }
    }

    fn read(&mut self, bytes: usize) {
        self.objects += 1;
        self.bytes += bytes as u64;
    }
}

/// A walk over versions.
pub(crate) struct Walk<'a> {
    lake: &'a Lake,
    found: Verification,
    /// Commits whose tables were collected.
    pub(crate) expired: HashSet<CommitId>,
    /// Commits whose objects are missing or damaged.
    pub(crate) lost: HashSet<CommitId>,
    /// Entries of logs by the commits that they embed: a second copy of each.
    embedded: HashMap<CommitId, (String, u64)>,
    seen: HashSet<ObjectId>,
    /// Data files by path, with the rows that their fragments claim.
    files: BTreeMap<String, (DataFileRef, RangeInclusive<u32>)>,
}

/// The log of a branch, as far as it can be read.
pub(crate) struct Log {
    /// Its newest entry.
    pub(crate) newest: Option<RefEntry>,
    /// How many entries are missing or damaged.
    pub(crate) lost: u64,
}

impl<'a> Walk<'a> {
    pub(crate) async fn begin(lake: &'a Lake) -> Result<Self> {
        // What another handle erased meanwhile is not missing.
        lake.reload_purges().await?;
        let mut walk = Self {
            lake,
            found: Verification::default(),
            expired: epochs::expired(lake.storage()).await?,
            lost: HashSet::new(),
            embedded: HashMap::new(),
            seen: HashSet::new(),
            files: BTreeMap::new(),
        };
        walk.marker().await?;
        Ok(walk)
    }

    /// Looks at a version, its whole history with it, but for the data files.
    pub(crate) async fn version(&mut self, at: &At, progress: &mut impl FnMut(&Verification)) -> Result<()> {
        let found = lake::find(self.storage(), at).await;
        let pointer = match (at, found) {
            // The log says what is wrong.
            (At::Branch(branch), Ok(_) | Err(Error::Object { .. })) => {
                self.log(branch).await?.newest.map(|entry| entry.commit)
            }
            (_, Err(error)) => return self.found.damaged(error),
            (At::Tag(name), Ok((_, pointer, _))) => {
                self.tag(name).await?;
                Some(pointer)
            }
            (At::Commit(_), Ok((_, pointer, _))) => Some(pointer),
        };
        match pointer {
            Some(pointer) => self.history(pointer, progress).await,
            None => Ok(()),
        }
    }

    /// Reads all data files that were found.
    pub(crate) async fn finish(mut self, mut progress: impl FnMut(&Verification)) -> Result<(Self, Verification)> {
        let (lake, files) = (self.lake, std::mem::take(&mut self.files));
        let mut found = std::mem::take(&mut self.found);
        found.total = found.bytes + files.values().map(|(file, _)| file.size).sum::<u64>();
        for (file, rows) in files.values() {
            let path = names::data(file.id);
            let scrubbed = scrub::file(lake.storage(), file, rows, |bytes| {
                found.bytes += bytes;
                progress(&found);
            })
            .await;
            match scrubbed {
                Ok(faults) => found.faults.extend(faults),
                Err(error) => found.fault(&path, error)?,
            }
            found.files += 1;
            found.objects += 1;
        }
        progress(&found);
        Ok((self, found))
    }

    fn storage(&self) -> &'a Storage {
        self.lake.storage()
    }

    async fn marker(&mut self) -> Result<()> {
        let bytes = self.storage().get(names::MARKER).await?;
        self.found.read(bytes.len());
        match LakeMarker::decode(&bytes) {
            Ok(marker) if marker.id == self.lake.id() => Ok(()),
            Ok(marker) => {
                let reason = format!("it is of lake {}, opened as {}", marker.id, self.lake.id());
                self.found.fault(names::MARKER, Error::Inconsistent { path: names::MARKER.to_owned(), reason })
            }
            Err(error) => self.found.fault(names::MARKER, Error::object(names::MARKER)(error)),
        }
    }

    async fn tag(&mut self, name: &str) -> Result<()> {
        let path = names::tag(name);
        let bytes = self.storage().get(&path).await?;
        self.found.read(bytes.len());
        match Tag::decode(&bytes) {
            Ok(_) => Ok(()),
            Err(error) => self.found.fault(&path, Error::object(&path)(error)),
        }
    }

    /// Every entry of a branch's log, from the last.
    pub(crate) async fn log(&mut self, branch: &str) -> Result<Log> {
        let storage = self.storage();
        let mut log = Log { newest: None, lost: 0 };
        let Some(end) = end(storage, branch).await? else { return Ok(log) };
        let mut entries = stream::iter((0..=end).rev())
            .map(|sequence| async move { (sequence, refs::entry(storage, branch, sequence).await) })
            .buffered(CONCURRENCY);
        while let Some((sequence, entry)) = entries.next().await {
            let path = names::entry(branch, sequence);
            match entry {
                Ok(Some(entry)) => {
                    self.found.read(entry.encode()?.len());
                    self.embedded.insert(entry.commit.id.cast(), (branch.to_owned(), sequence));
                    log.newest.get_or_insert(entry);
                    continue;
                }
                Ok(None) => {
                    let referrer = "a later entry of the log".to_owned();
                    self.found.fault(&path, Error::Missing { path: path.clone(), referrer })?;
                }
                Err(error) => self.found.fault(&path, error)?,
            }
            log.lost += 1;
        }
        Ok(log)
    }

    /// A commit: its object, or the copy of it in a log.
    pub(crate) async fn commit(&self, pointer: &Pointer, referrer: &str) -> Result<Commit> {
        let read = match commit::load(self.storage(), pointer, referrer).await {
            Err(error) => error,
            commit => return commit,
        };
        let Some((branch, sequence)) = self.embedded.get(&pointer.id.cast()) else { return Err(read) };
        let copy = refs::entry(self.storage(), branch, *sequence).await.ok().flatten();
        copy.and_then(|entry| Commit::decode(&entry.embedded).ok()).ok_or(read)
    }

    /// A commit and all that it follows.
    pub(crate) async fn history(&mut self, head: Pointer, progress: &mut impl FnMut(&Verification)) -> Result<()> {
        let mut queue = vec![(head, "a branch, tag or caller".to_owned())];
        while let Some((pointer, referrer)) = queue.pop() {
            if !self.seen.insert(pointer.id) {
                continue;
            }
            let commit = match self.object(&pointer, &referrer, Commit::decode).await? {
                Some(commit) => commit,
                None => {
                    self.lost.insert(pointer.id.cast());
                    // What it led to is looked at all the same, if a log has a copy of it.
                    let Ok(commit) = self.commit(&pointer, &referrer).await else { continue };
                    commit
                }
            };
            self.found.commits += 1;
            progress(&self.found);
            if !self.expired.contains(&commit.id) {
                self.tables(&commit).await?;
            }
            queue.extend(commit.parents.iter().map(|parent| (*parent, format!("commit {}", commit.id))));
        }
        Ok(())
    }

    async fn tables(&mut self, commit: &Commit) -> Result<()> {
        for table in &commit.tables {
            let referrer = format!("table '{}' of commit {}", table.name, commit.id);
            let (root, path) = match &table.root {
                RootRef::Inline(root) => (root.clone(), names::meta(commit.id)),
                RootRef::Object(pointer) => {
                    let path = names::meta(pointer.id);
                    if !self.seen.insert(pointer.id) {
                        continue;
                    }
                    match self.object(pointer, &referrer, forebay_format::meta::TableRoot::decode).await? {
                        Some(root) => (root, path),
                        None => continue,
                    }
                }
            };
            let rows: u64 = root.pages.iter().map(|page| page.rows).sum();
            if rows != table.rows {
                let reason = format!("{referrer}: its pages have {rows} rows, the commit says {}", table.rows);
                self.found.fault(&path, Error::Inconsistent { path: path.clone(), reason })?;
            }
            for file in &root.defaults {
                self.files.insert(names::data(file.id), (file.clone(), 1..=1));
            }
            for page in &root.pages {
                let (fragments, path) = match &page.page {
                    PageLocation::Inline(page) => (page.fragments.clone(), path.clone()),
                    PageLocation::Object(pointer) => {
                        if !self.seen.insert(pointer.id) {
                            continue;
                        }
                        match self.object(pointer, &referrer, forebay_format::meta::Page::decode).await? {
                            Some(page) => (page.fragments, names::meta(pointer.id)),
                            None => continue,
                        }
                    }
                };
                let found = fragments.iter().map(|fragment| u64::from(fragment.live())).sum::<u64>();
                if (fragments.len(), found) != (page.fragments as usize, page.rows) {
                    let reason = format!("it has {found} rows, its reference says {}", page.rows);
                    self.found.fault(&path, Error::Inconsistent { path: path.clone(), reason })?;
                }
                for fragment in self.lake.known_purges().applied(&fragments) {
                    for file in &fragment.files {
                        self.files.insert(names::data(file.id), (file.clone(), fragment.rows..=fragment.rows));
                    }
                    for Overlay { file, rows, first } in &fragment.overlays {
                        let known = self.files.entry(names::data(file.id)).or_insert((file.clone(), 0..=u32::MAX));
                        known.1 = (first + rows.len()).max(*known.1.start())..=*known.1.end();
                    }
                    if let Some(pointer) = &fragment.origins
                        && self.seen.insert(pointer.id)
                    {
                        self.origins(pointer, &fragment).await?;
                    }
                }
            }
        }
        Ok(())
    }

    async fn origins(&mut self, pointer: &Pointer, fragment: &Fragment) -> Result<()> {
        let referrer = format!("fragment {}", fragment.id);
        let Some(origins) = self.object(pointer, &referrer, Origins::decode).await? else { return Ok(()) };
        let rows: u64 = origins.origins.iter().map(|origin| u64::from(origin.rows.len())).sum();
        if rows != u64::from(fragment.rows) {
            let path = names::meta(pointer.id);
            let reason = format!("it has {rows} rows, {referrer} has {}", fragment.rows);
            self.found.fault(&path, Error::Inconsistent { path: path.clone(), reason })?;
        }
        Ok(())
    }

    /// The object that a pointer names, or `None` and a fault.
    async fn object<T>(
        &mut self,
        pointer: &Pointer,
        referrer: &str,
        decode: impl FnOnce(&[u8]) -> forebay_format::Result<T>,
    ) -> Result<Option<T>> {
        let path = names::meta(pointer.id);
        let decoded = match commit::fetch(self.storage(), pointer, referrer).await {
            Ok(bytes) => {
                self.found.read(bytes.len());
                decode(&bytes).map_err(Error::object(&path))
            }
            Err(error) => Err(error),
        };
        match decoded {
            Ok(object) => Ok(Some(object)),
            Err(error) => self.found.fault(&path, error).map(|()| None),
        }
    }
}

/// The number of a branch's last entry, which may be damaged.
async fn end(storage: &Storage, branch: &str) -> Result<Option<u64>> {
    match refs::head(storage, branch).await {
        Ok(head) => Ok(head.map(|head| head.sequence)),
        Err(Error::Object { .. }) => {
            let listed = storage.list(&format!("{}/{branch}", names::HEADS)).await?;
            Ok(listed.iter().filter_map(|entry| entry.path.rsplit('/').next()?.parse().ok()).max())
        }
        Err(error) => Err(error),
    }
}
