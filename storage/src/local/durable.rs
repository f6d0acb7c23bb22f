//! Files that appear under their name whole, and stay there once that was said.
//!
//! A file is written under a temporary name beside its final one and synced; only then does it get its name, by `rename`
//! (replaces) or by `link` (fails if the name is taken); then the folder is synced, since a name is content of its folder.
//! Folders that had to be made are synced into their parents before anything is put into them.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::files::leftover_name;
use crate::error::{Error, Result};
use crate::forked::Owner;

/// Makes folders so that they survive, and remembers which ones do.
#[derive(Debug, Default)]
pub(crate) struct Folders {
    durable: Mutex<HashSet<PathBuf>>,
}

impl Folders {
    /// Makes sure that `folder` exists and that its name, and those of the folders above it, are on disk.
    ///
    /// An existing folder that this process has not seen is synced into its parent too: another process may have made it
    /// a moment ago and not got further.
    pub(crate) fn ensure(&self, folder: &Path) -> Result<()> {
        if self.known().contains(folder) {
            return Ok(());
        }
        let missing_from = match std::fs::metadata(folder) {
            Ok(found) if found.is_dir() => false,
            Ok(_) => return Err(Error::disk("use as a folder", folder, io::ErrorKind::NotADirectory.into())),
            Err(e) if e.kind() == io::ErrorKind::NotFound => true,
            Err(e) => return Err(Error::disk("look at the folder", folder, e)),
        };
        let Some(parent) = folder.parent() else { return Ok(()) };
        if missing_from {
            self.ensure(parent)?;
            match std::fs::create_dir(folder) {
                Ok(()) => {}
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(Error::disk("make the folder", folder, e)),
            }
        }
        match sync_folder(parent) {
            Ok(()) => {}
            // A folder that was here before us in one that we may not even look into: its owner made it, and so it stays.
            Err(e) if !missing_from && e.kind() == io::ErrorKind::PermissionDenied => {}
            // Nothing was put into it yet, so this is a plain failure.
            Err(e) => return Err(Error::disk("sync the folder", parent, e)),
        }
        self.known().insert(folder.to_owned());
        Ok(())
    }

    /// Forgets everything, since a folder turned out to be gone, and others may be too.
    fn forget(&self) {
        self.known().clear();
    }

    fn known(&self) -> MutexGuard<'_, HashSet<PathBuf>> {
        self.durable.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Puts the names in a folder on disk.
pub(crate) fn sync_folder(folder: &Path) -> io::Result<()> {
    #[cfg(unix)]
    {
        // An empty path is the parent of a bare file name: the current folder.
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        File::open(folder)?.sync_all()
    }
    // Windows has no way to sync a folder; NTFS journals names together with the rename itself.
    #[cfg(not(unix))]
    {
        let _ = folder;
        Ok(())
    }
}

/// How [`Staged::publish`] treats a file that has the name already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Publish {
    /// Take its place.
    Replace,
    /// Leave it and fail.
    New,
}

/// What became of [`Staged::publish`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Published {
    /// The file has its name and will keep it.
    Yes,
    /// Another file has the name, and will keep it; ours is discarded.
    NameTaken,
}

/// A file being written under a temporary name; discarded when dropped before it is published.
#[derive(Debug)]
pub(crate) struct Staged {
    file: File,
    temporary: Option<PathBuf>,
    name: PathBuf,
    owner: Owner,
}

impl Staged {
    /// Starts a file that is to be called `name`, making its folders.
    pub(crate) fn create(folders: &Folders, name: &Path) -> Result<Self> {
        let folder = name.parent().unwrap_or(Path::new("")).to_owned();
        folders.ensure(&folder)?;
        let temporary = leftover_name(name);
        let open = || OpenOptions::new().read(true).write(true).create_new(true).open(&temporary);
        let file = match open() {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                // Somebody removed the folder since we made it.
                folders.forget();
                folders.ensure(&folder)?;
                open()
            }
            other => other,
        }
        .map_err(|e| Error::disk("create", name, e))?;
        Ok(Self { file, temporary: Some(temporary), name: name.to_owned(), owner: Owner::this_process() })
    }

    /// The file to write to.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// The name that the file is to get.
    pub(crate) fn name(&self) -> &Path {
        &self.name
    }

    /// Syncs the file, gives it its name and syncs the folder.
    ///
    /// Every error but [`Error::NotDurable`] means that the name was not given and will not be.
    #[expect(clippy::disallowed_methods, reason = "this is the place that syncs the folder afterwards")]
    pub(crate) fn publish(mut self, how: Publish) -> Result<Published> {
        let Some(temporary) = self.temporary.clone() else { return Ok(Published::Yes) };
        self.file.sync_all().map_err(|e| Error::disk("write", &self.name, e))?;
        let taken = match how {
            Publish::Replace => {
                std::fs::rename(&temporary, &self.name).map_err(|e| Error::disk("rename to", &self.name, e))?;
                self.temporary = None;
                false
            }
            Publish::New => match std::fs::hard_link(&temporary, &self.name) {
                Ok(()) => {
                    self.discard();
                    false
                }
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => true,
                Err(e) => return Err(link_error(&self.name, e)),
            },
        };
        // Whoever hears that a name is taken builds on it, so it must be on disk by then, whoever gave it.
        let folder = self.name.parent().unwrap_or(Path::new(""));
        sync_folder(folder).map_err(|source| Error::NotDurable { path: self.name.clone(), source })?;
        Ok(if taken { Published::NameTaken } else { Published::Yes })
    }

    /// Removes the temporary name, if the file still has it.
    fn discard(&mut self) {
        // A forked child drops its copy too, but the file is its parent's.
        if let Some(temporary) = self.temporary.take().filter(|_| self.owner.is_here())
            && let Err(error) = std::fs::remove_file(&temporary)
        {
            tracing::warn!(path = %temporary.display(), %error, "cannot remove an unfinished file");
        }
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        self.discard();
    }
}

fn link_error(name: &Path, source: io::Error) -> Error {
    const EPERM: i32 = 1; // what Linux says for a filesystem without hard links
    if source.kind() == io::ErrorKind::Unsupported || source.raw_os_error() == Some(EPERM) {
        return Error::NoHardLinks { operation: "create", path: name.to_owned(), source };
    }
    Error::disk("create", name, source)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_file_that_is_dropped_unpublished_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        drop(Staged::create(&Folders::default(), &folder.path().join("a/b/c")).unwrap());
        assert_eq!(std::fs::read_dir(folder.path().join("a/b")).unwrap().count(), 0);
    }

    #[test]
    fn a_taken_name_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let name = folder.path().join("x");
        std::fs::write(&name, "first").unwrap();
        let staged = Staged::create(&Folders::default(), &name).unwrap();
        assert_eq!(staged.publish(Publish::New).unwrap(), Published::NameTaken);
        assert_eq!(std::fs::read(&name).unwrap(), b"first");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_folder_that_was_removed_is_made_again() {
        let folder = tempfile::tempdir().unwrap();
        let folders = Folders::default();
        let name = folder.path().join("a/b/x");
        Staged::create(&folders, &name).unwrap().publish(Publish::New).unwrap();
        std::fs::remove_dir_all(folder.path().join("a")).unwrap();
        Staged::create(&folders, &name).unwrap().publish(Publish::New).unwrap();
        assert!(name.exists());
    }

    #[test]
    fn a_file_where_a_folder_should_be_is_named() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a"), "").unwrap();
        let error = Staged::create(&Folders::default(), &folder.path().join("a/x")).unwrap_err().to_string();
        assert!(error.contains(&folder.path().join("a").display().to_string()), "{error}");
    }
}
