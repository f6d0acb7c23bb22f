//! Collections of garbage as everybody else sees them: the records in `gc/`, and whether a commit is safe from them.
//!
//! A collection claims `gc/<n>/start`, then lists the pins and claims `gc/<n>/pins`, puts a fence into every branch, finds
//! out what is reachable and claims `gc/<n>/verdict`; then it deletes, and claims `gc/<n>/done`. So whoever writes a pin and
//! *then* lists `gc/` knows where he is: a collection that begins later honours the pin; one that is over says by the
//! commit's presence whether it is kept; one under way has listed the pin, or its verdict says what it takes. A collection
//! that stopped before its verdict is called off by claiming the verdict in its place.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use forebay_format::{CommitId, ObjectId, PinId, meta::GcRecord};
use forebay_storage::{Claim, Storage};
use tokio::time::Instant;

use crate::{Error, Result, names};

/// How long a collection may take between its start and its verdict before somebody who waits for it calls it off.
const PATIENCE: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(50);

/// The collections there are records of, by number: the steps that they took.
pub(crate) type Steps = BTreeMap<u64, BTreeSet<&'static str>>;

const STEPS: [&str; 4] = ["start", "pins", "verdict", "done"];

/// What collections took steps, from one listing.
pub(crate) async fn steps(storage: &Storage) -> Result<Steps> {
    let mut steps = Steps::new();
    for entry in storage.list(names::GC).await? {
        let mut parts = entry.path.rsplit('/');
        let (step, epoch) = (parts.next(), parts.next().and_then(|epoch| epoch.parse::<u64>().ok()));
        if let (Some(step), Some(epoch)) = (STEPS.iter().find(|known| Some(**known) == step), epoch) {
            steps.entry(epoch).or_default().insert(step);
        }
    }
    Ok(steps)
}

/// A record, if it is there.
pub(crate) async fn record(storage: &Storage, epoch: u64, step: &str) -> Result<Option<GcRecord>> {
    let path = names::gc(epoch, step);
    match storage.get(&path).await {
        Ok(bytes) => GcRecord::decode(&bytes).map_err(Error::object(path)).map(Some),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Claims a record; gives whether it is ours.
pub(crate) async fn claim(storage: &Storage, epoch: u64, record: &GcRecord) -> Result<bool> {
    match storage.claim(&names::gc(epoch, record.step()), Bytes::from(record.encode()?)).await? {
        Claim::Ours => Ok(true),
        Claim::Theirs(_) => Ok(false),
        Claim::Unknown(error) => Err(error.into()),
    }
}

/// What a collection takes.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    pub(crate) dropped: HashSet<ObjectId>,
    /// Of this collection and all before it.
    pub(crate) expired: HashSet<CommitId>,
    pub(crate) called_off: bool,
}

pub(crate) async fn verdict(storage: &Storage, epoch: u64) -> Result<Option<Verdict>> {
    Ok(match record(storage, epoch, "verdict").await? {
        Some(GcRecord::Verdict { dropped, expired, called_off, .. }) => Some(Verdict {
            dropped: dropped.into_iter().map(CommitId::cast).collect(),
            expired: expired.into_iter().collect(),
            called_off,
        }),
        _ => None,
    })
}

/// The commits whose tables were collected.
pub(crate) async fn expired(storage: &Storage) -> Result<HashSet<CommitId>> {
    newest_expired(storage, &steps(storage).await?).await
}

async fn newest_expired(storage: &Storage, steps: &Steps) -> Result<HashSet<CommitId>> {
    match steps.iter().rev().find(|(_, taken)| taken.contains("verdict")) {
        Some((epoch, _)) => Ok(verdict(storage, *epoch).await?.unwrap_or_default().expired),
        None => Ok(HashSet::new()),
    }
}

/// Claims the verdict of a collection that has none: it deletes nothing. All earlier ones must have theirs.
pub(crate) async fn call_off(storage: &Storage, steps: &Steps, epoch: u64) -> Result<()> {
    let before = steps.range(..epoch).map(|(epoch, taken)| (*epoch, taken.clone())).collect();
    let expired = newest_expired(storage, &before).await?.into_iter().collect();
    let record = GcRecord::Verdict { nonce: rand::random(), dropped: Vec::new(), expired, called_off: true };
    if claim(storage, epoch, &record).await? {
        tracing::warn!(epoch, "a collection of garbage that gave no verdict was called off");
    }
    Ok(())
}

/// What a pin that was just written is to protect.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    pub(crate) pin: Option<PinId>,
    pub(crate) commits: Vec<CommitId>,
    /// Collections up to this one can't take them.
    pub(crate) safe: u64,
    /// Whether also what no commit leads to is to stay.
    pub(crate) orphans: bool,
}

