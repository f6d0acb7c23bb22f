//! Changes of rows, columns and tables, and what of two of them fits together.

use forebay_format::{Column, ColumnData, ColumnSlice, DType, OwnedValues, Schema};
use forebay_versioning::{
    At, CompactOptions, ConflictKind, Error, Lake, Result, Rows, Selection, Snapshot, Table, Transaction,
};

use crate::support::{all, append, block_on, lake, rows, temporary, write};

fn at() -> At {
    At::default()
}

async fn table(transaction: &Transaction) -> Table {
    transaction.base().table("main").await.unwrap()
}

fn list(table: &Table, rows: &[u64]) -> Selection {
    Selection::new(table.clone(), Rows::List(rows.into())).unwrap()
}

fn numbers(values: &[i64]) -> ColumnData {
    let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    ColumnData { rows: values.len(), values: OwnedValues::Fixed(bytes), validity: None }
}

fn read(data: &ColumnData) -> Vec<i64> {
    let OwnedValues::Fixed(bytes) = &data.values else { panic!("not numbers") };
    bytes.chunks_exact(8).map(|value| i64::from_le_bytes(value.try_into().unwrap())).collect()
}

async fn delete(lake: &Lake, rows: &[u64]) -> Snapshot {
    let mut transaction = lake.begin("main").await.unwrap();
    let table = table(&transaction).await;
    transaction.delete(&list(&table, rows)).unwrap();
    transaction.commit("delete", "tester").await.unwrap()
}

/// A transaction that sets the `id` of some rows.
async fn update(lake: &Lake, rows: &[u64], ids: &[i64]) -> Transaction {
    let mut transaction = lake.begin("main").await.unwrap();
    let table = table(&transaction).await;
    transaction.update(&list(&table, rows), &[("id", numbers(ids).as_slice())]).await.unwrap();
    transaction
}

async fn ids(lake: &Lake, at: &At) -> Vec<i64> {
    let table = lake.snapshot(at).await.unwrap().table("main").await.unwrap();
    read(&table.read("id", 0..table.rows()).await.unwrap())
}

#[test]
fn deleted_rows_are_gone_from_then_on_and_there_before() {
    block_on(async {
        let (_folder, storage) = temporary();
        let lake = lake(storage, &[0..100, 100..150]).await.unwrap();
        let before = lake.snapshot(&at()).await.unwrap().id();
        delete(&lake, &[0, 1, 2, 50, 99, 100, 149]).await;
        let left = (3..50).chain(51..99).chain(101..149);
        assert_eq!(all(&lake, &at()).await.unwrap(), rows(left.clone()));
        assert_eq!(all(&lake, &At::Commit(before)).await.unwrap(), rows(0..150));
        // Rows are numbered without the deleted ones.
        delete(&lake, &[0]).await;
        assert_eq!(all(&lake, &at()).await.unwrap(), rows(left.clone().skip(1)));
        let table = lake.snapshot(&at()).await.unwrap().table("main").await.unwrap();
        for (number, id) in left.skip(1).enumerate() {
            let found = table.find(table.row_id(number as u64).unwrap()).unwrap();
            assert_eq!((found, read(&table.take("id", &[found]).await.unwrap())[0]), (number as u64, id));
        }
        let log = lake.log(&at(), 1).await.unwrap();
        assert_eq!((log[0].changes[0].kind.as_str(), log[0].changes[0].rows_deleted), ("delete", 1));
    });
}

#[test]
fn an_update_writes_the_new_cells_and_nothing_else() {
    block_on(async {
        let (_folder, storage) = temporary();
        let lake = lake(storage, &[0..1000, 1000..2000]).await.unwrap();
        let table = lake.snapshot(&at()).await.unwrap().table("main").await.unwrap();
        let files = |table: &Table| table.data_files().map(|(id, _)| id).collect::<std::collections::BTreeSet<_>>();
        let before = files(&table);
        update(&lake, &[1500, 7, 3], &[-1500, -7, -3]).await.commit("update", "tester").await.unwrap();
        let mut expected: Vec<i64> = (0..2000).collect();
        for id in [1500, 7, 3] {
            expected[id as usize] = -id;
        }
        assert_eq!(ids(&lake, &at()).await, expected);
        let after = lake.snapshot(&at()).await.unwrap().table("main").await.unwrap();
        let new: Vec<_> = files(&after).difference(&before).copied().collect();
        assert_eq!((new.len(), files(&after).len()), (1, before.len() + 1), "one file for all fragments");
        // A later update of the same cell counts.
        update(&lake, &[7], &[-77]).await.commit("update", "tester").await.unwrap();
        expected[7] = -77;
        assert_eq!(ids(&lake, &at()).await, expected);
    });
}

