//! What a query reads, and what it leaves out.

use forebay_format::{Bitmap, Column, ColumnSlice, DType, Dim, Schema, Values, WriteOptions};
use forebay_sql::Given;
use forebay_versioning::At;

use crate::support::{Fixture, empty, session, with};

const ROWS: usize = 8_000;
const PIXELS: usize = 1_000;

/// 8,000 rows with ascending ids in chunks of 1,024 rows, and 1,000 bytes of pixels each.
async fn table() -> Fixture {
    let mut fixture = empty().await;
    let mut transaction = fixture.lake.begin("main").await.unwrap();
    let mut maybe = Column::new("maybe", DType::I64, []).unwrap();
    maybe.nullable = true;
    let columns = vec![
        Column::new("id", DType::I64, []).unwrap(),
        Column::new("pixels", DType::U8, [Dim::Fixed(PIXELS as u32)]).unwrap(),
        maybe,
    ];
    transaction.create_table("t", Schema::new(columns).unwrap()).unwrap();
    let options = WriteOptions { chunk_bytes: 8 << 10, block_bytes: 4 << 10, ..WriteOptions::default() };
    let mut writer = transaction.writer("t").await.unwrap().with_options(options);
    let ids: Vec<u8> = (0..ROWS as i64).flat_map(i64::to_le_bytes).collect();
    let pixels: Vec<u8> = (0..ROWS * PIXELS).map(|place| (place / PIXELS) as u8).collect();
    let valid = vec![0b0101_0101; ROWS / 8];
    let fixed = |bytes| ColumnSlice { rows: ROWS, values: Values::Fixed(bytes), validity: None };
    writer.push(&[fixed(&ids), fixed(&pixels), ColumnSlice { validity: Some(Bitmap(&valid)), ..fixed(&ids) }]).unwrap();
    transaction.append(writer.finish().unwrap());
    transaction.commit("rows", "test").await.unwrap();
    fixture.session = session(&fixture.lake, At::default()).await;
    fixture
}

#[tokio::test]
async fn a_filter_reads_one_chunk_of_many() {
    let mut lake = table().await;
    let plan = lake.rows("EXPLAIN SELECT id FROM t WHERE id = 4100").await.join("\n");
    assert!(plan.contains("chunks=1/16 (15 pruned)"), "{plan}");
    lake.rows("SELECT id FROM t WHERE id = 1").await;
    let before = lake.read();
    assert_eq!(lake.rows("SELECT id FROM t WHERE id = 4100").await, ["4100"]);
    let bytes = lake.read() - before;
    assert!((1..=8 << 10).contains(&bytes), "{bytes}");
}

#[tokio::test]
async fn of_ten_thousand_chunks_a_filter_reads_one() {
    const CHUNKS: usize = 10_000;
    const EACH: usize = 64;
    let mut lake = empty().await;
    let mut transaction = lake.lake.begin("main").await.unwrap();
    let schema = Schema::new(vec![Column::new("id", DType::I64, []).unwrap()]).unwrap();
    transaction.create_table("t", schema).unwrap();
    let options = WriteOptions { chunk_bytes: 8 * EACH, block_bytes: 8 * EACH, ..WriteOptions::default() };
    let writer = transaction.writer("t").await.unwrap().with_options(options);
    // Ten files: what one may have in its index is bounded.
    let mut writer = writer.with_file_bytes(8 * (CHUNKS * EACH) as u64 / 10);
    let ids: Vec<u8> = (0..(CHUNKS * EACH) as i64).flat_map(i64::to_le_bytes).collect();
    writer.push(&[ColumnSlice { rows: CHUNKS * EACH, values: Values::Fixed(&ids), validity: None }]).unwrap();
    transaction.append(writer.finish().unwrap());
    transaction.commit("rows", "test").await.unwrap();
    lake.session = session(&lake.lake, At::default()).await;
    let plan = lake.rows("EXPLAIN SELECT id FROM t WHERE id = 400000").await.join("\n");
    assert!(plan.contains("chunks=1/10000 (9999 pruned)"), "{plan}");
    let before = lake.read();
    assert_eq!(lake.rows("SELECT id FROM t WHERE id = 400000").await, ["400000"]);
    assert_eq!(lake.read() - before, 8 * EACH as u64);
}

#[tokio::test]
async fn large_columns_are_read_only_for_rows_that_are_left() {
    let mut lake = table().await;
    lake.rows("SELECT id FROM t WHERE id < 0").await;
    let before = lake.read();
    assert_eq!(lake.rows("SELECT tensor_mean(pixels) FROM t WHERE id IN (7, 5000)").await, ["7.0", "136.0"]);
    let read = lake.read() - before;
    // Two chunks of ids, and a block of pixels or two for each row.
    assert!(read <= 2 * (8 << 10) + 4 * (4 << 10), "{read} bytes");
}

