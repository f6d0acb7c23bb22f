//! A loader's batches are the same on a device as on the host.
#![allow(unsafe_code)]

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use forebay_gpu::{CudaLoaderDevice, DeviceBuffer, Missing, Options, Route};
use forebay_loader::{
    Batch, BatchValues, Buffer, Device, HostDevice, Loader, LoaderOptions, Shuffle, Tail, Verify, Window,
};
use forebay_storage::Storage;
use forebay_versioning::{Selection, Table};

use crate::{
    driver::{Mock, Setting},
    images::{some_finishes, some_images},
    support::{Model, columns, folder, memory, table},
};

fn bytes(buffer: &Buffer) -> Vec<u8> {
    match buffer {
        Buffer::Host(buffer) => buffer.to_vec(),
        Buffer::Device(buffer) => {
            let buffer: &dyn std::any::Any = &**buffer;
            buffer.downcast_ref::<DeviceBuffer>().unwrap().to_host().unwrap()
        }
    }
}

/// A batch in plain bytes: of each column the name, the values, and the offsets and validity if there are any.
pub(crate) type Plain = (Vec<u64>, Vec<(String, Vec<u8>, Option<Vec<u8>>, Option<Vec<u8>>)>);

fn plain(batch: &Batch) -> Plain {
    let column = |column: &forebay_loader::BatchColumn| {
        let (values, offsets) = match &column.values {
            BatchValues::Fixed { buffer, .. } => (bytes(buffer), None),
            BatchValues::Ragged { offsets, bytes: values, .. } => (bytes(values), Some(bytes(offsets))),
        };
        (column.name.to_string(), values, offsets, column.validity.as_ref().map(bytes))
    };
    (batch.rows.clone(), batch.columns.iter().map(column).collect())
}

fn epoch(table: &Table, options: &LoaderOptions, device: Arc<dyn Device>) -> Vec<Plain> {
    let loader = Loader::new(Selection::all(table.clone()), options.clone(), device).unwrap();
    loader.iter().unwrap().map(|batch| plain(&batch.unwrap())).collect()
}

/// Several epochs of one loader.
pub(crate) fn epochs(storage: Storage, options: &LoaderOptions, device: Arc<dyn Device>, count: u64) -> Vec<Plain> {
    let loader = Loader::new(Selection::all(table(storage)), options.clone(), device).unwrap();
    let epoch = |number| {
        loader.set_epoch(number);
        loader.iter().unwrap().map(|batch| plain(&batch.unwrap())).collect::<Vec<_>>()
    };
    (0..count).flat_map(epoch).collect()
}

fn options() -> Vec<LoaderOptions> {
    let window = Window { lanes: 4, window: 2, unit_bytes: 4096 };
    [Shuffle::Off, Shuffle::Global, Shuffle::Windowed(window)]
        .map(|shuffle| LoaderOptions { batch_size: 24, shuffle, tail: Tail::Short, ..LoaderOptions::default() })
        .to_vec()
}

fn same_on_both(mock: &Mock, storage: Storage, route: Option<Route>) -> Arc<CudaLoaderDevice> {
    Model::random(columns(), 150, 5).write(storage.clone(), 3);
    let device = CudaLoaderDevice::open(0, Options { threads: 2, route, ..mock.options() }).unwrap();
    for options in options() {
        let expected = epoch(&table(storage.clone()), &options, HostDevice::new(2).unwrap());
        assert_eq!(epoch(&table(storage.clone()), &options, device.clone()), expected, "{:?}", options.shuffle);
    }
    device
}

#[test]
fn rows_of_every_kind_come_from_local_files_as_the_host_has_them() {
    for route in [None, Some(Route::Kernel), Some(Route::BatchCopy)] {
        let mock = Mock::start();
        mock.set(Setting::DelayUs, 300);
        let (_folder, storage) = folder();
        let device = same_on_both(&mock, storage, route);
        let stats = device.device().stats();
        assert!(stats.columns.values().all(|column| column.refused.is_none()), "{stats:?}");
        assert!(route.is_none() || stats.columns.values().all(|column| Some(column.route) == route), "{stats:?}");
        assert!(mock.get(Setting::Registrations) > 0);
    }
}

#[test]
fn rows_of_every_kind_come_from_a_store_as_the_host_has_them() {
    for route in [None, Some(Route::Kernel), Some(Route::BatchCopy)] {
        let mock = Mock::start();
        mock.set(Setting::DelayUs, 300);
        same_on_both(&mock, memory(), route);
        // All of the arena is one slab a size.
        assert!(mock.get(Setting::Registrations) < 10, "{}", mock.get(Setting::Registrations));
    }
}

