//! Tables with a key, changed on two branches and merged, against a plain model.

use std::collections::BTreeMap;

use forebay_format::{Column, ColumnData, DType, OwnedValues, Schema};
use forebay_versioning::{At, CompactOptions, Error, Lake, MergeOptions, MergeSide, Policy, Rows, Selection, Table};
use proptest::prelude::*;

use crate::support::{block_on, temporary};

#[derive(Clone, Debug)]
enum Step {
    /// Rows of these keys are updated where there are some, and else inserted.
    Upsert(Vec<i64>),
    Delete(i64),
    Compact,
}

fn step() -> impl Strategy<Value = Step> {
    let key = || 0..8_i64;
    prop_oneof![
        4 => prop::collection::btree_set(key(), 1..4).prop_map(|keys| Step::Upsert(keys.into_iter().collect())),
        3 => key().prop_map(Step::Delete),
        1 => Just(Step::Compact),
    ]
}

/// Rows by identity: key and value.
type Model = BTreeMap<i64, (i64, i64)>;

fn numbers(values: &[i64]) -> ColumnData {
    let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    ColumnData { rows: values.len(), values: OwnedValues::Fixed(bytes), validity: None }
}

/// Keys and values of a table.
async fn pairs(table: &Table) -> Vec<(i64, i64)> {
    let mut columns = Vec::new();
    for name in ["k", "v"] {
        let OwnedValues::Fixed(bytes) = table.read(name, 0..table.rows()).await.unwrap().values else {
            panic!("numbers")
        };
        columns.push(bytes.chunks_exact(8).map(|n| i64::from_le_bytes(n.try_into().unwrap())).collect::<Vec<_>>());
    }
    columns[0].iter().copied().zip(columns[1].iter().copied()).collect()
}

/// `next` is a number that was never used.
async fn apply(lake: &Lake, branch: &str, step: &Step, model: &mut Model, next: &mut i64) {
    let mut transaction = lake.begin(branch).await.unwrap();
    let table = transaction.base().table("main").await.unwrap();
    match step {
        Step::Upsert(keys) => {
            let values: Vec<i64> = (*next..).take(keys.len()).collect();
            *next += keys.len() as i64;
            transaction.upsert(&table, &[numbers(keys).as_slice(), numbers(&values).as_slice()]).await.unwrap();
            for (key, value) in keys.iter().zip(values) {
                let there = model.iter().find(|(_, (other, _))| other == key).map(|(id, _)| *id);
                model.insert(there.unwrap_or(value), (*key, value));
            }
        }
        Step::Delete(key) => {
            let row = pairs(&table).await.iter().position(|(other, _)| other == key);
            let rows = Rows::List(row.map(|row| row as u64).into_iter().collect::<Vec<_>>().into());
            transaction.delete(&Selection::new(table, rows).unwrap()).unwrap();
            model.retain(|_, (other, _)| other != key);
        }
        Step::Compact => _ = transaction.compact(&table, CompactOptions::default()).await.unwrap(),
    }
    match transaction.commit("step", "tester").await {
        Ok(_) | Err(Error::NothingToCommit { .. }) => {}
        Err(error) => panic!("{error}"),
    }
}

/// The merged rows, and whether something clashed.
fn merge(base: &Model, ours: &Model, theirs: &Model, winner: MergeSide) -> (Model, bool) {
    let (mut merged, mut clash) = (Model::new(), false);
    for id in ours.keys().chain(theirs.keys()) {
        let (was, our, their) = (base.get(id), ours.get(id), theirs.get(id));
        let side = if our == their || was == their {
            our
        } else if was == our {
            their
        } else {
            clash = true;
            if winner == MergeSide::Ours { our } else { their }
        };
        merged.extend(side.map(|row| (*id, *row)));
    }
    let alone = |side: &Model, other: &Model| -> Vec<(i64, i64)> {
        let alone = merged.iter().filter(|(id, _)| side.contains_key(id) && !other.contains_key(id));
        alone.map(|(id, (key, _))| (*id, *key)).collect()
    };
    let (here, there) = (alone(ours, theirs), alone(theirs, ours));
    for (our, key) in here {
        for (their, _) in there.iter().filter(|(_, other)| *other == key) {
            clash = true;
            merged.remove(if winner == MergeSide::Ours { their } else { &our });
        }
    }
    (merged, clash)
}

async fn run(common: &[Step], one: &[Step], other: &[Step]) {
    let (_folder, storage) = temporary();
    let lake = Lake::create(storage).await.unwrap();
    let mut transaction = lake.begin("main").await.unwrap();
    let columns = ["k", "v"].map(|name| Column::new(name, DType::I64, []).unwrap());
    transaction.create_table_with_key("main", Schema::new(columns.to_vec()).unwrap(), &["k"]).unwrap();
    transaction.commit("create", "tester").await.unwrap();
    let (mut base, mut next) = (Model::new(), 100);
    for step in common {
        apply(&lake, "main", step, &mut base, &mut next).await;
    }
    lake.create_branch("exp", &At::default()).await.unwrap();
    let (mut ours, mut theirs) = (base.clone(), base.clone());
    for (branch, steps, model) in [("main", one, &mut ours), ("exp", other, &mut theirs)] {
        for step in steps {
            apply(&lake, branch, step, model, &mut next).await;
        }
    }
    for (name, policy, winner) in [
        ("fail", Policy::Fail, MergeSide::Ours),
        ("ours", Policy::Side(MergeSide::Ours), MergeSide::Ours),
        ("theirs", Policy::Side(MergeSide::Theirs), MergeSide::Theirs),
    ] {
        let (expected, clash) = merge(&base, &ours, &theirs, winner);
        lake.create_branch(name, &At::default()).await.unwrap();
        let options = MergeOptions::by("tester").with_policy(policy);
        match lake.merge(name, &At::Branch("exp".into()), &options).await {
            Err(Error::Conflict { .. }) if name == "fail" => assert!(clash, "there is no conflict"),
            Err(error) => panic!("{name}: {error}"),
            Ok(_) => {
                assert!(!clash || name != "fail", "a conflict was not found");
                let table = lake.snapshot(&At::Branch(name.into())).await.unwrap().table("main").await.unwrap();
                let mut found = pairs(&table).await;
                found.sort_unstable();
                let mut expected: Vec<_> = expected.into_values().collect();
                expected.sort_unstable();
                assert_eq!(found, expected, "{name}");
                assert!(found.windows(2).all(|pair| pair[0].0 != pair[1].0), "{name}: a key is there twice");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, max_shrink_iters: 400, ..ProptestConfig::default() })]

    #[test]
    fn merges_of_tables_with_keys_do_what_the_model_does(
        common in prop::collection::vec(step(), 0..5),
        one in prop::collection::vec(step(), 0..5),
        other in prop::collection::vec(step(), 0..5),
    ) {
        block_on(run(&common, &one, &other));
    }
}
