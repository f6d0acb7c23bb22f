//! Running other programs, saying which.

use crate::repo::Repo;
use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::Command;

/// `cargo` in the root of the repository, building in its target folder.
pub(crate) fn cargo(repo: &Repo) -> Command {
    building(Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())), repo)
}

/// A command that builds, by itself or by way of cargo, in the root of the repository and its target folder.
pub(crate) fn building(mut command: Command, repo: &Repo) -> Command {
    command.current_dir(&repo.root).env("CARGO_TARGET_DIR", &repo.target);
    // `cargo run` describes this crate to us in these; left set, they make dependents of build scripts rebuild.
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")) {
            command.env_remove(name);
        }
    }
    command
}

/// Runs a command with our own streams after printing it; an exit status other than 0 is an error.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let line = line(command);
    println!("$ {line}");
    let status = command.status().with_context(|| format!("cannot start `{line}`"))?;
    if !status.success() {
        bail!("`{line}` ended with {status}");
    }
    Ok(())
}

/// Runs a command silently and returns what it wrote to standard output.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let line = line(command);
    let output = command.output().with_context(|| format!("cannot start `{line}`"))?;
    if !output.status.success() {
        bail!("`{line}` ended with {}:\n{}", output.status, String::from_utf8_lossy(&output.stderr).trim_end());
    }
    String::from_utf8(output.stdout).with_context(|| format!("`{line}` printed bytes that are not UTF-8"))
}

/// The command as one would type it: the program by name alone, arguments quoted where they hold a space.
fn line(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let mut line = program.file_name().unwrap_or(program.as_os_str()).to_string_lossy().into_owned();
    for argument in command.get_args() {
        let argument = argument.to_string_lossy();
        let quote = if argument.is_empty() || argument.contains(' ') { "'" } else { "" };
        line.push_str(&format!(" {quote}{argument}{quote}"));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_shown_as_one_would_type_it() {
        let mut command = Command::new("/somewhere/bin/cargo");
        command.args(["test", "two words", ""]);
        assert_eq!(line(&command), "cargo test 'two words' ''");
    }

    #[test]
    fn a_failing_command_is_an_error_that_shows_the_command() {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let error = output(Command::new(cargo).arg("no-such-subcommand")).err().map(|error| error.to_string());
        assert!(error.is_some_and(|text| text.contains("cargo no-such-subcommand")));
    }
}
