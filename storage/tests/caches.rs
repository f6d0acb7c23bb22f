//! What was read is kept, in memory and on a disk that several processes share; whatever happens to it, bytes are right.

use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_storage::object_store::memory::InMemory;
use forebay_storage::testing::{FaultStore, OpKind};
use forebay_storage::{CacheStats, Options, Storage};

const SIZE: usize = 6 << 20;
const PAGE: usize = 512 << 10;

fn bytes() -> Vec<u8> {
    (0..SIZE).map(|i| (i.wrapping_mul(2_654_435_761) >> 7) as u8).collect()
}

/// A store of one object, read through caches.
async fn cached(options: &[(&str, &str)]) -> (Arc<FaultStore>, Storage) {
    let store = Arc::new(FaultStore::new(Arc::new(InMemory::new()), 7));
    let options: Options = options.iter().copied().collect();
    let storage = Storage::from_remote_store(store.clone(), "cloud", &options).unwrap();
    storage.put("data/x", bytes().into()).await.unwrap();
    store.clear();
    (store, storage)
}

async fn on_disk(folder: &Path, size: &str) -> (Arc<FaultStore>, Storage) {
    cached(&[("cache_dir", folder.to_str().unwrap()), ("cache_size", size)]).await
}

fn stats(storage: &Storage) -> CacheStats {
    storage.stats().cache.unwrap()
}

/// Waits until what was read has been written, or was not: nobody who reads waits for that.
async fn settled(storage: &Storage) {
    let start = Instant::now();
    while stats(storage).stored + stats(storage).not_stored < stats(storage).misses {
        assert!(start.elapsed() < Duration::from_secs(60), "{:?}", stats(storage));
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// The pieces on the disk, and the bytes of all files.
fn files(folder: &Path) -> (Vec<PathBuf>, u64) {
    let (mut pieces, mut total, mut folders) = (Vec::new(), 0, vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_dir() {
                folders.push(entry.path());
                continue;
            }
            total += entry.metadata().unwrap().len();
            if entry.file_name().to_str().unwrap().contains('-') {
                pieces.push(entry.path());
            }
        }
    }
    (pieces, total)
}

#[tokio::test]
async fn what_was_read_is_not_asked_for_again_also_in_other_runs() {
    let folder = tempfile::tempdir().unwrap();
    let all = bytes();
    for options in [vec![("cache_memory", "64MiB")], vec![("cache_dir", folder.path().to_str().unwrap())]] {
        let (store, storage) = cached(&options).await;
        assert_eq!(storage.get_range("data/x", 100..SIZE as u64).await.unwrap(), all[100..]);
        if options[0].0 == "cache_dir" {
            settled(&storage).await;
        }
        assert_eq!(store.count(OpKind::Get), 1, "one run, one request");
        for range in [100..SIZE, PAGE..3 * PAGE, PAGE..SIZE] {
            let mut parts = vec![0; range.len()];
            let (one, two) = parts.split_at_mut(777_777);
            storage.read_into("data/x", range.start as u64, vec![one, two]).await.unwrap();
            assert!(parts == all[range]);
        }
        assert_eq!(store.count(OpKind::Get), 1, "{options:?}: {:?}", stats(&storage));
        // One end and one page that were not read before, each asked for by itself.
        assert_eq!(storage.get_range("data/x", 0..2 * PAGE as u64 + 5).await.unwrap(), all[..2 * PAGE + 5]);
        let ranges: Vec<_> = store.operations().into_iter().filter_map(|operation| operation.range).skip(1).collect();
        assert_eq!(ranges, [0..PAGE as u64, 2 * PAGE as u64..2 * PAGE as u64 + 5]);
    }
}

#[tokio::test]
async fn what_may_change_is_never_kept() {
    let (_, storage) = cached(&[("cache_memory", "64MiB")]).await;
    for text in ["one", "two"] {
        storage.put("hint", text.into()).await.unwrap();
        assert_eq!(storage.get("hint").await.unwrap(), text);
    }
}

#[tokio::test]
async fn the_disk_is_found_again_by_the_next_process_and_holds_no_more_than_said() {
    let folder = tempfile::tempdir().unwrap();
    let (_, first) = on_disk(folder.path(), "3MiB").await;
    let all = bytes();
    for start in (0..SIZE as u64).step_by(PAGE / 2) {
        let end = start + PAGE as u64 / 2;
        assert_eq!(first.get_range("data/x", start..end).await.unwrap(), all[start as usize..end as usize]);
    }
    settled(&first).await;
    assert!(stats(&first).evicted > 0, "{:?}", stats(&first));
    let (pieces, total) = files(folder.path());
    assert!(total <= (3 << 20) + 100 && pieces.len() > 4, "{total} bytes in {} pieces", pieces.len());
    let (_, second) = on_disk(folder.path(), "3MiB").await;
    let last = SIZE as u64 - PAGE as u64 / 2;
    assert_eq!(second.get_range("data/x", last..SIZE as u64).await.unwrap(), all[last as usize..]);
    assert_eq!((stats(&second).disk_hits, stats(&second).misses), (1, 0));
}

#[tokio::test]
async fn damaged_files_are_misses_and_are_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let all = bytes();
    let (_, storage) = on_disk(folder.path(), "1GiB").await;
    storage.get_range("data/x", 0..SIZE as u64).await.unwrap();
    settled(&storage).await;
    for (i, path) in files(folder.path()).0.iter().enumerate() {
        let mut file = fs::read(path).unwrap();
        match i % 3 {
            0 => file.truncate(file.len() / 2),
            1 => file[1000 + i] ^= 1,
            _ => file.clear(),
        }
        fs::write(path, file).unwrap();
    }
    let (store, storage) = on_disk(folder.path(), "1GiB").await;
    assert!(storage.get_range("data/x", 0..SIZE as u64).await.unwrap() == all);
    settled(&storage).await;
    assert_eq!((stats(&storage).damaged, stats(&storage).disk_hits, store.count(OpKind::Get)), (12, 0, 1));
    assert!(storage.get_range("data/x", 0..SIZE as u64).await.unwrap() == all);
    assert_eq!(stats(&storage).disk_hits, 12);
}

