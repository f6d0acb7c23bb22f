//! Opening a storage.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use object_store::ObjectStore;
use object_store::memory::InMemory;
use object_store::path::Path;

use super::{Shared, Site, Source, Storage, make};
use crate::cache::Sizes;
use crate::clouds::{self, Asked, Config, Environment};
use crate::credentials::Credentials;
use crate::error::{Error, Result};
use crate::forked::Forked;
use crate::local::LocalStore;
use crate::location::{Location, Remote};
use crate::options::{Options, Tuning, cache_sizes};

/// Opens a [`Storage`]: see [`Storage::builder`].
///
/// ```
/// use std::sync::Arc;
/// use forebay_storage::{Credential, Options, Storage};
///
/// let key = Credential::Bearer { token: "from a vault".into() };
/// let storage = Storage::builder("gs://bucket/lake").credentials(Arc::new(key)).open()?;
/// assert_eq!(storage.url(), "gs://bucket/lake");
/// # Ok::<(), forebay_storage::Error>(())
/// ```
#[derive(Debug)]
#[must_use]
pub struct StorageBuilder {
    url: String,
    options: Options,
    credentials: Option<Arc<dyn Credentials>>,
    mirrors: Vec<String>,
}

impl StorageBuilder {
    pub(super) fn new(url: String) -> Self {
        Self { url, options: Options::new(), credentials: None, mirrors: Vec::new() }
    }

    /// With these options.
    pub fn options(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    /// With credentials from this source, whatever options and variables say. Local, memory and web storages need none.
    pub fn credentials(mut self, source: Arc<dyn Credentials>) -> Self {
        self.credentials = Some(source);
        self
    }

    /// With other places that hold the same objects, such as copies in other regions, reached with the same options and
    /// credentials. What never changes is read from the nearest place that works (or, with the option `mirror_order=first`, the
    /// first one), beginning with the storage itself; all else is written to and read from the storage itself, and only read
    /// elsewhere while that fails: the lake is then as the mirror has it. A mirror that lacks what never changes lags behind, and
    /// the next one is asked.
    pub fn mirrors<S: Into<String>>(mut self, urls: impl IntoIterator<Item = S>) -> Self {
        self.mirrors = urls.into_iter().map(Into::into).collect();
        self
    }

    /// Opens it; sends nothing and makes nothing.
    ///
    /// # Errors
    /// Those of [`Storage::open`].
    pub fn open(self) -> Result<Storage> {
        self.open_in(&clouds::process_environment)
    }

    pub(crate) fn open_in(self, environment: Environment<'_>) -> Result<Storage> {
        self.options.iter().try_for_each(|(name, _)| clouds::check_name(name))?;
        let place = self.place(&self.url, environment)?;
        let mut mirrors = Vec::new();
        let named = self.options.get("mirrors").unwrap_or_default();
        let named = named.split([',', ' ', '\n']).filter(|url| !url.is_empty());
        for url in self.mirrors.iter().map(String::as_str).chain(named) {
            mirrors.push(self.place(url, environment)?.site);
        }
        let Place { site, local, mut tuning, read_only } = place;
        if !mirrors.is_empty() && !tuning.remote {
            // One of several sources that fails is worth another round, wherever they are.
            tuning = Tuning { max_retries: Tuning::REMOTE.max_retries, ..tuning }.with(&self.options)?;
        }
        let sizes = cache_sizes(&self.options)?;
        // A disk and memory are as near as a cache of them would be.
        let sizes = if tuning.remote { sizes } else { Sizes::default() };
        let backend = Forked::new(make(&site, &mirrors, &tuning, &sizes)?);
        Ok(Storage { shared: Arc::new(Shared { site, mirrors, local, tuning, sizes, read_only, backend }) })
    }

    fn place(&self, url: &str, environment: Environment<'_>) -> Result<Place> {
        let options = &self.options;
        match Location::parse(url)? {
            Location::Local(folder) => {
                let url = folder.display().to_string();
                let local = LocalStore::new(folder);
                let source = Source::Fixed(Arc::new(local.clone()));
                let site = Site { url, root: Path::default(), source };
                Ok(Place { site, local: Some(local), tuning: Tuning::LOCAL.with(options)?, read_only: false })
            }
            Location::Memory { name, prefix } => {
                let url = url.trim_end_matches('/').to_owned();
                let site = Site { root: root(&url, &prefix)?, url, source: Source::Fixed(memory(&name)) };
                Ok(Place { site, local: None, tuning: Tuning::LOCAL.with(options)?, read_only: false })
            }
            Location::Remote { remote, prefix, url } => {
                let tuning = Tuning::REMOTE.with(options)?;
                let asked = Asked { url: &url, options, environment, credentials: self.credentials.is_some() };
                let config = Config::new(&asked, &remote, tuning, self.credentials.clone())?;
                let read_only = matches!(remote, Remote::Http { .. });
                let site = Site { root: root(&url, &prefix)?, url, source: Source::Remote(Box::new(config)) };
                Ok(Place { site, local: None, tuning, read_only })
            }
        }
    }
}

/// What a URL means.
struct Place {
    site: Site,
    local: Option<LocalStore>,
    tuning: Tuning,
    read_only: bool,
}

fn root(url: &str, prefix: &str) -> Result<Path> {
    Path::parse(prefix).map_err(|e| Error::InvalidUrl { url: url.to_owned(), reason: e.to_string() })
}

/// The process's memory stores by name.
fn memory(name: &str) -> Arc<dyn ObjectStore> {
    static STORES: OnceLock<Mutex<HashMap<String, Arc<InMemory>>>> = OnceLock::new();
    let mut stores = STORES.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    stores.entry(name.to_owned()).or_default().clone()
}
