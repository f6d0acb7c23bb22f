//! Finding the images below a folder, and the classes that its folders make.

use std::{
    cmp::Ordering,
    io,
    path::{Path, PathBuf},
};

use walkdir::{DirEntry, WalkDir};

use crate::{Error, Result};

/// What a folder holds.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    /// The folders directly below it, sorted: the classes. Empty if every image lies in the folder itself.
    pub(crate) classes: Vec<String>,
    /// The images, ordered by the parts of their names.
    pub(crate) images: Vec<Source>,
    /// Entries that can't be read, or that have no class beside ones that have.
    pub(crate) unusable: Vec<(String, Error)>,
    /// Files that aren't images by their names.
    pub(crate) ignored: u64,
}

/// An image's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    /// Where it is.
    pub(crate) path: PathBuf,
    /// Its name below the scanned folder, with `/` between the parts on every system.
    pub(crate) name: String,
    /// The index of its class.
    pub(crate) label: Option<u32>,
    /// Its size.
    pub(crate) bytes: u64,
    /// The version of it, if it stays where it is.
    pub(crate) etag: Option<String>,
}

/// Endings of the names of images that can be decoded.
const ENDINGS: [&str; 6] = ["jpg", "jpeg", "png", "webp", "bmp", "gif"];

/// Scans `folder`, following symbolic links. Names that start with a dot are passed over.
///
/// # Errors
/// If the folder can't be read, or no image is in it.
pub(crate) fn scan(folder: &Path) -> Result<Scan> {
    let unreadable = |source| Error::Folder { path: folder.to_owned(), source };
    if !std::fs::metadata(folder).map_err(unreadable)?.is_dir() {
        return Err(unreadable(io::ErrorKind::NotADirectory.into()));
    }
    if std::fs::read_dir(folder).map_err(unreadable)?.next().is_none() {
        return Err(Error::EmptyFolder { path: folder.to_owned() });
    }
    let mut scan = Scan::default();
    let visible = |entry: &DirEntry| entry.depth() == 0 || !entry.file_name().as_encoded_bytes().starts_with(b".");
    for entry in WalkDir::new(folder).follow_links(true).into_iter().filter_entry(visible) {
        match entry {
            Ok(entry) => scan.take(folder, &entry),
            Err(error) => scan.refuse(folder, error),
        }
    }
    if scan.images.is_empty() && scan.unusable.is_empty() {
        return Err(Error::NoImages { path: folder.to_owned(), ignored: scan.ignored });
    }
    scan.settle();
    Ok(scan)
}

impl Scan {
    fn take(&mut self, folder: &Path, entry: &DirEntry) {
        let relative = entry.path().strip_prefix(folder).unwrap_or(entry.path());
        let (kind, name) = (entry.file_type(), portable(relative));
        if kind.is_dir() {
            match (entry.depth(), name) {
                (1, Some(name)) => self.classes.push(name),
                (1, None) => self.unusable.push((shown(relative), Error::NotUtf8)),
                _ => {}
            }
        } else if !is_image(relative) {
            self.ignored += 1;
        } else if !kind.is_file() {
            let source = io::Error::other("it is a pipe, a socket or a device");
            self.unusable.push((shown(relative), Error::Unreadable { source }));
        } else if let Some(name) = name {
            let bytes = entry.metadata().map_or(0, |metadata| metadata.len());
            self.images.push(Source { path: entry.path().to_owned(), name, label: None, bytes, etag: None });
        } else {
            self.unusable.push((shown(relative), Error::NotUtf8));
        }
    }

    /// A link to nowhere that isn't named like an image is ignored as such a file would be.
    fn refuse(&mut self, folder: &Path, error: walkdir::Error) {
        let path = error.path().unwrap_or(folder);
        let relative = path.strip_prefix(folder).unwrap_or(path);
        let dangling = error.io_error().is_some_and(|error| error.kind() == io::ErrorKind::NotFound);
        if dangling && !is_image(relative) {
            self.ignored += 1;
            return;
        }
        let name = shown(relative);
        let source = match error.loop_ancestor() {
            Some(ancestor) => io::Error::other(format!("a link back to {}", ancestor.display())),
            None => error.into_io_error().unwrap_or_else(|| io::ErrorKind::Other.into()),
        };
        self.unusable.push((name, Error::Unreadable { source }));
    }

    /// Sorts everything and gives each image its class.
    pub(super) fn settle(&mut self) {
        self.classes.sort_unstable();
        self.images.sort_unstable_by(|a, b| by_parts(&a.name, &b.name));
        let nested = self.images.iter().any(|image| image.name.contains('/'));
        if !nested {
            self.classes.clear();
        }
        for image in std::mem::take(&mut self.images) {
            match label(&self.classes, &image.name) {
                None if !nested => self.images.push(image),
                Some(label) => self.images.push(Source { label: Some(label), ..image }),
                None => self.unusable.push((image.name, Error::NoClass)),
            }
        }
        self.unusable.sort_by(|(a, _), (b, _)| by_parts(a, b));
    }

    /// The classes without an image.
    pub(crate) fn empty_classes(&self) -> Vec<&str> {
        let mut seen = vec![false; self.classes.len()];
        for label in self.images.iter().filter_map(|image| image.label) {
            seen[label as usize] = true;
        }
        self.classes.iter().zip(seen).filter(|(_, seen)| !seen).map(|(class, _)| class.as_str()).collect()
    }
}

/// The class of a name: its first part, if there is another.
fn label(classes: &[String], name: &str) -> Option<u32> {
    let (class, _) = name.split_once('/')?;
    classes.binary_search_by(|other| other.as_str().cmp(class)).ok().map(|index| index as u32)
}

/// Orders names by their parts, so that the images of a class follow each other: `a/x` comes before `a-b/x`.
fn by_parts(a: &str, b: &str) -> Ordering {
    a.split('/').cmp(b.split('/'))
}

pub(super) fn is_image(path: &Path) -> bool {
    let ending = path.extension().and_then(|ending| ending.to_str()).map(str::to_ascii_lowercase);
    ending.is_some_and(|ending| ENDINGS.contains(&ending.as_str()))
}

/// A name for messages.
fn shown(relative: &Path) -> String {
    let parts: Vec<_> = relative.components().map(|part| part.as_os_str().to_string_lossy()).collect();
    parts.join("/")
}

/// A name for the table: the same on every system, or none if it isn't UTF-8.
fn portable(relative: &Path) -> Option<String> {
    let parts: Option<Vec<_>> = relative.components().map(|part| part.as_os_str().to_str()).collect();
    parts.map(|parts| parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::{by_parts, is_image, label};
    use std::{cmp::Ordering, path::Path};

    #[test]
    fn images_of_one_class_follow_each_other() {
        assert_eq!(by_parts("a/x.jpg", "a-b/a.jpg"), Ordering::Less);
        assert_eq!(by_parts("a/b/x.jpg", "a/c.jpg"), Ordering::Less);
    }

    #[test]
    fn the_first_folder_is_the_class() {
        let classes = ["a".to_owned(), "b".to_owned()];
        assert_eq!(label(&classes, "b/deep/x.jpg"), Some(1));
        assert_eq!(label(&classes, "x.jpg"), None);
    }

    #[test]
    fn an_ending_counts_in_any_case() {
        assert!(is_image(Path::new("a/PHOTO.JPeG")));
        assert!(!is_image(Path::new("a/notes.txt")) && !is_image(Path::new("jpg")));
    }
}
