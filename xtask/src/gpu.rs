//! `cargo xtask bench gpu`: builds a folder that a machine with a driver, Python and PyTorch can measure with, and does so here if
//! this is one.

use crate::repo::Repo;
use crate::shell;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds `bench-gpu` in the target folder anew: the wheel, and the scripts that measure. Nothing else is needed where they run.
pub(crate) fn folder(repo: &Repo, wheel: &Path) -> Result<PathBuf> {
    let folder = repo.target.join("bench-gpu");
    if folder.exists() {
        std::fs::remove_dir_all(&folder).with_context(|| format!("cannot empty {}", folder.display()))?;
    }
    std::fs::create_dir_all(&folder)?;
    let xtask = repo.root.join("xtask");
    let mut files = vec![wheel.to_owned(), xtask.join("bench").join("report.py"), xtask.join("py").join("measure.py")];
    let scripts = xtask.join("bench").join("gpu");
    for entry in std::fs::read_dir(&scripts).with_context(|| format!("cannot list {}", scripts.display()))? {
        let path = entry?.path();
        files.extend(path.extension().is_some_and(|extension| extension == "py").then_some(path));
    }
    for file in files {
        let name = file.file_name().context("a file has no name")?;
        std::fs::copy(&file, folder.join(name)).with_context(|| format!("cannot copy {}", file.display()))?;
    }
    Ok(folder)
}

/// A Python whose PyTorch sees a GPU: that of `FOREBAY_PYTHON`, or `python3`.
pub(crate) fn python() -> Result<PathBuf> {
    let python = std::env::var_os("FOREBAY_PYTHON").map_or_else(|| "python3".into(), PathBuf::from);
    let question = "import torch; print(torch.cuda.device_count())";
    match shell::output(Command::new(&python).args(["-c", question])) {
        Ok(count) if count.trim() != "0" => Ok(python),
        Ok(_) => bail!("PyTorch sees no GPU"),
        Err(_) => bail!("{} has no PyTorch; name a Python that has one in FOREBAY_PYTHON", python.display()),
    }
}
