//! A store whose put-if-absent is none.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use futures::stream::BoxStream;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    ObjectStoreExt as _, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

/// How a put-if-absent lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lie {
    /// It looks first and writes then, as servers do that check a condition without a lock: all who race win.
    LooksFirst,
    /// It never looks, as servers do that do not know the condition: everybody wins.
    NeverLooks,
}

/// Wraps a store, and makes its put-if-absent what it is on some servers: not atomic, or not conditional at all.
#[derive(Debug)]
pub struct LyingStore {
    inner: Arc<dyn ObjectStore>,
    lie: Lie,
}

impl LyingStore {
    /// Wraps a store that does not lie.
    pub fn new(inner: Arc<dyn ObjectStore>, lie: Lie) -> Self {
        Self { inner, lie }
    }
}

impl fmt::Display for LyingStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lies about {}", self.inner)
    }
}

#[async_trait]
impl ObjectStore for LyingStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        if options.mode != PutMode::Create {
            return self.inner.put_opts(location, payload, options).await;
        }
        if self.lie == Lie::LooksFirst && self.inner.head(location).await.is_ok() {
            return Err(Error::AlreadyExists { path: location.to_string(), source: "it is there".into() });
        }
        // Whoever else looks does so now.
        tokio::task::yield_now().await;
        self.inner.put_opts(location, payload, PutOptions { mode: PutMode::Overwrite, ..options }).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.inner.get_opts(location, options).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}
