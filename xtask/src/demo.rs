//! `cargo xtask demo`: real photos to a lake to shuffled batches. The demo itself is `xtask/demo/demo.py`.

use crate::repo::Repo;
use crate::venv::{Set, Venv};
use crate::{shell, wheel};
use anyhow::Result;
use std::process::ExitCode;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Tiles to cut, at most; the photos give some thousands.
    #[arg(long, default_value_t = 6000)]
    tiles: usize,
}

pub(crate) fn run(repo: &Repo, args: &Args) -> Result<ExitCode> {
    println!("== environment and wheel (the first time builds everything: minutes)");
    let venv = Venv::with(repo, &[Set::Demo])?;
    wheel::install(repo, &venv)?;
    let mut demo = venv.command("python");
    demo.arg(repo.root.join("xtask").join("demo").join("demo.py"));
    demo.env("PYTHONPATH", repo.root.join("xtask").join("py"));
    demo.arg("--folder").arg(repo.target.join("demo")).args(["--tiles", &args.tiles.to_string()]);
    println!();
    shell::run(&mut demo)?;
    Ok(ExitCode::SUCCESS)
}
