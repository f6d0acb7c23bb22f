//! Ranged GETs by the crate `object_store` alone, dropped as they come: what reading a lake from S3 is measured against.
//!
//! `plain_gets ENDPOINT CONNECTIONS [keep] < RANGES`, each range a line of bucket, key, first byte and the byte behind the last; with
//! `keep` all of them stay in memory.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::{
    io::BufRead,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

use object_store::{ObjectStoreExt as _, aws::AmazonS3Builder, path::Path};
use tokio::task::JoinSet;

fn main() {
    forebay_storage::runtime().unwrap().block_on(fetch());
}

async fn fetch() {
    let mut args = std::env::args().skip(1);
    let (endpoint, connections) = (args.next().unwrap(), args.next().unwrap().parse().unwrap());
    let keep = args.next().is_some_and(|word| word == "keep");
    let (mut gets, mut bucket) = (Vec::new(), String::new());
    for line in std::io::stdin().lock().lines() {
        let line = line.unwrap();
        let mut fields = line.split('\t');
        fields.next().unwrap().clone_into(&mut bucket);
        let [key, start, end] = std::array::from_fn(|_| fields.next().unwrap());
        gets.push((Path::parse(key).unwrap(), start.parse().unwrap()..end.parse::<u64>().unwrap()));
    }
    let store = AmazonS3Builder::new().with_endpoint(endpoint).with_allow_http(true).with_region("us-east-1");
    let store = store.with_access_key_id("bench").with_secret_access_key("bench").with_bucket_name(bucket);
    let (store, gets, next) = (Arc::new(store.build().unwrap()), Arc::new(gets), Arc::new(AtomicUsize::new(0)));
    let (start, mut workers) = (Instant::now(), JoinSet::new());
    for _ in 0..connections {
        let (store, gets, next) = (store.clone(), gets.clone(), next.clone());
        workers.spawn(async move {
            let (mut bytes, mut kept) = (0, Vec::new());
            while let Some((path, range)) = gets.get(next.fetch_add(1, Ordering::Relaxed)) {
                let got = store.get_range(path, range.clone()).await.unwrap();
                bytes += got.len();
                kept.extend(keep.then_some(got));
            }
            (bytes, kept)
        });
    }
    let fetched = workers.join_all().await;
    let (seconds, requests) = (start.elapsed().as_secs_f64(), gets.len());
    let bytes: usize = fetched.iter().map(|(bytes, _)| bytes).sum();
    println!(r#"{{"seconds": {seconds}, "bytes": {bytes}, "requests": {requests}}}"#);
}
