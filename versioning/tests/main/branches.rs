//! Branches merged, moved and removed; tags removed.

use forebay_format::{Column, ColumnData, DType, OwnedValues, meta::RefKind};
use forebay_versioning::{
    At, Choice, CompactOptions, Conflict, ConflictKind, Error, Lake, MergeOptions, MergeOutcome, MergeSide, Policy,
    Rows, Selection, Transaction,
};

use crate::support::{Row, all, append, block_on, lake, rows, temporary};

fn branch(name: &str) -> At {
    At::Branch(name.into())
}

fn by() -> MergeOptions {
    MergeOptions::by("tester")
}

/// Sets the `id` of a row on a branch.
async fn set(lake: &Lake, name: &str, row: u64, id: i64) {
    update(lake, name, row, "id", &number(id)).await;
}

/// Sets a cell on a branch.
async fn update(lake: &Lake, name: &str, row: u64, column: &str, value: &ColumnData) {
    let mut transaction = lake.begin(name).await.unwrap();
    let table = transaction.base().table("main").await.unwrap();
    let selection = Selection::new(table, Rows::List([row].into())).unwrap();
    transaction.update(&selection, &[(column, value.as_slice())]).await.unwrap();
    transaction.commit("update", "tester").await.unwrap();
}

fn number(id: i64) -> ColumnData {
    ColumnData { rows: 1, values: OwnedValues::Fixed(id.to_le_bytes().to_vec()), validity: None }
}

async fn ids(lake: &Lake, name: &str) -> Vec<i64> {
    all(lake, &branch(name)).await.unwrap().iter().map(|row| row.id).collect()
}

#[test]
fn a_merge_joins_rows_of_both_and_does_nothing_the_second_time() {
    block_on(async {
        let (_folder, storage) = temporary();
        let lake = lake(storage, &[0..10]).await.unwrap();
        lake.create_branch("exp", &At::default()).await.unwrap();
        append(&lake, "exp", 20..25).await.unwrap();
        let forward = lake.merge("main", &branch("exp"), &by()).await.unwrap();
        assert_eq!(forward.outcome, MergeOutcome::FastForward);
        append(&lake, "exp", 25..30).await.unwrap();
        append(&lake, "main", 10..12).await.unwrap();
        let dry = lake.merge("main", &branch("exp"), &by().dry()).await.unwrap();
        assert_eq!((dry.outcome, dry.conflicts.len(), dry.changes[0].rows_added), (MergeOutcome::Merged, 0, 5));
        assert_eq!(ids(&lake, "main").await.len(), 17, "a dry run changes nothing");
        let merged = lake.merge("main", &branch("exp"), &by().with_message("join")).await.unwrap();
        assert_eq!(merged.snapshot.commit().parents.len(), 2);
        assert_eq!(all(&lake, &branch("main")).await.unwrap(), rows((0..10).chain(20..25).chain(10..12).chain(25..30)));
        let again = lake.merge("main", &branch("exp"), &by()).await.unwrap();
        assert_eq!(again.outcome, MergeOutcome::UpToDate);
        let itself = lake.merge("main", &branch("main"), &by()).await.unwrap();
        assert_eq!(itself.outcome, MergeOutcome::UpToDate);
        assert_eq!(lake.verify(&branch("main"), |_| {}).await.unwrap().faults, []);
    });
}

