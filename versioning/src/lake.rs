//! Lakes: made, opened, branched, tagged.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::{SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
use forebay_format::{
    CommitId, FileId, LakeId, ObjectId,
    meta::{Commit, LakeMarker, Page, Pointer, RefKind, Tag},
};
use forebay_storage::{Claim, Storage};

use crate::{
    DEFAULT_BRANCH, Error, OpenFile, Result, Snapshot, Transaction, commit, graph, names,
    purge::Purges,
    refs::{self, Head, NewEntry},
};

/// Which version of a lake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum At {
    /// The newest commit of a branch.
    Branch(String),
    /// The commit that a tag names.
    Tag(String),
    /// A commit.
    Commit(CommitId),
}

impl Default for At {
    fn default() -> Self {
        Self::Branch(DEFAULT_BRANCH.to_owned())
    }
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Branch(name) => write!(f, "branch '{name}'"),
            Self::Tag(name) => write!(f, "tag '{name}'"),
            Self::Commit(id) => write!(f, "commit {id}"),
        }
    }
}

/// A lake: tables under one commit graph, below a prefix of an object store. Clones share caches.
#[derive(Clone)]
pub struct Lake {
    inner: Arc<Inner>,
}

struct Inner {
    storage: Storage,
    marker: LakeMarker,
    pages: moka::sync::Cache<ObjectId, Arc<Page>>,
    /// Roots of tables as they are stored: a commit's pointer is held against the bytes.
    roots: moka::sync::Cache<ObjectId, Bytes>,
    files: Mutex<HashMap<FileId, Weak<OpenFile>>>,
    purges: Mutex<Arc<Purges>>,
    /// The epoch that purges are known up to.
    known: AtomicU64,
    /// Where links may lead, beside the lake itself.
    links: Mutex<Arc<[Storage]>>,
}

/// Decoded manifest pages kept in memory, in bytes of their encoded form.
const PAGE_CACHE: u64 = 64 << 20;
/// Bytes of roots of tables kept in memory.
const ROOT_CACHE: u64 = 16 << 20;

