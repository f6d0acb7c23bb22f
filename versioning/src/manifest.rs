//! A table's list of fragments: copy-on-write pages.
//!
//! The newest fragments sit in a page inside the root, so most commits write no page at all. When that page grows past
//! [`INLINE`] its fragments join the last page object until that is full, and then a new one: an append writes a bounded
//! amount of metadata, whatever the table's size.

use std::collections::{BTreeMap, HashSet};

use bytes::Bytes;
use forebay_format::{
    FragmentId, ObjectId,
    meta::{Fragment, Origins, Page, PageLocation, PageRef, Pointer, RootRef, TableRoot},
};
use futures::{StreamExt as _, TryStreamExt as _, stream};

use crate::{Error, Lake, Result, commit, names};

/// The most bytes of a page inside a root.
const INLINE: usize = 8 << 10;
/// The most bytes of a page object.
const PAGE: usize = 256 << 10;
/// The last page is written anew, with more in it, as long as it has fewer bytes: a table has few pages, and a commit that
/// writes one stays within bounds.
const OPEN: usize = 224 << 10;
/// The least bytes of a fragment in a page.
const FRAGMENT: usize = 19;
/// The most bytes of a root inside a commit.
const INLINE_ROOT: usize = 24 << 10;
/// Pages fetched at once.
pub(crate) const CONCURRENCY: usize = 128;

