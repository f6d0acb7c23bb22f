//! [`ObjectStore`] on a local folder, durable where `object_store`'s own is not.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path as FilePath, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::UNIX_EPOCH;

use async_trait::async_trait;
use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt};
use object_store::path::Path;
use object_store::{
    Attributes, CopyMode, CopyOptions, Error as StoreError, GetOptions, GetResult, GetResultPayload, ListResult,
    MultipartUpload, ObjectMeta, ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult,
    UploadPart,
};

use super::durable::{Folders, Publish, Published, Staged};
use super::files::{Found, Wanted, entries, is_leftover_name, walk};
use crate::error::{Error, Result};

type StoreResult<T> = std::result::Result<T, StoreError>;

/// A folder as an object store: `put` and put-if-absent are atomic and on disk when they return.
#[derive(Debug, Clone)]
pub(crate) struct LocalStore {
    root: Arc<PathBuf>,
    folders: Arc<Folders>,
}

impl std::fmt::Display for LocalStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.root.display())
    }
}

impl LocalStore {
    /// The store of a folder, which need not exist yet: the first write makes it.
    pub(crate) fn new(root: PathBuf) -> Self {
        Self { root: Arc::new(root), folders: Arc::default() }
    }

    /// The folder.
    pub(crate) fn root(&self) -> &FilePath {
        &self.root
    }

    /// The folders made so far.
    pub(crate) fn folders(&self) -> &Folders {
        &self.folders
    }

    /// The file of an object.
    pub(crate) fn file(&self, path: &Path) -> Result<PathBuf> {
        let name = path.filename().ok_or_else(|| Error::InvalidPath {
            path: path.to_string(),
            reason: "it is empty; the root of a storage is no object".to_owned(),
        })?;
        if is_leftover_name(name) {
            return Err(Error::InvalidPath {
                path: path.to_string(),
                reason: "names that end in # and digits are kept for unfinished files".to_owned(),
            });
        }
        Ok(path.parts().fold(self.root.to_path_buf(), |file, part| file.join(part.as_ref())))
    }

    /// Unfinished files anywhere below the folder.
    pub(crate) fn leftovers(&self) -> Result<Vec<Found>> {
        walk(&self.root, "", Wanted::Leftovers)
    }

    fn stage(&self, path: &Path) -> Result<Staged> {
        Staged::create(&self.folders, &self.file(path)?)
    }

    fn put(&self, path: &Path, payload: &PutPayload, how: Publish) -> StoreResult<PutResult> {
        let staged = self.stage(path)?;
        for bytes in payload.iter() {
            staged.file().write_all(bytes).map_err(|e| Error::disk("write", staged.name(), e))?;
        }
        publish(staged, path, how)
    }

    fn open(&self, path: &Path, options: &GetOptions) -> StoreResult<GetResult> {
        let name = self.file(path)?;
        let missing = || StoreError::NotFound { path: path.to_string(), source: "no such file".into() };
        let file = match File::open(&name) {
            Ok(file) => file,
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Err(missing());
            }
            Err(e) => return Err(Error::disk("open", name, e).into()),
        };
        let metadata = file.metadata().map_err(|e| Error::disk("look at", &name, e))?;
        if metadata.is_dir() {
            return Err(missing());
        }
        let meta = meta(path.clone(), &metadata);
        options.check_preconditions(&meta)?;
        let range = match &options.range {
            Some(range) => range
                .as_range(meta.size)
                .map_err(|e| StoreError::Generic { store: "local disk", source: Box::new(e) })?,
            None => 0..meta.size,
        };
        let payload = GetResultPayload::File(file, name);
        Ok(GetResult { payload, meta, range, attributes: Attributes::new() })
    }

    fn copy(&self, from: &Path, to: &Path, how: Publish) -> StoreResult<()> {
        let GetResult { payload: GetResultPayload::File(mut source, _), .. } =
            self.open(from, &GetOptions::default())?
        else {
            return Err(StoreError::NotSupported { source: "a local object that is no file".into() });
        };
        let staged = self.stage(to)?;
        io::copy(&mut source, &mut staged.file()).map_err(|e| Error::disk("write", staged.name(), e))?;
        publish(staged, to, how).map(|_| ())
    }

    fn remove(&self, path: &Path) -> StoreResult<()> {
        let name = self.file(path)?;
        std::fs::remove_file(&name).map_err(|e| match e.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
                StoreError::NotFound { path: path.to_string(), source: Box::new(e) }
            }
            _ => Error::disk("delete", name, e).into(),
        })
    }
}

fn publish(staged: Staged, path: &Path, how: Publish) -> StoreResult<PutResult> {
    let e_tag = staged.file().metadata().ok().map(|m| e_tag(&m));
    match staged.publish(how)? {
        Published::Yes => Ok(PutResult { e_tag, version: None }),
        Published::NameTaken => {
            Err(StoreError::AlreadyExists { path: path.to_string(), source: "the file exists".into() })
        }
    }
}

fn meta(location: Path, metadata: &std::fs::Metadata) -> ObjectMeta {
    let modified = metadata.modified().unwrap_or(UNIX_EPOCH);
    ObjectMeta {
        location,
        last_modified: modified.into(),
        size: metadata.len(),
        e_tag: Some(e_tag(metadata)),
        version: None,
    }
}

