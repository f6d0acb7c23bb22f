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
        for retained in [false, true] {
            let (mut roots, mut pages) = (Vec::new(), Vec::new());
            for (id, contents) in history.commits(retained) {
                marks.0.insert(names::meta(id));
                if !expired.contains(&id) {
                    marks.take(contents, &mut roots, &mut pages);
                }
            }
            marks.follow(lake, roots, pages, retained).await?;
        }
        Ok(marks)
    }

    /// Marks what roots and pages lead to.
    async fn follow(
        &mut self,
        lake: &Lake,
        roots: Vec<Pointer>,
        mut pages: Vec<Pointer>,
        retained: bool,
    ) -> Result<()> {
        let purges = lake.known_purges();
        let add = |contents: &mut Contents, root: TableRoot| contents.add_root(&root, &purges);
        let found = read(lake, roots, retained, TableRoot::decode, add).await?;
        self.take(&found, &mut Vec::new(), &mut pages);
        let add = |contents: &mut Contents, page: Page| contents.add_fragments(&page.fragments, &purges);
        let found = read(lake, pages, retained, Page::decode, add).await?;
        self.take(&found, &mut Vec::new(), &mut Vec::new());
        Ok(())
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

/// What objects name, all in one. Of what is only retained, earlier collections may have taken some.
async fn read<T>(
    lake: &Lake,
    pointers: Vec<Pointer>,
    retained: bool,
    decode: impl Fn(&[u8]) -> forebay_format::Result<T>,
    add: impl Fn(&mut Contents, T),
) -> Result<Contents> {
    let mut contents = Contents::default();
    let mut objects = stream::iter(pointers)
        .map(|pointer| async move {
            match commit::fetch(lake.storage(), &pointer, "a commit that is kept").await {
                Err(Error::Missing { .. }) if retained => Ok(None),
                bytes => bytes.map(|bytes| Some((pointer, bytes))),
            }
        })
        .buffer_unordered(CONCURRENCY);
    while let Some(object) = objects.try_next().await? {
        let Some((pointer, bytes)) = object else { continue };
        add(&mut contents, decode(&bytes).map_err(Error::object(names::meta(pointer.id)))?);
    }
    Ok(contents)
}
