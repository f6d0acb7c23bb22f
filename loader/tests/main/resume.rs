//! A state goes on exactly where it was taken, on any number of ranks.

use forebay_loader::{Error, Loader, LoaderOptions, Shuffle, State, Tail, Window};
use forebay_versioning::{Rows, Selection, Table};
use proptest::prelude::*;

use super::support::{Model, columns, folder, host, memory, table};

const WORLDS: [u32; 8] = [1, 2, 3, 5, 6, 7, 8, 24];

fn any_shuffle() -> impl Strategy<Value = Shuffle> {
    prop_oneof![
        Just(Shuffle::Off),
        Just(Shuffle::Global),
        (1_u32..30, 1_u32..4, 1_u64..20_000).prop_map(|(lanes, window, unit_bytes)| Shuffle::Windowed(Window {
            lanes,
            window,
            unit_bytes
        })),
    ]
}

/// What a run that was interrupted looks like: how many ranks, rows of a batch and threads, and how many steps it makes.
#[derive(Clone, Debug)]
pub(crate) struct Leg {
    pub(crate) world: u32,
    pub(crate) batch: usize,
    pub(crate) threads: usize,
    pub(crate) steps: usize,
}

fn any_leg() -> impl Strategy<Value = Leg> {
    (prop::sample::select(&WORLDS[..]), 1_usize..12, 0_usize..3, 0_usize..4)
        .prop_map(|(world, batch, threads, steps)| Leg { world, batch, threads, steps })
}

fn options(shuffle: Shuffle, seed: u64, tail: Tail) -> LoaderOptions {
    let columns = Some(vec!["id".to_owned(), "packed".to_owned()]);
    LoaderOptions { columns, shuffle, seed, tail, ..LoaderOptions::default() }
}

/// The ranks of a leg, from `state` on. Gives the rows of its steps, in order of the epoch, and the state that every rank has.
pub(crate) fn run(
    model: &Model,
    selection: &Selection,
    base: &LoaderOptions,
    leg: &Leg,
    state: Option<&State>,
) -> (Vec<u64>, State) {
    let mut parts: Vec<Vec<Vec<u64>>> = Vec::new();
    let mut states = Vec::new();
    let device = host(leg.threads.max(1));
    for rank in 0..leg.world {
        let options =
            LoaderOptions { batch_size: leg.batch, rank, world: leg.world, threads: leg.threads, ..base.clone() };
        let loader = Loader::new(selection.clone(), options, device.clone()).unwrap();
        if let Some(state) = state {
            loader.resume(state).unwrap();
        }
        let mut batches = loader.iter().unwrap();
        let mut rows = Vec::new();
        for _ in 0..leg.steps {
            match batches.next() {
                Some(batch) => {
                    let batch = batch.unwrap();
                    model.assert_batch(&batch);
                    rows.push(batch.rows);
                }
                None => rows.push(Vec::new()),
            }
        }
        let (epoch, position) = batches.progress();
        states.push(loader.state(epoch, position));
        parts.push(rows);
    }
    states.dedup();
    assert_eq!(states.len(), 1, "every rank has the same state: {states:?}");
    let mut merged = Vec::new();
    for step in 0..leg.steps {
        for place in 0..leg.batch {
            merged.extend(parts.iter().filter_map(|rank| rank[step].get(place).copied()));
        }
    }
    (merged, states.remove(0))
}

fn select(table: Table, filtered: bool, seed: u64) -> Selection {
    if !filtered {
        return Selection::all(table);
    }
    let rows = (0..table.rows()).filter(|row| (row.wrapping_mul(31) ^ seed) % 3 < 2);
    Selection::new(table.clone(), Rows::Runs(rows.map(|row| row..row + 1).collect())).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn interrupted_ten_times_and_resumed_on_other_ranks_the_rows_are_those_of_one_run(
        rows in 1_usize..900, seed: u64, shuffle in any_shuffle(), filtered: bool, remote: bool,
        legs in prop::collection::vec(any_leg(), 10),
    ) {
        let model = Model::random(columns(), rows, seed);
        let (_folder, local) = folder();
        let storage = if remote { memory() } else { local };
        model.write(storage.clone(), 2);
        let selection = select(table(storage), filtered, seed);
        let base = options(shuffle, seed, Tail::Short);
        let whole = Loader::new(selection.clone(), base.clone(), host(1)).unwrap();
        let expected: Vec<u64> = whole.iter().unwrap().flat_map(|batch| batch.unwrap().rows).collect();
        let mut state: Option<State> = None;
        let mut found = Vec::new();
        for leg in &legs {
            let (rows, next) = run(&model, &selection, &base, leg, state.as_ref());
            found.extend(rows);
            if next.epoch > 0 {
                break;
            }
            prop_assert_eq!(next.position as usize, found.len());
            state = Some(next);
        }
        let last = Leg { world: 1, batch: 7, threads: 0, steps: rows.div_ceil(7) };
        if found.len() < expected.len() {
            found.extend(run(&model, &selection, &base, &last, state.as_ref()).0);
        }
        prop_assert_eq!(found, expected);
    }
}