fn e_tag(metadata: &std::fs::Metadata) -> String {
    #[cfg(unix)]
    let inode = std::os::unix::fs::MetadataExt::ino(metadata);
    #[cfg(not(unix))]
    let inode = 0;
    let modified = metadata.modified().ok().and_then(|m| m.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
    format!("{inode:x}-{:x}-{:x}", modified.as_nanos(), metadata.len())
}

/// Runs blocking work away from the threads that drive futures, where there are such threads.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> StoreResult<T> + Send + 'static,
) -> StoreResult<T> {
    match tokio::runtime::Handle::try_current() {
        Ok(runtime) => runtime.spawn_blocking(work).await?,
        Err(_) => work(),
    }
}

fn listed(found: StoreResult<Vec<ObjectMeta>>) -> BoxStream<'static, StoreResult<ObjectMeta>> {
    match found {
        Ok(metas) => stream::iter(metas.into_iter().map(Ok)).boxed(),
        Err(error) => stream::once(async { Err(error) }).boxed(),
    }
}

#[async_trait]
impl ObjectStore for LocalStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> StoreResult<PutResult> {
        let how = match opts.mode {
            PutMode::Overwrite => Publish::Replace,
            PutMode::Create => Publish::New,
            PutMode::Update(_) => return Err(unsupported("conditional replacement")),
        };
        let (this, location) = (self.clone(), location.clone());
        blocking(move || this.put(&location, &payload, how)).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        _opts: PutMultipartOptions,
    ) -> StoreResult<Box<dyn MultipartUpload>> {
        let (this, location) = (self.clone(), location.clone());
        blocking(move || {
            let parts = Parts { staged: Mutex::new(Some(this.stage(&location)?)), location };
            Ok(Box::new(Upload { parts: Arc::new(parts), offset: 0 }) as Box<dyn MultipartUpload>)
        })
        .await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> StoreResult<GetResult> {
        let (this, location) = (self.clone(), location.clone());
        blocking(move || this.open(&location, &options)).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, StoreResult<Path>>) -> BoxStream<'static, StoreResult<Path>> {
        let this = self.clone();
        locations
            .then(move |location| {
                let this = this.clone();
                async move {
                    let location = location?;
                    blocking(move || this.remove(&location).map(|()| location)).await
                }
            })
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, StoreResult<ObjectMeta>> {
        let (root, prefix) = (self.root.clone(), prefix.map(Path::to_string).unwrap_or_default());
        blocking(move || {
            let found = walk(&root, &prefix, Wanted::Objects)?;
            found.into_iter().map(|f| Ok(meta(Path::parse(&f.path)?, &f.metadata))).collect::<StoreResult<Vec<_>>>()
        })
        .map(listed)
        .flatten_stream()
        .boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> StoreResult<ListResult> {
        let (root, prefix) = (self.root.clone(), prefix.map(Path::to_string).unwrap_or_default());
        blocking(move || {
            let mut result = ListResult { common_prefixes: Vec::new(), objects: Vec::new() };
            for found in entries(&root, &prefix, Wanted::Objects)? {
                let path = Path::parse(&found.path)?;
                if found.metadata.is_dir() {
                    result.common_prefixes.push(path);
                } else {
                    result.objects.push(meta(path, &found.metadata));
                }
            }
            Ok(result)
        })
        .await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> StoreResult<()> {
        let how = if options.mode == CopyMode::Create { Publish::New } else { Publish::Replace };
        let (this, from, to) = (self.clone(), from.clone(), to.clone());
        blocking(move || this.copy(&from, &to, how)).await
    }
}

fn unsupported(operation: &str) -> StoreError {
    StoreError::NotImplemented { operation: operation.to_owned(), implementer: "local disk".to_owned() }
}

/// An upload in parts: one staged file that the parts are written into.
#[derive(Debug)]
struct Upload {
    parts: Arc<Parts>,
    offset: u64,
}

#[derive(Debug)]
struct Parts {
    staged: Mutex<Option<Staged>>,
    location: Path,
}

impl Parts {
    fn take(&self) -> StoreResult<Staged> {
        let staged = self.staged.lock().unwrap_or_else(PoisonError::into_inner).take();
        staged.ok_or_else(|| StoreError::Generic {
            store: "local disk",
            source: format!("the upload of {} is over", self.location).into(),
        })
    }

    fn write(&self, offset: u64, data: &PutPayload) -> StoreResult<()> {
        let guard = self.staged.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(staged) = guard.as_ref() else {
            return Err(StoreError::Generic { store: "local disk", source: "the upload is over".into() });
        };
        let mut file = staged.file();
        file.seek(SeekFrom::Start(offset))
            .and_then(|_| data.iter().try_for_each(|bytes| file.write_all(bytes)))
            .map_err(|e| Error::disk("write", staged.name(), e).into())
    }
}

#[async_trait]
impl MultipartUpload for Upload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let (parts, offset) = (self.parts.clone(), self.offset);
        self.offset += data.content_length() as u64;
        blocking(move || parts.write(offset, &data)).boxed()
    }

    async fn complete(&mut self) -> StoreResult<PutResult> {
        let parts = self.parts.clone();
        blocking(move || publish(parts.take()?, &parts.location, Publish::Replace)).await
    }

    async fn abort(&mut self) -> StoreResult<()> {
        let parts = self.parts.clone();
        blocking(move || parts.take().map(drop)).await
    }
}
