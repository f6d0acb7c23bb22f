//! One root of an object store, and what can be done with the objects below it.

mod builder;
mod claims;
mod list;
mod probe;
mod read;

use std::ops::Range;
use std::path::Path as FilePath;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt, PutOptions, PutPayload};
use tokio::sync::Semaphore;

use crate::cache::{Cache, Sizes};
use crate::clouds::{self, Clients};
use crate::engine::sources::Sources;
use crate::engine::{self, Engine, Stats};
use crate::error::{Error, Result};
use crate::forked::Forked;
use crate::local::{LocalStore, is_leftover_name};
use crate::location::Location;
use crate::mapped::Mapped;
use crate::options::{Options, Tuning, cache_sizes};
use crate::version;
use crate::writer::ObjectWriter;
pub use builder::StorageBuilder;

/// One root of an object store: a folder, a prefix of a bucket, or a named store in memory. Cheap to clone.
///
/// Names of objects are `/`-separated, relative to the root, without empty, `.` and `..` parts.
#[derive(Clone)]
pub struct Storage {
    shared: Arc<Shared>,
}

struct Shared {
    site: Site,
    /// Other places with the same objects.
    mirrors: Vec<Site>,
    local: Option<LocalStore>,
    tuning: Tuning,
    sizes: Sizes,
    /// Whether it is a web server: nothing is written, and nothing is listed.
    read_only: bool,
    backend: Forked<Backend>,
}

/// Where a backend comes from, for the process at hand.
enum Source {
    Fixed(Arc<dyn ObjectStore>),
    Remote(Box<clouds::Config>),
}

struct Backend {
    store: Arc<dyn ObjectStore>,
    claims: Arc<dyn ObjectStore>,
    /// Turns to write.
    permits: Semaphore,
    /// What sends the reads.
    engine: Engine,
    /// What keeps what was read.
    cache: Option<Cache>,
}

impl Source {
    fn clients(&self) -> Result<Clients> {
        match self {
            Self::Fixed(store) => Ok(Clients { store: store.clone(), once: store.clone() }),
            Self::Remote(config) => config.clients(),
        }
    }
}

/// A storage's own place or a mirror's.
struct Site {
    url: String,
    root: Path,
    source: Source,
}

impl Shared {
    /// The clients of this process.
    fn make(&self) -> Result<Backend> {
        make(&self.site, &self.mirrors, &self.tuning, &self.sizes)
    }
}

fn make(site: &Site, mirrors: &[Site], tuning: &Tuning, sizes: &Sizes) -> Result<Backend> {
    let Clients { store, once } = site.source.clients()?;
    let main = engine::sources::Source { url: site.url.clone(), store: once.clone(), root: site.root.clone() };
    let mut sources = vec![main];
    for mirror in mirrors {
        let store = mirror.source.clients()?.once;
        sources.push(engine::sources::Source { url: mirror.url.clone(), store, root: mirror.root.clone() });
    }
    let engine = Engine::new(Sources::new(sources, tuning.nearest), *tuning);
    let cache = Cache::new(&site.url, sizes);
    Ok(Backend { store, claims: once, permits: Semaphore::new(tuning.most_requests()), engine, cache })
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
    /// The version of it, as the store names it; `None` if it doesn't. On a local disk it changes when the file is copied.
    pub etag: Option<String>,
}

impl Entry {
    fn new(path: String, meta: &ObjectMeta) -> Self {
        Self { path, size: meta.size, modified: meta.last_modified.into(), etag: version::etag(meta) }
    }
}

impl std::fmt::Debug for Storage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Storage({})", self.url())
    }
}

