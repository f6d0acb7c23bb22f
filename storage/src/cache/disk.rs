//! Pieces on a local disk, shared by the processes of a machine.
//!
//! ```text
//! <folder>/forebay-cache-1/layout            how many folders there are
//! <folder>/forebay-cache-1/<n>/lock          locked while files come and go; holds the sum of their lengths
//! <folder>/forebay-cache-1/<n>/<hash>-<len>  a piece
//! <folder>/forebay-cache-1/<n>/<hash>-<len>.<process>.new   a piece being written
//! ```
//!
//! A piece appears by a rename, whole; nobody who reads waits for anybody. Room is made under the lock of one folder,
//! which a process that dies gives back. The sum is raised before a file appears, so that a crash in between makes it too
//! large, never too small, and it is counted anew whenever room is made; what was being written then goes. Each folder may hold
//! its share of the size. Files of other names are none of ours, and stay. Folders of older versions are removed, since nobody else would.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;

use super::entry::{HEAD, Name, body, head};
use super::victims::{Held, choose};
use super::{Counts, Future, PAGE};

const PREFIX: &str = "forebay-cache-";
const VERSION: u32 = 1;

/// The most folders, and the bytes that one of them should at least hold.
const FOLDERS: (u64, u64) = (256, 16 * PAGE);

/// After a write that failed, nothing is written for so long.
const PAUSE: Duration = Duration::from_secs(30);

/// The disk cache of one folder.
#[derive(Debug)]
pub(super) struct Disk {
    outer: PathBuf,
    size: u64,
    /// How many folders there are, once the cache was set up; `None` inside if it cannot be.
    folders: OnceLock<Option<u32>>,
    paused: Mutex<Option<Instant>>,
    written: AtomicU64,
}

impl Disk {
    /// The cache in a folder, which is made on first use.
    pub(super) fn new(folder: &Path, size: u64) -> Self {
        let (folders, paused) = (OnceLock::new(), Mutex::default());
        Self { outer: folder.to_owned(), size, folders, paused, written: AtomicU64::new(0) }
    }

    fn root(&self) -> PathBuf {
        self.outer.join(format!("{PREFIX}{VERSION}"))
    }

    fn folder(&self, name: Name) -> Option<(PathBuf, u32)> {
        let folders = (*self.folders.get_or_init(|| match self.set_up() {
            Ok(folders) => Some(folders),
            Err(error) => {
                tracing::warn!(folder = %self.outer.display(), %error, "the disk cache cannot be set up; going on without");
                None
            }
        }))?;
        Some((self.root().join(format!("{:03x}", name.folder(folders))), folders))
    }

