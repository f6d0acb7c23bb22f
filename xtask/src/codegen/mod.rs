//! `cargo xtask codegen`: what is committed though a tool writes it, so that a build needs no such tool.

mod kernels;
mod schemas;

use crate::repo::Repo;
use anyhow::Result;
use std::process::ExitCode;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Compare with what is committed instead of writing it; fails with the difference.
    #[arg(long)]
    pub(crate) check: bool,
}

pub(crate) fn run(repo: &Repo, args: &Args) -> Result<ExitCode> {
    schemas::run(repo, args)?;
    kernels::run(repo, args)?;
    Ok(ExitCode::SUCCESS)
}
