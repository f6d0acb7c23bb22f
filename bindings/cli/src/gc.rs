//! `forebay gc`: what nothing leads to is deleted.

use forebay_storage::runtime;
use forebay_versioning::{GcOptions, GcReport};
use serde_json::json;

use crate::{Result, args::Gc, human, lake, output::Output, progress::Progress};

/// Runs `forebay gc`.
///
/// # Errors
/// If there is no lake, it is damaged, another collection began meanwhile, or the store fails.
pub(crate) fn gc(args: &Gc) -> Result<i32> {
    let lake = lake::open(&args.target)?;
    let mut options = GcOptions::default().with_grace(args.grace).with_retention(args.retention);
    (options.expire, options.dry_run) = (args.expire, args.dry_run);
    let mut progress = Progress::new(0, "objects");
    let mut deleted = 0;
    let report = runtime()?.block_on(lake.gc(&options, |report| {
        progress.set_length(report.garbage);
        progress.advance(report.deleted - deleted, report.deleted - deleted, 0);
        deleted = report.deleted;
    }))?;
    drop(progress);
    let GcReport { epoch, commits, expired, pins, kept, young, garbage, garbage_bytes, deleted, .. } = report;
    let document = json!({
        "url": lake.storage().url(),
        "dry_run": args.dry_run,
        "epoch": epoch,
        "commits": commits,
        "expired": expired,
        "pins": pins,
        "kept": kept,
        "young": young,
        "garbage": garbage,
        "garbage_bytes": garbage_bytes,
        "deleted": deleted,
    });
    Output::new(args.target.json).result(&document, |out| {
        let (count, bytes) = (human::count(garbage), human::bytes(garbage_bytes));
        let expired = if expired > 0 { format!(" ({} without tables)", human::count(expired)) } else { String::new() };
        out.line(format!("{} commits{expired}, {} pins", human::count(commits), human::count(pins)))?;
        out.line(format!("{} objects are in use, {} are too young", human::count(kept), human::count(young)))?;
        let what = if args.dry_run { "would be deleted" } else { "deleted" };
        out.heading(format!("{count} objects of {bytes} {what}"))
    })?;
    Ok(0)
}
