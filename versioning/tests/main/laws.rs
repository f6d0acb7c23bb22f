//! Laws of merging, whatever two branches did: equal for both orders of the sides, and nothing the second time.

use forebay_versioning::{At, ConflictKind, Error, MergeOptions, MergeOutcome, MergeSide, Policy};
use proptest::prelude::*;

use crate::{
    machine::{Change, Machine, Step, change, shown},
    support::block_on,
};

/// What a branch holds: its rows by the names of its columns, as a set.
async fn rows(machine: &Machine, branch: &str) -> Vec<Vec<(String, String)>> {
    let at = At::Branch(branch.into());
    let table = machine.lake.snapshot(&at).await.unwrap().table("main").await.unwrap();
    let mut rows = vec![Vec::new(); table.rows() as usize];
    for column in &table.schema().columns {
        let data = table.read(&column.name, 0..table.rows()).await.unwrap();
        for (at, row) in rows.iter_mut().enumerate() {
            row.push((column.name.clone(), shown(column, &data, at)));
        }
    }
    rows.iter_mut().for_each(|row| row.sort());
    rows.sort();
    rows
}

/// Merges `from` into a new branch at `into`: what it then holds, or how many cells, rows and columns clash, those of rows by whether
/// the first of the two deleted them.
async fn merged(
    machine: &Machine,
    name: &str,
    [into, from]: [&str; 2],
    policy: Policy,
    first: MergeSide,
) -> Result<Vec<Vec<(String, String)>>, Vec<(String, usize)>> {
    let lake = &machine.lake;
    lake.create_branch(name, &At::Branch(into.into())).await.unwrap();
    let options = MergeOptions::by("tester").with_policy(policy);
    match lake.merge(name, &At::Branch(from.into()), &options).await {
        Ok(_) => {
            let again = lake.merge(name, &At::Branch(from.into()), &options).await.unwrap();
            assert_eq!(again.outcome, MergeOutcome::UpToDate, "nothing is left to merge");
            let itself = lake.merge(name, &At::Branch(name.into()), &options).await.unwrap();
            assert_eq!(itself.outcome, MergeOutcome::UpToDate, "a branch merged with itself");
            Ok(rows(machine, name).await)
        }
        Err(Error::Conflict { conflicts, .. }) => {
            let what = |kind: &ConflictKind| match kind {
                // A column that was renamed on one side is named as ours is.
                ConflictKind::Cells { .. } => "cells".to_owned(),
                ConflictKind::Rows { deleted_by, .. } => format!("rows deleted by the first: {}", *deleted_by == first),
                ConflictKind::Column { .. } => "column".to_owned(),
                other => panic!("{other:?}"),
            };
            let mut found: Vec<_> = conflicts.iter().map(|clash| (what(&clash.kind), clash.count())).collect();
            found.sort();
            Err(found)
        }
        Err(error) => panic!("{error}"),
    }
}

async fn laws(common: Vec<Change>, one: Vec<Change>, other: Vec<Change>) {
    let mut machine = Machine::new().await;
    for change in common {
        machine.step(&Step::Commit { branch: 0, change }).await;
    }
    machine.step(&Step::Branch { from: 0 }).await;
    // By name: b1 comes before main.
    for (branch, changes) in [(0, one), (1, other)] {
        for change in changes {
            machine.step(&Step::Commit { branch, change }).await;
        }
    }
    let (ours, theirs) = (Policy::Side(MergeSide::Ours), Policy::Side(MergeSide::Theirs));
    let policies = [(Policy::Fail, Policy::Fail), (ours.clone(), theirs.clone()), (theirs, ours)];
    for (number, (policy, mirrored)) in policies.into_iter().enumerate() {
        let one = merged(&machine, &format!("x{number}"), ["main", "b1"], policy, MergeSide::Ours).await;
        let other = merged(&machine, &format!("y{number}"), ["b1", "main"], mirrored, MergeSide::Theirs).await;
        assert_eq!(one, other, "policy {number}: it matters which side is ours");
        assert!(number == 0 || one.is_ok(), "a policy decides everything");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn merges_are_the_same_from_both_sides_and_nothing_the_second_time(
        common in prop::collection::vec(change(), 1..5),
        one in prop::collection::vec(change(), 0..5),
        other in prop::collection::vec(change(), 0..5),
    ) {
        block_on(laws(common, one, other));
    }
}