#[test]
fn every_policy_decides_as_it_says() {
    block_on(async {
        let decide = |choice: Choice| {
            Policy::Callback(std::sync::Arc::new(move |clash| {
                assert_eq!((clash.table, clash.column), ("main", Some("id")));
                let value = |data: Option<&ColumnData>| data.unwrap().values.clone();
                assert_eq!(value(clash.base), number(3).values);
                assert_eq!((value(clash.ours), value(clash.theirs)), (number(-3).values, number(-30).values));
                choice.clone()
            }))
        };
        let column = |name: &str, side| Policy::Columns { columns: [(name.to_owned(), side)].into(), otherwise: None };
        for (policy, expected) in [
            (Policy::Fail, None),
            (Policy::Side(MergeSide::Ours), Some(-3)),
            (Policy::Side(MergeSide::Theirs), Some(-30)),
            (column("id", MergeSide::Theirs), Some(-30)),
            (column("text", MergeSide::Theirs), None),
            (decide(Choice::Fail), None),
            (decide(Choice::Base), Some(3)),
            (decide(Choice::Side(MergeSide::Ours)), Some(-3)),
            (decide(Choice::Value(number(99))), Some(99)),
        ] {
            let (_folder, storage) = temporary();
            let lake = lake(storage, &[0..10]).await.unwrap();
            lake.create_branch("exp", &At::default()).await.unwrap();
            set(&lake, "main", 3, -3).await;
            set(&lake, "exp", 3, -30).await;
            set(&lake, "exp", 5, -5).await;
            let found = lake.merge("main", &branch("exp"), &by().with_policy(policy.clone())).await;
            match (found, expected) {
                (Err(Error::Conflict { conflicts, .. }), None) => {
                    assert_eq!(conflicts.iter().map(|conflict| conflict.count()).sum::<usize>(), 1);
                    assert_eq!(ids(&lake, "main").await, [0, 1, 2, -3, 4, 5, 6, 7, 8, 9], "nothing was committed");
                }
                (Ok(_), Some(expected)) => assert_eq!(ids(&lake, "main").await, [0, 1, 2, expected, 4, -5, 6, 7, 8, 9]),
                (found, expected) => panic!("{policy:?}: {found:?}, expected {expected:?}"),
            }
        }
    });
}

#[test]
fn revert_undoes_one_commit_and_cherry_pick_takes_one_over() {
    block_on(async {
        let (_folder, storage) = temporary();
        let lake = lake(storage, &[0..5]).await.unwrap();
        let bad = append(&lake, "main", 100..103).await.unwrap();
        append(&lake, "main", 5..6).await.unwrap();
        let report = lake.revert("main", &At::Commit(bad.id()), &by()).await.unwrap();
        assert!(report.snapshot.commit().message.starts_with("revert commit"));
        assert_eq!(all(&lake, &branch("main")).await.unwrap(), rows(0..6));
        let error = lake.revert("main", &At::Commit(bad.id()), &by()).await.unwrap_err();
        assert!(matches!(error, Error::NothingToCommit { .. }), "{error}");
        // The revert of the revert brings the rows back.
        lake.revert("main", &At::Commit(report.snapshot.id()), &by()).await.unwrap();
        assert_eq!(ids(&lake, "main").await.len(), 9);
        let first = lake.log(&branch("main"), 100).await.unwrap().pop().unwrap();
        lake.create_branch("exp", &At::Commit(bad.commit().parents[0].id.cast())).await.unwrap();
        lake.cherry_pick("exp", &At::Commit(bad.id()), &by()).await.unwrap();
        assert_eq!(all(&lake, &branch("exp")).await.unwrap(), rows((0..5).chain(100..103)));
        let error = lake.cherry_pick("exp", &At::Commit(first.id), &by()).await.unwrap_err();
        assert!(matches!(error, Error::Misuse { .. }), "{error}");
        // What was picked is the same rows, not copies: a merge has them once.
        lake.merge("exp", &branch("main"), &by()).await.unwrap();
        let mut found = ids(&lake, "exp").await;
        found.sort_unstable();
        assert_eq!(found, [0, 1, 2, 3, 4, 5, 100, 101, 102]);
    });
}

