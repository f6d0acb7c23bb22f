//! What there is: listings, and what killed processes left.

use std::path::PathBuf;
use std::time::SystemTime;

use futures::stream::BoxStream;
use futures::{TryStreamExt, future};
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore};

use super::{Entry, Storage};
use crate::error::{Error, Result};
use crate::local::is_leftover_name;

impl Storage {
    /// Every object below the folder `prefix` (`""` for all), ordered by name.
    ///
    /// # Errors
    /// Those of the store; a folder that does not exist is empty.
    pub async fn list(&self, prefix: &str) -> Result<Vec<Entry>> {
        let (location, store) = (self.listable(prefix)?, &self.backend()?.store);
        let folder = Some(&location).filter(|l| !l.as_ref().is_empty());
        self.collect_list(prefix, store.list(folder)).await
    }

    /// Every object below the folder `prefix` whose name comes after the full name `after`, ordered by name.
    ///
    /// # Errors
    /// As [`Storage::list`].
    pub async fn list_after(&self, prefix: &str, after: &str) -> Result<Vec<Entry>> {
        let (location, store) = (self.listable(prefix)?, &self.backend()?.store);
        let folder = Some(&location).filter(|l| !l.as_ref().is_empty());
        let mut entries = self.collect_list(prefix, store.list_with_offset(folder, &self.resolve(after)?)).await?;
        // A store may take where to begin as a hint, as Azurite does.
        entries.retain(|entry| entry.path.as_str() > after);
        Ok(entries)
    }

    /// The full name of a folder to list.
    fn listable(&self, prefix: &str) -> Result<Path> {
        if self.shared.read_only {
            return Err(Error::NoListing { url: self.url().to_owned(), path: prefix.to_owned() });
        }
        self.resolve(prefix)
    }

    async fn collect_list(
        &self,
        prefix: &str,
        objects: BoxStream<'static, object_store::Result<ObjectMeta>>,
    ) -> Result<Vec<Entry>> {
        let entries = objects.map_err(|e| self.failed("list", prefix, e)).try_filter_map(|meta| {
            // Other programs may keep objects of any name in a bucket; those that we cannot name are not ours.
            future::ready(Ok(self.entry(meta)))
        });
        let mut entries: Vec<Entry> = entries.try_collect().await?;
        entries.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        Ok(entries)
    }

    fn entry(&self, meta: ObjectMeta) -> Option<Entry> {
        let path = match self.shared.site.root.as_ref() {
            "" => meta.location.to_string(),
            root => meta.location.as_ref().strip_prefix(root)?.strip_prefix('/')?.to_owned(),
        };
        Some(Entry::new(path, &meta))
    }

    /// The names of the folders right below the folder `prefix`, ordered, without the prefix.
    ///
    /// # Errors
    /// As [`Storage::list`].
    pub async fn folders(&self, prefix: &str) -> Result<Vec<String>> {
        let (location, store) = (self.listable(prefix)?, &self.backend()?.store);
        let folder = Some(&location).filter(|l| !l.as_ref().is_empty());
        let found = store.list_with_delimiter(folder).await.map_err(|e| self.failed("list", prefix, e))?;
        let mut names: Vec<String> =
            found.common_prefixes.iter().filter_map(|p| p.filename()).map(str::to_owned).collect();
        names.sort_unstable();
        Ok(names)
    }

    /// Unfinished files below the root of a local storage: those of writers at work, and those of processes that died,
    /// which nobody will finish. Empty for other storages, which keep unfinished uploads to themselves.
    ///
    /// Their names cannot be given to other methods; see [`Storage::remove_leftover`].
    ///
    /// # Errors
    /// Those of the disk.
    pub fn leftovers(&self) -> Result<Vec<Entry>> {
        let Some(local) = &self.shared.local else { return Ok(Vec::new()) };
        let found = local.leftovers()?;
        let modified = |m: &std::fs::Metadata| m.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        Ok(found
            .into_iter()
            .map(|f| Entry { size: f.metadata.len(), modified: modified(&f.metadata), path: f.path, etag: None })
            .collect())
    }

    /// Removes an unfinished file found by [`Storage::leftovers`]; a writer still at it will fail.
    ///
    /// # Errors
    /// [`Error::InvalidPath`] for anything that is no unfinished file, and those of the disk.
    pub fn remove_leftover(&self, path: &str) -> Result<()> {
        let invalid = || Error::InvalidPath { path: path.to_owned(), reason: "it is no unfinished file".to_owned() };
        let Some(local) = &self.shared.local else { return Err(invalid()) };
        if !path.rsplit('/').next().is_some_and(is_leftover_name) {
            return Err(invalid());
        }
        let relative = self.resolve(path)?;
        let file: PathBuf = relative.parts().fold(local.root().to_owned(), |f, part| f.join(part.as_ref()));
        match std::fs::remove_file(&file) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(Error::disk("delete", file, e)),
            _ => Ok(()),
        }
    }
}
