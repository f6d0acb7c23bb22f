//! Collecting garbage: objects that no branch, tag or pin leads to, and tables of commits older than the history that is kept.
//!
//! What may be deleted is decided once, in the order that [`epochs`](crate::epochs) describes, and written down before
//! anything is deleted. Whatever fails before that deletes nothing; whatever fails after it leaves garbage that the next
//! collection finds.

mod history;
mod mark;

use std::{
    collections::HashSet,
    time::{Duration, SystemTime},
};

use forebay_format::{
    CommitId,
    meta::{GcRecord, RefKind},
};
use forebay_storage::{Entry, Storage};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use history::History;
use mark::Marks;

use crate::{
    Error, Lake, Result, commit,
    epochs::{self, Steps},
    names,
    pin::{self, micros},
    refs::{self, Head, NewEntry, Outcome},
    scratch,
};

/// What a collection may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GcOptions {
    /// Objects younger than this are never deleted, 24 hours by default. A transaction without a pin must be committed
    /// within it.
    pub grace: Duration,
    /// Every commit that was a branch's newest within this time is kept whole, also if the branch was reset or deleted
    /// since: 14 days by default. Readers that can't write pins are safe for so long.
    pub retention: Duration,
    /// Whether the tables of older commits, which branches still follow, are collected. The commits stay, and so do the
    /// tables that merging and comparing what is kept needs.
    pub expire: bool,
    /// Whether to find out and delete nothing.
    pub dry_run: bool,
}

impl Default for GcOptions {
    fn default() -> Self {
        let day = Duration::from_secs(24 * 3600);
        Self { grace: day, retention: 14 * day, expire: false, dry_run: false }
    }
}

impl GcOptions {
    /// These options with another grace.
    #[must_use]
    pub fn with_grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// These options with another retention.
    #[must_use]
    pub fn with_retention(mut self, retention: Duration) -> Self {
        self.retention = retention;
        self
    }

    /// These options, expiring commits older than the retention.
    #[must_use]
    pub fn expiring(mut self) -> Self {
        self.expire = true;
        self
    }

    /// These options as a dry run.
    #[must_use]
    pub fn dry(mut self) -> Self {
        self.dry_run = true;
        self
    }
}

/// What a collection found and deleted, or would.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GcReport {
    /// Its number; 0 for a dry run.
    pub epoch: u64,
    /// Commits that branches, tags and pins lead to.
    pub commits: u64,
    /// Those of them whose tables are not kept, by this and earlier collections.
    pub expired: u64,
    /// Pins that it honours.
    pub pins: u64,
    /// Objects that are kept because something leads to them.
    pub kept: u64,
    /// Objects that nothing leads to and that are too young to be deleted.
    pub young: u64,
    /// Objects that are deleted.
    pub garbage: u64,
    /// Their bytes.
    pub garbage_bytes: u64,
    /// How many of them are deleted by now.
    pub deleted: u64,
}

/// Requests in flight.
const CONCURRENCY: usize = 32;
/// Records of collections that are kept.
const RECORDS: u64 = 16;
/// Metadata objects that one collection drops at most, so that its verdict fits in an object; the next one goes on.
const DROPPED: usize = 500_000;

