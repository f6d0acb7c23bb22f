//! Disks that are full, read-only or dying: one clear error each, and nothing half there.

use std::io::Write;
use std::path::Path;
use std::process::Command;

use forebay_storage::testing::disk::{self, Trouble};
use forebay_storage::{Claim, Error, Options, Storage, runtime};

/// Set in the process whose disk fails: the folder to work on.
const CHILD: &str = "FOREBAY_TEST_FAILING";

/// Runs a test of this module again on a failing disk; there `child` does its work and checks what it is told.
fn on_a_disk_with(trouble: Trouble, test: &str, child: impl FnOnce(&Storage)) {
    let open = |root: &Path| Storage::open(root.to_str().unwrap(), &Options::new()).unwrap();
    if let Some(root) = std::env::var_os(CHILD) {
        return child(&open(Path::new(&root)));
    }
    let (folder, scratch) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let healthy = open(folder.path());
    runtime().unwrap().block_on(healthy.put("data/before", "here before".into())).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("failing_disk::{test}"), "--nocapture"]).env(CHILD, folder.path());
    disk::run_with(trouble, folder.path(), scratch.path(), command).unwrap();
    assert_eq!(runtime().unwrap().block_on(healthy.get("data/before")).unwrap(), "here before");
}

fn put(s: &Storage, path: &str, bytes: Vec<u8>) -> Error {
    runtime().unwrap().block_on(s.put(path, bytes.into())).unwrap_err()
}

fn claim(s: &Storage, path: &str, bytes: Vec<u8>) -> Result<Claim, Error> {
    runtime().unwrap().block_on(s.claim(path, bytes.into()))
}

fn names(s: &Storage) -> Vec<String> {
    runtime().unwrap().block_on(s.list("")).unwrap().into_iter().map(|e| e.path).collect()
}

#[test]
fn a_full_disk_is_named_and_nothing_is_published() {
    on_a_disk_with(Trouble::NoSpace(1 << 20), "a_full_disk_is_named_and_nothing_is_published", |s| {
        let big = vec![1u8; 4 << 20];
        let mut writer = s.writer("data/x").unwrap();
        let error = writer.write_all(&big).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
        assert!(error.to_string().contains("no space left") && error.to_string().contains("data/x"), "{error}");
        assert!(matches!(writer.finish().unwrap_err(), Error::WriterFailed { .. }));

        let refused = claim(s, "refs/1", big.clone()).unwrap_err();
        for error in [put(s, "data/before", big), refused] {
            assert!(matches!(error, Error::DiskFull { .. }) && error.had_no_effect(), "{error:?}");
            assert!(error.to_string().contains("free some space"), "{error}");
        }
        assert_eq!(names(s), ["data/before"]);
        assert!(s.leftovers().unwrap().is_empty(), "the space is given back");
    });
}

#[test]
fn a_disk_that_fills_up_at_the_very_end_fails_the_finish() {
    on_a_disk_with(Trouble::NoSpace(1000), "a_disk_that_fills_up_at_the_very_end_fails_the_finish", |s| {
        let mut writer = s.writer("data/x").unwrap();
        writer.write_all(&[1; 2000]).unwrap(); // still in the writer's buffer
        let error = writer.finish().unwrap_err();
        assert!(matches!(error, Error::DiskFull { .. }), "{error:?}");
        assert_eq!(names(s), ["data/before"]);
        assert!(s.leftovers().unwrap().is_empty());
    });
}

#[test]
fn a_read_only_disk_is_named_and_can_be_read() {
    on_a_disk_with(Trouble::ReadOnly, "a_read_only_disk_is_named_and_can_be_read", |s| {
        let refused = claim(s, "refs/1", vec![1]).unwrap_err();
        for error in [put(s, "data/x", vec![1]), refused, s.writer("data/x").unwrap_err()] {
            assert!(matches!(error, Error::NotPermitted { .. }) && error.had_no_effect(), "{error:?}");
            assert!(error.to_string().contains("read-only"), "{error}");
        }
        assert_eq!(runtime().unwrap().block_on(s.get("data/before")).unwrap(), "here before");
    });
}

#[test]
fn a_file_that_cannot_be_synced_is_not_published() {
    on_a_disk_with(Trouble::SyncFails(0), "a_file_that_cannot_be_synced_is_not_published", |s| {
        let refused = claim(s, "refs/1", vec![1]).unwrap_err();
        let mut writer = s.writer("data/y").unwrap();
        writer.write_all(b"y").unwrap();
        for error in [put(s, "data/x", vec![1]), refused, writer.finish().unwrap_err()] {
            assert!(matches!(error, Error::Disk { .. }), "{error:?}");
        }
        assert_eq!(names(s), ["data/before"]);
    });
}

#[test]
fn a_sync_that_fails_while_more_is_written_fails_the_writer() {
    on_a_disk_with(Trouble::SyncFails(0), "a_sync_that_fails_while_more_is_written_fails_the_writer", |s| {
        let mut writer = s.writer("data/x").unwrap();
        let wrote = (0..200).try_for_each(|_| writer.write_all(&[1; 1 << 20]));
        assert!(wrote.is_err() || writer.finish().is_err());
        assert_eq!(names(s), ["data/before"]);
    });
}

#[test]
fn a_claim_whose_folder_cannot_be_synced_is_not_called_ours() {
    // The root is synced when `refs` is made in it, and `refs` once the claim is linked into it.
    for after in [0, 1] {
        on_a_disk_with(
            Trouble::FolderSyncFails(after),
            "a_claim_whose_folder_cannot_be_synced_is_not_called_ours",
            |s| match claim(s, "refs/1", vec![1]) {
                Ok(Claim::Unknown(Error::NotDurable { .. } | Error::Disk { operation: "sync the folder", .. })) => {}
                Err(error) => {
                    assert!(error.had_no_effect(), "{error:?}");
                    assert_eq!(names(s), ["data/before"]);
                }
                Ok(other) => panic!("{other:?}"),
            },
        );
    }
}

#[test]
fn a_disk_without_hard_links_cannot_be_claimed_on_and_says_so() {
    on_a_disk_with(Trouble::NoLinks, "a_disk_without_hard_links_cannot_be_claimed_on_and_says_so", |s| {
        let error = claim(s, "refs/1", vec![1]).unwrap_err();
        assert!(matches!(error, Error::NoHardLinks { .. }) && error.had_no_effect(), "{error:?}");
        assert!(error.to_string().contains("ext4"), "{error}");
        assert_eq!(names(s), ["data/before"]);
        assert!(s.leftovers().unwrap().is_empty());
    });
}