/// Waits until no collection can take what a pin, already written, protects. Gives the newest collection.
///
/// # Errors
/// [`Error::Collected`] if one takes or took it; [`Error::Collecting`] if one that was under way, and deletes what no
/// commit leads to, doesn't come to an end.
pub(crate) async fn settle(storage: &Storage, wanted: &Wanted) -> Result<u64> {
    let began = Instant::now();
    loop {
        let steps = steps(storage).await?;
        let newest = steps.keys().next_back().copied().unwrap_or(0);
        let expired = newest_expired(storage, &steps).await?;
        if let Some(commit) = wanted.commits.iter().find(|commit| expired.contains(commit)) {
            return Err(Error::Expired { commit: *commit });
        }
        let mut waits = None;
        for (epoch, taken) in steps.range(wanted.safe + 1..).filter(|(_, taken)| !taken.contains("done")) {
            if honours(storage, *epoch, wanted.pin).await? == Some(true) {
                continue;
            }
            match verdict(storage, *epoch).await? {
                Some(verdict) if verdict.called_off => {}
                Some(verdict) => {
                    if let Some(commit) = wanted.commits.iter().find(|commit| verdict.dropped.contains(&commit.cast()))
                    {
                        return Err(Error::Collected { commit: *commit });
                    }
                    if wanted.orphans {
                        waits = Some(*epoch);
                    }
                }
                None if taken.contains("start") && began.elapsed() >= PATIENCE => {
                    call_off(storage, &steps, *epoch).await?;
                }
                None => waits = Some(*epoch),
            }
        }
        match waits {
            None => return Ok(newest),
            Some(epoch) if began.elapsed() >= 3 * PATIENCE => return Err(Error::Collecting { epoch }),
            Some(_) => tokio::time::sleep(POLL).await,
        }
    }
}

/// Whether a collection lists a pin among those it honours; `None` if it hasn't said yet, or its records are gone.
async fn honours(storage: &Storage, epoch: u64, pin: Option<PinId>) -> Result<Option<bool>> {
    Ok(match record(storage, epoch, "pins").await? {
        Some(GcRecord::Pins { pins, .. }) => Some(pin.is_some_and(|pin| pins.contains(&pin))),
        _ => None,
    })
}

/// When something began that will be committed, by two clocks: one that stands still while a machine sleeps, and one that
/// may be set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begun {
    monotonic: Instant,
    wall: SystemTime,
    /// The newest collection that its branch knew of.
    pub(crate) epoch: u64,
}

impl Begun {
    pub(crate) fn now(epoch: u64) -> Self {
        Self { monotonic: Instant::now(), wall: SystemTime::now(), epoch }
    }

    fn elapsed(&self) -> Duration {
        self.monotonic.elapsed().max(self.wall.elapsed().unwrap_or_default())
    }

    /// Both as one: what was begun first.
    pub(crate) fn earlier(self, other: Self) -> Self {
        Self {
            monotonic: self.monotonic.min(other.monotonic),
            wall: self.wall.min(other.wall),
            epoch: self.epoch.min(other.epoch),
        }
    }

    /// Checks that no collection up to `epoch` can have taken files that were written since: they are younger than its
    /// grace, or it honours our pin.
    ///
    /// # Errors
    /// [`Error::Fenced`].
    pub(crate) async fn survives(
        &mut self,
        storage: &Storage,
        branch: &str,
        epoch: u64,
        pin: Option<PinId>,
    ) -> Result<()> {
        for epoch in self.epoch + 1..=epoch {
            let grace = match record(storage, epoch, "start").await? {
                Some(GcRecord::Start { grace, .. }) => Duration::from_micros(grace),
                _ => Duration::ZERO,
            };
            // A tenth for clocks that run at different rates.
            let young = self.elapsed() < grace.mul_f64(0.9);
            if !young && honours(storage, epoch, pin).await? != Some(true) {
                return Err(Error::Fenced { branch: branch.to_owned(), epoch, grace });
            }
        }
        self.epoch = self.epoch.max(epoch);
        Ok(())
    }
}
