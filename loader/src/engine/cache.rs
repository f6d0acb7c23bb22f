//! Which blocks are held or on their way, and how often each will still be used.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use super::atom::{Atom, AtomKey, Block};
use crate::{Error, Result};

/// Where a block arrives.
#[derive(Debug)]
pub(crate) struct Slot {
    content: OnceLock<Result<Arc<Block>, Failure>>,
    /// The request that brings it, for those who wait.
    request: Arc<str>,
}

/// Why blocks of one request didn't arrive. Several batches may ask.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    error: Arc<Mutex<Option<Error>>>,
    /// What went wrong, if it is the rows that are at fault.
    cause: Option<Arc<str>>,
}

impl Failure {
    pub(crate) fn new(error: Error) -> Self {
        let cause = error.is_of_row().then(|| error.to_string().into());
        Self { error: Arc::new(Mutex::new(Some(error))), cause }
    }

    /// What went wrong, if it is the rows that are at fault.
    pub(crate) fn cause(&self) -> Option<&Arc<str>> {
        self.cause.as_ref()
    }

    /// The error. It ends the epoch: the first batch in order takes it, and nobody asks a second time.
    pub(crate) fn into_error(self) -> Error {
        let error = self.error.lock().unwrap_or_else(PoisonError::into_inner).take();
        error.unwrap_or(Error::Died { thread: "fetch" })
    }
}

impl Slot {
    pub(crate) fn new(request: Arc<str>) -> Arc<Self> {
        Arc::new(Self { content: OnceLock::new(), request })
    }

    /// Where a block is already.
    pub(crate) fn holding(block: Arc<Block>) -> Arc<Self> {
        Arc::new(Self { content: Ok(block).into(), request: "".into() })
    }

    /// The block, `None` while it is on its way.
    pub(crate) fn get(&self) -> Result<Option<&Block>, Failure> {
        match self.content.get() {
            None => Ok(None),
            Some(Ok(block)) => Ok(Some(block)),
            Some(Err(failure)) => Err(failure.clone()),
        }
    }

    pub(crate) fn arrive(&self, block: Arc<Block>) {
        self.content.get_or_init(|| Ok(block));
    }

    /// The request failed. Blocks of it that were decoded before stay.
    pub(crate) fn fail(&self, failure: &Failure) {
        self.content.get_or_init(|| Err(failure.clone()));
    }

    pub(crate) fn request(&self) -> &str {
        &self.request
    }
}

/// The blocks of an epoch.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    entries: HashMap<AtomKey, Entry>,
    /// Blocks that nobody has announced a use of, but whose other rows may come: oldest first. Some are in use again.
    idle: VecDeque<AtomKey>,
}

#[derive(Debug)]
struct Entry {
    slot: Option<Arc<Slot>>,
    /// Announced uses to come.
    uses: u32,
    /// Rows in it that weren't used this epoch.
    unused: u32,
    /// Whether it is among the idle ones.
    queued: bool,
}

impl Cache {
    /// Announces a use of `atom`. Gives whether it has to be requested: then [`requested`](Self::requested) must follow.
    pub(crate) fn announce(&mut self, atom: &Atom) -> bool {
        let fresh = Entry { slot: None, uses: 0, unused: atom.rows.len() as u32, queued: false };
        let entry = self.entries.entry(atom.key).or_insert(fresh);
        entry.uses += 1;
        entry.slot.is_none() && entry.uses == 1
    }

    /// Whether a block is there or on its way.
    pub(crate) fn holds(&self, key: &AtomKey) -> bool {
        self.entries.contains_key(key)
    }

    /// Whether uses of all rows of a block that weren't used yet are announced.
    pub(crate) fn wanted_whole(&self, key: &AtomKey) -> bool {
        self.entries.get(key).is_some_and(|entry| entry.uses >= entry.unused)
    }

    /// Notes where a requested block will arrive.
    pub(crate) fn requested(&mut self, key: &AtomKey, slot: Arc<Slot>) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.slot = Some(slot);
        }
    }

    /// Makes one of the announced uses. After the last one the block is forgotten, or kept for its other rows as long as
    /// there is room.
    pub(crate) fn take(&mut self, key: &AtomKey) -> Option<Arc<Slot>> {
        let entry = self.entries.get_mut(key)?;
        let slot = entry.slot.clone();
        entry.uses = entry.uses.saturating_sub(1);
        entry.unused = entry.unused.saturating_sub(1);
        if entry.uses == 0 {
            if entry.unused == 0 {
                self.entries.remove(key);
            } else if !std::mem::replace(&mut entry.queued, true) {
                self.idle.push_back(*key);
            }
        }
        slot
    }

    /// Forgets the block that has been idle for longest. Gives whether there was one.
    pub(crate) fn evict(&mut self) -> bool {
        while let Some(key) = self.idle.pop_front() {
            let Some(entry) = self.entries.get_mut(&key) else { continue };
            entry.queued = false;
            if entry.uses == 0 {
                self.entries.remove(&key);
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn atom(block: u32, rows: u32) -> Atom {
        let key = AtomKey { column: 0, fragment: 0, validity: false, block };
        Atom { key, blocks: 0..1, rows: 0..rows, stored: 0..1, raw: 1, in_place: true }
    }

    #[test]
    fn a_block_is_requested_once_and_forgotten_after_its_last_row() {
        let (mut cache, atom) = (Cache::default(), atom(3, 2));
        assert!(cache.announce(&atom));
        cache.requested(&atom.key, Slot::new("request".into()));
        assert!(!cache.announce(&atom));
        assert!(cache.take(&atom.key).is_some());
        assert!(cache.take(&atom.key).is_some());
        assert!(cache.take(&atom.key).is_none());
        assert!(!cache.evict());
        assert!(cache.announce(&atom), "another pass requests it again");
    }

    #[test]
    fn a_block_with_rows_to_come_is_kept_until_there_is_no_room() {
        let (mut cache, atom) = (Cache::default(), atom(3, 5));
        assert!(cache.announce(&atom));
        cache.requested(&atom.key, Slot::new("request".into()));
        assert!(cache.take(&atom.key).is_some());
        assert!(!cache.announce(&atom), "kept");
        assert!(!cache.evict(), "in use");
        for _ in 0..2 {
            assert!(cache.take(&atom.key).is_some());
            assert!(!cache.announce(&atom));
        }
        assert!(cache.take(&atom.key).is_some());
        assert_eq!(cache.idle.len(), 1, "listed once however often it was idle");
        assert!(cache.evict());
        assert!(cache.announce(&atom));
    }
}
