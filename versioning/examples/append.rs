//! Appends rows to a lake, a commit at a time: `append URL WRITER COMMITS ROWS [--mark]`.
//!
//! Makes the lake and its table `main` when they are missing. Rows carry the writer's number, the commit's number, the
//! row's number and 1,000 bytes that follow from these, so that whoever reads them can tell whether they are right. Prints
//! a line for each commit once it is durable; with `--mark` it also notes it in the log of a power-loss test.
#![allow(clippy::print_stdout, clippy::expect_used, clippy::panic)]

use std::io::Write as _;

use forebay_format::{Column, ColumnSlice, DType, Dim, Schema, Values};
use forebay_storage::{Options, Storage};
use forebay_versioning::{Error, Lake, Result};

/// The bytes of a row.
pub fn payload(writer: i64, commit: i64, row: i64) -> Vec<u8> {
    (0..1000).map(|i| (writer * 7 + commit * 31 + row * 131 + i) as u8).collect()
}

fn schema() -> Result<Schema> {
    Ok(Schema::new(vec![
        Column::new("writer", DType::I64, [])?,
        Column::new("commit", DType::I64, [])?,
        Column::new("row", DType::I64, [])?,
        Column::new("payload", DType::U8, [Dim::Fixed(1000)])?,
    ])?)
}

async fn open(url: &str) -> Result<Lake> {
    let storage = Storage::open(url, &Options::default())?;
    match Lake::create(storage.clone()).await {
        Err(Error::LakeExists { .. }) => Lake::open(storage).await,
        other => other,
    }
}

async fn run(url: &str, writer: i64, commits: i64, rows: i64, mark: bool) -> Result<()> {
    let lake = open(url).await?;
    let mut transaction = lake.begin("main").await?;
    if transaction.base().tables().is_empty() {
        transaction.create_table("main", schema()?)?;
        match transaction.commit("create table", "append").await {
            Ok(_) | Err(Error::TableExists { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    for commit in 0..commits {
        let mut transaction = lake.begin("main").await?;
        let mut table = transaction.writer("main").await?;
        let written = tokio::task::spawn_blocking(move || {
            let fixed = |values: Vec<i64>| values.into_iter().flat_map(i64::to_le_bytes).collect::<Vec<u8>>();
            let columns = [
                fixed(vec![writer; rows as usize]),
                fixed(vec![commit; rows as usize]),
                fixed((0..rows).collect()),
                (0..rows).flat_map(|row| payload(writer, commit, row)).collect(),
            ];
            let slices: Vec<_> = columns
                .iter()
                .map(|bytes| ColumnSlice { rows: rows as usize, values: Values::Fixed(bytes), validity: None })
                .collect();
            table.push(&slices)?;
            table.finish()
        })
        .await
        .expect("the writer does not panic")?;
        transaction.append(written);
        let snapshot = transaction.commit(&format!("writer {writer}, commit {commit}"), "append").await?;
        println!("committed {commit} {}", snapshot.id());
        std::io::stdout().flush().expect("standard output is open");
        if mark {
            note(commit);
        }
    }
    Ok(())
}

#[cfg(target_os = "linux")]
fn note(commit: i64) {
    forebay_storage::testing::disk::mark(&commit.to_string()).expect("a log to note it in");
}

#[cfg(not(target_os = "linux"))]
fn note(_commit: i64) {
    panic!("power losses are tested on Linux");
}

fn main() {
    let mut args: Vec<String> = std::env::args().collect();
    let mark = args.pop_if(|last| last == "--mark").is_some();
    let [_, url, writer, commits, rows] = args.as_slice() else {
        println!("usage: append URL WRITER COMMITS ROWS [--mark]");
        std::process::exit(2);
    };
    let number = |text: &String| text.parse::<i64>().expect("a number");
    let runtime = forebay_storage::runtime().expect("a runtime");
    if let Err(error) = runtime.block_on(run(url, number(writer), number(commits), number(rows), mark)) {
        println!("failed: {error}");
        std::process::exit(1);
    }
}
