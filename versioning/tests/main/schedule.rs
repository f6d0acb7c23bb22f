//! Writers, branch makers, readers, collections and purges at once, in orders that a seed chooses.
//!
//! Everything runs on one thread under a clock that jumps, and each request to the store takes a random time before and
//! after its effect: a seed is an interleaving, and gives the same one each time. The store's clock runs beside that of the
//! clients, which stands still.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use forebay_storage::{
    Options, Storage,
    object_store::{
        CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, ObjectStoreExt as _,
        PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, path::Path,
    },
};
use forebay_versioning::{At, CompactOptions, Error, GcOptions, Lake, MergeOptions, Rows, Selection};
use futures::{StreamExt as _, TryStreamExt as _, stream::BoxStream};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};

use crate::support::{append, lake, read, rows, write};

/// A store with a clock of its own and slow, random requests.
#[derive(Debug, Clone)]
struct Slow {
    inner: Arc<dyn ObjectStore>,
    began: tokio::time::Instant,
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    seed: u64,
    written: HashMap<Path, Duration>,
    now: Duration,
    /// When each request but deletions was made and answered: what a run was. Which of two collections deletes an object is up to their
    /// random names.
    trace: Vec<(Duration, &'static str)>,
}

impl std::fmt::Display for Slow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "slow {}", self.inner)
    }
}

impl Slow {
    /// A wait that follows from the seed, the time and the path: random names, and the order of what is asked for at once,
    /// don't count.
    async fn pause(&self, what: &'static str, path: &str) {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.state.lock().unwrap().seed.to_le_bytes());
        hasher.update(&self.began.elapsed().as_nanos().to_le_bytes()).update(what.as_bytes());
        let random = |part: &str| part.len() == 32 && part.bytes().all(|byte| byte.is_ascii_hexdigit());
        for part in path.split('/').filter(|part| !random(part)) {
            hasher.update(part.as_bytes());
        }
        let wait = u64::from(hasher.finalize().as_bytes()[0] % 40);
        tokio::time::sleep(Duration::from_millis(wait)).await;
        let mut state = self.state.lock().unwrap();
        state.now = self.began.elapsed();
        let now = state.now;
        if what != "delete" {
            state.trace.push((now, what));
        }
    }

    fn stamp(&self, mut meta: ObjectMeta) -> ObjectMeta {
        // The store's year is another one than its clients'.
        let written = self.state.lock().unwrap().written.get(&meta.location).copied().unwrap_or_default();
        meta.last_modified = (std::time::UNIX_EPOCH + Duration::from_secs(1_000_000) + written).into();
        meta
    }

    fn wrote(&self, path: &Path) {
        let mut state = self.state.lock().unwrap();
        let now = state.now;
        state.written.insert(path.clone(), now);
    }
}

#[async_trait]
impl ObjectStore for Slow {
    async fn put_opts(&self, path: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        // Data files are written by threads, whose clock doesn't jump.
        let data = path.as_ref().starts_with("data/");
        if !data {
            self.pause("put", path.as_ref()).await;
        }
        let result = self.inner.put_opts(path, payload, options).await;
        if result.is_ok() {
            self.wrote(path);
        }
        if !data {
            self.pause("put", path.as_ref()).await;
        }
        result
    }

