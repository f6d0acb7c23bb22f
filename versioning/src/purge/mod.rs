//! Erasing rows from all history, where the law demands it: the one exception to what is committed never changing.
//!
//! Files that hold the rows are written anew without them, then a record makes every version read those and hide the rows,
//! then the old files are deleted. What other writers take over from old files meanwhile is found behind a fence in every
//! branch's log, and erased as well.

mod find;
mod records;
mod rewrite;

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use bytes::Bytes;
use find::Held;
use forebay_format::{
    FragmentId, PurgeId, RowSet, TableId,
    meta::{GcRecord, LakeMarker, Origins, Purge},
};
use forebay_storage::Claim;

pub(crate) use records::Purges;

use crate::{
    Error, GcOptions, Lake, Pin, Result, RowId, Selection, epochs, gc, lake::now, leaf::Side, manifest, names,
    pause::pause, pin,
};

/// What a purge did, or has done so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PurgeReport {
    /// Rows that are erased.
    pub rows: u64,
    /// Fragments, of all versions, that held them.
    pub fragments: u64,
    /// Files written anew.
    pub files: u64,
    /// Bytes of the files that were deleted.
    pub bytes: u64,
    /// Objects that nothing leads to and that are kept, as they were written since or somebody's pin may be about them: what others
    /// wrote and didn't commit, which may hold the rows. Once the pins are gone [`Lake::gc`] deletes them.
    pub unreachable: u64,
}

/// How often what others took over meanwhile is looked for.
const ROUNDS: u32 = 10;

impl Lake {
    /// Erases rows from every version of a table: all commits stay, and none has these rows any more. The bytes of the rows
    /// are gone when it returns; a record, [`Lake::purges`], says who did it, when, how much and why. What others wrote and haven't
    /// committed fails to be, and is deleted, as is all that nothing leads to.
    ///
    /// Handles that are open at a tag or commit find rows of the files in question missing and have to be opened again. Copies of the
    /// lake keep the rows until the purge is pushed to them, and caches on readers' disks until they are emptied.
    ///
    /// # Errors
    /// [`Error::PurgeContention`] if others keep writing these rows anew; as [`Lake::gc`]; and what reading and writing reports. What
    /// was stopped, [`finish_purges`](Self::finish_purges) brings to its end; if there is no record yet, no row is erased.
    pub async fn purge(
        &self,
        rows: &Selection,
        author: &str,
        reason: &str,
        mut progress: impl FnMut(&PurgeReport),
    ) -> Result<PurgeReport> {
        if rows.is_empty() {
            return Ok(PurgeReport::default());
        }
        let leaves = self.leaves(rows).await?;
        let what = What { table: rows.table().id(), leaves, author, reason, rows: rows.len() };
        self.erase(what, &mut progress).await
    }

    /// Finishes purges that were stopped: one whose record is written hides its rows already, and old files or what others took over
    /// from them may still hold their bytes.
    ///
    /// # Errors
    /// As [`purge`](Self::purge).
    pub async fn finish_purges(&self, mut progress: impl FnMut(&PurgeReport)) -> Result<Vec<PurgeReport>> {
        let mut tables: BTreeMap<TableId, (BTreeMap<FragmentId, RowSet>, Purge)> = BTreeMap::new();
        for purge in self.purges().await? {
            let (leaves, _) = tables.entry(purge.table).or_insert_with(|| (BTreeMap::new(), purge.clone()));
            for (fragment, rows) in purge.hidden {
                let all = leaves.entry(fragment).or_default();
                *all = all.union(&rows);
            }
        }
        let mut reports = Vec::new();
        for (table, (leaves, Purge { author, reason, rows, .. })) in tables {
            let what = What { table, leaves, author: &author, reason: &reason, rows };
            reports.push(self.erase(what, &mut progress).await?);
        }
        Ok(reports)
    }

    /// The records of all purges.
    ///
    /// # Errors
    /// [`Error::Object`] if one is damaged, and what the store reports.
    pub async fn purges(&self) -> Result<Vec<Purge>> {
        Ok(Purges::load(self.storage()).await?.records().to_vec())
    }

