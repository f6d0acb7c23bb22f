//! The `forebay` command as a library: the binary and the Python wheel's console script call the same [`run`].
//!
//! | command | does |
//! |---|---|
//! | `create` | turns a folder of images into a table |
//! | `info`, `ls`, `log`, `head` | show what a lake holds |
//! | `verify` | reads every byte and checks it |
//! | `branch`, `tag` | name versions |
//! | `merge`, `revert`, `diff` | bring branches together, undo commits, show what differs |
//! | `clone`, `push`, `pull` | copy between lakes |
//! | `gc` | deletes what nothing leads to |
//! | `purge` | erases rows from all history |
//! | `repair` | says what damage means |
//!
//! Results go to standard output, as text or with `--json` as one document; progress and complaints go to standard
//! error. A failure is one line there and exit code 1; wrong usage is exit code 2.

mod args;
mod copies;
mod create;
mod error;
mod gc;
mod head;
mod human;
mod ingest;
mod lake;
mod merge;
mod output;
mod progress;
mod purge;
mod repair;
mod show;
mod value;
mod verify;

use std::ffi::OsString;

use clap::Parser as _;

use args::{Cli, Command};
use error::{Error, Result};

/// Runs the command with these arguments, the program's name first, and gives the exit code: 0 if it did what was asked,
/// 1 if it failed or found damage, 2 if the arguments are wrong.
pub fn run(args: impl IntoIterator<Item = OsString>) -> i32 {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are asked for by such an "error" as well. If it can't be shown there is nobody to tell.
            let _ = error.print();
            return error.exit_code();
        }
    };
    match dispatch(&cli.command) {
        Ok(code) => code,
        Err(error) if error.is_closed_pipe() => 0,
        Err(error) => {
            output::complain(&format!("forebay: {}", error.line()));
            error.exit_code()
        }
    }
}

fn dispatch(command: &Command) -> Result<i32> {
    match command {
        Command::Create(args) => create::create(args),
        Command::Info(args) => show::info(args),
        Command::Ls(args) => show::ls(args),
        Command::Log(args) => show::log(args),
        Command::Verify(args) => verify::verify(args),
        Command::Head(args) => head::head(args),
        Command::Branch(args) => lake::branch(args),
        Command::Tag(args) => lake::tag(args),
        Command::Merge(args) => merge::merge(args),
        Command::Revert(args) => merge::revert(args),
        Command::Diff(args) => merge::diff(args),
        Command::Gc(args) => gc::gc(args),
        Command::Repair(args) => repair::repair(args),
        Command::Purge(args) => purge::purge(args),
        Command::Clone(args) => copies::clone(args),
        Command::Push(args) => copies::push(args),
        Command::Pull(args) => copies::pull(args),
        Command::Sql(_) => Err(Error::Usage("SQL is in the Python package: pip install 'forebay[sql]'".to_owned())),
    }
}
