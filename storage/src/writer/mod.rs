//! Writing an object piece by piece from blocking code.

mod file;
mod upload;

use std::io::{self, Write};

use crate::error::{Error, Result};
use crate::storage::Storage;
use file::FileWriter;
use upload::UploadWriter;

/// Writes one object; nothing of it is visible until [`ObjectWriter::finish`], and nothing stays if it is dropped before.
///
/// It blocks: in asynchronous code use it inside `spawn_blocking`. (Called on a thread of an asynchronous runtime it works
/// too, and holds that thread up.) Local files are written through without being copied; uploads go out in parts while
/// more is written, holding at most `part_size * (parts_in_flight + 1)` bytes.
#[derive(Debug)]
pub struct ObjectWriter {
    url: String,
    path: String,
    written: u64,
    failed: bool,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    File(FileWriter),
    Upload(Box<UploadWriter>),
}

impl ObjectWriter {
    pub(crate) fn start(storage: &Storage, path: &str) -> Result<Self> {
        let location = storage.writable("write", path)?;
        let kind = match storage.local_store() {
            Some(local) => Kind::File(FileWriter::create(local.folders(), &local.file(&location)?)?),
            None => Kind::Upload(Box::new(UploadWriter::new(storage.clone(), path, location))),
        };
        Ok(Self { url: storage.url().to_owned(), path: path.to_owned(), written: 0, failed: false, kind })
    }

    /// The name that the object will have.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// How many bytes were written so far.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Makes the object durable and visible, in place of one of that name.
    ///
    /// # Errors
    /// [`Error::WriterFailed`] after a write that failed, and those of the store. The object is not visible then, unless
    /// the error is [`Error::NotDurable`] or a lost answer of a remote store.
    pub fn finish(self) -> Result<()> {
        if self.failed {
            return Err(Error::WriterFailed { url: self.url, path: self.path });
        }
        match self.kind {
            Kind::File(file) => file.finish(),
            Kind::Upload(upload) => upload.finish(),
        }
    }
}

impl Write for ObjectWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.failed {
            return Err(Error::WriterFailed { url: self.url.clone(), path: self.path.clone() }.into());
        }
        let written = match &mut self.kind {
            Kind::File(file) => file.write(bytes),
            Kind::Upload(upload) => upload.write(bytes),
        };
        match written {
            Ok(n) => {
                self.written += n as u64;
                Ok(n)
            }
            Err(error) => {
                self.failed = true;
                Err(error.into())
            }
        }
    }

    /// Does nothing: only [`ObjectWriter::finish`] makes anything visible.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