#[test]
fn a_rebase_keeps_both_unless_they_touched_the_same_cells() {
    block_on(async {
        let (_folder, storage) = temporary();
        let lake = lake(storage, &[0..20]).await.unwrap();
        let slow = update(&lake, &[1, 2], &[-1, -2]).await;
        let clashing = update(&lake, &[2, 3, 4], &[-20, -30, -40]).await;
        delete(&lake, &[0]).await;
        append(&lake, "main", 20..22).await.unwrap();
        slow.commit("slow", "tester").await.unwrap();
        let expected: Vec<i64> = [-1, -2].into_iter().chain(3..22).collect();
        assert_eq!(ids(&lake, &at()).await, expected);
        delete(&lake, &[3]).await;
        let error = clashing.commit("clashing", "tester").await.unwrap_err();
        let Error::Conflict { conflicts, .. } = &error else { panic!("{error}") };
        assert_eq!(conflicts.len(), 2, "{error}");
        let ConflictKind::Cells { column, rows } = &conflicts[0].kind else { panic!("{error}") };
        assert_eq!((column.as_str(), rows.len(), rows[0].row), ("id", 1, 2));
        let ConflictKind::Rows { rows, columns, .. } = &conflicts[1].kind else { panic!("{error}") };
        assert_eq!((rows.len(), rows[0].row, columns.as_slice()), (1, 4, &["id".to_owned()][..]));
        assert!(error.to_string().contains("column 'id'"), "{error}");
        assert_eq!(lake.verify(&at(), |_| {}).await.unwrap().faults, []);
    });
}

#[test]
fn columns_come_and_go_without_a_rewrite() {
    block_on(async {
        let (_folder, storage) = temporary();
        let lake = lake(storage, &[0..50]).await.unwrap();
        delete(&lake, &[10]).await;
        // Before the column is there, somebody starts to append.
        let mut slow = lake.begin("main").await.unwrap();
        write(&mut slow, &rows(50..52)).await.unwrap();
        let mut transaction = lake.begin("main").await.unwrap();
        let base = table(&transaction).await;
        let score = Column::new("score", DType::I64, []).unwrap();
        let error = transaction.add_column(&base, score.clone(), None).await.unwrap_err();
        assert!(matches!(error, Error::Misuse { .. }), "{error}");
        let values = |rows: std::ops::Range<u64>| Ok(numbers(&rows.map(|row| row as i64 * 2).collect::<Vec<_>>()));
        transaction.add_column_with(&base, score, Some(&numbers(&[-5])), values).await.unwrap();
        let mut note = Column::new("note", DType::Utf8, []).unwrap();
        note.nullable = true;
        transaction.add_column(&base, note, None).await.unwrap();
        transaction.rename_column(&base, "pixels", "picture").unwrap();
        transaction.drop_column(&base, "points").unwrap();
        transaction.commit("columns", "tester").await.unwrap();
        slow.commit("slow", "tester").await.unwrap();
        let after = lake.snapshot(&at()).await.unwrap().table("main").await.unwrap();
        let names: Vec<_> = after.schema().columns.iter().map(|column| column.name.as_str()).collect();
        assert_eq!(names, ["id", "text", "picture", "score", "note"]);
        let scores: Vec<i64> = (0..49).map(|row| row * 2).chain([-5, -5]).collect();
        assert_eq!(read(&after.read("score", 0..51).await.unwrap()), scores);
        let note = after.read("note", 0..51).await.unwrap();
        assert_eq!(note.validity, Some(vec![0; 7]), "all rows are null");
        assert!(after.read("points", 0..1).await.is_err());
        assert_eq!(lake.verify(&at(), |_| {}).await.unwrap().faults, []);
        // Two who drop and update the same column don't go together.
        let updating = update(&lake, &[0], &[7]).await;
        let mut dropping = lake.begin("main").await.unwrap();
        let base = table(&dropping).await;
        dropping.drop_column(&base, "id").unwrap();
        dropping.commit("drop", "tester").await.unwrap();
        let error = updating.commit("update", "tester").await.unwrap_err();
        assert!(
            matches!(&error, Error::Conflict { conflicts, .. }
            if matches!(&conflicts[0].kind, ConflictKind::Column { column, .. } if column == "id")),
            "{error}"
        );
    });
}