impl Lake {
    /// Deletes what nothing leads to. Calls `progress` now and then.
    ///
    /// Safe beside readers with pins and beside writers; it may be stopped at any point and run again.
    ///
    /// # Errors
    /// [`Error::CalledOff`] if another collection began meanwhile; [`Error::Missing`] or [`Error::Object`] if the lake is
    /// damaged; and what the store reports. Nothing was deleted then, unless the store failed while objects were deleted.
    pub async fn gc(&self, options: &GcOptions, mut progress: impl FnMut(&GcReport)) -> Result<GcReport> {
        let storage = self.storage();
        let (epoch, now) =
            if options.dry_run { (0, micros(SystemTime::now())) } else { start(storage, options.grace).await? };
        let age = |age: Duration| now.saturating_sub(age.as_micros().try_into().unwrap_or(i64::MAX));
        let listed = pin::list(storage).await?;
        if epoch > 0 {
            scratch::clear(self, &listed, now).await?;
        }
        let pins: Vec<_> = listed.into_iter().filter(|pin| pin.holds(now)).collect();
        if epoch > 0 {
            let pins = pins.iter().map(|pin| pin.pin.id).collect();
            if !epochs::claim(storage, epoch, &GcRecord::Pins { nonce: rand::random(), pins }).await? {
                return Err(Error::CalledOff { epoch });
            }
            fence(storage, epoch, false).await?;
        }
        self.reload_purges().await?;
        let mut cut = age(options.grace);
        for pin in &pins {
            cut = if pin.pin.orphans { i64::MIN } else { cut.min(pin.since()) };
        }
        let mut report = GcReport { epoch, pins: pins.len() as u64, ..GcReport::default() };
        // A commit that is too young to be deleted keeps what it leads to, also if it is too young for a pin.
        let history = History::load(self, &pins, age(options.retention.max(options.grace)).min(cut)).await?;
        let expired = history.expired(self, options.expire).await?;
        (report.commits, report.expired) = (history.len() as u64, expired.len() as u64);
        progress(&report);
        let marks = Marks::of(self, &history, &expired).await?;
        let garbage = self.garbage(&marks, cut, &mut report).await?;
        progress(&report);
        if epoch > 0 {
            give_verdict(storage, epoch, &garbage, expired).await?;
            sweep(storage, &garbage, &mut report, &mut progress).await?;
            tidy(storage, epoch, now, cut).await?;
        }
        Ok(report)
    }

    /// The objects that are neither marked nor young.
    async fn garbage(&self, marks: &Marks, cut: i64, report: &mut GcReport) -> Result<Vec<Entry>> {
        let mut garbage = Vec::new();
        let mut metas = 0;
        for folder in [names::META, names::DATA] {
            for entry in self.storage().list(folder).await? {
                if marks.contains(&entry.path) {
                    report.kept += 1;
                } else if micros(entry.modified) >= cut || (folder == names::META && metas == DROPPED) {
                    report.young += 1;
                } else {
                    metas += usize::from(folder == names::META);
                    report.garbage += 1;
                    report.garbage_bytes += entry.size;
                    garbage.push(entry);
                }
            }
        }
        Ok(garbage)
    }
}

/// Announces a collection; gives its number, and when it began by the store's clock.
pub(crate) async fn start(storage: &Storage, grace: Duration) -> Result<(u64, i64)> {
    loop {
        let steps = epochs::steps(storage).await?;
        // Verdicts are cumulative, so each earlier collection gets one first.
        for (epoch, taken) in &steps {
            if !taken.contains("verdict") {
                let steps = epochs::steps(storage).await?;
                epochs::call_off(storage, &steps, *epoch).await?;
            }
        }
        let epoch = steps.keys().next_back().copied().unwrap_or(0) + 1;
        let grace = grace.as_micros().try_into().unwrap_or(u64::MAX);
        if epochs::claim(storage, epoch, &GcRecord::Start { nonce: rand::random(), grace }).await? {
            let started = storage.head(&names::gc(epoch, "start")).await?.modified;
            return Ok((epoch, micros(started)));
        }
    }
}

/// Puts a fence into the log of every branch.
pub(crate) async fn fence(storage: &Storage, epoch: u64, purge: bool) -> Result<()> {
    let branches = storage.folders(names::HEADS).await?;
    stream::iter(branches)
        .map(|branch| async move {
            let Some(mut head) = refs::head(storage, &branch).await? else { return Ok(()) };
            while head.kind != RefKind::Delete && head.epoch < epoch {
                head = put_fence(storage, head, epoch, purge).await?;
            }
            Ok::<_, Error>(())
        })
        .buffer_unordered(CONCURRENCY)
        .try_collect()
        .await
}

