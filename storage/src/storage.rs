//! One root of an object store, and what can be done with the objects below it.

use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path as FilePath, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::SystemTime;

use bytes::{Bytes, BytesMut};
use futures::{StreamExt, TryStreamExt, future};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    GetOptions, GetRange, GetResult, GetResultPayload, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutOptions,
    PutPayload,
};
use tokio::sync::Semaphore;

use crate::claim::{Attempt, Claim, Next, Seen, next};
use crate::error::{Error, Result};
use crate::forked::Forked;
use crate::local::{LocalStore, is_leftover_name};
use crate::location::Location;
use crate::mapped::Mapped;
use crate::options::{Options, Tuning};
use crate::plan::Plan;
use crate::s3;
use crate::writer::ObjectWriter;

/// How often a claim sends its request before it gives up on knowing.
const CLAIM_ATTEMPTS: u32 = 5;

/// One root of an object store: a folder, a prefix of a bucket, or a named store in memory. Cheap to clone.
///
/// Names of objects are `/`-separated, relative to the root, without empty, `.` and `..` parts.
#[derive(Clone)]
pub struct Storage {
    shared: Arc<Shared>,
}

struct Shared {
    url: String,
    root: Path,
    local: Option<LocalStore>,
    tuning: Tuning,
    source: Source,
    backend: Forked<Backend>,
}

/// Where a backend comes from, for the process at hand.
enum Source {
    Fixed(Arc<dyn ObjectStore>),
    S3(s3::Config),
}

struct Backend {
    store: Arc<dyn ObjectStore>,
    claims: Arc<dyn ObjectStore>,
    permits: Semaphore,
}

impl Source {
    fn backend(&self, tuning: &Tuning) -> Result<Backend> {
        let (store, claims) = match self {
            Self::Fixed(store) => (store.clone(), store.clone()),
            Self::S3(config) => {
                let clients = config.clients()?;
                (clients.store, clients.claims)
            }
        };
        Ok(Backend { store, claims, permits: Semaphore::new(tuning.concurrency) })
    }
}

/// An object as a listing shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its name, relative to the root of the storage.
    pub path: String,
    /// Its length in bytes.
    pub size: u64,
    /// When it was written, by the clock of the store.
    pub modified: SystemTime,
}

impl std::fmt::Debug for Storage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Storage({})", self.shared.url)
    }
}

impl Storage {
    /// Opens a plain path, `file:///folder`, `memory://name` or `s3://bucket/prefix`; sends nothing and makes nothing.
    ///
    /// A `memory://` store lives as long as the process and is shared by all who name it.
    ///
    /// # Errors
    /// [`Error::InvalidUrl`], [`Error::UnknownOption`], [`Error::InvalidOption`], [`Error::NoCredentials`].
    pub fn open(url: &str, options: &Options) -> Result<Self> {
        Self::open_in(url, options, &s3::process_environment)
    }

    pub(crate) fn open_in(url: &str, options: &Options, environment: s3::Environment<'_>) -> Result<Self> {
        options.iter().try_for_each(|(name, _)| s3::check_name(name))?;
        match Location::parse(url)? {
            Location::Local(folder) => {
                let url = folder.display().to_string();
                let local = LocalStore::new(folder);
                let source = Source::Fixed(Arc::new(local.clone()));
                Self::build(url, "", Some(local), Tuning::LOCAL.with(options)?, source)
            }
            Location::Memory { name, prefix } => {
                let source = Source::Fixed(memory(&name));
                Self::build(url.trim_end_matches('/').to_owned(), &prefix, None, Tuning::LOCAL.with(options)?, source)
            }
            Location::S3 { bucket, prefix } => {
                let url = format!("s3://{bucket}/{prefix}").trim_end_matches('/').to_owned();
                let tuning = Tuning::REMOTE.with(options)?;
                let config = s3::Config::new(&url, &bucket, options, tuning, environment)?;
                Self::build(url, &prefix, None, tuning, Source::S3(config))
            }
        }
    }

    /// A storage on any [`ObjectStore`], for wrappers in tests and stores of one's own; `url` is for messages.
    ///
    /// Only the trait is used: nothing is mapped, writers upload, and claims wait only milliseconds between attempts.
    pub fn from_store(store: Arc<dyn ObjectStore>, url: impl Into<String>) -> Self {
        let tuning = Tuning::LOCAL;
        let backend =
            Backend { store: store.clone(), claims: store.clone(), permits: Semaphore::new(tuning.concurrency) };
        let shared = Shared {
            url: url.into(),
            root: Path::default(),
            local: None,
            tuning,
            source: Source::Fixed(store),
            backend: Forked::new(backend),
        };
        Self { shared: Arc::new(shared) }
    }

