//! A folder of images on its way into a table.

mod decode;
pub(crate) mod linked;
mod pipeline;
mod rows;
mod scan;
mod schema;
mod transform;

use std::path::Path;

use forebay_versioning::TableWriter;
use serde::Serialize;

pub(crate) use pipeline::Limits;
use scan::is_image;
pub(crate) use scan::{Scan, Source, scan};
pub(crate) use schema::{Plan, plan};
pub(crate) use transform::Recipe;

use crate::{Error, Result, progress::Progress};
use rows::Rows;
use transform::Scratch;

/// How images are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    /// Decoded, at one size.
    Pixels(Recipe),
    /// As they are.
    Encoded,
    /// Where they are.
    Linked,
}

/// An image made ready for its table.
pub(crate) enum Prepared {
    /// `[3, crop, crop]` bytes.
    Pixels(Vec<u8>),
    /// The file's bytes, and height, width and channels of the picture in them.
    Encoded { bytes: Vec<u8>, shape: [u32; 3] },
    /// A link to the file.
    Linked(Vec<u8>),
}

/// What is done with an image that can't be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum OnError {
    /// End the run; nothing is committed.
    Fail,
    /// Report it and leave it out.
    Skip,
}

/// An image that was left out.
#[derive(Debug, Serialize)]
pub(crate) struct Skipped {
    path: String,
    reason: String,
}

/// What was done.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Tally {
    /// Rows written.
    pub(crate) rows: u64,
    /// Images left out.
    pub(crate) skipped: Vec<Skipped>,
    /// Bytes of the files read.
    pub(crate) bytes_read: u64,
}

/// How much decoded or read data may wait to be written.
const WAITING: u64 = 64 << 20;

/// Reads, prepares and writes every image of `scan`, in order.
///
/// # Errors
/// If an image can't be used and `on_error` says to fail, naming it; if all were skipped; and what writing reports.
pub(crate) fn ingest(
    scan: &mut Scan,
    plan: &Plan,
    writer: &mut TableWriter,
    threads: usize,
    on_error: OnError,
) -> Result<Tally> {
    let mut tally = Tally::default();
    let total = (scan.images.len() + scan.unusable.len()) as u64;
    let mut progress = Progress::new(total, "images");
    for (name, error) in scan.unusable.drain(..) {
        tally.leave_out(name, error, on_error, &progress)?;
        progress.advance(1, 0, 0);
    }
    let mut rows = Rows::new(plan, writer);
    let limits = Limits { threads, weight: WAITING };
    let keep = plan.keep;
    pipeline::in_order(
        &scan.images,
        limits,
        |source| match keep {
            Keep::Pixels(recipe) => recipe.row_bytes() as u64,
            Keep::Encoded | Keep::Linked => source.bytes.max(1),
        },
        |scratch: &mut Scratch, source| prepare(&source.path, keep, scratch),
        |source, prepared| tally.take(source, prepared, &mut rows, on_error, &mut progress),
    )?;
    rows.flush()?;
    if tally.rows == 0 {
        return Err(Error::AllSkipped { skipped: tally.skipped.len() as u64 });
    }
    Ok(tally)
}

/// Reads an image and brings it to the form in which it is kept; gives the size of its file too.
fn prepare(path: &Path, keep: Keep, scratch: &mut Scratch) -> Result<(Prepared, u64)> {
    let bytes = std::fs::read(path).map_err(|source| Error::Unreadable { source })?;
    let size = bytes.len() as u64;
    let prepared = match keep {
        Keep::Pixels(recipe) => {
            let image = decode::decode(&bytes, std::mem::take(&mut scratch.pixels))?;
            let planes = transform::apply(recipe, &image, scratch)?;
            scratch.keep(image.rgb);
            Prepared::Pixels(planes)
        }
        Keep::Encoded => {
            let shape = decode::header(&bytes)?.shape;
            Prepared::Encoded { bytes, shape }
        }
        Keep::Linked => {
            return Err(Error::Unexpected { column: "image".to_owned(), found: "links, which nobody reads here" });
        }
    };
    Ok((prepared, size))
}

impl Tally {
    /// Writes what an image became, or leaves the image out.
    fn take(
        &mut self,
        source: &Source,
        prepared: Result<(Prepared, u64)>,
        rows: &mut Rows<'_>,
        on_error: OnError,
        progress: &mut Progress,
    ) -> Result<()> {
        match prepared {
            Ok((prepared, bytes)) => {
                rows.push(source, prepared)?;
                self.rows += 1;
                self.bytes_read += bytes;
                progress.advance(1, 1, bytes);
            }
            Err(error) => {
                self.leave_out(source.name.clone(), error, on_error, progress)?;
                progress.advance(1, 0, 0);
            }
        }
        Ok(())
    }

    fn leave_out(&mut self, name: String, error: Error, on_error: OnError, progress: &Progress) -> Result<()> {
        match on_error {
            OnError::Fail => Err(Error::Image { name, source: Box::new(error) }),
            OnError::Skip => {
                let reason = error.line();
                progress.complain(&format!("skipped {name}: {reason}"));
                self.skipped.push(Skipped { path: name, reason });
                Ok(())
            }
        }
    }
}
