//! The tests of the crates that have unsafe code, under AddressSanitizer: a step of `cargo xtask test --long`.

use crate::repo::Repo;
use crate::shell::{self, cargo};
use anyhow::{Context, Result};
use std::process::Command;

/// The crates below Python with code that the compiler doesn't check.
const CRATES: [&str; 5] = ["forebay-format", "forebay-jpeg", "forebay-storage", "forebay-loader", "forebay-gpu"];

/// Builds the crates and what they use with the sanitizer, in a folder of their own, and runs their tests.
pub(crate) fn run(repo: &Repo) -> Result<()> {
    let mut tests = cargo(repo);
    // The compiler is a stable one: instrumenting takes flags that it has for its own use. A target that is named keeps
    // them away from what runs while building.
    tests.env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", "-Zsanitizer=address");
    // The driver's stand-in keeps what was destroyed, to know it again; what we keep is counted by tests of its own.
    tests.env("ASAN_OPTIONS", "detect_leaks=0");
    tests.env("CARGO_TARGET_DIR", repo.target.join("asan"));
    tests.args(["test", "--release", "--lib", "--bins", "--tests", "--target", &host()?]);
    tests.args(CRATES.iter().flat_map(|name| ["--package", name]));
    shell::run(&mut tests)
}

/// The target that this machine's programs are built for.
fn host() -> Result<String> {
    let said = shell::output(Command::new("rustc").arg("-vV"))?;
    let host = said.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc doesn't say which target is its host")?.to_owned())
}
