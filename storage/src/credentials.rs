//! Credentials that code hands out, and hands out again before they expire.

use std::error::Error as StdError;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;

use crate::error::Error;

/// What says who is asking.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Credential {
    /// For S3 and what speaks like it.
    S3 {
        /// The access key's id.
        access_key_id: String,
        /// The access key's secret.
        secret_access_key: String,
        /// The token of a session, which temporary keys come with.
        session_token: Option<String>,
    },
    /// An OAuth token, for Google and Azure.
    Bearer {
        /// The token, without `Bearer` in front.
        token: String,
    },
    /// The key of a storage account, for Azure.
    AzureKey {
        /// The key, in base64.
        account_key: String,
    },
    /// A shared access signature, for Azure.
    AzureSas {
        /// The query string that Azure calls a SAS token.
        sas_token: String,
    },
}

/// Shows no secrets.
impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind())
    }
}

impl Credential {
    fn kind(&self) -> &'static str {
        match self {
            Self::S3 { .. } => "an S3 access key",
            Self::Bearer { .. } => "a bearer token",
            Self::AzureKey { .. } => "an Azure account key",
            Self::AzureSas { .. } => "an Azure SAS token",
        }
    }
}

/// A credential and how long it holds.
#[derive(Debug, Clone)]
pub struct Issued {
    /// What says who is asking.
    pub credential: Credential,
    /// When it stops to hold; `None` for never, and then it is asked for once.
    pub expires: Option<SystemTime>,
}

/// A source of credentials: a vault, a broker, a token file, a fixed key.
///
/// It is asked on first use and again before what it gave expires, by one request at a time; requests that need a
/// credential meanwhile use the old one while it holds, and wait after that.
#[async_trait]
pub trait Credentials: fmt::Debug + Send + Sync {
    /// Hands out a credential.
    ///
    /// # Errors
    /// Whatever keeps it from doing so; the request that asked fails with [`Error::Credentials`], which carries it.
    async fn issue(&self) -> Result<Issued, Box<dyn StdError + Send + Sync>>;
}

/// A credential that never changes is a source too.
#[async_trait]
impl Credentials for Credential {
    async fn issue(&self) -> Result<Issued, Box<dyn StdError + Send + Sync>> {
        Ok(Issued { credential: self.clone(), expires: None })
    }
}

/// At most this long before it expires, a credential is renewed.
const MARGIN: Duration = Duration::from_secs(300);

/// After a renewal that failed while the old credential holds, this long passes before the next one.
const PATIENCE: Duration = Duration::from_secs(5);

/// The credential of the moment.
#[derive(Debug)]
pub(crate) struct Renewed {
    url: String,
    source: Arc<dyn Credentials>,
    held: RwLock<Option<Held>>,
    renewing: tokio::sync::Mutex<()>,
}

#[derive(Debug, Clone)]
struct Held {
    issued: Issued,
    /// From when on it is to be renewed; `None` for never.
    renew: Option<SystemTime>,
}

impl Held {
    fn new(issued: Issued, now: SystemTime) -> Self {
        let renew = issued.expires.map(|expires| {
            let life = expires.duration_since(now).unwrap_or_default();
            expires - MARGIN.min(life / 5)
        });
        Self { issued, renew }
    }

    fn is_fresh(&self, now: SystemTime) -> bool {
        self.renew.is_none_or(|renew| now < renew)
    }

    fn holds(&self, now: SystemTime) -> bool {
        self.issued.expires.is_none_or(|expires| now < expires)
    }
}

impl Renewed {
    pub(crate) fn new(url: &str, source: Arc<dyn Credentials>) -> Self {
        Self { url: url.to_owned(), source, held: RwLock::default(), renewing: tokio::sync::Mutex::default() }
    }