#[test]
fn a_dropped_column_that_comes_back_has_a_value_in_every_row_or_is_a_conflict() {
    block_on(async {
        for (column, nullable) in [("text", true), ("points", false)] {
            let (_folder, storage) = temporary();
            let lake = lake(storage, &[0..5]).await.unwrap();
            let mut transaction = lake.begin("main").await.unwrap();
            let table = transaction.base().table("main").await.unwrap();
            transaction.drop_column(&table, column).unwrap();
            let dropped = transaction.commit("drop", "tester").await.unwrap();
            let mut transaction = lake.begin("main").await.unwrap();
            let mut writer = transaction.writer("main").await.unwrap();
            let names: Vec<String> = writer.columns().iter().map(|column| column.name.clone()).collect();
            let all_names = ["id", "text", "pixels", "points"];
            let data = crate::support::columns(&rows(5..7));
            let kept = all_names.iter().zip(data).filter(|(name, _)| names.iter().any(|other| other == *name));
            let kept: Vec<ColumnData> = kept.map(|(_, data)| data).collect();
            let written = tokio::task::spawn_blocking(move || {
                writer.push(&kept.iter().map(ColumnData::as_slice).collect::<Vec<_>>()).unwrap();
                writer.finish().unwrap()
            });
            transaction.append(written.await.unwrap());
            transaction.commit("without", "tester").await.unwrap();
            let reverted = lake.revert("main", &At::Commit(dropped.id()), &by()).await;
            if nullable {
                reverted.unwrap();
                let found = all(&lake, &branch("main")).await.unwrap();
                assert_eq!(found[..5], rows(0..5));
                assert_eq!(found[5..].iter().map(|row| row.text.clone()).collect::<Vec<_>>(), [None, None]);
                assert_eq!(lake.verify(&branch("main"), |_| {}).await.unwrap().faults, []);
            } else {
                let error = reverted.unwrap_err();
                assert!(matches!(&error, Error::Conflict { conflicts, .. } if conflicts.len() == 1), "{error}");
            }
        }
    });
}

#[test]
fn a_branch_that_is_moved_or_removed_loses_nothing() {
    block_on(async {
        let (_folder, storage) = temporary();
        let lake = lake(storage, &[0..5]).await.unwrap();
        let good = lake.snapshot(&At::default()).await.unwrap();
        let bad = append(&lake, "main", 5..9).await.unwrap();
        lake.reset("main", &At::Commit(good.id())).await.unwrap();
        assert_eq!(all(&lake, &branch("main")).await.unwrap(), rows(0..5));
        let entries = lake.entries("main", 2).await.unwrap();
        assert_eq!((entries[0].kind, entries[0].commit), (RefKind::Reset, good.id()));
        assert_eq!((entries[1].kind, entries[1].commit), (RefKind::Commit, bad.id()));
        append(&lake, "main", 5..6).await.unwrap();
        let log: Vec<_> =
            lake.log(&branch("main"), 3).await.unwrap().into_iter().map(|commit| commit.message).collect();
        assert_eq!(log, ["rows 5..6", "rows 0..5", "create table"], "history goes by parents, not by entries");
        lake.create_branch("exp", &At::Commit(bad.id())).await.unwrap();
        let writing = lake.begin("exp").await.unwrap();
        lake.delete_branch("exp").await.unwrap();
        assert_eq!(lake.branches().await.unwrap(), ["main"]);
        assert!(matches!(lake.snapshot(&branch("exp")).await, Err(Error::UnknownBranch { .. })));
        let mut writing = writing;
        crate::support::write(&mut writing, &rows(50..51)).await.unwrap();
        let error = writing.commit("late", "tester").await.unwrap_err();
        assert!(matches!(error, Error::UnknownBranch { .. }), "{error}");
        lake.undelete_branch("exp").await.unwrap();
        assert_eq!(all(&lake, &branch("exp")).await.unwrap(), rows(0..9));
        assert!(matches!(lake.undelete_branch("exp").await, Err(Error::BranchExists { .. })));
        lake.rename_branch("exp", "trial").await.unwrap();
        assert_eq!(lake.branches().await.unwrap(), ["main", "trial"]);
        // The name is free again, and its log goes on.
        lake.create_branch("exp", &At::default()).await.unwrap();
        assert_eq!(all(&lake, &branch("exp")).await.unwrap(), rows(0..6));
        assert_eq!(lake.entries("exp", 100).await.unwrap().len(), 5);
    });
}

