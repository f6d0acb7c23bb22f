//! How a lake's storage is reached: options, mirrors, and credentials from a callable of Python's.

use std::{
    collections::BTreeMap,
    error::Error as StdError,
    fmt,
    sync::Arc,
    time::{Duration, SystemTime},
};

use forebay_storage::{Credential, Credentials, Issued, Options, Storage};
use pyo3::{exceptions::PyValueError, prelude::*, types::PyDict};

use crate::error::Result;

/// What goes with a URL. It travels to other processes as the dict that Python passes in.
#[derive(Clone, Default)]
pub(crate) struct Access {
    pub(crate) options: BTreeMap<String, String>,
    /// A callable without arguments.
    pub(crate) credentials: Option<Arc<Py<PyAny>>>,
    /// URLs of copies.
    pub(crate) mirrors: Vec<String>,
    /// Where a lake's links may lead: URLs, and the options of those that aren't reached as the lake is.
    pub(crate) links: Vec<(String, Option<BTreeMap<String, String>>)>,
}

impl Access {
    /// Opens the storage at a URL.
    pub(crate) fn open(&self, url: &str) -> Result<Storage> {
        let mut storage =
            Storage::builder(url).options(Options::from(self.options.clone())).mirrors(self.mirrors.clone());
        if let Some(callable) = &self.credentials {
            storage = storage.credentials(Arc::new(Called(callable.clone())));
        }
        Ok(storage.open()?)
    }
}

impl<'py> FromPyObject<'_, 'py> for Access {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let credentials = object.get_item("credentials")?;
        let credentials = (!credentials.is_none()).then(|| Arc::new(credentials.unbind()));
        let (options, mirrors) = (object.get_item("options")?.extract()?, object.get_item("mirrors")?.extract()?);
        Ok(Self { options, credentials, mirrors, links: object.get_item("links")?.extract()? })
    }
}

impl<'py> IntoPyObject<'py> for Access {
    type Target = PyDict;
    type Output = Bound<'py, PyDict>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let access = PyDict::new(py);
        access.set_item("options", self.options)?;
        access.set_item("mirrors", self.mirrors)?;
        access.set_item("links", self.links)?;
        access.set_item("credentials", self.credentials.map(|callable| callable.clone_ref(py)))?;
        Ok(access)
    }
}

/// Credentials that a callable gives, called on a thread of its own: requests on the way never wait for the GIL.
struct Called(Arc<Py<PyAny>>);

impl fmt::Debug for Called {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a Python callable")
    }
}

#[async_trait::async_trait]
impl Credentials for Called {
    async fn issue(&self) -> Result<Issued, Box<dyn StdError + Send + Sync>> {
        let callable = self.0.clone();
        let work = move || Python::attach(|py| issued(callable.bind(py).call0()?));
        Ok(tokio::task::spawn_blocking(work).await??)
    }
}

/// Reads what a callable gave.
fn issued(given: Bound<'_, PyAny>) -> PyResult<Issued> {
    let given: BTreeMap<String, Bound<'_, PyAny>> = given.extract().map_err(|_| {
        let kind = given.get_type().name().map_or_else(|_| "something else".to_owned(), |name| name.to_string());
        PyValueError::new_err(format!("the credentials callable gives a dict, not {kind}"))
    })?;
    let text = |name: &str| match given.get(name) {
        Some(value) if !value.is_none() => value.extract::<String>().map(Some),
        _ => Ok(None),
    };
    let (id, secret) = (text("access_key_id")?, text("secret_access_key")?);
    let credential = match (id, secret, text("token")?, text("account_key")?, text("sas_token")?) {
        (Some(access_key_id), Some(secret_access_key), None, None, None) => {
            Credential::S3 { access_key_id, secret_access_key, session_token: text("session_token")? }
        }
        (None, None, Some(token), None, None) => Credential::Bearer { token },
        (None, None, None, Some(account_key), None) => Credential::AzureKey { account_key },
        (None, None, None, None, Some(sas_token)) => Credential::AzureSas { sas_token },
        _ => {
            let names: Vec<&str> = given.keys().map(String::as_str).collect();
            return Err(PyValueError::new_err(format!(
                "the credentials callable gives `access_key_id` and `secret_access_key` (and `session_token`) for S3, \
                 `token` for Google or Azure, or `account_key` or `sas_token` for Azure, each with `expires_at`; it gave \
                 the keys {names:?}"
            )));
        }
    };
    let expires = given.get("expires_at").filter(|value| !value.is_none()).map(expiry).transpose()?;
    Ok(Issued { credential, expires })
}

/// A time as seconds since 1970 or as a `datetime`.
fn expiry(value: &Bound<'_, PyAny>) -> PyResult<SystemTime> {
    let seconds: f64 = match value.extract() {
        Ok(seconds) => seconds,
        Err(_) => value.call_method0("timestamp")?.extract()?,
    };
    let after = Duration::try_from_secs_f64(seconds.max(0.0));
    let time = after.ok().and_then(|after| SystemTime::UNIX_EPOCH.checked_add(after));
    time.ok_or_else(|| PyValueError::new_err(format!("`expires_at` is no time: {value}")))
}
