//! Copies between lakes: commits, and of what they lead to the objects that the other lake lacks.
//!
//! Objects keep their names, so whatever the target has needs no copy, and a copy that was cut goes on where it was. Data
//! goes first, then what points to it, commits last and parents before children: a commit that is there is whole. Only then
//! is a branch of the target moved, and only forwards.

use std::collections::{BTreeMap, HashMap, HashSet};

use bytes::Bytes;
use forebay_format::{
    CommitId, FileIndex, ObjectId,
    meta::{Commit, DataFileRef, Fragment, LakeMarker, Page, PageLocation, Pointer, RefKind, RootRef, TableRoot, Tag},
};
use forebay_storage::{Claim, Storage};
use futures::{StreamExt as _, TryStreamExt as _, stream};

use crate::{
    At, Error, Lake, Pin, Result, Snapshot, commit, epochs,
    lake::now,
    names,
    pause::pause,
    pin,
    purge::Purges,
    refs::{self, Head, NewEntry, Outcome},
};

/// What a copy did, or has done so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CopyReport {
    /// Commits that the target lacked.
    pub commits: u64,
    /// Objects copied.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Objects that there are to copy, known once the commits are read.
    pub total_objects: u64,
    /// Their bytes.
    pub total_bytes: u64,
}

/// Requests in flight.
const CONCURRENCY: usize = 32;
/// Data files that are copied at once.
const FILES: usize = 4;
/// How often a branch that others move meanwhile is looked at again.
const ATTEMPTS: u32 = 20;

impl Lake {
    /// Copies a branch's commits, and what they lead to, into another lake, and moves its branch `into` there; makes that if
    /// need be. Copies what `target` lacks and nothing else. May be stopped at any point and run again.
    ///
    /// # Errors
    /// [`Error::NotFastForward`] if the branch there has commits that this one lacks; [`Error::Collecting`]; and as
    /// [`Lake::snapshot`].
    pub async fn push(
        &self,
        branch: &str,
        target: &Self,
        into: &str,
        progress: impl FnMut(&CopyReport),
    ) -> Result<(Snapshot, CopyReport)> {
        names::check("branch", into)?;
        let snapshot = self.snapshot(&At::Branch(branch.to_owned())).await?;
        // A lake that can only be read can't be pinned: the retention protects what is copied.
        let ours = pinned(self, vec![&snapshot]).await?;
        // Found out before anything is copied, and again when the branch is moved.
        self.forwards(&snapshot, target, into).await?;
        let theirs = hold(target).await?;
        self.copy_purges(target.storage()).await?;
        if !self.known_purges().records().is_empty() {
            target.announce_purges().await?;
            target.reload_purges().await?;
        }
        let report = self.copy(&[&snapshot], target.storage(), progress).await?;
        self.advance(&snapshot, target, into, theirs.epoch()).await?;
        theirs.release().await;
        // What came may hold rows that were erased there, and records that came may replace files there.
        if report.objects > 0 && !target.known_purges().records().is_empty() || target.has_replaced().await? {
            target.finish_purges(|_| {}).await?;
        }
        if let Some(pin) = ours {
            pin.release().await;
        }
        Ok((Snapshot::new(target.clone(), snapshot.id(), snapshot.pointer(), snapshot.commit().clone()), report))
    }

