//! No batch is read before it is there, and no memory is written before its reader is done.
#![allow(unsafe_code)]

use std::sync::Arc;

use forebay_gpu::{CudaDevice, Error, Finishing, Options, Route};
use forebay_loader::finish::Finish;

use crate::{
    batches::Source,
    driver::{Mock, Reading, Setting, VARIANT},
    images::fixed,
};

/// Gathers `count` batches, reads each late on a consumer's stream, gives each back at once; how many came out wrong.
fn wrong_batches(mock: &Mock, device: &CudaDevice, stream: usize, count: u64) -> usize {
    let prepared = Finish::default().prepare(&fixed(&[20, 30])).unwrap();
    let mut read: Vec<(Reading, Vec<u8>)> = Vec::new();
    // Kept to the end: a planted mistake must not crash the test by reading memory that is gone.
    let mut sources = Vec::new();
    for batch in 0..count {
        let large = Source::fixed(8, 50_000, batch);
        let small = Source::fixed(8, 40, batch + 1000);
        let image = Source::fixed(8, 600, batch + 2000);
        let windows: Vec<_> = (0..8).map(|seed| prepared.window(seed, [20, 30]).unwrap()).collect();
        let regions = [large.regions(device), small.regions(device), image.regions(device)];
        let finishing = Finishing { prepared: &prepared, windows: &windows };
        let columns = [
            large.column(&regions[0], None),
            small.column(&regions[1], None),
            image.column(&regions[2], Some(finishing)),
        ];
        let Ok(gathered) = device.gather(&columns, &[], Box::new(())) else {
            mock.finish();
            return count as usize;
        };
        let expected = [large.expected(), small.expected(), image.finished(&prepared, &windows)];
        sources.extend([&large, &small, &image].map(Source::clone));
        for (buffer, expected) in gathered.columns.iter().zip(expected) {
            // SAFETY: the stream lives until the device is gone.
            unsafe { buffer.order(stream) }.unwrap();
            read.push((mock.read_later(buffer, stream), expected));
        }
    }
    mock.finish();
    read.iter().filter(|(reading, expected)| reading.bytes() != expected).count()
}

#[test]
fn batches_given_back_unread_arrive_whole_on_a_stream_of_any_kind() {
    let mock = Mock::start();
    mock.set(Setting::DelayUs, 2000);
    for stream in [mock.stream(1), mock.stream(0), 0, 1, 2] {
        let device = mock.device();
        assert_eq!(wrong_batches(&mock, &device, stream, 12), 0);
        // Memory was used again: not every batch had its own.
        assert!(device.stats().device < 4 << 20, "{}", device.stats().device);
        drop(device);
        if stream > 2 {
            mock.destroy(stream);
        }
    }
}

#[test]
fn a_consumer_that_was_not_put_behind_its_batch_would_be_caught() {
    let mut mock = Mock::start();
    mock.forgive();
    mock.set(Setting::DelayUs, 2000);
    mock.set(Setting::ForgetWaits, 1);
    let stream = mock.stream(1);
    assert!(wrong_batches(&mock, &mock.device(), stream, 8) > 0);
    mock.destroy(stream);
}

#[test]
fn a_slot_that_was_not_waited_for_would_be_caught() {
    let mut mock = Mock::start();
    mock.forgive();
    mock.set(Setting::DelayUs, 2000);
    mock.set(Setting::ForgetSynchronize, 1);
    let stream = mock.stream(1);
    let device = CudaDevice::open(0, Options { slots: 2, ..mock.options() }).unwrap();
    assert!(wrong_batches(&mock, &device, stream, 8) > 0);
    drop(device);
    mock.destroy(stream);
}

