//! A table's list of fragments: copy-on-write pages.
//!
//! The newest fragments sit in a page inside the root, so most commits write no page at all. When that page grows past
//! [`INLINE`] its fragments join the last page object until that is full, and then a new one: an append writes a bounded
//! amount of metadata, whatever the table's size.

use bytes::Bytes;
use forebay_format::{
    ObjectId,
    meta::{Fragment, Page, PageLocation, PageRef, Pointer, RootRef, TableRoot},
};
use futures::{StreamExt as _, TryStreamExt as _, stream};

use crate::{Error, Lake, Result, names};

/// The most bytes of a page inside a root.
const INLINE: usize = 8 << 10;
/// The most bytes of a page object.
const PAGE: usize = 256 << 10;
/// The most bytes of a root inside a commit.
const INLINE_ROOT: usize = 24 << 10;
/// Pages fetched at once.
const CONCURRENCY: usize = 32;

/// All fragments of a table, in order.
pub(crate) async fn fragments(lake: &Lake, root: &TableRoot, referrer: &str) -> Result<Vec<Fragment>> {
    let mut pages = stream::iter(&root.pages)
        .map(|page| async move {
            match &page.page {
                PageLocation::Inline(inline) => Ok((page, inline.fragments.clone(), referrer.to_owned())),
                PageLocation::Object(pointer) => {
                    let loaded = lake.page(pointer, referrer).await?;
                    Ok::<_, Error>((page, loaded.fragments.clone(), names::meta(pointer.id)))
                }
            }
        })
        .buffered(CONCURRENCY);
    let mut all = Vec::new();
    while let Some((reference, fragments, path)) = pages.try_next().await? {
        let expected = (reference.fragments, reference.rows);
        let found = (fragments.len() as u32, fragments.iter().map(|fragment| u64::from(fragment.live())).sum());
        if expected != found {
            let reason = format!("fragments and rows of a page are {found:?}, its reference says {expected:?}");
            return Err(Error::Inconsistent { path, reason });
        }
        all.extend(fragments);
    }
    Ok(all)
}

/// `root` with `added` behind its fragments; writes the pages that this takes.
pub(crate) async fn append(lake: &Lake, root: &TableRoot, added: &[Fragment], referrer: &str) -> Result<TableRoot> {
    let mut pages = root.pages.clone();
    let mut tail = match pages.pop() {
        Some(PageRef { page: PageLocation::Inline(page), .. }) => page.fragments,
        Some(sealed) => {
            pages.push(sealed);
            Vec::new()
        }
        None => Vec::new(),
    };
    tail.extend_from_slice(added);
    if encode(&tail)?.len() > INLINE {
        if let Some(PageRef { page: PageLocation::Object(pointer), .. }) = pages.last()
            && (pointer.length as usize) < PAGE / 2
        {
            let page = lake.page(pointer, referrer).await?;
            tail.splice(0..0, page.fragments.iter().cloned());
            pages.pop();
        }
        for (fragments, bytes) in paginate(tail)? {
            let pointer = write(lake, bytes).await?;
            pages.push(reference(&fragments, PageLocation::Object(pointer)));
        }
    } else if !tail.is_empty() {
        pages.push(reference(&tail, PageLocation::Inline(Page { fragments: tail.clone() })));
    }
    Ok(TableRoot { pages, ..root.clone() })
}

/// Where a commit keeps `root`: in itself if it is small, else as an object, which this writes.
pub(crate) async fn place(lake: &Lake, root: TableRoot) -> Result<RootRef> {
    let bytes = root.encode()?;
    if bytes.len() <= INLINE_ROOT {
        return Ok(RootRef::Inline(root));
    }
    Ok(RootRef::Object(write(lake, bytes).await?))
}

async fn write(lake: &Lake, bytes: Vec<u8>) -> Result<Pointer> {
    let id = ObjectId::random();
    let pointer = Pointer::to(id, &bytes);
    lake.storage().put(&names::meta(id), Bytes::from(bytes)).await?;
    Ok(pointer)
}

/// Cuts fragments into runs whose pages have at most [`PAGE`] bytes each.
fn paginate(fragments: Vec<Fragment>) -> Result<Vec<(Vec<Fragment>, Vec<u8>)>> {
    let bytes = encode(&fragments)?;
    if bytes.len() <= PAGE || fragments.len() == 1 {
        return Ok(vec![(fragments, bytes)]);
    }
    let mut left = fragments;
    let right = left.split_off(left.len() / 2);
    let mut pages = paginate(left)?;
    pages.extend(paginate(right)?);
    Ok(pages)
}

fn encode(fragments: &[Fragment]) -> Result<Vec<u8>> {
    Ok(Page { fragments: fragments.to_vec() }.encode()?)
}

fn reference(fragments: &[Fragment], page: PageLocation) -> PageRef {
    PageRef {
        fragments: fragments.len() as u32,
        rows: fragments.iter().map(|fragment| u64::from(fragment.live())).sum(),
        bytes: fragments.iter().flat_map(Fragment::all_files).map(|(file, _)| file.size).sum(),
        page,
    }
}
