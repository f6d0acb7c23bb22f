//! Several processes on one folder.

use std::process::{Command, Stdio};

use forebay_storage::{Claim, Options, Storage, runtime};

/// Set in the child processes of a test: the folder to work on.
const CHILD: &str = "FOREBAY_TEST_CHILD";

#[test]
fn of_16_processes_exactly_one_wins_each_claim() {
    const ROUNDS: usize = 20;
    if let Some(root) = std::env::var_os(CHILD) {
        // This is one of the claimants.
        let storage = Storage::open(root.to_str().unwrap(), &Options::new()).unwrap();
        let me = std::process::id().to_string();
        let wins = (0..ROUNDS).filter(|round| {
            let claim = runtime().unwrap().block_on(storage.claim(&format!("refs/{round:03}"), me.clone().into()));
            match claim.unwrap() {
                Claim::Ours => true,
                Claim::Theirs(_) => false,
                Claim::Unknown(error) => panic!("{error}"),
            }
        });
        std::fs::write(std::path::Path::new(&root).join(format!("wins-{me}")), wins.count().to_string()).unwrap();
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let children: Vec<_> = (0..16)
        .map(|_| {
            Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "processes::of_16_processes_exactly_one_wins_each_claim", "--nocapture"])
                .env(CHILD, folder.path())
                .stdout(Stdio::null())
                .spawn()
                .unwrap()
        })
        .collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let storage = Storage::open(folder.path().to_str().unwrap(), &Options::new()).unwrap();
    let entries = runtime().unwrap().block_on(storage.list("")).unwrap();
    let (claims, tallies): (Vec<_>, Vec<_>) = entries.into_iter().partition(|e| e.path.starts_with("refs/"));
    assert_eq!((claims.len(), tallies.len()), (ROUNDS, 16));
    let wins: usize = tallies
        .iter()
        .map(|e| std::fs::read_to_string(folder.path().join(&e.path)).unwrap().parse::<usize>().unwrap())
        .sum();
    assert_eq!(wins, ROUNDS);
    assert!(storage.leftovers().unwrap().is_empty());
}

/// Runs a test again with a library that makes `parent_id` fork.
#[cfg(target_os = "linux")]
fn again_with_fork(test: &str, root: &std::path::Path) {
    let scratch = tempfile::tempdir().unwrap();
    let (source, library) = (scratch.path().join("fork.c"), scratch.path().join("fork.so"));
    std::fs::write(&source, include_str!("fork.c")).unwrap();
    let compiled = Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&library, &source]).status();
    assert!(compiled.expect("the fork tests need a C compiler named `cc`").success());
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("processes::{test}"), "--nocapture"])
        .env(CHILD, root)
        .env("LD_PRELOAD", library)
        .stdout(Stdio::null())
        .status();
    assert!(status.unwrap().success());
}

/// Uses a storage before a fork, in the child, and in the parent after it. Each side leaves an object.
#[cfg(target_os = "linux")]
fn fork_and_use(storage: &Storage) {
    use std::io::Write;
    use std::time::{Duration, Instant};
    let block_on_put = |path: &str| runtime().unwrap().block_on(storage.put(path, "x".into())).unwrap();
    let mut writer = storage.writer("data/parent").unwrap();
    writer.write_all(&vec![1; 20 << 20]).unwrap();
    block_on_put("before");
    if std::os::unix::process::parent_id() == 0 {
        // The child: threads, connections and permits are its own, and the unfinished object is its parent's.
        std::thread::spawn(|| {
            std::thread::sleep(Duration::from_secs(40));
            std::process::abort(); // it hangs, which its parent has noticed by now
        });
        drop(writer);
        let mut mine = storage.writer("data/child").unwrap();
        mine.write_all(&vec![2; 20 << 20]).unwrap();
        mine.finish().unwrap();
        runtime().unwrap().block_on(storage.get_ranges("before", &[0..1])).unwrap();
        block_on_put("child");
        std::process::exit(0);
    }
    let start = Instant::now();
    while runtime().unwrap().block_on(storage.head("child")).is_err() {
        assert!(start.elapsed() < Duration::from_secs(30), "the forked child hangs or failed");
        std::thread::sleep(Duration::from_millis(20));
    }
    writer.write_all(&[1; 10]).unwrap();
    writer.finish().unwrap();
    block_on_put("after");
    let sizes: Vec<_> =
        runtime().unwrap().block_on(storage.list("")).unwrap().into_iter().map(|e| (e.path, e.size)).collect();
    let expected =
        [("after", 1), ("before", 1), ("child", 1), ("data/child", 20 << 20), ("data/parent", (20 << 20) + 10)];
    assert_eq!(sizes, expected.map(|(path, size)| (path.to_owned(), size)));
}

#[cfg(target_os = "linux")]
#[test]
fn a_storage_works_on_both_sides_of_a_fork() {
    if let Some(root) = std::env::var_os(CHILD) {
        return fork_and_use(&Storage::open(root.to_str().unwrap(), &Options::new()).unwrap());
    }
    let folder = tempfile::tempdir().unwrap();
    again_with_fork("a_storage_works_on_both_sides_of_a_fork", folder.path());
}

#[cfg(all(target_os = "linux", feature = "server-tests"))]
#[test]
fn a_storage_on_s3_works_on_both_sides_of_a_fork() {
    if std::env::var_os(CHILD).is_some() {
        return fork_and_use(&crate::kinds::s3().storage);
    }
    again_with_fork("a_storage_on_s3_works_on_both_sides_of_a_fork", std::path::Path::new("s3"));
}
