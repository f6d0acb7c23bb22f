//! What is said of statements that can't be run.

use forebay_versioning::At;

use crate::support::{session, with};

#[tokio::test]
async fn an_error_has_a_place_and_a_hint() {
    let mut lake = with("CREATE TABLE photos (id INT, label INT, \"Größe\" REAL)").await;
    assert_eq!(lake.error("SELECT lable\nFROM photos").await, "line 1, column 8: no column lable; did you mean label");
    assert_eq!(lake.error("SELECT *\nFROM phots").await, "line 2, column 6: no table phots; did you mean photos");
    assert_eq!(lake.error("SELECT größe FROM photos").await, "line 1, column 8: no column größe; did you mean Größe");
    assert_eq!(
        lake.error("INSERT INTO photos (id, lable) VALUES (1, 2)").await,
        "line 1, column 25: no column lable; did you mean label"
    );
    assert_eq!(
        lake.error("UPDATE photos SET lable = 1").await,
        "line 1, column 19: no column lable; did you mean label"
    );
    assert_eq!(
        lake.error("SELECT * FROM photos AT 'mian'").await,
        "line 1, column 25: 'mian' is no branch, tag, commit or timestamp; did you mean main"
    );
    assert!(lake.error("SELEC 1").await.starts_with("line 1, column 1: "));
    assert!(
        lake.error("CREATE TABLE x (a GEOMETRY)").await.starts_with("line 1, column 17: column a: there is no type")
    );
}

#[tokio::test]
async fn values_that_do_not_fit_name_their_column() {
    let mut lake = with("CREATE TABLE t (a INT NOT NULL, b TINYINT, c VECTOR(2))").await;
    assert!(lake.error("INSERT INTO t VALUES (NULL, 1, NULL)").await.contains("column 'a': row 0 is null"));
    assert!(lake.error("INSERT INTO t VALUES (1, 300, NULL)").await.contains("column 'b'"));
    assert!(lake.error("INSERT INTO t VALUES (1.5, 1, NULL)").await.contains("column 'a': a value is no whole number"));
    assert!(lake.error("INSERT INTO t VALUES (1, 1, [1, 2, 3])").await.contains("column 'c'"));
    assert!(lake.error("INSERT INTO t (b) VALUES (1)").await.contains("column 'a': it is declared NOT NULL"));
    assert_eq!(lake.rows("SELECT count(*) FROM t").await, ["0"]);
}

#[tokio::test]
async fn only_a_branch_can_be_changed() {
    let lake = with("CREATE TABLE t (a INT); CREATE TAG v1").await;
    let mut tagged = session(&lake.lake, At::Tag("v1".into())).await;
    let done = tagged.execute("INSERT INTO t VALUES (1)", &forebay_sql::Given::default()).await;
    assert_eq!(done.map(|_| ()).unwrap_err().to_string(), "tag 'v1' never changes: open a branch to change it");
}

#[tokio::test]
async fn no_statement_touches_a_file_that_the_caller_did_not_allow() {
    let mut lake = with("CREATE TABLE t (a INT); INSERT INTO t VALUES (1)").await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.csv");
    assert!(lake.error(&format!("COPY t TO '{}'", path.display())).await.contains("none was allowed"));
    for text in [
        "CREATE EXTERNAL TABLE x STORED AS CSV LOCATION '/etc/passwd'",
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM \"/etc/passwd\"",
        "COPY t TO PROGRAM 'sh'",
        "SET datafusion.execution.batch_size = 1",
        "CREATE FUNCTION f() RETURNS INT RETURN 1",
    ] {
        lake.error(text).await;
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn files_are_copied_below_the_allowed_folder() {
    let mut lake = with("CREATE TABLE t (a INT, b TEXT); INSERT INTO t VALUES (1, 'x,y'), (2, NULL)").await;
    let folder = tempfile::tempdir().unwrap();
    let mut options = forebay_sql::Options::default();
    options.files = Some(folder.path().to_owned());
    lake.session = forebay_sql::Session::new(At::default(), lake.session.snapshot().clone(), options).unwrap();
    for file in ["t.parquet", "t.csv", "t.jsonl"] {
        assert_eq!(lake.run(&format!("COPY t TO '{file}'; ")).await, 2);
        assert_eq!(lake.run(&format!("CREATE TABLE copy (a INT, b TEXT); COPY copy FROM '{file}'")).await, 2);
        assert_eq!(lake.rows("SELECT * FROM copy").await, ["1 x,y", "2 null"], "{file}");
        lake.run("DROP TABLE copy").await;
    }
    assert_eq!(lake.run("COPY (SELECT a FROM t WHERE a > 1) TO 'some.csv'").await, 1);
    assert!(lake.error("COPY t TO '../t.csv'").await.contains("it is not below"));
    let outside = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(outside.path(), folder.path().join("link")).unwrap();
    assert!(lake.error("COPY t TO 'link/t.csv'").await.contains("it is not below"));
}
