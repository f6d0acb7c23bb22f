//! The nearest vectors: through indexes, and by the columns of an order alone.

use forebay_sql::{Given, Parameter};

use crate::support::{Fixture, given, session, with};

const LENGTH: usize = 16;

/// A number that looks random.
fn noise(of: u64) -> f32 {
    let mut bits = of.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    bits ^= bits >> 32;
    bits = bits.wrapping_mul(0xBF58_476D_1CE4_E5B9);
    (bits >> 40) as f32 / (1 << 24) as f32 - 0.5
}

/// Vector `row`, near one of 20 places.
fn vector(row: u64) -> Vec<f32> {
    let place = row % 20;
    (0..LENGTH as u64).map(|at| 4.0 * noise(place * 100 + at) + noise(1_000_000 + row * 100 + at)).collect()
}

fn literal(vector: &[f32]) -> String {
    let numbers: Vec<String> = vector.iter().map(|value| format!("{value:?}")).collect();
    format!("[{}]", numbers.join(", "))
}

async fn append(lake: &mut Fixture, rows: std::ops::Range<u64>) {
    let values: Vec<String> = rows.map(|row| format!("({row}, {}, {})", row % 7, literal(&vector(row)))).collect();
    lake.run(&format!("INSERT INTO items VALUES {}", values.join(", "))).await;
}

/// 600 vectors in three fragments, indexed.
async fn indexed() -> Fixture {
    let mut lake = with("CREATE TABLE items (id INT, label INT, v VECTOR(16))").await;
    for start in [0, 200, 400] {
        append(&mut lake, start..start + 200).await;
    }
    assert_eq!(lake.run("CREATE INDEX near ON items USING ivf (v) WITH (lists = 20, probes = 3)").await, 600);
    lake
}

fn asked(query: &[f32], probes: Option<usize>) -> Given {
    let list = query.iter().map(|value| Parameter::Float(f64::from(*value))).collect();
    Given { probes, ..given(&[Parameter::List(list)]) }
}

/// The nearest rows by a plain loop.
fn plain(rows: impl Iterator<Item = u64>, query: &[f32], count: usize) -> Vec<String> {
    let distance = |row: u64| -> f64 { vector(row).iter().zip(query).map(|(a, b)| f64::from((a - b) * (a - b))).sum() };
    let mut rows: Vec<(f64, u64)> = rows.map(|row| (distance(row), row)).collect();
    rows.sort_by(|a, b| a.0.total_cmp(&b.0));
    rows.into_iter().take(count).map(|(_, row)| row.to_string()).collect()
}

async fn plan(lake: &mut Fixture, text: &str, given: &Given) -> String {
    lake.rows_with(&format!("EXPLAIN {text}"), given).await.join("\n")
}

const NEAREST: &str = "SELECT id FROM items ORDER BY v <-> $1 LIMIT 10";

#[tokio::test]
async fn an_index_finds_what_a_loop_finds() {
    let mut lake = indexed().await;
    let mut same = 0;
    for number in 0..20 {
        let query = vector(10_000 + number);
        let found = lake.rows_with(NEAREST, &asked(&query, None)).await;
        let exact = plain(0..600, &query, 10);
        same += found.iter().filter(|row| exact.contains(row)).count();
        // All cells are all rows.
        assert_eq!(lake.rows_with(NEAREST, &asked(&query, Some(20))).await, exact);
    }
    assert!(same >= 190, "recall {same} of 200");
    let plan = plan(&mut lake, NEAREST, &asked(&vector(1), None)).await;
    assert!(plan.contains("through index near (3 probes)"), "{plan}");
}

