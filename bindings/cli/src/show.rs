//! `forebay info`, `ls` and `log`.

use forebay_format::{Codec, Column, Dim, meta::Commit};
use forebay_storage::runtime;
use forebay_versioning::{Snapshot, Table};
use serde_json::{Value, json};

use crate::{
    Result,
    args::{Info, Log, Ls},
    human, lake,
    output::Output,
};

/// Runs `forebay info`.
///
/// # Errors
/// If there is no lake or no such version, and what reading it reports.
pub(crate) fn info(args: &Info) -> Result<i32> {
    let lake = lake::open(&args.target)?;
    let runtime = runtime()?;
    let snapshot = runtime.block_on(lake.snapshot(&args.version.at()))?;
    let (branches, tags) =
        runtime.block_on(async { Ok::<_, crate::Error>((lake.branches().await?, lake.tags().await?)) })?;
    let mut tables = Vec::new();
    for name in snapshot.tables() {
        tables.push(runtime.block_on(snapshot.table(name))?);
    }
    let commit = snapshot.commit();
    let document = json!({
        "url": lake.storage().url(),
        "id": lake.id().to_string(),
        "created": human::time(lake.created()),
        "commit": describe_commit(commit),
        "branches": branches,
        "tags": tags,
        "tables": tables.iter().map(describe_table).collect::<Vec<_>>(),
    });
    Output::new(args.target.json).result(&document, |out| {
        out.heading(format!("lake {}", lake.storage().url()))?;
        out.line(format!("id       {}", lake.id()))?;
        out.line(format!("created  {}", human::time(lake.created())))?;
        out.line(format!("commit   {}  {}", commit.id, human::time(commit.time)))?;
        out.line(format!("         {}", human::shortened(&commit.message, 100)))?;
        out.line(format!(
            "refs     {}, {}",
            many(branches.len(), "branch", "branches"),
            many(tags.len(), "tag", "tags")
        ))?;
        tables.iter().try_for_each(|table| {
            out.line("")?;
            let (rows, bytes) = (human::count(table.rows()), human::bytes(size(table)));
            let fragments = many(table.fragments().len(), "fragment", "fragments");
            out.heading(format!("table '{}': {rows} rows, {bytes}, {fragments}", table.name()))?;
            let columns = table.schema().columns.iter();
            let rows: Vec<_> = columns.map(|c| vec![format!("  {c}"), compression(c), kind(c)]).collect();
            human::table(&rows, &[]).into_iter().try_for_each(|line| out.line(line))
        })
    })?;
    Ok(0)
}

/// Runs `forebay ls`.
///
/// # Errors
/// If there is no lake or no such version.
pub(crate) fn ls(args: &Ls) -> Result<i32> {
    let lake = lake::open(&args.target)?;
    let (snapshot, branches, tags) = runtime()?.block_on(async {
        let snapshot: Snapshot = lake.snapshot(&args.version.at()).await?;
        Ok::<_, crate::Error>((snapshot, lake.branches().await?, lake.tags().await?))
    })?;
    let mut tables: Vec<_> = snapshot.commit().tables.iter().map(|table| (table.name.as_str(), table.rows)).collect();
    tables.sort_unstable();
    let document = json!({
        "commit": snapshot.id().to_string(),
        "tables": tables.iter().map(|(name, rows)| json!({ "name": name, "rows": rows })).collect::<Vec<_>>(),
        "branches": branches,
        "tags": tags,
    });
    Output::new(args.target.json).result(&document, |out| {
        let mut rows = vec![vec!["kind".to_owned(), "name".to_owned(), "rows".to_owned()]];
        rows.extend(tables.iter().map(|(name, rows)| vec!["table".into(), (*name).into(), human::count(*rows)]));
        rows.extend(branches.iter().map(|name| vec!["branch".into(), name.clone()]));
        rows.extend(tags.iter().map(|name| vec!["tag".into(), name.clone()]));
        out.table(human::table(&rows, &[2]))
    })?;
    Ok(0)
}

/// Runs `forebay log`.
///
/// # Errors
/// If there is no lake or no such version.
pub(crate) fn log(args: &Log) -> Result<i32> {
    let lake = lake::open(&args.target)?;
    let mut commits = runtime()?.block_on(lake.log(&args.version.at(), args.limit))?;
    if let Some(table) = &args.table {
        commits.retain(|commit| commit.changes.iter().any(|change| table_name(commit, change) == *table));
    }
    let document = json!({ "commits": commits.iter().map(describe_commit).collect::<Vec<_>>() });
    Output::new(args.target.json).result(&document, |out| {
        commits.iter().try_for_each(|commit| {
            out.heading(format!("commit {}", commit.id))?;
            let author = if commit.author.is_empty() { "(no author)" } else { commit.author.as_str() };
            out.line(format!("  {}  {}", human::time(commit.time), human::shortened(author, 60)))?;
            commit.message.lines().try_for_each(|line| out.line(format!("  {}", human::shortened(line, 160))))?;
            changes(commit).into_iter().try_for_each(|line| out.line(format!("    {line}")))
        })
    })?;
    Ok(0)
}

