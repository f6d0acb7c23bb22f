//! What is done with commits that are there: merged, reverted, picked; branches and tags moved and removed.

use std::collections::BTreeMap;

use forebay_format::{
    CommitId,
    meta::{Change, Commit, RefKind, Tag},
};
use forebay_storage::Claim;

use crate::{
    At, Conflict, Error, Lake, Pin, Policy, Result, Snapshot, commit, graph,
    lake::{self, now},
    merge, names, pin,
    refs::{self, Head, NewEntry, Outcome},
};

/// How a merge, revert or cherry-pick is done, and what its commit says.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct MergeOptions {
    /// Who decides conflicts; by default nobody, and the merge fails with all of them.
    pub policy: Policy,
    /// The commit's message; by default one that says what was merged.
    pub message: Option<String>,
    /// The commit's author.
    pub author: String,
    /// What the commit remembers.
    pub properties: BTreeMap<String, String>,
    /// Whether to report and change nothing.
    pub dry_run: bool,
}

impl MergeOptions {
    /// The default options, with an author.
    #[must_use]
    pub fn by(author: &str) -> Self {
        Self { author: author.to_owned(), ..Self::default() }
    }

    /// These options with another policy.
    #[must_use]
    pub fn with_policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// These options with a message of their own.
    #[must_use]
    pub fn with_message(mut self, message: &str) -> Self {
        self.message = Some(message.to_owned());
        self
    }

    /// These options as a dry run.
    #[must_use]
    pub fn dry(mut self) -> Self {
        self.dry_run = true;
        self
    }
}

/// What a merge did, or would do.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MergeReport {
    /// How.
    pub outcome: MergeOutcome,
    /// The branch's version after it; before it for a dry run.
    pub snapshot: Snapshot,
    /// What it changes on the branch, by table.
    pub changes: Vec<Change>,
    /// What nobody decided: only of a dry run, as a merge fails with them.
    pub conflicts: Vec<Conflict>,
}

/// How a merge was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MergeOutcome {
    /// The branch had everything already.
    UpToDate,
    /// The branch had nothing of its own and moved to the other commit.
    FastForward,
    /// A new commit.
    Merged,
}

/// An entry of a branch's log: every move of the branch is one, so nothing that it pointed at is lost.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogEntry {
    /// Its number.
    pub sequence: u64,
    /// What it did.
    pub kind: RefKind,
    /// The branch's commit from then on.
    pub commit: CommitId,
    /// When, in microseconds since 1970 UTC, by the writer's clock.
    pub time: i64,
}

/// Attempts before giving up on a busy branch.
const ATTEMPTS: u32 = 100;

/// What is merged, and what its commit follows.
struct Plan<'a> {
    base: Commit,
    theirs: &'a Commit,
    second_parent: Option<forebay_format::meta::Pointer>,
    /// No collection up to this one may drop `theirs`.
    epoch: u64,
    message: String,
}

impl Lake {
    /// Merges a version into a branch, row by row and cell by cell: rows that were added, deleted or updated on one side are
    /// so afterwards. Cells that both changed differently, rows that one side deleted and the other updated, equal keys and
    /// contradicting changes of schemas are decided by the policy. Work and bytes are in proportion to what changed.
    ///
    /// # Errors
    /// [`Error::Conflict`] with everything that the policy didn't decide, and nothing is committed; [`Error::Contention`];
    /// [`Error::OutcomeUnknown`]; and as [`Lake::snapshot`] at `from` and the branch.
    pub async fn merge(&self, into: &str, from: &At, options: &MergeOptions) -> Result<MergeReport> {
        let (theirs, pin) = self.protect(from).await?;
        let merged = self.merge_pinned(into, from, &theirs, &pin, options).await;
        pin.release().await;
        merged
    }

    async fn merge_pinned(
        &self,
        into: &str,
        from: &At,
        theirs: &Snapshot,
        pin: &Pin,
        options: &MergeOptions,
    ) -> Result<MergeReport> {
        let mut head = lake::head(self.storage(), into).await?;
        self.know(head.purged).await?;
        for attempt in 1..=ATTEMPTS {
            let report =
                |outcome, snapshot| Ok(MergeReport { outcome, snapshot, changes: Vec::new(), conflicts: Vec::new() });
            if graph::is_ancestor(self, theirs.commit(), &head.commit).await? {
                return report(MergeOutcome::UpToDate, head.snapshot(self));
            }
            if graph::is_ancestor(self, &head.commit, theirs.commit()).await? {
                if options.dry_run {
                    return report(MergeOutcome::FastForward, head.snapshot(self));
                }
                if self.point(&head, RefKind::Commit, theirs, pin.epoch()).await? {
                    return report(MergeOutcome::FastForward, theirs.clone());
                }
            } else {
                let plan = Plan {
                    base: graph::base(self, &head.commit, theirs.commit()).await?,
                    theirs: theirs.commit(),
                    second_parent: Some(theirs.pointer()),
                    epoch: pin.epoch(),
                    message: format!("merge {from} into branch '{into}'"),
                };
                if let Some(report) = self.apply(&head, plan, options).await? {
                    return Ok(report);
                }
            }
            head = refs::overtaken(self, &head, attempt).await?;
        }
        Err(Error::Contention { branch: into.to_owned(), attempts: ATTEMPTS })
    }