    /// Makes a lake with all branches and tags of this one. May be stopped at any point and run again.
    ///
    /// # Errors
    /// [`Error::LakeExists`] if there is a lake at `target` already: [`push`](Self::push) to it; and as [`Lake::snapshot`].
    pub async fn clone_to(&self, target: Storage, progress: impl FnMut(&CopyReport)) -> Result<(Self, CopyReport)> {
        match target.get(names::MARKER).await {
            Ok(_) => return Err(Error::LakeExists { url: target.url().to_owned() }),
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error.into()),
        }
        let marker = LakeMarker { id: forebay_format::LakeId::random(), created: now(), purges: false };
        let lake = Self::of(target.clone(), marker.clone(), Purges::default());
        let (mut branches, mut tags) = (Vec::new(), Vec::new());
        for name in self.branches().await? {
            branches.push((self.snapshot(&At::Branch(name.clone())).await?, name));
        }
        for name in self.tags().await? {
            tags.push((self.snapshot(&At::Tag(name.clone())).await?, name));
        }
        let all: Vec<&Snapshot> = branches.iter().chain(&tags).map(|(snapshot, _)| snapshot).collect();
        let pin = pinned(self, all.clone()).await?;
        let report = self.copy(&all, &target, progress).await?;
        self.copy_purges(&target).await?;
        lake.reload_purges().await?;
        for (snapshot, name) in &branches {
            self.advance(snapshot, &lake, name, 0).await?;
        }
        for (snapshot, name) in &tags {
            let (commit, embedded) = (snapshot.pointer(), snapshot.embedded().await?);
            let tag = Tag { commit, embedded, author: String::new(), time: now() };
            match target.claim(&names::tag(name), tag.encode()?.into()).await? {
                // Theirs is of an earlier try: a tag never moves.
                Claim::Ours | Claim::Theirs(_) => {}
                Claim::Unknown(error) => return Err(error.into()),
            }
        }
        if let Some(pin) = pin {
            pin.release().await;
        }
        let marker = LakeMarker { purges: !lake.known_purges().records().is_empty(), ..marker };
        match target.claim(names::MARKER, Bytes::from(marker.encode()?)).await? {
            Claim::Ours => Ok((lake, report)),
            Claim::Theirs(_) => Err(Error::LakeExists { url: target.url().to_owned() }),
            Claim::Unknown(error) => Err(error.into()),
        }
    }

    /// The end of the branch `into` of another lake, if it is there, which a version of this one must follow.
    async fn forwards(&self, snapshot: &Snapshot, target: &Self, into: &str) -> Result<Option<Head>> {
        let Some(head) = refs::head(target.storage(), into).await? else { return Ok(None) };
        if head.kind == RefKind::Delete || self.follows(snapshot, &head.commit).await? {
            return Ok(Some(head));
        }
        Err(Error::NotFastForward {
            url: target.storage().url().to_owned(),
            branch: into.to_owned(),
            theirs: head.commit.id,
            ours: snapshot.id(),
        })
    }

    /// Whether a version of this lake is `ancestor`, which this lake may not have, or follows it.
    async fn follows(&self, snapshot: &Snapshot, ancestor: &Commit) -> Result<bool> {
        let mut queue = vec![(snapshot.pointer(), snapshot.commit().clone())];
        let mut seen = HashSet::new();
        while let Some((_, commit)) = queue.pop() {
            if commit.id == ancestor.id {
                return Ok(true);
            }
            if commit.generation <= ancestor.generation {
                continue;
            }
            for pointer in commit.parents.iter().filter(|pointer| seen.insert(pointer.id)) {
                let parent = commit::load(self.storage(), pointer, &format!("commit {}", commit.id)).await?;
                queue.push((*pointer, parent));
            }
        }
        Ok(false)
    }

    /// Moves a branch of another lake, which has the objects by now.
    async fn advance(&self, to: &Snapshot, target: &Self, into: &str, epoch: u64) -> Result<()> {
        for attempt in 1..=ATTEMPTS {
            let head = self.forwards(to, target, into).await?;
            let (sequence, kind, known) = match &head {
                None => (0, RefKind::Create, 0),
                Some(head) if head.kind == RefKind::Delete => (head.sequence + 1, RefKind::Create, head.epoch),
                Some(head) if head.commit.id == to.id() => return Ok(()),
                Some(head) => (head.sequence + 1, RefKind::Commit, head.epoch),
            };
            let (commit, embedded) = (to.pointer(), to.embedded().await?);
            let purged = head.as_ref().map_or(0, |head| head.purged).max(target.purged());
            let entry = NewEntry { kind, commit, embedded, epoch: epoch.max(known), purged };
            if refs::claim(target.storage(), into, sequence, entry).await? == Outcome::Ours {
                refs::leave_hint(target.storage(), into, sequence, to.commit()).await;
                return Ok(());
            }
            pause(attempt.min(6)).await;
        }
        Err(Error::Contention { branch: into.to_owned(), attempts: ATTEMPTS })
    }

    /// Copies the records of purges, and the files that take the place of others there: nobody must see rows that were erased.
    async fn copy_purges(&self, target: &Storage) -> Result<()> {
        let ours = self.reload_purges().await?;
        let mut there = Purges::load(target).await?;
        for purge in ours.records() {
            for (old, _) in &purge.files {
                if let Some(new) = ours.file(*old)
                    && exists(target, &names::data(*old)).await?
                    && !exists(target, &names::data(new.id)).await?
                {
                    copy_file(self.storage().clone(), target.clone(), new.clone()).await?;
                }
            }
            while !there.records().iter().any(|known| known.id == purge.id) {
                match target.claim(&names::purge(there.next()), Bytes::from(purge.encode()?)).await? {
                    Claim::Ours | Claim::Theirs(_) => there = Purges::load(target).await?,
                    Claim::Unknown(error) => return Err(error.into()),
                }
            }
        }
        Ok(())
    }

    /// Whether a file is still there that another took the place of.
    async fn has_replaced(&self) -> Result<bool> {
        for (old, _) in self.known_purges().records().iter().flat_map(|purge| &purge.files) {
            if exists(self.storage(), &names::data(*old)).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Copies what versions lead to and the target lacks.
    async fn copy(
        &self,
        versions: &[&Snapshot],
        target: &Storage,
        mut progress: impl FnMut(&CopyReport),
    ) -> Result<CopyReport> {
        let source = self.storage();
        let missing = Missing::find(self, versions, target).await?;
        let mut report = CopyReport { commits: missing.commits.len() as u64, ..CopyReport::default() };
        report.total_objects = (missing.commits.len() + missing.metas.len() + missing.files.len()) as u64;
        report.total_bytes = missing.files.iter().map(|file| file.size).sum::<u64>()
            + missing.metas.iter().chain(missing.commits.values()).map(|meta| u64::from(meta.length)).sum::<u64>();
        progress(&report);
        let mut files = stream::iter(&missing.files)
            .map(
                |file| async move { copy_file(source.clone(), target.clone(), file.clone()).await.map(|()| file.size) },
            )
            .buffer_unordered(FILES);
        while let Some(bytes) = files.try_next().await? {
            (report.objects, report.bytes) = (report.objects + 1, report.bytes + bytes);
            progress(&report);
        }
        // Roots and pages in any order: nothing leads to them before their commit is there. Commits by generation.
        let mut metas = stream::iter(&missing.metas)
            .map(|pointer| copy_meta(source, target, pointer))
            .buffer_unordered(CONCURRENCY);
        while let Some(bytes) = metas.try_next().await? {
            (report.objects, report.bytes) = (report.objects + 1, report.bytes + bytes);
            progress(&report);
        }
        for pointer in missing.commits.values() {
            report.bytes += copy_meta(source, target, pointer).await?;
            report.objects += 1;
            progress(&report);
        }
        Ok(report)
    }
}

/// A pin on versions, where the store lets us write.
async fn pinned(lake: &Lake, commits: Vec<&Snapshot>) -> Result<Option<Pin>> {
    let request = pin::Request { commits, holder: "copy", ..pin::Request::default() };
    match Pin::take(lake, request).await {
        Ok(pin) => Ok(Some(pin)),
        Err(Error::Storage(
            error @ (forebay_storage::Error::Denied { .. }
            | forebay_storage::Error::NotPermitted { .. }
            | forebay_storage::Error::ReadOnly { .. }),
        )) => {
            tracing::debug!(url = lake.storage().url(), %error, "copying without a pin");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// A pin under which nothing at all is collected: what an earlier try left is there to stay.
async fn hold(lake: &Lake) -> Result<Pin> {
    Pin::take(lake, pin::Request { holder: "copy", orphans: true, ..pin::Request::default() }).await
}

/// What a target lacks.
#[derive(Default)]
struct Missing {
    files: Vec<DataFileRef>,
    /// Roots, pages and lists of origins.
    metas: Vec<Pointer>,
    /// Parents before children.
    commits: BTreeMap<(u64, CommitId), Pointer>,
}

/// What is found while versions are followed, by name.
#[derive(Default)]
struct Found {
    purges: std::sync::Arc<Purges>,
    metas: HashMap<ObjectId, Pointer>,
    files: HashMap<String, DataFileRef>,
    pages: Vec<Pointer>,
}

impl Found {
    fn add_root(&mut self, root: &TableRoot) {
        self.add_files(root.defaults.iter());
        for page in &root.pages {
            match &page.page {
                PageLocation::Inline(page) => self.add_fragments(&page.fragments),
                PageLocation::Object(pointer) => {
                    if self.metas.insert(pointer.id, *pointer).is_none() {
                        self.pages.push(*pointer);
                    }
                }
            }
        }
    }

    fn add_fragments(&mut self, fragments: &[Fragment]) {
        for fragment in self.purges.applied(fragments) {
            self.add_files(fragment.all_files());
            self.metas.extend(fragment.origins.as_ref().map(|origins| (origins.id, **origins)));
        }
    }

    fn add_files<'a>(&mut self, files: impl Iterator<Item = &'a DataFileRef>) {
        self.files.extend(files.map(|file| (names::data(file.id), file.clone())));
    }

    /// Takes in what a commit names, its roots included, but for pages that are objects.
    async fn add_commit(&mut self, lake: &Lake, commit: &Commit) -> Result<()> {
        for table in &commit.tables {
            match &table.root {
                RootRef::Inline(root) => self.add_root(root),
                RootRef::Object(pointer) => {
                    if self.metas.insert(pointer.id, *pointer).is_none() {
                        let bytes = commit::fetch(lake.storage(), pointer, &format!("commit {}", commit.id)).await?;
                        self.add_root(&TableRoot::decode(&bytes).map_err(Error::object(names::meta(pointer.id)))?);
                    }
                }
            }
        }
        Ok(())
    }
}

impl Missing {
    /// `versions` are those of the source.
    async fn find(lake: &Lake, versions: &[&Snapshot], target: &Storage) -> Result<Self> {
        let (expired, there) = (epochs::expired(lake.storage()).await?, epochs::expired(target).await?);
        let mut missing = Self::default();
        // What commits on both sides name, and what commits on one side do.
        let purges = lake.reload_purges().await?;
        let start = || Found { purges: purges.clone(), ..Found::default() };
        let (mut known, mut found) = (start(), start());
        let mut seen: HashSet<ObjectId> = versions.iter().map(|version| version.pointer().id).collect();
        let mut queue: Vec<(Pointer, Commit)> =
            versions.iter().map(|version| (version.pointer(), version.commit().clone())).collect();
        queue.dedup_by_key(|(pointer, _)| pointer.id);
        while let Some((pointer, commit)) = queue.pop() {
            if exists(target, &names::meta(commit.id)).await? {
                if !expired.contains(&commit.id) && !there.contains(&commit.id) {
                    known.add_commit(lake, &commit).await?;
                }
                continue;
            }
            missing.commits.insert((commit.generation, commit.id), pointer);
            if !expired.contains(&commit.id) {
                found.add_commit(lake, &commit).await?;
            }
            for parent in commit.parents.iter().filter(|parent| seen.insert(parent.id)) {
                queue.push((*parent, commit::load(lake.storage(), parent, &format!("commit {}", commit.id)).await?));
            }
        }
        let pages = std::mem::take(&mut found.pages).into_iter().filter(|page| !known.metas.contains_key(&page.id));
        let mut pages = stream::iter(pages)
            .map(|pointer| async move {
                let bytes = commit::fetch(lake.storage(), &pointer, "a commit that is copied").await?;
                Page::decode(&bytes).map_err(Error::object(names::meta(pointer.id)))
            })
            .buffer_unordered(CONCURRENCY);
        while let Some(page) = pages.try_next().await? {
            found.add_fragments(&page.fragments);
        }
        found.metas.retain(|id, _| !known.metas.contains_key(id));
        found.files.retain(|path, _| !known.files.contains_key(path));
        missing.metas = lacking(target, found.metas.into_values().map(|meta| (names::meta(meta.id), meta))).await?;
        missing.files = lacking(target, found.files.into_iter()).await?;
        Ok(missing)
    }
}

/// Those of some objects that aren't there.
async fn lacking<T>(storage: &Storage, objects: impl Iterator<Item = (String, T)>) -> Result<Vec<T>> {
    let asked = stream::iter(objects)
        .map(|(path, object)| async move { Ok::<_, Error>((!exists(storage, &path).await?).then_some(object)) });
    let asked: Vec<Option<T>> = asked.buffer_unordered(CONCURRENCY).try_collect().await?;
    Ok(asked.into_iter().flatten().collect())
}

async fn exists(storage: &Storage, path: &str) -> Result<bool> {
    match storage.head(path).await {
        Ok(_) => Ok(true),
        Err(error) if error.is_not_found() => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Copies a metadata object; gives its bytes.
async fn copy_meta(source: &Storage, target: &Storage, pointer: &Pointer) -> Result<u64> {
    let bytes = commit::fetch(source, pointer, "a commit that is copied").await?;
    target.put(&names::meta(pointer.id), bytes).await?;
    Ok(u64::from(pointer.length))
}

/// Copies a data file, checking every byte on the way.
async fn copy_file(source: Storage, target: Storage, file: DataFileRef) -> Result<()> {
    let path = names::data(file.id);
    let tail = source.get_range(&path, file.index_offset..file.size).await?;
    let index = FileIndex::parse(&tail, &file).map_err(Error::object(&path))?;
    let runtime = tokio::runtime::Handle::current();
    let copied = tokio::task::spawn_blocking(move || {
        let mut writer = target.writer(&path)?;
        for section in index.sections() {
            let bytes = runtime.block_on(source.get_range(&path, section.range.clone()))?;
            index.check_section(&section, &bytes).map_err(Error::object(&path))?;
            std::io::Write::write_all(&mut writer, &bytes)
                .map_err(|error| Error::object(&path)(forebay_format::Error::Sink(error)))?;
        }
        writer.finish()?;
        Ok(())
    });
    copied.await.map_err(|source| Error::Cancelled { source })?
}
