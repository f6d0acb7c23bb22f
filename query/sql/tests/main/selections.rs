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

fn computed(chosen: &Chosen) -> Vec<String> {
    let texts = |column: &forebay_sql::Computed| {
        let values = (0..column.values.len())
            .map(|row| arrow::util::display::array_value_to_string(&column.values, row).unwrap());
        format!("{}{} {}", column.name, if column.nullable { "?" } else { "" }, values.collect::<Vec<_>>().join(" "))
    };
    chosen.computed.iter().map(texts).collect()
}

#[tokio::test]
async fn what_is_computed_comes_with_the_rows() {
    let mut lake = with(ITEMS).await;
    let text = "SELECT pixels, label * 10 + id AS mixed, id > 14 AS late FROM items WHERE label = 1 ORDER BY mixed DESC LIMIT 3";
    let chosen = select(&mut lake, text).await;
    assert_eq!(chosen.rows, [18, 15, 12]);
    assert_eq!(chosen.columns, Some(["pixels", "mixed", "late"].map(str::to_owned).to_vec()));
    assert_eq!(computed(&chosen), ["mixed? 29 26 23", "late? true true false"]);
    // In the table's order, and of a row that comes twice in the order of the values.
    let text = "SELECT items.*, length(name) + i AS n FROM items JOIN names USING (label)
        JOIN (VALUES (5), (2)) AS more(i) ON true WHERE id IN (0, 1)";
    let chosen = select(&mut lake, text).await;
    assert_eq!(chosen.rows, [0, 0, 1, 1, 1, 1]);
    assert_eq!(chosen.columns, Some(["id", "label", "pixels", "n"].map(str::to_owned).to_vec()));
    assert_eq!(computed(&chosen), ["n? 6 9 5 5 8 8"]);
    let text =
        "SELECT items.id, others.label FROM items JOIN items AS others ON others.id = items.id + 1 WHERE items.id = 7";
    assert_eq!(computed(&select(&mut lake, text).await), ["label? 2"]);
    let none = select(&mut lake, "SELECT id, random() AS r, 1.5 AS c FROM items WHERE id < 0").await;
    assert_eq!((none.rows.len(), computed(&none)), (0, vec!["r? ".to_owned(), "c ".to_owned()]));
    let random = select(&mut lake, "SELECT id, random() AS r FROM items ORDER BY RANDOM()").await;
    assert!(random.shuffle && random.rows.len() == 19);
    assert_eq!(computed(&select(&mut lake, "SELECT id, random() AS r FROM items").await), computed(&random));
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
        ("SELECT id * 2 FROM items", "give what is computed a name, as in id * 2 AS name"),
        ("SELECT id, label * 2 AS id FROM items", "two columns are named id"),
        ("SELECT *, 1 AS label FROM items", "two columns are named label"),
        ("SELECT id, pixels AS p FROM items", "p is computed, and of type"),
        ("SELECT id, name FROM items JOIN names USING (label)", "no column name"),
        ("SELECT id, names.name FROM items JOIN names USING (label)", "name is computed, and of type LargeUtf8"),
        ("SELECT id, count(*) AS n FROM items", "GROUP BY"),
        ("SELECT * FROM (SELECT 1)", "FROM must begin with a table"),
        ("DELETE FROM items", "a selection is one SELECT"),
        ("SELECT lable FROM items", "lable"),
    ] {
        let error = lake.session.select(text, &Given::default()).await.map(|_| ()).expect_err(text).to_string();
        assert!(error.contains(why), "{text}: {error}");
    }
}