fn one_loader() -> (Loader, State) {
    let storage = memory();
    Model::random(columns(), 60, 1).write(storage.clone(), 2);
    let loader = Loader::new(Selection::all(table(storage)), options(Shuffle::Global, 3, Tail::Drop), host(1)).unwrap();
    let state = loader.state(4, 17);
    (loader, state)
}

#[test]
fn a_state_with_one_bit_changed_is_refused() {
    let (loader, state) = one_loader();
    loader.resume(&state).unwrap();
    let mut damaged = Vec::new();
    for bit in 0..64 {
        damaged.push(State { seed: state.seed ^ 1 << bit, ..state.clone() });
        damaged.push(State { epoch: state.epoch ^ 1 << bit, ..state.clone() });
        damaged.push(State { position: state.position ^ 1 << bit, ..state.clone() });
    }
    for bit in 0..32 {
        damaged.push(State { version: state.version ^ 1 << bit, ..state.clone() });
    }
    let texts = [&state.commit, &state.selection, &state.shuffle, &state.checksum];
    for (field, text) in texts.into_iter().enumerate() {
        for bit in 0..text.len() * 7 {
            let mut bytes = text.clone().into_bytes();
            bytes[bit / 7] ^= 1 << (bit % 7);
            let text = String::from_utf8(bytes).unwrap();
            let mut state = state.clone();
            match field {
                0 => state.commit = text,
                1 => state.selection = text,
                2 => state.shuffle = text,
                _ => state.checksum = text,
            }
            damaged.push(state);
        }
    }
    for damaged in damaged {
        assert!(matches!(loader.resume(&damaged), Err(Error::State { .. })), "{damaged:?}");
    }
    assert_eq!(loader.epoch(), 4, "a refused state changes nothing");
}

#[test]
fn a_state_of_something_else_is_refused_by_the_field_that_differs() {
    let (loader, state) = one_loader();
    let table = loader.selections().next().unwrap().table().clone();
    let refused = |selection: Selection, options: LoaderOptions| match Loader::new(selection, options, host(1))
        .unwrap()
        .resume(&state)
    {
        Err(Error::State { field, .. }) => field,
        other => panic!("{other:?}"),
    };
    let some = Selection::new(table.clone(), Rows::Runs([0..59].into())).unwrap();
    assert_eq!(refused(some, options(Shuffle::Global, 3, Tail::Drop)), "selection");
    let all = Selection::all(table);
    assert_eq!(refused(all.clone(), options(Shuffle::Global, 4, Tail::Drop)), "seed");
    assert_eq!(refused(all, options(Shuffle::default(), 3, Tail::Drop)), "shuffle");
    let other = one_loader().0;
    assert!(matches!(other.resume(&state), Err(Error::State { field: "commit", .. })));
}

#[test]
fn the_position_is_used_once_and_kept_when_its_own_epoch_is_set() {
    let (loader, _) = one_loader();
    let state = loader.state(4, 50);
    loader.resume(&state).unwrap();
    loader.set_epoch(4);
    assert_eq!(loader.iter().unwrap().count(), 10);
    assert_eq!(loader.iter().unwrap().count(), 60, "another pass starts at the start");
    loader.resume(&state).unwrap();
    loader.set_epoch(5);
    assert_eq!(loader.iter().unwrap().count(), 60);
}

#[test]
fn padded_ranks_have_as_many_batches_and_every_row_once_whatever_their_number() {
    let (_folder, storage) = folder();
    let model = Model::random(columns(), 103, 5);
    model.write(storage.clone(), 2);
    for storage in [storage, {
        let remote = memory();
        model.write(remote.clone(), 2);
        remote
    }] {
        let table = table(storage);
        for (world, batch_size) in [(1, 10), (2, 7), (8, 16), (24, 3), (7, 200)] {
            let mut seen = Vec::new();
            let steps = 103_u64.div_ceil(u64::from(world) * batch_size as u64);
            for rank in 0..world {
                let options = LoaderOptions {
                    batch_size,
                    rank,
                    world,
                    tail: Tail::Pad,
                    shuffle: Shuffle::Global,
                    ..LoaderOptions::default()
                };
                let loader = Loader::new(Selection::all(table.clone()), options, host(1)).unwrap();
                assert_eq!(loader.len(), steps);
                for batch in loader.iter().unwrap() {
                    let batch = batch.unwrap();
                    assert_eq!(batch.rows.len(), batch_size);
                    model.assert_batch(&batch);
                    let mask = batch.mask.unwrap();
                    seen.extend(batch.rows.iter().zip(mask).filter(|(_, counts)| *counts).map(|(row, _)| *row));
                }
            }
            seen.sort_unstable();
            assert_eq!(seen, (0..103).collect::<Vec<_>>());
        }
    }
}
