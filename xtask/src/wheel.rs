//! The Python wheel: built by maturin in the shared target folder, installed into the environment.

use crate::elf::Dynamic;
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
    let mut maturin = shell::building(venv.command("maturin"), repo);
    maturin.args(["build", "--release", "--manifest-path"]);
    maturin.arg(repo.root.join("bindings").join("python").join("Cargo.toml"));
    maturin.arg("--interpreter").arg(venv.python()).arg("--out").arg(&folder);
    shell::run(&mut maturin)?;
    let wheel = built(repo)?;
    shell::run(venv.command("uv").args(["pip", "install", "--quiet", "--no-deps", "--force-reinstall"]).arg(&wheel))?;
    if cfg!(target_os = "linux") {
        check_binding(venv).with_context(|| format!("{} is not for every machine", repo.short(&wheel)))?;
    }
    Ok(wheel)
}

/// Checks that the installed library finds the CUDA driver at run time alone: one wheel serves machines with and without it.
fn check_binding(venv: &Venv) -> Result<()> {
    let find = "import importlib.util; print(importlib.util.find_spec('forebay._forebay').origin)";
    let library = PathBuf::from(shell::output(venv.command("python").args(["-c", find]))?.trim());
    let bytes = std::fs::read(&library).with_context(|| format!("cannot read {}", library.display()))?;
    let dynamic = Dynamic::read(&bytes).with_context(|| format!("cannot understand {}", library.display()))?;
    if !dynamic.exported.iter().any(|name| name == "PyInit__forebay") {
        bail!("{} has no PyInit__forebay", library.display());
    }
    match dynamic.bound_to_cuda() {
        Some(reason) => bail!("{}: {reason}", library.display()),
        None => Ok(()),
    }
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
