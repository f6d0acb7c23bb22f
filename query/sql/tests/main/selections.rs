//! Queries whose rows are rows of a table.

use forebay_sql::{Chosen, Given};

use crate::support::{Fixture, with};

const ITEMS: &str = "
    CREATE TABLE items (id INT, label INT, pixels TENSOR(uint8, 4));
    INSERT INTO items SELECT value, value % 3, [value % 200, 0, 0, 0] FROM generate_series(0, 9) AS t(value);
    INSERT INTO items SELECT value, value % 3, [value % 200, 0, 0, 0] FROM generate_series(10, 19) AS t(value);
    DELETE FROM items WHERE id = 4;
    CREATE TABLE names (label INT, name TEXT);
    INSERT INTO names VALUES (0, 'zero'), (1, 'one'), (1, 'uno')";

async fn select(lake: &mut Fixture, text: &str) -> Chosen {
    lake.session
        .select(text, &Given { seed: Some(1), ..Given::default() })
        .await
        .unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[tokio::test]
async fn a_filter_selects_rows_by_number() {
    let mut lake = with(ITEMS).await;
    let chosen = select(&mut lake, "SELECT * FROM items WHERE label = 1").await;
    assert_eq!((chosen.rows.as_slice(), chosen.columns, chosen.ordered), (&[1, 6, 9, 12, 15, 18][..], None, false));
    let chosen = select(&mut lake, "SELECT i.id, pixels FROM items AS i WHERE id > 15 ORDER BY id DESC LIMIT 2").await;
    assert_eq!(chosen.rows, [18, 17]);
    assert_eq!(chosen.columns, Some(vec!["id".to_owned(), "pixels".to_owned()]));
    assert!(chosen.ordered);
}

#[tokio::test]
async fn a_join_selects_rows_once_for_each_match() {
    let mut lake = with(ITEMS).await;
    let chosen = select(&mut lake, "SELECT items.* FROM items JOIN names USING (label) WHERE id IN (0, 1, 2)").await;
    assert_eq!(chosen.rows, [0, 1, 1]);
    let chosen = select(
        &mut lake,
        "SELECT id FROM items WHERE label IN (SELECT label FROM names WHERE name = 'uno') AND id < 8",
    )
    .await;
    assert_eq!(chosen.rows, [1, 6]);
}

#[tokio::test]
async fn order_by_random_is_a_shuffle_and_with_a_limit_a_sample() {
    let mut lake = with(ITEMS).await;
    let chosen = select(&mut lake, "SELECT * FROM items ORDER BY RANDOM()").await;
    assert!(chosen.shuffle && !chosen.ordered && chosen.rows == (0..19).collect::<Vec<_>>());
    let sample = select(&mut lake, "SELECT * FROM items ORDER BY random() LIMIT 5").await;
    assert!(!sample.shuffle && sample.ordered && sample.rows.len() == 5);
    assert_eq!(select(&mut lake, "SELECT * FROM items ORDER BY random() LIMIT 5").await.rows, sample.rows);
    let some = select(&mut lake, "SELECT * FROM items WHERE random() < 0.5").await;
    assert!((3..17).contains(&some.rows.len()), "{:?}", some.rows);
    let sampled = select(&mut lake, "SELECT * FROM items TABLESAMPLE BERNOULLI (50) WHERE id > 3").await;
    assert!(!sampled.rows.is_empty() && sampled.rows.len() < 15, "{:?}", sampled.rows);
    assert_eq!(
        select(&mut lake, "SELECT * FROM items TABLESAMPLE BERNOULLI (50) WHERE id > 3").await.rows,
        sampled.rows
    );
    assert!(select(&mut lake, "SELECT * FROM items TABLESAMPLE BERNOULLI (0)").await.rows.is_empty());
    // Rows of label 0 have no weight.
    let weighted = select(&mut lake, "SELECT * FROM items SAMPLE BY label * 10 LIMIT 100").await.rows;
    assert_eq!(weighted.len(), 12, "{weighted:?}");
    assert!(weighted.iter().all(|row| ![0, 3, 5, 8, 11, 14, 17].contains(row)), "{weighted:?}");
}

#[tokio::test]
async fn row_numbers_can_be_named_and_are_no_part_of_a_star() {
    let mut lake = with(ITEMS).await;
    assert_eq!(lake.rows("SELECT _row, id FROM items WHERE _row BETWEEN 3 AND 5").await, ["3 3", "4 5", "5 6"]);
    assert_eq!(lake.rows("SELECT * FROM names WHERE _row = 1").await, ["1 one"]);
    assert_eq!(select(&mut lake, "SELECT * FROM items WHERE _row % 5 = 0").await.rows, [0, 5, 10, 15]);
    let ids = lake.rows("SELECT _row_id FROM items WHERE id = 5").await;
    lake.run("DELETE FROM items WHERE id < 5").await;
    assert_eq!(lake.rows("SELECT _row_id FROM items WHERE id = 5").await, ids);
}

#[tokio::test]
async fn what_is_no_selection_says_why() {
    let mut lake = with(ITEMS).await;
    for (text, why) in [
        ("SELECT label, count(*) FROM items GROUP BY label", "no GROUP BY"),
        ("SELECT DISTINCT label FROM items", "no DISTINCT"),
        ("SELECT id FROM items UNION SELECT id FROM items", "no UNION"),
        ("SELECT id * 2 FROM items", "execute() gives computed columns"),
        ("SELECT * FROM (SELECT 1)", "FROM must begin with a table"),
        ("DELETE FROM items", "a selection is one SELECT"),
        ("SELECT lable FROM items", "lable"),
    ] {
        let error = lake.session.select(text, &Given::default()).await.map(|_| ()).expect_err(text).to_string();
        assert!(error.contains(why), "{text}: {error}");
    }
}
