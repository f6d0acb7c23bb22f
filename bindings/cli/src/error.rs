//! What the command reports when it can't do what it was asked to.

use std::{error::Error as _, fmt::Write as _, io, path::PathBuf};

/// A result of this crate.
pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum Error {
    /// The arguments contradict each other; clap finds all that it can.
    #[error("{0}")]
    Usage(String),
    /// A folder can't be read.
    #[error("{}: {source}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A folder has nothing in it.
    #[error("{} is empty: expected images in it, or class folders of images", path.display())]
    EmptyFolder {
        /// The folder.
        path: PathBuf,
    },
    /// A folder has files and no image.
    #[error("no images in {} ({ignored} other files): expected .jpg, .jpeg, .png, .webp, .bmp or .gif", path.display())]
    NoImages {
        /// The folder.
        path: PathBuf,
        /// The files there are.
        ignored: u64,
    },
    /// Every image was skipped.
    #[error("none of the {skipped} images could be used: nothing was committed")]
    AllSkipped {
        /// How many.
        skipped: u64,
    },
    /// An image can't be used, and the run was to fail then.
    #[error("{name}: {source}; nothing was committed (--on-error skip leaves such images out)")]
    Image {
        /// Its name below the folder.
        name: String,
        /// Why.
        source: Box<Error>,
    },
    /// An entry of the folder can't be read.
    #[error("it can't be read: {source}")]
    Unreadable {
        /// Why.
        source: io::Error,
    },
    /// A name isn't UTF-8, and so can't be kept in the table.
    #[error("its name is not UTF-8")]
    NotUtf8,
    /// An object has nothing to know it again by.
    #[error("its store gives no etag, so nobody could tell whether it changed: give --hash")]
    NoEtag,
    /// An image lies beside the class folders.
    #[error("it lies beside the class folders, not in one")]
    NoClass,
    /// The bytes are of no known image format.
    #[error("{}", if *empty { "not an image: the file is empty" } else { "not an image: its bytes are not JPEG, PNG, WebP, BMP or GIF" })]
    NotAnImage {
        /// Whether there are no bytes at all.
        empty: bool,
    },
    /// The bytes end before the picture does.
    #[error("truncated: the file ends before the picture does")]
    Truncated,
    /// The decoder couldn't make sense of the bytes.
    #[error("damaged or unsupported: {reason}")]
    Undecodable {
        /// What the decoder said.
        reason: String,
    },
    /// The picture would take more memory than is given to one.
    #[error("too large: {width} x {height} pixels, the limit is {limit}")]
    TooLarge {
        /// Its width.
        width: u32,
        /// Its height.
        height: u32,
        /// The most pixels allowed.
        limit: u64,
    },
    /// The target holds tables already.
    #[error("{url} is a lake with tables already: add to it with --append, or choose another URL")]
    Occupied {
        /// The target.
        url: String,
    },
    /// A table can't take the rows that a folder makes.
    #[error("table '{table}' can't take these images: {reason}")]
    Unfit {
        /// The table.
        table: String,
        /// What doesn't fit.
        reason: String,
    },
    /// Rows read back are not what the schema says.
    #[error("column '{column}' came back with {found}")]
    Unexpected {
        /// The column.
        column: String,
        /// What came.
        found: &'static str,
    },
    /// Standard output or the terminal failed.
    #[error("writing the output failed: {0}")]
    Output(#[from] io::Error),
    /// JSON could not be written or read.
    #[error("json: {0}")]
    Json(#[from] serde_json::Error),
    /// The lake failed.
    #[error(transparent)]
    Lake(#[from] forebay_versioning::Error),
    /// The store failed.
    #[error(transparent)]
    Storage(#[from] forebay_storage::Error),
    /// Columns or a schema are wrong.
    #[error(transparent)]
    Format(#[from] forebay_format::Error),
}

impl Error {
    /// The exit code of a command that ends so.
    pub(crate) fn exit_code(&self) -> i32 {
        match self {
            Self::Usage(_) => 2,
            _ => 1,
        }
    }

    /// Whether the reader of our output went away, which is no failure of ours.
    pub(crate) fn is_closed_pipe(&self) -> bool {
        match self {
            Self::Output(error) => error.kind() == io::ErrorKind::BrokenPipe,
            Self::Json(error) => error.io_error_kind() == Some(io::ErrorKind::BrokenPipe),
            _ => false,
        }
    }

    /// The error and its causes in one line, each said once.
    pub(crate) fn line(&self) -> String {
        let mut line = self.to_string();
        let mut cause = self.source();
        while let Some(error) = cause {
            let text = error.to_string();
            if !line.contains(&text) {
                // Writing to a string can't fail.
                let _ = write!(line, ": {text}");
            }
            cause = error.source();
        }
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::Error;
    use std::io;

    #[test]
    fn an_error_is_one_line_that_says_each_cause_once() {
        let inner = Error::Unreadable { source: io::Error::other("first\nsecond") };
        let error = Error::Image { name: "a.jpg".into(), source: Box::new(inner) };
        let line = error.line();
        assert!(line.starts_with("a.jpg: it can't be read: first second; nothing was committed"), "{line}");
        assert_eq!(line.matches("second").count(), 1, "{line}");
    }
}