#[test]
fn a_deleted_tag_is_gone_and_its_name_is_never_used_again() {
    block_on(async {
        let (_folder, storage) = temporary();
        let lake = lake(storage, &[0..5]).await.unwrap();
        lake.create_tag("v1", &At::default(), "tester").await.unwrap();
        lake.delete_tag("v1", "tester").await.unwrap();
        assert_eq!(lake.tags().await.unwrap(), Vec::<String>::new());
        assert!(matches!(lake.snapshot(&At::Tag("v1".into())).await, Err(Error::UnknownTag { .. })));
        assert!(matches!(lake.create_tag("v1", &At::default(), "tester").await, Err(Error::TagExists { .. })));
        assert!(matches!(lake.delete_tag("v1", "tester").await, Err(Error::UnknownTag { .. })));
    });
}

#[test]
fn a_crosswise_history_merges_by_all_of_its_bases() {
    block_on(async {
        let (_folder, storage) = temporary();
        let lake = lake(storage, &[0..10]).await.unwrap();
        lake.create_branch("exp", &At::default()).await.unwrap();
        set(&lake, "main", 1, -1).await;
        set(&lake, "exp", 2, -2).await;
        // Each merges the other as it was before.
        let main = lake.snapshot(&branch("main")).await.unwrap().id();
        lake.merge("main", &branch("exp"), &by()).await.unwrap();
        lake.merge("exp", &At::Commit(main), &by()).await.unwrap();
        // A change back to the value of the first base is a change all the same.
        set(&lake, "main", 1, 1).await;
        set(&lake, "exp", 2, 2).await;
        lake.merge("main", &branch("exp"), &by()).await.unwrap();
        assert_eq!(ids(&lake, "main").await, (0..10).collect::<Vec<_>>());
        lake.merge("exp", &branch("main"), &by()).await.unwrap();
        assert_eq!(ids(&lake, "exp").await, ids(&lake, "main").await);
    });
}

#[test]
fn a_diff_counts_and_names_what_differs() {
    block_on(async {
        let (_folder, storage) = temporary();
        let lake = lake(storage, &[0..10]).await.unwrap();
        lake.create_branch("exp", &At::default()).await.unwrap();
        append(&lake, "exp", 10..13).await.unwrap();
        set(&lake, "exp", 4, -4).await;
        let mut transaction = lake.begin("exp").await.unwrap();
        let table = transaction.base().table("main").await.unwrap();
        transaction.delete(&Selection::new(table.clone(), Rows::List([0].into())).unwrap()).unwrap();
        transaction.rename_column(&table, "text", "caption").unwrap();
        transaction.commit("more", "tester").await.unwrap();
        let diff = lake.diff(&branch("main"), &branch("exp")).await.unwrap();
        assert_eq!(diff.len(), 1);
        assert_eq!((diff[0].rows_added, diff[0].rows_deleted, diff[0].rows_changed), (3, 1, 1));
        assert_eq!(diff[0].columns_changed[0].1.name, "caption");
        let mut found = lake.diff_rows(&branch("main"), &branch("exp"), "main").await.unwrap();
        let (mut added, mut deleted, mut changed) = (Vec::new(), Vec::new(), Vec::new());
        while let Some(rows) = found.next().await.unwrap() {
            added.extend(rows.added);
            deleted.extend(rows.deleted);
            changed.extend(rows.changed);
        }
        let before = lake.snapshot(&branch("main")).await.unwrap().table("main").await.unwrap();
        let after = lake.snapshot(&branch("exp")).await.unwrap().table("main").await.unwrap();
        assert_eq!(deleted, [before.row_id(0).unwrap()]);
        assert_eq!(added.iter().map(|id| after.find(*id).unwrap()).max(), Some(11));
        let (old, new, columns) = &changed[0];
        assert_eq!(
            (before.find(*old).unwrap(), after.find(*new).unwrap(), columns.as_slice()),
            (4, 3, &["id".to_owned()][..])
        );
        assert!(lake.diff(&branch("exp"), &branch("exp")).await.unwrap().is_empty());
    });
}