#[test]
fn rows_that_are_kept_in_memory_come_as_the_host_has_them_in_every_epoch() {
    let mock = Mock::start();
    mock.set(Setting::DelayUs, 300);
    let storage = memory();
    Model::random(columns(), 150, 5).write(storage.clone(), 3);
    for (options, host_cache) in options().into_iter().zip([1 << 30, 60_000, 1 << 30]) {
        let expected = epochs(storage.clone(), &options, HostDevice::new(2).unwrap(), 3);
        let device = CudaLoaderDevice::open(0, mock.options()).unwrap();
        let options = LoaderOptions { host_cache, ..options };
        assert_eq!(epochs(storage.clone(), &options, device, 3), expected, "{:?}", options.shuffle);
    }
}

#[test]
fn rows_come_right_where_registration_is_refused() {
    let mock = Mock::start();
    mock.set(Setting::RefuseRegistration, 1);
    let (_folder, storage) = folder();
    let device = same_on_both(&mock, storage, None);
    let stats = device.device().stats();
    assert!(stats.columns.values().all(|column| column.refused.is_some()), "{stats:?}");
}

#[test]
fn images_are_finished_on_the_device_as_on_the_host() {
    for refused in [0, 1] {
        let (_folder, local) = folder();
        for storage in [local, memory()] {
            let mock = Mock::start();
            mock.set(Setting::DelayUs, 300);
            mock.set(Setting::RefuseRegistration, refused);
            some_images(70, 5).write(storage.clone(), 2);
            let device = CudaLoaderDevice::open(0, Options { threads: 2, ..mock.options() }).unwrap();
            for options in options() {
                let options = LoaderOptions { finishes: some_finishes(), ..options };
                let expected = epoch(&table(storage.clone()), &options, HostDevice::new(2).unwrap());
                assert!(epoch(&table(storage.clone()), &options, device.clone()) == expected, "{:?}", options.shuffle);
            }
        }
    }
}

#[test]
fn batches_that_come_in_groups_are_side_by_side_those_that_come_alone() {
    for route in [None, Some(Route::Kernel), Some(Route::BatchCopy)] {
        let mock = Mock::start();
        mock.set(Setting::DelayUs, 300);
        let (_folder, storage) = folder();
        Model::random(columns(), 400, 5).write(storage.clone(), 3);
        let device = CudaLoaderDevice::open(0, Options { threads: 6, route, ..mock.options() }).unwrap();
        for options in options() {
            let names = ["id", "image", "large"].map(str::to_owned).to_vec();
            let options = LoaderOptions { columns: Some(names), ..options };
            let alone = epochs(storage.clone(), &options, HostDevice::new(2).unwrap(), 3);
            let options = LoaderOptions { group_bytes: 40_000, ..options };
            let grouped = epochs(storage.clone(), &options, device.clone(), 3);
            assert!(grouped.len() < alone.len() / 2, "{} of {}", grouped.len(), alone.len());
            assert_eq!(side_by_side(grouped), side_by_side(alone), "{:?}", options.shuffle);
        }
    }
}

/// The rows of batches, and of each column the values.
pub(crate) fn side_by_side(batches: Vec<Plain>) -> (Vec<u64>, Vec<Vec<u8>>) {
    let mut all = (Vec::new(), vec![Vec::new(); batches[0].1.len()]);
    for (rows, columns) in batches {
        all.0.extend(rows);
        for (all, (_, values, ..)) in all.1.iter_mut().zip(columns) {
            all.extend(values);
        }
    }
    all
}

#[test]
fn files_are_registered_behind_the_first_batches_which_come_by_way_of_the_cpu() {
    let mock = Mock::start();
    let (_folder, storage) = folder();
    Model::random(columns(), 150, 5).write(storage.clone(), 3);
    let options = LoaderOptions { batch_size: 24, shuffle: Shuffle::Global, ..LoaderOptions::default() };
    let expected = epochs(storage.clone(), &options, HostDevice::new(2).unwrap(), 30);
    let device = CudaLoaderDevice::open(0, Options { at_once_bytes: 0, ..mock.options() }).unwrap();
    // Batches come right before, while and after the files are registered.
    assert_eq!(epochs(storage.clone(), &options, device.clone(), 30), expected);
    let until = Instant::now() + Duration::from_secs(20);
    while mock.get(Setting::Registrations) < 3 && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(epochs(storage, &options, device.clone(), 30), expected);
    let stats = device.stats();
    assert!(stats.columns.values().all(|column| column.refused.is_none()), "{stats:?}");
}

