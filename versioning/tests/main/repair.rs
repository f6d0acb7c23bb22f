//! What damage means.

use std::collections::BTreeSet;

use forebay_storage::{Options, Storage};
use forebay_versioning::{At, Lake, Rows, Selection};

use crate::support::{all, append, block_on, lake, rows};

fn memory() -> Storage {
    Storage::open(&format!("memory://{}", uuid::Uuid::new_v4()), &Options::default()).unwrap()
}

async fn files(lake: &Lake, at: &At) -> Vec<String> {
    let table = lake.snapshot(at).await.unwrap().table("main").await.unwrap();
    table.data_files().map(|(id, _)| format!("data/{id}")).collect()
}

#[test]
fn damage_is_told_by_rows_and_columns_and_the_newest_whole_commit_is_named() {
    block_on(async {
        let storage = memory();
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
fn a_lost_manifest_is_told_by_the_rows_it_listed() {
    block_on(async {
        let storage = memory();
        // Many fragments, so that the table has pages and a root of their own.
        let lake = lake(storage.clone(), &[]).await.unwrap();
        for first in 0..400 {
            append(&lake, "main", first..first + 1).await.unwrap();
        }
        let metas =
            |listed: Vec<forebay_storage::Entry>| listed.into_iter().map(|entry| entry.path).collect::<BTreeSet<_>>();
        let before = metas(storage.list("meta").await.unwrap());
        let good = lake.snapshot(&At::default()).await.unwrap().id();
        let mut transaction = lake.begin("main").await.unwrap();
        let table = transaction.base().table("main").await.unwrap();
        transaction.delete(&Selection::new(table, Rows::List([0].into())).unwrap()).unwrap();
        let commit = transaction.commit("delete", "tester").await.unwrap();
        let after = metas(storage.list("meta").await.unwrap());
        let new: Vec<_> = after.difference(&before).filter(|path| !path.ends_with(&commit.id().to_string())).collect();
        assert!(!new.is_empty(), "the commit wrote a page or a root");
        for path in new {
            let bytes = storage.get(path).await.unwrap();
            storage.delete(path).await.unwrap();
            let damage = Lake::open(storage.clone()).await.unwrap().assess(|_| {}).await.unwrap();
            assert_eq!(damage.verification.faults.len(), 1, "{damage:?}");
            assert_eq!(&damage.verification.faults[0].path, path);
            let main = &damage.branches[0];
            assert_eq!((main.newest, main.whole), (Some(commit.id()), Some(good)), "{main:?}");
            assert_eq!((main.losses.len(), main.losses[0].column.as_deref()), (1, None), "{main:?}");
            assert_eq!(main.losses[0].objects, std::slice::from_ref(path));
            assert!((1..=399).contains(&main.losses[0].rows), "{main:?}");
            storage.put(path, bytes).await.unwrap();
        }
    });
}

#[test]
fn a_lost_commit_is_named_and_what_came_before_it_is_still_found() {
    block_on(async {
        let storage = memory();
        let lake = lake(storage.clone(), &[0..10, 10..15, 15..20]).await.unwrap();
        let log = lake.log(&At::default(), 10).await.unwrap();
        // The newest one: the log's copy of it says what there was, and the one before it is whole.
        let object = format!("meta/{}", log[0].id);
        let bytes = storage.get(&object).await.unwrap();
        storage.delete(&object).await.unwrap();
        let damage = lake.assess(|_| {}).await.unwrap();
        assert_eq!(damage.verification.faults.len(), 1);
        assert_eq!(damage.verification.faults[0].path, object);
        let main = &damage.branches[0];
        assert_eq!((main.newest, main.whole), (Some(log[0].id), Some(log[1].id)));
        assert_eq!((&main.commits_lost[..], &main.losses[..]), (&[log[0].id][..], &[][..]));
        storage.put(&object, bytes).await.unwrap();
        // One in between, whose parents are known from the log.
        let object = format!("meta/{}", log[1].id);
        storage.put(&object, bytes::Bytes::from_static(b"nothing")).await.unwrap();
        let damage = lake.assess(|_| {}).await.unwrap();
        let main = &damage.branches[0];
        assert_eq!((main.newest, main.whole), (Some(log[0].id), Some(log[0].id)));
        assert_eq!(main.commits_lost, [log[1].id]);
        assert_eq!(damage.verification.commits, log.len() as u64, "those before it are looked at as well");
    });
}

#[test]
fn damage_behind_a_lost_entry_and_of_a_deleted_branch_is_judged_as_it_is() {
    block_on(async {
        let storage = memory();
        let lake = lake(storage.clone(), &[0..10]).await.unwrap();
        let good = lake.snapshot(&At::default()).await.unwrap().id();
        lake.create_branch("gone", &At::default()).await.unwrap();
        lake.delete_branch("gone").await.unwrap();
        let table = lake.snapshot(&At::default()).await.unwrap().table("main").await.unwrap();
        let known: BTreeSet<_> = table.data_files().map(|(id, _)| id).collect();
        let bad = append(&lake, "main", 10..15).await.unwrap();
        append(&lake, "main", 15..20).await.unwrap();
        let table = bad.table("main").await.unwrap();
        let (file, _) = table.data_files().find(|(id, _)| !known.contains(id)).unwrap();
        storage.delete(&format!("data/{file}")).await.unwrap();
        let entries = storage.list("refs/heads/main").await.unwrap();
        let last = entries.iter().rfind(|entry| !entry.path.ends_with("hint")).unwrap();
        storage.put(&last.path, bytes::Bytes::from_static(b"nothing")).await.unwrap();
        let damage = lake.assess(|_| {}).await.unwrap();
        assert_eq!(damage.branches.len(), 1, "a deleted branch is none");
        let main = &damage.branches[0];
        assert_eq!((main.newest, main.whole, main.entries_lost), (Some(bad.id()), Some(good), 1));
        assert!(main.losses.iter().all(|loss| loss.rows == 5 && loss.objects == [format!("data/{file}")]));
        assert_eq!(main.losses.len(), 4);
        assert_eq!(damage.verification.faults.len(), 2, "each is told once: {:?}", damage.verification.faults);
    });
}

#[test]
fn a_branch_whose_last_entry_is_lost_is_judged_by_the_one_before() {
    block_on(async {
        let storage = memory();
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
