//! Whether a store's put-if-absent can be relied on.

use bytes::Bytes;
use futures::future::join_all;
use object_store::{GetOptions, ObjectStoreExt as _, PutMode, PutOptions, PutPayload};

use super::Storage;
use super::read::collect;
use crate::error::{Error, Result};

/// How many race for one name.
const RACERS: usize = 8;

impl Storage {
    /// Makes sure that only one of several clients that create an object at the same moment is told that it did.
    ///
    /// Commits stand on that. Some servers look first and write then, or do not know the condition and always write; with
    /// them two writers would both be told that their commit is in place, and one of the commits would be gone. Sends
    /// some requests about an object of the name `path`, which must be free, and removes it. Local and memory storages are
    /// known to be fine and are not asked; so are those of [`Storage::from_store`].
    ///
    /// # Errors
    /// [`Error::NotAtomic`], and those of the store.
    pub async fn probe(&self, path: &str) -> Result<()> {
        let location = self.writable("probe", path)?;
        if !self.tuning().remote {
            return Ok(());
        }
        let backend = self.backend()?;
        let create = |n: usize| {
            let mode = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
            backend.claims.put_opts(&location, PutPayload::from(payload(n)), mode)
        };
        let raced = join_all((0..RACERS).map(create)).await;
        let winners: Vec<usize> = (0..RACERS).filter(|n| raced[*n].is_ok()).collect();
        // An answer that was lost may have been that of the winner; the object says who it was.
        let late = create(RACERS).await;
        let read = async {
            let answer = backend.store.get_opts(&location, GetOptions::default()).await?;
            let size = answer.meta.size as usize;
            collect(answer, size).await
        };
        let holds = read.await;
        let removed = backend.store.delete(&location).await;
        let url = || self.url().to_owned();
        if winners.len() > 1 {
            let reason = format!(
                "{} of {RACERS} clients that created one object at once were told that they did",
                winners.len()
            );
            return Err(Error::NotAtomic { url: url(), reason });
        }
        if late.is_ok() {
            return Err(Error::NotAtomic { url: url(), reason: "it replaced an object that was there".to_owned() });
        }
        match (raced.into_iter().find_map(|end| end.err().filter(|e| !is_taken(e))), winners.first(), holds) {
            // With nobody told, it is not known to be fine.
            (Some(error), None, _) => Err(self.failed("probe", path, error)),
            (_, Some(winner), Ok(bytes)) if bytes != payload(*winner) => {
                let reason = "the object does not hold the bytes of the one who was told that it won".to_owned();
                Err(Error::NotAtomic { url: url(), reason })
            }
            (_, _, Err(error)) => Err(self.failed("probe", path, error)),
            _ => removed.map_err(|error| self.failed("delete", path, error)),
        }
    }
}

fn payload(n: usize) -> Bytes {
    Bytes::from(format!("forebay probe {n}"))
}

fn is_taken(error: &object_store::Error) -> bool {
    use object_store::Error as E;
    matches!(error, E::AlreadyExists { .. } | E::Precondition { .. } | E::NotModified { .. })
}
