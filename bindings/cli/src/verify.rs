//! `forebay verify`: every byte of a lake read and checked, and what its links lead to asked for.

use std::collections::BTreeSet;

use forebay_storage::{Storage, runtime};
use forebay_versioning::{At, Lake, LinkReport};
use serde_json::json;

use crate::{Result, args::Verify, human, lake, output::Output, progress::Progress};

/// Runs `forebay verify`; the exit code is 1 if anything is wrong.
///
/// # Errors
/// If there is no lake or no such version, and if the store fails.
pub(crate) fn verify(args: &Verify) -> Result<i32> {
    let lake = lake::open(&args.target)?;
    let versions = match args.version.named() {
        Some(at) => vec![at],
        None => runtime()?.block_on(every(&lake))?,
    };
    let mut progress = Progress::new(0, "objects");
    let (mut bytes, mut objects) = (0, 0);
    let found = runtime()?.block_on(lake.verify_all(&versions, |found| {
        progress.set_length(found.total.max(found.bytes));
        progress.advance(found.bytes - bytes, found.objects - objects, found.bytes - bytes);
        (bytes, objects) = (found.bytes, found.objects);
    }))?;
    let elapsed = progress.elapsed();
    drop(progress);
    let links = if args.links { Some(links(args, &lake, &versions)?) } else { None };
    let broken = links.iter().flat_map(|links| &links.faults);
    let broken: BTreeSet<_> = broken.map(|fault| (&fault.table, &fault.column, fault.row, &fault.reason)).collect();

    let faults: BTreeSet<_> = found.faults.iter().map(|fault| (&fault.path, &fault.reason)).collect();
    let list = |(object, reason): &(&String, &String)| json!({ "object": object, "reason": reason });
    let document = json!({
        "url": lake.storage().url(),
        "verified": versions.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "ok": faults.is_empty() && broken.is_empty(),
        "faults": faults.iter().map(list).collect::<Vec<_>>(),
        "links": links.as_ref().map(|links| links.links),
        "broken_links": broken.iter().map(|(table, column, row, reason)| {
            json!({ "table": table, "column": column, "row": row, "reason": reason })
        }).collect::<Vec<_>>(),
        "commits": found.commits,
        "files": found.files,
        "objects": found.objects,
        "bytes": found.bytes,
        "seconds": elapsed.as_secs_f64(),
    });
    Output::new(args.target.json).result(&document, |out| {
        faults.iter().try_for_each(|(path, reason)| out.line(format!("WRONG  {path}: {reason}")))?;
        let rate = human::bytes((found.bytes as f64 / elapsed.as_secs_f64().max(1e-9)) as u64);
        out.line(format!(
            "read {} in {} objects ({} data files, {} commits) in {}: {rate}/s",
            human::bytes(found.bytes),
            human::count(found.objects),
            human::count(found.files),
            human::count(found.commits),
            human::duration(elapsed),
        ))?;
        if let Some(links) = &links {
            for (table, column, row, reason) in &broken {
                out.line(format!("BROKEN  row {row} of table '{table}', column '{column}': {reason}"))?;
            }
            let read = if links.bytes > 0 {
                format!(", of which {} were read", human::bytes(links.bytes))
            } else {
                String::new()
            };
            out.line(format!("asked for what {} links lead to{read}", human::count(links.links)))?;
        }
        match faults.len() + broken.len() {
            0 => out.heading("everything is as it was written"),
            1 => out.heading("1 place is wrong"),
            count => out.heading(format!("{count} places are wrong")),
        }
    })?;
    Ok(i32::from(!faults.is_empty() || !broken.is_empty()))
}

/// Asks for what the links of some versions lead to.
fn links(args: &Verify, lake: &Lake, versions: &[At]) -> Result<LinkReport> {
    let options = args.target.given();
    let places = args.allow.iter().map(|url| Storage::open(url, &options));
    lake.allow_links(places.collect::<Result<Vec<_>, _>>()?);
    let mut all = LinkReport::default();
    for at in versions {
        let mut progress = Progress::new(0, "links");
        let mut seen = 0;
        let report = runtime()?.block_on(lake.verify_links(at, |report| {
            progress.set_length(report.total);
            progress.advance(report.links - seen, report.links - seen, 0);
            seen = report.links;
        }))?;
        all.links += report.links;
        all.total += report.total;
        all.bytes += report.bytes;
        all.faults.extend(report.faults);
    }
    Ok(all)
}

/// Every branch and tag.
async fn every(lake: &Lake) -> Result<Vec<At>> {
    let branches = lake.branches().await?.into_iter().map(At::Branch);
    let tags = lake.tags().await?.into_iter().map(At::Tag);
    Ok(branches.chain(tags).collect())
}
