//! The fuzz targets of `format/fuzz`, a minute each: a step of `cargo xtask test --long`.

use crate::repo::Repo;
use crate::shell;
use crate::venv::{Set, Venv};
use anyhow::{Context, Result};

/// Seconds for each target.
const SECONDS: u32 = 60;
/// A parser may not ask for more at once, in MiB: no input is nearly as long.
const LARGEST_MIB: u32 = 64;

/// Runs every target over its seeds and what grows from them. Inputs that fail are kept in `format/fuzz/artifacts`.
pub(crate) fn run(repo: &Repo) -> Result<()> {
    let venv = Venv::with(repo, &[Set::Tools])?;
    let folder = repo.root.join("format").join("fuzz");
    let seeds = folder.join("seeds");
    let listed = std::fs::read_dir(&seeds).with_context(|| format!("cannot list {}", seeds.display()))?;
    let mut targets =
        listed.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect::<Result<Vec<_>>>()?;
    targets.sort();
    for target in targets {
        let corpus = repo.target.join("fuzz-corpus").join(&target);
        std::fs::create_dir_all(&corpus)?;
        let mut fuzz = venv.command("cargo-fuzz");
        // The compiler is a stable one: instrumenting takes flags that it has for its own use.
        fuzz.current_dir(&repo.root).env("RUSTC_BOOTSTRAP", "1");
        fuzz.arg("run").arg("--fuzz-dir").arg(&folder).arg("--target-dir").arg(repo.target.join("fuzz"));
        fuzz.arg(&target).arg(&corpus).arg(seeds.join(&target));
        fuzz.args(["--", &format!("-max_total_time={SECONDS}"), &format!("-malloc_limit_mb={LARGEST_MIB}")]);
        shell::run(&mut fuzz).with_context(|| {
            format!(
                "fuzz target `{target}` failed: an input that did it is in format/fuzz/artifacts; or it was not built, which takes a C++ \
                 compiler"
            )
        })?;
    }
    Ok(())
}
