//! `forebay purge`: rows erased from all history.

use forebay_format::meta;
use forebay_storage::runtime;
use forebay_versioning::{Lake, PurgeReport, Rows, Selection};
use serde_json::{Value, json};

use crate::{Result, args::Purge, human, lake, output::Output, progress::Progress};

/// Runs `forebay purge`.
///
/// # Errors
/// If there is no lake, version, table or row, or the store fails.
pub(crate) fn purge(args: &Purge) -> Result<i32> {
    let lake = lake::open(&args.target)?;
    if args.list {
        return list(args, &lake);
    }
    let mut progress = Progress::new(0, "files");
    let mut files = 0;
    let tell = |report: &PurgeReport| {
        progress.advance(report.files.saturating_sub(files), report.files.saturating_sub(files), 0);
        files = report.files;
    };
    let reports = runtime()?.block_on(async {
        if args.finish {
            return Ok::<_, crate::Error>(lake.finish_purges(tell).await?);
        }
        let table = lake.snapshot(&args.version.at()).await?.table(&args.table).await?;
        let rows = Selection::new(table, Rows::List(args.rows.clone().into()))?;
        let author = args.author.clone().unwrap_or_else(lake::author);
        Ok(vec![lake.purge(&rows, &author, args.reason.as_deref().unwrap_or_default(), tell).await?])
    })?;
    drop(progress);
    let document: Vec<Value> = reports
        .iter()
        .map(|PurgeReport { rows, fragments, files, bytes, unreachable, .. }| {
            json!({ "rows": rows, "fragments": fragments, "files": files, "bytes": bytes, "unreachable": unreachable })
        })
        .collect();
    Output::new(args.target.json).result(&document, |out| {
        reports.iter().try_for_each(|report| {
            let (rows, files) = (human::count(report.rows), human::count(report.files));
            out.line(format!(
                "{rows} rows erased: {files} files written anew, {} deleted",
                human::bytes(report.bytes)
            ))?;
            if report.unreachable > 0 {
                let kept = human::count(report.unreachable);
                out.line(format!(
                    "{kept} objects that nothing leads to are kept for a pin: run `forebay gc` once it is gone"
                ))?;
            }
            Ok(())
        })
    })?;
    Ok(0)
}

fn list(args: &Purge, lake: &Lake) -> Result<i32> {
    let purges = runtime()?.block_on(lake.purges())?;
    let describe = |purge: &meta::Purge| {
        json!({
            "id": purge.id.to_string(),
            "table": purge.table.to_string(),
            "author": purge.author,
            "reason": purge.reason,
            "time": human::time(purge.time),
            "rows": purge.rows,
        })
    };
    let document: Vec<Value> = purges.iter().map(describe).collect();
    Output::new(args.target.json).result(&document, |out| {
        purges.iter().try_for_each(|purge| {
            let (time, rows) = (human::time(purge.time), human::count(purge.rows));
            out.line(format!("{time}  {}  {rows} rows: {}", purge.author, human::shortened(&purge.reason, 120)))
        })
    })?;
    Ok(0)
}
