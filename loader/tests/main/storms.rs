//! A store that does everything wrong now and then changes nothing but the time that an epoch takes.

use std::{sync::Arc, time::Duration};

use forebay_loader::{Loader, LoaderOptions, Shuffle, State, Window};
use forebay_storage::{
    Options, Storage,
    testing::{Fault, FaultStore, OpKind, Rule},
};
use forebay_versioning::{Selection, Table};

use super::{
    resume::{Leg, run},
    support::{Model, block_on, columns, host, memory, table},
};

/// Errors, resets, cut bodies, 503s, flipped bits, and answers that never come or never end.
fn storm(inner: &Storage, seed: u64) -> Table {
    let store = FaultStore::new(inner.store().unwrap(), seed);
    let options: Options = [("timeout", "300ms"), ("max_retries", "20"), ("hedge", "false")].into_iter().collect();
    let table = table(Storage::from_remote_store(Arc::new(store.clone()), "memory://storm", &options).unwrap());
    // A flipped bit in an index is an error of its own: the storm begins once the files are open.
    let fields: Vec<_> = table.schema().columns.iter().map(|column| column.field).collect();
    let files = (0..table.fragments().len()).flat_map(|fragment| fields.iter().map(move |field| (fragment, *field)));
    block_on(table.open_files(files)).unwrap();
    let get = |fault| Rule::new(fault).on(OpKind::Get).path("data/");
    // One in each storm: were the block that is asked for again hit again, it would count as damaged.
    store.add(get(Fault::Flip(None)).nth([7, 60, 150][seed as usize % 3]));
    for nth in [20, 110] {
        store.add(get(Fault::Throttle).nth(nth));
    }
    for nth in [12, 90] {
        store.add(get(Fault::Stall).nth(nth)).add(get(Fault::StallBody).nth(nth + 5));
    }
    store.add(get(Fault::ErrorBefore).chance(0.03)).add(get(Fault::Break(None)).chance(0.03));
    store.add(get(Fault::Truncate(None)).chance(0.03)).add(get(Fault::Jitter(Duration::from_millis(4))).chance(0.3));
    table
}

#[test]
fn interrupted_and_resumed_on_other_ranks_in_a_storm_the_rows_are_those_of_a_calm_run() {
    let inner = memory();
    let model = Model::random(columns(), 240, 21);
    model.write(inner.clone(), 2);
    for shuffle in [Shuffle::Global, Shuffle::Windowed(Window { lanes: 6, window: 2, unit_bytes: 9_000 })] {
        let base = LoaderOptions { shuffle, seed: 3, io_concurrency: 4, ..LoaderOptions::default() };
        let calm = Loader::new(Selection::all(table(inner.clone())), base.clone(), host(1)).unwrap();
        let expected: Vec<u64> = calm.iter().unwrap().flat_map(|batch| batch.unwrap().rows).collect();
        let (mut found, mut state) = (Vec::new(), None::<State>);
        for (seed, world) in [1, 3, 2, 5, 1].into_iter().enumerate() {
            let steps = if seed == 4 { 240 } else { 3 };
            let leg = Leg { world, batch: 5, threads: 2, steps };
            let selection = Selection::all(storm(&inner, seed as u64));
            let (rows, next) = run(&model, &selection, &base, &leg, state.as_ref());
            found.extend(rows);
            state = Some(next);
        }
        assert_eq!(found, expected, "{shuffle:?}");
    }
}

#[test]
fn ranks_go_on_without_one_that_died_and_fewer_take_over_its_rows() {
    let inner = memory();
    let model = Model::random(columns(), 300, 22);
    model.write(inner.clone(), 2);
    let selection = Selection::all(table(inner));
    let base = LoaderOptions { shuffle: Shuffle::Global, batch_size: 5, ..LoaderOptions::default() };
    let rank = |rank, world| {
        let options = LoaderOptions { rank, world, ..base.clone() };
        Loader::new(selection.clone(), options, host(1)).unwrap()
    };
    let expected: Vec<u64> = rank(0, 1).iter().unwrap().flat_map(|batch| batch.unwrap().rows).collect();
    // Rank 1 of three dies after two steps; the others come to their ends all the same.
    let dead = rank(1, 3);
    let mut batches = dead.iter().unwrap();
    batches.by_ref().take(2).for_each(|batch| model.assert_batch(&batch.unwrap()));
    let (epoch, position) = batches.progress();
    let state = dead.state(epoch, position);
    drop(batches);
    for other in [0, 2] {
        let rows: Vec<u64> = rank(other, 3).iter().unwrap().flat_map(|batch| batch.unwrap().rows).collect();
        let own = expected.iter().skip(other as usize).step_by(3).copied();
        assert_eq!(rows, own.collect::<Vec<_>>());
    }
    // All that follows its last whole step comes on two ranks.
    let rows: Vec<Vec<u64>> = (0..2)
        .map(|number| {
            let loader = rank(number, 2);
            loader.resume(&state).unwrap();
            loader.iter().unwrap().flat_map(|batch| batch.unwrap().rows).collect()
        })
        .collect();
    let merged: Vec<u64> = rows[0].iter().zip(&rows[1]).flat_map(|(a, b)| [*a, *b]).collect();
    assert_eq!(position, 30);
    assert_eq!(merged, expected[30..]);
}
