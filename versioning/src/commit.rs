//! Commits as objects, and the history that they form.

use bytes::Bytes;
use forebay_format::meta::{Commit, Pointer, RefKind};
use forebay_storage::Storage;
use futures::{StreamExt as _, TryStreamExt as _, stream};

use crate::{
    At, Error, Lake, Result, Snapshot, lake, names,
    refs::{self, Head, NewEntry, Outcome},
};

/// Writes a commit's object; gives its pointer and its bytes.
pub(crate) async fn write(storage: &Storage, commit: &Commit) -> Result<(Pointer, Vec<u8>)> {
    let bytes = commit.encode()?;
    let pointer = Pointer::to(commit.id.cast(), &bytes);
    storage.put(&names::meta(commit.id), Bytes::from(bytes.clone())).await?;
    Ok((pointer, bytes))
}

/// Writes a commit and makes it the entry behind `head`; `None` if another entry has that number. No collection up to
/// `epoch` may drop what it takes from elsewhere.
pub(crate) async fn publish(lake: &Lake, head: &Head, commit: Commit, epoch: u64) -> Result<Option<Snapshot>> {
    let (pointer, embedded) = write(lake.storage(), &commit).await?;
    let sequence = head.sequence + 1;
    let (epoch, purged) = (head.epoch.max(epoch), head.purged.max(lake.purged()));
    let entry = NewEntry { kind: RefKind::Commit, commit: pointer, embedded, epoch, purged };
    match refs::claim(lake.storage(), &head.branch, sequence, entry).await? {
        Outcome::Ours => {
            refs::leave_hint(lake.storage(), &head.branch, sequence, &commit).await;
            Ok(Some(Snapshot::new(lake.clone(), commit.id, pointer, commit)))
        }
        Outcome::Theirs => Ok(None),
    }
}

/// The bytes that a pointer names, checked against its length and hash.
pub(crate) async fn fetch(storage: &Storage, pointer: &Pointer, referrer: &str) -> Result<Bytes> {
    let path = names::meta(pointer.id);
    match storage.get(&path).await {
        Ok(bytes) => {
            pointer.check(&bytes).map_err(Error::object(&path))?;
            Ok(bytes)
        }
        Err(error) if error.is_not_found() => Err(Error::Missing { path, referrer: referrer.to_owned() }),
        Err(error) => Err(error.into()),
    }
}

/// The commit that a pointer names.
pub(crate) async fn load(storage: &Storage, pointer: &Pointer, referrer: &str) -> Result<Commit> {
    let bytes = fetch(storage, pointer, referrer).await?;
    Commit::decode(&bytes).map_err(Error::object(names::meta(pointer.id)))
}

/// The bytes of a commit's object. Another version may have written them otherwise than this one would; then they are read.
pub(crate) async fn stored(storage: &Storage, pointer: &Pointer, commit: &Commit) -> Result<Vec<u8>> {
    let bytes = commit.encode()?;
    match pointer.check(&bytes) {
        Ok(()) => Ok(bytes),
        Err(_) => Ok(fetch(storage, pointer, "what repeats it").await?.to_vec()),
    }
}

/// Requests in flight while a branch's log is read back.
const LOG_CONCURRENCY: usize = 64;

/// The newest `limit` commits up to `at`, newest first, along first parents.
///
/// A branch's own commits come from its log, many at once; what came before the branch was made is followed commit by
/// commit.
pub(crate) async fn log(storage: &Storage, at: &At, limit: usize) -> Result<Vec<Commit>> {
    if limit == 0 {
        return Ok(Vec::new());
    }
    let mut commits: Vec<Commit> = Vec::new();
    if let At::Branch(branch) = at {
        let head = lake::head(storage, branch).await?;
        let first = (head.sequence + 1).saturating_sub(limit as u64);
        let mut older = stream::iter((first..head.sequence).rev())
            .map(|sequence| async move {
                let entry = refs::entry(storage, branch, sequence).await?;
                entry.ok_or_else(|| Error::Missing {
                    path: names::entry(branch, sequence),
                    referrer: format!("a later entry of branch '{branch}'"),
                })
            })
            .buffered(LOG_CONCURRENCY);
        commits.push(head.commit);
        while let Some(entry) = older.try_next().await? {
            let path = names::meta(entry.commit.id);
            let commit = Commit::decode(&entry.embedded).map_err(Error::object(path))?;
            // An entry that moves the branch nowhere repeats the commit of its successor.
            let next = commits.last().map(|next| (next.id, next.parents.first().map(|parent| parent.id)));
            match next {
                Some((id, _)) if id == commit.id => {}
                Some((_, Some(parent))) if parent == commit.id.cast() => commits.push(commit),
                // The log was moved: history goes on by parents, not by entries.
                _ => break,
            }
        }
    } else {
        commits.push(lake::find(storage, at).await?.2);
    }
    while commits.len() < limit {
        let Some((id, parent)) = commits.last().and_then(|last| Some((last.id, *last.parents.first()?))) else { break };
        commits.push(load(storage, &parent, &format!("commit {id}")).await?);
    }
    Ok(commits)
}
