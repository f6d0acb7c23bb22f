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

    /// Reads the bytes from `start` on into `parts`, one behind the other, until all are full: each byte is copied once, from
    /// the answer to where it belongs. More than [`plan`](crate::plan) allows at once is read by parallel requests.
    ///
    /// # Errors
    /// As [`Storage::get_range`]; what is in `parts` then is undefined.
    pub async fn read_into(&self, path: &str, start: u64, parts: Vec<&mut [u8]>) -> Result<()> {
        let location = self.object(path)?;
        let length: u64 = parts.iter().map(|part| part.len() as u64).sum();
        self.check_range(path, &(start..start.checked_add(length).unwrap_or(0)))?;
        let reads = split_parts(parts, self.shared.tuning.limits.max);
        let reads = reads.into_iter().map(|(at, parts)| self.fill(path, &location, start + at, parts));
        future::try_join_all(reads).await?;
        Ok(())
    }

    /// One request for bytes that fill `parts`.
    async fn fill(&self, path: &str, location: &Path, start: u64, parts: Vec<&mut [u8]>) -> Result<()> {
        let length: u64 = parts.iter().map(|part| part.len() as u64).sum();
        if length == 0 {
            return Ok(());
        }
        let backend = self.backend()?;
        let _permit = backend.permits.acquire().await.ok();
        let (result, range) = self.request(path, location, Some(start..start + length), backend).await?;
        let failed = |source| Error::store("read", self.url(), path, Some(range.clone()), source);
        let (mut stream, mut got, mut parts) = (result.into_stream(), 0, parts.into_iter());
        let mut part: &mut [u8] = &mut [];
        while let Some(chunk) = stream.next().await.transpose().map_err(failed)? {
            got += chunk.len() as u64;
            if got > length {
                break;
            }
            let mut chunk = &chunk[..];
            while !chunk.is_empty() {
                if part.is_empty() {
                    part = parts.next().unwrap_or_default();
                    continue;
                }
                let fits = chunk.len().min(part.len());
                let (to, rest) = std::mem::take(&mut part).split_at_mut(fits);
                let (from, left) = chunk.split_at(to.len());
                to.copy_from_slice(from);
                (part, chunk) = (rest, left);
            }
        }
        if got == length { Ok(()) } else { Err(self.short(path, range, got)) }
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
        let (result, wanted) = self.request(path, location, range.clone(), backend).await?;
        let bytes = collect(result, (wanted.end - wanted.start) as usize).await.map_err(failed)?;
        let got = bytes.len() as u64;
        if got == wanted.end - wanted.start { Ok(bytes) } else { Err(self.short(path, wanted, got)) }
    }

    /// One request; gives the range of its answer, which is the one asked for.
    async fn request(
        &self,
        path: &str,
        location: &Path,
        range: Option<Range<u64>>,
        backend: &Backend,
    ) -> Result<(GetResult, Range<u64>)> {
        let options = GetOptions { range: range.clone().map(GetRange::Bounded), ..GetOptions::default() };
        let result = match backend.store.get_opts(location, options).await {
            Ok(result) => result,
            Err(error) => return Err(self.explain_range(path, location, range, error, backend).await),
        };
        let wanted = range.unwrap_or(0..result.meta.size);
        if result.range != wanted {
            let got = result.range.end.saturating_sub(result.range.start);
            return Err(self.short(path, wanted, got));
        }
        Ok((result, wanted))
    }

    fn short(&self, path: &str, range: Range<u64>, got: u64) -> Error {
        Error::ShortRead { url: self.url().to_owned(), path: path.to_owned(), range, got }
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
            return self.short(path, range.clone(), meta.size.saturating_sub(range.start));
        }
        Error::store("read", self.url(), path, range, error)
    }
}

/// Cuts buffers that lie behind each other into reads of at most `max` bytes; 0 means no limit. Gives where each begins.
fn split_parts(parts: Vec<&mut [u8]>, max: u64) -> Vec<(u64, Vec<&mut [u8]>)> {
    let max = if max == 0 { u64::MAX } else { max };
    let (mut reads, mut at, mut room) = (Vec::<(u64, Vec<&mut [u8]>)>::new(), 0, 0);
    for mut part in parts {
        while !part.is_empty() {
            if room == 0 {
                reads.push((at, Vec::new()));
                room = max;
            }
            let (now, later) = part.split_at_mut(part.len().min(usize::try_from(room).unwrap_or(usize::MAX)));
            at += now.len() as u64;
            room -= now.len() as u64;
            part = later;
            if let Some((_, read)) = reads.last_mut() {
                read.push(now);
            }
        }
    }
    reads
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