    fn build(url: String, root: &str, local: Option<LocalStore>, tuning: Tuning, source: Source) -> Result<Self> {
        let root = Path::parse(root).map_err(|e| Error::InvalidUrl { url: url.clone(), reason: e.to_string() })?;
        let backend = Forked::new(source.backend(&tuning)?);
        Ok(Self { shared: Arc::new(Shared { url, root, local, tuning, source, backend }) })
    }

    /// The URL, or the absolute path of a local folder; opening it again gives the same storage.
    pub fn url(&self) -> &str {
        &self.shared.url
    }

    /// The root folder, when it is one on this machine.
    pub fn local(&self) -> Option<&FilePath> {
        self.shared.local.as_ref().map(LocalStore::root)
    }

    /// How many requests are sent at once.
    pub fn concurrency(&self) -> usize {
        self.shared.tuning.concurrency
    }

    /// The store below, which knows objects by their full name: for wrappers, which [`Storage::from_store`] takes.
    ///
    /// # Errors
    /// After a fork, those of [`Storage::open`].
    pub fn store(&self) -> Result<Arc<dyn ObjectStore>> {
        Ok(self.backend()?.store.clone())
    }

    fn backend(&self) -> Result<&Backend> {
        self.shared.backend.get(|| self.shared.source.backend(&self.shared.tuning))
    }

    pub(crate) fn tuning(&self) -> &Tuning {
        &self.shared.tuning
    }

    pub(crate) fn local_store(&self) -> Option<&LocalStore> {
        self.shared.local.as_ref()
    }

    /// The full name of an object, or of the folder that `prefix` names.
    pub(crate) fn resolve(&self, path: &str) -> Result<Path> {
        let invalid = |reason: String| Error::InvalidPath { path: path.to_owned(), reason };
        let relative = Path::parse(path).map_err(|e| invalid(e.to_string()))?;
        if self.shared.root.as_ref().is_empty() {
            return Ok(relative);
        }
        Ok(self.shared.root.parts().chain(relative.parts()).collect())
    }

    /// The full name of an object.
    pub(crate) fn object(&self, path: &str) -> Result<Path> {
        let invalid = |reason: &str| Error::InvalidPath { path: path.to_owned(), reason: reason.to_owned() };
        if path.is_empty() || path.starts_with('/') || path.ends_with('/') {
            return Err(invalid("it must name an object below the root, without a slash in front or behind"));
        }
        if path.rsplit('/').next().is_some_and(is_leftover_name) {
            return Err(invalid("names that end in # and digits are kept for unfinished files"));
        }
        self.resolve(path)
    }

    pub(crate) fn failed(&self, operation: &'static str, path: &str, source: object_store::Error) -> Error {
        Error::store(operation, self.url(), path, None, source)
    }

    /// Reads a whole object.
    ///
    /// # Errors
    /// [`Error::NotFound`] (see [`Error::is_not_found`]), [`Error::ShortRead`] and those of the store.
    pub async fn get(&self, path: &str) -> Result<Bytes> {
        let location = self.object(path)?;
        self.read(path, &location, None).await
    }

    /// Reads exactly the bytes `range` of an object; an empty range needs no request.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::InvalidRange`], [`Error::ShortRead`] when the object ends before the range does, and
    /// those of the store.
    pub async fn get_range(&self, path: &str, range: Range<u64>) -> Result<Bytes> {
        let location = self.object(path)?;
        self.check_range(path, &range)?;
        if range.is_empty() {
            return Ok(Bytes::new());
        }
        self.read(path, &location, Some(range)).await
    }

    /// Reads exactly the bytes of each range, in the order given, by as few and as parallel requests as
    /// [`plan`](crate::plan) finds right.
    ///
    /// # Errors
    /// As [`Storage::get_range`]; the first one stops all.
    pub async fn get_ranges(&self, path: &str, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let location = self.object(path)?;
        ranges.iter().try_for_each(|range| self.check_range(path, range))?;
        let plan = Plan::new(ranges, self.shared.tuning.limits);
        let reads = plan.reads.iter().map(|range| self.read(path, &location, Some(range.clone())));
        let bytes = future::try_join_all(reads).await?;
        Ok(plan.assemble(&bytes))
    }

