//! The command line.

use std::{path::PathBuf, thread, time::Duration};

use clap::{Args, Parser, Subcommand};
use forebay_format::{Codec, CommitId, Compression};
use forebay_storage::Options;
use forebay_versioning::{At, DEFAULT_BRANCH};

use crate::{
    Error, Result,
    ingest::{Keep, OnError, Recipe},
};

/// Versioned, tensor-shaped data lakes that feed GPUs.
#[derive(Debug, Parser)]
#[command(
    name = "forebay",
    version,
    propagate_version = true,
    subcommand_required = true,
    arg_required_else_help = true
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make a table of a folder of images; its class folders become labels
    Create(Box<Create>),
    /// Show a lake and its tables: columns, rows, bytes
    Info(Info),
    /// List tables, branches and tags
    Ls(Ls),
    /// Show the commits of a branch, newest first
    Log(Log),
    /// Read every byte of a lake and check it; exit code 1 if anything is wrong
    Verify(Verify),
    /// Show the first rows of a table
    Head(Head),
    /// Make, rename, delete or bring back a branch
    Branch(Branch),
    /// Name a version for good
    Tag(Name),
    /// Merge a version into a branch, row by row; exit code 1 if a dry run finds conflicts
    Merge(Merge),
    /// Undo what a commit changed, as a new commit
    Revert(Revert),
    /// Show what differs between two versions
    Diff(Diff),
    /// Read every byte and say what is lost and which commits are whole; exit code 1 if anything is lost
    Repair(Repair),
    /// Delete what no branch, tag or pin leads to
    Gc(Gc),
    /// Erase rows from all history, for good
    Purge(Purge),
    /// Make a copy of a lake, with all branches and tags
    Clone(Clone),
    /// Copy a branch's commits to another lake
    Push(Push),
    /// Copy a branch's commits from another lake
    Pull(Push),
    /// Run SQL statements, given as an argument or on standard input; comes with the Python package forebay[sql]
    #[command(disable_help_flag = true)]
    Sql(Sql),
}

/// Arguments of `forebay repair`.
#[derive(Debug, Args)]
pub(crate) struct Repair {
    #[command(flatten)]
    pub(crate) target: Target,
}

/// Arguments of `forebay purge`.
#[derive(Debug, Args)]
pub(crate) struct Purge {
    #[command(flatten)]
    pub(crate) target: Target,
    #[command(flatten)]
    pub(crate) version: Version,
    /// The table
    #[arg(long, default_value = "main")]
    pub(crate) table: String,
    /// Rows, separated by commas, as the version named numbers them
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', required_unless_present_any = ["finish", "list"])]
    pub(crate) rows: Vec<u64>,
    /// Why: the record keeps it
    #[arg(long, value_name = "TEXT", required_unless_present_any = ["finish", "list"])]
    pub(crate) reason: Option<String>,
    /// Who: the record keeps it [default: $FOREBAY_AUTHOR, or the user's name]
    #[arg(long, value_name = "NAME")]
    pub(crate) author: Option<String>,
    /// Finish purges that were stopped
    #[arg(long, conflicts_with_all = ["rows", "reason", "list"])]
    pub(crate) finish: bool,
    /// Show the records of all purges
    #[arg(long, conflicts_with_all = ["rows", "reason"])]
    pub(crate) list: bool,
}

/// Arguments of `forebay gc`.
#[derive(Debug, Args)]
pub(crate) struct Gc {
    #[command(flatten)]
    pub(crate) target: Target,
    /// Delete nothing younger than this; writers without a pin must commit within it
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = time)]
    pub(crate) grace: Duration,
    /// Keep what branches pointed at within this time, also if they were reset or deleted since
    #[arg(long, value_name = "TIME", default_value = "14d", value_parser = time)]
    pub(crate) retention: Duration,
    /// Also collect the tables of commits older than the retention; the commits stay in the log
    #[arg(long)]
    pub(crate) expire: bool,
    /// Report and delete nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// Arguments of `forebay clone`.
