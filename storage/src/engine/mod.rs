//! The request engine: every read of a remote storage goes through it.
//!
//! ```text
//!  ask ─► pace ─► gate ─► a source ─► the answer begins ─► its body ─► every byte, or why not
//!   ▲     503s     knee    mirrors     hedge if it is late   deadline
//!   └──────────────── full jitter, inside the deadline ◄──────┘
//! ```
//!
//! The decisions are small pure parts: [`knee`] says how many requests at once, [`pace`] how many a second once a store has asked
//! for patience, [`hedge`] when a second request is worth its bytes, [`retry`] what is tried again and after which wait,
//! [`sources`] which mirror is asked. A store that is not remote goes through it too, with all of that off.

mod gate;
mod hedge;
mod knee;
mod pace;
pub(crate) mod retry;
pub(crate) mod sources;
mod stats;

use std::future::Future;
use std::ops::Range;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures::future::{Either, select};
use object_store::{GetOptions, GetRange, GetResult, ObjectStore as _};

use crate::options::Tuning;
use crate::version::Version;
use gate::Gate;
use hedge::Hedge;
use pace::Pace;
use retry::{Class, DOUBTED, Failure, Late, classify};
use sources::Sources;
use stats::Counts;
pub use stats::{MirrorStats, Stats};

/// What is to be read.
#[derive(Debug, Clone)]
pub(crate) struct Ask<'a> {
    /// The object, relative to the root of the storage.
    pub(crate) path: &'a str,
    /// The bytes; all of them without.
    pub(crate) range: Option<Range<u64>>,
    /// Whether the object never changes, so that any mirror is as good as the storage itself.
    pub(crate) fixed: bool,
    /// What the object must be, if it may have changed.
    pub(crate) version: Option<&'a Version>,
}

/// Takes the bytes of an answer in. Asked again after an attempt that failed, it starts anew.
pub(crate) trait Sink: Send {
    /// What it makes of them.
    type Got: Send;

    /// Takes in the body, which is to have `length` bytes.
    fn take(
        &mut self,
        answer: GetResult,
        wanted: &Range<u64>,
    ) -> impl Future<Output = Result<Self::Got, Failure>> + Send;
}

/// Why a read failed at last.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) failure: Failure,
    pub(crate) attempts: u32,
}

/// What sends the reads of one storage in one process.
#[derive(Debug)]
pub(crate) struct Engine {
    sources: Sources,
    tuning: Tuning,
    gate: Gate,
    pace: Mutex<Pace>,
    /// Whether there is a pace to keep, so that mostly nobody has to look.
    paced: AtomicBool,
    hedge: Hedge,
    counts: Counts,
    since: Instant,
}

impl Engine {
    pub(crate) fn new(sources: Sources, tuning: Tuning) -> Self {
        Self {
            sources,
            tuning,
            gate: Gate::new(tuning.concurrency),
            pace: Mutex::default(),
            paced: AtomicBool::new(false),
            hedge: Hedge::new(tuning.hedge),
            counts: Counts::default(),
            since: Instant::now(),
        }
    }

    pub(crate) fn sources(&self) -> &Sources {
        &self.sources
    }

