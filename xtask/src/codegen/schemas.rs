//! `format/src/generated/*_generated.rs` from `format/schema/*.fbs`, as `flatc --rust` writes them.

use super::Args;
use crate::repo::Repo;
use crate::shell;
use crate::venv::{Set, Venv};
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(super) fn run(repo: &Repo, args: &Args) -> Result<()> {
    let committed = repo.root.join("format").join("src").join("generated");
    let fresh = repo.target.join("codegen");
    if fresh.exists() {
        std::fs::remove_dir_all(&fresh).with_context(|| format!("cannot empty {}", fresh.display()))?;
    }
    std::fs::create_dir_all(&fresh)?;
    let venv = Venv::with(repo, &[Set::Tools])?;
    let mut flatc = venv.command("flatc");
    flatc.current_dir(&repo.root).arg("--rust").arg("-o").arg(&fresh).args(schemas(repo)?);
    shell::run(&mut flatc)?;

    let (want, have) = (generated(&fresh)?, generated(&committed)?);
    if want == have {
        println!("the generated code is what its schemas give");
    } else if args.check {
        // Only to show it: this exits with 1 where the folders differ.
        let mut diff = Command::new("git");
        diff.current_dir(&repo.root).args(["--no-pager", "diff", "--no-index", "--stat", "-p"]);
        diff.arg(&committed).arg(&fresh).status().context("cannot start git")?;
        bail!("{} is not what its schemas give: run `cargo xtask codegen`", repo.short(&committed));
    } else {
        for name in have.keys().filter(|name| !want.contains_key(*name)) {
            std::fs::remove_file(committed.join(name))?;
        }
        for (name, text) in &want {
            std::fs::write(committed.join(name), text)?;
        }
        println!("wrote {} files in {}", want.len(), repo.short(&committed));
    }
    Ok(())
}

/// The schemas, in the order of their names, relative to the root.
fn schemas(repo: &Repo) -> Result<Vec<PathBuf>> {
    let folder = Path::new("format").join("schema");
    let names = names(&repo.root.join(&folder))?;
    Ok(names.into_iter().filter(|name| name.ends_with(".fbs")).map(|name| folder.join(name)).collect())
}

/// What flatc wrote in a folder: name and text of each file, with the line ends of every platform made equal.
fn generated(folder: &Path) -> Result<BTreeMap<String, String>> {
    let names = names(folder)?.into_iter().filter(|name| name.ends_with("_generated.rs"));
    let read = |name: String| {
        let text = std::fs::read_to_string(folder.join(&name)).with_context(|| format!("cannot read {name}"))?;
        Ok((name, text.replace("\r\n", "\n")))
    };
    names.map(read).collect()
}

fn names(folder: &Path) -> Result<Vec<String>> {
    let files = std::fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    let name = |file: std::io::Result<std::fs::DirEntry>| Ok(file?.file_name().to_string_lossy().into_owned());
    let mut names = files.map(name).collect::<Result<Vec<_>>>()?;
    names.sort();
    Ok(names)
}