    fn check_range(&self, path: &str, range: &Range<u64>) -> Result<()> {
        if range.start <= range.end {
            return Ok(());
        }
        Err(Error::InvalidRange { url: self.url().to_owned(), path: path.to_owned(), range: range.clone() })
    }

    /// One request, and every byte of its answer.
    async fn read(&self, path: &str, location: &Path, range: Option<Range<u64>>) -> Result<Bytes> {
        let backend = self.backend()?;
        // The semaphore is never closed, so there always is a permit.
        let _permit = backend.permits.acquire().await.ok();
        let failed = |source| Error::store("read", self.url(), path, range.clone(), source);
        let options = GetOptions { range: range.clone().map(GetRange::Bounded), ..GetOptions::default() };
        let result = match backend.store.get_opts(location, options).await {
            Ok(result) => result,
            Err(error) => return Err(self.explain_range(path, location, range.clone(), error, backend).await),
        };
        let wanted = range.clone().unwrap_or(0..result.meta.size);
        if result.range != wanted {
            let got = result.range.end.saturating_sub(result.range.start);
            return Err(Error::ShortRead { url: self.url().to_owned(), path: path.to_owned(), range: wanted, got });
        }
        let bytes = collect(result, (wanted.end - wanted.start) as usize).await.map_err(failed)?;
        if bytes.len() as u64 != wanted.end - wanted.start {
            let got = bytes.len() as u64;
            return Err(Error::ShortRead { url: self.url().to_owned(), path: path.to_owned(), range: wanted, got });
        }
        Ok(bytes)
    }

    /// Tells a range that begins beyond the end of its object from other failures, which every store words differently.
    async fn explain_range(
        &self,
        path: &str,
        location: &Path,
        range: Option<Range<u64>>,
        error: object_store::Error,
        backend: &Backend,
    ) -> Error {
        if let (Some(range), object_store::Error::Generic { .. }) = (&range, &error)
            && let Ok(meta) = backend.store.head(location).await
            && meta.size < range.end
        {
            let got = meta.size.saturating_sub(range.start);
            return Error::ShortRead { url: self.url().to_owned(), path: path.to_owned(), range: range.clone(), got };
        }
        Error::store("read", self.url(), path, range, error)
    }

    /// Stores an object, in place of one of that name; durable when it returns.
    ///
    /// # Errors
    /// Those of the store; the object then is the old one or the new one, never half of each.
    pub async fn put(&self, path: &str, bytes: Bytes) -> Result<()> {
        let location = self.object(path)?;
        let backend = self.backend()?;
        let _permit = backend.permits.acquire().await.ok();
        let stored = backend.store.put_opts(&location, PutPayload::from(bytes), PutOptions::default()).await;
        stored.map(|_| ()).map_err(|e| self.failed("write", path, e))
    }

    /// Stores an object if there is none of that name, and says who has the name: see [`claim`](crate::claim).
    ///
    /// `bytes` must be unlike those of any other claimant: put a nonce in.
    ///
    /// # Errors
    /// An error means that the object was not stored by this call and will not be; when that is not sure the answer is
    /// [`Claim::Unknown`].
    pub async fn claim(&self, path: &str, bytes: Bytes) -> Result<Claim> {
        let location = self.object(path)?;
        let backend = self.backend()?;
        let _permit = backend.permits.acquire().await.ok();
        let mut open = false;
        let mut wait = self.shared.tuning.claim_backoff;
        let mut left = CLAIM_ATTEMPTS;
        loop {
            left -= 1;
            let create = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
            let sent = backend.claims.put_opts(&location, PutPayload::from(bytes.clone()), create).await;
            let (attempt, error) = self.attempt(path, sent);
            let mut decision = next(attempt, &Seen::NotAsked, &bytes, open);
            if decision == Next::ReadBack {
                decision = next(attempt, &self.read_back(&location, backend).await, &bytes, open);
            }
            open |= matches!(attempt, Attempt::Ambiguous | Attempt::NotDurable);
            match decision {
                Next::Ours => return Ok(Claim::Ours),
                Next::Theirs(theirs) => return Ok(Claim::Theirs(theirs)),
                Next::Refused => return Err(error),
                Next::Retry if left > 0 => {
                    tracing::debug!(url = self.url(), path, %error, "a claim is sent again");
                    tokio::time::sleep(jittered(wait)).await;
                    wait *= 3;
                }
                Next::Retry | Next::Unknown | Next::ReadBack => return Ok(Claim::Unknown(error)),
            }
        }
    }

