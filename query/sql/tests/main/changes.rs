//! INSERT, UPDATE, DELETE and what makes and changes tables.

use forebay_versioning::At;

use crate::support::{session, with};

#[tokio::test]
async fn every_change_is_a_commit_and_older_commits_stay() {
    let mut lake = with("CREATE TABLE t (id INT, name TEXT)").await;
    assert_eq!(lake.run("INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c')").await, 3);
    lake.run("CREATE TAG three").await;
    assert_eq!(lake.run("UPDATE t SET name = upper(name), id = id * 10 WHERE id >= 2").await, 2);
    assert_eq!(lake.rows("SELECT * FROM t").await, ["1 a", "20 B", "30 C"]);
    assert_eq!(lake.run("DELETE FROM t WHERE name = 'B'").await, 1);
    assert_eq!(lake.rows("SELECT * FROM t").await, ["1 a", "30 C"]);
    assert_eq!(lake.rows("SELECT * FROM t AT 'three'").await, ["1 a", "2 b", "3 c"]);
    let log: Vec<String> =
        lake.lake.log(&At::default(), 10).await.unwrap().into_iter().map(|commit| commit.message).collect();
    assert_eq!(
        log,
        ["delete 1 rows of t", "update 2 rows of t", "insert 3 rows of t", "create table t", "create lake"]
    );
    // What changes nothing makes no commit.
    assert_eq!(lake.run("DELETE FROM t WHERE id > 99").await, 0);
    assert_eq!(lake.lake.log(&At::default(), 10).await.unwrap().len(), 5);
}

#[tokio::test]
async fn updates_take_values_from_other_tables() {
    let mut lake = with(
        "CREATE TABLE t (id INT, v INT); INSERT INTO t VALUES (1, 0), (2, 0), (3, 0);
         CREATE TABLE news (id INT, v INT); INSERT INTO news VALUES (2, 5), (3, 6)",
    )
    .await;
    assert_eq!(lake.run("UPDATE t SET v = news.v + t.id FROM news WHERE t.id = news.id").await, 2);
    assert_eq!(lake.rows("SELECT * FROM t").await, ["1 0", "2 7", "3 9"]);
    lake.run("INSERT INTO news VALUES (2, 50)").await;
    assert!(lake.error("UPDATE t SET v = news.v FROM news WHERE t.id = news.id").await.contains("updated twice"));
    assert_eq!(lake.run("DELETE FROM t USING news WHERE t.id = news.id").await, 2);
    assert_eq!(lake.rows("SELECT * FROM t").await, ["1 0"]);
}

#[tokio::test]
async fn serials_count_and_keys_are_unique() {
    let mut lake = with("CREATE TABLE t (id SERIAL PRIMARY KEY, name TEXT)").await;
    lake.run("INSERT INTO t (name) VALUES ('a'), ('b'); INSERT INTO t (name) SELECT 'c'").await;
    assert_eq!(lake.rows("SELECT * FROM t").await, ["1 a", "2 b", "3 c"]);
    assert!(lake.error("INSERT INTO t VALUES (2, 'again')").await.contains("has the same id as another row"));
    // Two sessions that both start from three rows get different numbers.
    let (mut one, mut two) = (session(&lake.lake, At::default()).await, session(&lake.lake, At::default()).await);
    let given = forebay_sql::Given::default();
    let insert = "INSERT INTO t (name) VALUES ('x')";
    let (one, two) = tokio::join!(one.execute(insert, &given), two.execute(insert, &given));
    assert!(one.is_ok() && two.is_ok());
    lake.run("INSERT INTO t (name) VALUES ('last')").await;
    assert_eq!(lake.rows("SELECT id FROM t ORDER BY id").await, ["1", "2", "3", "4", "5", "6"]);
}

#[tokio::test]
async fn tables_and_columns_come_and_go() {
    let mut lake =
        with("CREATE TABLE t (id INT NOT NULL); INSERT INTO t VALUES (1), (2); CREATE TABLE IF NOT EXISTS t (x INT)")
            .await;
    lake.run("ALTER TABLE t ADD COLUMN name TEXT DEFAULT 'none'; ALTER TABLE t ADD COLUMN v VECTOR(2)").await;
    lake.run("INSERT INTO t VALUES (3, 'three', [1, 2])").await;
    assert_eq!(lake.rows("SELECT * FROM t").await, ["1 none null", "2 none null", "3 three [1.0, 2.0]"]);
    lake.run("ALTER TABLE t RENAME COLUMN name TO label; ALTER TABLE t DROP COLUMN v; ALTER TABLE t RENAME TO u").await;
    assert_eq!(lake.rows("SELECT label FROM u WHERE id = 3").await, ["three"]);
    lake.run("CREATE TABLE copy AS SELECT id * 2 AS double, label FROM u WHERE id > 1").await;
    assert_eq!(lake.rows("SELECT * FROM copy").await, ["4 none", "6 three"]);
    assert_eq!(lake.rows("SHOW TABLES").await, ["copy 2", "u 3"]);
    lake.run("DROP TABLE copy; DROP TABLE IF EXISTS nothing").await;
    assert_eq!(lake.rows("DESCRIBE u").await, ["id int32  Int32 false false", "label utf8  LargeUtf8 true false"]);
}

#[tokio::test]
async fn a_transaction_sees_itself_and_shows_all_at_once_or_nothing() {
    let mut lake = with("CREATE TABLE t (id INT); INSERT INTO t VALUES (1)").await;
    lake.run("BEGIN; INSERT INTO t VALUES (2); UPDATE t SET id = id + 10").await;
    assert_eq!(lake.rows("SELECT * FROM t").await, ["11", "12"]);
    let mut other = crate::support::Fixture {
        session: session(&lake.lake, At::default()).await,
        lake: lake.lake.clone(),
        store: lake.store.clone(),
    };
    assert_eq!(other.rows("SELECT * FROM t").await, ["1"]);
    assert_eq!(lake.rows("SHOW BRANCHES").await, ["main"]);
    lake.run("COMMIT").await;
    assert_eq!(lake.rows("SELECT * FROM t").await, ["11", "12"]);
    lake.run("BEGIN; DELETE FROM t; ROLLBACK").await;
    assert_eq!(lake.rows("SELECT * FROM t").await, ["11", "12"]);
    assert_eq!(lake.lake.branches().await.unwrap(), ["main"]);
}

#[tokio::test]
async fn a_lost_update_is_a_conflict() {
    let mut lake = with("CREATE TABLE t (id INT, n INT); INSERT INTO t VALUES (1, 0)").await;
    lake.run("CREATE BRANCH b").await;
    let mut branch = crate::support::Fixture {
        session: session(&lake.lake, At::Branch("b".into())).await,
        lake: lake.lake.clone(),
        store: lake.store.clone(),
    };
    branch.run("UPDATE t SET n = 5").await;
    lake.run("UPDATE t SET n = 7").await;
    assert!(lake.error("MERGE BRANCH b").await.contains("conflict"));
    branch.run("UPDATE t SET n = 7; INSERT INTO t VALUES (2, 2)").await;
    lake.run("MERGE BRANCH b").await;
    assert_eq!(lake.rows("SELECT * FROM t").await, ["1 7", "2 2"]);
}
