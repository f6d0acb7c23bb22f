//! Lakes, branches, tags, history.

use forebay_format::CommitId;
use forebay_versioning::{At, Error, Lake, Rows, Selection};

use crate::support::{all, append, block_on, lake, read, rows, schema, temporary, write};

fn branch(name: &str) -> At {
    At::Branch(name.into())
}

#[test]
fn committed_rows_are_read_back_at_every_version() {
    block_on(async {
        let (_folder, storage) = temporary();
        let lake = lake(storage.clone(), &[0..100, 100..150, 150..151]).await.unwrap();
        assert_eq!(all(&lake, &At::default()).await.unwrap(), rows(0..151));
        let log = lake.log(&At::default(), 10).await.unwrap();
        let messages: Vec<_> = log.iter().map(|commit| commit.message.as_str()).collect();
        assert_eq!(messages, ["rows 150..151", "rows 100..150", "rows 0..100", "create table", "create lake"]);
        assert_eq!(all(&lake, &At::Commit(log[1].id)).await.unwrap(), rows(0..150));
        assert_eq!(all(&lake, &At::Commit(log[2].id)).await.unwrap(), rows(0..100));
        let reopened = Lake::open(storage).await.unwrap();
        assert_eq!(all(&reopened, &At::default()).await.unwrap(), rows(0..151));
        assert_eq!(log[0].generation, 4);
    });
}

#[test]
fn any_range_and_any_list_of_rows_can_be_read() {
    block_on(async {
        let (_folder, storage) = temporary();
        let lake = lake(storage, &[0..37, 37..38, 38..300]).await.unwrap();
        let table = lake.snapshot(&At::default()).await.unwrap().table("main").await.unwrap();
        for range in [0..0, 0..1, 36..39, 0..300, 299..300, 100..211] {
            assert_eq!(read(&table, range.clone()).await.unwrap(), rows(range.start as i64..range.end as i64));
        }
        let list = [299, 0, 37, 37, 5, 299, 40, 38];
        let mut columns = Vec::new();
        for name in ["id", "text", "pixels", "points"] {
            columns.push(table.take(name, &list).await.unwrap());
        }
        assert_eq!(crate::support::parse(&columns), rows(list.map(|row| row as i64)));
        let error = table.read("id", 299..301).await.unwrap_err();
        assert!(matches!(error, Error::RowOutOfRange { row: 300, rows: 300, .. }), "{error}");
        assert!(table.take("id", &[300]).await.is_err());
        let error = table.read("lable", 0..1).await.unwrap_err().to_string();
        assert!(error.contains("lable") && error.contains("pixels"), "{error}");
    });
}

#[test]
fn branches_part_and_share_what_came_before() {
    block_on(async {
        let (_folder, storage) = temporary();
        let lake = lake(storage, &[0..10]).await.unwrap();
        lake.create_branch("exp", &At::default()).await.unwrap();
        append(&lake, "exp", 10..20).await.unwrap();
        append(&lake, "main", 100..103).await.unwrap();
        assert_eq!(all(&lake, &branch("exp")).await.unwrap(), rows(0..20));
        assert_eq!(all(&lake, &branch("main")).await.unwrap(), rows((0..10).chain(100..103)));
        assert_eq!(lake.branches().await.unwrap(), ["exp", "main"]);
        let log = lake.log(&branch("exp"), 100).await.unwrap();
        let messages: Vec<_> = log.iter().map(|commit| commit.message.as_str()).collect();
        assert_eq!(messages, ["rows 10..20", "rows 0..10", "create table", "create lake"]);
        assert_eq!(lake.log(&branch("exp"), 2).await.unwrap().len(), 2);
        let error = lake.create_branch("exp", &At::default()).await.unwrap_err();
        assert!(matches!(error, Error::BranchExists { .. }), "{error}");
    });
}

#[test]
fn a_tag_never_moves() {
    block_on(async {
        let (_folder, storage) = temporary();
        let lake = lake(storage, &[0..10]).await.unwrap();
        lake.create_tag("v1", &At::default(), "tester").await.unwrap();
        append(&lake, "main", 10..20).await.unwrap();
        assert_eq!(all(&lake, &At::Tag("v1".into())).await.unwrap(), rows(0..10));
        let error = lake.create_tag("v1", &At::default(), "tester").await.unwrap_err();
        assert!(matches!(error, Error::TagExists { .. }), "{error}");
        assert_eq!(lake.tags().await.unwrap(), ["v1"]);
    });
}

#[test]
fn a_commit_that_lost_the_race_is_rebased_and_both_appends_stay() {
    block_on(async {
        let (_folder, storage) = temporary();
        let lake = lake(storage, &[0..10]).await.unwrap();
        let mut slow = lake.begin("main").await.unwrap();
        write(&mut slow, &rows(10..20)).await.unwrap();
        append(&lake, "main", 20..30).await.unwrap();
        append(&lake, "main", 30..40).await.unwrap();
        slow.commit("slow", "tester").await.unwrap();
        assert_eq!(all(&lake, &At::default()).await.unwrap(), rows((0..10).chain(20..40).chain(10..20)));
    });
}

#[test]
fn rows_for_a_table_made_twice_are_refused_and_nothing_is_committed() {
    block_on(async {
        let (_folder, storage) = temporary();
        let lake = Lake::create(storage).await.unwrap();
        let mut first = lake.begin("main").await.unwrap();
        let mut second = lake.begin("main").await.unwrap();
        first.create_table("main", schema()).unwrap();
        second.create_table("main", schema()).unwrap();
        write(&mut second, &rows(0..5)).await.unwrap();
        first.commit("first", "tester").await.unwrap();
        let error = second.commit("second", "tester").await.unwrap_err();
        assert!(matches!(error, Error::TableExists { .. }), "{error}");
        assert_eq!(all(&lake, &At::default()).await.unwrap(), []);
    });
}

