//! `forebay clone`, `push` and `pull`.

use forebay_format::CommitId;
use forebay_storage::{Options, Storage, runtime};
use forebay_versioning::{CopyReport, Lake};
use serde_json::json;

use crate::{
    Result,
    args::{Clone, Other, Push, Target},
    human, lake,
    output::Output,
    progress::Progress,
};

fn other(target: &Target, other: &Other) -> Result<Storage> {
    let options = if other.other_options.is_empty() {
        target.storage_options.iter().cloned().collect::<Options>()
    } else {
        other.other_options.iter().cloned().collect()
    };
    Ok(Storage::open(&other.other_url, &options)?)
}

/// Runs `forebay clone`.
///
/// # Errors
/// If there is no lake, or there is one where the copy is to be.
pub(crate) fn clone(args: &Clone) -> Result<i32> {
    let lake = lake::open(&args.target)?;
    let target = other(&args.target, &args.other)?;
    let (url, mut bar) = (target.url().to_owned(), Bar::new());
    let (copy, report) = runtime()?.block_on(lake.clone_to(target, |report| bar.show(report)))?;
    drop(bar);
    let document = json!({ "url": url, "lake": copy.id().to_string(), "copied": counts(&report) });
    Output::new(args.target.json).result(&document, |out| out.line(format!("{}: {}", url, text(&report))))?;
    Ok(0)
}

/// Runs `forebay push`.
///
/// # Errors
/// If there is no lake or branch, or the other lake's branch has commits that this one lacks.
pub(crate) fn push(args: &Push) -> Result<i32> {
    let lake = lake::open(&args.target)?;
    let target = runtime()?.block_on(Lake::open(other(&args.target, &args.other)?))?;
    copy(args, &lake, &target)
}

/// Runs `forebay pull`.
///
/// # Errors
/// If there is no lake or branch, or this lake's branch has commits that the other one lacks.
pub(crate) fn pull(args: &Push) -> Result<i32> {
    let lake = lake::open(&args.target)?;
    let source = runtime()?.block_on(Lake::open(other(&args.target, &args.other)?))?;
    copy(args, &source, &lake)
}

fn copy(args: &Push, source: &Lake, target: &Lake) -> Result<i32> {
    let into = args.into.as_deref().unwrap_or(&args.branch);
    let mut bar = Bar::new();
    let (snapshot, report) = runtime()?.block_on(source.push(&args.branch, target, into, |report| bar.show(report)))?;
    drop(bar);
    let (url, commit): (_, CommitId) = (target.storage().url(), snapshot.id());
    let document = json!({ "url": url, "branch": into, "commit": commit.to_string(), "copied": counts(&report) });
    let line = format!("branch '{into}' of {url} at commit {commit}: {}", text(&report));
    Output::new(args.target.json).result(&document, |out| out.line(line))?;
    Ok(0)
}

fn counts(report: &CopyReport) -> serde_json::Value {
    json!({ "commits": report.commits, "objects": report.objects, "bytes": report.bytes })
}

fn text(report: &CopyReport) -> String {
    let (commits, objects) = (human::count(report.commits), human::count(report.objects));
    format!("{commits} commits, {objects} objects of {} copied", human::bytes(report.bytes))
}

/// The progress of a copy.
struct Bar {
    bar: Progress,
    shown: CopyReport,
}

impl Bar {
    fn new() -> Self {
        Self { bar: Progress::new(0, "objects"), shown: CopyReport::default() }
    }

    fn show(&mut self, report: &CopyReport) {
        self.bar.set_length(report.total_bytes);
        let bytes = report.bytes - self.shown.bytes;
        self.bar.advance(bytes, report.objects - self.shown.objects, bytes);
        self.shown.clone_from(report);
    }
}