#[test]
fn tables_are_made_renamed_and_dropped_and_several_change_at_once() {
    block_on(async {
        let (_folder, storage) = temporary();
        let lake = lake(storage, &[0..10]).await.unwrap();
        let other = || Schema::new(vec![Column::new("n", DType::I64, []).unwrap()]).unwrap();
        let mut transaction = lake.begin("main").await.unwrap();
        let base = table(&transaction).await;
        transaction.create_table("other", other()).unwrap();
        transaction.delete(&list(&base, &[0])).unwrap();
        write(&mut transaction, &rows(10..11)).await.unwrap();
        transaction.commit("both", "tester").await.unwrap();
        assert_eq!(lake.snapshot(&at()).await.unwrap().tables(), ["main", "other"]);
        assert_eq!(all(&lake, &at()).await.unwrap(), rows(1..11));
        let dropped_under = update(&lake, &[0], &[5]).await;
        let mut transaction = lake.begin("main").await.unwrap();
        transaction.rename_table("other", "another").unwrap();
        transaction.drop_table("main").unwrap();
        transaction.create_table("main", other()).unwrap();
        transaction.commit("shuffle", "tester").await.unwrap();
        assert_eq!(lake.snapshot(&at()).await.unwrap().tables(), ["another", "main"]);
        let error = dropped_under.commit("late", "tester").await.unwrap_err();
        assert!(
            matches!(&error, Error::Conflict { conflicts, .. }
            if matches!(conflicts[0].kind, ConflictKind::Table { .. })),
            "{error}"
        );
    });
}

fn keyed() -> Schema {
    Schema::new(vec![Column::new("k", DType::I64, []).unwrap(), Column::new("v", DType::I64, []).unwrap()]).unwrap()
}

async fn upsert(transaction: &mut Transaction, pairs: &[(i64, i64)]) -> Result<(u64, u64)> {
    let base = transaction.base().table("keyed").await?;
    let (keys, values): (Vec<i64>, Vec<i64>) = pairs.iter().copied().unzip();
    transaction.upsert(&base, &[numbers(&keys).as_slice(), numbers(&values).as_slice()]).await
}

async fn pairs(lake: &Lake) -> Vec<(i64, i64)> {
    let table = lake.snapshot(&at()).await.unwrap().table("keyed").await.unwrap();
    let keys = read(&table.read("k", 0..table.rows()).await.unwrap());
    keys.into_iter().zip(read(&table.read("v", 0..table.rows()).await.unwrap())).collect()
}