#[derive(Debug, Args)]
pub(crate) struct Clone {
    #[command(flatten)]
    pub(crate) target: Target,
    #[command(flatten)]
    pub(crate) other: Other,
}

/// Arguments of `forebay push` and `forebay pull`.
#[derive(Debug, Args)]
pub(crate) struct Push {
    #[command(flatten)]
    pub(crate) target: Target,
    #[command(flatten)]
    pub(crate) other: Other,
    /// The branch whose commits are copied
    #[arg(long, default_value = DEFAULT_BRANCH)]
    pub(crate) branch: String,
    /// The branch that they are copied to [default: the same]
    #[arg(long, value_name = "BRANCH")]
    pub(crate) into: Option<String>,
}

/// A second lake.
#[derive(Debug, Args)]
pub(crate) struct Other {
    /// The other lake
    #[arg(value_name = "OTHER")]
    pub(crate) other_url: String,
    /// As --storage-option, for the other lake [default: the same options]
    #[arg(long = "other-storage-option", value_name = "KEY=VALUE", value_parser = key_value)]
    pub(crate) other_options: Vec<(String, String)>,
}

/// What the Python package takes over before this command sees it.
#[derive(Debug, Args)]
pub(crate) struct Sql {
    /// The lake, and the statements
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    _arguments: Vec<std::ffi::OsString>,
}

/// Who has his way in conflicts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Side {
    /// Nobody: the merge fails and lists them
    #[default]
    Fail,
    /// The branch that is merged into
    Ours,
    /// What is merged into it
    Theirs,
}

/// How a merge or revert is done.
#[derive(Debug, Args)]
pub(crate) struct How {
    /// Who has his way in conflicts
    #[arg(long, value_enum, default_value_t)]
    pub(crate) policy: Side,
    /// Report conflicts and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// The message of the commit
    #[arg(long, short, value_name = "TEXT")]
    pub(crate) message: Option<String>,
    /// The author of the commit [default: $FOREBAY_AUTHOR, or the user's name]
    #[arg(long, value_name = "NAME")]
    pub(crate) author: Option<String>,
}

/// Arguments of `forebay merge`.
#[derive(Debug, Args)]
pub(crate) struct Merge {
    #[command(flatten)]
    pub(crate) target: Target,
    /// What to merge: a branch, a tag or the id of a commit
    pub(crate) from: String,
    /// The branch to merge into
    #[arg(long, value_name = "BRANCH", default_value = DEFAULT_BRANCH)]
    pub(crate) into: String,
    #[command(flatten)]
    pub(crate) how: How,
}

/// Arguments of `forebay revert`.
#[derive(Debug, Args)]
pub(crate) struct Revert {
    #[command(flatten)]
    pub(crate) target: Target,
    /// What to undo: the id of a commit, or a branch or tag for its newest
    pub(crate) commit: String,
    /// The branch to undo it on
    #[arg(long, default_value = DEFAULT_BRANCH)]
    pub(crate) branch: String,
    #[command(flatten)]
    pub(crate) how: How,
}

/// Arguments of `forebay diff`.
#[derive(Debug, Args)]
pub(crate) struct Diff {
    #[command(flatten)]
    pub(crate) target: Target,
    /// The version before: a branch, a tag or the id of a commit
    pub(crate) before: String,
    /// The version after
    #[arg(default_value = DEFAULT_BRANCH)]
    pub(crate) after: String,
    /// Show the rows of this table that differ, one by one
    #[arg(long, value_name = "TABLE")]
    pub(crate) rows: Option<String>,
}

