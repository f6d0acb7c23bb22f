//! Damaged rows, outages and ranks that change, all in one epoch.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use forebay_loader::{
    Batch, BatchValues, Fault, FaultPolicy, Loader, LoaderOptions, OnFault, Pixels, Shuffle, State,
    finish::{Finish, Number, Resize},
};
use forebay_storage::{
    Storage,
    testing::{Fault as StoreFault, FaultStore, OpKind, Rule},
};
use forebay_versioning::Selection;
use proptest::prelude::*;

use super::{
    decoding::{photos, picture},
    support::{host, memory, table},
};

/// By position: the row that came, and its pixels if it counts.
type Samples = BTreeMap<u64, (u64, Option<Vec<u8>>)>;

/// What happens until a run is interrupted.
#[derive(Clone, Debug)]
struct Leg {
    world: u32,
    batch: usize,
    /// It ends after so many steps,
    steps: usize,
    /// or when the store fails at a request.
    outage: Option<(u64, StoreFault)>,
}

fn any_leg() -> impl Strategy<Value = Leg> {
    let outages =
        vec![StoreFault::ErrorBefore, StoreFault::Truncate(None), StoreFault::Break(None), StoreFault::Refuse];
    let outage = prop::option::of((1_u64..60, prop::sample::select(outages)));
    (prop::sample::select(&[1_u32, 2, 3, 5, 6, 7, 8, 24][..]), 1_usize..9, 1_usize..5, outage)
        .prop_map(|(world, batch, steps, outage)| Leg { world, batch, steps, outage })
}

fn options(on_fault: OnFault, seed: u64) -> LoaderOptions {
    let finish = Finish { number: Number::U8, resize: Some(Resize::To { height: 4, width: 4 }), ..Finish::default() };
    LoaderOptions {
        shuffle: Shuffle::Global,
        seed,
        decode: [("photo".to_owned(), Pixels::Rgb)].into(),
        finishes: [("photo".to_owned(), finish)].into(),
        faults: FaultPolicy { on_fault, max_faults: u64::MAX, max_rate: 1.0 },
        ..LoaderOptions::default()
    }
}

fn samples(batch: &Batch, into: &mut Samples) {
    let BatchValues::Fixed { buffer, .. } = &batch.columns[1].values else { panic!("not of one shape") };
    let pixels = buffer.host().unwrap();
    for (place, (position, row)) in batch.positions.iter().zip(&batch.rows).enumerate() {
        let counts = batch.mask.as_ref().is_none_or(|mask| mask[place]);
        let pixels = pixels[place * 48..(place + 1) * 48].to_vec();
        if counts {
            assert_eq!(pixels[2], picture(*row as usize).as_raw()[2], "row {row}");
        } else {
            assert!(pixels.iter().all(|byte| *byte == 0));
        }
        let before = into.insert(*position, (*row, counts.then_some(pixels)));
        assert!(before.is_none(), "position {position} came twice");
    }
}

/// The ranks of a leg, from `state` on. Gives the state after the last step that all of them made.
fn run(
    selection: &Selection,
    base: &LoaderOptions,
    leg: &Leg,
    state: State,
    found: &mut Samples,
    faults: &mut Vec<Fault>,
) -> State {
    let device = host(1);
    let (mut made, mut states) = (usize::MAX, Vec::new());
    let mut by_rank = Vec::new();
    for rank in 0..leg.world {
        let options = LoaderOptions { batch_size: leg.batch, rank, world: leg.world, ..base.clone() };
        let loader = Loader::new(selection.clone(), options, device.clone()).unwrap();
        loader.resume(&state).unwrap();
        let mut batches = loader.iter().unwrap();
        let (mut steps, mut after) = (Vec::new(), vec![state.clone()]);
        while steps.len() < leg.steps {
            match batches.next() {
                Some(Ok(batch)) => steps.push(Some(batch)),
                Some(Err(error)) => {
                    assert!(!error.is_of_row() && leg.outage.is_some(), "{error}");
                    break;
                }
                None => steps.push(None),
            }
            let (epoch, position) = batches.progress();
            after.push(loader.state(epoch, position));
        }
        made = made.min(steps.len());
        faults.extend(batches.faults());
        by_rank.push(steps);
        states.push(after);
    }
    for batch in by_rank.iter().flat_map(|steps| steps[..made].iter().flatten()) {
        samples(batch, found);
    }
    let state = states[0][made].clone();
    assert!(states.iter().all(|rank| rank[made] == state), "every rank has the same state");
    state
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn one_bad_row_in_a_hundred_and_any_outages_change_no_other_sample(
        rows in 100_usize..400, seed: u64, substitute: bool, legs in prop::collection::vec(any_leg(), 10),
    ) {
        let bad: Vec<usize> = (0..rows).filter(|row| row % 100 == (seed % 100) as usize).collect();
        let inner = memory();
        photos(rows, &bad).write(inner.clone(), 2);
        let store = FaultStore::new(inner.store().unwrap(), seed);
        let open = || Selection::all(table(Storage::from_store(Arc::new(store.clone()), "memory://test")));
        let base = options(if substitute { OnFault::Substitute } else { OnFault::Skip }, seed);

        let whole = Loader::new(open(), base.clone(), host(2)).unwrap();
        let (mut expected, mut state) = (Samples::new(), whole.state(0, 0));
        let mut batches = whole.iter().unwrap();
        batches.by_ref().for_each(|batch| samples(&batch.unwrap(), &mut expected));
        let named = |faults: &[Fault]| faults.iter().map(|fault| (fault.position, fault.row)).collect::<BTreeSet<_>>();
        let expected_faults = named(&batches.faults());
        prop_assert_eq!(expected_faults.iter().map(|(_, row)| *row as usize).collect::<BTreeSet<_>>(), bad.into_iter().collect());

        let (mut found, mut faults) = (Samples::new(), Vec::new());
        for leg in &legs {
            let selection = open();
            if let Some((request, fault)) = leg.outage {
                store.add(Rule::new(fault).on(OpKind::Get).path("data/").from(request));
            }
            state = run(&selection, &base, leg, state, &mut found, &mut faults);
            store.clear();
            if state.epoch > 0 {
                break;
            }
        }
        let last = Leg { world: 2, batch: 7, steps: rows.div_ceil(14) + 1, outage: None };
        if state.epoch == 0 {
            run(&open(), &base, &last, state, &mut found, &mut faults);
        }
        prop_assert_eq!(found, expected);
        prop_assert_eq!(named(&faults), expected_faults);
    }
}
