//! Any table, any predicate, any budget: the chosen rows are those that a plain filter chooses.

use forebay_query::{ScanOptions, select};
use proptest::prelude::*;

use crate::support::{Row, numbers, table, texts};

fn row() -> impl Strategy<Value = Row> {
    (0_i64..20, "[a-z]{0,12}|.{200,400}", prop::option::of(0_i64..5)).prop_map(|(number, name, score)| Row {
        number,
        name,
        score,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn the_rows_chosen_are_those_of_a_plain_filter(
        fragments in prop::collection::vec(prop::collection::vec(row(), 1..120), 1..4),
        limit in 0_i64..20,
        length in 0_usize..10,
        score in 0_i64..5,
        memory in prop_oneof![1_u64..100, 100_u64..100_000],
    ) {
        let wanted = |row: &Row| (row.number < limit && row.name.len() >= length) || row.score == Some(score);
        let rows = fragments.concat();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let chosen = runtime.block_on(async {
            let (table, _) = table(&fragments).await;
            let mut next = 0;
            let options = ScanOptions::default().with_memory(memory);
            let selection = select(&table, &["score", "name", "number"], options, |columns| {
                let names: Vec<_> = columns.iter().map(|column| column.column.name.as_str()).collect();
                assert_eq!(names, ["score", "name", "number"]);
                let (scores, names, numbers) = (numbers(&columns[0]), texts(&columns[1]), numbers(&columns[2]));
                let batch: Vec<Row> = scores.into_iter().zip(names).zip(numbers)
                    .map(|((score, name), number)| Row { number: number.unwrap(), name, score })
                    .collect();
                assert_eq!(batch, rows[next..next + batch.len()]);
                next += batch.len();
                Ok::<_, std::convert::Infallible>(batch.iter().map(wanted).collect())
            }).await.unwrap();
            assert_eq!(next, rows.len());
            (0..selection.len()).map(|at| selection.row(at).unwrap()).collect::<Vec<_>>()
        });
        let expected: Vec<u64> = (0..).zip(&rows).filter(|(_, row)| wanted(row)).map(|(at, _)| at).collect();
        prop_assert_eq!(chosen, expected);
    }
}