/// A lake and how to reach it.
#[derive(Debug, Args)]
pub(crate) struct Target {
    /// The lake: a folder, file:///folder, s3://bucket/prefix, gs://bucket/prefix, az://container/prefix or, to read, https://host/folder
    pub(crate) url: String,
    /// An option of the storage, such as endpoint=http://localhost:9000 or region=eu-west-1; may be repeated
    #[arg(long = "storage-option", value_name = "KEY=VALUE", value_parser = key_value)]
    pub(crate) storage_options: Vec<(String, String)>,
    /// Keep what was read in this folder, which all processes of a machine may share
    #[arg(long, value_name = "FOLDER")]
    cache: Option<String>,
    /// What the folder may hold, such as 500GiB
    #[arg(long, value_name = "SIZE", requires = "cache")]
    cache_size: Option<String>,
    /// Another place where the same lake is, to read from the nearest one that works; may be repeated
    #[arg(long = "mirror", value_name = "URL")]
    mirrors: Vec<String>,
    /// Write the result as one JSON document
    #[arg(long)]
    pub(crate) json: bool,
}

impl Target {
    /// The options for storages beside its own: those that were given, without its mirrors and its cache.
    pub(crate) fn given(&self) -> Options {
        self.storage_options.iter().cloned().collect()
    }

    /// The options of its storage.
    pub(crate) fn options(&self) -> Options {
        let named = [
            ("cache_dir", self.cache.clone()),
            ("cache_size", self.cache_size.clone()),
            ("mirrors", (!self.mirrors.is_empty()).then(|| self.mirrors.join(" "))),
        ];
        let named = named.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
        self.storage_options.iter().cloned().chain(named).collect()
    }
}

/// Which version of a lake.
#[derive(Debug, Default, Args)]
#[group(multiple = false)]
pub(crate) struct Version {
    /// The newest commit of this branch [default: main]
    #[arg(long)]
    pub(crate) branch: Option<String>,
    /// The commit that this tag names
    #[arg(long)]
    pub(crate) tag: Option<String>,
    /// The commit of this id
    #[arg(long, value_name = "ID")]
    pub(crate) commit: Option<CommitId>,
}

impl Version {
    /// The version named, or the newest of the default branch.
    pub(crate) fn at(&self) -> At {
        self.named().unwrap_or_default()
    }

    /// The version named.
    pub(crate) fn named(&self) -> Option<At> {
        let branch = self.branch.clone().map(At::Branch);
        branch.or_else(|| self.tag.clone().map(At::Tag)).or_else(|| self.commit.map(At::Commit))
    }
}

/// Arguments of `forebay create`.
#[derive(Debug, Args)]
pub(crate) struct Create {
    #[command(flatten)]
    pub(crate) target: Target,
    /// The folder of images, with --link also a URL; the folders in it become classes, in alphabetical order
    #[arg(long, value_name = "FOLDER")]
    pub(crate) from: PathBuf,
    /// The length that the shortest side of each image gets [default: 256, or 8/7 of --crop]
    #[arg(long, value_name = "PIXELS", value_parser = side())]
    pub(crate) resize: Option<u32>,
    /// The length of both sides of the centre that is kept [default: 7/8 of --resize]
    #[arg(long, value_name = "PIXELS", value_parser = side())]
    pub(crate) crop: Option<u32>,
    /// Keep the files' own bytes instead of decoding them
    #[arg(long, conflicts_with_all = ["resize", "crop", "compression"])]
    pub(crate) raw: bool,
    /// Leave the images where they are, in a folder or a bucket, and store links to them; with --append, only to new ones
    #[arg(long, conflicts_with_all = ["raw", "resize", "crop", "compression"])]
    pub(crate) link: bool,
    /// Read each image once, to know it again by its bytes also where its etag means nothing, such as in a copy of the folder
    #[arg(long, requires = "link")]
    pub(crate) hash: bool,
    /// The table to make
    #[arg(long, default_value = "main")]
    pub(crate) table: String,
    /// The branch to commit to
    #[arg(long, default_value = DEFAULT_BRANCH)]
    pub(crate) branch: String,
    /// Add to a lake that has tables already: to the table of that name, or as a new one
    #[arg(long)]
    pub(crate) append: bool,
    /// What to do with an image that can't be used
    #[arg(long, value_name = "WHAT", default_value = "fail")]
    pub(crate) on_error: OnError,
    /// The message of the commit
    #[arg(long, short, value_name = "TEXT")]
    pub(crate) message: Option<String>,
    /// The author of the commit [default: $FOREBAY_AUTHOR, or the user's name]
    #[arg(long, value_name = "NAME")]
    pub(crate) author: Option<String>,
    /// Threads that read and decode [default: one a core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: Option<u16>,
    /// How pixels are compressed: none, lz4, zstd or zstd:LEVEL
    #[arg(long, value_name = "CODEC", default_value = "none", value_parser = compression)]
    pub(crate) compression: Compression,
}