/// Adds a column `score` to a branch: ten times the `id`, and -1 in rows that others append. Compacts then.
async fn score(lake: &Lake, name: &str) {
    let mut transaction = lake.begin(name).await.unwrap();
    let table = transaction.base().table("main").await.unwrap();
    let ids = ids(lake, name).await;
    let scores = |rows: std::ops::Range<u64>| {
        let scores = ids[rows.start as usize..rows.end as usize].iter().flat_map(|id| (id * 10).to_le_bytes());
        Ok(ColumnData { rows: rows.count(), values: OwnedValues::Fixed(scores.collect()), validity: None })
    };
    let column = Column::new("score", DType::I64, []).unwrap();
    transaction.add_column_with(&table, column, Some(&number(-1)), scores).await.unwrap();
    transaction.commit("score", "tester").await.unwrap();
    compact(lake, name).await;
}

async fn compact(lake: &Lake, name: &str) {
    compacting(lake, name).await.commit("compact", "tester").await.unwrap();
}

async fn delete(lake: &Lake, name: &str, row: u64) {
    let mut transaction = lake.begin(name).await.unwrap();
    let table = transaction.base().table("main").await.unwrap();
    transaction.delete(&Selection::new(table, Rows::List([row].into())).unwrap()).unwrap();
    transaction.commit("delete", "tester").await.unwrap();
}

async fn scores(lake: &Lake, name: &str) -> Vec<i64> {
    let table = lake.snapshot(&branch(name)).await.unwrap().table("main").await.unwrap();
    let OwnedValues::Fixed(bytes) = table.read("score", 0..table.rows()).await.unwrap().values else { panic!() };
    bytes.chunks_exact(8).map(|score| i64::from_le_bytes(score.try_into().unwrap())).collect()
}

#[test]
fn a_row_that_a_merge_brings_back_has_the_values_of_columns_that_were_added_meanwhile() {
    block_on(async {
        let (_folder, storage) = temporary();
        let lake = lake(storage, &[0..3]).await.unwrap();
        let appended = lake.snapshot(&At::default()).await.unwrap();
        let created = appended.commit().parents[0].id.cast();
        // Its rows are the same as main's, and came by another way.
        lake.create_branch("picked", &At::Commit(created)).await.unwrap();
        lake.cherry_pick("picked", &At::Commit(appended.id()), &by()).await.unwrap();
        delete(&lake, "picked", 1).await;
        score(&lake, "main").await;
        lake.merge("picked", &At::default(), &by()).await.unwrap();
        assert_eq!(ids(&lake, "picked").await, [0, 1, 2]);
        assert_eq!(scores(&lake, "picked").await, [0, 10, 20]);
    });
    block_on(async {
        let (_folder, storage) = temporary();
        let lake = lake(storage, &[0..3, 3..5]).await.unwrap();
        lake.create_branch("scored", &At::default()).await.unwrap();
        compact(&lake, "main").await;
        delete(&lake, "main", 1).await;
        set(&lake, "scored", 1, 100).await;
        score(&lake, "scored").await;
        let theirs = by().with_policy(Policy::Side(MergeSide::Theirs));
        lake.merge("main", &branch("scored"), &theirs).await.unwrap();
        assert_eq!(ids(&lake, "main").await, [0, 100, 2, 3, 4]);
        assert_eq!(scores(&lake, "main").await, [0, 1000, 20, 30, 40]);
    });
}

/// Drops column `text` of a branch; gives the commit.
async fn drop_text(lake: &Lake, at: &str) -> At {
    let mut transaction = lake.begin(at).await.unwrap();
    let table = transaction.base().table("main").await.unwrap();
    transaction.drop_column(&table, "text").unwrap();
    At::Commit(transaction.commit("drop", "tester").await.unwrap().id())
}