impl Lake {
    /// Makes a lake at `storage`'s root, with an empty first commit on branch `main`.
    ///
    /// # Errors
    /// [`Error::LakeExists`] if there is one, and what the store reports.
    pub async fn create(storage: Storage) -> Result<Self> {
        let marker = LakeMarker { id: LakeId::random(), created: now(), purges: false };
        // The first commit is written before the marker is claimed: a lake is never seen without its branch.
        let first = Commit {
            id: CommitId::random(),
            parents: Vec::new(),
            generation: 0,
            author: String::new(),
            message: "create lake".to_owned(),
            time: marker.created,
            tables: Vec::new(),
            changes: Vec::new(),
            properties: std::collections::BTreeMap::new(),
        };
        match storage.get(names::MARKER).await {
            Ok(_) => return Err(Error::LakeExists { url: storage.url().to_owned() }),
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error.into()),
        }
        // Commits stand on put-if-absent: a store whose own is none is refused before anything is there.
        storage.probe(&names::meta(CommitId::random())).await?;
        let (pointer, bytes) = commit::write(&storage, &first).await?;
        // A creator that was killed between these two steps left a branch and no marker; its first commit serves as well.
        let entry = NewEntry { kind: RefKind::Create, commit: pointer, embedded: bytes, epoch: 0, purged: 0 };
        match refs::claim(&storage, DEFAULT_BRANCH, 0, entry).await? {
            refs::Outcome::Ours | refs::Outcome::Theirs => {}
        }
        let bytes = Bytes::from(marker.encode()?);
        match storage.claim(names::MARKER, bytes).await? {
            Claim::Ours => Ok(Self::of(storage, marker, Purges::default())),
            Claim::Theirs(_) => Err(Error::LakeExists { url: storage.url().to_owned() }),
            Claim::Unknown(error) => Err(error.into()),
        }
    }

    /// Opens the lake at `storage`'s root.
    ///
    /// # Errors
    /// [`Error::NotALake`] if there is none, [`Error::Object`] if its marker is damaged or of a later version, and what
    /// the store reports.
    pub async fn open(storage: Storage) -> Result<Self> {
        let bytes = match storage.get(names::MARKER).await {
            Ok(bytes) => bytes,
            Err(error) if error.is_not_found() => return Err(Error::NotALake { url: storage.url().to_owned() }),
            Err(error) => return Err(error.into()),
        };
        let marker = LakeMarker::decode(&bytes).map_err(Error::object(names::MARKER))?;
        let purges = if marker.purges { Purges::load(&storage).await? } else { Purges::default() };
        Ok(Self::of(storage, marker, purges))
    }

    /// Opens the lake and a version of it at once: one request latency less than one after the other.
    ///
    /// # Errors
    /// As [`Lake::open`] and [`Lake::snapshot`].
    pub async fn open_at(storage: Storage, at: &At) -> Result<(Self, Snapshot)> {
        if let At::Branch(branch) = at {
            let (lake, head) = futures::join!(Self::open(storage.clone()), head(&storage, branch));
            let (lake, head) = (lake?, head?);
            // Rows may have been erased after the lake was opened and before the log was read.
            lake.know(head.purged).await?;
            let snapshot = head.snapshot(&lake);
            return Ok((lake, snapshot));
        }
        let (lake, found) = futures::join!(Self::open(storage.clone()), find(&storage, at));
        let lake = lake?;
        let (id, pointer, commit) = found?;
        Ok((lake.clone(), Snapshot::new(lake, id, pointer, commit)))
    }

    pub(crate) fn of(storage: Storage, marker: LakeMarker, purges: Purges) -> Self {
        let pages = moka::sync::Cache::builder()
            .max_capacity(PAGE_CACHE)
            .weigher(|_, page: &Arc<Page>| (page.fragments.len() * 256).try_into().unwrap_or(u32::MAX))
            .build();
        Self {
            inner: Arc::new(Inner {
                storage,
                marker,
                pages,
                roots: moka::sync::Cache::builder()
                    .max_capacity(ROOT_CACHE)
                    .weigher(|_, bytes: &Bytes| bytes.len().try_into().unwrap_or(u32::MAX))
                    .build(),
                files: Mutex::default(),
                purges: Mutex::new(Arc::new(purges)),
                known: AtomicU64::new(0),
                links: Mutex::new(Arc::new([])),
            }),
        }
    }

    /// Where it is kept.
    #[must_use]
    pub fn storage(&self) -> &Storage {
        &self.inner.storage
    }

    /// Its identity.
    #[must_use]
    pub fn id(&self) -> LakeId {
        self.inner.marker.id
    }

    /// When it was made, in microseconds since 1970 UTC, by its creator's clock.
    #[must_use]
    pub fn created(&self) -> i64 {
        self.inner.marker.created
    }

    /// Lets links of this handle and its clones lead to objects below these storages, and below no others but the lake's own. A
    /// lake says where its links lead, and so can't be asked where they may.
    pub fn allow_links(&self, places: impl IntoIterator<Item = Storage>) {
        *self.inner.links.lock().unwrap_or_else(PoisonError::into_inner) = places.into_iter().collect();
    }

    pub(crate) fn link_places(&self) -> Arc<[Storage]> {
        self.inner.links.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A version of the lake.
    ///
    /// # Errors
    /// [`Error::UnknownBranch`], [`Error::UnknownTag`] or [`Error::UnknownCommit`]; [`Error::Object`] if an object is
    /// damaged; and what the store reports.
    pub async fn snapshot(&self, at: &At) -> Result<Snapshot> {
        Ok(find_safe(self, at).await?.0)
    }

    /// Starts a transaction on a branch.
    ///
    /// # Errors
    /// As [`Lake::snapshot`] at the branch.
    pub async fn begin(&self, branch: &str) -> Result<Transaction> {
        let head = head(self.storage(), branch).await?;
        self.know(head.purged).await?;
        Ok(Transaction::new(self.clone(), head.clone(), head))
    }

    /// Starts a transaction on a branch whose changes are about an older commit of it: what others did since is merged
    /// with them.
    ///
    /// # Errors
    /// As [`begin`](Self::begin); [`Error::Misuse`] if the branch doesn't follow that commit.
    pub async fn begin_at(&self, branch: &str, base: &Snapshot) -> Result<Transaction> {
        let head = head(self.storage(), branch).await?;
        self.know(head.purged).await?;
        if head.commit.id != base.id() && !graph::is_ancestor(self, base.commit(), &head.commit).await? {
            let reason =
                format!("branch '{branch}' doesn't follow commit {}: it was reset or is another one", base.id());
            return Err(Error::Misuse { reason });
        }
        let base = Head { pointer: base.pointer(), commit: base.commit().clone(), ..head.clone() };
        Ok(Transaction::new(self.clone(), base, head))
    }

    /// Makes a branch at a version. Writes one small object, whatever the lake's size.
    ///
    /// # Errors
    /// [`Error::BranchExists`], [`Error::InvalidName`], and as [`Lake::snapshot`] at `from`.
    pub async fn create_branch(&self, name: &str, from: &At) -> Result<()> {
        names::check("branch", name)?;
        if names::is_scratch(name) {
            let reason = "branches of such names belong to transactions";
            return Err(Error::InvalidName { what: "branch", name: name.to_owned(), reason });
        }
        let (snapshot, pin) = self.protect(from).await?;
        let made = self.point_new(name, &snapshot, pin.epoch()).await?;
        pin.release().await;
        if made { Ok(()) } else { Err(Error::BranchExists { name: name.to_owned() }) }
    }

    /// Begins the log of a branch, or goes on with a deleted one's; gives whether it could.
    pub(crate) async fn point_new(&self, name: &str, at: &Snapshot, epoch: u64) -> Result<bool> {
        let (commit, embedded) = (at.pointer(), at.embedded().await?);
        let entry = NewEntry { kind: RefKind::Create, commit, embedded, epoch, purged: self.purged() };
        let mut made = refs::claim(self.storage(), name, 0, entry.clone()).await? == refs::Outcome::Ours;
        if !made
            && let Some(head) = refs::head(self.storage(), name).await?
            && head.kind == RefKind::Delete
        {
            // The log of a deleted branch goes on.
            let (epoch, purged) = (entry.epoch.max(head.epoch), entry.purged.max(head.purged));
            let entry = NewEntry { epoch, purged, ..entry };
            made = refs::claim(self.storage(), name, head.sequence + 1, entry).await? == refs::Outcome::Ours;
        }
        Ok(made)
    }

    /// Names a version for good.
    ///
    /// # Errors
    /// [`Error::TagExists`], [`Error::InvalidName`], and as [`Lake::snapshot`] at `from`.
    pub async fn create_tag(&self, name: &str, from: &At, author: &str) -> Result<()> {
        names::check("tag", name)?;
        let (snapshot, pin) = self.protect(from).await?;
        let tag = Tag {
            commit: snapshot.pointer(),
            embedded: snapshot.embedded().await?,
            author: author.to_owned(),
            time: now(),
        };
        let claimed = self.storage().claim(&names::tag(name), tag.encode()?.into()).await?;
        pin.release().await;
        match claimed {
            Claim::Ours => Ok(()),
            Claim::Theirs(_) => Err(Error::TagExists { name: name.to_owned() }),
            Claim::Unknown(error) => Err(error.into()),
        }
    }

    /// The names of its branches, sorted, but for those of transactions under way.
    ///
    /// # Errors
    /// What the store reports.
    pub async fn branches(&self) -> Result<Vec<String>> {
        refs::branches(self.storage()).await
    }

    /// The names of its tags, sorted.
    ///
    /// # Errors
    /// What the store reports.
    pub async fn tags(&self) -> Result<Vec<String>> {
        refs::tags(self.storage()).await
    }

    /// The newest `limit` commits that a version follows, newest first, along first parents.
    ///
    /// # Errors
    /// As [`Lake::snapshot`].
    pub async fn log(&self, at: &At, limit: usize) -> Result<Vec<Commit>> {
        commit::log(self.storage(), at, limit).await
    }

    /// The purges that this handle knows of.
    pub(crate) fn known_purges(&self) -> Arc<Purges> {
        self.inner.purges.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Looks for purges again if a branch, or a pin, was met that knows of an epoch that this handle doesn't.
    pub(crate) async fn know(&self, epoch: u64) -> Result<()> {
        if epoch > self.inner.known.load(Ordering::Acquire) {
            self.reload_purges().await?;
            self.inner.known.fetch_max(epoch, Ordering::AcqRel);
        }
        Ok(())
    }

    /// What an entry says whose commit this handle made: purges up to this epoch must be known.
    pub(crate) fn purged(&self) -> u64 {
        if self.known_purges().records().is_empty() { 0 } else { self.inner.known.load(Ordering::Acquire) }
    }

    pub(crate) async fn reload_purges(&self) -> Result<Arc<Purges>> {
        let purges = Arc::new(Purges::load(self.storage()).await?);
        *self.inner.purges.lock().unwrap_or_else(PoisonError::into_inner) = purges.clone();
        Ok(purges)
    }

    pub(crate) async fn page(&self, pointer: &Pointer, referrer: &str) -> Result<Arc<Page>> {
        if let Some(page) = self.inner.pages.get(&pointer.id) {
            return Ok(page);
        }
        let bytes = commit::fetch(self.storage(), pointer, referrer).await?;
        let page = Arc::new(Page::decode(&bytes).map_err(Error::object(names::meta(pointer.id)))?);
        self.inner.pages.insert(pointer.id, page.clone());
        Ok(page)
    }

    /// The bytes of a table's root that is an object.
    pub(crate) async fn root(&self, pointer: &Pointer, referrer: &str) -> Result<Bytes> {
        if let Some(bytes) = self.inner.roots.get(&pointer.id)
            && pointer.check(&bytes).is_ok()
        {
            return Ok(bytes);
        }
        let bytes = commit::fetch(self.storage(), pointer, referrer).await?;
        self.inner.roots.insert(pointer.id, bytes.clone());
        Ok(bytes)
    }

    /// Takes in roots that were fetched before it was known whether they are needed.
    pub(crate) fn keep_roots(&self, roots: &[(ObjectId, Bytes)]) {
        for (id, bytes) in roots {
            self.inner.roots.insert(*id, bytes.clone());
        }
    }

    /// An open file that is still in use by someone.
    pub(crate) fn opened(&self, id: FileId) -> Option<Arc<OpenFile>> {
        self.inner.files.lock().unwrap_or_else(PoisonError::into_inner).get(&id)?.upgrade()
    }

    /// Remembers an open file; if another thread opened it meanwhile, theirs wins, so that what is verified stays shared.
    pub(crate) fn remember(&self, id: FileId, file: OpenFile) -> Arc<OpenFile> {
        let mut files = self.inner.files.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = files.get(&id).and_then(Weak::upgrade) {
            return file;
        }
        if files.len().is_power_of_two() {
            files.retain(|_, file| file.strong_count() > 0);
        }
        let file = Arc::new(file);
        files.insert(id, Arc::downgrade(&file));
        file
    }
}

impl fmt::Debug for Lake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lake").field("url", &self.storage().url()).field("id", &self.id()).finish()
    }
}

