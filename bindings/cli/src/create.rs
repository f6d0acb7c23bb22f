//! `forebay create`: a folder of images becomes a table.

use std::time::Instant;

use forebay_storage::{Storage, runtime};
use forebay_versioning::{At, Error as LakeError, Lake, Snapshot, Transaction};
use serde::Serialize;

use crate::{
    Error, Result,
    args::Create,
    human,
    ingest::{self, Plan, Scan, Tally, linked},
    lake,
    output::{self, Output},
};

/// What was made.
#[derive(Serialize)]
struct Report<'a> {
    url: &'a str,
    table: &'a str,
    branch: &'a str,
    commit: String,
    classes: &'a [String],
    #[serde(flatten)]
    tally: &'a Tally,
    /// Files that aren't images by their names.
    ignored: u64,
    /// Images that the table links to already.
    known: u64,
    /// Bytes of the data files written.
    bytes_written: u64,
    seconds: f64,
    images_per_second: f64,
}

/// Runs `forebay create`.
///
/// # Errors
/// If the folder, an image, the lake or the target can't be used. Nothing is committed then.
pub(crate) fn create(args: &Create) -> Result<i32> {
    let started = Instant::now();
    let keep = args.keep()?;
    let storage = lake::storage(&args.target)?;
    let from = args.link.then(|| Storage::open(&args.from.to_string_lossy(), &args.target.given())).transpose()?;
    let mut scan = match &from {
        Some(from) => linked::scan(from)?,
        None => ingest::scan(&args.from)?,
    };
    for class in scan.empty_classes() {
        output::complain(&format!("class folder '{class}' holds no images"));
    }
    let plan = match &from {
        Some(from) => linked::plan(&scan, from.url())?,
        None => ingest::plan(&scan, keep, args.compression)?,
    };

    let runtime = runtime()?;
    let lake = runtime.block_on(target(storage, args))?;
    let (mut transaction, plan) = runtime.block_on(begin(&lake, args, plan, &scan))?;
    let base = transaction.base();
    let known = match &from {
        Some(_) if base.tables().contains(&args.table.as_str()) => {
            linked::leave_known(&mut scan, &runtime.block_on(base.table(&args.table))?)?
        }
        _ => 0,
    };
    let (tally, bytes_written, snapshot) = if known > 0 && scan.images.is_empty() && scan.unusable.is_empty() {
        (Tally::default(), 0, base)
    } else {
        let mut writer = runtime.block_on(transaction.writer(&args.table))?;
        let tally = match &from {
            Some(from) => linked::ingest(from, &mut scan, &plan, &mut writer, args)?,
            None => ingest::ingest(&mut scan, &plan, &mut writer, args.threads(), args.on_error)?,
        };
        let written = writer.finish()?;
        let bytes_written = written.bytes();
        transaction.append(written);
        let verb = if args.link { "link" } else { "add" };
        let message =
            args.message.clone().unwrap_or_else(|| format!("{verb} {} images to table '{}'", tally.rows, args.table));
        let author = args.author.clone().unwrap_or_else(lake::author);
        (tally, bytes_written, runtime.block_on(transaction.commit(&message, &author))?)
    };

    let seconds = started.elapsed().as_secs_f64();
    let report = Report {
        url: lake.storage().url(),
        table: &args.table,
        branch: &args.branch,
        commit: snapshot.id().to_string(),
        classes: &scan.classes,
        tally: &tally,
        ignored: scan.ignored,
        known,
        bytes_written,
        seconds,
        images_per_second: tally.rows as f64 / seconds,
    };
    Output::new(args.target.json).result(&report, |out| describe(out, &report, &scan, started))?;
    Ok(0)
}

/// The lake to add to: a new one, or with `--append` one that is there.
///
/// A lake that an earlier run made and then put no table into counts as new, so that a failed run can be repeated.
async fn target(storage: Storage, args: &Create) -> Result<Lake> {
    match Lake::open(storage.clone()).await {
        Ok(lake) if args.append => Ok(lake),
        Ok(lake) => {
            let snapshot = lake.snapshot(&At::Branch(args.branch.clone())).await?;
            if snapshot.tables().is_empty() {
                return Ok(lake);
            }
            Err(Error::Occupied { url: lake.storage().url().to_owned() })
        }
        Err(LakeError::NotALake { .. }) if !args.append => Ok(Lake::create(storage).await?),
        Err(error) => Err(error.into()),
    }
}

/// A transaction with the table in it, and the plan that fits the table.
async fn begin(lake: &Lake, args: &Create, plan: Plan, scan: &Scan) -> Result<(Transaction, Plan)> {
    let mut transaction = lake.begin(&args.branch).await?;
    let base: Snapshot = transaction.base();
    if !base.tables().contains(&args.table.as_str()) {
        transaction.create_table(&args.table, plan.schema.clone())?;
        return Ok((transaction, plan));
    }
    let table = base.table(&args.table).await?;
    let plan = plan.onto(&args.table, table.schema(), table.rows(), &scan.classes)?;
    Ok((transaction, plan))
}

fn describe(out: &mut Output, report: &Report<'_>, scan: &Scan, started: Instant) -> Result<()> {
    let rows = human::count(report.tally.rows);
    let labels = match report.classes.len() {
        0 => "no class folders, so no labels".to_owned(),
        1 => "1 class".to_owned(),
        classes => format!("{} classes", human::count(classes as u64)),
    };
    let known = if report.known > 0 { format!(", {} were there", human::count(report.known)) } else { String::new() };
    out.heading(format!("{rows} images in table '{}' of {} ({labels}{known})", report.table, report.url))?;
    let skipped = report.tally.skipped.len() as u64;
    if skipped > 0 || scan.ignored > 0 {
        let (skipped, ignored) = (human::count(skipped), human::count(scan.ignored));
        out.line(format!("skipped {skipped} images, ignored {ignored} other files"))?;
    }
    let rate = report.tally.bytes_read as f64 / report.seconds;
    out.line(format!(
        "read {}, wrote {} in {}: {:.0} images/s, {}/s",
        human::bytes(report.tally.bytes_read),
        human::bytes(report.bytes_written),
        human::duration(started.elapsed()),
        report.images_per_second,
        human::bytes(rate as u64),
    ))?;
    out.line(format!("commit {} on branch '{}'", report.commit, report.branch))
}
