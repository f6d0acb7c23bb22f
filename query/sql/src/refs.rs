//! What a version's name means: a branch, else a tag, a commit, or the newest commit at a time.

use arrow::compute::kernels::cast_utils::string_to_timestamp_nanos;
use forebay_versioning::{At, Lake};

use crate::{Error, Result};

/// Commits that are looked through for a time.
const LOG: usize = usize::MAX;

/// Resolves a name.
pub(crate) async fn resolve(lake: &Lake, name: &str) -> Result<At> {
    if let Ok(commit) = name.parse() {
        return Ok(At::Commit(commit));
    }
    let (branches, tags) = futures::try_join!(lake.branches(), lake.tags())?;
    if branches.iter().any(|branch| branch == name) {
        return Ok(At::Branch(name.to_owned()));
    }
    if tags.iter().any(|tag| tag == name) {
        return Ok(At::Tag(name.to_owned()));
    }
    let known: Vec<&str> = branches.iter().chain(&tags).map(String::as_str).collect();
    let unknown =
        |message: String| Error::Sql { message, line: 0, column: 0, hint: Some(crate::hint::of(name, &known)) };
    let Ok(nanos) = string_to_timestamp_nanos(name) else {
        return Err(unknown(format!("'{name}' is no branch, tag, commit or timestamp")));
    };
    let micros = nanos.div_euclid(1_000);
    // The log of the default branch: what others hold isn't older than its root.
    let log = lake.log(&At::default(), LOG).await?;
    match log.into_iter().find(|commit| commit.time <= micros) {
        Some(commit) => Ok(At::Commit(commit.id)),
        None => Err(unknown(format!("branch main has no commit as old as '{name}'"))),
    }
}