async fn compacting(lake: &Lake, at: &str) -> Transaction {
    let mut transaction = lake.begin(at).await.unwrap();
    let table = transaction.base().table("main").await.unwrap();
    transaction.compact(&table, CompactOptions::default()).await.unwrap();
    transaction
}

/// The column `text` of a branch.
async fn texts(lake: &Lake, at: &str) -> Vec<Option<String>> {
    all(lake, &branch(at)).await.unwrap().into_iter().map(|row| row.text).collect()
}

#[test]
fn a_column_that_comes_back_after_a_compaction_has_its_values() {
    block_on(async {
        // The compaction is committed before the column comes back, or is under way meanwhile.
        for late in [false, true] {
            let (_folder, storage) = temporary();
            let lake = lake(storage, &[0..5, 5..9]).await.unwrap();
            lake.create_branch("other", &branch("main")).await.unwrap();
            let dropped = drop_text(&lake, "main").await;
            let compaction = compacting(&lake, "main").await;
            if late {
                lake.revert("main", &dropped, &by()).await.unwrap();
                compaction.commit("compact", "tester").await.unwrap();
            } else {
                compaction.commit("compact", "tester").await.unwrap();
                lake.revert("main", &dropped, &by()).await.unwrap();
            }
            assert_eq!(all(&lake, &branch("main")).await.unwrap(), rows(0..9), "late: {late}");
            // Nothing was changed here: what the other branch changes is taken, and is no conflict.
            update(&lake, "other", 7, "text", &crate::support::columns(&rows(100..101))[1]).await;
            lake.merge("main", &branch("other"), &by()).await.unwrap();
            let mut expected: Vec<_> = rows(0..9).into_iter().map(|row| row.text).collect();
            expected[7] = Row::of(100).text;
            assert_eq!(texts(&lake, "main").await, expected, "late: {late}");
            assert_eq!(lake.verify(&branch("main"), |_| {}).await.unwrap().faults, []);
        }
    });
}

#[test]
fn a_column_that_is_kept_has_its_values_though_it_was_compacted_away() {
    block_on(async {
        let (_folder, storage) = temporary();
        let lake = lake(storage, &[0..5, 5..9]).await.unwrap();
        lake.create_branch("other", &branch("main")).await.unwrap();
        update(&lake, "other", 7, "text", &crate::support::columns(&rows(100..101))[1]).await;
        // The update is in no overlay any more, and is seen all the same.
        compact(&lake, "other").await;
        drop_text(&lake, "main").await;
        compact(&lake, "main").await;
        let error = lake.merge("main", &branch("other"), &by()).await.unwrap_err();
        let Error::Conflict { conflicts, .. } = &error else { panic!("{error}") };
        assert!(
            matches!(&conflicts[..], [Conflict { kind: ConflictKind::Column { column, .. }, .. }] if column == "text")
        );
        let theirs = by().with_policy(Policy::Side(MergeSide::Theirs));
        lake.merge("main", &branch("other"), &theirs).await.unwrap();
        let mut expected: Vec<_> = rows(0..9).into_iter().map(|row| row.text).collect();
        expected[7] = Row::of(100).text;
        assert_eq!(texts(&lake, "main").await, expected);
    });
}

#[test]
fn a_column_that_may_not_be_null_comes_back_when_every_row_has_its_value() {
    block_on(async {
        let (_folder, storage) = temporary();
        let lake = lake(storage, &[0..5, 5..9]).await.unwrap();
        let mut transaction = lake.begin("main").await.unwrap();
        let table = transaction.base().table("main").await.unwrap();
        transaction.drop_column(&table, "points").unwrap();
        let dropped = At::Commit(transaction.commit("drop", "tester").await.unwrap().id());
        compact(&lake, "main").await;
        let dry = lake.revert("main", &dropped, &by().dry()).await.unwrap();
        assert_eq!(dry.conflicts, []);
        lake.revert("main", &dropped, &by()).await.unwrap();
        assert_eq!(all(&lake, &branch("main")).await.unwrap(), rows(0..9));
        compact(&lake, "main").await;
        assert_eq!(all(&lake, &branch("main")).await.unwrap(), rows(0..9));
    });
}

