//! Where things are.

use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

/// The checkout that a task works on, and the folder that it builds in.
pub(crate) struct Repo {
    /// The folder of the workspace's `Cargo.toml`.
    pub(crate) root: PathBuf,
    /// `CARGO_TARGET_DIR` if that is set, otherwise `target` in the root. Everything that a task makes lies in it.
    pub(crate) target: PathBuf,
}

impl Repo {
    pub(crate) fn find() -> Result<Self> {
        // Set by `cargo run`; what was compiled in serves a binary that is started by hand.
        let manifest = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
        let root = Path::new(&manifest).parent().context("xtask has no parent folder")?.to_path_buf();
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |dir| root.join(dir));
        std::fs::create_dir_all(&target).with_context(|| format!("cannot make {}", target.display()))?;
        Ok(Self { root, target })
    }

    /// A path as people read it: relative to the root where that is shorter.
    pub(crate) fn short<'a>(&self, path: &'a Path) -> std::path::Display<'a> {
        path.strip_prefix(&self.root).unwrap_or(path).display()
    }
}
