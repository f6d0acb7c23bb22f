//! `gpu/kernels/forebay.ptx` from `forebay.cu`, as nvcc writes it, with a line that says which sources it is of.
//!
//! nvcc and what it needs come from PyPI (101 MB, once) into an environment of their own, `target/nvcc`: PyTorch's packages
//! in `target/venv` are of another version. Where there are no such packages, the line alone is compared.

use super::Args;
use crate::repo::Repo;
use crate::shell;
use crate::venv::Venv;
use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::Command;

/// What the PTX depends on, in `gpu/kernels`.
const SOURCES: [&str; 3] = ["forebay.cu", "build.sh", "requirements.txt"];
const PTX: &str = "forebay.ptx";
/// Whether nvcc is packaged for this system.
const PACKAGED: bool = cfg!(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")));

pub(super) fn run(repo: &Repo, args: &Args) -> Result<()> {
    let folder = repo.root.join("gpu").join("kernels");
    let head = head(&folder)?;
    let committed = read(&folder.join(PTX))?;
    let of_these_sources = committed.starts_with(&head);
    if !of_these_sources && !PACKAGED {
        bail!(
            "gpu/kernels/{PTX} is not of its sources, and nvcc is not packaged for this system: run `cargo xtask codegen` on \
             Linux on x86-64 or aarch64"
        );
    }
    if !of_these_sources && args.check {
        bail!("gpu/kernels/{PTX} is not of its sources: run `cargo xtask codegen`");
    }
    if !PACKAGED {
        println!("the kernels are of their sources; nvcc is not packaged for this system, so they were not compiled");
        return Ok(());
    }
    let fresh = head + &compile(repo, &folder)?;
    if fresh == committed {
        println!("the kernels are what their source gives");
    } else if args.check {
        bail!("gpu/kernels/{PTX} is not what nvcc makes of its source: run `cargo xtask codegen`");
    } else {
        std::fs::write(folder.join(PTX), fresh)?;
        println!("wrote gpu/kernels/{PTX}");
    }
    Ok(())
}

/// The line that names the sources.
fn head(folder: &Path) -> Result<String> {
    let mut hasher = blake3::Hasher::new();
    for name in SOURCES {
        let text = read(&folder.join(name))?;
        hasher.update(&(text.len() as u64).to_le_bytes()).update(text.as_bytes());
    }
    Ok(format!("// Made by `cargo xtask codegen` from sources of BLAKE3 {}.\n", hasher.finalize().to_hex()))
}

/// A text, with the line ends of every platform made equal.
fn read(path: &Path) -> Result<String> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(text.replace("\r\n", "\n"))
}

fn compile(repo: &Repo, folder: &Path) -> Result<String> {
    let hint = "nvcc comes from PyPI and preprocesses with the system's C compiler: both must be within reach";
    let nvcc = Venv::apart(repo, "nvcc", &folder.join("requirements.txt")).context(hint)?;
    let mut build = Command::new("sh");
    build.arg(folder.join("build.sh")).arg(nvcc.python());
    shell::output(&mut build).context(hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_source_has_another_line_and_other_line_ends_have_the_same() -> Result<()> {
        let folder = std::env::temp_dir().join(format!("forebay-xtask-kernels-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let head_of = |texts: [&str; 3]| {
            for (name, text) in SOURCES.iter().zip(texts) {
                std::fs::write(folder.join(name), text)?;
            }
            head(&folder)
        };
        let first = head_of(["a\nb\n", "c", ""])?;
        assert_eq!(head_of(["a\r\nb\r\n", "c", ""])?, first);
        assert_ne!(head_of(["a\nb\nc", "", ""])?, first);
        assert_ne!(head_of(["a\nb\n", "d", ""])?, first);
        std::fs::remove_dir_all(folder)?;
        Ok(())
    }
}
