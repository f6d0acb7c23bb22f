//! The graph of commits: what two versions have in common.

use std::collections::{BTreeMap, HashMap};

use forebay_format::{CommitId, meta::Commit};
use futures::future::{BoxFuture, FutureExt as _};

use crate::{Choice, Lake, Policy, Result, Snapshot, commit, merge};

const OURS: u8 = 1;
const THEIRS: u8 = 2;
const STALE: u8 = 4;

/// The best common ancestors of two commits: those that aren't ancestors of another one. Several if branches were merged
/// crosswise; none if they share no history.
pub(crate) async fn bases(lake: &Lake, ours: &Commit, theirs: &Commit) -> Result<Vec<Commit>> {
    // By generation, so that a commit comes up after all of its descendants.
    let mut queue: BTreeMap<(u64, CommitId), Commit> = BTreeMap::new();
    let mut flags: HashMap<CommitId, u8> = HashMap::new();
    for (commit, flag) in [(ours, OURS), (theirs, THEIRS)] {
        *flags.entry(commit.id).or_default() |= flag;
        queue.insert((commit.generation, commit.id), commit.clone());
    }
    let mut bases = Vec::new();
    while queue.keys().any(|(_, id)| flags.get(id).is_some_and(|flags| flags & STALE == 0)) {
        let Some(((_, id), next)) = queue.pop_last() else { break };
        let mut carried = flags.get(&id).copied().unwrap_or_default();
        if carried == OURS | THEIRS {
            bases.push(next.clone());
            carried |= STALE;
        }
        for pointer in &next.parents {
            let parent: CommitId = pointer.id.cast();
            let known = flags.entry(parent).or_default();
            let first = *known == 0;
            *known |= carried;
            if first {
                let parent = commit::load(lake.storage(), pointer, &format!("commit {id}")).await?;
                queue.insert((parent.generation, parent.id), parent);
            }
        }
    }
    Ok(bases)
}

/// Whether `ancestor` is `commit` or one of its ancestors.
pub(crate) async fn is_ancestor(lake: &Lake, ancestor: &Commit, commit: &Commit) -> Result<bool> {
    Ok(bases(lake, ancestor, commit).await?.iter().any(|base| base.id == ancestor.id))
}

/// The one base to merge two commits from. Several best bases are merged first, recursively; where they contradict each
/// other, the value that they themselves started from counts.
pub(crate) fn base<'a>(lake: &'a Lake, ours: &'a Commit, theirs: &'a Commit) -> BoxFuture<'a, Result<Commit>> {
    async move {
        let mut bases = bases(lake, ours, theirs).await?.into_iter();
        let Some(mut merged) = bases.next() else { return Ok(Commit { tables: Vec::new(), ..ours.clone() }) };
        for next in bases {
            let under = base(lake, &merged, &next).await?;
            let here = snapshot(lake, merged.clone())?;
            let policy = Policy::Callback(std::sync::Arc::new(|_| Choice::Base));
            let tables = merge::merge(lake, &under, &here, &next, &policy, false).await?.tables;
            let generation = merged.generation.max(next.generation) + 1;
            let parents = if merged.parents.is_empty() { next.parents.clone() } else { parents(&merged, &next) };
            merged = Commit { id: CommitId::random(), parents, generation, tables, ..merged };
        }
        Ok(merged)
    }
    .boxed()
}

/// Parents of a commit in memory that stands for two others: theirs, as it has none of its own in the lake.
fn parents(one: &Commit, other: &Commit) -> Vec<forebay_format::meta::Pointer> {
    let mut parents = one.parents.clone();
    parents.extend(other.parents.iter().filter(|parent| !one.parents.iter().any(|known| known.id == parent.id)));
    parents
}

/// A commit as a version of the lake, also one that is in memory only.
pub(crate) fn snapshot(lake: &Lake, commit: Commit) -> Result<Snapshot> {
    let pointer = forebay_format::meta::Pointer::to(commit.id.cast(), &commit.encode()?);
    Ok(Snapshot::new(lake.clone(), commit.id, pointer, commit))
}
