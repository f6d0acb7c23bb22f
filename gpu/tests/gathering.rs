//! Every row arrives, whatever its route.

use forebay_gpu::{CudaDevice, Error, Options, Place, Route};
use forebay_loader::finish::{Finish, Window};
use proptest::prelude::*;

use crate::{
    batches::{Source, noise, sources},
    driver::{Mock, Setting},
    images::fixed,
};

fn forced(mock: &Mock, route: Route) -> CudaDevice {
    CudaDevice::open(0, Options { route: Some(route), ..mock.options() }).unwrap()
}

#[test]
fn every_byte_arrives_by_every_route_whatever_the_length_and_alignment_of_its_row() {
    let mock = Mock::start();
    let mut devices = vec![mock.device()];
    devices.extend([Route::BatchCopy, Route::Kernel, Route::Packed, Route::Slab].map(|route| forced(&mock, route)));
    let devices = devices;
    proptest!(ProptestConfig::with_cases(60), |(a in sources(), b in sources(), extra in prop::collection::vec(any::<u8>(), 0..50))| {
        for device in &devices {
            for regions in [[a.regions(device), b.regions(device)], [a.half_registered(device), b.half_registered(device)]] {
                let columns = [a.column(&regions[0], None), b.column(&regions[1], None)];
                let gathered = device.gather(&columns, &[&extra], Box::new(())).unwrap();
                prop_assert_eq!(&gathered.columns[0].to_host().unwrap(), &a.expected());
                prop_assert_eq!(&gathered.columns[1].to_host().unwrap(), &b.expected());
                prop_assert_eq!(&gathered.extras[0].to_host().unwrap(), &extra);
            }
        }
    });
}

#[test]
fn the_route_follows_from_the_rows_and_is_named_in_the_stats() {
    let mock = Mock::start();
    let device = mock.device();
    for (bytes, route) in [(60_000, Route::BatchCopy), (3_000, Route::Kernel), (100, Route::Packed)] {
        let source = Source::fixed(9, bytes, 1);
        assert_eq!(source.gather(&device).unwrap().columns[0].to_host().unwrap(), source.expected());
        let stats = device.stats();
        assert_eq!((stats.columns["rows"].route, stats.columns["rows"].refused.as_deref()), (route, None));
    }
    let stats = device.stats();
    assert_eq!((stats.batches, stats.bytes, stats.columns["rows"].rows), (3, 9 * 63_100, 27));
    assert_eq!(stats.batch_copy, Some("cuMemcpyBatchAsync_v2"));
    assert_eq!(mock.get(Setting::BatchCopies), 1);
    assert_eq!(mock.get(Setting::Launches), 1);
}

#[test]
fn rows_that_lie_side_by_side_are_one_copy() {
    let mock = Mock::start();
    let device = forced(&mock, Route::BatchCopy);
    let mut source = Source::fixed(6, 1000, 7);
    source.places = (0..6).map(|row| Place { region: 0, offset: row * 1000 }).collect();
    assert_eq!(source.gather(&device).unwrap().columns[0].to_host().unwrap(), source.expected());
}

#[test]
fn refused_registration_is_named_and_the_rows_come_by_way_of_the_cpu() {
    let mock = Mock::start();
    mock.set(Setting::RefuseRegistration, 1);
    mock.set(Setting::DelayUs, 200);
    let device = mock.device();
    let source = Source::fixed(200, 60_000, 3);
    assert_eq!(source.gather(&device).unwrap().columns[0].to_host().unwrap(), source.expected());
    let stats = device.stats();
    assert_eq!(stats.columns["rows"].route, Route::Slab);
    let refused = stats.columns["rows"].refused.clone().unwrap();
    assert_eq!(refused, "CUDA failed in cuMemHostRegister: operation not supported (code 801)");
}

#[test]
fn memory_over_the_registered_budget_is_not_registered_and_the_reason_says_so() {
    let mock = Mock::start();
    let device = CudaDevice::open(0, Options { registered_bytes: 300_000, ..mock.options() }).unwrap();
    let source = Source::fixed(2, 60_000, 3);
    let regions = source.regions(&device);
    let refused = regions[0].refused().unwrap().to_owned();
    assert!(
        refused.starts_with("480977 bytes of registered memory are needed, and 0 of the budget of 300000"),
        "{refused}"
    );
    let gathered = device.gather(&[source.column(&regions, None)], &[], Box::new(())).unwrap();
    assert_eq!(gathered.columns[0].to_host().unwrap(), source.expected());
    assert_eq!(mock.get(Setting::Registrations), 0);
}