#[test]
fn nothing_uncommitted_is_seen() {
    block_on(async {
        let (_folder, storage) = temporary();
        let lake = lake(storage, &[0..10]).await.unwrap();
        let mut transaction = lake.begin("main").await.unwrap();
        write(&mut transaction, &rows(10..20)).await.unwrap();
        assert_eq!(all(&lake, &At::default()).await.unwrap(), rows(0..10));
        drop(transaction);
        assert_eq!(all(&lake, &At::default()).await.unwrap(), rows(0..10));
    });
}

#[test]
fn wrong_names_and_places_are_named_in_the_error() {
    block_on(async {
        let (folder, storage) = temporary();
        let error = Lake::open(storage.clone()).await.unwrap_err();
        assert!(matches!(&error, Error::NotALake { url } if url.contains(folder.path().to_str().unwrap())), "{error}");
        let lake = lake(storage.clone(), &[0..1]).await.unwrap();
        assert!(matches!(Lake::create(storage).await, Err(Error::LakeExists { .. })));
        let error = lake.snapshot(&branch("mian")).await.unwrap_err();
        assert!(matches!(&error, Error::UnknownBranch { known, .. } if known == &["main"]), "{error}");
        assert!(matches!(lake.snapshot(&At::Tag("v9".into())).await, Err(Error::UnknownTag { .. })));
        let id = CommitId::random();
        assert!(matches!(lake.snapshot(&At::Commit(id)).await, Err(Error::UnknownCommit { .. })));
        let error = lake.snapshot(&At::default()).await.unwrap().table("images").await.unwrap_err();
        assert!(matches!(&error, Error::UnknownTable { known, .. } if known == &["main"]), "{error}");
        for name in ["", ".", "a/b", "a b", "..", "é", &"x".repeat(201)] {
            let error = lake.create_branch(name, &At::default()).await.unwrap_err();
            assert!(matches!(error, Error::InvalidName { .. }), "{name}: {error}");
        }
        let error = lake.begin("main").await.unwrap().commit("empty", "tester").await.unwrap_err();
        assert!(matches!(error, Error::NothingToCommit { .. }), "{error}");
    });
}

#[test]
fn rows_that_do_not_fit_are_refused_whole() {
    use forebay_format::{ColumnData, ColumnSlice, OwnedValues};
    block_on(async {
        let (_folder, storage) = temporary();
        let lake = lake(storage, &[]).await.unwrap();
        let transaction = lake.begin("main").await.unwrap();
        let mut writer = transaction.writer("main").await.unwrap();
        let mut columns = crate::support::columns(&rows(0..4));
        columns[2].values = OwnedValues::Fixed(vec![0; 23]);
        let slices: Vec<ColumnSlice<'_>> = columns.iter().map(ColumnData::as_slice).collect();
        let error = writer.push(&slices).unwrap_err().to_string();
        assert!(error.contains("pixels") && error.contains("23"), "{error}");
        assert!(writer.push(&slices[..2]).unwrap_err().to_string().contains("2 columns"));
        assert_eq!(writer.finish().unwrap().rows(), 0);
    });
}

#[test]
fn a_selection_counts_its_rows_and_equal_selections_have_equal_digests() {
    block_on(async {
        let (_folder, storage) = temporary();
        let lake = lake(storage, &[0..50, 50..100]).await.unwrap();
        let table = lake.snapshot(&At::default()).await.unwrap().table("main").await.unwrap();
        let runs = Selection::new(table.clone(), Rows::Runs([3..5, 9..10, 40..60].into())).unwrap();
        let list: Vec<u64> = (0..runs.len()).map(|index| runs.row(index).unwrap()).collect();
        assert_eq!(list, [3, 4, 9].into_iter().chain(40..60).collect::<Vec<_>>());
        assert!(runs.row(23).is_err());
        assert!(Selection::new(table.clone(), Rows::Runs([3..5, 4..6].into())).is_err());
        assert!(Selection::new(table.clone(), Rows::Runs([90..101].into())).is_err());
        assert!(Selection::new(table.clone(), Rows::List([100].into())).is_err());
        let again = Selection::new(table.clone(), Rows::Runs([3..5, 9..10, 40..60].into())).unwrap();
        assert_eq!(runs.digest(), again.digest());
        assert_ne!(runs.digest(), Selection::all(table.clone()).digest());
        assert_ne!(runs.digest(), Selection::new(table, Rows::List(list.into())).unwrap().digest());
    });
}

#[test]
fn an_append_writes_a_bounded_amount_of_metadata_however_many_fragments_there_are() {
    block_on(async {
        let (folder, storage) = temporary();
        let lake = lake(storage, &[]).await.unwrap();
        let size = || -> u64 {
            let files = std::fs::read_dir(folder.path().join("meta")).unwrap();
            files.map(|file| file.unwrap().metadata().unwrap().len()).sum()
        };
        let (mut before, mut most) = (size(), 0);
        for id in 0..400 {
            append(&lake, "main", id..id + 1).await.unwrap();
            let now = size();
            most = most.max(now - before);
            before = now;
        }
        assert!(most <= 320 << 10, "{most} bytes of metadata in one commit");
        let reopened = Lake::open(lake.storage().clone()).await.unwrap();
        assert_eq!(all(&reopened, &At::default()).await.unwrap(), rows(0..400));
    });
}
