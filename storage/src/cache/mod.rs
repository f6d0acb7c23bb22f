//! Caches of what was read across a network: in memory, and on a local disk that the processes of a machine share.
//!
//! Only ranges are kept, since they are only asked of objects that never change. A range is cut where multiples of [`PAGE`]
//! lie, and each piece is kept under a name of its own: no byte is read that was not asked for, and what is asked again in
//! other runs is found again but for their ends. A cache is never in the way: whatever fails in it is a miss.

mod disk;
mod entry;
mod victims;

use std::collections::HashMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use bytes::Bytes;
use tokio::sync::Semaphore;

use disk::Disk;
use entry::Name;

/// Where ranges are cut.
pub(crate) const PAGE: u64 = 512 << 10;

/// The most bytes that wait to be written to the disk; what comes on top is not kept.
const WAITING: usize = 64 << 20;

/// How much is kept, and where.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// Bytes in memory; 0 for none.
    pub(crate) memory: u64,
    /// The folder on a disk, and the bytes that it may hold.
    pub(crate) disk: Option<(PathBuf, u64)>,
}

/// What the caches of a storage did so far in this process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheStats {
    /// Pieces found in memory.
    pub memory_hits: u64,
    /// Pieces found on the disk.
    pub disk_hits: u64,
    /// Pieces found nowhere.
    pub misses: u64,
    /// Bytes that came from a cache.
    pub hit_bytes: u64,
    /// Pieces written to the disk.
    pub stored: u64,
    /// Files removed to make room.
    pub evicted: u64,
    /// Files that were damaged, and were removed.
    pub damaged: u64,
    /// Pieces that could not be written, or were not because too many waited.
    pub not_stored: u64,
}

/// The counters behind [`CacheStats`].
#[derive(Debug, Default)]
struct Counts {
    memory_hits: AtomicU64,
    disk_hits: AtomicU64,
    misses: AtomicU64,
    hit_bytes: AtomicU64,
    stored: AtomicU64,
    evicted: AtomicU64,
    damaged: AtomicU64,
    not_stored: AtomicU64,
}

/// When pieces will be read, as far as it is known.
#[derive(Debug, Default)]
pub(crate) struct Future {
    /// The places of each piece in the order of reads, ascending.
    places: HashMap<Name, Vec<u64>>,
    /// The place of the newest read.
    now: AtomicU64,
}

impl Future {
    /// How many reads from now a piece is read; `None` if it is not known to be read again.
    fn until(&self, name: Name) -> Option<u64> {
        let now = self.now.load(Ordering::Relaxed);
        self.next(name, now).map(|place| place - now)
    }

    /// How many reads from now a piece is read that is not held yet: at the end of time, if it is not known to be read again;
    /// `None` if nothing is known at all.
    fn worth(&self, name: Name) -> Option<u64> {
        (!self.places.is_empty()).then(|| self.until(name).unwrap_or(u64::MAX))
    }

    fn next(&self, name: Name, now: u64) -> Option<u64> {
        let places = self.places.get(&name)?;
        places.get(places.partition_point(|place| *place <= now)).copied()
    }

    fn read(&self, name: Name) {
        if let Some(place) = self.next(name, self.now.load(Ordering::Relaxed)) {
            self.now.fetch_max(place, Ordering::Relaxed);
        }
    }
}

/// The caches of one storage in one process.
#[derive(Debug)]
pub(crate) struct Cache {
    /// What tells this storage's objects from those of others.
    url: String,
    memory: Option<moka::sync::Cache<Name, Bytes>>,
    disk: Option<Arc<Disk>>,
    /// Room for what waits to be written.
    waiting: Arc<Semaphore>,
    /// How often the bytes of an object were found to be wrong; part of the names of its pieces.
    wrong: RwLock<HashMap<String, u32>>,
    future: Mutex<Arc<Future>>,
    counts: Arc<Counts>,
}

/// A piece of a range: which bytes of the object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) bytes: Range<u64>,
    name: Name,
}

impl Piece {
    fn len(&self) -> u64 {
        self.bytes.end - self.bytes.start
    }
}

impl Cache {
    /// Makes the caches, if there are to be some.
    pub(crate) fn new(url: &str, sizes: &Sizes) -> Option<Self> {
        if sizes == &Sizes::default() {
            return None;
        }
        let counts = Arc::<Counts>::default();
        let memory = (sizes.memory > 0).then(|| {
            let weigh = |_: &Name, bytes: &Bytes| u32::try_from(bytes.len()).unwrap_or(u32::MAX);
            moka::sync::Cache::builder().max_capacity(sizes.memory).weigher(weigh).build()
        });
        let disk = sizes.disk.as_ref().map(|(folder, size)| Arc::new(Disk::new(folder, *size)));
        Some(Self {
            url: url.to_owned(),
            memory,
            disk,
            waiting: Arc::new(Semaphore::new(WAITING)),
            wrong: RwLock::default(),
            future: Mutex::default(),
            counts,
        })
    }

    /// Cuts a range into pieces.
    pub(crate) fn pieces(&self, path: &str, range: &Range<u64>) -> Vec<Piece> {
        let wrong = self.wrong.read().unwrap_or_else(PoisonError::into_inner).get(path).copied().unwrap_or(0);
        cut(range).map(|bytes| Piece { name: Name::of(&self.url, path, &bytes, wrong), bytes }).collect()
    }