#[test]
fn a_file_that_no_table_holds_any_more_is_let_go_of_when_the_next_comes() {
    let mock = Mock::start();
    let device = CudaLoaderDevice::open(0, mock.options()).unwrap();
    let options = LoaderOptions { batch_size: 24, ..LoaderOptions::default() };
    for _ in 0..10 {
        let (_folder, storage) = folder();
        Model::random(columns(), 60, 5).write(storage.clone(), 1);
        drop(epochs(storage, &options, device.clone(), 1));
        // What the arena has stays; of files there are the newest one and perhaps the one before.
        assert!(mock.get(Setting::Registrations) < 8, "{}", mock.get(Setting::Registrations));
    }
}

#[test]
fn a_wrong_byte_of_a_mapped_file_is_an_error_and_never_reaches_the_device() {
    let mock = Mock::start();
    let (folder, storage) = folder();
    Model::random(columns(), 64, 3).write(storage.clone(), 1);
    let data = folder.path().join("data");
    for entry in std::fs::read_dir(data).unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = std::fs::read(&path).unwrap();
        // The first chunk's first byte.
        bytes[4096] ^= 1;
        std::fs::write(&path, bytes).unwrap();
    }
    let device = CudaLoaderDevice::open(0, mock.options()).unwrap();
    let options = LoaderOptions { batch_size: 64, verify: Verify::First, ..LoaderOptions::default() };
    let loader = Loader::new(Selection::all(table(storage)), options, device).unwrap();
    let error = loader.iter().unwrap().next().unwrap().unwrap_err();
    assert!(matches!(error, forebay_loader::Error::Read { .. }), "{error}");
}

#[test]
fn an_epoch_dropped_in_mid_flight_gives_everything_back() {
    let mock = Mock::start();
    mock.set(Setting::DelayUs, 2000);
    let (_folder, storage) = folder();
    Model::random(columns(), 150, 5).write(storage.clone(), 1);
    let device = CudaLoaderDevice::open(0, mock.options()).unwrap();
    for options in options() {
        let loader = Loader::new(Selection::all(table(storage.clone())), options, device.clone()).unwrap();
        let mut batches = loader.iter().unwrap();
        drop(batches.next().unwrap().unwrap());
    }
    drop(device);
    let left = || [Setting::DeviceBytes, Setting::PinnedBytes, Setting::Registrations].map(|what| mock.get(what));
    // The epoch's last requests end in their own time.
    let until = Instant::now() + Duration::from_secs(20);
    while left() != [0, 0, 0] && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(left(), [0, 0, 0]);
}

#[test]
fn a_forked_child_is_refused_before_it_touches_what_its_parent_had() {
    let mock = Mock::start();
    let device = CudaLoaderDevice::open(0, mock.options()).unwrap();
    // One block is used and given back: it is free in the parent, and not mapped in the child.
    drop(device.arena(5000).unwrap());
    // SAFETY: the child only makes calls that refuse at once, and leaves by `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let plan = forebay_loader::device::GatherPlan { rows: 0, columns: Vec::new() };
        let refused = [
            matches!(device.arena(5000), Err(forebay_loader::Error::Forked)),
            matches!(device.gather(plan), Err(forebay_loader::Error::Forked)),
            matches!(CudaLoaderDevice::shared(0), Err(forebay_gpu::Error::Missing(Missing::Forked { .. }))),
        ];
        // SAFETY: ends the child without running the parent's handlers.
        unsafe { libc::_exit(if refused == [true; 3] { 42 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: `status` is a live int and `child` a child of this process.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 42, "{status}");
}

#[test]
fn an_arena_lies_near_its_device() {
    // Nothing can be shown where the system, or a container, takes no policy of memory.
    // SAFETY: no memory, which the call looks at last: it only tells whether the system lets this process ask.
    if unsafe { libc::syscall(libc::SYS_mbind, 0, 0, libc::MPOL_DEFAULT, 0, 0, 0) } != 0 {
        return;
    }
    let mock = Mock::start();
    let device = CudaLoaderDevice::open(0, mock.options()).unwrap();
    let arena = device.arena(5000).unwrap();
    let address = arena.bytes().as_ptr() as usize;
    let maps = std::fs::read_to_string("/proc/self/numa_maps").unwrap();
    let start = |line: &str| usize::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap();
    let mapping = maps.lines().rfind(|line| start(line) <= address).unwrap();
    // The stand-in says that node 0 is nearest.
    assert_eq!(mapping.split(' ').nth(1), Some("prefer:0"), "{mapping}");
}
