//! `forebay head`: the first rows of a table.

use forebay_format::Column;
use forebay_storage::runtime;
use serde_json::{Map, Value, json};

use crate::{Result, args::Head, human, lake, output::Output, value};

/// Bytes of rows that are read at once.
const BATCH: u64 = 64 << 20;

/// Runs `forebay head`.
///
/// # Errors
/// If there is no such lake, version, table or column, and what reading it reports.
pub(crate) fn head(args: &Head) -> Result<i32> {
    let lake = lake::open(&args.target)?;
    let runtime = runtime()?;
    let table = runtime.block_on(async {
        let snapshot = lake.snapshot(&args.version.at()).await?;
        snapshot.table(&args.table).await
    })?;
    let columns: Vec<&Column> = match &args.columns {
        Some(names) => names.iter().map(|name| table.schema().column(name)).collect::<Result<_, _>>()?,
        None => table.schema().columns.iter().collect(),
    };
    let wanted = args.rows.min(table.rows());
    let step = (BATCH / table.mean_row_bytes().max(1)).max(1);
    let mut rows: Vec<Map<String, Value>> = Vec::new();
    let mut start = 0;
    while start < wanted {
        let range = start..wanted.min(start + step);
        let mut batch = vec![Map::new(); (range.end - range.start) as usize];
        for column in &columns {
            let data = runtime.block_on(table.read(&column.name, range.clone()))?;
            for (row, value) in batch.iter_mut().zip(value::rows(column, &data)?) {
                row.insert(column.name.clone(), value);
            }
        }
        rows.append(&mut batch);
        start = range.end;
    }
    let document = json!({
        "table": table.name(),
        "commit": table.snapshot().id().to_string(),
        "total_rows": table.rows(),
        "rows": rows,
    });
    Output::new(args.target.json).result(&document, |out| {
        let mut lines = vec![columns.iter().map(|column| column.name.clone()).collect::<Vec<_>>()];
        let cell =
            |row: &Map<String, Value>, column: &Column| row.get(&column.name).map_or_else(String::new, value::text);
        lines.extend(rows.iter().map(|row| columns.iter().map(|column| cell(row, column)).collect()));
        out.table(human::table(&lines, &[]))?;
        out.line(format!("{} of {} rows", human::count(wanted), human::count(table.rows())))
    })?;
    Ok(0)
}
