//! Reading objects: every byte that was asked for, or an error.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::ops::Range;

use bytes::{Bytes, BytesMut};
use futures::{StreamExt, future};
use object_store::{GetResult, GetResultPayload, ObjectStoreExt};
use tokio::runtime::{Handle, RuntimeFlavor};

use super::{Backend, Storage};
use crate::cache::{Cache, Piece};
use crate::engine::retry::{Class, Failure, classify};
use crate::engine::{Ask, Failed, Sink};
use crate::error::{Error, Result};
use crate::plan::Plan;
use crate::version::Version;

impl Storage {
    /// Reads a whole object.
    ///
    /// # Errors
    /// [`Error::NotFound`] (see [`Error::is_not_found`]), [`Error::ShortRead`] and those of the store.
    pub async fn get(&self, path: &str) -> Result<Bytes> {
        self.object(path)?;
        self.read(&Ask { path, range: None, fixed: false, version: None }).await
    }

    /// Reads exactly the bytes `range` of an object; an empty range needs no request.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::InvalidRange`], [`Error::ShortRead`] when the object ends before the range does, and
    /// those of the store.
    pub async fn get_range(&self, path: &str, range: Range<u64>) -> Result<Bytes> {
        self.object(path)?;
        self.check_range(path, &range)?;
        if range.is_empty() {
            return Ok(Bytes::new());
        }
        self.read(&Ask::fixed(path, range)).await
    }

    /// Reads exactly the bytes of each range, in the order given, by as few and as parallel requests as
    /// [`plan`](crate::plan) finds right.
    ///
    /// # Errors
    /// As [`Storage::get_range`]; the first one stops all.
    pub async fn get_ranges(&self, path: &str, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.ranges(path, ranges, |range| Ask::fixed(path, range)).await
    }

    /// As [`Storage::get_ranges`], of an object that others may replace: every byte is of the version named, or it is an error.
    /// An object that has an etag is cached as that version of it.
    ///
    /// # Errors
    /// [`Error::Changed`] if the object is another one by now, and as [`Storage::get_ranges`].
    pub async fn get_ranges_of(&self, path: &str, version: &Version, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        if ranges.iter().all(Range::is_empty) {
            self.check(path, version).await?;
        }
        self.ranges(path, ranges, |range| Ask { path, range: Some(range), fixed: false, version: Some(version) }).await
    }

    /// Asks the store whether an object is still of a version, without reading it.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Changed`] and those of the store.
    pub async fn check(&self, path: &str, version: &Version) -> Result<()> {
        let location = self.object(path)?;
        let meta = self.backend()?.store.head(&location).await.map_err(|e| self.failed("look at", path, e))?;
        match version.differs(&meta) {
            Some(reason) => Err(self.changed(path, reason)),
            None => Ok(()),
        }
    }

    fn changed(&self, path: &str, reason: String) -> Error {
        Error::Changed { url: self.url().to_owned(), path: path.to_owned(), reason }
    }

