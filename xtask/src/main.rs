//! `cargo xtask`: the tasks of this repository. Each task is one module; `cargo xtask help` lists them.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod asan;
mod bench;
mod clouds;
mod codegen;
mod delay;
mod demo;
mod elf;
mod fuzz;
mod gpu;
mod nasm;
mod plain;
mod repo;
mod server;
mod shell;
mod test;
mod tidy;
mod venv;
mod wheel;

use clap::Parser;
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "The tasks of the Forebay repository.")]
enum Task {
    /// Photos to a lake to shuffled batches, on this machine, from nothing.
    Demo(demo::Args),
    /// Everything that must hold before a change lands.
    Test(test::Args),
    /// Measures beside a floor taken in the same run.
    Bench(bench::Args),
    /// Regenerates the flatbuffers code and the compiled kernels from their sources.
    Codegen(codegen::Args),
    /// Checks the layering of the crates and the house rules of the sources.
    Tidy,
    /// Builds the Python wheel and installs it into target/venv.
    Wheel(wheel::Args),
    /// Times plain ranged GETs: the floor of `bench s3`.
    #[command(hide = true)]
    Plain(plain::Args),
}

fn main() -> ExitCode {
    let task = Task::parse();
    let done = repo::Repo::find().and_then(|repo| {
        if matches!(task, Task::Demo(_) | Task::Test(_) | Task::Bench(_) | Task::Wheel(_)) {
            nasm::ensure(&repo)?;
        }
        match task {
            Task::Demo(args) => demo::run(&repo, &args),
            Task::Test(args) => test::run(&repo, &args),
            Task::Bench(args) => bench::run(&repo, &args),
            Task::Codegen(args) => codegen::run(&repo, &args),
            Task::Tidy => tidy::run(&repo),
            Task::Wheel(args) => wheel::run(&repo, &args),
            Task::Plain(args) => plain::run(&args),
        }
    });
    done.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}