    async fn put_multipart_opts(&self, path: &Path, options: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.wrote(path);
        self.inner.put_multipart_opts(path, options).await
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        self.pause("get", path.as_ref()).await;
        let mut result = self.inner.get_opts(path, options).await?;
        result.meta = self.stamp(result.meta);
        Ok(result)
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let this = self.clone();
        let delete = move |path: Result<Path>| {
            let this = this.clone();
            async move {
                let path = path?;
                this.pause("delete", path.as_ref()).await;
                this.inner.delete(&path).await.map(|()| path)
            }
        };
        paths.then(delete).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (this, prefix) = (self.clone(), prefix.cloned());
        let list = async move {
            this.pause("list", prefix.as_ref().map_or("", Path::as_ref)).await;
            let found: Vec<_> = this.inner.list(prefix.as_ref()).try_collect().await?;
            let found: Vec<_> = found.into_iter().map(|meta| Ok(this.stamp(meta))).collect();
            this.pause("list", prefix.as_ref().map_or("", Path::as_ref)).await;
            Ok::<_, forebay_storage::object_store::Error>(futures::stream::iter(found))
        };
        futures::stream::once(list).try_flatten().boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.pause("folders", prefix.map_or("", Path::as_ref)).await;
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

/// What became of the actors of a run, so that the runs as a whole are seen to have met what they are for.
#[derive(Debug, Default)]
struct Met {
    commits: u64,
    fenced: u64,
    merged: u64,
    collected: u64,
    deleted: u64,
    called_off: u64,
    reads: u64,
    purged: u64,
    /// Purges after which all bytes were looked through.
    sought: u64,
    /// What failed as rows of it were erased meanwhile.
    erased: u64,
}

impl std::ops::Add for Met {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            commits: self.commits + other.commits,
            fenced: self.fenced + other.fenced,
            merged: self.merged + other.merged,
            collected: self.collected + other.collected,
            deleted: self.deleted + other.deleted,
            called_off: self.called_off + other.called_off,
            reads: self.reads + other.reads,
            purged: self.purged + other.purged,
            sought: self.sought + other.sought,
            erased: self.erased + other.erased,
        }
    }
}

async fn idle(random: &mut StdRng, most: u64) {
    let wait = random.random_range(0..most);
    tokio::time::sleep(Duration::from_millis(wait)).await;
}

/// Appends, with a pin or without, sometimes slowly.
async fn writer(lake: &Lake, number: i64, mut random: StdRng) -> (Vec<i64>, Met) {
    let (mut ids, mut met) = (Vec::new(), Met::default());
    for commit in 0..4 {
        idle(&mut random, 400).await;
        let id = number * 1000 + commit;
        let pin = match random.random_bool(0.4) {
            true => Some(lake.pin(&At::default(), Duration::from_secs(60), "writer").await.unwrap().1),
            false => None,
        };
        let mut transaction = lake.begin("main").await.unwrap();
        if let Some(pin) = &pin {
            transaction.hold(pin);
        }
        write(&mut transaction, &rows(id..id + 1)).await.unwrap();
        idle(&mut random, 3000).await;
        match transaction.commit("rows", "writer").await {
            Ok(_) => {
                ids.push(id);
                met.commits += 1;
            }
            Err(Error::Fenced { .. }) => met.fenced += 1,
            Err(error) => panic!("{error}"),
        }
        if let Some(pin) = pin {
            pin.release().await;
        }
    }
    (ids, met)
}

/// Makes branches, works on them, merges them and deletes them.
async fn brancher(lake: &Lake, number: i64, mut random: StdRng) -> (Vec<i64>, Met) {
    let (mut ids, mut met) = (Vec::new(), Met::default());
    let mut kept: Option<forebay_format::CommitId> = None;
    for round in 0..3 {
        idle(&mut random, 500).await;
        let (name, id) = (format!("b{number}-{round}"), number * 1000 + round);
        // Sometimes from a commit that nothing may lead to by now.
        let from = kept.filter(|_| random.random_bool(0.5)).map_or_else(At::default, At::Commit);
        match lake.create_branch(&name, &from).await {
            Ok(()) => {}
            Err(Error::Collected { .. } | Error::UnknownCommit { .. } | Error::Expired { .. }) => {
                met.collected += 1;
                continue;
            }
            Err(error) => panic!("{error}"),
        }
        let snapshot = match append(lake, &name, id..id + 1).await {
            Ok(snapshot) => snapshot,
            Err(Error::Fenced { .. }) => {
                met.fenced += 1;
                continue;
            }
            Err(error) => panic!("{error}"),
        };
        idle(&mut random, 500).await;
        if random.random_bool(0.5) {
            match lake.merge("main", &At::Branch(name.clone()), &MergeOptions::by("brancher")).await {
                Ok(_) => {
                    ids.push(id);
                    met.merged += 1;
                }
                Err(Error::Erased { .. }) => met.erased += 1,
                Err(error) => panic!("{error}"),
            }
        } else {
            kept = Some(snapshot.id());
        }
        if random.random_bool(0.8) {
            lake.delete_branch(&name).await.unwrap();
        }
    }
    (ids, met)
}

