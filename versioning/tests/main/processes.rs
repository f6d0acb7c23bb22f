//! Many processes, and processes that are killed.

use std::{
    collections::BTreeSet,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use forebay_format::{ColumnData, OwnedValues};
use forebay_storage::{Options, Storage};
use forebay_versioning::{At, Error, Lake, Table};
use rand::{RngExt as _, SeedableRng as _};

use crate::support::block_on;

/// The example program `append`, which `cargo test` builds beside the tests.
pub fn program() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let program = tests.parent().unwrap().parent().unwrap().join("examples/append");
    assert!(program.exists(), "{} is missing: cargo test builds it with the examples", program.display());
    program
}

fn spawn(url: &str, variables: &[(&str, &str)], writer: usize, commits: usize, rows: usize) -> Child {
    Command::new(program())
        .args([url, &writer.to_string(), &commits.to_string(), &rows.to_string()])
        .envs(variables.iter().copied())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// The (writer, commit, row) of every row of a table; every payload is checked.
async fn keys(table: &Table) -> Vec<(i64, i64, i64)> {
    let mut columns = Vec::new();
    for name in ["writer", "commit", "row", "payload"] {
        columns.push(table.read(name, 0..table.rows()).await.unwrap());
    }
    let bytes = |column: &ColumnData| match &column.values {
        OwnedValues::Fixed(bytes) => bytes.clone(),
        OwnedValues::Ragged { .. } => panic!("a ragged column"),
    };
    let integers = |column: &ColumnData| -> Vec<i64> {
        bytes(column).chunks_exact(8).map(|value| i64::from_le_bytes(value.try_into().unwrap())).collect()
    };
    let (writer, commit, row) = (integers(&columns[0]), integers(&columns[1]), integers(&columns[2]));
    let payload = bytes(&columns[3]);
    (0..table.rows() as usize)
        .map(|i| {
            let key = (writer[i], commit[i], row[i]);
            let expected = (0..1000).map(|j| (key.0 * 7 + key.1 * 31 + key.2 * 131 + j) as u8);
            assert!(payload[i * 1000..][..1000].iter().copied().eq(expected), "the payload of row {i}");
            key
        })
        .collect()
}

/// Runs `writers` processes of `commits` commits each; no row is lost or doubled, and the log has every commit.
pub fn race(storage: Storage, variables: &[(&str, &str)], writers: usize, commits: usize, rows: usize) {
    let url = storage.url().to_owned();
    let children: Vec<_> = (0..writers).map(|writer| spawn(&url, variables, writer, commits, rows)).collect();
    for (writer, child) in children.into_iter().enumerate() {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "writer {writer}: {}", String::from_utf8_lossy(&output.stdout));
        assert_eq!(output.stdout.iter().filter(|byte| **byte == b'\n').count(), commits);
    }
    block_on(async {
        let lake = Lake::open(storage).await.unwrap();
        let log = lake.log(&At::default(), usize::MAX).await.unwrap();
        assert_eq!(log.len(), writers * commits + 2, "commits, and the making of the lake and its table");
        let table = lake.snapshot(&At::default()).await.unwrap().table("main").await.unwrap();
        let found = keys(&table).await;
        let unique: BTreeSet<_> = found.iter().copied().collect();
        assert_eq!(found.len(), unique.len(), "a row is there twice");
        let each = |limit: usize| 0..limit as i64;
        let expected: BTreeSet<_> =
            each(writers).flat_map(|w| each(commits).flat_map(move |c| each(rows).map(move |r| (w, c, r)))).collect();
        assert_eq!(unique, expected);
    });
}

/// How many commits each of many processes makes: more with `FOREBAY_LONG`.
pub fn commits(few: usize, many: usize) -> usize {
    if std::env::var_os("FOREBAY_LONG").is_some() { many } else { few }
}

#[test]
fn sixty_four_processes_lose_and_double_no_row_on_one_branch() {
    let folder = tempfile::tempdir().unwrap();
    let url = folder.path().to_str().unwrap();
    race(Storage::open(url, &Options::default()).unwrap(), &[], 64, commits(4, 50), 3);
}

/// What is in a lake that a writer was killed on: `None` when not even the lake was made.
pub fn recovered(path: &Path) -> Option<Vec<(i64, i64, i64)>> {
    block_on(async {
        let storage = Storage::open(path.to_str().unwrap(), &Options::default()).unwrap();
        let lake = match Lake::open(storage).await {
            Ok(lake) => lake,
            Err(Error::NotALake { .. }) => return None,
            Err(error) => panic!("{error}"),
        };
        let snapshot = lake.snapshot(&At::default()).await.unwrap();
        let verification = lake.verify(&At::default(), |_| {}).await.unwrap();
        assert_eq!(verification.faults, [], "verify finds a damaged lake");
        match snapshot.table("main").await {
            Ok(table) => Some(keys(&table).await),
            Err(Error::UnknownTable { .. }) => Some(Vec::new()),
            Err(error) => panic!("{error}"),
        }
    })
}

#[test]
fn a_writer_killed_at_any_moment_leaves_the_old_or_the_new_commit() {
    const ROWS: i64 = 5;
    let mut random = rand::rngs::StdRng::seed_from_u64(7);
    let (mut cut, mut commits_seen) = (0, 0);
    // Kills come from before the lake is made to some commits on, however slow the machine is.
    let undisturbed = tempfile::tempdir().unwrap();
    let started = std::time::Instant::now();
    assert!(spawn(undisturbed.path().to_str().unwrap(), &[], 1, 6, ROWS as usize).wait().unwrap().success());
    let longest = started.elapsed();
    for _ in 0..200 {
        let folder = tempfile::tempdir().unwrap();
        let mut child = spawn(folder.path().to_str().unwrap(), &[], 1, 1_000_000, ROWS as usize);
        std::thread::sleep(longest.mul_f64(random.random_range(0.0..1.0)));
        child.kill().unwrap();
        let printed = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok).count() as i64;
        child.wait().unwrap();
        let found = recovered(folder.path());
        let commits = found.as_ref().map_or(0, |rows| rows.len() as i64 / ROWS);
        let whole: Vec<_> = (0..commits).flat_map(|commit| (0..ROWS).map(move |row| (1, commit, row))).collect();
        assert_eq!(found.unwrap_or_default(), whole, "rows of whole commits, in order");
        // The last commit may have become visible without its line being printed, never the other way round.
        assert!(commits == printed || commits == printed + 1, "{commits} commits, {printed} reported");
        cut += i32::from(commits == printed + 1);
        commits_seen += commits;
        // The lake goes on.
        let mut next = spawn(folder.path().to_str().unwrap(), &[], 2, 1, 1);
        assert!(next.wait().unwrap().success());
        assert_eq!(recovered(folder.path()).unwrap().len() as i64, commits * ROWS + 1);
    }
    println!("{commits_seen} commits before the kills; {cut} kills between a commit and its report");
    assert!(commits_seen > 50, "the kills came before the commits: {commits_seen}");
}