    /// Undoes what a commit changed against its first parent, as a new commit; what came later stays.
    ///
    /// # Errors
    /// [`Error::Misuse`] for the first commit; [`Error::NothingToCommit`] if there is nothing left to undo; and as
    /// [`merge`](Self::merge).
    pub async fn revert(&self, branch: &str, commit: &At, options: &MergeOptions) -> Result<MergeReport> {
        let replayed = self.with_parent(commit).await?;
        let (undone, parent) = (replayed.commit.commit(), replayed.parent.commit());
        let message = format!("revert commit {}: {}", undone.id, undone.message);
        let report = self.replay(branch, (undone, parent), replayed.pin.epoch(), message, options).await;
        replayed.pin.release().await;
        report
    }

    /// Does what a commit changed against its first parent on a branch, as a new commit.
    ///
    /// # Errors
    /// [`Error::Misuse`] for the first commit; [`Error::NothingToCommit`] if the branch has all of it already; and as
    /// [`merge`](Self::merge).
    pub async fn cherry_pick(&self, branch: &str, commit: &At, options: &MergeOptions) -> Result<MergeReport> {
        let replayed = self.with_parent(commit).await?;
        let (picked, parent) = (replayed.commit.commit(), replayed.parent.commit());
        let report = self.replay(branch, (parent, picked), replayed.pin.epoch(), picked.message.clone(), options).await;
        replayed.pin.release().await;
        report
    }

    async fn with_parent(&self, at: &At) -> Result<Replayed> {
        let commit = self.snapshot(at).await?;
        let parent = pin::parent(self, &commit).await?;
        let request = pin::Request { commits: vec![&commit, &parent], ..pin::Request::default() };
        let pin = Pin::take(self, request).await?;
        Ok(Replayed { commit, parent, pin })
    }

    async fn replay(
        &self,
        branch: &str,
        (base, theirs): (&Commit, &Commit),
        epoch: u64,
        message: String,
        options: &MergeOptions,
    ) -> Result<MergeReport> {
        let mut head = lake::head(self.storage(), branch).await?;
        self.know(head.purged).await?;
        for attempt in 1..=ATTEMPTS {
            let plan = Plan { base: base.clone(), theirs, second_parent: None, epoch, message: message.clone() };
            if let Some(report) = self.apply(&head, plan, options).await? {
                return Ok(report);
            }
            head = refs::overtaken(self, &head, attempt).await?;
        }
        Err(Error::Contention { branch: branch.to_owned(), attempts: ATTEMPTS })
    }

    /// Commits a three-way merge on top of `head`; `None` if another writer was first.
    async fn apply(&self, head: &Head, plan: Plan<'_>, options: &MergeOptions) -> Result<Option<MergeReport>> {
        let ours = head.snapshot(self);
        let merged = merge::merge(self, &plan.base, &ours, plan.theirs, &options.policy, options.dry_run).await?;
        let (changes, conflicts) = (merged.changes, merged.conflicts);
        if options.dry_run {
            let outcome = MergeOutcome::Merged;
            return Ok(Some(MergeReport { outcome, snapshot: ours, changes, conflicts }));
        }
        if !conflicts.is_empty() {
            return Err(Error::Conflict { branch: head.branch.clone(), conflicts });
        }
        if plan.second_parent.is_none() && merged.tables == head.commit.tables {
            return Err(Error::NothingToCommit { branch: head.branch.clone() });
        }
        let mut parents = vec![head.pointer];
        parents.extend(plan.second_parent);
        let below = if plan.second_parent.is_some() { plan.theirs.generation } else { 0 };
        let commit = Commit {
            id: CommitId::random(),
            parents,
            generation: head.commit.generation.max(below) + 1,
            author: options.author.clone(),
            message: options.message.clone().unwrap_or(plan.message),
            time: now(),
            tables: merged.tables,
            changes: changes.clone(),
            properties: options.properties.clone(),
        };
        let published = commit::publish(self, head, commit, plan.epoch).await?;
        let outcome = MergeOutcome::Merged;
        Ok(published.map(|snapshot| MergeReport { outcome, snapshot, changes, conflicts }))
    }

    /// Moves a branch to any version. What it pointed at stays in its log: [`Lake::entries`].
    ///
    /// # Errors
    /// As [`Lake::snapshot`] at `to` and the branch; [`Error::Contention`]; [`Error::OutcomeUnknown`].
    pub async fn reset(&self, branch: &str, to: &At) -> Result<Snapshot> {
        let (to, pin) = self.protect(to).await?;
        let mut head = lake::head(self.storage(), branch).await?;
        for attempt in 1..=ATTEMPTS {
            if self.point(&head, RefKind::Reset, &to, pin.epoch()).await? {
                pin.release().await;
                return Ok(to);
            }
            head = refs::overtaken(self, &head, attempt).await?;
        }
        Err(Error::Contention { branch: branch.to_owned(), attempts: ATTEMPTS })
    }