#[tokio::test]
async fn an_index_is_read_instead_of_the_table() {
    let mut lake = with(
        "CREATE TABLE long (id INT, v VECTOR(1024));
         INSERT INTO long SELECT value, array_repeat(sin(value), 1024) FROM generate_series(0, 1999) AS t(value);
         CREATE INDEX near ON long USING ivf (v) WITH (lists = 40)",
    )
    .await;
    let query = Given { probes: Some(1), ..Given::default() };
    let text = "SELECT id FROM long ORDER BY v <-> array_repeat(0.25, 1024) LIMIT 5";
    let near = lake.rows_with(text, &query).await;
    let before = lake.read();
    assert_eq!(lake.rows_with(text, &query).await, near);
    let searched = lake.read() - before;
    let before = lake.read();
    let exact = "SELECT id FROM long ORDER BY v <-> array_repeat(0.25, 1024), id LIMIT 5";
    assert_eq!(lake.rows_with(exact, &query).await, near);
    let looked = lake.read() - before;
    assert!(searched * 5 < looked, "{searched} bytes through the index and {looked} without it");
}

#[tokio::test]
async fn what_an_index_does_not_cover_is_compared() {
    let mut lake = indexed().await;
    append(&mut lake, 600..650).await;
    for row in [601_u64, 3, 250] {
        assert_eq!(lake.rows_with(NEAREST, &asked(&vector(row), None)).await[0], row.to_string());
    }
    assert_eq!(lake.rows("SHOW INDEXES").await, ["near items v 3/4"]);
    assert_eq!(lake.run("REINDEX near").await, 50);
    assert_eq!(lake.rows("SHOW INDEXES").await, ["near items v 4/4"]);
    assert_eq!(lake.run("REINDEX near").await, 0);
    assert_eq!(lake.rows_with(NEAREST, &asked(&vector(601), None)).await[0], "601");
    // Deleted rows are not found, moved ones where they are now.
    lake.run("DELETE FROM items WHERE id = 601").await;
    assert_ne!(lake.rows_with(NEAREST, &asked(&vector(601), None)).await[0], "601");
    lake.run(&format!("UPDATE items SET v = {} WHERE id = 5", literal(&vector(601)))).await;
    assert_eq!(lake.rows_with(NEAREST, &asked(&vector(601), None)).await[0], "5");
    assert_ne!(lake.rows_with(NEAREST, &asked(&vector(5), None)).await[0], "5");
}

#[tokio::test]
async fn filters_hold_before_the_nearest_are_chosen() {
    let mut lake = indexed().await;
    for number in 0..10 {
        let query = vector(20_000 + number);
        let text = "SELECT id FROM items WHERE label = 3 ORDER BY v <-> $1 LIMIT 10";
        let found = lake.rows_with(text, &asked(&query, Some(20))).await;
        assert_eq!(found, plain((0..600).filter(|row| row % 7 == 3), &query, 10));
        // So few rows pass that those of some cells are not enough.
        let text = "SELECT id FROM items WHERE id % 100 = 7 ORDER BY v <-> $1 LIMIT 5";
        let found = lake.rows_with(text, &asked(&query, Some(1))).await;
        assert_eq!(found, plain((0..600).filter(|row| row % 100 == 7), &query, 5));
        assert_eq!(
            lake.rows_with("SELECT id FROM items WHERE id < 0 ORDER BY v <-> $1 LIMIT 5", &asked(&query, None)).await,
            [""; 0]
        );
    }
}

#[tokio::test]
async fn a_search_for_a_vector_handed_in_is_planned_in_short_and_what_is_more_as_ever() {
    let mut lake = with("CREATE TABLE long (id INT, v VECTOR(20))").await;
    for part in 0..4 {
        let row = |id: u32| format!("({id}, {})", literal(&[(id * 37 % 401) as f32; 20]));
        let rows: Vec<String> = (part * 100..part * 100 + 100).map(row).collect();
        lake.run(&format!("INSERT INTO long VALUES {}", rows.join(", "))).await;
    }
    lake.run("CREATE INDEX near ON long USING ivf (v) WITH (lists = 8, probes = 8)").await;
    let query = given(&[Parameter::List(vec![Parameter::Float(140.2); 20])]);
    let order = "FROM long ORDER BY v <-> $1 LIMIT 5";
    let short = plan(&mut lake, &format!("SELECT id {order}"), &query).await;
    // Of two partitions, which other plans of this table have on two cores, something would have to be merged.
    assert!(short.contains("through index near") && !short.contains("MergeExec"), "{short}");
    let exact = lake.rows_with("SELECT id FROM long ORDER BY (v <-> $1) + 0, id LIMIT 5", &query).await;
    let found = lake.rows_with(&format!("SELECT id {order}"), &query).await;
    let more = format!("SELECT id + (SELECT count(*) FROM long WHERE id < 0) {order}");
    assert!(plan(&mut lake, &more, &query).await.contains("ScalarSubqueryExec"));
    assert_eq!(lake.rows_with(&more, &query).await, found);
    assert_eq!(found, exact);
}

