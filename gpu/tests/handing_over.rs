//! Batches copied to memory of the consumer's own, and rows that stay on the device.
#![allow(unsafe_code)]

use std::sync::Arc;

use forebay_format::{Column as Spec, DType, Dim};
use forebay_gpu::{Cached, CachingDevice, Column, CudaDevice, CudaLoaderDevice, DeviceBuffer, Error, Route, RowKey};
use forebay_loader::{HostDevice, LoaderOptions, Shuffle};
use proptest::prelude::*;

use crate::{
    batches::Source,
    driver::{Mock, Setting, Target},
    loading::{Plain, epochs, side_by_side},
    support::{Model, column, folder, memory},
};

/// Hands `count` batches over on `stream`, gives each back at once; how many came out wrong.
fn wrong_copies(mock: &Mock, device: &CudaDevice, stream: usize, count: u64) -> usize {
    let mut copied: Vec<(Target, Vec<u8>)> = Vec::new();
    // Kept to the end: a planted mistake must not crash the test by reading memory that is gone.
    let mut sources = Vec::new();
    for batch in 0..count {
        let (large, small) = (Source::fixed(8, 50_000, batch), Source::fixed(8, 40, batch + 1000));
        let regions = [large.regions(device), small.regions(device)];
        let columns = [large.column(&regions[0], None), small.column(&regions[1], None)];
        let Ok(gathered) = device.gather(&columns, &[], Box::new(())) else {
            mock.finish();
            return count as usize;
        };
        let targets = [&large, &small].map(|source| (Target::new(source.expected().len()), source.expected()));
        let copies: Vec<_> = gathered
            .columns
            .iter()
            .zip(&targets)
            .map(|(buffer, (to, _))| (buffer, 0..buffer.len(), to.address()))
            .collect();
        // SAFETY: the targets are as long as the buffers, and live until the streams are done.
        unsafe { DeviceBuffer::copy_all(&copies, stream) }.unwrap();
        sources.extend([large, small]);
        copied.extend(targets);
    }
    mock.finish();
    copied.iter().filter(|(target, expected)| target.bytes() != expected).count()
}

#[test]
fn batches_copied_to_the_consumers_memory_arrive_whole_on_a_stream_of_any_kind() {
    let mock = Mock::start();
    mock.set(Setting::DelayUs, 2000);
    for stream in [mock.stream(1), mock.stream(0), 0, 1, 2] {
        let device = mock.device();
        assert_eq!(wrong_copies(&mock, &device, stream, 12), 0);
        // Memory was used again: not every batch had its own.
        assert!(device.stats().device < 4 << 20, "{}", device.stats().device);
        // The stream may go before the device does.
        if stream > 2 {
            mock.destroy(stream);
        }
        assert_eq!(wrong_copies(&mock, &device, 2, 4), 0);
    }
}

#[test]
fn a_copy_that_was_not_waited_for_would_be_caught() {
    let mut mock = Mock::start();
    mock.forgive();
    mock.set(Setting::DelayUs, 2000);
    mock.set(Setting::ForgetWaits, 1);
    let stream = mock.stream(1);
    assert!(wrong_copies(&mock, &mock.device(), stream, 8) > 0);
    mock.destroy(stream);
}

#[test]
fn a_stream_that_is_captured_is_refused_and_takes_the_batch_afterwards() {
    let mock = Mock::start();
    let (device, stream) = (mock.device(), mock.stream(1));
    let source = Source::fixed(4, 3000, 1);
    let batch = source.gather(&device).unwrap();
    let target = Target::new(source.expected().len());
    let copies = [(&batch.columns[0], 0..batch.columns[0].len(), target.address())];
    mock.set(Setting::Capturing, stream as i64);
    // SAFETY: the target is as long as the buffer, and lives until the end.
    let refused = unsafe { DeviceBuffer::copy_all(&copies, stream) }.unwrap_err();
    assert!(matches!(refused, Error::Capturing), "{refused}");
    mock.set(Setting::Capturing, 0);
    // SAFETY: as above.
    unsafe { DeviceBuffer::copy_all(&copies, stream) }.unwrap();
    mock.finish();
    assert_eq!(target.bytes(), source.expected());
    mock.destroy(stream);
}

/// Columns whose rows are large enough to be kept, and one whose rows aren't.
fn kept_columns() -> Vec<Spec> {
    let fixed = |lengths: &[u32]| lengths.iter().copied().map(Dim::Fixed).collect::<Vec<_>>();
    vec![
        column("id", DType::I64, &[]),
        column("image", DType::U8, &fixed(&[20, 30, 3])),
        column("wide", DType::F32, &fixed(&[701])),
    ]
}

/// Four epochs of a random table with nothing, some or all of the rows in the cache.
fn cached_epochs(
    mock: &Mock,
    budget: u64,
    deferred: bool,
    shuffle: Shuffle,
) -> (Vec<Plain>, Vec<Plain>, Arc<CachingDevice>) {
    let (_folder, storage) = folder();
    Model::random(kept_columns(), 150, 5).write(storage.clone(), 3);
    let options = LoaderOptions { batch_size: 24, shuffle, ..LoaderOptions::default() };
    let expected = epochs(storage.clone(), &options, HostDevice::new(2).unwrap(), 4);
    let device = CudaLoaderDevice::open(0, mock.options()).unwrap();
    let caching = CachingDevice::new(&device, budget, deferred);
    let got = epochs(storage, &options, caching.clone(), 4);
    (expected, got, caching)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, ..ProptestConfig::default() })]

    #[test]
    fn rows_come_the_same_whatever_of_them_is_in_the_cache(
        budget in prop_oneof![Just(0_u64), 3_000_u64..400_000, Just(1 << 22)],
        deferred: bool,
        global: bool,
    ) {
        let mock = Mock::start();
        mock.set(Setting::DelayUs, 100);
        let shuffle = if global { Shuffle::Global } else { Shuffle::Off };
        let (expected, got, caching) = cached_epochs(&mock, budget, deferred, shuffle);
        prop_assert_eq!(got, expected);
        let stats = caching.cache_stats();
        prop_assert!(stats.bytes <= budget, "{:?}", stats);
        prop_assert_eq!(stats.full.is_none(), budget == 1 << 22);
    }
}

