//! What commits and opens cost, whatever the size of a table and of a history.

use std::{sync::Arc, time::Duration};

use forebay_format::{Column, DType, FieldId, FileId, FragmentId, Schema, meta::DataFileRef, meta::Fragment};
use forebay_storage::{
    Options, Storage,
    testing::{FaultStore, OpKind},
};

use crate::{At, Lake, Written, epochs::Begun};

const LATENCY: Duration = Duration::from_millis(20);

/// The most bytes and requests of a commit of one row.
const BYTES: u64 = 320 << 10;
const REQUESTS: usize = 6;

/// A fragment whose file is nowhere: committing reads no rows.
fn fragment(field: FieldId) -> Fragment {
    let file = DataFileRef {
        id: FileId::random(),
        size: 8192 + 64 + 200,
        index_offset: 8192,
        index_length: 200,
        fields: vec![field],
    };
    Fragment::new(FragmentId::random(), 1, vec![file])
}

/// A table of so many fragments after so many commits, each of which added one more.
async fn table(fragments: usize, commits: usize) -> (Storage, Lake) {
    let storage = Storage::open(&format!("memory://{}", uuid::Uuid::new_v4()), &Options::default()).unwrap();
    let lake = Lake::create(storage.clone()).await.unwrap();
    let mut transaction = lake.begin("main").await.unwrap();
    let column = Column::new("n", DType::I64, []).unwrap();
    let field = column.field;
    let id = transaction.create_table("main", Schema::new(vec![column]).unwrap()).unwrap();
    let all = (0..fragments).map(|_| fragment(field)).collect();
    transaction.append(Written { table: id, fragments: all, begun: Begun::now(0) });
    transaction.commit("many", "tester").await.unwrap();
    for _ in 0..commits {
        append(&lake).await;
    }
    (storage, lake)
}

async fn append(lake: &Lake) {
    let mut transaction = lake.begin("main").await.unwrap();
    let entry = transaction.base().commit().tables[0].clone();
    let root = crate::snapshot::root(lake, transaction.base().id(), &entry).await.unwrap();
    let new = fragment(root.schema.columns[0].field);
    transaction.append(Written { table: entry.id, fragments: vec![new], begun: Begun::now(0) });
    transaction.commit("one", "tester").await.unwrap();
}

/// Sizes of tables: up to a million fragments with `FOREBAY_LONG`.
fn sizes() -> &'static [usize] {
    if std::env::var_os("FOREBAY_LONG").is_some() { &[100, 10_000, 1_000_000] } else { &[100, 30_000] }
}

#[test]
fn a_commit_of_one_row_takes_six_requests_and_bounded_bytes_at_every_size() {
    forebay_storage::runtime().unwrap().block_on(async {
        for size in sizes() {
            let (storage, _) = table(*size, 0).await;
            let faults = Arc::new(FaultStore::new(storage.store().unwrap(), 1));
            let lake = Lake::open(Storage::from_store(faults.clone(), "counted")).await.unwrap();
            let mut most = (0, 0);
            for _ in 0..60 {
                let mut transaction = lake.begin("main").await.unwrap();
                let entry = transaction.base().commit().tables[0].clone();
                let root = crate::snapshot::root(&lake, transaction.base().id(), &entry).await.unwrap();
                let new = fragment(root.schema.columns[0].field);
                transaction.append(Written { table: entry.id, fragments: vec![new], begun: Begun::now(0) });
                faults.clear();
                transaction.commit("one", "tester").await.unwrap();
                let requests = faults.operations();
                let written = requests.iter().filter(|o| matches!(o.kind, OpKind::Put | OpKind::Create));
                most.0 = most.0.max(requests.len());
                most.1 = most.1.max(written.map(|o| o.bytes).sum());
            }
            println!("{size} fragments: at most {} requests and {} bytes a commit", most.0, most.1);
            // Its data file is one more.
            assert!(most.0 < REQUESTS, "{size} fragments: {} requests", most.0);
            assert!(most.1 <= BYTES, "{size} fragments: {} bytes", most.1);
        }
    });
}

#[test]
fn opening_takes_three_requests_one_after_the_other_and_a_log_three_more() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let (size, commits) =
            if std::env::var_os("FOREBAY_LONG").is_some() { (1_000_000, 10_000) } else { (2000, 200) };
        let (storage, _) = table(size, commits).await;
        let slow = FaultStore::new(storage.store().unwrap(), 1).with_latency(LATENCY);
        let storage = Storage::from_store(Arc::new(slow), "slow");
        let latencies = |since: tokio::time::Instant| since.elapsed().as_secs_f64() / LATENCY.as_secs_f64();
        let started = tokio::time::Instant::now();
        let (lake, snapshot) = Lake::open_at(storage, &At::default()).await.unwrap();
        let entry = &snapshot.commit().tables[0];
        let root = crate::snapshot::root(&lake, snapshot.id(), entry).await.unwrap();
        let opened = latencies(started);
        assert_eq!(entry.rows, (size + commits) as u64);
        let started = tokio::time::Instant::now();
        assert_eq!(lake.log(&At::default(), 20).await.unwrap().len(), 20);
        let log = latencies(started);
        println!(
            "{size} fragments in {} pages, {commits} commits: open {opened:.1}, log {log:.1} latencies",
            root.pages.len()
        );
        // Pages come all at once, after the root.
        assert!(opened <= 2.5 + 1.0, "open takes {opened} latencies");
        assert!(log <= 3.5, "log takes {log} latencies");
    });
}
