//! Branches that a transaction of several commits works on: they are seen by nobody else, and don't outlive their process for long.
//!
//! A scratch branch is named in a pin that is written before it and removed after it. So a pin whose lease is over says which branch
//! a process that died left behind.

use std::time::Duration;

use forebay_format::CommitId;

use crate::{
    At, Error, Lake, Pin, Result, names,
    pin::{self, Listed},
};

/// A branch of its own, at the commits of another until it moves on. [`Lake::branches`] doesn't list it. End it by
/// [`end`](Scratch::end); one that is dropped is removed by the next [`Lake::scratch`] or [`Lake::gc`] after its lease.
#[derive(Debug)]
pub struct Scratch {
    lake: Lake,
    branch: String,
    pin: Pin,
}

impl Lake {
    /// Makes a branch for a transaction of several commits, which [`Lake::merge`] brings to where they are for. Removes those whose
    /// holders have been gone for their `lease`.
    ///
    /// # Errors
    /// As [`Lake::pin`] and [`Lake::create_branch`].
    pub async fn scratch(&self, from: &At, lease: Duration) -> Result<Scratch> {
        let branch = names::scratch(CommitId::random());
        let (snapshot, pin) = self.pin(from, lease, &branch).await?;
        let pins = pin::list(self.storage()).await?;
        // By the store's clock it is now when our own pin was written.
        if let Some(own) = pins.iter().find(|listed| listed.pin.id == pin.id()) {
            clear(self, &pins, own.renewed).await?;
        }
        if !self.point_new(&branch, &snapshot, pin.epoch()).await? {
            return Err(Error::BranchExists { name: branch });
        }
        Ok(Scratch { lake: self.clone(), branch, pin })
    }
}

impl Scratch {
    /// Its name, for [`Lake::begin`], [`Lake::snapshot`] and [`Lake::merge`].
    #[must_use]
    pub fn branch(&self) -> &str {
        &self.branch
    }

    /// Removes it.
    ///
    /// # Errors
    /// As [`Lake::delete_branch`]; it is removed later then.
    pub async fn end(self) -> Result<()> {
        removed(&self.lake, &self.branch).await?;
        self.pin.release().await;
        Ok(())
    }
}

/// Removes the branches of holders that are gone, at a time of the store's clock.
pub(crate) async fn clear(lake: &Lake, pins: &[Listed], now: i64) -> Result<()> {
    for Listed { pin, .. } in pins.iter().filter(|listed| !listed.holds(now) && names::is_scratch(&listed.pin.holder)) {
        tracing::info!(branch = %pin.holder, "a transaction's process is gone: its branch is removed");
        removed(lake, &pin.holder).await?;
        lake.storage().delete(&names::pin(pin.id)).await?;
    }
    Ok(())
}

async fn removed(lake: &Lake, branch: &str) -> Result<()> {
    match lake.delete_branch(branch).await {
        Err(Error::UnknownBranch { .. }) => Ok(()),
        done => done,
    }
}
