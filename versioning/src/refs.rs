//! The logs of branches: finding their end, and claiming the next entry.
//!
//! Entries are numbered without gaps and never deleted, so "entry n exists" is monotone in n and the end is found by
//! probing, without a listing: from a good hint in one round of two requests.

use std::collections::HashSet;

use bytes::Bytes;
use forebay_format::{
    ObjectId,
    meta::{Commit, Pointer, RefEntry, RefKind, RootRef},
};
use forebay_storage::{Claim, Storage};
use futures::{
    StreamExt as _, TryStreamExt as _,
    future::{join_all, try_join_all},
    stream,
};

use crate::{Error, Lake, Result, Snapshot, lake::now, names, pause::pause};

/// The end of a branch's log.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    pub(crate) branch: String,
    pub(crate) sequence: u64,
    /// What the last entry does: after [`RefKind::Delete`] there is no such branch.
    pub(crate) kind: RefKind,
    pub(crate) pointer: Pointer,
    pub(crate) commit: Commit,
    /// No collection up to this one may drop the commit.
    pub(crate) epoch: u64,
    /// Purges up to this epoch must be known.
    pub(crate) purged: u64,
    /// Roots of tables, if the hint told of them: fetched beside the log's end, and good only if the commit points to them.
    pub(crate) roots: Vec<(ObjectId, Bytes)>,
}

impl Head {
    pub(crate) fn snapshot(&self, lake: &Lake) -> Snapshot {
        lake.keep_roots(&self.roots);
        Snapshot::new(lake.clone(), self.commit.id, self.pointer, self.commit.clone())
    }

    /// Itself, unless the branch was deleted.
    pub(crate) async fn alive(self, storage: &Storage) -> Result<Self> {
        if self.kind == RefKind::Delete {
            return Err(unknown(storage, &self.branch).await?);
        }
        Ok(self)
    }
}

/// The error for a branch that isn't there.
pub(crate) async fn unknown(storage: &Storage, branch: &str) -> Result<Error> {
    let known = match branches(storage).await {
        // A web server lists nothing, and so no branches to choose from.
        Err(Error::Storage(forebay_storage::Error::NoListing { .. })) => Vec::new(),
        known => known?,
    };
    Ok(Error::UnknownBranch { url: storage.url().to_owned(), name: branch.to_owned(), known })
}

/// The end of a branch's log after a claim for the entry behind `head` was lost, after a pause.
pub(crate) async fn overtaken(lake: &Lake, head: &Head, attempt: u32) -> Result<Head> {
    let storage = lake.storage();
    let (branch, sequence) = (&head.branch, head.sequence + 1);
    tracing::debug!(%branch, sequence, attempt, "another writer was first: rebasing");
    pause(attempt.min(6)).await;
    let head = head_after(storage, branch, sequence).await?.alive(storage).await?;
    lake.know(head.purged).await?;
    Ok(head)
}

/// Whether a claimed entry became ours. There is no third outcome: a doubt that can't be settled is an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Ours,
    /// Another entry has the number, for good.
    Theirs,
}