pub(crate) async fn head(storage: &Storage, branch: &str) -> Result<Head> {
    names::check("branch", branch)?;
    match refs::head(storage, branch).await? {
        Some(head) => head.alive(storage).await,
        None => Err(refs::unknown(storage, branch).await?),
    }
}

/// A version, and the newest collection that can't take it.
pub(crate) async fn find_safe(lake: &Lake, at: &At) -> Result<(Snapshot, u64)> {
    if let At::Branch(name) = at {
        let head = head(lake.storage(), name).await?;
        lake.know(head.purged).await?;
        return Ok((head.snapshot(lake), head.epoch));
    }
    let (id, pointer, commit) = find(lake.storage(), at).await?;
    Ok((Snapshot::new(lake.clone(), id, pointer, commit), 0))
}

pub(crate) async fn find(storage: &Storage, at: &At) -> Result<(CommitId, Pointer, Commit)> {
    match at {
        At::Branch(name) => {
            let head = head(storage, name).await?;
            Ok((head.commit.id, head.pointer, head.commit))
        }
        At::Tag(name) => {
            names::check("tag", name)?;
            let path = names::tag(name);
            let gone = names::deleted_tag(name);
            let (found, deleted) = futures::join!(storage.get(&path), storage.get(&gone));
            let deleted = match deleted {
                Ok(_) => true,
                Err(error) if error.is_not_found() => false,
                Err(error) => return Err(error.into()),
            };
            let bytes = match found {
                Ok(bytes) if !deleted => bytes,
                Err(error) if !error.is_not_found() => return Err(error.into()),
                _ => {
                    return Err(Error::UnknownTag {
                        url: storage.url().to_owned(),
                        name: name.clone(),
                        known: refs::tags(storage).await?,
                    });
                }
            };
            let tag = Tag::decode(&bytes).map_err(Error::object(&path))?;
            let commit = Commit::decode(&tag.embedded).map_err(Error::object(&path))?;
            Ok((commit.id, tag.commit, commit))
        }
        At::Commit(id) => {
            let path = names::meta(*id);
            let bytes = match storage.get(&path).await {
                Ok(bytes) => bytes,
                Err(error) if error.is_not_found() => {
                    return Err(Error::UnknownCommit { url: storage.url().to_owned(), id: *id });
                }
                Err(error) => return Err(error.into()),
            };
            let commit = Commit::decode(&bytes).map_err(Error::object(&path))?;
            if commit.id != *id {
                return Err(Error::Inconsistent { path, reason: format!("it holds commit {}", commit.id) });
            }
            Ok((*id, Pointer::to(id.cast(), &bytes), commit))
        }
    }
}

/// Microseconds since 1970 UTC by this machine's clock; a clock before that gives 0.
pub(crate) fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_micros().try_into().unwrap_or(i64::MAX)
}