    /// Reads until every byte is there, nothing more is worth trying, or the time is over.
    pub(crate) async fn get<S: Sink>(&self, ask: &Ask<'_>, sink: &mut S) -> Result<S::Got, Failed> {
        let start = Instant::now();
        let mut attempts = 0;
        let mut tour = self.sources.tour(ask, self.now());
        loop {
            self.keep_pace().await;
            let source = tour.source();
            attempts += 1;
            let failure = match self.attempt(ask, source, sink).await {
                Ok(got) => {
                    self.sources.worked(source, ask);
                    return Ok(got);
                }
                Err(failure) => failure,
            };
            let class = match classify(&failure) {
                Class::Doubtful if attempts >= DOUBTED => Class::Final,
                class => class,
            };
            match class {
                Class::Final => {}
                Class::Throttled => self.throttled(),
                Class::Transient | Class::Doubtful => self.sources.failed(source, self.now()),
            }
            // Another source is asked at once: its answer does not depend on how this one is.
            if tour.next(class != Class::Final, failure) {
                self.counts.fell_back.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            let (failure, again) = tour.end();
            let wait = retry::wait(attempts, self.tuning.retry_wait);
            if !again || attempts > self.tuning.max_retries as u32 || start.elapsed() + wait > self.tuning.retry_timeout
            {
                return Err(Failed { failure, attempts });
            }
            self.counts.retries.fetch_add(1, Ordering::Relaxed);
            tracing::debug!(path = ask.path, range = ?ask.range, attempts, ?wait, %failure, "a read is tried again");
            tokio::time::sleep(wait).await;
            tour = self.sources.tour(ask, self.now());
        }
    }

    /// One request, a second one if its answer is late, and its body.
    async fn attempt<S: Sink>(&self, ask: &Ask<'_>, source: usize, sink: &mut S) -> Result<S::Got, Failure> {
        let _turn = self.gate.turn().await;
        self.counts.requests.fetch_add(1, Ordering::Relaxed);
        let work = async {
            let answer = self.answer(ask, source).await?;
            if let Some(reason) = ask.version.and_then(|version| version.differs(&answer.meta)) {
                return Err(Failure::Changed { reason });
            }
            let wanted = ask.range.clone().unwrap_or(0..answer.meta.size);
            if answer.range != wanted {
                let got = answer.range.end.saturating_sub(answer.range.start);
                return Err(Failure::Short { range: wanted, got, cut: false });
            }
            let got = sink.take(answer, &wanted).await?;
            Ok((got, wanted.end - wanted.start))
        };
        let done = if self.tuning.max_retries == 0 && !self.tuning.remote {
            work.await
        } else {
            let after = self.tuning.timeout;
            tokio::time::timeout(after, work).await.unwrap_or_else(|_| {
                self.counts.timeouts.fetch_add(1, Ordering::Relaxed);
                Err(Failure::Store(Late { after }.into()))
            })
        };
        let (got, bytes) = done?;
        self.counts.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.gate.ended(bytes);
        Ok(got)
    }

    /// The answer that begins first.
    async fn answer(&self, ask: &Ask<'_>, source: usize) -> Result<GetResult, Failure> {
        let start = Instant::now();
        let length = ask.range.as_ref().map(|range| range.end - range.start);
        self.hedge.asked(length.unwrap_or(0));
        let mut first = pin!(self.send(ask, source));
        let after = self.hedge.after().zip(length);
        let answer = match after {
            None => first.await,
            Some((after, length)) => match tokio::time::timeout(after, &mut first).await {
                Ok(answer) => answer,
                Err(_) if !self.hedge.afford(length) => first.await,
                Err(_) => {
                    self.counts.hedges.fetch_add(1, Ordering::Relaxed);
                    let second = pin!(self.send(ask, self.sources.second(source, ask, self.now())));
                    match select(first, second).await {
                        Either::Left((Ok(answer), _)) => Ok(answer),
                        Either::Right((Ok(answer), _)) => {
                            self.counts.hedges_won.fetch_add(1, Ordering::Relaxed);
                            Ok(answer)
                        }
                        // One that failed soon says nothing about the other one.
                        Either::Left((Err(_), second)) => second.await,
                        Either::Right((Err(_), first)) => first.await,
                    }
                }
            },
        };
        if answer.is_ok() && self.tuning.remote {
            let took = start.elapsed();
            self.hedge.began(took);
            self.sources.began(source, took);
        }
        answer.map_err(Failure::Store)
    }

    async fn send(&self, ask: &Ask<'_>, source: usize) -> object_store::Result<GetResult> {
        let source = self.sources.at(source);
        let range = ask.range.clone().map(GetRange::Bounded);
        source.store.get_opts(&source.locate(ask.path)?, GetOptions { range, ..GetOptions::default() }).await
    }

    async fn keep_pace(&self) {
        if !self.paced.load(Ordering::Relaxed) {
            return;
        }
        let wait = {
            let mut pace = self.pace.lock().unwrap_or_else(PoisonError::into_inner);
            let wait = pace.take(self.now());
            self.paced.store(pace.rate().is_some(), Ordering::Relaxed);
            wait
        };
        if wait > 0.0 {
            tokio::time::sleep(Duration::from_secs_f64(wait)).await;
        }
    }

    fn throttled(&self) {
        self.counts.throttled.fetch_add(1, Ordering::Relaxed);
        self.gate.throttled();
        // As many a second as are in flight, each for as long as an answer takes.
        let each = self.hedge.median().unwrap_or(Duration::from_millis(50)).as_secs_f64();
        let rate = self.gate.in_flight().max(1) as f64 / each.max(0.001);
        let mut pace = self.pace.lock().unwrap_or_else(PoisonError::into_inner);
        pace.throttled(self.now(), rate);
        self.paced.store(true, Ordering::Relaxed);
    }

    fn now(&self) -> f64 {
        self.since.elapsed().as_secs_f64()
    }

    pub(crate) fn stats(&self) -> Stats {
        let pace = self.pace.lock().unwrap_or_else(PoisonError::into_inner).rate();
        Stats {
            limit: self.gate.limit(),
            in_flight: self.gate.in_flight(),
            pace,
            hedged_bytes: self.hedge.spent(),
            mirrors: self.sources.stats(self.now()),
            ..self.counts.stats()
        }
    }
}
