//! `forebay repair`: what damage means. It changes nothing: what to do is for people to say.

use forebay_storage::runtime;
use forebay_versioning::{BranchState, Loss};
use serde_json::{Value, json};

use crate::{Result, args::Repair, human, lake, output::Output, progress::Progress};

/// Runs `forebay repair`; the exit code is 1 if anything is lost.
///
/// # Errors
/// If there is no lake, and if the store fails.
pub(crate) fn repair(args: &Repair) -> Result<i32> {
    let lake = lake::open(&args.target)?;
    let mut progress = Progress::new(0, "objects");
    let (mut bytes, mut objects) = (0, 0);
    let damage = runtime()?.block_on(lake.assess(|found| {
        progress.set_length(found.total.max(found.bytes));
        progress.advance(found.bytes - bytes, found.objects - objects, found.bytes - bytes);
        (bytes, objects) = (found.bytes, found.objects);
    }))?;
    drop(progress);
    let faults = &damage.verification.faults;
    let whole = faults.is_empty() && damage.branches.iter().all(|branch| branch.entries_lost == 0);
    let list: Vec<Value> = faults.iter().map(|fault| json!({ "object": fault.path, "reason": fault.reason })).collect();
    let document = json!({
        "url": lake.storage().url(),
        "ok": whole,
        "faults": list,
        "branches": damage.branches.iter().map(describe).collect::<Vec<_>>(),
    });
    Output::new(args.target.json).result(&document, |out| {
        faults.iter().try_for_each(|fault| out.line(format!("WRONG  {}: {}", fault.path, fault.reason)))?;
        damage.branches.iter().try_for_each(|branch| lines(branch).iter().try_for_each(|line| out.line(line)))?;
        out.heading(if whole { "everything is as it was written" } else { "nothing was changed" })
    })?;
    Ok(i32::from(!whole))
}

fn describe(state: &BranchState) -> Value {
    let loss =
        |loss: &Loss| json!({ "table": loss.table, "column": loss.column, "rows": loss.rows, "objects": loss.objects });
    json!({
        "branch": state.branch,
        "newest": state.newest.map(|id| id.to_string()),
        "whole": state.whole.map(|id| id.to_string()),
        "commits_lost": state.commits_lost.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "entries_lost": state.entries_lost,
        "losses": state.losses.iter().map(loss).collect::<Vec<_>>(),
    })
}

fn lines(state: &BranchState) -> Vec<String> {
    let branch = &state.branch;
    let mut lines = Vec::new();
    if state.entries_lost > 0 {
        lines.push(format!("branch '{branch}': {} entries of its log can't be read", human::count(state.entries_lost)));
    }
    for commit in &state.commits_lost {
        lines.push(format!("branch '{branch}': commit {commit} of its history is lost"));
    }
    for loss in &state.losses {
        let (rows, table) = (human::count(loss.rows), &loss.table);
        let what = loss.column.as_ref().map_or_else(|| "all columns".to_owned(), |column| format!("column '{column}'"));
        lines.push(format!("branch '{branch}': table '{table}': {rows} rows of {what} are lost"));
    }
    match state.whole {
        whole if whole == state.newest && whole.is_some() => lines.push(format!("branch '{branch}' is whole")),
        Some(whole) => lines.push(format!(
            "branch '{branch}': the newest whole commit is {whole}; `forebay branch URL NAME --from {whole}` makes a branch there"
        )),
        None => lines.push(format!("branch '{branch}': no commit is whole")),
    }
    lines
}
