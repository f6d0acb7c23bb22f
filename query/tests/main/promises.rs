//! What a scan promises besides the right rows.

use forebay_query::{Error, ScanOptions, select};
use forebay_storage::testing::OpKind;
use forebay_versioning::Rows;

use crate::support::{PIXELS, Row, numbers, table};

fn rows(count: usize) -> Vec<Row> {
    (0..count as i64).map(|number| Row { number, name: format!("row {number}"), score: None }).collect()
}

#[tokio::test]
async fn only_the_bytes_of_the_named_columns_are_read() {
    let (table, store) = table(&[rows(3_000), rows(2_000)]).await;
    let before = store.operations().len();
    select(&table, &["number"], ScanOptions::default(), |columns| Ok::<_, Error>(vec![true; columns[0].data.rows]))
        .await
        .unwrap();
    let operations = store.operations();
    let read = operations[before..].iter().filter(|operation| operation.kind == OpKind::Get);
    let read: u64 = read.filter_map(|operation| operation.range.clone()).map(|range| range.end - range.start).sum();
    assert!(read >= 5_000 * 8, "{read} bytes");
    assert!(read < table.bytes() / 20, "{read} of {} bytes", table.bytes());
}

#[tokio::test]
async fn a_batch_keeps_to_its_part_of_the_memory() {
    let (table, _) = table(&[rows(1_000)]).await;
    let mut batches = Vec::new();
    let memory = 100 * PIXELS as u64;
    select(&table, &["pixels", "number"], ScanOptions::default().with_memory(memory), |columns| {
        batches.push(columns[0].data.rows);
        Ok::<_, Error>(vec![false; columns[0].data.rows])
    })
    .await
    .unwrap();
    assert_eq!(batches.iter().sum::<usize>(), 1_000);
    assert!(batches.iter().all(|rows| rows * (PIXELS + 8) <= memory as usize / 2), "{batches:?}");
}

#[tokio::test]
async fn everything_chosen_is_the_whole_table() {
    let (table, _) = table(&[rows(10), rows(5)]).await;
    let all = |columns: &[forebay_query::NamedColumn<'_>]| Ok::<_, Error>(vec![true; columns[0].data.rows]);
    let selection = select(&table, &["number"], ScanOptions::default(), all).await.unwrap();
    assert_eq!((selection.rows(), selection.len()), (&Rows::All, 15));
}

#[tokio::test]
async fn nothing_chosen_is_an_empty_selection() {
    let (table, _) = table(&[rows(10)]).await;
    let none = |columns: &[forebay_query::NamedColumn<'_>]| Ok::<_, Error>(vec![false; columns[0].data.rows]);
    assert!(select(&table, &["number"], ScanOptions::default(), none).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_predicate_may_be_a_trait_object() {
    let (table, _) = table(&[rows(10)]).await;
    type Predicate<'a> = dyn FnMut(&[forebay_query::NamedColumn<'_>]) -> Result<Vec<bool>, Error> + 'a;
    let predicate: &mut Predicate<'_> =
        &mut |columns| Ok(numbers(&columns[0]).iter().map(|number| *number > Some(7)).collect());
    let selection = select(&table, &["number"], ScanOptions::default(), predicate).await.unwrap();
    assert_eq!((0..selection.len()).map(|at| selection.row(at).unwrap()).collect::<Vec<_>>(), [8, 9]);
}

#[tokio::test]
async fn a_mask_of_another_length_is_an_error_that_says_where() {
    let (table, _) = table(&[rows(10)]).await;
    let error =
        select(&table, &["number"], ScanOptions::default(), |_| Ok::<_, Error>(vec![true; 3])).await.unwrap_err();
    assert_eq!(error.to_string(), "the predicate gave 3 answers for the 10 rows 0..10 of table 'main'");
}

#[tokio::test]
async fn a_failing_predicate_ends_the_scan_with_its_own_words() {
    let (table, _) = table(&[rows(10)]).await;
    let error = select(&table, &["number"], ScanOptions::default(), |_| Err("no idea")).await.unwrap_err();
    assert_eq!(error.to_string(), "the predicate failed on rows 0..10 of table 'main': no idea");
}

#[tokio::test]
async fn unknown_and_missing_columns_are_errors_that_list_what_there_is() {
    let (table, _) = table(&[rows(10)]).await;
    let yes = |_: &[forebay_query::NamedColumn<'_>]| Ok::<Vec<bool>, Error>(Vec::new());
    let error = select(&table, &["numbre"], ScanOptions::default(), yes).await.unwrap_err();
    assert_eq!(error.to_string(), "no column 'numbre'; the table has number, name, pixels, score");
    let error = select(&table, &[], ScanOptions::default(), yes).await.unwrap_err();
    assert!(matches!(error, Error::NoColumns { .. }), "{error}");
}