/// Reads pinned versions, slowly.
async fn reader(lake: &Lake, mut random: StdRng) -> Met {
    let mut met = Met::default();
    for _ in 0..4 {
        idle(&mut random, 500).await;
        let (snapshot, pin) = lake.pin(&At::default(), Duration::from_secs(60), "reader").await.unwrap();
        idle(&mut random, 2000).await;
        let table = snapshot.table("main").await.unwrap();
        idle(&mut random, 200).await;
        match read(&table, 0..table.rows()).await {
            Ok(rows) => {
                assert_eq!(rows.len() as u64, table.rows());
                met.reads += 1;
            }
            Err(Error::Erased { .. }) => met.erased += 1,
            Err(error) => panic!("{error}"),
        }
        pin.release().await;
    }
    met
}

async fn compactor(lake: &Lake, mut random: StdRng) -> Met {
    let mut met = Met::default();
    for _ in 0..3 {
        idle(&mut random, 1500).await;
        let mut transaction = lake.begin("main").await.unwrap();
        let table = transaction.base().table("main").await.unwrap();
        let done = match transaction.compact(&table, CompactOptions::default()).await {
            Ok(_) => transaction.commit("compact", "compactor").await.map(drop),
            Err(error) => Err(error),
        };
        match done {
            Ok(()) | Err(Error::Fenced { .. } | Error::NothingToCommit { .. }) => {}
            Err(Error::Erased { .. }) => met.erased += 1,
            Err(error) => panic!("{error}"),
        }
    }
    met
}

/// Erases rows. When it returns nothing in the store has them, but for what others wrote in vain under pins.
async fn purger(lake: &Lake, store: &Storage, mut random: StdRng) -> (Vec<i64>, Met) {
    let (mut gone, mut met) = (Vec::new(), Met::default());
    for _ in 0..2 {
        idle(&mut random, 3000).await;
        let table = lake.snapshot(&At::default()).await.unwrap().table("main").await.unwrap();
        // Every third row has no text to look for.
        let rows = read(&table, 0..table.rows()).await.unwrap();
        let chosen: Vec<u64> =
            (0..).zip(&rows).filter(|(_, row)| row.id > 2 && row.text.is_some()).map(|(n, _)| n).collect();
        let Some(chosen) = chosen.get(random.random_range(0..chosen.len().max(1))).copied() else { continue };
        let selection = Selection::new(table, Rows::List([chosen].into())).unwrap();
        let report = lake.purge(&selection, "purger", "asked to", |_| {}).await.unwrap();
        let id = rows[chosen as usize].id;
        gone.push(id);
        met.purged += 1;
        if report.unreachable == 0 {
            let text = format!("row {id} ");
            for entry in store.list("data").await.unwrap() {
                // Another's file may be deleted meanwhile.
                let Ok(bytes) = store.get(&entry.path).await else { continue };
                assert!(
                    bytes.windows(text.len()).all(|window| window != text.as_bytes()),
                    "row {id} in {}",
                    entry.path
                );
            }
            met.sought += 1;
        }
    }
    (gone, met)
}

async fn collector(lake: &Lake, mut random: StdRng) -> Met {
    let mut met = Met::default();
    for _ in 0..5 {
        idle(&mut random, 1200).await;
        let grace = Duration::from_millis(random.random_range(0..1500));
        let mut options = GcOptions::default().with_grace(grace).with_retention(grace);
        if random.random_bool(0.5) {
            options = options.expiring();
        }
        match lake.gc(&options, |_| {}).await {
            Ok(report) => met.deleted += report.deleted,
            Err(Error::CalledOff { .. }) => met.called_off += 1,
            Err(error) => panic!("{error}"),
        }
    }
    met
}

