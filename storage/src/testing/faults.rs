//! A store that fails on schedule and remembers what it was asked.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::future;
use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetRange, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, ObjectStoreExt, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, UploadPart,
};

use super::rules::{Fault, OpKind, Operation, Rule};
use crate::engine::retry::Injected;

/// Wraps a store, lets chosen requests fail in chosen ways, and records every request.
///
/// Deterministic: the same rules, seed and order of requests give the same faults. Bodies are read to their end before
/// they are handed on, so a record counts what was really transferred.
#[derive(Debug, Clone)]
pub struct FaultStore {
    inner: Arc<dyn ObjectStore>,
    state: Arc<Mutex<State>>,
    latency: Duration,
}

#[derive(Debug)]
struct State {
    rules: Vec<Rule>,
    operations: Vec<Operation>,
    late: Vec<LateWrite>,
    random: u64,
    stopped: bool,
}

/// A write whose sender has given up on it and which still arrives.
#[derive(Debug)]
struct LateWrite {
    after: u32,
    location: Path,
    payload: PutPayload,
    options: PutOptions,
}

impl State {
    /// splitmix64: small, seedable and good enough to choose faults.
    fn next_random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

impl std::fmt::Display for FaultStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "faults on {}", self.inner)
    }
}

/// A request that has begun: where its record is, and what is to go wrong.
struct Begun {
    index: usize,
    fault: Option<Fault>,
}

impl FaultStore {
    /// Wraps a store; without rules nothing goes wrong.
    pub fn new(inner: Arc<dyn ObjectStore>, seed: u64) -> Self {
        let state = State { rules: Vec::new(), operations: Vec::new(), late: Vec::new(), random: seed, stopped: false };
        Self { inner, state: Arc::new(Mutex::new(state)), latency: Duration::ZERO }
    }

    /// Adds this time to every request.
    #[must_use]
    pub fn with_latency(mut self, latency: Duration) -> Self {
        self.latency = latency;
        self
    }

    /// Adds a rule; of several that fit, the one added first decides.
    pub fn add(&self, rule: Rule) -> &Self {
        self.state().rules.push(rule);
        self
    }

    /// Removes all rules and the records so far.
    pub fn clear(&self) {
        let mut state = self.state();
        state.rules.clear();
        state.operations.clear();
    }

    /// Every request so far, in the order they began.
    pub fn operations(&self) -> Vec<Operation> {
        self.state().operations.clone()
    }

    /// How many requests of a kind began so far.
    pub fn count(&self, kind: OpKind) -> usize {
        self.state().operations.iter().filter(|o| o.kind == kind).count()
    }

    /// Whether a rule has stopped the process, so that everything fails.
    pub fn is_stopped(&self) -> bool {
        self.state().stopped
    }