#[tokio::test]
async fn only_its_own_files_go_and_what_an_older_version_left() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for name in ["notes.txt", "forebay-cache-0/000/old", "forebay-cache-9/000/newer", "forebay-cache-1/000/mine.txt"] {
        fs::create_dir_all(path(name).parent().unwrap()).unwrap();
        fs::write(path(name), vec![1; 100_000]).unwrap();
    }
    // A process died over it just now; nobody writes there while another one makes room.
    let half = path("forebay-cache-1/000").join(format!("{:032x}-900000.1-0.new", 7));
    fs::write(&half, vec![1; 400_000]).unwrap();
    let (_, storage) = on_disk(folder.path(), "2MiB").await;
    assert!(storage.get_range("data/x", 0..SIZE as u64).await.unwrap() == bytes());
    settled(&storage).await;
    assert!(stats(&storage).evicted > 0);
    assert!(!path("forebay-cache-0").exists() && !half.exists());
    for name in ["notes.txt", "forebay-cache-9/000/newer", "forebay-cache-1/000/mine.txt"] {
        assert!(path(name).exists(), "{name}");
    }
}

#[tokio::test]
async fn a_folder_that_cannot_be_is_gone_on_without() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let (_, storage) = on_disk(&file.path().join("below a file"), "1GiB").await;
    for _ in 0..2 {
        assert!(storage.get_range("data/x", 0..SIZE as u64).await.unwrap() == bytes());
    }
    assert_eq!((stats(&storage).stored, stats(&storage).disk_hits), (0, 0));
}

#[tokio::test]
async fn wrong_bytes_are_not_given_out_again_once_the_reader_said_so() {
    let folder = tempfile::tempdir().unwrap();
    let options = [("cache_dir", folder.path().to_str().unwrap()), ("cache_memory", "64MiB")];
    let (store, storage) = cached(&options).await;
    storage.get_range("data/x", 0..100).await.unwrap();
    settled(&storage).await;
    storage.get_range("data/x", 0..100).await.unwrap();
    assert_eq!(store.count(OpKind::Get), 1);
    storage.distrust("data/x");
    storage.get_range("data/x", 0..100).await.unwrap();
    assert_eq!(store.count(OpKind::Get), 2);
}

#[tokio::test]
async fn what_is_known_to_be_read_soon_is_kept_before_what_was_read_last() {
    let folder = tempfile::tempdir().unwrap();
    let (_, storage) = on_disk(folder.path(), "3MiB").await;
    // Twice in one order through twice as much as fits: the oldest first would never hit.
    let order: Vec<_> = (0..24_u64).map(|i| (i % 12) * PAGE as u64..(i % 12 + 1) * PAGE as u64).collect();
    storage.foresee(order.iter().map(|range| ("data/x", range.clone())));
    for range in order {
        storage.get_range("data/x", range).await.unwrap();
        settled(&storage).await;
    }
    assert!(stats(&storage).disk_hits >= 4, "{:?}", stats(&storage));
}

/// The most hits that a cache of so many pieces can have: what is read latest goes first, and is not taken in if that is the new one.
fn most_hits(order: &[u64], room: usize) -> u64 {
    let (mut held, mut hits) = (Vec::new(), 0);
    for (now, piece) in order.iter().enumerate() {
        if held.contains(piece) {
            hits += 1;
            continue;
        }
        held.push(*piece);
        if held.len() > room {
            let until = |piece: &u64| order[now + 1..].iter().position(|other| other == piece).unwrap_or(usize::MAX);
            let latest = (0..held.len()).max_by_key(|place| until(&held[*place])).unwrap();
            held.swap_remove(latest);
        }
    }
    hits
}