impl Create {
    /// How images are kept.
    ///
    /// # Errors
    /// [`Error::Usage`] if the crop is larger than what it is cut from.
    pub(crate) fn keep(&self) -> Result<Keep> {
        if self.raw {
            return Ok(Keep::Encoded);
        }
        if self.link {
            return Ok(Keep::Linked);
        }
        let recipe = match (self.resize, self.crop) {
            (None, None) => Recipe { resize: 256, crop: 224 },
            (Some(resize), None) => Recipe { resize, crop: (resize * 7 / 8).max(1) },
            (None, Some(crop)) => Recipe { resize: (crop * 8).div_ceil(7), crop },
            (Some(resize), Some(crop)) => Recipe { resize, crop },
        };
        if recipe.crop > recipe.resize {
            let (crop, resize) = (recipe.crop, recipe.resize);
            return Err(Error::Usage(format!("--crop {crop} is larger than --resize {resize}: give at most that")));
        }
        Ok(Keep::Pixels(recipe))
    }

    /// Threads that read and decode.
    pub(crate) fn threads(&self) -> usize {
        self.threads.map_or_else(|| thread::available_parallelism().map_or(1, usize::from), usize::from)
    }
}

/// Arguments of `forebay info`.
#[derive(Debug, Args)]
pub(crate) struct Info {
    #[command(flatten)]
    pub(crate) target: Target,
    #[command(flatten)]
    pub(crate) version: Version,
}

/// Arguments of `forebay ls`.
#[derive(Debug, Args)]
pub(crate) struct Ls {
    #[command(flatten)]
    pub(crate) target: Target,
    #[command(flatten)]
    pub(crate) version: Version,
}

/// Arguments of `forebay log`.
#[derive(Debug, Args)]
pub(crate) struct Log {
    #[command(flatten)]
    pub(crate) target: Target,
    #[command(flatten)]
    pub(crate) version: Version,
    /// At most this many commits
    #[arg(short = 'n', long = "limit", value_name = "N", default_value_t = 20)]
    pub(crate) limit: usize,
    /// Of these, only commits that changed this table
    #[arg(long, value_name = "NAME")]
    pub(crate) table: Option<String>,
}

/// Arguments of `forebay verify`.
#[derive(Debug, Args)]
pub(crate) struct Verify {
    #[command(flatten)]
    pub(crate) target: Target,
    /// Check only what this version reaches [default: every branch and tag]
    #[command(flatten)]
    pub(crate) version: Version,
    /// Also ask for everything that links lead to whether it changed
    #[arg(long)]
    pub(crate) links: bool,
    /// A place outside of the lake that links may lead to; may be repeated
    #[arg(long, value_name = "URL", requires = "links")]
    pub(crate) allow: Vec<String>,
}

/// Arguments of `forebay head`.
#[derive(Debug, Args)]
pub(crate) struct Head {
    #[command(flatten)]
    pub(crate) target: Target,
    #[command(flatten)]
    pub(crate) version: Version,
    /// The table
    #[arg(long, default_value = "main")]
    pub(crate) table: String,
    /// Rows to show
    #[arg(short = 'n', long = "rows", value_name = "N", default_value_t = 5)]
    pub(crate) rows: u64,
    /// Columns to show, separated by commas [default: all]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) columns: Option<Vec<String>>,
}

