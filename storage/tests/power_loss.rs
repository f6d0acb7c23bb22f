//! What was said to be stored survives a power loss at any moment, and nothing is ever half there.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use forebay_storage::testing::disk::{self, Disk, Op, Recording, Survives};
use forebay_storage::{Claim, Options, Storage, runtime};

/// Set in the recorded process: the folder to work on.
const CHILD: &str = "FOREBAY_TEST_RECORDED";

/// The root of the storage, in the folder that is recorded.
const LAKE: &str = "some/lake";

/// What is done to the storage, by name: what it stores under which name.
fn steps() -> Vec<(&'static str, &'static str, Vec<u8>)> {
    let text = |s: &str| s.as_bytes().to_vec();
    vec![
        ("claim", "forebay", text("marker")),
        ("put", "meta/one", text("first")),
        ("write", "data/a", (0..100_000u32).map(|i| (i % 249) as u8).collect()),
        ("claim", "refs/heads/main/1", text("commit 1")),
        ("put", "refs/heads/main/hint", text("1")),
        ("claim", "refs/heads/main/2", vec![9; 10_000]),
        ("put", "refs/heads/main/hint", text("22")),
        ("put", "meta/one", vec![5; 20_000]),
        ("write", "data/deep/er/b", text("small")),
        ("lost claim", "refs/heads/main/2", text("too late")),
        ("claim", "refs/tags/v1", text("tag")),
    ]
}

/// The recorded process: does every step and says when it begins and when it was told that it is stored.
fn child(root: &Path) {
    let storage = Storage::open(root.to_str().unwrap(), &Options::new()).unwrap();
    let runtime = runtime().unwrap();
    for (n, (how, path, bytes)) in steps().into_iter().enumerate() {
        disk::mark(&format!("begin {n}")).unwrap();
        match how {
            "put" => runtime.block_on(storage.put(path, bytes.into())).unwrap(),
            "claim" => assert!(matches!(runtime.block_on(storage.claim(path, bytes.into())).unwrap(), Claim::Ours)),
            "lost claim" => {
                assert!(matches!(runtime.block_on(storage.claim(path, bytes.into())).unwrap(), Claim::Theirs(_)));
            }
            _ => {
                let mut writer = storage.writer(path).unwrap();
                writer.write_all(&bytes).unwrap();
                writer.finish().unwrap();
            }
        }
        disk::mark(&format!("done {n}")).unwrap();
    }
}

/// Runs a test of this module again as a recorded process.
fn record(test: &str, root: &Path, scratch: &Path) -> Recording {
    let mut command = Command::new(std::env::current_exe().unwrap());
    // The storage's root is made by the storage too, so its parent is what is recorded.
    let lake = root.join(LAKE);
    command.args(["--exact", &format!("power_loss::{test}"), "--nocapture"]).env(CHILD, lake).stdout(Stdio::null());
    disk::record(root, scratch, command).unwrap()
}

/// Cuts the power after every operation and looks at what is left; gives the first thing that is wrong.
fn first_wrong(recording: Recording, scratch: &Path, survives: &[Survives]) -> Option<String> {
    let Recording { start: mut disk, ops } = recording;
    let target = scratch.join("rebuilt");
    let mut stored: BTreeMap<&str, Vec<u8>> = BTreeMap::new();
    let mut begun: Option<(&str, Vec<u8>)> = None;
    let steps = steps();
    for (k, op) in ops.iter().enumerate() {
        disk.apply(op).unwrap();
        if let Op::Mark(mark) = op {
            let (what, n) = mark.split_once(' ').unwrap();
            let (how, path, bytes) = &steps[n.parse::<usize>().unwrap()];
            match (what, *how) {
                (_, "lost claim") => {}
                ("begin", _) => begun = Some((path, bytes.clone())),
                _ => {
                    stored.insert(path, bytes.clone());
                    begun = None;
                }
            }
        }
        for survives in survives {
            disk.rebuild(*survives, &target).unwrap();
            if let Err(wrong) = judge(&target.join(LAKE), &stored, &begun) {
                return Some(format!("power loss after operation {k} ({op:.120?}), {survives:?}: {wrong}"));
            }
        }
    }
    None
}