    /// Lets every late write arrive now, also after a stop.
    pub async fn settle(&self) {
        let late = std::mem::take(&mut self.state().late);
        self.arrive(late).await;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn arrive(&self, writes: Vec<LateWrite>) {
        for write in writes {
            // Its sender gave up: nobody hears whether it found the name taken.
            let _ = self.inner.put_opts(&write.location, write.payload, write.options).await;
        }
    }

    /// Writes that arrive just before the operation that begins now.
    fn due(&self) -> Vec<LateWrite> {
        let mut state = self.state();
        state.late.iter_mut().for_each(|write| write.after -= 1);
        let (due, late) = std::mem::take(&mut state.late).into_iter().partition(|write| write.after == 0);
        state.late = late;
        due
    }

    async fn begin(&self, kind: OpKind, path: &str, range: Option<std::ops::Range<u64>>) -> Result<Begun> {
        if self.is_stopped() {
            return Err(injected("the process has stopped"));
        }
        self.arrive(self.due()).await;
        let begun = self.record(kind, path, range);
        if !self.latency.is_zero() {
            tokio::time::sleep(self.latency).await;
        }
        match begun.fault {
            Some(Fault::Delay(time)) => tokio::time::sleep(time).await,
            Some(Fault::Jitter(most)) => {
                let share = self.state().next_random() as f64 / u64::MAX as f64;
                tokio::time::sleep(most.mul_f64(share)).await;
            }
            Some(Fault::Stall) => future::pending().await,
            #[expect(clippy::panic, reason = "it is what was asked for")]
            Some(Fault::Panic) => panic!("injected"),
            Some(Fault::Throttle) => {
                let source = Box::new(Injected { what: "503 Slow Down", throttled: true });
                return Err(Error::Generic { store: "fault injection", source });
            }
            Some(Fault::ErrorBefore) => return Err(injected("an error before any effect")),
            Some(Fault::Late(_)) if !matches!(kind, OpKind::Put | OpKind::Create) => {
                return Err(injected("an error before any effect"));
            }
            Some(Fault::Refuse) => {
                return Err(Error::PermissionDenied { path: path.to_owned(), source: "refused on purpose".into() });
            }
            Some(Fault::StopBefore) => {
                self.state().stopped = true;
                return Err(injected("the process stopped before this operation"));
            }
            _ => {}
        }
        Ok(begun)
    }

    fn record(&self, kind: OpKind, path: &str, range: Option<std::ops::Range<u64>>) -> Begun {
        let mut state = self.state();
        let random = state.next_random() as f64 / u64::MAX as f64;
        // Every rule counts, so that "the n-th" of one does not depend on another.
        let fired: Vec<Fault> =
            state.rules.iter_mut().filter_map(|r| r.fires(kind, path, || random).then_some(r.fault)).collect();
        let fault = fired.first().copied();
        state.operations.push(Operation { kind, path: path.to_owned(), range, bytes: 0, fault });
        Begun { index: state.operations.len() - 1, fault }
    }

    fn transferred(&self, begun: &Begun, bytes: usize) {
        if let Some(operation) = self.state().operations.get_mut(begun.index) {
            operation.bytes += bytes as u64;
        }
    }

    /// Ends a request that took effect.
    fn end<T>(&self, begun: &Begun, result: Result<T>) -> Result<T> {
        match begun.fault {
            Some(Fault::ErrorAfter) => Err(injected("the reply was lost")),
            Some(Fault::StopAfter) => {
                self.state().stopped = true;
                Err(injected("the process stopped after this operation"))
            }
            _ => result,
        }
    }

    /// The body as a stream, which may break off or stall.
    fn body(&self, begun: &Begun, body: Bytes) -> BoxStream<'static, Result<Bytes>> {
        let half = |bytes: u64| body.slice(..(bytes as usize).min(body.len()));
        match begun.fault {
            Some(Fault::StallBody) => {
                let begins = stream::iter([Ok(half(body.len() as u64 / 2))]);
                begins.chain(stream::once(future::pending())).boxed()
            }
            Some(Fault::Break(at)) => {
                let random = self.state().next_random();
                let begins = half(at.unwrap_or(random % (body.len() as u64).max(1)));
                stream::iter([Ok(begins), Err(injected("the connection was reset"))]).boxed()
            }
            _ => stream::once(future::ready(Ok(body))).boxed(),
        }
    }

    fn damage(&self, begun: &Begun, body: Bytes) -> Bytes {
        match begun.fault {
            Some(Fault::Truncate(at)) => {
                let random = self.state().next_random();
                let end = at.unwrap_or(random % (body.len() as u64).max(1));
                body.slice(..(end as usize).min(body.len()))
            }
            Some(Fault::Flip(bit)) if !body.is_empty() => {
                let bit = bit.unwrap_or_else(|| self.state().next_random()) % (body.len() as u64 * 8);
                let mut bytes = body.to_vec();
                bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
                bytes.into()
            }
            _ => body,
        }
    }
}

fn injected(what: &'static str) -> Error {
    Error::Generic { store: "fault injection", source: Box::new(Injected { what, throttled: false }) }
}