#[test]
fn a_column_that_is_added_once_more_keeps_the_values_it_has() {
    block_on(async {
        // Whether the commit that adds it changes the same rows otherwise as well.
        for more in [false, true] {
            let (_folder, storage) = temporary();
            let lake = lake(storage, &[0..3]).await.unwrap();
            let mut transaction = lake.begin("main").await.unwrap();
            let table = transaction.base().table("main").await.unwrap();
            let column = Column::new("score", DType::I64, []).unwrap();
            transaction.add_column(&table, column, Some(&number(-1))).await.unwrap();
            if more {
                let first = Selection::new(table, Rows::List([0].into())).unwrap();
                transaction.update(&first, &[("id", number(100).as_slice())]).await.unwrap();
            }
            let added = At::Commit(transaction.commit("add", "tester").await.unwrap().id());
            update(&lake, "main", 1, "score", &number(77)).await;
            match lake.cherry_pick("main", &added, &by()).await {
                Ok(_) | Err(Error::NothingToCommit { .. }) => {}
                Err(error) => panic!("{error}"),
            }
            assert_eq!(scores(&lake, "main").await, [-1, 77, -1], "more: {more}");
            assert_eq!(ids(&lake, "main").await, [if more { 100 } else { 0 }, 1, 2]);
        }
    });
}

#[test]
fn an_update_that_was_reverted_and_is_picked_once_more_counts() {
    block_on(async {
        let (_folder, storage) = temporary();
        let lake = lake(storage, &[0..3]).await.unwrap();
        set(&lake, "main", 1, 100).await;
        let updated = At::Commit(lake.snapshot(&At::default()).await.unwrap().id());
        set(&lake, "main", 0, 200).await;
        lake.revert("main", &updated, &by()).await.unwrap();
        assert_eq!(ids(&lake, "main").await, [200, 1, 2]);
        lake.cherry_pick("main", &updated, &by()).await.unwrap();
        assert_eq!(ids(&lake, "main").await, [200, 100, 2]);
    });
}

#[test]
fn a_row_from_a_side_without_a_column_has_its_default_and_not_what_is_left_in_its_file() {
    block_on(async {
        // The row comes back, or is here already when the column does.
        let (_folder, storage) = temporary();
        let lake = lake(storage, &[0..3]).await.unwrap();
        lake.create_branch("other", &branch("main")).await.unwrap();
        append(&lake, "other", 3..5).await.unwrap();
        drop_text(&lake, "other").await;
        set(&lake, "other", 4, 40).await;
        let updated = At::Commit(lake.snapshot(&branch("other")).await.unwrap().id());
        let theirs = by().with_policy(Policy::Side(MergeSide::Theirs));
        lake.revert("main", &updated, &theirs).await.unwrap();
        assert_eq!(ids(&lake, "main").await, [0, 1, 2, 4]);
        assert_eq!(texts(&lake, "main").await, [Row::of(0).text, Row::of(1).text, Row::of(2).text, None]);
    });
    block_on(async {
        let (_folder, storage) = temporary();
        let lake = lake(storage, &[0..3]).await.unwrap();
        lake.create_branch("whole", &branch("main")).await.unwrap();
        delete(&lake, "main", 1).await;
        let dropped = drop_text(&lake, "main").await;
        lake.cherry_pick("whole", &dropped, &by()).await.unwrap();
        lake.revert("whole", &dropped, &by()).await.unwrap();
        assert_eq!(texts(&lake, "whole").await, [Row::of(0).text, None, Row::of(2).text]);
    });
}
