//! The Python wheel: built by maturin in the shared target folder, installed into the environment.

use crate::repo::Repo;
use crate::shell;
use crate::venv::{Set, Venv};
use anyhow::{Context, Result, bail};
use std::path::PathBuf;
use std::process::ExitCode;

pub(crate) fn run(repo: &Repo) -> Result<ExitCode> {
    let venv = Venv::with(repo, &[Set::Demo])?;
    let wheel = install(repo, &venv)?;
    let size = std::fs::metadata(&wheel)?.len() as f64 / 1e6;
    println!("{} ({size:.1} MB)", repo.short(&wheel));
    Ok(ExitCode::SUCCESS)
}

/// Builds the wheel and installs it; returns where it lies. cargo does nothing when nothing changed, and installing
/// takes less time than finding out whether it could be left out.
pub(crate) fn install(repo: &Repo, venv: &Venv) -> Result<PathBuf> {
    let folder = repo.target.join("wheels");
    if folder.exists() {
        std::fs::remove_dir_all(&folder).with_context(|| format!("cannot empty {}", folder.display()))?;
    }
    let mut maturin = venv.command("maturin");
    maturin.current_dir(&repo.root).env("CARGO_TARGET_DIR", &repo.target);
    maturin.args(["build", "--release", "--manifest-path"]);
    maturin.arg(repo.root.join("bindings").join("python").join("Cargo.toml"));
    maturin.arg("--interpreter").arg(venv.python()).arg("--out").arg(&folder);
    shell::run(&mut maturin)?;
    let wheel = built(repo)?;
    shell::run(venv.command("uv").args(["pip", "install", "--quiet", "--no-deps", "--force-reinstall"]).arg(&wheel))?;
    Ok(wheel)
}

/// The wheel that [`install`] built last.
pub(crate) fn built(repo: &Repo) -> Result<PathBuf> {
    let folder = repo.target.join("wheels");
    let files = std::fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))?;
    let paths = files.map(|file| Ok(file?.path())).collect::<Result<Vec<_>>>()?;
    let mut wheels: Vec<_> = paths.into_iter().filter(|path| path.extension().is_some_and(|e| e == "whl")).collect();
    match (wheels.pop(), wheels.is_empty()) {
        (Some(wheel), true) => Ok(wheel),
        _ => bail!("expected exactly one wheel in {}", folder.display()),
    }
}
