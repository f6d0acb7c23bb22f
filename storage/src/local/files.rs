//! Names of unfinished files, and walking a folder.

use std::ffi::OsString;
use std::fs::Metadata;
use std::io;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// A name for the unfinished form of `name`: `name#<digits>`, beside it, so that `rename` and `link` stay on one disk.
pub(crate) fn leftover_name(name: &Path) -> PathBuf {
    let mut file: OsString = name.file_name().unwrap_or_default().to_owned();
    file.push(format!("#{}", uuid::Uuid::new_v4().as_u128() as u64));
    name.with_file_name(file)
}

/// Whether a file of this name is an unfinished one; no object can have such a name.
pub(crate) fn is_leftover_name(file: &str) -> bool {
    file.rsplit_once('#').is_some_and(|(_, digits)| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()))
}

/// Which files a walk looks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Finished ones.
    Objects,
    /// Unfinished ones, left by processes that died (or still at work).
    Leftovers,
}

/// A file or folder found in a folder.
#[derive(Debug)]
pub(crate) struct Found {
    /// `/`-separated, relative to the root of the walk.
    pub(crate) path: String,
    pub(crate) metadata: Metadata,
}

/// The files and folders right in `root/prefix`, by name; empty when that is no folder.
///
/// Names that no object can have (not UTF-8, control characters) are passed over: nothing of ours has one.
pub(crate) fn entries(root: &Path, prefix: &str, wanted: Wanted) -> Result<Vec<Found>> {
    let folder = if prefix.is_empty() { root.to_owned() } else { root.join(prefix) };
    let listing = match std::fs::read_dir(&folder) {
        Ok(listing) => listing,
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => return Ok(Vec::new()),
        Err(e) => return Err(Error::disk("list", folder, e)),
    };
    let mut found = Vec::new();
    for entry in listing {
        let entry = entry.map_err(|e| Error::disk("list", &folder, e))?;
        let Some(name) = entry.file_name().to_str().map(str::to_owned) else { continue };
        if object_store::path::PathPart::parse(&name).is_err() {
            continue;
        }
        let metadata = match std::fs::metadata(entry.path()) {
            Ok(metadata) => metadata,
            // Removed since the folder was read, or a link to nowhere.
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            Err(e) => return Err(Error::disk("look at", entry.path(), e)),
        };
        let leftover = is_leftover_name(&name);
        if metadata.is_dir() || leftover == (wanted == Wanted::Leftovers) {
            let path = if prefix.is_empty() { name } else { format!("{prefix}/{name}") };
            found.push(Found { path, metadata });
        }
    }
    found.sort_unstable_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

/// Every file below `root/prefix`, ordered by path.
pub(crate) fn walk(root: &Path, prefix: &str, wanted: Wanted) -> Result<Vec<Found>> {
    let mut files = Vec::new();
    let mut folders = vec![prefix.to_owned()];
    while let Some(folder) = folders.pop() {
        for found in entries(root, &folder, wanted)? {
            if found.metadata.is_dir() {
                folders.push(found.path);
            } else {
                files.push(found);
            }
        }
    }
    files.sort_unstable_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_an_unfinished_file_is_recognised_and_no_object_has_one() {
        let name = leftover_name(Path::new("/lake/data/abc"));
        assert_eq!(name.parent(), Some(Path::new("/lake/data")));
        assert!(name.file_name().and_then(|n| n.to_str()).is_some_and(is_leftover_name));
        for object in ["abc", "a#b", "a#", "#x", "a#1b", "00000000000000000001"] {
            assert!(!is_leftover_name(object), "{object}");
        }
    }
}