/// All fragments of a table, in order.
pub(crate) async fn fragments(lake: &Lake, root: &TableRoot, referrer: &str) -> Result<Vec<Fragment>> {
    let mut pages = stream::iter(root.pages.clone())
        .map(|reference| async move {
            let counts = (reference.fragments, reference.rows);
            match reference.page {
                PageLocation::Inline(inline) => Ok((counts, inline.fragments, referrer.to_owned())),
                PageLocation::Object(pointer) => {
                    let loaded = lake.page(&pointer, referrer).await?;
                    Ok::<_, Error>((counts, loaded.fragments.clone(), names::meta(pointer.id)))
                }
            }
        })
        .buffered(CONCURRENCY);
    let mut all = Vec::new();
    while let Some((expected, fragments, path)) = pages.try_next().await? {
        let found = (fragments.len() as u32, fragments.iter().map(|fragment| u64::from(fragment.live())).sum());
        if expected != found {
            let reason = format!("fragments and rows of a page are {found:?}, its reference says {expected:?}");
            return Err(Error::Inconsistent { path, reason });
        }
        all.extend(fragments);
    }
    lake.known_purges().apply(&mut all);
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
    if tail.len() > INLINE / FRAGMENT || encode(&tail)?.len() > INLINE {
        if let Some(PageRef { page: PageLocation::Object(pointer), .. }) = pages.last()
            && (pointer.length as usize) < OPEN
        {
            let page = lake.page(pointer, referrer).await?;
            tail.splice(0..0, page.fragments.iter().cloned());
            pages.pop();
        }
        pages.extend(seal(lake, tail).await?);
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
    let parts = match encode(&fragments) {
        Ok(bytes) if bytes.len() <= PAGE || fragments.len() == 1 => return Ok(vec![(fragments, bytes)]),
        Ok(bytes) => bytes.len().div_ceil(OPEN),
        Err(Error::Data(forebay_format::Error::Limit { .. })) if fragments.len() > 1 => 2,
        Err(error) => return Err(error),
    };
    let mut pages = Vec::with_capacity(parts);
    for part in fragments.chunks(fragments.len().div_ceil(parts)) {
        pages.extend(paginate(part.to_vec())?);
    }
    Ok(pages)
}

fn encode(fragments: &[Fragment]) -> Result<Vec<u8>> {
    Ok(Page { fragments: fragments.to_vec() }.encode()?)
}

fn reference(fragments: &[Fragment], page: PageLocation) -> PageRef {
    PageRef {
        fragments: fragments.len() as u32,
        rows: fragments.iter().map(|fragment| u64::from(fragment.live())).sum(),
        bytes: fragments.iter().flat_map(|fragment| &fragment.files).map(|file| file.size).sum(),
        page,
    }
}

/// The fragments of each root that are in pages which not all of the roots share: all that differ are among them.
pub(crate) async fn differing<const N: usize>(lake: &Lake, roots: [&TableRoot; N]) -> Result<[Vec<Fragment>; N]> {
    let mut shared: Option<HashSet<ObjectId>> = None;
    for root in roots {
        let here = root.pages.iter().filter_map(object).collect();
        shared = Some(shared.map_or(here, |shared| &shared & &root.pages.iter().filter_map(object).collect()));
    }
    let shared = shared.unwrap_or_default();
    let mut all = std::array::from_fn(|_| Vec::new());
    for (root, all) in roots.into_iter().zip(&mut all) {
        let own = |page: &&PageRef| object(page).is_none_or(|id| !shared.contains(&id));
        let pages = root.pages.iter().filter(own).cloned().collect();
        *all = fragments(lake, &TableRoot { pages, ..root.clone() }, "a table that is compared").await?;
    }
    Ok(all)
}

/// `root` with some fragments replaced, each by any number of others at its place, and `added` behind all; writes the
/// pages that this takes. A page named by `likely` is looked into before the others.
///
/// # Errors
/// [`Error::Inconsistent`] if a fragment to be replaced isn't there.
pub(crate) async fn edit(
    lake: &Lake,
    root: &TableRoot,
    mut edits: BTreeMap<FragmentId, Vec<Fragment>>,
    added: &[Fragment],
    likely: &[PageRef],
) -> Result<TableRoot> {
    let likely: HashSet<ObjectId> = likely.iter().filter_map(object).collect();
    let mut pages: Vec<Vec<PageRef>> = root.pages.iter().map(|page| vec![page.clone()]).collect();
    let first = |page: &PageRef| object(page).is_none_or(|id| likely.contains(&id));
    let (mut order, rest): (Vec<usize>, Vec<usize>) =
        (0..root.pages.len()).partition(|number| first(&root.pages[*number]));
    order.extend(rest);
    for number in order {
        if edits.is_empty() {
            break;
        }
        let page = &root.pages[number];
        let single = TableRoot { pages: vec![page.clone()], ..root.clone() };
        let before = fragments(lake, &single, "a table that is changed").await?;
        if !before.iter().any(|fragment| edits.contains_key(&fragment.id)) {
            continue;
        }
        let replace = |fragment: Fragment| edits.remove(&fragment.id).unwrap_or_else(|| vec![fragment]);
        let after: Vec<Fragment> = before.into_iter().flat_map(replace).collect();
        pages[number] = match &page.page {
            _ if after.is_empty() => Vec::new(),
            // Only the last page can be inside the root, and only as long as it is small.
            PageLocation::Inline(_) if encode(&after)?.len() <= INLINE => {
                vec![reference(&after, PageLocation::Inline(Page { fragments: after.clone() }))]
            }
            _ => seal(lake, after).await?,
        };
    }
    if let Some(lost) = edits.keys().next() {
        let reason = format!("it lacks fragment {lost}, which is to be changed");
        return Err(Error::Inconsistent { path: "a table that is changed".to_owned(), reason });
    }
    let edited = TableRoot { pages: pages.into_iter().flatten().collect(), ..root.clone() };
    if added.is_empty() { Ok(edited) } else { append(lake, &edited, added, "a table that is changed").await }
}

/// Writes fragments as page objects.
async fn seal(lake: &Lake, fragments: Vec<Fragment>) -> Result<Vec<PageRef>> {
    let mut pages = Vec::new();
    for (fragments, bytes) in paginate(fragments)? {
        pages.push(reference(&fragments, PageLocation::Object(write(lake, bytes).await?)));
    }
    Ok(pages)
}

fn object(page: &PageRef) -> Option<ObjectId> {
    match &page.page {
        PageLocation::Object(pointer) => Some(pointer.id),
        PageLocation::Inline(_) => None,
    }
}

/// The origins of a fragment that has some.
pub(crate) async fn origins(lake: &Lake, pointer: &Pointer) -> Result<Origins> {
    let bytes = commit::fetch(lake.storage(), pointer, "a compacted fragment").await?;
    let mut origins = Origins::decode(&bytes).map_err(Error::object(names::meta(pointer.id)))?;
    lake.known_purges().apply_to_origins(&mut origins);
    Ok(origins)
}

/// Writes the origins of a fragment.
pub(crate) async fn write_origins(lake: &Lake, origins: &Origins) -> Result<Pointer> {
    write(lake, origins.encode()?).await
}
