//! Opening lakes, and naming versions of them.

use std::env;

use forebay_storage::{Storage, runtime};
use forebay_versioning::{At, Lake};
use serde_json::json;

use crate::{
    Result,
    args::{Branch, Name, Target},
    output::Output,
};

/// The storage that a command's arguments name.
///
/// # Errors
/// What the store reports about the URL or its options.
pub(crate) fn storage(target: &Target) -> Result<Storage> {
    Ok(Storage::open(&target.url, &target.options())?)
}

/// Opens the lake that a command's arguments name.
///
/// # Errors
/// As [`storage`] and [`Lake::open`].
pub(crate) fn open(target: &Target) -> Result<Lake> {
    let storage = storage(target)?;
    Ok(runtime()?.block_on(Lake::open(storage))?)
}

/// The author of commits and tags unless one is given.
pub(crate) fn author() -> String {
    let known = ["FOREBAY_AUTHOR", "USER", "USERNAME"].into_iter().find_map(|name| env::var(name).ok());
    known.unwrap_or_else(|| "unknown".to_owned())
}

/// `forebay branch`
///
/// # Errors
/// If the name is taken or no name, there is no such branch, or `--from` is no version.
pub(crate) fn branch(args: &Branch) -> Result<i32> {
    let Branch { name: Name { target, name, .. }, rename_to, delete, undelete } = args;
    let lake = open(target)?;
    let (what, line) = match rename_to {
        Some(to) => {
            runtime()?.block_on(lake.rename_branch(name, to))?;
            ("renamed", format!("branch '{name}' is now '{to}'"))
        }
        None if *delete => {
            runtime()?.block_on(lake.delete_branch(name))?;
            ("deleted", format!("branch '{name}' deleted; --undelete brings it back"))
        }
        None if *undelete => {
            let commit = runtime()?.block_on(lake.undelete_branch(name))?.id();
            ("undeleted", format!("branch '{name}' at commit {commit}"))
        }
        None => return make_branch(&args.name),
    };
    let document = json!({ "branch": rename_to.as_ref().unwrap_or(name), "done": what });
    Output::new(target.json).result(&document, |out| out.line(line))?;
    Ok(0)
}

fn make_branch(args: &Name) -> Result<i32> {
    let lake = open(&args.target)?;
    let commit = runtime()?.block_on(async {
        let from = version(&lake, &args.from).await?;
        lake.create_branch(&args.name, &from).await?;
        Ok::<_, crate::Error>(lake.snapshot(&At::Branch(args.name.clone())).await?.id())
    })?;
    let document = json!({ "branch": args.name, "from": args.from, "commit": commit.to_string() });
    let line = format!("branch '{}' at commit {commit}", args.name);
    Output::new(args.target.json).result(&document, |out| out.line(line))?;
    Ok(0)
}

/// `forebay tag`
///
/// # Errors
/// If the name is taken or no name, or `--from` is no version.
pub(crate) fn tag(args: &Name) -> Result<i32> {
    let lake = open(&args.target)?;
    let commit = runtime()?.block_on(async {
        let from = version(&lake, &args.from).await?;
        lake.create_tag(&args.name, &from, &author()).await?;
        Ok::<_, crate::Error>(lake.snapshot(&At::Tag(args.name.clone())).await?.id())
    })?;
    let document = json!({ "tag": args.name, "from": args.from, "commit": commit.to_string() });
    let line = format!("tag '{}' at commit {commit}", args.name);
    Output::new(args.target.json).result(&document, |out| out.line(line))?;
    Ok(0)
}

/// What a text names: the id of a commit, or a tag, or else a branch.
///
/// # Errors
/// What the store reports.
pub(crate) async fn version(lake: &Lake, text: &str) -> Result<At> {
    if let Ok(id) = text.parse() {
        return Ok(At::Commit(id));
    }
    let (branches, tags) = (lake.branches().await?, lake.tags().await?);
    let is_tag = !branches.iter().any(|name| name == text) && tags.iter().any(|name| name == text);
    Ok(if is_tag { At::Tag(text.to_owned()) } else { At::Branch(text.to_owned()) })
}
