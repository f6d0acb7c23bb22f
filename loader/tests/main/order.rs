//! What the epoch order promises.

use std::{
    collections::{HashMap, HashSet},
    time::Instant,
};

use forebay_loader::order::{Grain, Order, Shard, Shuffle, Tail, Window};
use proptest::prelude::*;

fn window(lanes: u32, window: u32, unit_bytes: u64) -> Shuffle {
    Shuffle::Windowed(Window { lanes, window, unit_bytes })
}

fn shuffles() -> Vec<Shuffle> {
    vec![
        Shuffle::Off,
        Shuffle::Global,
        Shuffle::Windowed(Window::default()),
        window(1, 1, 1),
        window(1, 4, 7),
        window(5, 3, 10),
        window(96, 2, 64),
        Shuffle::Buffer(1),
        Shuffle::Buffer(1000),
    ]
}

/// Every row of the order, with unit sizes as if a row had one byte.
fn all(rows: u64, shuffle: Shuffle, seed: u64, epoch: u64) -> Vec<u64> {
    let order = Order::new(rows, 1, shuffle, seed, epoch);
    (0..rows).map(|position| order.index(position).unwrap()).collect()
}

fn assert_bijection(rows: u64, order: &Order) {
    let mut seen = vec![false; rows as usize];
    for position in 0..rows {
        let index = order.index(position).unwrap();
        assert!(!std::mem::replace(&mut seen[index as usize], true), "row {index} of {rows} comes twice");
    }
    assert_eq!(order.index(rows), None);
}

#[test]
fn every_row_comes_exactly_once_at_awkward_sizes() {
    let mut sizes = vec![0, 1, 2, 3, 95, 96, 97, 7919, 104_729, 1_000_000];
    for bits in [2, 5, 6, 10, 16] {
        sizes.extend([(1 << bits) - 1, 1 << bits, (1 << bits) + 1]);
    }
    for rows in sizes {
        for shuffle in shuffles() {
            assert_bijection(rows, &Order::new(rows, 1, shuffle, 7, 3));
        }
        assert_bijection(rows, &Order::new(rows, 150_528, Shuffle::Windowed(Window::default()), 7, 3));
    }
}

proptest! {
    #[test]
    fn rows_asked_for_many_at_once_are_those_of_one_after_another(
        rows in 0_u64..5000,
        kind in 0_usize..9,
        positions in prop::collection::vec(0_u64..6000, 0..60),
        seed: u64,
    ) {
        let order = Order::new(rows, 1, shuffles()[kind], seed, 1);
        let one_by_one: Vec<u64> = positions.iter().filter_map(|position| order.index(*position)).collect();
        prop_assert_eq!(order.indexes(&positions), one_by_one);
    }
}

#[test]
fn without_shuffle_the_selection_keeps_its_order() {
    assert_eq!(all(100, Shuffle::Off, 1, 2), (0..100).collect::<Vec<_>>());
}

#[test]
fn orders_of_two_seeds_or_epochs_differ() {
    for rows in [64, 65, 100, 1000] {
        for shuffle in [Shuffle::Global, window(8, 2, 4), window(1, 100, 4), Shuffle::Windowed(Window::default())] {
            let mut seen = HashSet::new();
            for seed in 0..8 {
                for epoch in 0..8 {
                    assert!(seen.insert(all(rows, shuffle, seed, epoch)), "{shuffle:?} of {rows}: {seed}, {epoch}");
                }
            }
        }
    }
}

#[test]
fn the_order_of_an_epoch_never_changes_between_versions() {
    // A saved position means the same rows tomorrow. If these change, resumed training repeats and skips rows.
    assert_eq!(all(10, Shuffle::Global, 1, 2), GLOBAL);
    assert_eq!(all(12, window(3, 2, 2), 1, 2), WINDOWED);
}
const GLOBAL: [u64; 10] = [2, 4, 1, 0, 7, 3, 5, 9, 6, 8];
const WINDOWED: [u64; 12] = [5, 0, 10, 4, 1, 11, 8, 2, 7, 9, 3, 6];