#[async_trait]
impl ObjectStore for FaultStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let kind = if options.mode == PutMode::Create { OpKind::Create } else { OpKind::Put };
        let begun = self.begin(kind, location.as_ref(), None).await?;
        self.transferred(&begun, payload.content_length());
        if let Some(Fault::Late(after)) = begun.fault {
            let write = LateWrite { after: after.max(1), location: location.clone(), payload, options };
            self.state().late.push(write);
            return Err(injected("no reply yet"));
        }
        self.end(&begun, self.inner.put_opts(location, payload, options).await)
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let begun = self.begin(OpKind::Begin, location.as_ref(), None).await?;
        let inner = self.end(&begun, self.inner.put_multipart_opts(location, options).await)?;
        Ok(Box::new(FaultUpload { store: self.clone(), inner, location: location.clone() }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let kind = if options.head { OpKind::Head } else { OpKind::Get };
        let range = match &options.range {
            Some(GetRange::Bounded(range)) => Some(range.clone()),
            _ => None,
        };
        let begun = self.begin(kind, location.as_ref(), range).await?;
        let result = self.inner.get_opts(location, options).await;
        // A process may also stop after it was told that there is no such object.
        let result = match result {
            Ok(result) if kind != OpKind::Head => result,
            ended => return self.end(&begun, ended),
        };
        let (meta, range, attributes) = (result.meta.clone(), result.range.clone(), result.attributes.clone());
        let body = self.damage(&begun, result.bytes().await?);
        self.transferred(&begun, body.len());
        let payload = GetResultPayload::Stream(self.body(&begun, body));
        self.end(&begun, Ok(GetResult { payload, meta, range, attributes }))
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let this = self.clone();
        locations
            .then(move |location| {
                let this = this.clone();
                async move {
                    let location = location?;
                    let begun = this.begin(OpKind::Delete, location.as_ref(), None).await?;
                    this.end(&begun, this.inner.delete(&location).await).map(|()| location)
                }
            })
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (this, prefix) = (self.clone(), prefix.cloned());
        async move {
            let begun = this.begin(OpKind::List, prefix.as_ref().map_or("", Path::as_ref), None).await?;
            this.end(&begun, Ok(this.inner.list(prefix.as_ref())))
        }
        .into_stream()
        .try_flatten()
        .boxed()
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        let (this, prefix, offset) = (self.clone(), prefix.cloned(), offset.clone());
        async move {
            let begun = this.begin(OpKind::List, prefix.as_ref().map_or("", Path::as_ref), None).await?;
            this.end(&begun, Ok(this.inner.list_with_offset(prefix.as_ref(), &offset)))
        }
        .into_stream()
        .try_flatten()
        .boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let begun = self.begin(OpKind::List, prefix.map_or("", Path::as_ref), None).await?;
        self.end(&begun, self.inner.list_with_delimiter(prefix).await)
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        let begun = self.begin(OpKind::Copy, to.as_ref(), None).await?;
        self.end(&begun, self.inner.copy_opts(from, to, options).await)
    }
}

/// An upload in parts through a [`FaultStore`].
#[derive(Debug)]
struct FaultUpload {
    store: FaultStore,
    inner: Box<dyn MultipartUpload>,
    location: Path,
}

#[async_trait]
impl MultipartUpload for FaultUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let (store, path, length) = (self.store.clone(), self.location.to_string(), data.content_length());
        // Made at once, since the order of these calls is the order of the parts; sent only when polled.
        let part = self.inner.put_part(data);
        async move {
            let begun = store.begin(OpKind::Part, &path, None).await?;
            store.transferred(&begun, length);
            store.end(&begun, part.await)
        }
        .boxed()
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let begun = self.store.begin(OpKind::Complete, self.location.as_ref(), None).await?;
        self.store.end(&begun, self.inner.complete().await)
    }

    async fn abort(&mut self) -> Result<()> {
        let begun = self.store.begin(OpKind::Abort, self.location.as_ref(), None).await?;
        self.store.end(&begun, self.inner.abort().await)
    }
}
