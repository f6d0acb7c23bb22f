//! The Python wheel: built by maturin in the shared target folder, installed into the environment.

use crate::elf::Dynamic;
use crate::repo::Repo;
use crate::shell;
use crate::venv::{Set, Venv};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Build the wheel of SQL as well: DataFusion takes a while.
    #[arg(long)]
    sql: bool,
}

pub(crate) fn run(repo: &Repo, args: &Args) -> Result<ExitCode> {
    let venv = Venv::with(repo, &[Set::Demo])?;
    let mut wheels = vec![install(repo, &venv)?];
    if args.sql {
        wheels.push(install_sql(repo, &venv)?);
    }
    for wheel in wheels {
        let size = std::fs::metadata(&wheel)?.len() as f64 / 1e6;
        println!("{} ({size:.1} MB)", repo.short(&wheel));
    }
    Ok(ExitCode::SUCCESS)
}

/// Builds the wheel and installs it; returns where it lies.
pub(crate) fn install(repo: &Repo, venv: &Venv) -> Result<PathBuf> {
    let wheel = build(repo, venv, "python", WHEELS, &[])?;
    if cfg!(target_os = "linux") {
        check_binding(venv).with_context(|| format!("{} is not for every machine", repo.short(&wheel)))?;
    }
    Ok(wheel)
}

/// As [`install`], for the wheel of SQL.
pub(crate) fn install_sql(repo: &Repo, venv: &Venv) -> Result<PathBuf> {
    build(repo, venv, "sql", "wheels-sql", &["--features", "shared"])
}

/// Where the package's wheel lies, in the target folder.
const WHEELS: &str = "wheels";

/// Builds and installs the wheel of a folder of `bindings`. cargo does nothing when nothing changed, and installing takes less
/// time than finding out whether it could be left out.
fn build(repo: &Repo, venv: &Venv, binding: &str, wheels: &str, more: &[&str]) -> Result<PathBuf> {
    let folder = repo.target.join(wheels);
    if folder.exists() {
        std::fs::remove_dir_all(&folder).with_context(|| format!("cannot empty {}", folder.display()))?;
    }
    let mut maturin = shell::building(venv.command("maturin"), repo);
    maturin.args(["build", "--release", "--manifest-path"]);
    maturin.arg(repo.root.join("bindings").join(binding).join("Cargo.toml"));
    maturin.arg("--interpreter").arg(venv.python()).arg("--out").arg(&folder).args(more);
    shell::run(&mut maturin)?;
    let wheel = only(&folder)?;
    shell::run(venv.command("uv").args(["pip", "install", "--quiet", "--no-deps", "--force-reinstall"]).arg(&wheel))?;
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
    only(&repo.target.join(WHEELS))
}

fn only(folder: &Path) -> Result<PathBuf> {
    let files = std::fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    let paths = files.map(|file| Ok(file?.path())).collect::<Result<Vec<_>>>()?;
    let mut wheels: Vec<_> = paths.into_iter().filter(|path| path.extension().is_some_and(|e| e == "whl")).collect();
    match (wheels.pop(), wheels.is_empty()) {
        (Some(wheel), true) => Ok(wheel),
        _ => bail!("expected exactly one wheel in {}", folder.display()),
    }
}