fn judge(root: &Path, stored: &BTreeMap<&str, Vec<u8>>, begun: &Option<(&str, Vec<u8>)>) -> Result<(), String> {
    let storage = Storage::open(root.to_str().unwrap(), &Options::new()).unwrap();
    let runtime = runtime().unwrap();
    for (path, bytes) in stored {
        let found = runtime.block_on(storage.get(path)).map_err(|e| format!("lost: {e}"))?;
        let in_progress = begun.as_ref().filter(|(p, _)| p == path).map(|(_, b)| b);
        if found != *bytes && Some(&found.to_vec()) != in_progress {
            return Err(format!("{path} holds {} bytes that were never stored", found.len()));
        }
    }
    for entry in runtime.block_on(storage.list("")).map_err(|e| e.to_string())? {
        if stored.contains_key(entry.path.as_str()) {
            continue;
        }
        let expected = begun.as_ref().filter(|(p, _)| *p == entry.path).map(|(_, b)| b);
        let found = runtime.block_on(storage.get(&entry.path)).map_err(|e| e.to_string())?;
        if Some(&found.to_vec()) != expected {
            return Err(format!("{} is half there: {} bytes", entry.path, found.len()));
        }
    }
    Ok(())
}

fn every_way() -> Vec<Survives> {
    let mut ways = vec![Survives::Synced, Survives::Names, Survives::Everything];
    ways.extend((1..=3).map(Survives::Chance));
    ways
}

#[test]
fn what_was_stored_survives_a_power_loss_after_any_operation() {
    if let Some(root) = std::env::var_os(CHILD) {
        return child(Path::new(&root));
    }
    let (folder, scratch) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let recording = record("what_was_stored_survives_a_power_loss_after_any_operation", folder.path(), scratch.path());
    assert!(recording.ops.len() > 80, "only {} operations were seen", recording.ops.len());
    assert_eq!(first_wrong(recording, scratch.path(), &every_way()), None);
}

/// The simulator has teeth: the same steps without syncing are caught.
#[test]
fn code_that_does_not_sync_is_caught() {
    if let Some(root) = std::env::var_os(CHILD) {
        let root = Path::new(&root);
        for (n, (_, path, bytes)) in steps().into_iter().enumerate().filter(|(_, step)| step.0 != "lost claim") {
            disk::mark(&format!("begin {n}")).unwrap();
            let name = root.join(path);
            std::fs::create_dir_all(name.parent().unwrap()).unwrap();
            std::fs::write(name.with_extension("tmp#1"), bytes).unwrap();
            std::fs::rename(name.with_extension("tmp#1"), &name).unwrap();
            disk::mark(&format!("done {n}")).unwrap();
        }
        return;
    }
    let (folder, scratch) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let recording = record("code_that_does_not_sync_is_caught", folder.path(), scratch.path());
    for (survives, expected) in [(Survives::Synced, "lost"), (Survives::Names, "holds 0 bytes")] {
        let again = Recording { start: recording.start.clone(), ops: recording.ops.clone() };
        let wrong = first_wrong(again, scratch.path(), &[survives]).expect("it must be caught");
        assert!(wrong.contains(expected) || wrong.contains("half there"), "{survives:?}: {wrong}");
    }
    let killed = first_wrong(recording, scratch.path(), &[Survives::Everything]);
    assert_eq!(killed, None, "a killed process loses nothing that was renamed");
}

#[test]
fn a_disk_is_rebuilt_as_it_was_found() {
    let (folder, target) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::create_dir_all(folder.path().join("a/b")).unwrap();
    std::fs::write(folder.path().join("a/b/c"), "content").unwrap();
    let disk = Disk::of(folder.path()).unwrap();
    for survives in every_way() {
        disk.rebuild(survives, &target.path().join("t")).unwrap();
        assert_eq!(std::fs::read(target.path().join("t/a/b/c")).unwrap(), b"content");
    }
}
