//! What only local storages do: maps, leftovers, and the errors of disks.

use std::io::Write;
use std::path::Path;

use forebay_storage::{Error, Options, Storage};

use crate::kinds;

fn open(path: &Path) -> Storage {
    Storage::open(path.to_str().unwrap(), &Options::new()).unwrap()
}

#[tokio::test]
async fn a_map_shows_the_bytes_and_reads_report_the_end() {
    let fresh = kinds::local();
    let s = &fresh.storage;
    let bytes: Vec<u8> = (0..100_000u32).map(|i| (i % 251) as u8).collect();
    s.put("data/x", bytes.clone().into()).await.unwrap();
    let map = s.map("data/x").unwrap().expect("the temporary folder lies on a local filesystem");
    assert_eq!(map.as_slice(), bytes);
    assert_eq!(map.len(), 100_000);
    for range in [0..100_000, 5..6, 99_000..200_000, 500_000..600_000] {
        map.populate(range).unwrap();
    }
    let mut out = vec![0; 1000];
    map.read_at(99_000, &mut out).unwrap();
    assert_eq!(out, bytes[99_000..]);
    let error = map.read_at(99_001, &mut out).unwrap_err();
    assert!(matches!(error, Error::ShortRead { got: 999, .. }), "{error:?}");

    // What is removed stays readable for those who have it.
    s.delete("data/x").await.unwrap();
    assert_eq!(map.as_slice(), bytes);
    assert!(s.map("data/x").unwrap_err().is_not_found());

    s.put("data/empty", "".into()).await.unwrap();
    let empty = s.map("data/empty").unwrap().unwrap();
    assert!(empty.is_empty());
    empty.read_at(0, &mut []).unwrap();
}

#[tokio::test]
async fn only_local_storages_are_mapped() {
    for fresh in [kinds::memory(), kinds::wrapped()] {
        fresh.storage.put("x", "x".into()).await.unwrap();
        assert!(fresh.storage.map("x").unwrap().is_none());
        assert!(fresh.storage.local().is_none());
    }
}

#[cfg(target_os = "linux")]
#[test]
fn filesystems_that_are_not_local_disks_are_not_mapped() {
    // procfs stands for everything that is not on the list.
    assert!(open(Path::new("/proc")).map("cpuinfo").unwrap().is_none());
}

#[tokio::test]
async fn what_a_killed_writer_leaves_is_found_apart_and_can_be_removed() {
    let fresh = kinds::local();
    let s = &fresh.storage;
    let mut writer = s.writer("data/x").unwrap();
    writer.write_all(&[1; 300_000]).unwrap();
    std::mem::forget(writer);
    s.put("data/y", "y".into()).await.unwrap();

    assert_eq!(s.list("").await.unwrap().len(), 1);
    let leftovers = s.leftovers().unwrap();
    assert_eq!((leftovers.len(), leftovers[0].size), (1, 300_000));
    assert!(s.get(&leftovers[0].path).await.is_err(), "an unfinished file is no object");
    assert!(matches!(s.remove_leftover("data/y").unwrap_err(), Error::InvalidPath { .. }));
    s.remove_leftover(&leftovers[0].path).unwrap();
    assert!(s.leftovers().unwrap().is_empty());
    assert_eq!(s.get("data/y").await.unwrap(), "y");
}

#[tokio::test]
async fn files_of_others_in_the_folder_do_no_harm() {
    let fresh = kinds::local();
    let s = &fresh.storage;
    s.put("a/x", "x".into()).await.unwrap();
    let root = s.local().unwrap();
    std::fs::write(root.join("a").join("line\nbreak"), "").unwrap();
    #[cfg(unix)]
    {
        use std::os::unix::ffi::OsStrExt;
        std::fs::write(root.join("a").join(std::ffi::OsStr::from_bytes(b"\xff")), "").unwrap();
        std::os::unix::fs::symlink("nowhere", root.join("a/dangling")).unwrap();
    }
    let names: Vec<_> = s.list("").await.unwrap().into_iter().map(|e| e.path).collect();
    assert_eq!(names, ["a/x"]);
    assert!(s.get("a").await.unwrap_err().is_not_found(), "a folder is no object");
    assert!(s.get("a/x/y").await.unwrap_err().is_not_found(), "nothing lies below an object");
}

#[tokio::test]
async fn a_root_that_is_a_file_is_named_in_the_error() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let s = open(&file);
    for error in [
        s.put("x", "x".into()).await.unwrap_err(),
        s.claim("x", "x".into()).await.unwrap_err(),
        s.writer("x").unwrap_err(),
    ] {
        assert!(error.to_string().contains(file.to_str().unwrap()), "{error}");
        assert!(error.had_no_effect(), "{error}");
    }
    assert!(s.get("x").await.unwrap_err().is_not_found());
}