    /// Makes the folder, agrees with other processes on its layout, and removes what older versions left.
    fn set_up(&self) -> io::Result<u32> {
        let root = self.root();
        fs::create_dir_all(&root)?;
        for entry in fs::read_dir(&self.outer)? {
            let entry = entry?;
            let name = entry.file_name();
            let version = name.to_str().and_then(|name| name.strip_prefix(PREFIX)).and_then(|n| n.parse::<u32>().ok());
            if version.is_some_and(|version| version < VERSION) {
                fs::remove_dir_all(entry.path())?;
            }
        }
        let layout = root.join("layout");
        let wanted = (self.size / FOLDERS.1).clamp(1, FOLDERS.0);
        let mine = root.join(format!("layout.{}.new", std::process::id()));
        fs::write(&mine, wanted.to_string())?;
        // Whoever is first decides; a hard link never replaces.
        #[expect(clippy::disallowed_methods, reason = "a cache need not survive, and what it gives is checked")]
        let linked = fs::hard_link(&mine, &layout);
        fs::remove_file(&mine)?;
        match linked {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let text = fs::read_to_string(&layout)?;
        let folders = text.trim().parse::<u32>().ok().filter(|n| u64::from(*n) <= FOLDERS.0 && *n > 0);
        folders.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("`{}` is damaged", layout.display())))
    }

    /// The bytes of a piece, if they are there and undamaged.
    pub(super) fn read(&self, name: Name, length: u64, counts: &Counts) -> Option<Bytes> {
        let path = self.folder(name)?.0.join(name.file(HEAD as u64 + length));
        let mut file = File::open(&path).ok()?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).ok()?;
        if body(name, &bytes).is_none_or(|body| body.len() as u64 != length) {
            counts.damaged.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(file = %path.display(), "a file of the disk cache is damaged and is removed");
            let _ = fs::remove_file(&path);
            return None;
        }
        // Read now is what counts for who goes first; where it cannot be noted, the time of writing does.
        let _ = file.set_modified(SystemTime::now());
        Some(Bytes::from(bytes).slice(HEAD..))
    }

    /// Writes a piece, if there is or can be made room for it.
    pub(super) fn write(&self, name: Name, bytes: &[u8], future: &Future, counts: &Counts) {
        let Some((folder, folders)) = self.folder(name).filter(|_| !self.is_paused()) else {
            counts.not_stored.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let stored = self.store(&folder, self.size / u64::from(folders), name, bytes, future, counts);
        if let Err(error) = &stored {
            tracing::warn!(folder = %folder.display(), %error, "the disk cache is not written for a while");
            *self.paused.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now() + PAUSE);
        }
        let count = if matches!(stored, Ok(true)) { &counts.stored } else { &counts.not_stored };
        count.fetch_add(1, Ordering::Relaxed);
    }

    fn is_paused(&self) -> bool {
        let paused = *self.paused.lock().unwrap_or_else(PoisonError::into_inner);
        paused.is_some_and(|until| Instant::now() < until)
    }

    fn store(
        &self,
        folder: &Path,
        budget: u64,
        name: Name,
        bytes: &[u8],
        future: &Future,
        counts: &Counts,
    ) -> io::Result<bool> {
        fs::create_dir_all(folder)?;
        let length = (HEAD + bytes.len()) as u64;
        let file = name.file(length);
        let mut lock =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(folder.join("lock"))?;
        lock.lock()?;
        if folder.join(&file).exists() {
            return Ok(true);
        }
        let mut total = read_sum(&mut lock)?;
        if total.is_none_or(|total| total + length > budget) {
            let held = held(folder, future)?;
            let Some(gone) = choose(held.clone(), length, budget, future.worth(name)) else {
                write_sum(&mut lock, held.iter().map(|held| held.length).sum())?;
                return Ok(false);
            };
            let mut sum: u64 = held.iter().map(|held| held.length).sum();
            for gone in gone {
                match fs::remove_file(folder.join(&gone.file)) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
                sum -= gone.length;
                counts.evicted.fetch_add(1, Ordering::Relaxed);
            }
            total = Some(sum);
        }
        write_sum(&mut lock, total.unwrap_or(0) + length)?;
        let nth = self.written.fetch_add(1, Ordering::Relaxed);
        let new = folder.join(format!("{file}.{}-{nth}.new", std::process::id()));
        let written = write_file(&new, &folder.join(&file), name, bytes);
        if let Err(error) = written {
            let _ = fs::remove_file(&new);
            write_sum(&mut lock, total.unwrap_or(0))?;
            return Err(error);
        }
        Ok(true)
    }
}

/// Not synced: a file that a power loss leaves half written is damaged, and found out when it is read.
#[expect(clippy::disallowed_methods, reason = "a cache need not survive, and what it gives is checked")]
fn write_file(new: &Path, path: &Path, name: Name, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(new)?;
    file.write_all(&head(name, bytes))?;
    file.write_all(bytes)?;
    fs::rename(new, path)
}

fn read_sum(lock: &mut File) -> io::Result<Option<u64>> {
    let mut text = String::new();
    lock.seek(SeekFrom::Start(0))?;
    lock.read_to_string(&mut text)?;
    Ok(text.trim().parse().ok())
}

fn write_sum(lock: &mut File, sum: u64) -> io::Result<()> {
    lock.seek(SeekFrom::Start(0))?;
    // Of one length always, so that no sum is ever the rest of a longer one.
    lock.write_all(format!("{sum:020}").as_bytes())
}

/// The pieces in a folder, whose lock is held: what is half written there was left by a process that died, and is removed.
fn held(folder: &Path, future: &Future) -> io::Result<Vec<Held>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let Some(file) = entry.file_name().to_str().map(str::to_owned) else { continue };
        if let Some(unfinished) = file.strip_suffix(".new") {
            let ours = unfinished.split_once('.').is_some_and(|(name, _)| Name::parse(name).is_some());
            if ours {
                fs::remove_file(entry.path())?;
            }
        } else if let Some((name, length)) = Name::parse(&file) {
            let used = entry.metadata().and_then(|metadata| metadata.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
            all.push(Held { used, until: future.until(name), length, file });
        }
    }
    Ok(all)
}