#[test]
fn a_consumer_that_keeps_every_batch_gets_an_error_and_no_overwritten_data() {
    let mock = Mock::start();
    let device = mock.device();
    let source = Source::fixed(40, 50_000, 1);
    let regions = source.regions(&device);
    let mut kept = Vec::new();
    let error = loop {
        match device.gather(&[source.column(&regions, None)], &[], Box::new(())) {
            Ok(batch) => kept.push(batch),
            Err(error) => break error,
        }
    };
    let Error::Budget { kind: "device", held, budget, .. } = error else { panic!("{error}") };
    assert!(kept.len() > 20 && held <= budget && held > budget - (4 << 20), "{held} of {budget}");
    for batch in &kept {
        assert_eq!(batch.columns[0].to_host().unwrap(), source.expected());
    }
    kept.pop();
    assert!(device.gather(&[source.column(&regions, None)], &[], Box::new(())).is_ok());
}

#[test]
fn any_allocation_may_fail_and_the_next_batch_is_right() {
    let mock = Mock::start();
    mock.set(Setting::DelayUs, 100);
    let source = Source::fixed(8, 3000, 1);
    let mut failed = 0;
    for at in 1..20 {
        let device = mock.device();
        let regions = source.regions(&device);
        mock.set(Setting::FailAllocation, at);
        let refused = device.gather(&[source.column(&regions, None)], &[&[1, 2, 3]], Box::new(()));
        mock.set(Setting::FailAllocation, 0);
        if let Err(error) = refused {
            assert!(matches!(error, Error::Call { code: 2, .. }), "{error}");
            failed += 1;
        }
        let gathered = device.gather(&[source.column(&regions, None)], &[&[1, 2, 3]], Box::new(())).unwrap();
        assert_eq!(gathered.columns[0].to_host().unwrap(), source.expected());
    }
    assert!(failed >= 4, "{failed}");
}

#[test]
fn memory_stays_flat_over_epochs_and_all_of_it_is_given_back() {
    let mock = Mock::start();
    let before = [Setting::Streams, Setting::Events, Setting::Contexts].map(|what| mock.get(what));
    let device = mock.device();
    let stream = mock.stream(1);
    assert_eq!(wrong_batches(&mock, &device, stream, 10), 0);
    let after_one = (mock.get(Setting::DeviceBytes), mock.get(Setting::PinnedBytes));
    for _ in 0..5 {
        assert_eq!(wrong_batches(&mock, &device, stream, 10), 0);
    }
    assert_eq!((mock.get(Setting::DeviceBytes), mock.get(Setting::PinnedBytes)), after_one);
    let stats = device.stats();
    assert_eq!(stats.device, after_one.0 as u64);
    device.trim();
    assert!(device.stats().device < stats.device);
    drop(device);
    mock.destroy(stream);
    let after = [Setting::Streams, Setting::Events, Setting::Contexts].map(|what| mock.get(what));
    assert_eq!(before, after);
    let left = [Setting::DeviceBytes, Setting::PinnedBytes, Setting::Registrations].map(|what| mock.get(what));
    assert_eq!(left, [0, 0, 0]);
}

#[test]
fn a_device_dropped_while_batches_are_under_way_finishes_them_first() {
    let mock = Mock::start();
    mock.set(Setting::DelayUs, 3000);
    let source = Source::fixed(64, 60_000, 1);
    let device = mock.device();
    let batch = source.gather(&device).unwrap();
    drop(device);
    assert_eq!(batch.columns[0].to_host().unwrap(), source.expected());
}

#[test]
fn memory_that_a_capturing_stream_used_is_left_alone_until_the_capture_ends() {
    let mock = Mock::start();
    let device = mock.device();
    let stream = mock.stream(1);
    let source = Source::fixed(4, 3000, 1);
    let regions = source.regions(&device);
    let gather = || device.gather(&[source.column(&regions, None)], &[], Box::new(())).unwrap().columns.remove(0);
    let first = gather();
    // SAFETY: the stream lives until the device is gone.
    unsafe { first.order(stream) }.unwrap();
    let address = first.address();
    drop(first);
    mock.set(Setting::Capturing, stream as i64);
    assert_ne!(gather().address(), address);
    mock.set(Setting::Capturing, 0);
    let again = [gather(), gather()].map(|buffer| buffer.address());
    assert!(again.contains(&address));
    drop(device);
    mock.destroy(stream);
}