/// Entry `sequence` of a branch, if it is there.
pub(crate) async fn entry(storage: &Storage, branch: &str, sequence: u64) -> Result<Option<RefEntry>> {
    let path = names::entry(branch, sequence);
    match storage.get(&path).await {
        Ok(bytes) => {
            // Decoding also holds the embedded commit against its pointer.
            RefEntry::decode(&bytes).map_err(Error::object(&path)).map(Some)
        }
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The end of a branch's log, or `None` if there is no such branch.
pub(crate) async fn head(storage: &Storage, branch: &str) -> Result<Option<Head>> {
    let (hint, roots) = match storage.get(&names::hint(branch)).await {
        Ok(bytes) => parse_hint(&bytes),
        Err(error) if error.is_not_found() => (0, Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let end = async {
        match last(storage, branch, hint).await? {
            None if hint > 0 => last(storage, branch, 0).await,
            found => Ok(found),
        }
    };
    let (found, roots) = futures::join!(end, fetched(storage, roots));
    let Some((sequence, entry)) = found? else { return Ok(None) };
    Ok(Some(Head { roots, ..decode(branch, sequence, entry)? }))
}

/// What a hint says: a number, and roots of tables that are objects. One that doesn't parse is no hint: it is never trusted.
fn parse_hint(bytes: &[u8]) -> (u64, Vec<ObjectId>) {
    let text = std::str::from_utf8(bytes).unwrap_or_default();
    let mut words = text.split_ascii_whitespace();
    let sequence = words.next().and_then(|number| number.parse().ok()).unwrap_or(0);
    (sequence, words.take(ROOTS).filter_map(|id| id.parse().ok()).collect())
}

/// Those of some objects that are there.
async fn fetched(storage: &Storage, objects: Vec<ObjectId>) -> Vec<(ObjectId, Bytes)> {
    let fetched = objects.into_iter().map(|id| async move { Some((id, storage.get(&names::meta(id)).await.ok()?)) });
    join_all(fetched).await.into_iter().flatten().collect()
}

/// The end of a branch's log, which has an entry `from` for sure.
pub(crate) async fn head_after(storage: &Storage, branch: &str, from: u64) -> Result<Head> {
    match last(storage, branch, from).await? {
        Some((sequence, entry)) => decode(branch, sequence, entry),
        None => Err(Error::Missing { path: names::entry(branch, from), referrer: "a claim just lost to it".into() }),
    }
}

fn decode(branch: &str, sequence: u64, entry: RefEntry) -> Result<Head> {
    let commit = Commit::decode(&entry.embedded).map_err(Error::object(names::entry(branch, sequence)))?;
    let RefEntry { kind, commit: pointer, epoch, purged, .. } = entry;
    Ok(Head { branch: branch.to_owned(), sequence, kind, pointer, commit, epoch, purged, roots: Vec::new() })
}

/// The last entry at or after `from`; `None` if `from` itself isn't there.
async fn last(storage: &Storage, branch: &str, from: u64) -> Result<Option<(u64, RefEntry)>> {
    let mut search = Search::new(from);
    let mut best = None;
    while let Some(probes) = search.probes() {
        let found = try_join_all(probes.iter().map(|sequence| entry(storage, branch, *sequence))).await?;
        let present = found.iter().take_while(|entry| entry.is_some()).count();
        search.learn(&probes, present);
        if present > 0 {
            best = probes.into_iter().zip(found).nth(present - 1);
        }
    }
    Ok(best.and_then(|(sequence, entry)| entry.map(|entry| (sequence, entry))))
}

/// Finds the last of a run of numbers that begins at some number: gallops up, then narrows. Pure.
#[derive(Debug)]
struct Search {
    from: u64,
    /// The largest number known to exist.
    present: Option<u64>,
    /// The smallest number known to be missing.
    missing: Option<u64>,
}

impl Search {
    /// Probes in a round; enough to find the end of 10,000 entries in a few rounds.
    const WIDTH: u64 = 8;

    fn new(from: u64) -> Self {
        Self { from, present: None, missing: None }
    }

    /// What to probe next, ascending; `None` when the end is known.
    fn probes(&self) -> Option<Vec<u64>> {
        match (self.present, self.missing) {
            (None, None) => Some(vec![self.from, self.from + 1]),
            (None, Some(_)) => None,
            (Some(present), None) => Some((0..Self::WIDTH).map(|i| present + (1 << (2 * i))).collect()),
            (Some(present), Some(missing)) if missing - present <= 1 => None,
            (Some(present), Some(missing)) => {
                let gap = missing - present;
                let parts = gap.min(Self::WIDTH + 1);
                Some((1..parts).map(|i| present + gap * i / parts).collect())
            }
        }
    }

    /// Takes in that the first `present` of `probes` exist, and the next one doesn't.
    fn learn(&mut self, probes: &[u64], present: usize) {
        if present > 0 {
            self.present = Some(probes[present - 1]);
        }
        if present < probes.len() {
            self.missing = Some(probes[present]);
        }
    }
}

/// What an entry is to say.
#[derive(Clone, Debug)]
pub(crate) struct NewEntry {
    pub(crate) kind: RefKind,
    pub(crate) commit: Pointer,
    pub(crate) embedded: Vec<u8>,
    /// No collection up to this one may drop the commit.
    pub(crate) epoch: u64,
    /// Purges up to this epoch must be known.
    pub(crate) purged: u64,
}

/// How often a claim in doubt is asked again, with growing pauses: some 30 seconds in all.
const SETTLE_ATTEMPTS: u32 = 9;

/// Claims entry `sequence` of a branch and settles every doubt about who has it.
///
/// After an ambiguous failure the request may still land. The same bytes are claimed again until the number is taken by
/// them or by somebody else's: whichever of our equal requests lands, the entry is ours, so "not ours" is said only when
/// another entry has the number for good.
///
/// # Errors
/// [`Error::OutcomeUnknown`] if the store keeps failing.
pub(crate) async fn claim(storage: &Storage, branch: &str, sequence: u64, new: NewEntry) -> Result<Outcome> {
    let path = names::entry(branch, sequence);
    let NewEntry { kind, commit, embedded, epoch, purged } = new;
    let entry = RefEntry { kind, nonce: rand::random(), commit, embedded, time: now(), epoch, purged };
    let bytes = Bytes::from(entry.encode()?);
    let mut attempt = 0;
    loop {
        let source = match storage.claim(&path, bytes.clone()).await? {
            Claim::Ours => return Ok(Outcome::Ours),
            Claim::Theirs(_) => return Ok(Outcome::Theirs),
            Claim::Unknown(error) => error,
        };
        attempt += 1;
        if attempt == SETTLE_ATTEMPTS {
            let (branch, commit) = (branch.to_owned(), commit.id.cast());
            return Err(Error::OutcomeUnknown { branch, sequence, commit, source });
        }
        tracing::warn!(%path, %source, attempt, "a claim's outcome is unknown: asking again");
        pause(attempt).await;
    }
}

/// Leaves a hint where a branch's log ends, and what of its commit is worth fetching beside. Losing it costs a reader some
/// requests and nothing else.
pub(crate) async fn leave_hint(storage: &Storage, branch: &str, sequence: u64, commit: &Commit) {
    let path = names::hint(branch);
    let mut hint = sequence.to_string();
    for table in commit.tables.iter().take(ROOTS) {
        if let RootRef::Object(pointer) = &table.root {
            hint.push_str(&format!(" {}", pointer.id));
        }
    }
    if let Err(error) = storage.put(&path, Bytes::from(hint)).await {
        tracing::warn!(%path, %error, "the hint was not written: the next open takes some requests more");
    }
}

/// Roots of tables that a hint tells of at most.
const ROOTS: usize = 4;

/// Branches looked at at once.
const BRANCHES: usize = 32;

/// The names of all branches that are no transaction's own, sorted.
pub(crate) async fn branches(storage: &Storage) -> Result<Vec<String>> {
    let names = storage.folders(names::HEADS).await?.into_iter().filter(|name| !names::is_scratch(name));
    let heads = stream::iter(names).map(|name| async move {
        let head = head(storage, &name).await?;
        Ok::<_, Error>(head.filter(|head| head.kind != RefKind::Delete).map(|_| name))
    });
    let heads: Vec<_> = heads.buffer_unordered(BRANCHES).try_collect().await?;
    let mut names: Vec<_> = heads.into_iter().flatten().collect();
    names.sort_unstable();
    Ok(names)
}

/// The names of all tags, sorted.
pub(crate) async fn tags(storage: &Storage) -> Result<Vec<String>> {
    let (tags, deleted) = futures::try_join!(storage.list(names::TAGS), storage.list(names::DELETED_TAGS))?;
    let name = |path: &str| Some(path.rsplit_once('/')?.1.to_owned());
    let deleted: HashSet<String> = deleted.iter().filter_map(|entry| name(&entry.path)).collect();
    let mut names: Vec<_> = tags.iter().filter_map(|entry| name(&entry.path)).collect();
    names.retain(|name| !deleted.contains(name));
    names.sort_unstable();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use forebay_format::ObjectId;

    use super::{Search, parse_hint};

    fn find(from: u64, end: u64) -> (Option<u64>, usize) {
        let mut search = Search::new(from);
        let mut rounds = 0;
        while let Some(probes) = search.probes() {
            assert!(probes.windows(2).all(|pair| pair[0] < pair[1]), "{probes:?}");
            rounds += 1;
            let present = probes.iter().take_while(|probe| **probe < end).count();
            search.learn(&probes, present);
        }
        (search.present, rounds)
    }

    #[test]
    fn a_search_finds_the_end_of_every_log_from_every_hint() {
        for end in (0..200_u64).chain([1_000, 9_999, 10_000, 1_000_000]) {
            for from in [0, 1, 5, end / 2, end.saturating_sub(1), end, end + 3] {
                let expected = (from < end).then(|| end - 1);
                assert_eq!(find(from, end).0, expected, "from {from}, end {end}");
            }
        }
    }

    #[test]
    fn a_hint_is_a_number_and_names_and_anything_else_is_no_hint() {
        let id = ObjectId::from_bytes([7; 16]);
        assert_eq!(parse_hint(b"17"), (17, vec![]));
        assert_eq!(parse_hint(format!("17 {id} x {id}").as_bytes()), (17, vec![id, id]));
        assert_eq!(parse_hint(b"x 3"), (0, vec![]));
        assert_eq!(parse_hint(&[0xFF, 1]), (0, vec![]));
        assert_eq!(parse_hint(b""), (0, vec![]));
    }

    #[test]
    fn a_good_hint_takes_one_round_and_no_hint_a_few() {
        assert_eq!(find(9_999, 10_000).1, 1);
        assert!(find(9_990, 10_000).1 <= 3);
        assert!(find(0, 10_000).1 <= 7, "{}", find(0, 10_000).1);
    }
}
