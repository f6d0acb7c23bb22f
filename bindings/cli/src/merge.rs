//! `forebay merge`, `revert` and `diff`.

use forebay_format::Column;
use forebay_storage::runtime;
use forebay_versioning::{Lake, MergeOptions, MergeOutcome, MergeReport, MergeSide, Policy, RowChanges, TableDiff};
use serde_json::{Value, json};

use crate::{
    Result,
    args::{Diff, How, Merge, Revert, Side, Target},
    human, lake,
    output::Output,
};

fn options(how: &How) -> MergeOptions {
    let policy = match how.policy {
        Side::Fail => Policy::Fail,
        Side::Ours => Policy::Side(MergeSide::Ours),
        Side::Theirs => Policy::Side(MergeSide::Theirs),
    };
    let mut options = MergeOptions::by(&how.author.clone().unwrap_or_else(lake::author)).with_policy(policy);
    options.message.clone_from(&how.message);
    options.dry_run = how.dry_run;
    options
}

/// Runs `forebay merge`.
///
/// # Errors
/// If there is no lake or version, or there are conflicts that nobody decides.
pub(crate) fn merge(args: &Merge) -> Result<i32> {
    let lake = lake::open(&args.target)?;
    let options = options(&args.how);
    let report = runtime()?.block_on(async {
        let from = lake::version(&lake, &args.from).await?;
        Ok::<_, crate::Error>(lake.merge(&args.into, &from, &options).await?)
    })?;
    show(&args.target, &args.into, &args.how, &report)
}

/// Runs `forebay revert`.
///
/// # Errors
/// If there is no lake or commit, it changed nothing that is left, or there are conflicts that nobody decides.
pub(crate) fn revert(args: &Revert) -> Result<i32> {
    let lake = lake::open(&args.target)?;
    let options = options(&args.how);
    let report = runtime()?.block_on(async {
        let commit = lake::version(&lake, &args.commit).await?;
        Ok::<_, crate::Error>(lake.revert(&args.branch, &commit, &options).await?)
    })?;
    show(&args.target, &args.branch, &args.how, &report)
}

fn show(target: &Target, branch: &str, how: &How, report: &MergeReport) -> Result<i32> {
    let outcome = match report.outcome {
        MergeOutcome::UpToDate => "up to date",
        MergeOutcome::FastForward => "fast forward",
        _ => "merged",
    };
    let conflicts: Vec<String> = report.conflicts.iter().map(ToString::to_string).collect();
    let commit = report.snapshot.id();
    let document = json!({
        "branch": branch,
        "outcome": outcome,
        "dry_run": how.dry_run,
        "commit": commit.to_string(),
        "conflicts": conflicts,
    });
    Output::new(target.json).result(&document, |out| {
        conflicts.iter().try_for_each(|conflict| out.line(format!("conflict: {conflict}")))?;
        if how.dry_run {
            out.line(format!("would be {outcome}"))
        } else {
            out.line(format!("{outcome}: branch '{branch}' at commit {commit}"))
        }
    })?;
    Ok(i32::from(!conflicts.is_empty()))
}

/// Runs `forebay diff`.
///
/// # Errors
/// If there is no lake or version.
pub(crate) fn diff(args: &Diff) -> Result<i32> {
    let lake = lake::open(&args.target)?;
    if let Some(table) = &args.rows {
        return rows(args, &lake, table);
    }
    let diffs = runtime()?.block_on(async {
        let (before, after) = (lake::version(&lake, &args.before).await?, lake::version(&lake, &args.after).await?);
        Ok::<_, crate::Error>(lake.diff(&before, &after).await?)
    })?;
    let document = json!({ "tables": diffs.iter().map(describe).collect::<Vec<_>>() });
    Output::new(args.target.json).result(&document, |out| diffs.iter().try_for_each(|diff| out.line(line(diff))))?;
    Ok(0)
}

/// Shows rows as they are found, however many there are: with `--json` a document a line.
fn rows(args: &Diff, lake: &Lake, table: &str) -> Result<i32> {
    let mut diff = runtime()?.block_on(async {
        let (before, after) = (lake::version(lake, &args.before).await?, lake::version(lake, &args.after).await?);
        Ok::<_, crate::Error>(lake.diff_rows(&before, &after, table).await?)
    })?;
    let mut out = Output::new(false);
    while let Some(RowChanges { added, deleted, changed, .. }) = runtime()?.block_on(diff.next())? {
        for (sign, what, rows) in [("+", "added", added), ("-", "deleted", deleted)] {
            for row in rows {
                let document = json!({ "row": row.to_string(), "change": what });
                out.line(if args.target.json { document.to_string() } else { format!("{sign} {row}") })?;
            }
        }
        for (old, new, columns) in changed {
            let (old, new) = (old.to_string(), new.to_string());
            let document = json!({ "row": new, "change": "changed", "before": old, "columns": columns });
            let line = format!("~ {new}: {}", columns.join(", "));
            out.line(if args.target.json { document.to_string() } else { line })?;
        }
    }
    Ok(0)
}

fn names(columns: &[Column]) -> Vec<&str> {
    columns.iter().map(|column| column.name.as_str()).collect()
}

fn describe(diff: &TableDiff) -> Value {
    let changed: Vec<_> = diff.columns_changed.iter().map(|(old, new)| json!([old.name, new.name])).collect();
    json!({
        "before": diff.before,
        "after": diff.after,
        "columns_added": names(&diff.columns_added),
        "columns_dropped": names(&diff.columns_dropped),
        "columns_changed": changed,
        "rows_added": diff.rows_added,
        "rows_deleted": diff.rows_deleted,
        "rows_changed": diff.rows_changed,
    })
}

fn line(diff: &TableDiff) -> String {
    let name = diff.after.as_ref().or(diff.before.as_ref()).map_or("", String::as_str);
    let mut parts = Vec::new();
    match (&diff.before, &diff.after) {
        (None, _) => parts.push("created".to_owned()),
        (_, None) => parts.push("dropped".to_owned()),
        (Some(before), Some(after)) if before != after => parts.push(format!("renamed from '{before}'")),
        _ => {}
    }
    for (what, columns) in [("added", &diff.columns_added), ("dropped", &diff.columns_dropped)] {
        parts.extend(names(columns).into_iter().map(|column| format!("column '{column}' {what}")));
    }
    parts.extend(diff.columns_changed.iter().map(|(old, new)| format!("column '{}' is '{}'", old.name, new.name)));
    for (what, rows) in [("added", diff.rows_added), ("deleted", diff.rows_deleted), ("changed", diff.rows_changed)] {
        if rows > 0 {
            parts.push(format!("{} rows {what}", human::count(rows)));
        }
    }
    format!("table '{name}': {}", parts.join(", "))
}
