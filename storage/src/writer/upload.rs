//! Writing an object of a remote store: one request if it is small, else parts sent while more is written.

use std::future::Future;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use object_store::path::Path;
use object_store::{MultipartUpload, ObjectStore, PutMultipartOptions, PutOptions, PutPayload};
use tokio::task::AbortHandle;

use crate::error::{Error, Result};
use crate::forked::Owner;
use crate::runtime::uploads;
use crate::storage::Storage;

/// How long dropping an unfinished upload waits for the store to forget its parts.
const PATIENCE: Duration = Duration::from_secs(5);

type StoreResult<T> = object_store::Result<T>;

/// An object of a remote store being written.
#[derive(Debug)]
pub(crate) struct UploadWriter {
    storage: Storage,
    path: String,
    location: Path,
    buffer: Vec<u8>,
    parts: Option<Parts>,
    owner: Owner,
}

/// An upload in parts that has begun.
#[derive(Debug)]
struct Parts {
    upload: Box<dyn MultipartUpload>,
    on_their_way: usize,
    tasks: Vec<AbortHandle>,
    report: Sender<StoreResult<()>>,
    reports: Receiver<StoreResult<()>>,
}

impl UploadWriter {
    pub(crate) fn new(storage: Storage, path: &str, location: Path) -> Self {
        let owner = Owner::this_process();
        Self { storage, path: path.to_owned(), location, buffer: Vec::new(), parts: None, owner }
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        self.check_process()?;
        let part_size = self.storage.tuning().part_size;
        let taken = bytes.len().min(part_size - self.buffer.len());
        self.buffer.extend_from_slice(&bytes[..taken]);
        if self.buffer.len() == part_size {
            self.send_part()?;
        }
        Ok(taken)
    }

    pub(crate) fn finish(mut self) -> Result<()> {
        self.check_process()?;
        if self.parts.is_none() {
            let payload = PutPayload::from(std::mem::take(&mut self.buffer));
            let (store, location) = (self.storage.store()?, self.location.clone());
            let put = async move { store.put_opts(&location, payload, PutOptions::default()).await };
            return wait_for(put)?.map(|_| ()).map_err(|e| self.failed(e));
        }
        if !self.buffer.is_empty() {
            self.send_part()?;
        }
        while self.parts.as_ref().is_some_and(|parts| parts.on_their_way > 0) {
            self.await_part()?;
        }
        let Some(Parts { mut upload, .. }) = self.parts.take() else { return Ok(()) };
        let (upload, completed) = wait_for(async move {
            let completed = upload.complete().await;
            (upload, completed)
        })?;
        match completed {
            Ok(_) => Ok(()),
            Err(error) => {
                abandon(upload, &self.path);
                Err(self.failed(error))
            }
        }
    }

    fn send_part(&mut self) -> Result<()> {
        if self.parts.is_none() {
            let (store, location) = (self.storage.store()?, self.location.clone());
            let begin = async move { store.put_multipart_opts(&location, PutMultipartOptions::default()).await };
            let upload = wait_for(begin)?.map_err(|e| self.failed(e))?;
            let (report, reports) = mpsc::channel();
            self.parts = Some(Parts { upload, on_their_way: 0, tasks: Vec::new(), report, reports });
        }
        let most = self.storage.tuning().parts_in_flight;
        while self.parts.as_ref().is_some_and(|parts| parts.on_their_way >= most) {
            self.await_part()?;
        }
        let runtime = uploads()?;
        let Some(parts) = self.parts.as_mut() else { return Ok(()) };
        let next = Vec::with_capacity(self.buffer.capacity());
        let payload = PutPayload::from(std::mem::replace(&mut self.buffer, next));
        let part = {
            let _inside = runtime.enter();
            parts.upload.put_part(payload)
        };
        let report = parts.report.clone();
        let task = runtime.spawn(async move {
            // The receiver is gone only when nobody wants to know any more.
            let _ = report.send(part.await);
        });
        parts.tasks.retain(|task| !task.is_finished());
        parts.tasks.push(task.abort_handle());
        parts.on_their_way += 1;
        Ok(())
    }

    fn await_part(&mut self) -> Result<()> {
        let Some(parts) = self.parts.as_mut() else { return Ok(()) };
        let report = parts.reports.recv().unwrap_or_else(|_| Err(ended_early()));
        parts.on_their_way -= 1;
        report.map_err(|e| self.failed(e))
    }

    /// The parts on their way were sent by threads that a forked child does not have.
    fn check_process(&self) -> Result<()> {
        if self.owner.is_here() {
            return Ok(());
        }
        Err(Error::WriterFailed { url: self.storage.url().to_owned(), path: self.path.clone() })
    }

    fn failed(&self, source: object_store::Error) -> Error {
        self.storage.failed("write", &self.path, source)
    }
}

impl Drop for UploadWriter {
    fn drop(&mut self) {
        if let Some(parts) = self.parts.take().filter(|_| self.owner.is_here()) {
            parts.tasks.iter().for_each(AbortHandle::abort);
            abandon(parts.upload, &self.path);
        }
    }
}

/// Tells the store to forget the parts of an upload.
fn abandon(mut upload: Box<dyn MultipartUpload>, path: &str) {
    let (report, reports) = mpsc::channel();
    let aborted = uploads().map(|runtime| {
        runtime.spawn(async move {
            let _ = report.send(upload.abort().await);
        });
        reports.recv_timeout(PATIENCE)
    });
    let problem = match aborted {
        Ok(Ok(Ok(()))) => return,
        Ok(Ok(Err(error))) => error.to_string(),
        Ok(Err(_)) => "the store did not answer in time".to_owned(),
        Err(error) => error.to_string(),
    };
    tracing::warn!(
        path,
        problem,
        "parts of an unfinished upload may stay in the store until its lifecycle rule removes them"
    );
}

/// Runs a future on the upload threads and blocks until it is done.
///
/// This is safe on any thread, also one that drives futures: nothing but uploads ever runs on those threads.
fn wait_for<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> Result<T> {
    let (report, reports) = mpsc::channel();
    uploads()?.spawn(async move {
        let _ = report.send(work.await);
    });
    reports.recv().map_err(|_| Error::Runtime { source: std::io::Error::other("an upload task ended early") })
}

fn ended_early() -> object_store::Error {
    object_store::Error::Generic { store: "upload", source: "an upload task ended early".into() }
}
