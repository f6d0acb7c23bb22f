//! SELECT, over several tables, fragments, versions and types.

use forebay_sql::Parameter;

use crate::support::{given, with};

const PEOPLE: &str = "
    CREATE TABLE people (id INT NOT NULL, name TEXT, city TEXT, score REAL);
    INSERT INTO people VALUES (1, 'Ada', 'London', 0.5), (2, 'Bo', NULL, 1.5);
    INSERT INTO people VALUES (3, 'Çelik', 'Ankara', CAST('NaN' AS REAL)), (4, '', 'London', -0.0), (5, NULL, 'London', 0.0);
    CREATE TABLE cities (city TEXT, country TEXT);
    INSERT INTO cities VALUES ('London', 'UK'), ('Ankara', 'TR'), ('Oslo', 'NO')";

#[tokio::test]
async fn rows_come_in_the_order_of_the_table() {
    let mut lake = with(PEOPLE).await;
    assert_eq!(lake.rows("SELECT id, name FROM people").await, ["1 Ada", "2 Bo", "3 Çelik", "4 ", "5 null"]);
    assert_eq!(lake.rows("SELECT * FROM cities LIMIT 2").await, ["London UK", "Ankara TR"]);
    assert_eq!(lake.rows("SELECT id FROM people WHERE id <> 3 LIMIT 3").await, ["1", "2", "4"]);
}

#[tokio::test]
async fn joins_groups_windows_and_subqueries_are_those_of_sql() {
    let mut lake = with(PEOPLE).await;
    let joined = "SELECT country, count(*) AS n FROM people JOIN cities USING (city) GROUP BY country ORDER BY n DESC";
    assert_eq!(lake.rows(joined).await, ["UK 3", "TR 1"]);
    let windowed = "SELECT id, row_number() OVER (PARTITION BY city ORDER BY id DESC) FROM people WHERE city = 'London' ORDER BY id";
    assert_eq!(lake.rows(windowed).await, ["1 3", "4 2", "5 1"]);
    let nested = "WITH big AS (SELECT city FROM people GROUP BY city HAVING count(*) > 1)
        SELECT name FROM people WHERE city IN (SELECT city FROM big) AND name IS NOT NULL ORDER BY name";
    assert_eq!(lake.rows(nested).await, ["", "Ada"]);
    let union = "SELECT city FROM cities EXCEPT SELECT city FROM people";
    assert_eq!(lake.rows(union).await, ["Oslo"]);
    assert_eq!(
        lake.rows(
            "SELECT country FROM cities c WHERE EXISTS (SELECT 1 FROM people p WHERE p.city = c.city) ORDER BY 1"
        )
        .await,
        ["TR", "UK"]
    );
}

#[tokio::test]
async fn there_is_one_zero_and_one_nan_above_every_number() {
    let mut lake = with(PEOPLE).await;
    assert_eq!(lake.rows("SELECT id FROM people WHERE score = 0").await, ["4", "5"]);
    assert_eq!(lake.rows("SELECT count(*) FROM people GROUP BY score ORDER BY score").await, ["2", "1", "1", "1"]);
    assert_eq!(lake.rows("SELECT id FROM people WHERE score > 1").await, ["2", "3"]);
    assert_eq!(lake.rows("SELECT id FROM people ORDER BY score DESC, id LIMIT 2").await, ["3", "2"]);
}

#[tokio::test]
async fn nulls_are_neither_true_nor_false() {
    let mut lake = with(PEOPLE).await;
    assert_eq!(lake.rows("SELECT id FROM people WHERE NOT (city = 'London')").await, ["3"]);
    assert_eq!(lake.rows("SELECT id FROM people WHERE city IS NULL").await, ["2"]);
    assert_eq!(lake.rows("SELECT count(name), count(*) FROM people").await, ["4 5"]);
    assert!(lake.rows("SELECT id FROM people WHERE city NOT IN ('London', NULL)").await.is_empty());
}