    fn attempt(&self, path: &str, sent: object_store::Result<object_store::PutResult>) -> (Attempt, Error) {
        use object_store::Error as E;
        let error = match sent {
            Ok(_) => return (Attempt::Stored, self.not_found(path)),
            Err(error) => error,
        };
        let taken = matches!(error, E::AlreadyExists { .. } | E::Precondition { .. } | E::NotModified { .. });
        let error = self.failed("claim", path, error);
        let attempt = match &error {
            _ if taken => Attempt::Taken,
            Error::NotDurable { .. } => Attempt::NotDurable,
            e if e.had_no_effect() => Attempt::Refused,
            _ => Attempt::Ambiguous,
        };
        (attempt, error)
    }

    fn not_found(&self, path: &str) -> Error {
        Error::NotFound { url: self.url().to_owned(), path: path.to_owned() }
    }

    async fn read_back(&self, location: &Path, backend: &Backend) -> Seen {
        let read = async { backend.store.get_opts(location, GetOptions::default()).await?.checked_bytes().await };
        match read.await {
            Ok(Some(bytes)) => Seen::Bytes(bytes),
            Err(object_store::Error::NotFound { .. }) => Seen::Nothing,
            Ok(None) | Err(_) => Seen::Failed,
        }
    }

    /// Every object below the folder `prefix` (`""` for all), ordered by name.
    ///
    /// # Errors
    /// Those of the store; a folder that does not exist is empty.
    pub async fn list(&self, prefix: &str) -> Result<Vec<Entry>> {
        let (location, store) = (self.resolve(prefix)?, &self.backend()?.store);
        let folder = Some(&location).filter(|l| !l.as_ref().is_empty());
        self.collect_list(prefix, store.list(folder)).await
    }

    /// Every object below the folder `prefix` whose name comes after the full name `after`, ordered by name.
    ///
    /// # Errors
    /// As [`Storage::list`].
    pub async fn list_after(&self, prefix: &str, after: &str) -> Result<Vec<Entry>> {
        let (location, store) = (self.resolve(prefix)?, &self.backend()?.store);
        let folder = Some(&location).filter(|l| !l.as_ref().is_empty());
        self.collect_list(prefix, store.list_with_offset(folder, &self.resolve(after)?)).await
    }

    async fn collect_list(
        &self,
        prefix: &str,
        objects: futures::stream::BoxStream<'static, object_store::Result<ObjectMeta>>,
    ) -> Result<Vec<Entry>> {
        let entries = objects.map_err(|e| self.failed("list", prefix, e)).try_filter_map(|meta| {
            // Other programs may keep objects of any name in a bucket; those that we cannot name are not ours.
            future::ready(Ok(self.entry(meta)))
        });
        let mut entries: Vec<Entry> = entries.try_collect().await?;
        entries.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        Ok(entries)
    }

    fn entry(&self, meta: ObjectMeta) -> Option<Entry> {
        let path = match self.shared.root.as_ref() {
            "" => meta.location.to_string(),
            root => meta.location.as_ref().strip_prefix(root)?.strip_prefix('/')?.to_owned(),
        };
        Some(Entry { path, size: meta.size, modified: meta.last_modified.into() })
    }

    /// The names of the folders right below the folder `prefix`, ordered, without the prefix.
    ///
    /// # Errors
    /// As [`Storage::list`].
    pub async fn folders(&self, prefix: &str) -> Result<Vec<String>> {
        let (location, store) = (self.resolve(prefix)?, &self.backend()?.store);
        let folder = Some(&location).filter(|l| !l.as_ref().is_empty());
        let found = store.list_with_delimiter(folder).await.map_err(|e| self.failed("list", prefix, e))?;
        let mut names: Vec<String> =
            found.common_prefixes.iter().filter_map(|p| p.filename()).map(str::to_owned).collect();
        names.sort_unstable();
        Ok(names)
    }

    /// Size and age of an object.
    ///
    /// # Errors
    /// [`Error::NotFound`] and those of the store.
    pub async fn head(&self, path: &str) -> Result<Entry> {
        let location = self.object(path)?;
        let meta = self.backend()?.store.head(&location).await.map_err(|e| self.failed("look at", path, e))?;
        Ok(Entry { path: path.to_owned(), size: meta.size, modified: meta.last_modified.into() })
    }

