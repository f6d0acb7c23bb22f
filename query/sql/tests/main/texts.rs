//! Words in texts, through indexes.

use forebay_sql::{Given, Parameter};

use crate::support::{Fixture, given, session, with};

const CAPTIONS: [&str; 8] = [
    "a black cat on a red car",
    "two dogs running in the park",
    "a red car",
    "cats and dogs",
    "",
    "ein schwarzes Auto",
    "a cat, a cat, and one more cat",
    "the car of the cat is red and the dog barks",
];

async fn captions() -> Fixture {
    let mut lake = with("CREATE TABLE photos (id INT, caption TEXT, pixels TENSOR(uint8, 4))").await;
    append(&mut lake, &CAPTIONS, 0).await;
    lake.run("INSERT INTO photos VALUES (100, NULL, NULL)").await;
    assert_eq!(lake.run("CREATE INDEX words ON photos USING bm25 (caption)").await, 7);
    lake
}

async fn append(lake: &mut Fixture, captions: &[&str], first: usize) {
    let values: Vec<String> =
        captions.iter().enumerate().map(|(at, text)| format!("({}, '{text}', [1, 2, 3, 4])", first + at)).collect();
    lake.run(&format!("INSERT INTO photos VALUES {}", values.join(", "))).await;
}

#[tokio::test]
async fn words_are_found_with_what_stands_between_them() {
    let mut lake = captions().await;
    for (words, ids) in [
        ("cat", "0 3 6 7"),
        ("+cat +car", "0 7"),
        ("+cat -red", "3 6"),
        ("\"red car\"", "0 2"),
        ("auto OR parks", "1 5"),
        ("CATS", "0 3 6 7"),
        ("unicorn", ""),
    ] {
        let text = format!("SELECT id FROM photos WHERE match(caption, '{words}') ORDER BY id");
        assert_eq!(lake.rows(&text).await.join(" "), ids, "{words}");
    }
    let text = "SELECT id FROM photos WHERE NOT match(caption, 'cat') AND id < 100 ORDER BY id";
    assert_eq!(lake.rows(text).await.join(" "), "1 2 4 5");
    let words = given(&[Parameter::Text("red".into())]);
    assert_eq!(lake.rows_with("SELECT count(*) FROM photos p WHERE match(p.caption, $1)", &words).await, ["3"]);
}

#[tokio::test]
async fn scores_order_the_rows_as_bm25_does() {
    let mut lake = captions().await;
    let text =
        "SELECT id, bm25(caption, 'cat') AS score FROM photos WHERE match(caption, 'cat') ORDER BY score DESC, id";
    let rows = lake.rows(text).await;
    // k1 = 1.2, b = 0.75, idf = ln(1 + (N - n + 0.5) / (n + 0.5)); lengths are kept in a byte, exactly when they are short.
    let lengths: Vec<f64> = CAPTIONS
        .iter()
        .filter(|text| !text.is_empty())
        .map(|text| text.split([' ', ',']).filter(|w| !w.is_empty()).count() as f64)
        .collect();
    let mean = lengths.iter().sum::<f64>() / lengths.len() as f64;
    let idf = (1.0 + (lengths.len() as f64 - 4.0 + 0.5) / 4.5).ln();
    let score = |count: f64, length: f64| idf * count * 2.2 / (count + 1.2 * (0.25 + 0.75 * length / mean));
    let mut expected = vec![(0, score(1.0, 7.0)), (3, score(1.0, 3.0)), (6, score(3.0, 8.0)), (7, score(1.0, 11.0))];
    expected.sort_by(|a, b| b.1.total_cmp(&a.1));
    for (row, (id, score)) in rows.iter().zip(&expected) {
        let (found, value) = row.split_once(' ').unwrap();
        assert_eq!(found, id.to_string(), "{rows:?} {expected:?}");
        assert!((value.parse::<f64>().unwrap() - score).abs() < 0.02 * score, "{rows:?} {expected:?}");
    }
    assert_eq!(rows.len(), 4);
    let text = "SELECT id, pixels FROM photos ORDER BY bm25(caption, 'red car') DESC LIMIT 2";
    let ids: Vec<String> = lake.rows(text).await.iter().map(|row| row.split(' ').next().unwrap().to_owned()).collect();
    assert_eq!(ids, ["2", "0"]);
    let chosen =
        lake.session.select("SELECT pixels FROM photos WHERE match(caption, 'dogs')", &Given::default()).await.unwrap();
    assert_eq!(chosen.rows, [1, 3, 7]);
}