#[tokio::test]
async fn counting_and_bounds_need_no_rows() {
    let mut lake = table().await;
    lake.rows("SELECT id FROM t WHERE id < 0").await;
    let before = lake.read();
    assert_eq!(lake.rows("SELECT count(*), min(id), max(id) FROM t").await, ["8000 0 7999"]);
    assert_eq!(lake.read(), before);
    lake.run("DELETE FROM t WHERE id = 7999").await;
    assert_eq!(lake.rows("SELECT count(*), min(id), max(id), count(maybe) FROM t").await, ["7999 0 7998 4000"]);
}

#[tokio::test]
async fn a_limit_ends_the_reading() {
    let mut lake = table().await;
    lake.rows("SELECT id FROM t WHERE id < 0").await;
    let before = lake.read();
    assert_eq!(lake.rows("SELECT id FROM t WHERE id >= 0 LIMIT 3").await, ["0", "1", "2"]);
    assert!(lake.read() - before <= 4 * (8 << 10), "{}", lake.read() - before);
}

#[tokio::test]
async fn edited_rows_are_found_by_their_new_values() {
    let mut lake = table().await;
    lake.run("UPDATE t SET id = -5 WHERE id = 6000; UPDATE t SET maybe = 1 WHERE id = 3").await;
    assert_eq!(lake.rows("SELECT id FROM t WHERE id < 0").await, ["-5"]);
    assert!(lake.rows("SELECT id FROM t WHERE id = 6000").await.is_empty());
    assert_eq!(lake.rows("SELECT min(id) FROM t").await, ["-5"]);
    assert_eq!(lake.rows("SELECT maybe FROM t WHERE id IN (1, 2, 3)").await, ["null", "2", "1"]);
}

#[tokio::test]
async fn a_dropped_query_stops_reading() {
    let mut lake = table().await;
    let outcome = lake.session.execute("SELECT * FROM t", &Given::default()).await.unwrap();
    drop(outcome);
    assert_eq!(lake.rows("SELECT count(*) FROM t").await, ["8000"]);
}

#[tokio::test]
async fn links_are_documents_to_read_and_to_write() {
    let mut lake = with(
        "CREATE TABLE t (id INT, photo LINK);
         INSERT INTO t VALUES (1, '{\"url\":\"s3://b/a.jpg\",\"size\":10,\"etag\":\"x\"}'), (2, NULL),
                              (3, '{\"url\":\"cat/b.jpg\",\"size\":30,\"offset\":4,\"length\":6,\"etag\":\"y\"}')",
    )
    .await;
    let shown = [
        "1 {\"url\":\"s3://b/a.jpg\",\"size\":10,\"etag\":\"x\"}",
        "2 null",
        "3 {\"url\":\"cat/b.jpg\",\"size\":30,\"offset\":4,\"length\":6,\"etag\":\"y\"}",
    ];
    assert_eq!(lake.rows("SELECT id, photo FROM t ORDER BY id").await, shown);
    assert_eq!(lake.rows("SELECT id, photo->>'url' FROM t WHERE (photo->>'size')::bigint > 20").await, ["3 cat/b.jpg"]);
    lake.run("CREATE TABLE u AS SELECT id, photo FROM t; UPDATE u SET id = 9 WHERE id = 1").await;
    assert_eq!(lake.rows("SELECT photo FROM u WHERE id = 9").await, [&shown[0][2..]]);
    let snapshot = lake.lake.snapshot(&At::default()).await.unwrap();
    let table = snapshot.table("u").await.unwrap();
    assert_eq!(table.schema().columns[1].dtype, forebay_format::DType::Link, "a copy of links is links");
    let hash = "ab".repeat(32);
    lake.run(&format!("INSERT INTO t VALUES (4, '{{\"url\":\"c\",\"size\":1,\"hash\":\"{hash}\"}}')")).await;
    assert_eq!(lake.rows("SELECT photo->>'hash' FROM t WHERE id = 4").await, [hash]);
    for (document, reason) in [
        ("{\"url\":\"c\",\"size\":1}", "neither etag nor hash"),
        ("{\"url\":\"../c\",\"size\":1,\"etag\":\"x\"}", "no name below a base"),
        ("{\"url\":\"c\",\"size\":1,\"etag\":\"x\",\"offset\":1}", "come together"),
        ("{\"url\":\"c\",\"size\":1,\"hash\":\"abc\"}", "64 hexadecimal digits"),
        ("{\"url\":\"c\",\"etag\":\"x\"}", "missing field `size`"),
        ("c", "row 0 is no link"),
    ] {
        let error = lake.error(&format!("INSERT INTO t VALUES (5, '{document}')")).await;
        assert!(error.contains("column 'photo'") && error.contains(reason), "{document}: {error}");
    }
}
