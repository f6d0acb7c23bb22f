//! Batches go through stages of the user's own: in order, by seeds that no rank or resume changes, and what fails says where.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Barrier,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use forebay_format::DType;
use forebay_loader::{
    Batch, BatchColumn, BatchField, BatchValues, Buffer, Error, HostPool, Loader, LoaderOptions, Samples, Shuffle,
    Stage, StageError, Tail,
};
use forebay_storage::Storage;
use forebay_versioning::Selection;

use super::support::{Model, column, folder, host, memory, table};

const ROWS: usize = 103;

fn model() -> Model {
    Model::random(vec![column("id", DType::I64, &[]), column("text", DType::Utf8, &[])], ROWS, 3)
}

fn loader(storage: Storage, options: LoaderOptions) -> Result<Loader, Error> {
    Loader::new(Selection::all(table(storage)), options, host(2))
}

fn options(stages: Vec<Arc<dyn Stage>>) -> LoaderOptions {
    LoaderOptions { stages, batch_size: 4, shuffle: Shuffle::Global, seed: 5, ..LoaderOptions::default() }
}

fn numbers(column: &BatchColumn) -> Vec<u64> {
    let BatchValues::Fixed { buffer, .. } = &column.values else { panic!("not of one shape") };
    buffer.host().unwrap().chunks_exact(8).map(|number| u64::from_le_bytes(number.try_into().unwrap())).collect()
}

/// Adds a column of each row's seed.
#[derive(Debug)]
struct Seeds(HostPool);

impl Stage for Seeds {
    fn name(&self) -> &str {
        "seeds"
    }

    fn fields(&self, mut fields: Vec<BatchField>) -> Result<Vec<BatchField>, StageError> {
        fields.push(BatchField { name: "seed".into(), dtype: DType::U64, shape: Vec::new(), nullable: false });
        Ok(fields)
    }

    fn apply(&self, mut columns: Vec<BatchColumn>, samples: &Samples<'_>) -> Result<Vec<BatchColumn>, StageError> {
        let mut buffer = self.0.take(8 * samples.rows.len())?;
        for (place, seed) in buffer.chunks_exact_mut(8).zip(samples.seeds()) {
            place.copy_from_slice(&seed.to_le_bytes());
        }
        let values = BatchValues::Fixed { shape: vec![samples.rows.len()], buffer: Buffer::Host(buffer) };
        columns.push(BatchColumn { name: "seed".into(), dtype: DType::U64, values, validity: None });
        Ok(columns)
    }
}

/// Calls a function.
struct Calls<F>(F);

impl<F> std::fmt::Debug for Calls<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Calls")
    }
}

impl<F: Fn(Vec<BatchColumn>, &Samples<'_>) -> Result<Vec<BatchColumn>, StageError> + Send + Sync> Stage for Calls<F> {
    fn name(&self) -> &str {
        "calls"
    }

    fn apply(&self, columns: Vec<BatchColumn>, samples: &Samples<'_>) -> Result<Vec<BatchColumn>, StageError> {
        (self.0)(columns, samples)
    }
}