    /// Removes a branch. Its log stays, and [`undelete_branch`](Self::undelete_branch) brings it back.
    ///
    /// # Errors
    /// [`Error::UnknownBranch`]; [`Error::Contention`]; [`Error::OutcomeUnknown`]; and what the store reports.
    pub async fn delete_branch(&self, name: &str) -> Result<()> {
        let mut head = lake::head(self.storage(), name).await?;
        for attempt in 1..=ATTEMPTS {
            if self.point(&head, RefKind::Delete, &head.snapshot(self), 0).await? {
                return Ok(());
            }
            head = refs::overtaken(self, &head, attempt).await?;
        }
        Err(Error::Contention { branch: name.to_owned(), attempts: ATTEMPTS })
    }

    /// Brings a deleted branch back, at the commit that it had.
    ///
    /// # Errors
    /// [`Error::UnknownBranch`] if there never was one; [`Error::BranchExists`] if it isn't deleted; and what the store
    /// reports.
    pub async fn undelete_branch(&self, name: &str) -> Result<Snapshot> {
        names::check("branch", name)?;
        let Some(head) = refs::head(self.storage(), name).await? else {
            return Err(refs::unknown(self.storage(), name).await?);
        };
        if head.kind == RefKind::Delete {
            let last = head.snapshot(self);
            let request = pin::Request { commits: vec![&last], ..pin::Request::default() };
            let pin = Pin::take(self, request).await?;
            let made = self.point(&head, RefKind::Create, &last, pin.epoch()).await?;
            pin.release().await;
            if made {
                return Ok(last);
            }
        }
        Err(Error::BranchExists { name: name.to_owned() })
    }

    /// Makes a branch of the new name at the old one's commit, and deletes the old one. A process that stops in between
    /// leaves both.
    ///
    /// # Errors
    /// As [`Lake::create_branch`] and [`delete_branch`](Self::delete_branch).
    pub async fn rename_branch(&self, from: &str, to: &str) -> Result<()> {
        self.create_branch(to, &At::Branch(from.to_owned())).await?;
        self.delete_branch(from).await
    }

    /// Removes a tag. Its name can't be used again: who remembers it finds nothing rather than something else.
    ///
    /// # Errors
    /// [`Error::UnknownTag`], and what the store reports.
    pub async fn delete_tag(&self, name: &str, author: &str) -> Result<()> {
        let snapshot = self.snapshot(&At::Tag(name.to_owned())).await?;
        let (commit, embedded) = (snapshot.pointer(), snapshot.embedded().await?);
        let tag = Tag { commit, embedded, author: author.to_owned(), time: now() };
        match self.storage().claim(&names::deleted_tag(name), tag.encode()?.into()).await? {
            Claim::Ours | Claim::Theirs(_) => Ok(()),
            Claim::Unknown(error) => Err(error.into()),
        }
    }

    /// The newest `limit` entries of a branch's log, newest first, also of a deleted branch.
    ///
    /// # Errors
    /// [`Error::UnknownBranch`] if there never was one; [`Error::Object`] if an entry is damaged; and what the store
    /// reports.
    pub async fn entries(&self, branch: &str, limit: u64) -> Result<Vec<LogEntry>> {
        names::check("branch", branch)?;
        let Some(head) = refs::head(self.storage(), branch).await? else {
            return Err(refs::unknown(self.storage(), branch).await?);
        };
        let mut entries = Vec::new();
        for sequence in (0..=head.sequence).rev().take(usize::try_from(limit).unwrap_or(usize::MAX)) {
            let path = names::entry(branch, sequence);
            let referrer = format!("a later entry of branch '{branch}'");
            let entry = refs::entry(self.storage(), branch, sequence).await?;
            let entry = entry.ok_or(Error::Missing { path, referrer })?;
            let (kind, commit, time) = (entry.kind, entry.commit.id.cast(), entry.time);
            entries.push(LogEntry { sequence, kind, commit, time });
        }
        Ok(entries)
    }

    /// Claims the entry behind `head` for a commit that is there, and that no collection up to `epoch` may drop. Gives
    /// whether it is ours.
    async fn point(&self, head: &Head, kind: RefKind, to: &Snapshot, epoch: u64) -> Result<bool> {
        let (sequence, embedded) = (head.sequence + 1, to.embedded().await?);
        let (epoch, purged) = (head.epoch.max(epoch), head.purged.max(self.purged()));
        let entry = NewEntry { kind, commit: to.pointer(), embedded, epoch, purged };
        match refs::claim(self.storage(), &head.branch, sequence, entry).await? {
            Outcome::Ours => {
                refs::leave_hint(self.storage(), &head.branch, sequence, to.commit()).await;
                Ok(true)
            }
            Outcome::Theirs => Ok(false),
        }
    }
}

/// A commit that is undone or done again, and the one before it.
struct Replayed {
    commit: Snapshot,
    parent: Snapshot,
    pin: Pin,
}