#[test]
fn threads_may_share_a_device_and_two_devices_may_share_memory() {
    let mock = Mock::start();
    mock.set(Setting::DelayUs, 500);
    let devices = [mock.device(), CudaDevice::open(1, mock.options()).unwrap()].map(Arc::new);
    std::thread::scope(|scope| {
        for worker in 0..4 {
            let device = devices[worker % 2].clone();
            scope.spawn(move || {
                for batch in 0..10 {
                    let source = Source::fixed(8, 1000 + worker * 10_000, batch);
                    assert_eq!(source.gather(&device).unwrap().columns[0].to_host().unwrap(), source.expected());
                }
            });
        }
    });
}

#[test]
fn the_context_of_the_calling_thread_is_left_as_it_was() {
    let mock = Mock::start();
    let depth = mock.depth();
    let device = mock.device();
    let source = Source::fixed(4, 3000, 1);
    drop(source.gather(&device).unwrap());
    drop(device);
    assert_eq!(mock.depth(), depth);
}

#[test]
fn a_forked_child_gets_an_error_and_calls_no_driver() {
    let mock = Mock::start();
    let device = mock.device();
    let source = Source::fixed(4, 3000, 1);
    let regions = source.regions(&device);
    let batch = device.gather(&[source.column(&regions, None)], &[], Box::new(())).unwrap();
    // SAFETY: the child uses the device, which refuses before it takes a lock that another thread may hold, and drops what
    // it was left, which must not call the driver either; then it leaves by `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let wait = batch.columns[0].wait();
        drop(batch);
        let region = device.synchronize();
        drop(regions);
        drop(device);
        let fine = [wait, region].iter().all(|result| matches!(result, Err(Error::Missing(_))));
        // SAFETY: ends the child without running the parent's handlers.
        unsafe { libc::_exit(if fine { 42 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: `status` is a live int and `child` a child of this process.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 42, "{status}");
    assert_eq!(batch.columns[0].to_host().unwrap(), source.expected());
}

/// Runs one test of this binary against another form of the driver.
fn with_driver(variant: &str, test: &str) {
    let status = std::process::Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--quiet"])
        .env(VARIANT, variant)
        .status()
        .unwrap();
    assert!(status.success());
}

#[test]
fn the_older_form_of_the_batched_copy_is_used_where_the_newer_is_missing() {
    if std::env::var(VARIANT).is_err() {
        return with_driver(
            "NO_BATCH_COPY_V2",
            "ordering::the_older_form_of_the_batched_copy_is_used_where_the_newer_is_missing",
        );
    }
    let mock = Mock::start();
    let device = mock.device();
    let source = Source::fixed(8, 60_000, 1);
    assert_eq!(source.gather(&device).unwrap().columns[0].to_host().unwrap(), source.expected());
    assert_eq!(device.stats().batch_copy, Some("cuMemcpyBatchAsync"));
    assert_eq!(mock.get(Setting::BatchCopies), 1);
}

#[test]
fn the_kernel_takes_large_rows_where_the_driver_has_no_batched_copy() {
    if std::env::var(VARIANT).is_err() {
        return with_driver(
            "NO_BATCH_COPY",
            "ordering::the_kernel_takes_large_rows_where_the_driver_has_no_batched_copy",
        );
    }
    let mock = Mock::start();
    let device = mock.device();
    let source = Source::fixed(8, 60_000, 1);
    assert_eq!(source.gather(&device).unwrap().columns[0].to_host().unwrap(), source.expected());
    assert_eq!(device.stats().columns["rows"].route, Route::Kernel);
    assert_eq!((device.stats().batch_copy, mock.get(Setting::Launches)), (None, 1));
}
