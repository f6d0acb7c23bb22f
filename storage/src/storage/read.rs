//! Reading objects: every byte that was asked for, or an error.

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use futures::{StreamExt, future};
use object_store::path::Path;
use object_store::{GetOptions, GetRange, GetResult, GetResultPayload, ObjectStoreExt};

use super::{Backend, Storage};
use crate::error::{Error, Result};
use crate::plan::Plan;

impl Storage {
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
}

/// The body of an answer, copied at most once; more bytes than `expected` end the reading early.
pub(super) async fn collect(result: GetResult, expected: usize) -> object_store::Result<Bytes> {
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