#[test]
fn only_the_rows_whose_file_is_not_registered_are_copied_by_the_cpu() {
    for (bytes, route) in [(60_000, Route::BatchCopy), (3_000, Route::Kernel)] {
        let mock = Mock::start();
        mock.set(Setting::DelayUs, 200);
        let device = mock.device();
        let source = Source::fixed(40, bytes, 3);
        let elsewhere = source.places.iter().filter(|place| place.region == 1).count() as u64;
        assert!((1..40).contains(&elsewhere));
        let regions = source.half_registered(&device);
        for _ in 0..10 {
            let gathered = device.gather(&[source.column(&regions, None)], &[], Box::new(())).unwrap();
            assert_eq!(gathered.columns[0].to_host().unwrap(), source.expected());
        }
        let stats = &device.stats().columns["rows"];
        assert_eq!(
            (stats.route, stats.bytes, stats.copied),
            (route, 400 * bytes as u64, 10 * elsewhere * bytes as u64)
        );
        assert_eq!(stats.refused.as_deref(), Some("its registration is under way"));
    }
}

#[test]
fn a_file_is_registered_once_for_all_devices_and_released_by_the_last() {
    let mock = Mock::start();
    let first = mock.device();
    let second = CudaDevice::open(1, mock.options()).unwrap();
    let source = Source::fixed(5, 3000, 11);
    let regions = [source.regions(&first), source.regions(&second)];
    assert_eq!(mock.get(Setting::Registrations), 2);
    for (device, regions) in [&first, &second].into_iter().zip(&regions) {
        let gathered = device.gather(&[source.column(regions, None)], &[], Box::new(())).unwrap();
        assert_eq!(gathered.columns[0].device(), device.ordinal());
        assert_eq!(gathered.columns[0].to_host().unwrap(), source.expected());
    }
    drop((first, second, regions));
    assert_eq!(mock.get(Setting::Registrations), 0);
}

#[test]
fn a_row_outside_its_memory_is_refused_before_anything_is_asked() {
    let mock = Mock::start();
    let device = mock.device();
    let mut source = Source::fixed(3, 2000, 5);
    source.places[2].offset = source.memory[0].bytes().len() as u64 - 1999;
    let error = source.gather(&device).unwrap_err();
    assert!(matches!(error, Error::OutOfBounds { column: 0, row: 2, bytes: 2000, length: 16_977, .. }), "{error}");
    source.places[2] = Place { region: 2, offset: 0 };
    assert!(matches!(source.gather(&device).unwrap_err(), Error::OutOfBounds { length: 0, .. }));
    assert_eq!(mock.get(Setting::Launches), 0);
}

#[test]
fn offsets_that_do_not_ascend_and_windows_that_do_not_fit_are_refused() {
    let mock = Mock::start();
    let device = mock.device();
    let mut source = Source::ragged(&[10, 20, 30], 5);
    source.rows = Err(vec![0, 20, 10, 60]);
    assert!(matches!(source.gather(&device).unwrap_err(), Error::OutOfBounds { row: 1, .. }));
    let prepared = Finish::default().prepare(&fixed(&[2, 5])).unwrap();
    let window = prepared.window(0, [2, 5]).unwrap();
    let source = Source::fixed(3, 10, 5);
    let regions = source.regions(&device);
    let refused = |windows: &[Window]| {
        let finishing = forebay_gpu::Finishing { prepared: &prepared, windows };
        let gathered = device.gather(&[source.column(&regions, Some(finishing))], &[], Box::new(()));
        gathered.unwrap_err().to_string()
    };
    assert_eq!(refused(&[window; 2]), "the finish does not fit the rows: 3 rows and 2 windows");
    let unfit = "row 2 of the batch has 10 bytes, and an image of";
    let larger = Window { size: [3, 5], ..window };
    assert_eq!(
        refused(&[window, window, larger]),
        format!("the finish does not fit the rows: {unfit} 15 is needed, with its part inside")
    );
    let outside = Window { corner: [1, 0], ..window };
    assert_eq!(
        refused(&[window, window, outside]),
        format!("the finish does not fit the rows: {unfit} 10 is needed, with its part inside")
    );
}

#[test]
fn an_empty_batch_is_a_batch() {
    let mock = Mock::start();
    let device = mock.device();
    let gathered = device.gather(&[Source::fixed(0, 100, 1).column(&[], None)], &[&[]], Box::new(())).unwrap();
    assert!(gathered.columns[0].is_empty() && gathered.columns[0].to_host().unwrap().is_empty());
    assert!(gathered.extras[0].ready().unwrap());
    assert_eq!(noise(3, 1).len(), 3);
}