fn describe_commit(commit: &Commit) -> Value {
    let change = |change: &forebay_format::meta::Change| {
        let rows = (change.rows_added, change.rows_deleted, change.rows_changed);
        let mut entry = json!({ "table": table_name(commit, change), "kind": change.kind, "rows_added": rows.0 });
        for (name, count) in [("rows_deleted", rows.1), ("rows_changed", rows.2)] {
            if count > 0 {
                entry[name] = json!(count);
            }
        }
        entry
    };
    json!({
        "id": commit.id.to_string(),
        "parents": commit.parents.iter().map(|parent| parent.id.to_string()).collect::<Vec<_>>(),
        "generation": commit.generation,
        "author": commit.author,
        "message": commit.message,
        "time": human::time(commit.time),
        "time_us": commit.time,
        "changes": commit.changes.iter().map(change).collect::<Vec<_>>(),
        "properties": commit.properties,
    })
}

fn changes(commit: &Commit) -> Vec<String> {
    let line = |change: &forebay_format::meta::Change| {
        let table = table_name(commit, change);
        let rows = [("added", change.rows_added), ("deleted", change.rows_deleted), ("changed", change.rows_changed)];
        let rows: Vec<_> = rows.iter().filter(|(_, count)| *count > 0).collect();
        match rows[..] {
            [] => format!("{} table '{table}'", change.kind),
            [("added", count)] => format!("{} {} rows to table '{table}'", change.kind, human::count(*count)),
            _ => {
                let counts: Vec<_> =
                    rows.iter().map(|(what, count)| format!("{} rows {what}", human::count(*count))).collect();
                format!("{} table '{table}': {}", change.kind, counts.join(", "))
            }
        }
    };
    commit.changes.iter().map(line).collect()
}

/// A dropped table has no name any more: then its id.
fn table_name(commit: &Commit, change: &forebay_format::meta::Change) -> String {
    let table = commit.tables.iter().find(|table| table.id == change.table);
    table.map_or_else(|| change.table.to_string(), |table| table.name.clone())
}

fn describe_table(table: &Table) -> Value {
    let column = |column: &Column| {
        json!({
            "name": column.name,
            "dtype": column.dtype.name(),
            "shape": column.shape.iter().map(|dim| match dim {
                Dim::Fixed(length) => json!(length),
                Dim::Free => Value::Null,
            }).collect::<Vec<_>>(),
            "nullable": column.nullable,
            "compression": compression(column),
            "kind": if column.kind.name.is_empty() { Value::Null } else { json!(column.kind.name) },
            "metadata": column.kind.metadata,
            "names": names(column),
        })
    };
    json!({
        "name": table.name(),
        "rows": table.rows(),
        "bytes": size(table),
        "fragments": table.fragments().len(),
        "columns": table.schema().columns.iter().map(column).collect::<Vec<_>>(),
    })
}

/// Bytes of a table's data files.
fn size(table: &Table) -> u64 {
    table.data_files().map(|(_, file)| file.size).sum()
}

fn compression(column: &Column) -> String {
    let codec = match column.compression.codec {
        Codec::None => "none".to_owned(),
        Codec::Lz4 => "lz4".to_owned(),
        Codec::Zstd { level } => format!("zstd:{level}"),
        other => format!("{other:?}").to_lowercase(),
    };
    if column.compression.shuffle { format!("shuffle+{codec}") } else { codec }
}

/// What a column means, in a few words: `image (encoding raw, layout CHW)`, `label (120 names: cat, dog, ...)`.
fn kind(column: &Column) -> String {
    let kind = &column.kind;
    if let Some(names) = names(column) {
        let shown = names.iter().take(6).map(String::as_str).collect::<Vec<_>>().join(", ");
        let more = if names.len() > 6 { ", ..." } else { "" };
        return format!("{} ({} names: {}{more})", kind.name, names.len(), human::shortened(&shown, 80));
    }
    let entries: Vec<_> = kind.metadata.iter().map(|(key, value)| format!("{key} {value}")).collect();
    if entries.is_empty() {
        return kind.name.clone();
    }
    format!("{} ({})", kind.name, human::shortened(&entries.join(", "), 80))
}

/// The names of a column of labels.
fn names(column: &Column) -> Option<Vec<String>> {
    column.kind.metadata.get("names").and_then(|names| serde_json::from_str(names).ok())
}

fn many(count: usize, one: &str, more: &str) -> String {
    format!("{} {}", human::count(count as u64), if count == 1 { one } else { more })
}
