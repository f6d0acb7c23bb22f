//! What commits lead to.

use std::collections::HashSet;

use forebay_format::{
    CommitId,
    meta::{Page, Pointer, TableRoot},
};
use futures::{StreamExt as _, TryStreamExt as _, stream};

use super::{
    CONCURRENCY,
    history::{Contents, History},
};
use crate::{Error, Lake, Result, commit, names};

/// The paths of all objects that are kept.
#[derive(Default)]
pub(super) struct Marks(HashSet<String>);

impl Marks {
    /// Everything that commits of `history` lead to; those in `expired` are kept without their tables.
    pub(super) async fn of(lake: &Lake, history: &History, expired: &HashSet<CommitId>) -> Result<Self> {
        let mut marks = Self::default();
        let (mut roots, mut pages) = (Vec::new(), Vec::new());
        for (id, commit) in &history.commits {
            marks.0.insert(names::meta(*id));
            if !expired.contains(id) {
                marks.take(&commit.contents, &mut roots, &mut pages);
            }
        }
        let found = read(lake, roots, TableRoot::decode, |contents, root| contents.add_root(&root)).await?;
        marks.take(&found, &mut Vec::new(), &mut pages);
        let found = read(lake, pages, Page::decode, |contents, page| contents.add_fragments(&page.fragments)).await?;
        marks.take(&found, &mut Vec::new(), &mut Vec::new());
        Ok(marks)
    }

    /// Marks what something names; gives the roots and pages that are new.
    fn take(&mut self, contents: &Contents, roots: &mut Vec<Pointer>, pages: &mut Vec<Pointer>) {
        for (list, new) in [(&contents.roots, roots), (&contents.pages, pages)] {
            new.extend(list.iter().filter(|pointer| self.0.insert(names::meta(pointer.id))));
        }
        for path in &contents.paths {
            if !self.0.contains(path) {
                self.0.insert(path.clone());
            }
        }
    }

    pub(super) fn contains(&self, path: &str) -> bool {
        self.0.contains(path)
    }
}

/// What objects name, all in one.
async fn read<T>(
    lake: &Lake,
    pointers: Vec<Pointer>,
    decode: impl Fn(&[u8]) -> forebay_format::Result<T>,
    add: impl Fn(&mut Contents, T),
) -> Result<Contents> {
    let mut contents = Contents::default();
    let mut objects = stream::iter(pointers)
        .map(|pointer| async move {
            let bytes = commit::fetch(lake.storage(), &pointer, "a commit that is kept").await?;
            Ok::<_, Error>((pointer, bytes))
        })
        .buffer_unordered(CONCURRENCY);
    while let Some((pointer, bytes)) = objects.try_next().await? {
        add(&mut contents, decode(&bytes).map_err(Error::object(names::meta(pointer.id)))?);
    }
    Ok(contents)
}