    async fn ranges<'a>(
        &self,
        path: &str,
        ranges: &[Range<u64>],
        ask: impl Fn(Range<u64>) -> Ask<'a>,
    ) -> Result<Vec<Bytes>> {
        self.object(path)?;
        ranges.iter().try_for_each(|range| self.check_range(path, range))?;
        let plan = Plan::new(ranges, self.shared.tuning.limits);
        let asks: Vec<_> = plan.reads.iter().cloned().map(ask).collect();
        let bytes = future::try_join_all(asks.iter().map(|ask| self.read(ask))).await?;
        Ok(plan.assemble(&bytes))
    }

    /// Reads the bytes from `start` on into `parts`, one behind the other, until all are full: each byte is copied once, from
    /// the answer to where it belongs. More than [`plan`](crate::plan) allows at once is read by parallel requests.
    ///
    /// # Errors
    /// As [`Storage::get_range`]; what is in `parts` then is undefined.
    pub async fn read_into(&self, path: &str, start: u64, parts: Vec<&mut [u8]>) -> Result<()> {
        self.object(path)?;
        let length: u64 = parts.iter().map(|part| part.len() as u64).sum();
        self.check_range(path, &(start..start.checked_add(length).unwrap_or(0)))?;
        let reads = split_parts(parts, self.shared.tuning.limits.max);
        let reads = reads.into_iter().map(|(at, parts)| self.fill(path, start + at, parts));
        future::try_join_all(reads).await?;
        Ok(())
    }

    /// One request for bytes that fill `parts`.
    async fn fill(&self, path: &str, start: u64, parts: Vec<&mut [u8]>) -> Result<()> {
        let length: u64 = parts.iter().map(|part| part.len() as u64).sum();
        if length == 0 {
            return Ok(());
        }
        let ask = Ask::fixed(path, start..start + length);
        if let Some(cache) = &self.backend()?.cache {
            let mut to = Places::new(parts);
            self.cached(cache, path, &ask).await?.iter().for_each(|piece| to.copy(piece));
            return Ok(());
        }
        self.send(&ask, &mut Fill(parts)).await
    }

    fn check_range(&self, path: &str, range: &Range<u64>) -> Result<()> {
        if range.start <= range.end {
            return Ok(());
        }
        Err(Error::InvalidRange { url: self.url().to_owned(), path: path.to_owned(), range: range.clone() })
    }

    /// One request, and every byte of its answer.
    async fn read(&self, ask: &Ask<'_>) -> Result<Bytes> {
        match (&self.backend()?.cache, ask.kept_as()) {
            (Some(cache), Some(name)) => {
                let mut pieces = self.cached(cache, &name, ask).await?;
                Ok(if pieces.len() == 1 { pieces.remove(0) } else { pieces.concat().into() })
            }
            _ => self.send(ask, &mut Whole).await,
        }
    }

    /// The bytes of a range in pieces: what a cache holds of them under a name, and neighbours that it misses by one request each run.
    async fn cached(&self, cache: &Cache, name: &str, ask: &Ask<'_>) -> Result<Vec<Bytes>> {
        let pieces = cache.pieces(name, &ask.range.clone().unwrap_or(0..0));
        let mut found = cache.find(&pieces).await;
        let missing: Vec<usize> = (0..pieces.len()).filter(|i| found[*i].is_none()).collect();
        let fetch = missing.chunk_by(|a, b| a + 1 == *b).map(|run| {
            let run = run[0]..run[run.len() - 1] + 1;
            let (pieces, start) = (&pieces[run.clone()], pieces[run.start].bytes.start);
            let end = pieces[pieces.len() - 1].bytes.end;
            async move {
                let ask = Ask { range: Some(start..end), ..ask.clone() };
                let bytes = self.send(&ask, &mut Whole).await?;
                let part = |piece: &Piece| {
                    bytes.slice((piece.bytes.start - start) as usize..(piece.bytes.end - start) as usize)
                };
                let parts: Vec<Bytes> = pieces.iter().map(part).collect();
                pieces.iter().zip(&parts).for_each(|(piece, part)| cache.keep(piece, part));
                Ok::<_, Error>((run, parts))
            }
        });
        for (run, parts) in future::try_join_all(fetch.collect::<Vec<_>>()).await? {
            found[run].iter_mut().zip(parts).for_each(|(found, part)| *found = Some(part));
        }
        Ok(found.into_iter().flatten().collect())
    }

    async fn send<S: Sink>(&self, ask: &Ask<'_>, sink: &mut S) -> Result<S::Got> {
        let backend = self.backend()?;
        match backend.engine.get(ask, sink).await {
            Ok(got) => Ok(got),
            Err(failed) => Err(self.explain(ask, failed, backend).await),
        }
    }

    /// The error of a read that failed at last.
    ///
    /// Tells a range that begins beyond the end of its object from other refusals, which every store words differently.
    async fn explain(&self, ask: &Ask<'_>, failed: Failed, backend: &Backend) -> Error {
        let short = |range, got| Error::ShortRead { url: self.url().to_owned(), path: ask.path.to_owned(), range, got };
        let class = classify(&failed.failure);
        let error = match failed.failure {
            Failure::Short { range, got, .. } => return short(range, got),
            Failure::Changed { reason } => return self.changed(ask.path, reason),
            Failure::Store(error) => error,
        };
        if let (Some(range), object_store::Error::Generic { .. }, Class::Final) = (&ask.range, &error, class)
            && let Ok(location) = backend.engine.sources().main().locate(ask.path)
            && let Ok(meta) = backend.store.head(&location).await
            && meta.size < range.end
        {
            return match ask.version.and_then(|version| version.differs(&meta)) {
                Some(reason) => self.changed(ask.path, reason),
                None => short(range.clone(), meta.size.saturating_sub(range.start)),
            };
        }
        Error::store("read", self.url(), ask.path, ask.range.clone(), error).after(failed.attempts)
    }
}

