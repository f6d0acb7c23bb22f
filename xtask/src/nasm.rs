//! The assembler that the JPEG decoder's fast code needs when it is built. Without it the same pixels come more slowly.

use crate::repo::Repo;
use crate::shell;
use anyhow::{Context, Result};
use std::path::Path;
use std::process::Command;

/// The crate whose build script looks for nasm, and what it says if there is none.
const CRATE: &str = "mozjpeg-sys";
const MISSED: &str = "NASM not installed";

/// Installs nasm where that is possible, and has the decoder built again if it was built without.
pub(crate) fn ensure(repo: &Repo) -> Result<()> {
    if !cfg!(any(target_arch = "x86_64", target_arch = "x86")) {
        return Ok(());
    }
    if !present() && !install() {
        println!(
            "nasm is missing (Debian: apt-get install nasm): JPEGs will be decoded without the assembler, more slowly"
        );
        return Ok(());
    }
    if built_without(&repo.target)? {
        shell::run(shell::cargo(repo).args(["clean", "--release", "--package", CRATE]))?;
    }
    Ok(())
}

fn present() -> bool {
    Command::new("nasm").arg("-v").output().is_ok_and(|output| output.status.success())
}

/// Whether it could be installed: by root, from Debian's packages.
fn install() -> bool {
    let root = shell::output(Command::new("id").arg("-u")).is_ok_and(|id| id.trim() == "0");
    if !root || Command::new("apt-get").arg("--version").output().is_err() {
        return false;
    }
    println!("installing nasm, with which the JPEG decoder is assembled");
    let apt = |args: &[&str]| shell::run(Command::new("apt-get").env("DEBIAN_FRONTEND", "noninteractive").args(args));
    let nasm = ["install", "--quiet", "--yes", "--no-install-recommends", "nasm"];
    // The lists of packages may be missing or old.
    (apt(&nasm).is_ok() || apt(&["update", "--quiet"]).and_then(|()| apt(&nasm)).is_ok()) && present()
}

/// Whether the build script didn't find nasm when it last ran; cargo doesn't run it again because there is some now.
fn built_without(target: &Path) -> Result<bool> {
    let builds = target.join("release").join("build");
    if !builds.exists() {
        return Ok(false);
    }
    for build in std::fs::read_dir(&builds).with_context(|| format!("cannot list {}", builds.display()))? {
        let build = build?;
        let of_it = build.file_name().to_string_lossy().starts_with(CRATE);
        if of_it && std::fs::read_to_string(build.path().join("output")).is_ok_and(|said| said.contains(MISSED)) {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_decoder_that_was_built_without_nasm_is_found() {
        let folder = std::env::temp_dir().join(format!("forebay-xtask-nasm-{}", std::process::id()));
        assert!(!built_without(&folder).unwrap());
        let build = |name: &str| folder.join("release").join("build").join(name);
        for name in ["mozjpeg-sys-1", "mozjpeg-sys-2", "other-3"] {
            std::fs::create_dir_all(build(name)).unwrap();
        }
        std::fs::write(build("mozjpeg-sys-1").join("output"), "cargo:include=here\n").unwrap();
        std::fs::write(build("other-3").join("output"), MISSED).unwrap();
        assert!(!built_without(&folder).unwrap());
        std::fs::write(build("mozjpeg-sys-2").join("output"), format!("cargo:warning={MISSED}. It won't do\n"))
            .unwrap();
        assert!(built_without(&folder).unwrap());
        std::fs::remove_dir_all(folder).unwrap();
    }
}
