//! Mixtures and draws: every source in proportion, every row as often as it should, resumable, on any number of ranks.

use std::collections::HashMap;

use forebay_loader::{
    Error, Loader, LoaderOptions, Shuffle, Tail, Window,
    order::{Sampling, Stop},
};
use forebay_versioning::Selection;
use proptest::prelude::*;

use super::support::{Model, columns, folder, host, memory, table};

fn any_shuffle() -> impl Strategy<Value = Shuffle> {
    prop_oneof![
        Just(Shuffle::Off),
        Just(Shuffle::Global),
        (1_u32..20, 1_u32..4, 1_u64..20_000).prop_map(|(lanes, window, unit_bytes)| Shuffle::Windowed(Window {
            lanes,
            window,
            unit_bytes
        })),
    ]
}

struct Lakes {
    models: Vec<Model>,
    selections: Vec<Selection>,
    _folders: Vec<tempfile::TempDir>,
}

/// A lake for each length, every other one remote.
fn lakes(lengths: &[usize]) -> Lakes {
    let mut lakes = Lakes { models: Vec::new(), selections: Vec::new(), _folders: Vec::new() };
    for (number, rows) in lengths.iter().enumerate() {
        let model = Model::random(columns(), *rows, number as u64);
        let storage = if number % 2 == 1 {
            memory()
        } else {
            let (folder, storage) = folder();
            lakes._folders.push(folder);
            storage
        };
        model.write(storage.clone(), 2);
        lakes.models.push(model);
        lakes.selections.push(Selection::all(table(storage)));
    }
    lakes
}

impl Lakes {
    fn mix(&self, weights: &[f64], stop: Stop, options: LoaderOptions) -> Loader {
        let sources = self.selections.iter().cloned().zip(weights.iter().copied()).collect();
        Loader::mix(sources, stop, options, host(2)).unwrap()
    }