    async fn erase(&self, what: What<'_>, progress: &mut impl FnMut(&PurgeReport)) -> Result<PurgeReport> {
        // No record leads to the files that are written anew before it is written itself: a collection beside this must leave them.
        let pin = Pin::take(self, pin::Request { holder: "purge", ..pin::Request::default() }).await?;
        let erased = self.erase_pinned(&what, progress).await;
        pin.release().await;
        let mut report = erased?;
        // What others wrote for commits that they can't make any more, and what was written anew in vain.
        let everything = GcOptions::default().with_grace(Duration::ZERO).with_retention(Duration::MAX);
        for round in 1.. {
            match self.gc(&everything, |_| {}).await {
                // Another collection began, which may leave what this is about, or is under way.
                Err(error) if round < ROUNDS && (matches!(error, Error::CalledOff { .. }) || gone(&error)) => {
                    pause(round).await;
                }
                collected => {
                    report.unreachable = collected?.young;
                    break;
                }
            }
        }
        Ok(report)
    }

    async fn erase_pinned(&self, what: &What<'_>, progress: &mut impl FnMut(&PurgeReport)) -> Result<PurgeReport> {
        self.announce_purges().await?;
        let mut report = PurgeReport { rows: what.rows, ..PurgeReport::default() };
        let mut fenced = false;
        for round in 1..=ROUNDS {
            match self.round(what, fenced, &mut report, progress).await {
                Ok(true) => return Ok(report),
                Ok(false) => fenced = true,
                Err(error) if round < ROUNDS && gone(&error) => pause(round).await,
                Err(error) => return Err(error),
            }
        }
        Err(Error::PurgeContention { table: what.table, attempts: ROUNDS })
    }

    /// Erases what is found of the rows; gives whether nothing was, behind a fence.
    async fn round(
        &self,
        what: &What<'_>,
        fenced: bool,
        report: &mut PurgeReport,
        progress: &mut impl FnMut(&PurgeReport),
    ) -> Result<bool> {
        let known = self.reload_purges().await?.next();
        let held = self.holders(what.table, &what.leaves).await?;
        if held.is_empty() && fenced {
            // A file that wasn't there may be one that another purge has just replaced: by one that we haven't looked at.
            if self.reload_purges().await?.next() != known {
                return Ok(false);
            }
            self.delete_replaced(report, progress).await?;
            return Ok(true);
        }
        if !held.is_empty() {
            self.replace(what, held, report, progress).await?;
        }
        // What writers that began before this have prepared may hold the rows: they fail, or are seen in the next round.
        self.fence_all().await?;
        Ok(false)
    }

    /// Writes files anew, and the record that puts them in place of the old ones.
    async fn replace(
        &self,
        what: &What<'_>,
        held: Held,
        report: &mut PurgeReport,
        progress: &mut impl FnMut(&PurgeReport),
    ) -> Result<()> {
        report.fragments += held.hidden.len() as u64;
        let mut files = Vec::with_capacity(held.files.len());
        for (file, rows) in held.files.into_values() {
            files.push((file.id, self.rewrite(&file, &rows).await?));
            report.files += 1;
            progress(report);
        }
        // So that a purge that stopped can be finished: what is compacted from now on is known by where it came from.
        let mut hidden: BTreeMap<FragmentId, RowSet> = held.hidden.into_iter().collect();
        for (leaf, rows) in &what.leaves {
            let all = hidden.entry(*leaf).or_default();
            *all = all.union(rows);
        }
        let What { table, author, reason, rows, .. } = what;
        let (author, reason) = ((*author).to_owned(), (*reason).to_owned());
        let (id, hidden) = (PurgeId::random(), hidden.into_iter().collect());
        let purge = Purge { id, table: *table, author, reason, time: now(), rows: *rows, hidden, files };
        let path = names::purge(self.known_purges().next());
        match self.storage().claim(&path, Bytes::from(purge.encode()?)).await? {
            Claim::Ours => Ok(()),
            Claim::Theirs(_) => {
                // Another purge was first: what we wrote may hold what it erased. The next round looks again.
                for (_, file) in &purge.files {
                    self.storage().delete(&names::data(file.id)).await?;
                }
                Ok(())
            }
            Claim::Unknown(error) => Err(error.into()),
        }
    }

