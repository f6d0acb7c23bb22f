//! Pins: promises that commits stay whole while somebody uses them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use forebay_format::{PinId, meta};
use forebay_storage::Storage;
use tokio::time::Instant;

use crate::{At, Error, Lake, Result, Snapshot, commit, epochs, lake, names};

/// How long a pin holds after it was last renewed, if nothing else is said.
pub const DEFAULT_LEASE: Duration = Duration::from_secs(600);

/// Keeps commits whole, and what was written since, through all collections of garbage: an object in the lake that is
/// renewed in the background, and holds for its lease once that stops. End it by [`release`](Pin::release); a pin that is
/// dropped ends with its lease.
#[derive(Debug)]
pub struct Pin {
    storage: Storage,
    pin: meta::Pin,
    epoch: u64,
    renewal: tokio::task::JoinHandle<()>,
}

/// What a new pin is about.
#[derive(Debug, Default)]
pub(crate) struct Request<'a> {
    pub(crate) commits: Vec<&'a Snapshot>,
    pub(crate) lease: Option<Duration>,
    pub(crate) holder: &'a str,
    /// Collections up to this one can't take the commits.
    pub(crate) safe: u64,
    pub(crate) orphans: bool,
}

impl Lake {
    /// Keeps a version whole, and what is written from now on, for as long as the pin is held and `lease` longer.
    ///
    /// # Errors
    /// [`Error::Collected`] or [`Error::Expired`] if a collection of garbage takes or took the version; and as
    /// [`Lake::snapshot`]. It takes permission to write.
    pub async fn pin(&self, at: &At, lease: Duration, holder: &str) -> Result<(Snapshot, Pin)> {
        let (snapshot, safe) = lake::find_safe(self, at).await?;
        let request = Request { commits: vec![&snapshot], lease: Some(lease), holder, safe, orphans: false };
        let pin = Pin::take(self, request).await?;
        Ok((snapshot, pin))
    }

    /// A version that stays whole until its pin is released: for those who make something point at it.
    pub(crate) async fn protect(&self, at: &At) -> Result<(Snapshot, Pin)> {
        self.pin(at, DEFAULT_LEASE, "").await
    }
}

impl Pin {
    /// Writes a pin, then makes sure that no collection under way takes what it is about.
    pub(crate) async fn take(lake: &Lake, request: Request<'_>) -> Result<Self> {
        let storage = lake.storage();
        let lease = request.lease.unwrap_or(DEFAULT_LEASE);
        let pin = meta::Pin {
            id: PinId::random(),
            commits: request.commits.iter().map(|commit| commit.pointer()).collect(),
            lease: lease.as_micros().try_into().unwrap_or(u64::MAX),
            since: 0,
            orphans: request.orphans,
            holder: request.holder.to_owned(),
        };
        storage.put(&names::pin(pin.id), Bytes::from(pin.encode()?)).await?;
        let renewal = tokio::spawn(keep(storage.clone(), pin.clone(), lease));
        let mut held = Self { storage: storage.clone(), pin, epoch: 0, renewal };
        match held.settle(&request).await {
            Ok(epoch) => {
                held.epoch = epoch;
                // Who makes something point at a commit must know what was erased from it.
                lake.know(epoch).await?;
                Ok(held)
            }
            Err(error) => {
                held.release().await;
                Err(error)
            }
        }
    }

    async fn settle(&self, request: &Request<'_>) -> Result<u64> {
        let commits = request.commits.iter().map(|commit| commit.id()).collect();
        let wanted = epochs::Wanted { pin: Some(self.id()), commits, safe: request.safe, orphans: request.orphans };
        let epoch = epochs::settle(&self.storage, &wanted).await?;
        // A collection that is over took the commits' objects, or it took nothing of them.
        for snapshot in &request.commits {
            match self.storage.head(&names::meta(snapshot.id())).await {
                Ok(_) => {}
                Err(error) if error.is_not_found() => return Err(Error::Collected { commit: snapshot.id() }),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(epoch)
    }

    /// Its identity.
    #[must_use]
    pub fn id(&self) -> PinId {
        self.pin.id
    }

    /// The newest collection that can't take its commits.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Ends it. If the store fails, it ends with its lease.
    pub async fn release(self) {
        self.renewal.abort();
        let path = names::pin(self.pin.id);
        if let Err(error) = self.storage.delete(&path).await {
            tracing::warn!(%path, %error, "a pin was not removed: it ends with its lease");
        }
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.renewal.abort();
    }
}

/// Renews a pin three times a lease, until its holder drops it or it is lost.
async fn keep(storage: Storage, mut pin: meta::Pin, lease: Duration) {
    let path = names::pin(pin.id);
    let mut renewed = Instant::now();
    loop {
        tokio::time::sleep(lease / 3).await;
        if let Err(error) = renew(&storage, &path, &mut pin).await {
            if renewed.elapsed() >= lease {
                tracing::error!(%path, %error, "a pin was not renewed within its lease: what it kept may be collected");
                return;
            }
            tracing::warn!(%path, %error, "a pin was not renewed: trying again");
        } else {
            renewed = Instant::now();
        }
    }
}

async fn renew(storage: &Storage, path: &str, pin: &mut meta::Pin) -> Result<()> {
    if pin.since == 0 {
        pin.since = micros(storage.head(path).await?.modified);
    }
    Ok(storage.put(path, Bytes::from(pin.encode()?)).await?)
}

/// Microseconds since 1970 UTC.
pub(crate) fn micros(time: SystemTime) -> i64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_micros().try_into().unwrap_or(i64::MAX)
}

/// A pin as a listing shows it.
pub(crate) struct Listed {
    pub(crate) pin: meta::Pin,
    /// When it was last written, by the store's clock.
    pub(crate) renewed: i64,
}

impl Listed {
    /// Whether it holds at a time of the store's clock.
    pub(crate) fn holds(&self, now: i64) -> bool {
        now.saturating_sub(self.renewed) < i64::try_from(self.pin.lease).unwrap_or(i64::MAX)
    }

    /// What was written since then is kept.
    pub(crate) fn since(&self) -> i64 {
        if self.pin.since == 0 { self.renewed } else { self.pin.since.min(self.renewed) }
    }
}

/// All pins.
pub(crate) async fn list(storage: &Storage) -> Result<Vec<Listed>> {
    let mut pins = Vec::new();
    for entry in storage.list(names::PINS).await? {
        match storage.get(&entry.path).await {
            Ok(bytes) => {
                let pin = meta::Pin::decode(&bytes).map_err(Error::object(&entry.path))?;
                pins.push(Listed { pin, renewed: micros(entry.modified) });
            }
            // Released meanwhile.
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(pins)
}

/// A parent of a commit as a version of its own.
pub(crate) async fn parent(lake: &Lake, of: &Snapshot) -> Result<Snapshot> {
    match of.commit().parents.first() {
        Some(pointer) => {
            let parent = commit::load(lake.storage(), pointer, &format!("commit {}", of.id())).await?;
            Ok(Snapshot::new(lake.clone(), parent.id, *pointer, parent))
        }
        None => Err(Error::Misuse { reason: format!("commit {} is the first: it changed nothing", of.id()) }),
    }
}
