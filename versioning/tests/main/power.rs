//! The power goes out: what was committed is there, what was not is not seen.

use std::process::Command;

use forebay_storage::testing::disk::{Op, Survives, record};

use crate::processes::{program, recovered};

/// Records every write, link and sync of a program that appends and commits, and opens the lake as a power loss at each of
/// those moments could leave it. What had been reported as committed must be there, and nothing but whole commits.
#[test]
fn a_power_loss_at_any_moment_keeps_what_was_committed_and_shows_nothing_else() {
    const ROWS: i64 = 3;
    const COMMITS: i64 = 4;
    let (folder, scratch) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut command = Command::new(program());
    command.args([folder.path().to_str().unwrap(), "1", &COMMITS.to_string(), &ROWS.to_string(), "--mark"]);
    let recording = record(folder.path(), scratch.path(), command).unwrap();
    let mut disk = recording.start;
    let (mut reported, mut least, mut most) = (0, i64::MAX, 0);
    for (moment, op) in recording.ops.iter().enumerate() {
        disk.apply(op).unwrap();
        if let Op::Mark(_) = op {
            reported += 1;
        }
        for survives in [Survives::Synced, Survives::Names, Survives::Everything, Survives::Chance(moment as u64)] {
            let target = tempfile::tempdir().unwrap();
            disk.rebuild(survives, target.path()).unwrap();
            let found = recovered(target.path());
            let commits = found.as_ref().map_or(0, |rows| rows.len() as i64 / ROWS);
            let whole: Vec<_> = (0..commits).flat_map(|commit| (0..ROWS).map(move |row| (1, commit, row))).collect();
            assert_eq!(
                found.unwrap_or_default(),
                whole,
                "after operation {moment}, {survives:?}: rows of whole commits"
            );
            assert!(
                commits >= reported,
                "after operation {moment}, {survives:?}: {commits} commits of {reported} reported"
            );
            (least, most) = (least.min(commits), most.max(commits));
        }
    }
    assert_eq!((least, most, reported), (0, COMMITS, COMMITS), "the losses came from the first commit to the last");
}