#[tokio::test]
async fn texts_match_by_pattern_and_length() {
    let mut lake = with(PEOPLE).await;
    assert_eq!(lake.rows("SELECT id FROM people WHERE name LIKE '%el%'").await, ["3"]);
    assert_eq!(lake.rows("SELECT id FROM people WHERE name ~ '^[AB]'").await, ["1", "2"]);
    assert_eq!(lake.rows("SELECT char_length(name), upper(name) FROM people WHERE id = 3").await, ["5 ÇELIK"]);
    assert_eq!(lake.rows("SELECT id FROM people WHERE contains(name, 'd')").await, ["1"]);
}

#[tokio::test]
async fn parameters_are_values_and_never_text() {
    let mut lake = with(PEOPLE).await;
    let hostile = given(&[Parameter::Text("' OR 1=1 --".to_owned())]);
    assert!(lake.rows_with("SELECT id FROM people WHERE name = $1", &hostile).await.is_empty());
    let two = given(&[Parameter::Int(-1), Parameter::Float(0.25)]);
    assert_eq!(
        lake.rows_with("SELECT id FROM people WHERE id > $1 AND score > $2 AND score < 2", &two).await,
        ["1", "2"]
    );
    let all =
        given(&[Parameter::Null, Parameter::Int(i64::MIN), Parameter::Uint(u64::MAX), Parameter::Bytes(vec![0, 255])]);
    assert_eq!(
        lake.rows_with("SELECT $1 IS NULL, $2, $3, $4", &all).await,
        ["true -9223372036854775808 18446744073709551615 00ff"]
    );
}

#[tokio::test]
async fn older_versions_are_read_beside_the_newest() {
    let mut lake = with(PEOPLE).await;
    lake.run("CREATE TAG v1; CREATE BRANCH other; DELETE FROM people WHERE id < 4").await;
    assert_eq!(lake.rows("SELECT count(*) FROM people").await, ["2"]);
    assert_eq!(lake.rows("SELECT count(*) FROM people AT 'v1'").await, ["5"]);
    let gone =
        "SELECT old.id FROM people AT 'other' AS old LEFT JOIN people USING (id) WHERE people.id IS NULL ORDER BY 1";
    assert_eq!(lake.rows(gone).await, ["1", "2", "3"]);
    let commit = lake.lake.snapshot(&forebay_versioning::At::Tag("v1".into())).await.unwrap().id();
    assert_eq!(lake.rows(&format!("SELECT max(people.id) FROM people AT '{commit}'")).await, ["5"]);
    assert_eq!(lake.rows("SELECT count(*) FROM people AT '2199-01-01'").await, ["2"]);
}

#[tokio::test]
async fn vectors_have_distances() {
    let mut lake = with(
        "CREATE TABLE docs (id INT, v VECTOR(3));
         INSERT INTO docs VALUES (1, [1, 0, 0]), (2, [0, 1, 0]), (3, [0.6, 0.8, 0]), (4, NULL), (5, [0, 0, 0])",
    )
    .await;
    let near = given(&[Parameter::List(vec![Parameter::Float(1.0), Parameter::Int(0), Parameter::Int(0)])]);
    let query = "SELECT id FROM docs WHERE v IS NOT NULL ORDER BY v <-> $1 LIMIT 2";
    assert_eq!(lake.rows_with(query, &near).await, ["1", "3"]);
    let distances = "SELECT id, round(v <=> $1, 3), v <#> $1 FROM docs WHERE id < 4";
    assert_eq!(lake.rows_with(distances, &near).await, ["1 0.0 -1.0", "2 1.0 -0.0", "3 0.4 -0.6000000238418579"]);
    // An angle with a vector of zeros is none.
    assert_eq!(lake.rows_with("SELECT id FROM docs WHERE isnan(v <=> $1)", &near).await, ["5"]);
    assert!(lake.error("SELECT v <-> [1, 2] FROM docs").await.contains("vectors of 3 and 2 numbers"));
}

