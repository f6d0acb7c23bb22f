//! `cargo xtask tidy`: what the compiler does not check. Every finding says where and why, and one is enough to fail.

mod layers;
mod links;
mod sources;

use crate::repo::Repo;
use crate::shell;
use anyhow::{Context, Result, bail};
use std::path::PathBuf;
use std::process::{Command, ExitCode};

/// A file that git tracks, or would if it were added: what a clone will hold.
pub(crate) struct Source {
    /// From the root of the repository, with `/` between the folders.
    path: String,
    /// What it says; files that are not text are left out.
    text: String,
}

pub(crate) fn run(repo: &Repo) -> Result<ExitCode> {
    let sources = sources(repo)?;
    let mut findings = layers::check(&layers::graph(repo)?);
    findings.extend(sources::check(&sources));
    findings.extend(links::check(&sources, |path| repo.root.join(path).exists()));
    findings.sort();
    for finding in &findings {
        println!("{finding}");
    }
    if !findings.is_empty() {
        bail!("{} findings", findings.len());
    }
    println!("{} files are tidy", sources.len());
    Ok(ExitCode::SUCCESS)
}

fn sources(repo: &Repo) -> Result<Vec<Source>> {
    let mut git = Command::new("git");
    git.current_dir(&repo.root).args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let listing = shell::output(&mut git)?;
    let mut sources = Vec::new();
    for path in listing.split('\0').filter(|path| !path.is_empty()) {
        let file: PathBuf = repo.root.join(path);
        if !file.is_file() {
            continue; // deleted but not committed yet
        }
        let bytes = std::fs::read(&file).with_context(|| format!("cannot read {path}"))?;
        if let Ok(text) = String::from_utf8(bytes) {
            sources.push(Source { path: path.into(), text });
        }
    }
    Ok(sources)
}

#[cfg(test)]
pub(crate) fn source(path: &str, text: &str) -> Source {
    Source { path: path.into(), text: text.into() }
}
