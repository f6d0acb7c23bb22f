//! Images that stay where they are, in a folder or a bucket, on their way into a table as links.

use std::collections::HashSet;

use forebay_format::{Column, Compression, Link};
use forebay_storage::{Storage, Version, runtime};
use forebay_versioning::{Table, TableWriter};

use super::{Keep, Limits, Plan, Prepared, Rows, Scan, Source, Tally, WAITING, is_image, pipeline};
use crate::{Error, Result, args::Create, progress::Progress};

/// Lists the images below a storage's root; the first parts of their names are their classes. Names that start with a dot, or lie below
/// one that does, are passed over.
///
/// # Errors
/// If the store can't be listed, or has no image there.
pub(crate) fn scan(from: &Storage) -> Result<Scan> {
    let mut scan = Scan::default();
    let mut classes = HashSet::new();
    for entry in runtime()?.block_on(from.list(""))? {
        if entry.path.split('/').any(|part| part.starts_with('.')) {
            continue;
        }
        if !is_image(entry.path.as_ref()) {
            scan.ignored += 1;
            continue;
        }
        classes.extend(entry.path.split_once('/').map(|(class, _)| class.to_owned()));
        let (name, bytes, etag) = (entry.path, entry.size, entry.etag);
        scan.images.push(Source { path: name.clone().into(), name, label: None, bytes, etag });
    }
    if scan.images.is_empty() {
        return Err(Error::NoImages { path: from.url().into(), ignored: scan.ignored });
    }
    scan.classes = classes.into_iter().collect();
    scan.settle();
    Ok(scan)
}

/// As [`super::plan`]: the column `image` has links to what lies below `base`.
///
/// # Errors
/// As [`super::plan`].
pub(crate) fn plan(scan: &Scan, base: &str) -> Result<Plan> {
    let mut plan = super::plan(scan, Keep::Linked, Compression::default())?;
    if let Some(image) = plan.schema.columns.first_mut() {
        image.kind.metadata.insert("base".to_owned(), base.to_owned());
    }
    plan.schema.check()?;
    Ok(plan)
}

/// Leaves out what a table has already, by its path; gives how many that are.
///
/// # Errors
/// What reading the table reports.
pub(crate) fn leave_known(scan: &mut Scan, table: &Table) -> Result<u64> {
    const ROWS: u64 = 1 << 16;
    let mut known: HashSet<Vec<u8>> = HashSet::new();
    for start in (0..table.rows()).step_by(ROWS as usize) {
        let read = runtime()?.block_on(table.read("path", start..table.rows().min(start + ROWS)))?;
        if let forebay_format::OwnedValues::Ragged { offsets, bytes, .. } = &read.values {
            known.extend(offsets.windows(2).map(|ends| bytes[ends[0] as usize..ends[1] as usize].to_vec()));
        }
    }
    let before = scan.images.len();
    scan.images.retain(|image| !known.contains(image.name.as_bytes()));
    Ok((before - scan.images.len()) as u64)
}

/// Writes a link to every image of `scan`, in order; with `--hash` each is read once.
///
/// # Errors
/// If an image can't be linked and `--on-error` says to fail, naming it; if all were skipped; and what writing reports.
pub(crate) fn ingest(
    from: &Storage,
    scan: &mut Scan,
    plan: &Plan,
    writer: &mut TableWriter,
    args: &Create,
) -> Result<Tally> {
    let (hash, on_error) = (args.hash, args.on_error);
    let mut tally = Tally::default();
    let mut progress = Progress::new((scan.images.len() + scan.unusable.len()) as u64, "images");
    for (name, error) in scan.unusable.drain(..) {
        tally.leave_out(name, error, on_error, &progress)?;
        progress.advance(1, 0, 0);
    }
    let image = writer.columns().iter().find(|column| column.name == "image").cloned();
    let image = image.ok_or(Error::Unexpected { column: "image".to_owned(), found: "no links" })?;
    let mut rows = Rows::new(plan, writer);
    pipeline::in_order(
        &scan.images,
        Limits { threads: args.threads(), weight: WAITING },
        |source| if hash { source.bytes.max(1) } else { 1 },
        |(): &mut (), source| prepare(from, &image, source, hash),
        |source, prepared| tally.take(source, prepared, &mut rows, on_error, &mut progress),
    )?;
    rows.flush()?;
    if tally.rows == 0 {
        return Err(Error::AllSkipped { skipped: tally.skipped.len() as u64 });
    }
    Ok(tally)
}

/// The link to an image, and how many bytes of it were read.
fn prepare(from: &Storage, image: &Column, source: &Source, hash: bool) -> Result<(Prepared, u64)> {
    let (size, etag) = (source.bytes, source.etag.clone());
    if etag.is_none() && !hash {
        return Err(Error::NoEtag);
    }
    let mut link = Link { url: source.name.clone(), size, part: None, etag, hash: None };
    let mut read = 0;
    if hash {
        let version = Version { size, etag: link.etag.clone() };
        let bytes = runtime()?.block_on(from.get_ranges_of(&source.name, &version, &[0..size]))?.concat();
        link.hash = Some(Link::hash_of(&bytes));
        read = size;
    }
    let link = link.below(from.url()).relative_to(image.link_base().unwrap_or_default());
    Ok((Prepared::Linked(link.encode()?), read))
}