#[tokio::test]
async fn rows_without_a_vector_come_last_and_are_not_lost() {
    let mut lake = with("CREATE TABLE items (id INT, label INT, v VECTOR(2)); INSERT INTO items VALUES (1, 0, [0, 1]), (2, 0, NULL), (3, 0, [5, 5])").await;
    lake.run("CREATE INDEX near ON items USING ivf (v)").await;
    assert_eq!(lake.rows("SELECT id FROM items ORDER BY v <-> [4, 4] LIMIT 2").await, ["3", "1"]);
    assert_eq!(lake.rows("SELECT id FROM items ORDER BY v <-> [4, 4] LIMIT 9").await, ["3", "1", "2"]);
    assert_eq!(lake.rows("SELECT id FROM items ORDER BY v <=> [1, 1] LIMIT 1").await, ["3"]);
    assert_eq!(lake.rows("SELECT id FROM items ORDER BY v <#> [0, 1] LIMIT 1").await, ["3"]);
    let empty = with("CREATE TABLE items (v VECTOR(2)); CREATE INDEX near ON items USING ivf (v)").await;
    let mut lake = empty;
    assert_eq!(lake.rows("SELECT * FROM items ORDER BY v <-> [0, 0] LIMIT 1").await, [""; 0]);
    lake.run("INSERT INTO items VALUES ([1, 2])").await;
    assert_eq!(lake.rows("SELECT * FROM items ORDER BY v <-> [0, 0] LIMIT 1").await, ["[1.0, 2.0]"]);
}

#[tokio::test]
async fn vectors_that_are_handed_in_are_told_apart() {
    let mut lake = with("CREATE TABLE items (id INT, v VECTOR(20))").await;
    lake.run(&format!("INSERT INTO items VALUES (1, {}), (2, {})", literal(&[0.0; 20]), literal(&[1.0; 20]))).await;
    let vector =
        |last: f64| Parameter::List((0..20).map(|at| Parameter::Float(if at < 19 { 0.0 } else { last })).collect());
    let asked = given(&[vector(3.0), vector(4.0)]);
    let text = "SELECT v <-> $1, l2_distance($2, v), $1 = $2, $1 <-> $2 FROM items WHERE id = 1 ORDER BY v <-> $2";
    assert_eq!(lake.rows_with(text, &asked).await, ["3.0 4.0 false 1.0"]);
    assert!(lake.error("SELECT v <-> '[1, 2]' FROM items").await.contains("a text is no vector"));
}

#[tokio::test]
async fn branches_have_their_own_indexes_and_merges_join_them() {
    let mut lake = indexed().await;
    lake.run("CREATE BRANCH side").await;
    append(&mut lake, 600..620).await;
    lake.run("REINDEX near").await;
    let mut side = session(&lake.lake, forebay_versioning::At::Branch("side".into())).await;
    std::mem::swap(&mut lake.session, &mut side);
    append(&mut lake, 700..720).await;
    lake.run("REINDEX near").await;
    assert_eq!(lake.rows("SHOW INDEXES").await, ["near items v 4/4"]);
    assert_eq!(lake.rows_with(NEAREST, &asked(&vector(705), None)).await[0], "705");
    assert_ne!(lake.rows_with(NEAREST, &asked(&vector(605), None)).await[0], "605");
    std::mem::swap(&mut lake.session, &mut side);
    lake.run("MERGE BRANCH side").await;
    assert_eq!(lake.rows("SHOW INDEXES").await, ["near items v 5/5"]);
    for row in [605, 705, 5] {
        assert_eq!(lake.rows_with(NEAREST, &asked(&vector(row), None)).await[0], row.to_string());
    }
    // As it was before the index.
    let old = lake.rows_with("SELECT count(*) FROM items AT 'side'", &Given::default()).await;
    assert_eq!(old, ["620"]);
}