/// Claims a fence behind `head`; gives the new end of the log.
async fn put_fence(storage: &Storage, head: Head, epoch: u64, purge: bool) -> Result<Head> {
    let sequence = head.sequence + 1;
    let embedded = commit::stored(storage, &head.pointer, &head.commit).await?;
    let (kind, commit) = (RefKind::Fence, head.pointer);
    let purged = if purge { epoch } else { head.purged };
    let entry = NewEntry { kind, commit, embedded, epoch, purged };
    match refs::claim(storage, &head.branch, sequence, entry).await? {
        Outcome::Ours => {
            refs::leave_hint(storage, &head.branch, sequence, &head.commit).await;
            Ok(Head { sequence, kind, epoch, purged, ..head })
        }
        Outcome::Theirs => refs::head_after(storage, &head.branch, sequence).await,
    }
}

/// A commit whose tables are kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kept {
    pub(crate) id: CommitId,
    /// Whether only a log or a pin leads to it: then some of what it leads to may have been collected.
    pub(crate) retained: bool,
}

/// All commits whose tables are kept: those that branches, tags and pins lead to, and then those that branches ever led to.
pub(crate) async fn commits(lake: &Lake) -> Result<Vec<Kept>> {
    let pins = pin::list(lake.storage()).await?;
    let history = History::load(lake, &pins, i64::MIN).await?;
    let expired = history.expired(lake, false).await?;
    let kept =
        [false, true].into_iter().flat_map(|retained| history.commits(retained).map(move |(id, _)| (id, retained)));
    Ok(kept.filter(|(id, _)| !expired.contains(id)).map(|(id, retained)| Kept { id, retained }).collect())
}

async fn give_verdict(storage: &Storage, epoch: u64, garbage: &[Entry], expired: HashSet<CommitId>) -> Result<()> {
    let id = |entry: &Entry| entry.path.strip_prefix(names::META)?.strip_prefix('/')?.parse().ok();
    let dropped = garbage.iter().filter_map(id).collect();
    let expired = expired.into_iter().collect();
    let verdict = GcRecord::Verdict { nonce: rand::random(), dropped, expired, called_off: false };
    if epochs::claim(storage, epoch, &verdict).await? { Ok(()) } else { Err(Error::CalledOff { epoch }) }
}

async fn sweep(
    storage: &Storage,
    garbage: &[Entry],
    report: &mut GcReport,
    progress: &mut impl FnMut(&GcReport),
) -> Result<()> {
    let mut deleted = stream::iter(garbage).map(|entry| storage.delete(&entry.path)).buffer_unordered(CONCURRENCY);
    while deleted.try_next().await?.is_some() {
        report.deleted += 1;
        progress(report);
    }
    Ok(())
}

/// Ends a collection, and every one before it: what they were to delete is gone. Removes records, pins and unfinished files
/// that nobody needs any more.
async fn tidy(storage: &Storage, epoch: u64, now: i64, cut: i64) -> Result<()> {
    let steps: Steps = epochs::steps(storage).await?;
    for (earlier, taken) in steps.range(..=epoch) {
        if !taken.contains("done") {
            epochs::claim(storage, *earlier, &GcRecord::Done { nonce: rand::random() }).await?;
        }
    }
    for (earlier, taken) in steps.range(..epoch.saturating_sub(RECORDS)) {
        // The start goes last: what has no start was never there.
        for step in taken.iter().rev() {
            storage.delete(&names::gc(*earlier, step)).await?;
        }
    }
    for pin in pin::list(storage).await? {
        let over = i64::try_from(pin.pin.lease).unwrap_or(i64::MAX).saturating_mul(2);
        if now.saturating_sub(pin.renewed) >= over.max(1) {
            storage.delete(&names::pin(pin.pin.id)).await?;
        }
    }
    for leftover in storage.leftovers()? {
        if micros(leftover.modified) < cut {
            storage.remove_leftover(&leftover.path)?;
        }
    }
    Ok(())
}