fn calls(
    function: impl Fn(Vec<BatchColumn>, &Samples<'_>) -> Result<Vec<BatchColumn>, StageError> + Send + Sync + 'static,
) -> Arc<dyn Stage> {
    Arc::new(Calls(function))
}

/// The seed of each row that is delivered.
fn seeds(batches: impl Iterator<Item = Result<Batch, Error>>) -> BTreeMap<u64, u64> {
    let rows_and_seeds = |batch: Batch| batch.rows.into_iter().zip(numbers(&batch.columns[2])).collect::<Vec<_>>();
    batches.flat_map(|batch| rows_and_seeds(batch.unwrap())).collect()
}

#[test]
fn rows_have_the_same_seeds_on_any_number_of_ranks_and_after_a_resume() {
    let (_folder, local) = folder();
    for storage in [local, memory()] {
        model().write(storage.clone(), 2);
        let made = |rank, world, prefetch| {
            let stages: Vec<Arc<dyn Stage>> = vec![Arc::new(Seeds(HostPool::new(1 << 20)))];
            let options = LoaderOptions { rank, world, prefetch, group_bytes: 1 << 20, ..options(stages) };
            loader(storage.clone(), LoaderOptions { tail: Tail::Short, ..options }).unwrap()
        };
        let whole = made(0, 1, 2);
        assert_eq!(&*whole.schema()[2].name, "seed");
        let all = seeds(whole.iter().unwrap());
        assert_eq!(all.len(), ROWS);
        let mut shared = seeds(made(0, 2, 1).iter().unwrap());
        shared.extend(seeds(made(1, 2, 9).iter().unwrap()));
        assert_eq!(shared, all);

        let stopped = made(0, 1, 3);
        let mut batches = stopped.iter().unwrap();
        let mut found = seeds(batches.by_ref().take(7));
        let (epoch, position) = batches.progress();
        let resumed = made(0, 1, 2);
        resumed.resume(&stopped.state(epoch, position)).unwrap();
        found.extend(seeds(resumed.iter().unwrap()));
        assert_eq!(found, all);
    }
}

#[test]
fn stages_run_in_order_and_several_batches_at_once_while_the_batches_keep_theirs() {
    let (_folder, local) = folder();
    for storage in [local, memory()] {
        model().write(storage.clone(), 2);
        // Three batches meet in the stage, or nothing comes.
        let (meeting, met) = (Barrier::new(3), AtomicUsize::new(0));
        let meets = calls(move |columns, _| {
            if met.fetch_add(1, Ordering::SeqCst) < 3 {
                meeting.wait();
            }
            Ok(columns)
        });
        let without = calls(|mut columns, samples| {
            // With the column of the stage before.
            assert_eq!((columns.len(), samples.positions.len()), (3, samples.rows.len()));
            columns.rotate_left(3);
            Ok(columns)
        });
        let stages = vec![meets, Arc::new(Seeds(HostPool::new(0))) as Arc<dyn Stage>, without];
        let options = LoaderOptions { prefetch: 3, threads: 3, ..options(stages) };
        let steps: Vec<u64> =
            loader(storage.clone(), options).unwrap().iter().unwrap().map(|b| b.unwrap().step).collect();
        assert_eq!(steps, (0..ROWS.div_ceil(4) as u64).collect::<Vec<_>>());
    }
}

#[test]
fn a_stage_that_fails_panics_or_makes_something_else_ends_the_epoch_with_its_name() {
    let storage = memory();
    model().write(storage.clone(), 2);
    let at_step_3 = |done: fn(Vec<BatchColumn>) -> Result<Vec<BatchColumn>, StageError>| {
        calls(move |columns, samples| if samples.step == 3 { done(columns) } else { Ok(columns) })
    };
    let cases = [
        (at_step_3(|_| Err("no such word".into())), "stage 'calls': no such word"),
        (at_step_3(|_| panic!("at word {}", 7)), "stage 'calls': it panicked: at word 7"),
        (at_step_3(|columns| Ok(columns.into_iter().take(1).collect())), "stage 'calls': it said that it would make ["),
        (
            at_step_3(|mut columns| {
                if let BatchValues::Fixed { shape, .. } = &mut columns[0].values {
                    shape[0] = 1;
                }
                Ok(columns)
            }),
            "stage 'calls': column 'id' has 1 rows of 4",
        ),
    ];
    for (stage, said) in cases {
        let loader = loader(storage.clone(), options(vec![stage])).unwrap();
        let mut batches = loader.iter().unwrap();
        let good: Vec<Batch> = batches.by_ref().map_while(Result::ok).collect();
        assert_eq!(good.len(), 3, "{said}");
        assert!(batches.next().is_none());

        let error = loader.iter().unwrap().find_map(Result::err).unwrap();
        assert!(matches!(error, Error::Stage { .. }) && error.to_string().starts_with(said), "{error}");
    }
}

#[test]
fn a_stage_may_refuse_columns_when_the_loader_is_made() {
    #[derive(Debug)]
    struct Picky;
    impl Stage for Picky {
        fn name(&self) -> &str {
            "picky"
        }
        fn fields(&self, fields: Vec<BatchField>) -> Result<Vec<BatchField>, StageError> {
            Err(format!("{} columns are none of mine", fields.len()).into())
        }
        fn apply(&self, columns: Vec<BatchColumn>, _: &Samples<'_>) -> Result<Vec<BatchColumn>, StageError> {
            Ok(columns)
        }
    }
    let storage = memory();
    model().write(storage.clone(), 1);
    let error = loader(storage, options(vec![Arc::new(Picky)])).unwrap_err();
    assert_eq!(error.to_string(), "stage 'picky': 2 columns are none of mine");
}

#[test]
fn dropping_an_epoch_waits_for_its_stages_and_for_nothing_else() {
    let storage = memory();
    model().write(storage.clone(), 1);
    let running = Arc::new(AtomicUsize::new(0));
    let inside = running.clone();
    let slow = calls(move |columns, _| {
        inside.fetch_add(1, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(20));
        inside.fetch_sub(1, Ordering::SeqCst);
        Ok(columns)
    });
    let loader = loader(storage, LoaderOptions { prefetch: 4, threads: 4, ..options(vec![slow]) }).unwrap();
    for _ in 0..5 {
        let mut batches = loader.iter().unwrap();
        batches.next().unwrap().unwrap();
        drop(batches);
        assert_eq!(running.load(Ordering::SeqCst), 0);
    }
}
