//! What damage means.

use forebay_storage::{Options, Storage};
use forebay_versioning::{At, Lake, Rows, Selection};

use crate::support::{all, append, block_on, lake, rows};

async fn files(lake: &Lake, at: &At) -> Vec<String> {
    let table = lake.snapshot(at).await.unwrap().table("main").await.unwrap();
    table.data_files().map(|(id, _)| format!("data/{id}")).collect()
}

#[test]
fn damage_is_told_by_rows_and_columns_and_the_newest_whole_commit_is_named() {
    block_on(async {
        let url = format!("memory://{}", uuid::Uuid::new_v4());
        let storage = Storage::open(&url, &Options::default()).unwrap();
        let lake = lake(storage.clone(), &[0..10]).await.unwrap();
        let good = append(&lake, "main", 10..15).await.unwrap();
        lake.create_branch("exp", &At::default()).await.unwrap();
        let mut transaction = lake.begin("main").await.unwrap();
        let table = transaction.base().table("main").await.unwrap();
        let id = forebay_format::OwnedValues::Fixed(99_i64.to_le_bytes().to_vec());
        let id = forebay_format::ColumnData { rows: 1, values: id, validity: None };
        let row = Selection::new(table, Rows::List([3].into())).unwrap();
        transaction.update(&row, &[("id", id.as_slice())]).await.unwrap();
        let bad = transaction.commit("update", "tester").await.unwrap();
        let newest = append(&lake, "main", 15..18).await.unwrap();

        let sound = lake.assess(|_| {}).await.unwrap();
        assert_eq!(sound.verification.faults, []);
        assert!(sound.branches.iter().all(|branch| branch.losses.is_empty() && branch.whole == branch.newest));

        // The overlay's file loses a bit, and the rows of the last commit go missing.
        let (before, updated, last) = (
            files(&lake, &At::Commit(good.id())).await,
            files(&lake, &At::Commit(bad.id())).await,
            files(&lake, &At::Commit(newest.id())).await,
        );
        let overlay = updated.iter().find(|file| !before.contains(file)).unwrap();
        let missing = last.iter().find(|file| !updated.contains(file)).unwrap();
        let mut bytes = storage.get(overlay).await.unwrap().to_vec();
        bytes[4096] ^= 1;
        storage.put(overlay, bytes.into()).await.unwrap();
        storage.delete(missing).await.unwrap();

        let lake = Lake::open(storage.clone()).await.unwrap();
        let damage = lake.assess(|_| {}).await.unwrap();
        assert_eq!(damage.verification.faults.len(), 2);
        let [exp, main] = &damage.branches[..] else { panic!("{damage:?}") };
        assert_eq!((exp.losses.len(), exp.whole), (0, Some(good.id())));
        assert_eq!((main.newest, main.whole, main.entries_lost), (Some(newest.id()), Some(good.id()), 0));
        let lost: Vec<_> = main.losses.iter().map(|loss| (loss.column.as_deref().unwrap(), loss.rows)).collect();
        assert_eq!(lost, [("id", 4), ("pixels", 3), ("points", 3), ("text", 3)]);
        assert_eq!(main.losses[0].objects.len(), 2);
        lake.reset("main", &At::Commit(good.id())).await.unwrap();
        assert_eq!(all(&lake, &At::default()).await.unwrap(), rows(0..15));
    });
}

#[test]
fn a_branch_whose_last_entry_is_lost_is_judged_by_the_one_before() {
    block_on(async {
        let url = format!("memory://{}", uuid::Uuid::new_v4());
        let storage = Storage::open(&url, &Options::default()).unwrap();
        let lake = lake(storage.clone(), &[0..10]).await.unwrap();
        let good = lake.snapshot(&At::default()).await.unwrap().id();
        append(&lake, "main", 10..15).await.unwrap();
        let entries = storage.list("refs/heads/main").await.unwrap();
        let last = entries.iter().rfind(|entry| !entry.path.ends_with("hint")).unwrap();
        storage.put(&last.path, bytes::Bytes::from_static(b"nothing")).await.unwrap();
        let damage = lake.assess(|_| {}).await.unwrap();
        let main = &damage.branches[0];
        assert_eq!((main.entries_lost, main.newest, main.whole), (1, Some(good), Some(good)));
        assert!(damage.verification.faults.iter().any(|fault| fault.path == last.path));
    });
}
