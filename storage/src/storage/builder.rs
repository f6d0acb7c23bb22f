//! Opening a storage.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use object_store::ObjectStore;
use object_store::memory::InMemory;
use object_store::path::Path;

use super::{Shared, Source, Storage};
use crate::clouds::{self, Asked, Config, Environment};
use crate::credentials::Credentials;
use crate::error::{Error, Result};
use crate::forked::Forked;
use crate::local::LocalStore;
use crate::location::{Location, Remote};
use crate::options::{Options, Tuning};

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
}

impl StorageBuilder {
    pub(super) fn new(url: String) -> Self {
        Self { url, options: Options::new(), credentials: None }
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

    /// Opens it; sends nothing and makes nothing.
    ///
    /// # Errors
    /// Those of [`Storage::open`].
    pub fn open(self) -> Result<Storage> {
        self.open_in(&clouds::process_environment)
    }

    pub(crate) fn open_in(self, environment: Environment<'_>) -> Result<Storage> {
        let options = &self.options;
        options.iter().try_for_each(|(name, _)| clouds::check_name(name))?;
        match Location::parse(&self.url)? {
            Location::Local(folder) => {
                let url = folder.display().to_string();
                let local = LocalStore::new(folder);
                let source = Source::Fixed(Arc::new(local.clone()));
                build(url, "", Some(local), Tuning::LOCAL.with(options)?, source, false)
            }
            Location::Memory { name, prefix } => {
                let url = self.url.trim_end_matches('/').to_owned();
                build(url, &prefix, None, Tuning::LOCAL.with(options)?, Source::Fixed(memory(&name)), false)
            }
            Location::Remote { remote, prefix, url } => {
                let tuning = Tuning::REMOTE.with(options)?;
                let asked = Asked { url: &url, options, environment, credentials: self.credentials.is_some() };
                let config = Config::new(&asked, &remote, tuning, self.credentials)?;
                let read_only = matches!(remote, Remote::Http { .. });
                build(url, &prefix, None, tuning, Source::Remote(config), read_only)
            }
        }
    }
}

fn build(
    url: String,
    root: &str,
    local: Option<LocalStore>,
    tuning: Tuning,
    source: Source,
    read_only: bool,
) -> Result<Storage> {
    let root = Path::parse(root).map_err(|e| Error::InvalidUrl { url: url.clone(), reason: e.to_string() })?;
    let backend = Forked::new(source.backend(&tuning)?);
    Ok(Storage { shared: Arc::new(Shared { url, root, local, tuning, read_only, source, backend }) })
}

/// The process's memory stores by name.
fn memory(name: &str) -> Arc<dyn ObjectStore> {
    static STORES: OnceLock<Mutex<HashMap<String, Arc<InMemory>>>> = OnceLock::new();
    let mut stores = STORES.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    stores.entry(name.to_owned()).or_default().clone()
}
