//! `COPY name FROM 'file'` and `COPY name|(query) TO 'file'`: Parquet, CSV and JSON lines.

use std::path::{Path, PathBuf};

use datafusion::{
    dataframe::DataFrameWriteOptions,
    prelude::{CsvReadOptions, DataFrame, JsonReadOptions, ParquetReadOptions, SessionContext},
    sql::sqlparser::ast::{CopyOption, CopySource, CopyTarget, Statement},
};

use crate::{
    Error, Result, Session, alter, change,
    session::{Outcome, Scope, run},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Parquet,
    Csv,
    Json,
}

pub(crate) async fn copy(session: &mut Session, statement: Statement, scope: Scope) -> Result<Outcome> {
    let Statement::Copy { source, to, target, options, .. } = statement else {
        return Err(Error::unsupported("COPY was expected"));
    };
    let CopyTarget::File { filename } = target else {
        return Err(Error::unsupported("COPY reads and writes files: COPY t FROM 'rows.parquet'"));
    };
    let path = allowed(session.options.files.as_deref(), &filename)?;
    let (format, header, delimiter) = settings(&filename, &options)?;
    if to {
        return copy_to(session, source, (&path, format, header, delimiter), &scope).await;
    }
    let CopySource::Table { table_name, columns } = source else {
        return Err(Error::unsupported("COPY FROM fills a table"));
    };
    session.refresh().await?;
    let name = alter::plain(&table_name)?;
    let table = session.tables(&scope).find(&name).await?;
    // A context of its own: only this one sees the file.
    let context = SessionContext::new();
    let text = path.to_string_lossy().into_owned();
    let extension = path.extension().map(|extension| format!(".{}", extension.to_string_lossy())).unwrap_or_default();
    let frame = match format {
        Format::Parquet => {
            context.read_parquet(text, ParquetReadOptions { file_extension: &extension, ..Default::default() }).await?
        }
        Format::Csv => {
            let options = CsvReadOptions::new().has_header(header).delimiter(delimiter).file_extension(&extension);
            context.read_csv(text, options).await?
        }
        Format::Json => {
            context.read_json(text, JsonReadOptions { file_extension: &extension, ..Default::default() }).await?
        }
    };
    let (state, plan) = frame.into_parts();
    let physical = state.create_physical_plan(&plan).await?;
    let answer = run(&state, physical)?;
    // Files name their columns; those of a CSV without a header come in the table's order.
    let named = format != Format::Csv || header;
    let given: Vec<String> = match (&columns[..], named) {
        ([], true) => answer.schema.fields().iter().map(|field| field.name().clone()).collect(),
        ([], false) => {
            table.schema().columns.iter().take(answer.schema.fields().len()).map(|c| c.name.clone()).collect()
        }
        (columns, _) => columns.iter().map(crate::select::normal).collect(),
    };
    for column in &given {
        alter::column(table.schema(), column, &scope)?;
    }
    if given.len() != answer.schema.fields().len() {
        let reason = format!("it has {} columns, and {} are named", answer.schema.fields().len(), given.len());
        return Err(Error::File { path: filename, reason });
    }
    change::append(session, &table, &given, answer, "copy").await
}

async fn copy_to(
    session: &Session,
    source: CopySource,
    file: (&Path, Format, bool, u8),
    scope: &Scope,
) -> Result<Outcome> {
    let (path, format, header, delimiter) = file;
    let query = match source {
        CopySource::Query(query) => *query,
        CopySource::Table { table_name, columns } => {
            let quoted = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
            let names: Vec<String> = columns.iter().map(|column| quoted(&crate::select::normal(column))).collect();
            let items = if names.is_empty() { "*".to_owned() } else { names.join(", ") };
            change::query(&format!("SELECT {items} FROM {}", quoted(&alter::plain(&table_name)?)))?
        }
    };
    let (state, plan) = session.plan(query, scope).await?;
    let text = path.to_string_lossy().into_owned();
    let frame = DataFrame::new(state, plan);
    let options = DataFrameWriteOptions::new().with_single_file_output(true);
    let written = match format {
        Format::Parquet => frame.write_parquet(&text, options, None).await?,
        Format::Csv => {
            let csv = datafusion::config::CsvOptions::default().with_has_header(header).with_delimiter(delimiter);
            frame.write_csv(&text, options, Some(csv)).await?
        }
        Format::Json => frame.write_json(&text, options, None).await?,
    };
    let count = |batch: &arrow::array::RecordBatch| {
        use arrow::{array::AsArray, datatypes::UInt64Type};
        batch.column(0).as_primitive::<UInt64Type>().values().iter().sum::<u64>()
    };
    Ok(Outcome::Changed { what: "COPY", rows: written.iter().map(count).sum(), commit: None })
}

/// The path of a file, if it lies below the folder that the caller allowed. Links do not lead out of it.
fn allowed(folder: Option<&Path>, name: &str) -> Result<PathBuf> {
    let refuse = |reason: &str| Error::File { path: name.to_owned(), reason: reason.to_owned() };
    let folder = folder.ok_or_else(|| refuse("none was allowed (files=)"))?;
    let io = |path: &Path| {
        let path = path.display().to_string();
        move |source| Error::Io { path, source }
    };
    let folder = folder.canonicalize().map_err(io(folder))?;
    let path = folder.join(name);
    // The file need not be there yet, but its folder must be.
    let (parent, file) =
        (path.parent().unwrap_or(&folder), path.file_name().ok_or_else(|| refuse("it names no file"))?);
    let mut real = parent.canonicalize().map_err(io(parent))?.join(file);
    if real.exists() {
        real = real.canonicalize().map_err(io(&real))?;
    }
    if real.starts_with(&folder) { Ok(real) } else { Err(refuse(&format!("it is not below {}", folder.display()))) }
}

/// What is read or written: as `WITH (FORMAT ...)` says, else as the file's name ends.
fn settings(name: &str, options: &[CopyOption]) -> Result<(Format, bool, u8)> {
    let (mut format, mut header, mut delimiter) =
        (name.rsplit_once('.').map(|(_, end)| end.to_lowercase()), true, b',');
    for option in options {
        match option {
            CopyOption::Format(ident) => format = Some(ident.value.to_lowercase()),
            CopyOption::Header(yes) => header = *yes,
            CopyOption::Delimiter(character) if character.is_ascii() => delimiter = *character as u8,
            other => return Err(Error::unsupported(format!("COPY has FORMAT, HEADER and DELIMITER, not {other}"))),
        }
    }
    let format = match format.as_deref() {
        Some("parquet") => Format::Parquet,
        Some("csv") => Format::Csv,
        Some("json" | "jsonl" | "ndjson") => Format::Json,
        _ => {
            return Err(Error::unsupported(format!(
                "'{name}': the format is none of parquet, csv and jsonl; say WITH (FORMAT parquet)"
            )));
        }
    };
    Ok((format, header, delimiter))
}
