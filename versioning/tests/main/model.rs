//! Random work on branches, against a plain model.

use std::collections::BTreeMap;

use forebay_versioning::{At, Lake, Transaction};
use proptest::prelude::*;

use crate::support::{Row, all, block_on, lake, rows, temporary, write};

#[derive(Clone, Debug)]
enum Step {
    /// Starts a transaction on a branch (by number), in one of four hands.
    Begin(usize, usize),
    /// Writes some rows in a hand's transaction.
    Write(usize, u8),
    /// Commits a hand's transaction.
    Commit(usize),
    /// Drops it.
    Abandon(usize),
    /// Makes a branch at another's newest commit.
    Branch(usize),
    /// Tags a branch's newest commit.
    Tag(usize),
    /// Opens the lake anew.
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..4_usize, 0..4_usize).prop_map(|(hand, branch)| Step::Begin(hand, branch)),
        4 => (0..4_usize, 0..30_u8).prop_map(|(hand, count)| Step::Write(hand, count)),
        4 => (0..4_usize).prop_map(Step::Commit),
        1 => (0..4_usize).prop_map(Step::Abandon),
        1 => (0..4_usize).prop_map(Step::Branch),
        1 => (0..4_usize).prop_map(Step::Tag),
        1 => Just(Step::Reopen),
    ]
}

struct Hand {
    transaction: Transaction,
    branch: usize,
    rows: Vec<Row>,
}

/// A branch in the model: its rows and its commits' messages, oldest first.
#[derive(Clone, Default)]
struct Branch {
    rows: Vec<Row>,
    messages: Vec<String>,
}

async fn run(steps: Vec<Step>) {
    let (_folder, storage) = temporary();
    let mut lake = lake(storage.clone(), &[]).await.unwrap();
    let mut branches = vec![Branch { rows: Vec::new(), messages: vec!["create lake".into(), "create table".into()] }];
    let mut tags: BTreeMap<String, Vec<Row>> = BTreeMap::new();
    let mut hands: BTreeMap<usize, Hand> = BTreeMap::new();
    let mut next = 0;
    let name = |branch: usize| if branch == 0 { "main".to_owned() } else { format!("b{branch}") };
    for (number, step) in steps.into_iter().enumerate() {
        match step {
            Step::Begin(hand, branch) => {
                let branch = branch % branches.len();
                let transaction = lake.begin(&name(branch)).await.unwrap();
                hands.insert(hand, Hand { transaction, branch, rows: Vec::new() });
            }
            Step::Write(hand, count) => {
                if let Some(hand) = hands.get_mut(&hand) {
                    let new = rows(next..next + i64::from(count));
                    next += i64::from(count);
                    write(&mut hand.transaction, &new).await.unwrap();
                    hand.rows.extend(new);
                }
            }
            Step::Commit(hand) => {
                if let Some(hand) = hands.remove(&hand) {
                    let message = format!("step {number}");
                    let result = hand.transaction.commit(&message, "tester").await;
                    if hand.rows.is_empty() {
                        assert!(result.is_err(), "an empty commit");
                    } else {
                        result.unwrap();
                        branches[hand.branch].rows.extend(hand.rows);
                        branches[hand.branch].messages.push(message);
                    }
                }
            }
            Step::Abandon(hand) => drop(hands.remove(&hand)),
            Step::Branch(from) => {
                let from = from % branches.len();
                lake.create_branch(&name(branches.len()), &At::Branch(name(from))).await.unwrap();
                branches.push(branches[from].clone());
            }
            Step::Tag(branch) => {
                let branch = branch % branches.len();
                let tag = format!("t{number}");
                lake.create_tag(&tag, &At::Branch(name(branch)), "tester").await.unwrap();
                tags.insert(tag, branches[branch].rows.clone());
            }
            Step::Reopen => lake = Lake::open(storage.clone()).await.unwrap(),
        }
    }
    for (number, branch) in branches.iter().enumerate() {
        let at = At::Branch(name(number));
        assert_eq!(all(&lake, &at).await.unwrap(), branch.rows, "rows of {at}");
        let mut messages: Vec<_> =
            lake.log(&at, usize::MAX).await.unwrap().into_iter().map(|commit| commit.message).collect();
        messages.reverse();
        assert_eq!(messages, branch.messages, "log of {at}");
    }
    for (tag, rows) in tags {
        assert_eq!(all(&lake, &At::Tag(tag)).await.unwrap(), rows);
    }
    assert_eq!(lake.verify(&At::default(), |_| {}).await.unwrap().faults, []);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn branches_hold_what_the_model_holds(steps in prop::collection::vec(step(), 1..40)) {
        block_on(run(steps));
    }
}