#[tokio::test]
async fn indexes_are_dropped_with_what_they_are_of() {
    let mut lake = indexed().await;
    assert_eq!(lake.rows("SHOW TABLES").await, ["items 600"]);
    lake.run("ALTER TABLE items RENAME TO things; ALTER TABLE things RENAME COLUMN v TO w").await;
    assert_eq!(lake.rows("SHOW INDEXES").await, ["near things w 3/3"]);
    for (text, why) in [
        ("CREATE INDEX near ON things USING ivf (w)", "there is an index near already"),
        ("CREATE INDEX n ON things USING ivf (label)", "has no vectors"),
        ("CREATE INDEX n ON things USING btree (label)", "USING ivf"),
        ("CREATE INDEX n ON things USING ivf (w) WITH (lists = 0)", "from 1 to 65536"),
        ("CREATE INDEX n ON things USING ivf (w) WITH (trees = 3)", "lists and probes"),
        ("CREATE INDEX n ON things USING ivf (x)", "no column x"),
        ("REINDEX far", "no index far"),
        ("DROP INDEX far", "no index far"),
    ] {
        let error = lake.error(text).await;
        assert!(error.contains(why), "{text}: {error}");
    }
    lake.run("CREATE INDEX IF NOT EXISTS near ON things USING ivf (w); DROP INDEX near; DROP INDEX IF EXISTS near")
        .await;
    assert_eq!(lake.rows("SHOW INDEXES").await, [""; 0]);
    lake.run("CREATE INDEX near ON things USING ivf (w); ALTER TABLE things DROP COLUMN w").await;
    lake.run(
        "ALTER TABLE things ADD COLUMN w VECTOR(16); CREATE INDEX near ON things USING ivf (w); DROP TABLE things",
    )
    .await;
    assert_eq!(lake.session.snapshot().tables(), [""; 0]);
}

#[tokio::test]
async fn the_first_rows_of_an_order_are_found_by_its_columns_alone() {
    let mut lake = with(
        "CREATE TABLE wide (id INT, score REAL, pixels TENSOR(uint8, 100, 100));
         INSERT INTO wide SELECT value, sin(value), repeat_pixels FROM (SELECT value, array_repeat(value % 200, 10000) AS repeat_pixels
             FROM generate_series(0, 299) AS t(value));",
    )
    .await;
    let text = "SELECT id, pixels FROM wide WHERE id <> 8 ORDER BY score DESC LIMIT 3";
    let plan = plan(&mut lake, text, &Given::default()).await;
    assert!(plan.contains("first 3 by [score"), "{plan}");
    let before = lake.read();
    let ids: Vec<String> =
        lake.rows(text).await.iter().map(|row| row.split(' ').next().unwrap_or_default().to_owned()).collect();
    let bytes = lake.read() - before;
    let mut all: Vec<(f64, u32)> = (0..300).filter(|id| *id != 8).map(|id| (f64::from(id).sin(), id)).collect();
    all.sort_by(|a, b| b.0.total_cmp(&a.0));
    let exact: Vec<String> = all[..3].iter().map(|(_, id)| id.to_string()).collect();
    assert_eq!(ids, exact);
    assert!(bytes < 3_000_000 / 2, "{bytes} bytes were read");
    // Ties are broken by the row, however many threads look; nulls and descending orders as everywhere.
    assert_eq!(
        lake.rows("SELECT id FROM (SELECT id, pixels FROM wide ORDER BY id / 1000, id % 2 LIMIT 4)").await.len(),
        4
    );
}

#[tokio::test]
async fn a_failed_index_leaves_nothing() {
    let mut lake = with("CREATE TABLE items (id INT, v VECTOR(2)); INSERT INTO items VALUES (1, [0, 1])").await;
    let before = lake.session.snapshot().id();
    let gone = lake.session.execute("CREATE INDEX a ON items USING ivf (id)", &Given::default()).await;
    assert!(gone.is_err());
    assert_eq!(lake.lake.snapshot(&forebay_versioning::At::default()).await.unwrap().id(), before);
}