/// A run, and when its requests were.
async fn run(seed: u64) -> (Met, Vec<(Duration, &'static str)>) {
    forebay_versioning::seed_pauses(seed);
    let inner = Storage::open(&format!("memory://{}", uuid::Uuid::new_v4()), &Options::default()).unwrap();
    let state = State { seed, written: HashMap::new(), now: Duration::ZERO, trace: Vec::new() };
    let slow =
        Slow { inner: inner.store().unwrap(), began: tokio::time::Instant::now(), state: Arc::new(Mutex::new(state)) };
    let state = slow.state.clone();
    let storage = Storage::from_store(Arc::new(slow), "slow");
    let lake = lake(storage.clone(), &[0..3]).await.unwrap();
    let other = Lake::open(storage).await.unwrap();
    let of = |number: u64| StdRng::seed_from_u64(seed * 100 + number);
    let (w1, w2, b1, b2, r, c, c1, c2, (gone, p)) = futures::join!(
        writer(&lake, 1, of(1)),
        writer(&lake, 2, of(2)),
        brancher(&lake, 3, of(3)),
        brancher(&lake, 4, of(4)),
        reader(&lake, of(5)),
        compactor(&lake, of(6)),
        collector(&lake, of(7)),
        collector(&lake, of(8)),
        purger(&other, &inner, of(9)),
    );
    let mut trace = std::mem::take(&mut state.lock().unwrap().trace);
    // Threads write data files: which of two actors goes on first at one moment is up to them.
    trace.sort_unstable();
    let mut versions: Vec<_> = lake.branches().await.unwrap().into_iter().map(At::Branch).collect();
    versions.push(At::default());
    assert_eq!(lake.verify_all(&versions, |_| {}).await.unwrap().faults, [], "seed {seed}");
    let found = crate::support::all(&lake, &At::default()).await.unwrap();
    for id in [w1.0, w2.0, b1.0, b2.0].concat().into_iter().filter(|id| !gone.contains(id)) {
        assert!(found.iter().any(|row| row.id == id), "seed {seed}: row {id} was committed and is lost");
    }
    for id in &gone {
        assert!(found.iter().all(|row| row.id != *id), "seed {seed}: row {id} was erased and is there");
    }
    let met = [w1.1, w2.1, b1.1, b2.1, r, c, c1, c2, p].into_iter().fold(Met::default(), std::ops::Add::add);
    (met, trace)
}

fn go(seed: u64) -> (Met, Vec<(Duration, &'static str)>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(run(seed))
}

#[test]
fn a_seed_gives_the_same_requests_at_the_same_times() {
    for seed in 0..4 {
        let (one, other) = (go(seed).1, go(seed).1);
        assert!(one.len() > 1000, "{}", one.len());
        let differing = one.iter().zip(&other).position(|(one, other)| one != other);
        let around = differing.map(|at| (&one[at.saturating_sub(3)..], &other[at.saturating_sub(3)..]));
        let around = around.map(|(one, other)| (&one[..8.min(one.len())], &other[..8.min(other.len())]));
        assert_eq!((differing, one.len()), (None, other.len()), "seed {seed}: {around:?}");
    }
}

#[test]
fn nothing_that_is_in_use_is_collected_in_any_order_of_events() {
    let seeds = if std::env::var_os("FOREBAY_LONG").is_some() { 0..2000 } else { 0..60 };
    let mut all = Met::default();
    for seed in seeds {
        all = all + go(seed).0;
    }
    println!("{all:?}");
    let seen = [all.commits, all.fenced, all.merged, all.collected, all.deleted, all.called_off, all.reads, all.purged];
    let seen = seen.into_iter().chain([all.sought]).collect::<Vec<_>>();
    assert!(seen.iter().all(|count| *count > 0), "the runs never met some event: {all:?}");
}