    /// The source and row at each position from where a loader stands; checks every byte.
    fn rows(&self, loader: &Loader, steps: usize) -> Vec<(u64, (u32, u64))> {
        let mut found = Vec::new();
        for batch in loader.iter().unwrap().take(steps) {
            let batch = batch.unwrap();
            // A mixture of one is told from a table by nothing.
            let sources = batch.sources.clone().unwrap_or_else(|| vec![0; batch.rows.len()]);
            found.extend(batch.positions.iter().copied().zip(sources.iter().copied().zip(batch.rows.iter().copied())));
            for (number, model) in (0..).zip(&self.models) {
                model.assert_some(&batch, |row| sources[row] == number);
            }
        }
        found
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn a_mixture_has_every_source_in_proportion_and_goes_on_where_it_stood_on_other_ranks(
        lengths in prop::collection::vec(1_usize..120, 1..4), shuffle in any_shuffle(), seed: u64, last: bool,
        worlds in (1_u32..5, 1_u32..5), steps in 0_usize..6,
    ) {
        let lakes = lakes(&lengths);
        let weights: Vec<f64> = (0..lengths.len()).map(|source| [0.5, 0.3, 0.2][source]).collect();
        let stop = if last { Stop::Last } else { Stop::First };
        let options = |rank, world, batch_size| LoaderOptions {
            shuffle, seed, rank, world, batch_size, tail: Tail::Short, ..LoaderOptions::default()
        };
        let whole: Vec<_> = lakes.rows(&lakes.mix(&weights, stop, options(0, 1, 16)), usize::MAX);
        let mut passes = HashMap::new();
        for (_, row) in &whole {
            *passes.entry(*row).or_insert(0_u32) += 1;
        }
        for (source, length) in (0..).zip(&lengths) {
            let of: Vec<u32> = (0..*length as u64).map(|row| passes.get(&(source, row)).copied().unwrap_or(0)).collect();
            let (least, most) = (*of.iter().min().unwrap(), *of.iter().max().unwrap());
            prop_assert!(most - least <= 1, "rows of a source come equally often: {of:?}");
            prop_assert!((last && least >= 1) || (!last && most <= 1));
        }
        let loaders = |world: u32, batch| (0..world).map(move |rank| (rank, world, batch));
        let (mut found, mut state) = (Vec::new(), None);
        for (rank, world, batch) in loaders(worlds.0, 3) {
            let loader = lakes.mix(&weights, stop, options(rank, world, batch));
            let mut batches = loader.iter().unwrap();
            for batch in batches.by_ref().take(steps) {
                let batch = batch.unwrap();
                let sources = batch.sources.unwrap_or_else(|| vec![0; batch.rows.len()]);
                let rows = sources.into_iter().zip(batch.rows);
                found.extend(batch.positions.into_iter().zip(rows));
            }
            let (epoch, position) = batches.progress();
            state = Some(loader.state(epoch, position)).filter(|_| epoch == 0);
        }
        if let Some(state) = state {
            found.retain(|(position, _)| *position < state.position);
            for (rank, world, batch) in loaders(worlds.1, 5) {
                let loader = lakes.mix(&weights, stop, options(rank, world, batch));
                loader.resume(&state).unwrap();
                found.extend(lakes.rows(&loader, usize::MAX));
            }
            found.sort_unstable();
            prop_assert_eq!(found, whole);
        }
    }
}

#[test]
fn an_epoch_of_fixed_length_repeats_its_source_in_another_order() {
    let lakes = lakes(&[50]);
    let options = LoaderOptions { batch_size: 10, shuffle: Shuffle::Global, ..LoaderOptions::default() };
    let rows = lakes.rows(&lakes.mix(&[1.0], Stop::Rows(120), options), usize::MAX);
    let rows: Vec<u64> = rows.into_iter().map(|(_, (_, row))| row).collect();
    assert_eq!(rows.len(), 120);
    let passes: Vec<&[u64]> = rows.chunks(50).collect();
    assert_ne!(passes[0], passes[1]);
    for pass in &passes[..2] {
        let mut pass = pass.to_vec();
        pass.sort_unstable();
        assert_eq!(pass, (0..50).collect::<Vec<_>>());
    }
}

#[test]
fn rows_are_drawn_by_weight_and_resumed() {
    let lakes = lakes(&[40, 40]);
    for selection in &lakes.selections {
        let weights: Vec<f64> = (0..40).map(|row| f64::from(row % 4)).collect();
        for (replacement, length) in [(true, Some(500)), (false, None)] {
            let sampling = Sampling { weights: weights.clone().into(), replacement, rows: length };
            let options =
                LoaderOptions { sampling: Some(sampling), batch_size: 7, seed: 4, ..LoaderOptions::default() };
            let loader = Loader::new(selection.clone(), options.clone(), host(1)).unwrap();
            let rows = |loader: &Loader| -> Vec<u64> {
                loader.iter().unwrap().flat_map(|batch| batch.unwrap().rows).collect()
            };
            let whole = rows(&loader);
            assert_eq!(whole.len(), if replacement { 500 } else { 30 });
            assert!(whole.iter().all(|row| row % 4 > 0));
            let mut once = whole.clone();
            once.sort_unstable();
            once.dedup();
            assert_eq!(once.len(), 30);
            loader.resume(&loader.state(0, 21)).unwrap();
            assert_eq!(rows(&loader), whole[21..]);
            loader.set_epoch(1);
            assert_ne!(rows(&loader), whole);
            let other = Sampling { weights: vec![1.0; 40].into(), replacement, rows: length };
            let other = LoaderOptions { sampling: Some(other), ..options };
            let other = Loader::new(selection.clone(), other, host(1)).unwrap();
            assert!(matches!(other.resume(&loader.state(0, 7)), Err(Error::State { field: "shuffle", .. })));
        }
    }
}

#[test]
fn sources_that_do_not_fit_are_refused_with_the_reason() {
    let mut short = lakes(&[5, 0]);
    let empty = short.selections.pop().unwrap();
    let fine = short.selections.pop().unwrap();
    let refused = |sources: Vec<(Selection, f64)>| {
        let error = Loader::mix(sources, Stop::First, LoaderOptions::default(), host(1)).unwrap_err();
        assert!(matches!(error, Error::Mix { .. }), "{error}");
        error.to_string()
    };
    assert!(refused(vec![]).contains("no source"));
    assert!(refused(vec![(fine.clone(), 1.0), (empty, 1.0)]).contains("source 1"));
    assert!(refused(vec![(fine.clone(), 0.0)]).contains("weight"));
    let storage = memory();
    let mut columns = columns();
    columns[1] = super::support::column("image", forebay_format::DType::U8, &[forebay_format::Dim::Fixed(2)]);
    Model::random(columns, 4, 1).write(storage.clone(), 1);
    assert!(refused(vec![(fine, 1.0), (Selection::all(table(storage)), 1.0)]).contains("'image'"));
}