    /// Deletes the files that others took the place of.
    async fn delete_replaced(&self, report: &mut PurgeReport, progress: &mut impl FnMut(&PurgeReport)) -> Result<()> {
        for (file, _) in self.known_purges().records().iter().flat_map(|purge| &purge.files) {
            let path = names::data(*file);
            match self.storage().head(&path).await {
                Ok(entry) => report.bytes += entry.size,
                Err(error) if error.is_not_found() => continue,
                Err(error) => return Err(error.into()),
            }
            self.storage().delete(&path).await?;
            progress(report);
        }
        Ok(())
    }

    /// Makes the marker say that there are purges: a reader that knows nothing of them must not go on.
    pub(crate) async fn announce_purges(&self) -> Result<()> {
        let path = names::MARKER;
        let marker = LakeMarker::decode(&self.storage().get(path).await?).map_err(Error::object(path))?;
        if !marker.purges {
            let marker = LakeMarker { purges: true, ..marker };
            self.storage().put(path, Bytes::from(marker.encode()?)).await?;
        }
        Ok(())
    }

    /// Fences off all writers that began before; they fail if they prepared anything that may hold the rows.
    async fn fence_all(&self) -> Result<()> {
        let storage = self.storage();
        loop {
            let (epoch, _) = gc::start(storage, Duration::ZERO).await?;
            let none = GcRecord::Pins { nonce: rand::random(), pins: Vec::new() };
            if epochs::claim(storage, epoch, &none).await? {
                gc::fence(storage, epoch, true).await?;
            }
            let steps = epochs::steps(storage).await?;
            epochs::call_off(storage, &steps, epoch).await?;
            // A later collection may have fenced a branch before us, and then ours isn't there.
            if steps.keys().next_back() == Some(&epoch) {
                return Ok(());
            }
        }
    }

    /// The rows by the fragments that they were first written in.
    async fn leaves(&self, rows: &Selection) -> Result<BTreeMap<FragmentId, RowSet>> {
        let table = rows.table();
        let mut chosen: BTreeMap<FragmentId, Vec<u32>> = BTreeMap::new();
        for number in 0..rows.len() {
            let RowId { fragment, row } = table.row_id(rows.row(number)?)?;
            chosen.entry(fragment).or_default().push(row);
        }
        let mut leaves: BTreeMap<FragmentId, RowSet> = BTreeMap::new();
        for fragment in table.fragments() {
            let Some(rows) = chosen.remove(&fragment.id) else { continue };
            let rows = RowSet::of(rows);
            let side = self.side(fragment).await?;
            for origin in side.origins_of(0, &rows) {
                let all = leaves.entry(origin.fragment).or_default();
                *all = all.union(&origin.rows);
            }
        }
        Ok(leaves)
    }

    async fn side(&self, fragment: &forebay_format::meta::Fragment) -> Result<Side> {
        let mut origins: HashMap<FragmentId, Origins> = HashMap::new();
        if let Some(pointer) = &fragment.origins {
            origins.insert(fragment.id, manifest::origins(self, pointer).await?);
        }
        Ok(Side::new(vec![fragment.clone()], &origins))
    }
}

/// Whether a collection may have taken what was about to be looked at.
fn gone(error: &Error) -> bool {
    match error {
        Error::UnknownCommit { .. } | Error::Missing { .. } => true,
        Error::Storage(error) => error.is_not_found(),
        _ => false,
    }
}

/// What is to be erased, and what the record says of it.
struct What<'a> {
    table: TableId,
    leaves: BTreeMap<FragmentId, RowSet>,
    author: &'a str,
    reason: &'a str,
    rows: u64,
}