impl<'a> Ask<'a> {
    /// Bytes of an object that never changes.
    fn fixed(path: &'a str, range: Range<u64>) -> Self {
        Self { path, range: Some(range), fixed: true, version: None }
    }

    /// The name under which a cache keeps what is asked for, if it never changes.
    fn kept_as(&self) -> Option<Cow<'a, str>> {
        self.range.as_ref()?;
        match self.version {
            None => self.fixed.then_some(Cow::Borrowed(self.path)),
            Some(version) => Some(Cow::Owned(format!("{}\0{}", self.path, version.etag.as_ref()?))),
        }
    }
}

/// Takes a body in as one piece, copied at most once.
struct Whole;

impl Sink for Whole {
    type Got = Bytes;

    async fn take(&mut self, answer: GetResult, wanted: &Range<u64>) -> Result<Bytes, Failure> {
        let length = wanted.end - wanted.start;
        let bytes = collect(answer, length as usize).await.map_err(Failure::Store)?;
        let got = bytes.len() as u64;
        if got == length { Ok(bytes) } else { Err(Failure::Short { range: wanted.clone(), got, cut: true }) }
    }
}

/// Takes a body into memory that lies in several places.
struct Fill<'a>(Vec<&'a mut [u8]>);

impl Sink for Fill<'_> {
    type Got = ();

    async fn take(&mut self, answer: GetResult, wanted: &Range<u64>) -> Result<(), Failure> {
        let length = wanted.end - wanted.start;
        if let GetResultPayload::File(file, path) = answer.payload {
            return blocking(|| read_file(&file, &mut self.0, wanted.start)).map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof => {
                    let got = (&file).stream_position().unwrap_or(wanted.start).saturating_sub(wanted.start);
                    Failure::Short { range: wanted.clone(), got, cut: true }
                }
                _ => Failure::Store(Error::disk("read", path, error).into()),
            });
        }
        let (mut stream, mut got) = (answer.into_stream(), 0);
        let mut to = Places::new(self.0.iter_mut().map(|part| &mut **part));
        while let Some(chunk) = stream.next().await.transpose().map_err(Failure::Store)? {
            got += chunk.len() as u64;
            if got > length {
                break;
            }
            to.copy(&chunk);
        }
        if got == length { Ok(()) } else { Err(Failure::Short { range: wanted.clone(), got, cut: true }) }
    }
}

/// Reads a file from `at` on until all parts are full. As a stream it would come in pieces of 8 KiB, each by way of another thread.
fn read_file(mut file: &File, parts: &mut [&mut [u8]], at: u64) -> io::Result<()> {
    file.seek(SeekFrom::Start(at))?;
    parts.iter_mut().try_for_each(|part| file.read_exact(part))
}

/// Does work that blocks, while the other tasks of this thread go on elsewhere if the runtime has threads for them.
fn blocking<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}

/// Memory that lies in several places, filled from the front.
struct Places<'a, I> {
    part: &'a mut [u8],
    rest: I,
}

impl<'a, I: Iterator<Item = &'a mut [u8]>> Places<'a, I> {
    fn new(parts: impl IntoIterator<IntoIter = I>) -> Self {
        Self { part: &mut [], rest: parts.into_iter() }
    }

    /// Copies as much as there is room for.
    fn copy(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.part.is_empty() {
                match self.rest.next() {
                    Some(next) => self.part = next,
                    None => return,
                }
                continue;
            }
            let fits = bytes.len().min(self.part.len());
            let (to, room) = std::mem::take(&mut self.part).split_at_mut(fits);
            let (from, left) = bytes.split_at(fits);
            to.copy_from_slice(from);
            (self.part, bytes) = (room, left);
        }
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
