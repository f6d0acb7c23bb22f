//! Sending the requests of a claim; the decisions are in [`claim`](crate::claim).

use bytes::Bytes;
use object_store::path::Path;
use object_store::{GetOptions, PutMode, PutOptions, PutPayload};

use super::read::collect;
use super::{Backend, Storage};
use crate::claim::{Attempt, Claim, Next, Seen, next};
use crate::engine::retry::random;
use crate::error::{Error, Result};

/// How often a claim sends its request before it gives up on knowing.
const ATTEMPTS: u32 = 5;

impl Storage {
    /// Stores an object if there is none of that name, and says who has the name: see [`claim`](crate::claim).
    ///
    /// `bytes` must be unlike those of any other claimant: put a nonce in.
    ///
    /// # Errors
    /// An error means that the object was not stored by this call and will not be; when that is not sure the answer is
    /// [`Claim::Unknown`].
    pub async fn claim(&self, path: &str, bytes: Bytes) -> Result<Claim> {
        let location = self.writable("claim", path)?;
        let backend = self.backend()?;
        let _permit = backend.permits.acquire().await.ok();
        let mut open = false;
        let mut wait = self.shared.tuning.claim_backoff;
        let mut left = ATTEMPTS;
        loop {
            left -= 1;
            let create = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
            let sent = backend.claims.put_opts(&location, PutPayload::from(bytes.clone()), create).await;
            let Err(error) = sent else { return Ok(Claim::Ours) };
            let (attempt, mut error) = self.classify(path, error);
            let mut decision = next(attempt, &Seen::NotAsked, &bytes, open);
            if decision == Next::ReadBack {
                let (seen, problem) = self.read_back(path, &location, backend).await;
                decision = next(attempt, &seen, &bytes, open);
                // That the name is taken is no problem; that nobody can say by whom is.
                if attempt == Attempt::Taken {
                    error = problem.unwrap_or(error);
                }
            }
            open |= attempt == Attempt::Ambiguous;
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

    /// What a failed request means, and the error to report if nothing better is found out.
    fn classify(&self, path: &str, error: object_store::Error) -> (Attempt, Error) {
        use object_store::Error as E;
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

    /// What the object holds, and the problem if that cannot be said.
    async fn read_back(&self, path: &str, location: &Path, backend: &Backend) -> (Seen, Option<Error>) {
        let read = async {
            let result = backend.store.get_opts(location, GetOptions::default()).await?;
            let size = result.meta.size;
            Ok((size, collect(result, size as usize).await?))
        };
        match read.await {
            Ok((size, bytes)) if bytes.len() as u64 == size => (Seen::Bytes(bytes), None),
            Ok((size, bytes)) => {
                let (url, path, got) = (self.url().to_owned(), path.to_owned(), bytes.len() as u64);
                (Seen::Failed, Some(Error::ShortRead { url, path, range: 0..size, got }))
            }
            Err(object_store::Error::NotFound { .. }) => (Seen::Nothing, None),
            Err(error) => (Seen::Failed, Some(self.failed("read back", path, error))),
        }
    }
}

/// A wait of half to one and a half times `wait`, so that many claimants do not come back at the same moment.
fn jittered(wait: std::time::Duration) -> std::time::Duration {
    wait.mul_f64(0.5 + random())
}