#[test]
fn a_billion_rows_cost_no_more_than_a_thousand() {
    for shuffle in [Shuffle::Global, Shuffle::Windowed(Window::default())] {
        for rows in [1_000, 1_000_000_000, 1 << 48] {
            let started = Instant::now();
            let order = Order::new(rows, 150_528, shuffle, 1, 1);
            let mut sum = 0;
            for step in 0..1000 {
                sum += order.index(step * (rows / 1000)).unwrap() & 1;
            }
            // 1,000 positions in under a second is 1 ms each, on a busy machine; an idle one takes half a microsecond.
            assert!(started.elapsed().as_secs_f64() < 1.0, "{shuffle:?} of {rows}");
            assert!(sum > 300 && sum < 700, "{sum} odd rows of 1,000");
        }
    }
    assert!(size_of::<Order>() < 256, "an order holds nothing that grows with its rows");
}

#[test]
fn the_default_window_mixes_sorted_classes_nearly_as_well_as_a_full_shuffle() {
    let (rows, classes, batch) = (1_281_167_u64, 1000_u64, 256);
    let distinct = |shuffle: Shuffle| {
        let order = Order::new(rows, 150_528, shuffle, 5, 0);
        let mut total = 0;
        let batches = rows / batch;
        for step in (0..batches).step_by(8) {
            let labels: HashSet<u64> = (step * batch..(step + 1) * batch)
                .map(|position| order.index(position).unwrap() * classes / rows)
                .collect();
            total += labels.len();
        }
        total as f64 / batches.div_ceil(8) as f64
    };
    let ratio = distinct(Shuffle::Windowed(Window::default())) / distinct(Shuffle::Global);
    assert!(ratio >= 0.95, "{ratio} of the distinct classes of a uniform permutation");
    let rows_held = 96 * 24 * Window::default().unit_rows(150_528);
    assert!(rows_held * 150_528 <= 1 << 30, "the window takes about a gibibyte");
}

#[test]
fn lanes_open_new_groups_at_different_times() {
    let order = Order::new(1_000_000, 1, window(96, 10, 100), 3, 0);
    let mut opened = vec![0; 1000];
    let mut last = vec![0; 96];
    for position in 96..500_000 {
        let group = order.group(position).unwrap();
        if group.number > std::mem::replace(&mut last[group.lane as usize], group.number) {
            opened[position as usize / 96 / 50] += 1;
        }
    }
    // A lane opens a group of 1,000 rows every 1,000 rounds, so 50 rounds see 96 / 20 = 4.8 openings.
    let openings = &opened[1..500_000 / 96 / 50];
    assert!(openings.iter().all(|&count| (3..=7).contains(&count)), "{openings:?}");
}

#[test]
fn an_epoch_without_a_batch_for_every_rank_is_empty_when_tails_are_dropped() {
    for rank in 0..4 {
        assert_eq!(Shard::new(7, 2, rank, 4, Tail::Drop).batches(), 0);
    }
    let short: Vec<u64> = (0..4).map(|rank| Shard::new(7, 2, rank, 4, Tail::Short).batches()).collect();
    assert_eq!(short, [1, 1, 1, 1]);
    assert_eq!(Shard::new(7, 2, 3, 4, Tail::Short).positions(0).collect::<Vec<_>>(), [3]);
    assert_eq!(Shard::new(2, 2, 3, 4, Tail::Short).batches(), 0);
}

fn any_shuffle() -> impl Strategy<Value = Shuffle> {
    prop_oneof![
        Just(Shuffle::Off),
        Just(Shuffle::Global),
        (1_u32..20, 1_u32..6, 1_u64..20).prop_map(|(lanes, units, bytes)| window(lanes, units, bytes)),
        (1_u32..300).prop_map(Shuffle::Buffer),
    ]
}