    /// The credential of the moment, renewed if it is time.
    pub(crate) async fn current(&self) -> object_store::Result<Credential> {
        let held = self.held();
        if let Some(held) = held.as_ref().filter(|held| held.is_fresh(SystemTime::now())) {
            return Ok(held.issued.credential.clone());
        }
        let holds = held.filter(|held| held.holds(SystemTime::now()));
        let _turn = match (self.renewing.try_lock(), &holds) {
            (Ok(turn), _) => turn,
            // Somebody is at it, and the old one holds.
            (Err(_), Some(held)) => return Ok(held.issued.credential.clone()),
            (Err(_), None) => self.renewing.lock().await,
        };
        if let Some(held) = self.held().filter(|held| held.is_fresh(SystemTime::now())) {
            return Ok(held.issued.credential);
        }
        let issued = self.source.issue().await;
        let now = SystemTime::now();
        let new = match (issued, holds) {
            (Ok(issued), _) => Held::new(issued, now),
            (Err(error), Some(old)) => {
                tracing::warn!(url = self.url, %error, "credentials could not be renewed; the old ones still hold");
                Held { renew: Some(now + PATIENCE), ..old }
            }
            (Err(error), None) => return Err(self.failed(error)),
        };
        let credential = new.issued.credential.clone();
        *self.held.write().unwrap_or_else(PoisonError::into_inner) = Some(new);
        Ok(credential)
    }

    fn held(&self) -> Option<Held> {
        self.held.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The error of a source that gave nothing.
    pub(crate) fn failed(&self, source: Box<dyn StdError + Send + Sync>) -> object_store::Error {
        Error::Credentials { url: self.url.clone(), source }.into()
    }

    /// The error of a source that gave what another kind of store takes.
    pub(crate) fn unfit(&self, got: &Credential, wanted: &str) -> object_store::Error {
        self.failed(format!("they are {}, and this store takes {wanted}", got.kind()).into())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[derive(Debug, Default)]
    struct Counting {
        asked: AtomicUsize,
        lives: Mutex<Vec<Result<Duration, &'static str>>>,
    }

    impl Counting {
        fn renewed(lives: Vec<Result<Duration, &'static str>>) -> (Arc<Self>, Renewed) {
            let source = Arc::new(Self { lives: Mutex::new(lives), ..Self::default() });
            (source.clone(), Renewed::new("x://y", source))
        }
    }

    #[async_trait]
    impl Credentials for Counting {
        async fn issue(&self) -> Result<Issued, Box<dyn StdError + Send + Sync>> {
            let n = self.asked.fetch_add(1, Ordering::SeqCst);
            tokio::task::yield_now().await;
            let life = self.lives.lock().unwrap().get(n).copied().unwrap_or(Err("no more"))?;
            let credential = Credential::Bearer { token: n.to_string() };
            Ok(Issued { credential, expires: Some(SystemTime::now() + life) })
        }
    }

    fn token(n: usize) -> Credential {
        Credential::Bearer { token: n.to_string() }
    }

    #[tokio::test]
    async fn what_holds_long_is_asked_for_once_however_many_wait_for_it() {
        let (source, renewed) = Counting::renewed(vec![Ok(Duration::from_secs(3600))]);
        let all = futures::future::join_all((0..50).map(|_| renewed.current())).await;
        assert!(all.into_iter().all(|got| got.unwrap() == token(0)));
        assert_eq!(source.asked.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn what_has_expired_is_asked_for_again_and_never_used() {
        let (_, renewed) = Counting::renewed(vec![Ok(Duration::ZERO), Ok(Duration::from_secs(3600))]);
        assert_eq!(renewed.current().await.unwrap(), token(0));
        assert_eq!(renewed.current().await.unwrap(), token(1));
        assert_eq!(renewed.current().await.unwrap(), token(1));
    }

    #[tokio::test]
    async fn a_failure_while_the_old_one_holds_is_no_failure() {
        let (source, renewed) = Counting::renewed(vec![Ok(Duration::from_secs(3600)), Err("down")]);
        renewed.current().await.unwrap();
        renewed.held.write().unwrap().as_mut().unwrap().renew = Some(SystemTime::UNIX_EPOCH);
        assert_eq!(renewed.current().await.unwrap(), token(0));
        assert_eq!(renewed.current().await.unwrap(), token(0));
        assert_eq!(source.asked.load(Ordering::SeqCst), 2, "a source that fails is left alone for a while");
    }

    #[tokio::test]
    async fn a_failure_without_one_that_holds_is_typed_and_carries_its_cause() {
        let (_, renewed) = Counting::renewed(vec![Err("the vault is sealed")]);
        let error = Error::store("read", "x://y", "o", None, renewed.current().await.unwrap_err());
        assert!(matches!(&error, Error::Credentials { url, .. } if url == "x://y"), "{error:?}");
        assert!(error.to_string().contains("the vault is sealed"), "{error}");
    }
}