#[tokio::test]
async fn json_is_that_of_postgres() {
    let mut lake = with(
        r#"CREATE TABLE events (id INT, body JSONB);
        INSERT INTO events VALUES (1, '{"kind":"click","at":[1,2,{"x":null}]}'), (2, '{"kind":"key","n":1.0}'), (3, NULL)"#,
    )
    .await;
    assert_eq!(
        lake.rows("SELECT body -> 'kind', body ->> 'kind' FROM events").await,
        ["\"click\" click", "\"key\" key", "null null"]
    );
    assert_eq!(
        lake.rows("SELECT body -> 'at' -> -1 ->> 'x', body #>> '{at,0}' FROM events WHERE id = 1").await,
        ["null 1"]
    );
    assert_eq!(lake.rows(r#"SELECT id FROM events WHERE body @> '{"n":1}'"#).await, ["2"]);
    assert_eq!(lake.rows("SELECT id FROM events WHERE body ->> 'kind' = 'click'").await, ["1"]);
    assert!(lake.error("INSERT INTO events VALUES (4, '{oops')").await.contains("column 'body': row 0 is no JSON"));
}

#[tokio::test]
async fn tensors_have_shapes_elements_and_means() {
    let mut lake = with(
        "CREATE TABLE t (id INT, a TENSOR(uint8, 2, 3), b TENSOR(float32, any, 2), c TENSOR(bfloat16, 2));
         INSERT INTO t VALUES (1, [[1, 2, 3], [4, 5, 6]], [[1, 2], [3, 4], [5, 6]], [1.5, -2]), (2, NULL, [[7, 8]], [0, 0])",
    )
    .await;
    assert_eq!(lake.rows("SELECT tensor_shape(a), tensor_shape(b) FROM t").await, ["[2, 3] [3, 2]", "null [1, 2]"]);
    assert_eq!(
        lake.rows("SELECT tensor_get(a, 1, 0), tensor_get(b, 2, 1), tensor_mean(a), l2_norm(c) FROM t WHERE id = 1")
            .await,
        ["4.0 6.0 3.5 2.5"]
    );
    let error = lake.error("INSERT INTO t VALUES (3, [[1, 2]], NULL, NULL)").await;
    assert!(error.contains("column 'a': row 0 has"), "{error}");
    assert!(lake.error("INSERT INTO t VALUES (3, [[1, 2, 3], [4, 5, 600]], NULL, NULL)").await.contains("column 'a'"));
}

#[tokio::test]
async fn a_table_may_have_thousands_of_columns_and_none_of_its_rows() {
    let columns: Vec<String> = (0..2_000).map(|number| format!("c{number} INT")).collect();
    let mut lake = with(&format!("CREATE TABLE wide ({})", columns.join(", "))).await;
    assert!(lake.rows("SELECT c7 FROM wide WHERE c1999 > 0").await.is_empty());
    assert_eq!(lake.rows("SELECT count(*), sum(c5) FROM wide").await, ["0 null"]);
    lake.run("INSERT INTO wide (c3, c1999) VALUES (1, 2), (3, 4)").await;
    assert_eq!(lake.rows("SELECT c3, c4, c1999 FROM wide WHERE c1999 > 2").await, ["3 null 4"]);
}

#[tokio::test]
async fn chance_follows_from_a_seed() {
    let mut lake = with(PEOPLE).await;
    lake.run("INSERT INTO people SELECT value, 'x', NULL, 0 FROM generate_series(6, 400) AS t(value)").await;
    let mut seeded = given(&[]);
    seeded.seed = Some(3);
    let first = lake.rows_with("SELECT id FROM people WHERE random() < 0.5", &seeded).await;
    assert_eq!(lake.rows_with("SELECT id FROM people WHERE random() < 0.5", &seeded).await, first);
    assert!((150..250).contains(&first.len()), "{}", first.len());
    seeded.seed = Some(4);
    assert_ne!(lake.rows_with("SELECT id FROM people WHERE random() < 0.5", &seeded).await, first);
    let parts = "SELECT split_of(id, 0.8, 0.1) AS part, count(*) > 20 FROM people GROUP BY part ORDER BY part";
    assert_eq!(lake.rows(parts).await, ["test true", "train true", "validation true"]);
}