#[test]
fn a_buffer_mixes_within_runs_of_the_table_and_units_are_whole_blocks() {
    let rows = all(1_050, Shuffle::Buffer(100), 3, 0);
    for (run, rows) in rows.chunks(100).enumerate() {
        let mut sorted = rows.to_vec();
        sorted.sort_unstable();
        assert_eq!(sorted, (run as u64 * 100..run as u64 * 100 + rows.len() as u64).collect::<Vec<_>>());
        assert_ne!(sorted, rows, "they are mixed");
    }
    let grain = Grain { row_bytes: 12_296, block_rows: 5 };
    assert_eq!([Window::default().unit_rows(grain), Window::default().unit_rows(12_296)], [40, 42]);
    let coarse = Grain { row_bytes: 12_296, block_rows: 4_000 };
    assert_eq!(Window::default().unit_rows(coarse), 42, "a unit needn't hold a block");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_row_comes_exactly_once(rows in 0_u64..2000, shuffle in any_shuffle(), seed: u64, epoch: u64) {
        assert_bijection(rows, &Order::new(rows, 1, shuffle, seed, epoch));
    }

    #[test]
    fn each_row_knows_its_position(rows in 1_u64..800, shuffle in any_shuffle(), seed: u64) {
        let order = Order::new(rows, 1, shuffle, seed, 0);
        for position in 0..rows {
            prop_assert_eq!(order.position(order.index(position).unwrap()), Some(position));
        }
        prop_assert_eq!(order.position(rows), None);
    }

    #[test]
    fn a_group_is_a_run_of_rows_of_few_units(rows in 1_u64..800, lanes in 1_u32..20, units in 1_u32..6, bytes in 1_u64..20) {
        let order = Order::new(rows, 1, window(lanes, units, bytes), 1, 0);
        let mut groups: HashMap<_, Vec<u64>> = HashMap::new();
        for position in 0..rows {
            groups.entry(order.group(position).unwrap()).or_default().push(order.index(position).unwrap());
        }
        for members in groups.values() {
            let distinct: HashSet<u64> = members.iter().map(|&index| order.unit(index)).collect();
            prop_assert!(members.len() as u64 <= u64::from(units) * order.unit_rows());
            // The short unit may shift where units begin, so a group can begin and end within one, and hold the short one.
            prop_assert!(distinct.len() <= units as usize + 2, "{} units", distinct.len());
        }
    }

    #[test]
    fn global_batches_are_the_same_for_every_world(
        rows in 0_u64..3000, batch in 1_u64..9, shuffle in any_shuffle(), short: bool,
    ) {
        let tail = if short { Tail::Short } else { Tail::Drop };
        let order = Order::new(rows, 1, shuffle, 1, 1);
        let batches = |world: u32| -> Vec<HashSet<u64>> {
            let shards: Vec<_> =
                (0..world).map(|rank| Shard::new(rows, batch * 8 / u64::from(world), rank, world, tail)).collect();
            let steps = shards.iter().map(Shard::batches).max().unwrap();
            (0..steps)
                .map(|step| {
                    let positions: Vec<u64> = shards.iter().flat_map(|shard| shard.positions(step)).collect();
                    let rows: HashSet<u64> = positions.iter().map(|&at| order.index(at).unwrap()).collect();
                    assert_eq!(rows.len(), positions.len());
                    rows
                })
                .collect()
        };
        let one = batches(1);
        let delivered: usize = one.iter().map(HashSet::len).sum();
        prop_assert_eq!(delivered as u64, if short { rows } else { rows - rows % (batch * 8) });
        for world in [2, 4, 8] {
            prop_assert_eq!(&batches(world), &one);
        }
    }

    #[test]
    fn a_position_is_delivered_in_the_batch_that_says_so(
        rows in 0_u64..500, batch in 1_u64..9, world in 1_u32..9, short: bool,
    ) {
        let tail = if short { Tail::Short } else { Tail::Drop };
        for rank in 0..world {
            let shard = Shard::new(rows, batch, rank, world, tail);
            let mut delivered = 0;
            for step in 0..shard.batches() {
                for position in shard.positions(step) {
                    prop_assert_eq!(shard.batch_of(position), Some(step));
                    delivered += 1;
                }
            }
            prop_assert_eq!(delivered, shard.delivered());
            prop_assert_eq!((0..rows).filter(|&at| shard.batch_of(at).is_some()).count() as u64, delivered);
        }
    }
}