    /// Removes an object; one that is not there is fine. A power loss may bring a removed local object back.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn delete(&self, path: &str) -> Result<()> {
        let location = self.object(path)?;
        match self.backend()?.store.delete(&location).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(self.failed("delete", path, error)),
        }
    }

    /// Starts writing an object piece by piece; it appears whole when [`ObjectWriter::finish`] returns.
    ///
    /// # Errors
    /// [`Error::InvalidPath`], and on local disk those of making the file.
    pub fn writer(&self, path: &str) -> Result<ObjectWriter> {
        ObjectWriter::start(self, path)
    }

    /// Maps an object into memory, where it is a file of a filesystem that this is safe on; `None` elsewhere.
    ///
    /// # Errors
    /// [`Error::NotFound`] and those of the disk.
    pub fn map(&self, path: &str) -> Result<Option<Mapped>> {
        let location = self.object(path)?;
        let Some(local) = &self.shared.local else { return Ok(None) };
        match Mapped::open(&local.file(&location)?) {
            Err(Error::Disk { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                Err(self.not_found(path))
            }
            other => other,
        }
    }

    /// Unfinished files below the root of a local storage: those of writers at work, and those of processes that died,
    /// which nobody will finish. Empty for other storages, which keep unfinished uploads to themselves.
    ///
    /// Their names cannot be given to other methods; see [`Storage::remove_leftover`].
    ///
    /// # Errors
    /// Those of the disk.
    pub fn leftovers(&self) -> Result<Vec<Entry>> {
        let Some(local) = &self.shared.local else { return Ok(Vec::new()) };
        let found = local.leftovers()?;
        let modified = |m: &std::fs::Metadata| m.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        Ok(found
            .into_iter()
            .map(|f| Entry { size: f.metadata.len(), modified: modified(&f.metadata), path: f.path })
            .collect())
    }

    /// Removes an unfinished file found by [`Storage::leftovers`]; a writer still at it will fail.
    ///
    /// # Errors
    /// [`Error::InvalidPath`] for anything that is no unfinished file, and those of the disk.
    pub fn remove_leftover(&self, path: &str) -> Result<()> {
        let invalid = || Error::InvalidPath { path: path.to_owned(), reason: "it is no unfinished file".to_owned() };
        let Some(local) = &self.shared.local else { return Err(invalid()) };
        if !path.rsplit('/').next().is_some_and(is_leftover_name) {
            return Err(invalid());
        }
        let relative = self.resolve(path)?;
        let file: PathBuf = relative.parts().fold(local.root().to_owned(), |f, part| f.join(part.as_ref()));
        match std::fs::remove_file(&file) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(Error::disk("delete", file, e)),
            _ => Ok(()),
        }
    }
}

/// A wait of half to one and a half times `wait`, so that many claimants do not come back at the same moment.
fn jittered(wait: std::time::Duration) -> std::time::Duration {
    let random = uuid::Uuid::new_v4().as_u128() as u32;
    wait.mul_f64(0.5 + f64::from(random) / f64::from(u32::MAX))
}

/// The process's memory stores by name.
fn memory(name: &str) -> Arc<dyn ObjectStore> {
    static STORES: OnceLock<Mutex<HashMap<String, Arc<InMemory>>>> = OnceLock::new();
    let mut stores = STORES.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    stores.entry(name.to_owned()).or_default().clone()
}

/// The body of an answer, copied at most once; more bytes than `expected` end the reading early.
async fn collect(result: GetResult, expected: usize) -> object_store::Result<Bytes> {
    let mut stream = match result.payload {
        GetResultPayload::Stream(stream) => stream,
        _ => return result.bytes().await,
    };
    let Some(first) = stream.next().await.transpose()? else { return Ok(Bytes::new()) };
    if first.len() >= expected {
        return Ok(first);
    }
    let mut whole = BytesMut::with_capacity(expected);
    whole.extend_from_slice(&first);
    while let Some(chunk) = stream.next().await.transpose()? {
        whole.extend_from_slice(&chunk);
        if whole.len() > expected {
            break;
        }
    }
    Ok(whole.freeze())
}

/// A whole body, or `None` when it is not as long as the store said.
trait Checked {
    async fn checked_bytes(self) -> object_store::Result<Option<Bytes>>;
}

impl Checked for GetResult {
    async fn checked_bytes(self) -> object_store::Result<Option<Bytes>> {
        let size = self.meta.size as usize;
        Ok(Some(collect(self, size).await?).filter(|bytes| bytes.len() == size))
    }
}
