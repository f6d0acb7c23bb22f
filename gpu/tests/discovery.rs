//! What discovery promises.
#![allow(unsafe_code)]

use std::path::Path;

use forebay_gpu::{Missing, Report, discover, discover_at};

use crate::mock;

fn with(settings: &[&str]) -> Report {
    let folder = tempfile::tempdir().unwrap();
    discover_at(&mock::build(folder.path(), settings))
}

#[test]
fn a_driver_is_reported_with_its_version_and_its_devices() {
    let report = with(&[]);
    assert!(report.missing.is_empty(), "{:?}", report.missing);
    assert_eq!(report.driver.unwrap().cuda, (12, 8));
    let found: Vec<_> = report.devices.iter().map(|d| (d.ordinal, d.name.as_str(), d.compute, d.memory)).collect();
    assert_eq!(found, [(0, "Mock One", (9, 0), 1 << 36), (1, "Mock Two", (9, 1), 2 << 36)]);
}

#[test]
fn a_machine_without_a_driver_gets_a_reason_and_no_crash() {
    let report = discover_at(Path::new("/nowhere/libcuda.so.1"));
    assert!(report.driver.is_none() && report.devices.is_empty());
    let [Missing::Library { library, reason }] = &report.missing[..] else { panic!("{:?}", report.missing) };
    assert_eq!(library, Path::new("/nowhere/libcuda.so.1"));
    assert!(reason.contains("/nowhere/libcuda.so.1"), "{reason}");
}

#[test]
fn this_machine_has_devices_or_a_reason_why_not() {
    let report = discover();
    assert_eq!(report.devices.is_empty(), !report.missing.is_empty(), "{report:?}");
}

#[test]
fn a_driver_that_fails_to_start_is_reported_in_its_own_words() {
    let report = with(&["INIT=100"]);
    assert!(report.driver.is_none());
    let text = report.missing[0].to_string();
    assert_eq!(text, "the CUDA driver failed in cuInit: no CUDA-capable device is detected (code 100)");
}

#[test]
fn a_code_that_the_driver_cannot_explain_is_still_reported() {
    let report = with(&["INIT=999"]);
    assert!(matches!(report.missing[..], [Missing::Call { code: 999, .. }]), "{:?}", report.missing);
}

#[test]
fn a_driver_without_devices_says_so() {
    let report = with(&["DEVICES=0"]);
    assert!(report.driver.is_some());
    assert!(matches!(report.missing[..], [Missing::NoDevice]));
}

#[test]
fn a_device_that_fails_does_not_hide_the_others() {
    let report = with(&["BROKEN_SECOND"]);
    assert_eq!(report.devices.len(), 1);
    assert!(report.missing[0].to_string().contains("cuDeviceGetAttribute (device 1): device unavailable"));
}

#[test]
fn a_library_that_lacks_a_function_is_refused_by_name() {
    let report = with(&["NO_MEMORY"]);
    assert!(matches!(report.missing[..], [Missing::Symbol { symbol: "cuDeviceTotalMem_v2", .. }]));
}

#[test]
fn a_forked_child_of_a_process_that_initialised_cuda_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let library = mock::build(folder.path(), &[]);
    assert!(discover_at(&library).missing.is_empty());
    // SAFETY: the child calls discovery, which refuses before it takes a lock or opens anything, and leaves by `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let refused = matches!(discover_at(&library).missing[..], [Missing::Forked { .. }]);
        // SAFETY: ends the child without running the parent's handlers.
        unsafe { libc::_exit(if refused { 42 } else { 1 }) };
    }
    assert!(child > 0);
    let mut status = 0;
    // SAFETY: `status` is a live int and `child` a child of this process.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert!(libc::WIFEXITED(status));
    assert_eq!(libc::WEXITSTATUS(status), 42);
}