/// Arguments of `forebay branch`.
#[derive(Debug, Args)]
pub(crate) struct Branch {
    #[command(flatten)]
    pub(crate) name: Name,
    /// Give the branch another name
    #[arg(long, value_name = "NAME", conflicts_with_all = ["delete", "undelete", "from"])]
    pub(crate) rename_to: Option<String>,
    /// Delete the branch; its log stays
    #[arg(long, conflicts_with_all = ["undelete", "from"])]
    pub(crate) delete: bool,
    /// Bring a deleted branch back
    #[arg(long, conflicts_with = "from")]
    pub(crate) undelete: bool,
}

/// Arguments of `forebay tag`, and of a branch that is made.
#[derive(Debug, Args)]
pub(crate) struct Name {
    #[command(flatten)]
    pub(crate) target: Target,
    /// The new name
    pub(crate) name: String,
    /// Where it starts: a branch, a tag or the id of a commit
    #[arg(long, value_name = "VERSION", default_value = DEFAULT_BRANCH)]
    pub(crate) from: String,
}

/// A number of seconds, minutes, hours or days.
fn time(text: &str) -> Result<Duration, String> {
    let wrong = || "expected a time such as 90s, 30m, 24h or 14d".to_owned();
    let (number, unit) = text.split_at(text.len() - text.chars().next_back().map_or(0, char::len_utf8));
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 24 * 3600,
        _ => return Err(wrong()),
    };
    let number: u64 = number.parse().map_err(|_| wrong())?;
    Ok(Duration::from_secs(number.checked_mul(seconds).ok_or_else(wrong)?))
}

fn side() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=10_000)
}

fn key_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("expected KEY=VALUE".to_owned()),
    }
}

fn compression(text: &str) -> Result<Compression, String> {
    let codec = match text.split_once(':') {
        None if text == "none" => Codec::None,
        None if text == "lz4" => Codec::Lz4,
        None if text == "zstd" => Codec::Zstd { level: 3 },
        Some(("zstd", level)) => match level.parse() {
            Ok(level @ 1..=19) => Codec::Zstd { level },
            _ => return Err("a zstd level is between 1 and 19".to_owned()),
        },
        _ => return Err("expected none, lz4, zstd or zstd:LEVEL".to_owned()),
    };
    Ok(Compression { codec, shuffle: false })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::{Cli, Codec, Command, Duration, Keep, Recipe, compression, key_value, time};
    use clap::{CommandFactory as _, Parser as _};

    fn keep(flags: &[&str]) -> Option<Keep> {
        let args = ["forebay", "create", "lake", "--from", "images"].iter().chain(flags);
        let Command::Create(create) = Cli::try_parse_from(args).unwrap().command else { panic!() };
        create.keep().ok()
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn sizes_default_to_each_other() {
        let pixels = |resize, crop| Some(Keep::Pixels(Recipe { resize, crop }));
        assert_eq!(keep(&[]), pixels(256, 224));
        assert_eq!(keep(&["--resize", "256"]), pixels(256, 224));
        assert_eq!(keep(&["--crop", "224"]), pixels(256, 224));
        assert_eq!(keep(&["--resize", "64", "--crop", "64"]), pixels(64, 64));
        assert_eq!(keep(&["--resize", "1"]), pixels(1, 1));
        assert_eq!(keep(&["--resize", "64", "--crop", "65"]), None);
        assert_eq!(keep(&["--raw"]), Some(Keep::Encoded));
    }

    #[test]
    fn times_are_parsed() {
        assert_eq!(time("90s").unwrap(), Duration::from_secs(90));
        assert_eq!(time("2d").unwrap(), Duration::from_secs(2 * 24 * 3600));
        for wrong in ["", "5", "h", "-1h", "1.5h", "5y", "5 h", "99999999999999999999d", "9999999999999999999d", "1é"]
        {
            assert!(time(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn options_and_codecs_are_parsed() {
        assert_eq!(key_value("a=b=c").unwrap(), ("a".into(), "b=c".into()));
        assert!(key_value("a").is_err() && key_value("=b").is_err());
        assert_eq!(compression("zstd:19").unwrap().codec, Codec::Zstd { level: 19 });
        assert!(compression("zstd:20").is_err() && compression("gzip").is_err());
    }
}