#[test]
fn equal_keys_are_never_in_a_table_twice() {
    block_on(async {
        let (_folder, storage) = temporary();
        let lake = Lake::create(storage).await.unwrap();
        let mut transaction = lake.begin("main").await.unwrap();
        transaction.create_table_with_key("keyed", keyed(), &["k"]).unwrap();
        transaction.commit("create", "tester").await.unwrap();
        let mut transaction = lake.begin("main").await.unwrap();
        assert_eq!(upsert(&mut transaction, &[(1, 10), (2, 20)]).await.unwrap(), (0, 2));
        transaction.commit("first", "tester").await.unwrap();
        let mut slow = lake.begin("main").await.unwrap();
        assert_eq!(upsert(&mut slow, &[(2, 22), (3, 33)]).await.unwrap(), (1, 1));
        let mut clashing = lake.begin("main").await.unwrap();
        assert_eq!(upsert(&mut clashing, &[(3, 3), (9, 9)]).await.unwrap(), (0, 2));
        slow.commit("slow", "tester").await.unwrap();
        assert_eq!(pairs(&lake).await, [(1, 10), (2, 22), (3, 33)]);
        let error = clashing.commit("clashing", "tester").await.unwrap_err();
        assert!(
            matches!(&error, Error::Conflict { conflicts, .. }
            if matches!(&conflicts[0].kind, ConflictKind::Keys { rows, .. } if rows.len() == 1)),
            "{error}"
        );
        // An append of a key that is there is refused as well.
        let mut twice = lake.begin("main").await.unwrap();
        let mut writer = twice.writer("keyed").await.unwrap();
        let written = tokio::task::spawn_blocking(move || {
            let columns: [ColumnData; 2] = [numbers(&[7, 1]), numbers(&[7, 1])];
            let slices: Vec<ColumnSlice<'_>> = columns.iter().map(ColumnData::as_slice).collect();
            writer.push(&slices).unwrap();
            writer.finish().unwrap()
        });
        twice.append(written.await.unwrap());
        let error = twice.commit("twice", "tester").await.unwrap_err();
        assert!(matches!(&error, Error::DuplicateKey { columns, .. } if columns == &["k"]), "{error}");
        assert_eq!(pairs(&lake).await, [(1, 10), (2, 22), (3, 33)]);
    });
}

#[test]
fn compaction_keeps_rows_order_and_what_others_did_meanwhile() {
    block_on(async {
        let (_folder, storage) = temporary();
        let lake = lake(storage, &[0..40, 40..41, 41..42, 42..60]).await.unwrap();
        delete(&lake, &[5, 41]).await;
        update(&lake, &[0, 39], &[-1, -40]).await.commit("update", "tester").await.unwrap();
        let before = ids(&lake, &at()).await;
        let late = update(&lake, &[1, 30], &[-100, -300]).await;
        let mut transaction = lake.begin("main").await.unwrap();
        let base = table(&transaction).await;
        assert_eq!(transaction.compact(&base, CompactOptions::default()).await.unwrap(), 4);
        append(&lake, "main", 60..61).await.unwrap();
        transaction.commit("compact", "tester").await.unwrap();
        let after = lake.snapshot(&at()).await.unwrap().table("main").await.unwrap();
        assert_eq!(after.fragments().len(), 2);
        assert!(after.fragments().iter().all(|fragment| fragment.deleted.is_empty() && fragment.overlays.is_empty()));
        let mut expected = before.clone();
        expected.push(60);
        assert_eq!(ids(&lake, &at()).await, expected);
        late.commit("late", "tester").await.unwrap();
        (expected[1], expected[30]) = (-100, -300);
        assert_eq!(ids(&lake, &at()).await, expected);
        assert_eq!(lake.verify(&at(), |_| {}).await.unwrap().faults, []);
    });
}

#[test]
fn changes_of_an_older_commit_are_merged_with_what_came_since() {
    block_on(async {
        let (_folder, storage) = temporary();
        let lake = lake(storage, &[0..10]).await.unwrap();
        let old = lake.snapshot(&at()).await.unwrap();
        delete(&lake, &[0]).await;
        append(&lake, "main", 10..12).await.unwrap();
        let mut transaction = lake.begin_at("main", &old).await.unwrap();
        let table = table(&transaction).await;
        transaction.delete(&list(&table, &[9])).unwrap();
        transaction.commit("late", "tester").await.unwrap();
        assert_eq!(all(&lake, &at()).await.unwrap(), rows((1..9).chain(10..12)));
        lake.create_branch("exp", &At::Commit(old.id())).await.unwrap();
        let new = lake.snapshot(&at()).await.unwrap();
        let error = lake.begin_at("exp", &new).await.unwrap_err();
        assert!(matches!(error, Error::Misuse { .. }), "{error}");
    });
}

#[test]
fn a_selection_of_another_version_is_refused() {
    block_on(async {
        let (_folder, storage) = temporary();
        let lake = lake(storage, &[0..10]).await.unwrap();
        let old = lake.snapshot(&at()).await.unwrap().table("main").await.unwrap();
        append(&lake, "main", 10..20).await.unwrap();
        let mut transaction = lake.begin("main").await.unwrap();
        let error = transaction.delete(&list(&old, &[0])).unwrap_err();
        assert!(matches!(error, Error::Misuse { .. }), "{error}");
    });
}