#[test]
fn the_second_epoch_reads_nothing_from_the_host_that_the_cache_holds() {
    let mock = Mock::start();
    let (device, stream) = (mock.device(), mock.stream(1));
    let cache = device.cache(1 << 20);
    let source = Source::fixed(20, 4000, 7);
    let regions = source.regions(&device);
    let table = cache.table(20);
    let keys: Vec<_> = (0..20).map(|row| RowKey { table, row }).collect();
    let gather = |deferred| {
        let found = cache.find(&keys);
        let cached = Cached { cache: &cache, keys: &keys, found: &found, deferred };
        let column = Column { cached: Some(cached), ..source.column(&regions, None) };
        device.gather(&[column], &[], Box::new(())).unwrap()
    };
    assert_eq!(gather(true).columns[0].to_host().unwrap(), source.expected());
    assert_eq!(device.stats().columns["rows"].route, Route::Kernel);
    for deferred in [true, false] {
        let batch = gather(deferred);
        assert_eq!(device.stats().columns["rows"].route, Route::Cached);
        assert_eq!(batch.columns[0].address().is_none(), deferred);
        let target = Target::new(source.expected().len());
        let part = |rows: std::ops::Range<usize>| {
            (&batch.columns[0], rows.start * 4000..rows.end * 4000, target.address() + rows.start as u64 * 4000)
        };
        // Some rows and later the others, as batches of a group are.
        for rows in [7..20, 0..7] {
            // SAFETY: the target is as long as the buffer, and lives until the end.
            unsafe { DeviceBuffer::copy_all(&[part(rows)], stream) }.unwrap();
        }
        drop(batch);
        mock.finish();
        assert_eq!(target.bytes(), source.expected());
    }
    let stats = cache.stats();
    assert_eq!((stats.rows, stats.hits, stats.misses), (20, 40, 20));
    drop(cache);
    mock.destroy(stream);
}

#[test]
fn a_cache_that_gets_no_memory_says_so_and_the_batches_come_from_the_host() {
    let mock = Mock::start();
    let device = mock.device();
    let source = Source::fixed(20, 4000, 7);
    let regions = source.regions(&device);
    // From here on no batch allocates anything.
    for _ in 0..mock.options().slots {
        drop(device.gather(&[source.column(&regions, None)], &[], Box::new(())).unwrap());
    }
    let cache = device.cache(1 << 20);
    let table = cache.table(20);
    let keys: Vec<_> = (0..20).map(|row| RowKey { table, row }).collect();
    mock.set(Setting::FailAllocation, 1);
    for _ in 0..2 {
        let found = cache.find(&keys);
        let cached = Cached { cache: &cache, keys: &keys, found: &found, deferred: true };
        let column = Column { cached: Some(cached), ..source.column(&regions, None) };
        let batch = device.gather(&[column], &[], Box::new(())).unwrap();
        assert_eq!(batch.columns[0].to_host().unwrap(), source.expected());
    }
    let stats = cache.stats();
    assert!(stats.full.is_some_and(|why| why.contains("cuMemAlloc")));
    assert_eq!((stats.rows, stats.bytes), (0, 0));
}

#[test]
fn rows_of_a_store_have_no_place_in_the_cache_and_come_all_the_same() {
    let mock = Mock::start();
    let storage = memory();
    Model::random(kept_columns(), 60, 5).write(storage.clone(), 1);
    let options = LoaderOptions { batch_size: 24, ..LoaderOptions::default() };
    let expected = epochs(storage.clone(), &options, HostDevice::new(2).unwrap(), 2);
    let device = CudaLoaderDevice::open(0, mock.options()).unwrap();
    let caching = CachingDevice::new(&device, 1 << 22, true);
    assert_eq!(epochs(storage, &options, caching.clone(), 2), expected);
    assert_eq!(caching.cache_stats().rows, 0);
}

#[test]
fn once_all_rows_are_in_the_cache_large_batches_come_together() {
    let mock = Mock::start();
    mock.set(Setting::DelayUs, 100);
    let (_folder, storage) = folder();
    Model::random(kept_columns(), 400, 5).write(storage.clone(), 3);
    // No two batches are small enough to be gathered together.
    let options =
        LoaderOptions { batch_size: 24, group_bytes: 60_000, shuffle: Shuffle::Global, ..LoaderOptions::default() };
    let expected = epochs(storage.clone(), &options, HostDevice::new(2).unwrap(), 4);
    for (budget, deferred, together) in [(1 << 22, true, true), (1 << 22, false, false), (100_000, true, false)] {
        let device = CudaLoaderDevice::open(0, mock.options()).unwrap();
        let caching = CachingDevice::new(&device, budget, deferred);
        let got = epochs(storage.clone(), &options, caching, 4);
        // Of the first epoch 17; of each that follows groups of 1, 1, 2, 4 and 8, and the last.
        assert_eq!(got.len(), if together { 17 + 3 * 6 } else { 4 * 17 }, "{budget} {deferred}");
        assert_eq!(side_by_side(got), side_by_side(expected.clone()), "{budget} {deferred}");
    }
}