#[tokio::test]
async fn what_an_index_does_not_have_is_searched_all_the_same() {
    let mut lake = captions().await;
    append(&mut lake, &["a lone cat"], 200).await;
    lake.run("UPDATE photos SET caption = 'no more' WHERE id = 0; DELETE FROM photos WHERE id = 3").await;
    let text = "SELECT id FROM photos WHERE match(caption, 'cat') ORDER BY id";
    for _ in 0..2 {
        assert_eq!(lake.rows(text).await.join(" "), "6 7 200");
        assert_eq!(lake.rows("SELECT id FROM photos WHERE match(caption, 'more') ORDER BY id").await.join(" "), "0 6");
        lake.run("REINDEX words").await;
    }
    assert_eq!(lake.rows("SHOW INDEXES").await, ["words photos caption 2/3"]);
    lake.run("DELETE FROM photos WHERE match(caption, 'cat') AND id < 100").await;
    assert_eq!(lake.rows(text).await.join(" "), "200");
}

#[tokio::test]
async fn parts_of_two_branches_are_searched_together() {
    let mut lake = captions().await;
    lake.run("CREATE BRANCH side").await;
    append(&mut lake, &["blue whale"], 300).await;
    lake.run("REINDEX words").await;
    let mut side = session(&lake.lake, forebay_versioning::At::Branch("side".into())).await;
    std::mem::swap(&mut lake.session, &mut side);
    append(&mut lake, &["a whale of a car"], 400).await;
    lake.run("REINDEX words").await;
    std::mem::swap(&mut lake.session, &mut side);
    lake.run("MERGE BRANCH side").await;
    assert_eq!(lake.rows("SHOW INDEXES").await, ["words photos caption 4/4"]);
    let text = "SELECT id FROM photos WHERE match(caption, 'whale') ORDER BY bm25(caption, 'blue whale') DESC";
    assert_eq!(lake.rows(text).await.join(" "), "300 400");
    // Merging the parts by making the index anew changes no score.
    let scores =
        "SELECT id, round(bm25(caption, 'car')::DOUBLE, 4) FROM photos WHERE match(caption, 'car') ORDER BY id";
    let before = lake.rows(scores).await;
    lake.run("DROP INDEX words; CREATE INDEX words ON photos USING bm25 (caption)").await;
    assert_eq!(lake.rows(scores).await, before);
}

#[tokio::test]
async fn what_cannot_be_searched_says_why() {
    let mut lake = captions().await;
    for (text, why) in [
        ("SELECT * FROM photos WHERE match(id, 'x')", "column id has no index of texts"),
        ("SELECT * FROM photos WHERE match(caption, id)", "take a column and a text"),
        ("SELECT * FROM (SELECT 1 AS caption) WHERE match(caption, 'x')", "first table of a FROM"),
        ("SELECT * FROM photos WHERE match(caption, '\"open')", "is no text query"),
        ("CREATE INDEX other ON photos USING bm25 (id)", "has no texts"),
        ("CREATE INDEX other ON photos USING bm25 (caption) WITH (language = 'klingon')", "language = 'klingon'"),
        ("CREATE INDEX other ON photos USING bm25 (caption) WITH (lists = 3)", "it takes language"),
    ] {
        let error = lake.error(text).await;
        assert!(error.contains(why), "{text}: {error}");
    }
    lake.run("CREATE INDEX plain ON photos USING bm25 (caption) WITH (language = 'none'); DROP INDEX words").await;
    assert_eq!(lake.rows("SELECT id FROM photos WHERE match(caption, 'cats')").await, ["3"]);
}