impl Storage {
    /// Opens a plain path or a URL; sends nothing and makes nothing.
    ///
    /// | URL | |
    /// |---|---|
    /// | `file:///folder` | a folder, as a plain path is |
    /// | `s3://bucket/prefix` | S3 and what speaks like it |
    /// | `gs://bucket/prefix` | Google Cloud Storage |
    /// | `az://container/prefix`, `abfss://container@account.dfs.core.windows.net/prefix` | Azure |
    /// | `http://host/folder`, `https://host/folder` | a web server, which is only read |
    /// | `memory://name/prefix` | a store of this process, shared by all who name it |
    ///
    /// # Errors
    /// [`Error::InvalidUrl`], [`Error::UnknownOption`], [`Error::InvalidOption`], [`Error::NoCredentials`].
    pub fn open(url: &str, options: &Options) -> Result<Self> {
        Self::builder(url).options(options.clone()).open()
    }

    /// Begins to open a storage with more than options.
    pub fn builder(url: impl Into<String>) -> StorageBuilder {
        StorageBuilder::new(url.into())
    }

    /// A storage on any [`ObjectStore`], for wrappers in tests and stores of one's own; `url` is for messages.
    ///
    /// Only the trait is used: nothing is mapped, writers upload, nothing is tried again, and claims wait only milliseconds
    /// between attempts.
    pub fn from_store(store: Arc<dyn ObjectStore>, url: impl Into<String>) -> Self {
        Self::on(store, url.into(), Tuning::LOCAL, Sizes::default())
    }

    /// As [`Storage::from_store`], and read from as if the store were across a network: with retries, hedged reads and what
    /// else the options say.
    ///
    /// # Errors
    /// [`Error::InvalidOption`].
    pub fn from_remote_store(store: Arc<dyn ObjectStore>, url: impl Into<String>, options: &Options) -> Result<Self> {
        Ok(Self::on(store, url.into(), Tuning::REMOTE.with(options)?, cache_sizes(options)?))
    }

    fn on(store: Arc<dyn ObjectStore>, url: String, tuning: Tuning, sizes: Sizes) -> Self {
        let root = Path::default();
        let main = engine::sources::Source { url: url.clone(), store: store.clone(), root: root.clone() };
        let backend = Backend {
            store: store.clone(),
            claims: store.clone(),
            permits: Semaphore::new(tuning.most_requests()),
            engine: Engine::new(Sources::new(vec![main], tuning.nearest), tuning),
            cache: Cache::new(&url, &sizes),
        };
        let site = Site { url, root, source: Source::Fixed(store) };
        let backend = Forked::new(backend);
        Self {
            shared: Arc::new(Shared {
                site,
                mirrors: Vec::new(),
                local: None,
                tuning,
                sizes,
                read_only: false,
                backend,
            }),
        }
    }

    /// The URL, or the absolute path of a local folder; opening it again gives the same storage.
    pub fn url(&self) -> &str {
        &self.shared.site.url
    }

    /// The root folder, when it is one on this machine.
    pub fn local(&self) -> Option<&FilePath> {
        self.shared.local.as_ref().map(LocalStore::root)
    }

    /// The most requests that are sent at once; [`Storage::stats`] says how many it is at the moment.
    pub fn concurrency(&self) -> usize {
        self.shared.tuning.most_requests()
    }

    /// What was read so far in this process, and how it went; nothing if the clients cannot be made.
    pub fn stats(&self) -> Stats {
        let stats = |backend: &Backend| {
            let cache = backend.cache.as_ref().map(Cache::stats);
            Stats { cache, ..backend.engine.stats() }
        };
        self.backend().map(stats).unwrap_or_default()
    }

    /// Whether the same bytes can be had from somewhere else: a mirror, or the store behind a cache.
    pub fn has_copies(&self) -> bool {
        !self.shared.mirrors.is_empty() || self.backend().is_ok_and(|backend| backend.cache.is_some())
    }