#[tokio::test]
async fn of_shuffled_epochs_that_are_foreseen_as_much_is_found_as_can_be() {
    let hits = async |order: &[u64], foreseen: bool| {
        let folder = tempfile::tempdir().unwrap();
        let (_, storage) = on_disk(folder.path(), "3MiB").await;
        let range = |piece: &u64| piece * PAGE as u64..(piece + 1) * PAGE as u64;
        if foreseen {
            storage.foresee(order.iter().map(|piece| ("data/x", range(piece))));
        }
        for piece in order {
            storage.get_range("data/x", range(piece)).await.unwrap();
            settled(&storage).await;
        }
        stats(&storage).disk_hits
    };
    let (mut foreseen, mut oldest_first, mut most) = (0, 0, 0);
    for seed in 0..3 {
        let epoch = |epoch: u64| {
            let mut pieces: Vec<u64> = (0..12).collect();
            pieces.sort_by_cached_key(|piece| {
                let mut hasher = DefaultHasher::new();
                (seed, epoch, piece).hash(&mut hasher);
                hasher.finish()
            });
            pieces
        };
        let order: Vec<u64> = (0..6).flat_map(epoch).collect();
        foreseen += hits(&order, true).await;
        oldest_first += hits(&order, false).await;
        // Five pieces and their heads fit into 3 MiB.
        most += most_hits(&order, 5);
    }
    assert!(foreseen * 100 >= most * 95, "{foreseen} hits of {most}; {oldest_first} without foresight");
    assert!(foreseen * 2 >= oldest_first * 3, "{foreseen} hits of {most}; {oldest_first} without foresight");
}

/// In a process that one of the tests below started: reads all of the object in changing runs, until it is killed if need be.
fn is_reader() -> bool {
    let Ok(folder) = std::env::var("FOREBAY_CACHE_FOLDER") else { return false };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (rounds, seed): (usize, usize) = (env("FOREBAY_CACHE_ROUNDS"), env("FOREBAY_CACHE_SEED"));
    runtime.block_on(async {
        let (_, storage) = on_disk(Path::new(&folder), "3MiB").await;
        let all = bytes();
        for round in 0..rounds {
            let start = (round * 7919 + seed * 104_729) * 4096 % (SIZE - PAGE);
            let got = storage.get_range("data/x", start as u64..(start + PAGE) as u64).await.unwrap();
            assert!(got == all[start..start + PAGE], "round {round}");
        }
        settled(&storage).await;
    });
    true
}

fn env(name: &str) -> usize {
    std::env::var(name).unwrap().parse().unwrap()
}

fn process(test: &str, folder: &Path, rounds: usize, seed: usize) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("caches::{test}"), "--quiet"]);
    command.env("FOREBAY_CACHE_FOLDER", folder).env("FOREBAY_CACHE_ROUNDS", rounds.to_string());
    command.env("FOREBAY_CACHE_SEED", seed.to_string()).stdout(std::process::Stdio::null());
    command
}

#[test]
fn processes_that_share_a_folder_read_right_bytes_and_keep_its_size() {
    if is_reader() {
        return;
    }
    let test = "processes_that_share_a_folder_read_right_bytes_and_keep_its_size";
    let folder = tempfile::tempdir().unwrap();
    let started: Vec<_> = (0..3).map(|seed| process(test, folder.path(), 150, seed).spawn().unwrap()).collect();
    for mut process in started {
        assert!(process.wait().unwrap().success());
    }
    let total = files(folder.path()).1;
    assert!(total <= (3 << 20) + 100, "{total}");
}

#[test]
fn processes_killed_at_any_moment_leave_a_folder_that_works() {
    if is_reader() {
        return;
    }
    let test = "processes_killed_at_any_moment_leave_a_folder_that_works";
    let folder = tempfile::tempdir().unwrap();
    let kills = if std::env::var("FOREBAY_LONG").is_ok() { 100 } else { 8 };
    for i in 0..kills {
        let mut victim = process(test, folder.path(), 1_000_000, i).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(30 + (i as u64 * 37) % 120));
        victim.kill().unwrap();
        victim.wait().unwrap();
    }
    assert!(process(test, folder.path(), 60, 1).status().unwrap().success());
    let (pieces, total) = files(folder.path());
    // What was being written when a process died counts until it is old.
    let unfinished: u64 = pieces
        .iter()
        .filter(|path| path.extension().is_some_and(|e| e == "new"))
        .map(|p| fs::metadata(p).unwrap().len())
        .sum();
    assert!(total - unfinished <= (3 << 20) + 100, "{total}");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_disk_that_is_full_is_gone_on_without() {
    let folder = tempfile::tempdir().unwrap();
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"]).arg(folder.path()).output();
    if !mounted.is_ok_and(|out| out.status.success()) {
        eprintln!("no file system may be mounted here: nothing is shown of a disk that is full");
        return;
    }
    let (_, storage) = on_disk(folder.path(), "1GiB").await;
    let mut right = true;
    for _ in 0..2 {
        right &= storage.get_range("data/x", 0..SIZE as u64).await.unwrap() == bytes();
    }
    settled(&storage).await;
    let stats = stats(&storage);
    Command::new("umount").arg("-l").arg(folder.path()).status().unwrap();
    assert!(right && stats.not_stored > 0, "{stats:?}");
}