    /// What is held of pieces, in their order.
    pub(crate) async fn find(&self, pieces: &[Piece]) -> Vec<Option<Bytes>> {
        let future = self.future();
        pieces.iter().for_each(|piece| future.read(piece.name));
        let in_memory = |piece: &Piece| self.memory.as_ref().and_then(|memory| memory.get(&piece.name));
        let mut found: Vec<Option<Bytes>> = pieces.iter().map(in_memory).collect();
        let count = |count: &AtomicU64, n: usize| count.fetch_add(n as u64, Ordering::Relaxed);
        count(&self.counts.memory_hits, found.iter().flatten().count());
        let missing: Vec<usize> = (0..pieces.len()).filter(|i| found[*i].is_none()).collect();
        let disk = self.disk.clone().filter(|_| !missing.is_empty());
        if let Some(disk) = disk {
            let (wanted, counts): (Vec<Piece>, _) =
                (missing.iter().map(|i| pieces[*i].clone()).collect(), self.counts.clone());
            let look =
                move || wanted.iter().map(|piece| disk.read(piece.name, piece.len(), &counts)).collect::<Vec<_>>();
            let on_disk = tokio::task::spawn_blocking(look).await.unwrap_or_default();
            count(&self.counts.disk_hits, on_disk.iter().flatten().count());
            for (i, bytes) in missing.into_iter().zip(on_disk) {
                found[i] = bytes;
                if let (Some(memory), Some(bytes)) = (&self.memory, &found[i]) {
                    memory.insert(pieces[i].name, bytes.clone());
                }
            }
        }
        count(&self.counts.misses, found.iter().filter(|found| found.is_none()).count());
        count(&self.counts.hit_bytes, found.iter().flatten().map(Bytes::len).sum());
        found
    }

    /// Keeps a piece that was fetched. Does not wait for the disk.
    pub(crate) fn keep(&self, piece: &Piece, bytes: &[u8]) {
        let name = piece.name;
        // A copy: a part of what was fetched would hold all of it in memory.
        let bytes = Bytes::copy_from_slice(bytes);
        if let Some(memory) = &self.memory {
            memory.insert(name, bytes.clone());
        }
        let Some(disk) = self.disk.clone() else { return };
        let room = u32::try_from(bytes.len().min(WAITING)).unwrap_or(u32::MAX);
        let Ok(room) = self.waiting.clone().try_acquire_many_owned(room) else {
            self.counts.not_stored.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let (future, counts) = (self.future(), self.counts.clone());
        tokio::task::spawn_blocking(move || {
            disk.write(name, &bytes, &future, &counts);
            drop(room);
        });
    }

    fn future(&self) -> Arc<Future> {
        self.future.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether it matters what will be read.
    pub(crate) fn foresees(&self) -> bool {
        self.disk.is_some()
    }

    /// Takes in what will be read, in order.
    pub(crate) fn foresee<'a>(&self, reads: impl IntoIterator<Item = (&'a str, Range<u64>)>) {
        let mut future = Future::default();
        for (place, (path, range)) in (1..).zip(reads) {
            for piece in self.pieces(path, &range) {
                future.places.entry(piece.name).or_default().push(place);
            }
        }
        *self.future.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(future);
    }

    /// Takes in that the bytes of an object were wrong: what is held of it is not given out again.
    pub(crate) fn distrust(&self, path: &str) {
        let mut wrong = self.wrong.write().unwrap_or_else(PoisonError::into_inner);
        *wrong.entry(path.to_owned()).or_default() += 1;
    }

    pub(crate) fn stats(&self) -> CacheStats {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let counts = &self.counts;
        CacheStats {
            memory_hits: of(&counts.memory_hits),
            disk_hits: of(&counts.disk_hits),
            misses: of(&counts.misses),
            hit_bytes: of(&counts.hit_bytes),
            stored: of(&counts.stored),
            evicted: of(&counts.evicted),
            damaged: of(&counts.damaged),
            not_stored: of(&counts.not_stored),
        }
    }
}

/// The parts of a range between multiples of [`PAGE`].
fn cut(range: &Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let (mut at, end) = (range.start, range.end);
    std::iter::from_fn(move || {
        let start = at;
        at = (start / PAGE).saturating_add(1).saturating_mul(PAGE).min(end);
        (start < end).then_some(start..at)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_cut_where_pages_begin_and_nowhere_else() {
        let pieces = |range| cut(&range).collect::<Vec<_>>();
        assert_eq!(pieces(5..5), []);
        assert_eq!(pieces(5..PAGE), [5..PAGE]);
        assert_eq!(pieces(0..2 * PAGE), [0..PAGE, PAGE..2 * PAGE]);
        assert_eq!(pieces(PAGE - 1..2 * PAGE + 1), [PAGE - 1..PAGE, PAGE..2 * PAGE, 2 * PAGE..2 * PAGE + 1]);
        assert_eq!(pieces(u64::MAX - 1..u64::MAX), [u64::MAX - 1..u64::MAX]);
    }

    #[test]
    fn the_next_read_of_a_piece_is_counted_from_the_newest_read() {
        let sizes = Sizes { memory: 1, disk: None };
        let Some(cache) = Cache::new("x", &sizes) else { return };
        cache.foresee([("a", 0..1), ("b", 0..1), ("a", 0..1), ("c", 0..1)]);
        let name = |path| cache.pieces(path, &(0..1))[0].name;
        let future = cache.future();
        assert_eq!(
            [future.until(name("a")), future.until(name("c")), future.until(name("d"))],
            [Some(1), Some(4), None]
        );
        future.read(name("b"));
        assert_eq!(
            [future.until(name("a")), future.until(name("b")), future.until(name("c"))],
            [Some(1), None, Some(2)]
        );
        assert_eq!([future.worth(name("b")), Future::default().worth(name("b"))], [Some(u64::MAX), None]);
    }
}