    /// Says which ranges of which objects will be read, in that order: a cache on a disk then keeps what is read soonest, where
    /// it else would keep what was read last. Replaces what was said before; without a cache it does nothing.
    pub fn foresee<'a>(&self, reads: impl IntoIterator<Item = (&'a str, Range<u64>)>) {
        if let Some(cache) = self.backend().ok().and_then(|backend| backend.cache.as_ref()) {
            cache.foresee(reads);
        }
    }

    /// Whether [`Storage::foresee`] does something: there is a cache on a disk.
    pub fn foresees(&self) -> bool {
        self.backend().is_ok_and(|backend| backend.cache.as_ref().is_some_and(Cache::foresees))
    }

    /// Says that the bytes that came for an object were wrong, as a checksum shows: where there are mirrors, its next read
    /// asks another one, and a cache does not give them out again. Gives the URL that they came from, if that is known.
    pub fn distrust(&self, path: &str) -> Option<String> {
        let backend = self.backend().ok()?;
        if let Some(cache) = &backend.cache {
            cache.distrust(path);
        }
        let from = backend.engine.sources().distrust(path).map(str::to_owned);
        tracing::warn!(url = self.url(), path, ?from, "the bytes of an object were wrong");
        from
    }

    /// The store below, which knows objects by their full name: for wrappers, which [`Storage::from_store`] takes.
    ///
    /// # Errors
    /// After a fork, those of [`Storage::open`].
    pub fn store(&self) -> Result<Arc<dyn ObjectStore>> {
        Ok(self.backend()?.store.clone())
    }

    fn backend(&self) -> Result<&Backend> {
        self.shared.backend.get(|| self.shared.make())
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
        let root = &self.shared.site.root;
        if root.as_ref().is_empty() {
            return Ok(relative);
        }
        Ok(root.parts().chain(relative.parts()).collect())
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

    /// The name of the object that a URL or an absolute path means, if it lies below the root.
    ///
    /// A URL is compared as text, once it is written the usual way: another spelling of the same place, such as by an endpoint, is
    /// another place.
    ///
    /// # Errors
    /// [`Error::InvalidPath`] if it lies there by its beginning, and what follows is no name of an object (`..`, say).
    pub fn name_of(&self, url: &str) -> Result<Option<String>> {
        let root = self.url().trim_end_matches('/');
        let below = |url: &str| Some(url.strip_prefix(root)?.strip_prefix('/')?.to_owned());
        let written = || match Location::parse(url).ok()? {
            Location::Local(path) => below(path.to_str()?),
            Location::Remote { url, .. } => below(&url),
            Location::Memory { .. } => None,
        };
        let name = below(url).or_else(written);
        name.map(|name| self.object(&name).map(|_| name)).transpose()
    }

    /// The full name of an object that `operation` is about to change.
    pub(crate) fn writable(&self, operation: &'static str, path: &str) -> Result<Path> {
        if self.shared.read_only {
            return Err(Error::ReadOnly { operation, url: self.url().to_owned(), path: path.to_owned() });
        }
        self.object(path)
    }

    fn not_found(&self, path: &str) -> Error {
        Error::NotFound { url: self.url().to_owned(), path: path.to_owned() }
    }

    pub(crate) fn failed(&self, operation: &'static str, path: &str, source: object_store::Error) -> Error {
        Error::store(operation, self.url(), path, None, source)
    }

    /// Stores an object, in place of one of that name; durable when it returns.
    ///
    /// # Errors
    /// Those of the store; the object then is the old one or the new one, never half of each.
    pub async fn put(&self, path: &str, bytes: Bytes) -> Result<()> {
        let location = self.writable("write", path)?;
        let backend = self.backend()?;
        let _permit = backend.permits.acquire().await.ok();
        let stored = backend.store.put_opts(&location, PutPayload::from(bytes), PutOptions::default()).await;
        stored.map(|_| ()).map_err(|e| self.failed("write", path, e))
    }

    /// Size and age of an object.
    ///
    /// # Errors
    /// [`Error::NotFound`] and those of the store.
    pub async fn head(&self, path: &str) -> Result<Entry> {
        let location = self.object(path)?;
        let meta = self.backend()?.store.head(&location).await.map_err(|e| self.failed("look at", path, e))?;
        Ok(Entry::new(path.to_owned(), &meta))
    }

    /// Removes an object; one that is not there is fine. A power loss may bring a removed local object back.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn delete(&self, path: &str) -> Result<()> {
        let location = self.writable("delete", path)?;
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
}
