//! Writing a local file so that little is left to sync at the end.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::thread::JoinHandle;

use crate::error::{Error, Result};
use crate::local::{Folders, Publish, Staged};

/// Small writes gather up to this many bytes; larger ones go straight to the file.
const BUFFER: usize = 128 << 10;

/// After this many bytes a thread starts to bring what was written to the disk, while more is written.
const EARLY: u64 = 64 << 20;

/// A file of a local storage being written.
#[derive(Debug)]
pub(crate) struct FileWriter {
    out: BufWriter<Through>,
}

impl FileWriter {
    pub(crate) fn create(folders: &Folders, name: &Path) -> Result<Self> {
        let staged = Staged::create(folders, name)?;
        Ok(Self { out: BufWriter::with_capacity(BUFFER, Through { staged, unsynced: 0, syncing: None }) })
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        self.out.write(bytes).map_err(|e| Error::disk("write", self.out.get_ref().staged.name(), e))
    }

    pub(crate) fn finish(self) -> Result<()> {
        let mut through = match self.out.into_inner() {
            Ok(through) => through,
            Err(failed) => {
                let (error, out) = failed.into_parts();
                let (through, _unwritten) = out.into_parts();
                return Err(Error::disk("write", through.staged.name(), error));
            }
        };
        through.settle().map_err(|e| Error::disk("write", through.staged.name(), e))?;
        through.staged.publish(Publish::Replace).map(|_| ())
    }
}

/// The file, and the thread that syncs what was written so far.
#[derive(Debug)]
struct Through {
    staged: Staged,
    unsynced: u64,
    syncing: Option<JoinHandle<io::Result<()>>>,
}

impl Through {
    /// Starts to sync what was written, unless an earlier sync is still at it.
    fn sync_early(&mut self) -> io::Result<()> {
        if self.syncing.as_ref().is_some_and(|thread| !thread.is_finished()) {
            return Ok(());
        }
        self.settle()?;
        let file: File = self.staged.file().try_clone()?;
        self.syncing =
            Some(std::thread::Builder::new().name("forebay-sync".to_owned()).spawn(move || file.sync_data())?);
        self.unsynced = 0;
        Ok(())
    }

    /// Waits for the sync. Its failure counts as one of the file: the system reports a failed write-back only once.
    fn settle(&mut self) -> io::Result<()> {
        match self.syncing.take().map(JoinHandle::join) {
            None => Ok(()),
            Some(Ok(result)) => result,
            Some(Err(_)) => Err(io::Error::other("the thread that syncs the file ended early")),
        }
    }
}

impl Write for Through {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.staged.file().write(bytes)?;
        self.unsynced += written as u64;
        if self.unsynced >= EARLY {
            self.sync_early()?;
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
