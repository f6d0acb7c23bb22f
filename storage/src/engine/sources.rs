//! Where the same objects can be read: the storage itself and its mirrors.
//!
//! What never changes is read from the nearest source that works, or from the first one in the order given; what may
//! change, only from the storage itself while it works. A source that fails is left alone for a time that doubles. One
//! whose bytes were wrong, which only the reader above can tell, is not asked for that object again, and after a few such
//! objects not at all. A mirror may lag behind, so its "not found" is no answer for what never changes; for what may change it
//! is, while the storage itself fails: a lake is then read as the mirror has it.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use object_store::ObjectStore;
use object_store::path::Path;

use super::Ask;
use super::retry::Failure;
use super::stats::MirrorStats;

/// How long a source that failed is left alone at first, and at most, in seconds.
const ALONE: (f64, f64) = (1.0, 60.0);

/// A source with wrong bytes in so many objects is not asked any more.
const WRONG: u64 = 3;

/// Of how many objects it is kept in mind who served them last.
const SERVED: usize = 4096;

/// What a new time counts for beside those before it.
const NEWEST: f64 = 0.1;

/// The storage itself or a mirror.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) url: String,
    pub(crate) store: Arc<dyn ObjectStore>,
    pub(crate) root: Path,
}

impl Source {
    /// The full name of an object there.
    pub(crate) fn locate(&self, path: &str) -> object_store::Result<Path> {
        let relative = Path::parse(path)?;
        if self.root.as_ref().is_empty() {
            return Ok(relative);
        }
        Ok(self.root.parts().chain(relative.parts()).collect())
    }
}

/// All sources; the storage itself is the first one.
#[derive(Debug)]
pub(crate) struct Sources {
    all: Vec<Source>,
    nearest: bool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    health: Vec<Health>,
    /// Who served an object last.
    served: HashMap<String, usize>,
    wrong: HashSet<(String, usize)>,
}

#[derive(Debug, Default, Clone)]
struct Health {
    reads: u64,
    failures: u64,
    distrusted: u64,
    /// Failures since it last worked.
    row: u32,
    alone_until: f64,
    latency: Option<f64>,
}

impl Health {
    fn works(&self, now: f64) -> bool {
        self.distrusted < WRONG && now >= self.alone_until
    }
}

impl Sources {
    pub(crate) fn new(all: Vec<Source>, nearest: bool) -> Self {
        let state = State { health: vec![Health::default(); all.len()], ..State::default() };
        Self { all, nearest, state: Mutex::new(state) }
    }

    pub(crate) fn at(&self, source: usize) -> &Source {
        &self.all[source.min(self.all.len() - 1)]
    }

    /// The storage itself.
    pub(crate) fn main(&self) -> &Source {
        &self.all[0]
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn alone(&self) -> bool {
        self.all.len() == 1
    }

    /// The sources to ask one after the other for one read.
    pub(crate) fn tour(&self, ask: &Ask<'_>, now: f64) -> Tour {
        if self.alone() {
            return Tour::new(vec![0], ask.fixed);
        }
        let state = self.state();
        Tour::new(order(&state, ask, self.nearest, now), ask.fixed)
    }

    /// Who is asked beside `source`, which is late.
    pub(crate) fn second(&self, source: usize, ask: &Ask<'_>, now: f64) -> usize {
        if self.alone() || !ask.fixed {
            return source;
        }
        let state = self.state();
        let mut others = order(&state, ask, self.nearest, now).into_iter().filter(|other| *other != source);
        others.find(|other| state.health[*other].works(now)).unwrap_or(source)
    }

    /// Takes in that an answer of a source began.
    pub(crate) fn began(&self, source: usize, took: Duration) {
        if self.alone() {
            return;
        }
        let latency = &mut self.state().health[source].latency;
        let took = took.as_secs_f64();
        *latency = Some(latency.map_or(took, |old| old * (1.0 - NEWEST) + took * NEWEST));
    }

    /// Takes in that a source gave what was asked.
    pub(crate) fn worked(&self, source: usize, ask: &Ask<'_>) {
        if self.alone() {
            return;
        }
        let mut state = self.state();
        let health = &mut state.health[source];
        health.reads += 1;
        (health.row, health.alone_until) = (0, 0.0);
        if state.served.len() >= SERVED && !state.served.contains_key(ask.path) {
            state.served.clear();
        }
        state.served.insert(ask.path.to_owned(), source);
    }

    /// Takes in that a source failed in a way that may pass.
    pub(crate) fn failed(&self, source: usize, now: f64) {
        if self.alone() {
            return;
        }
        let health = &mut self.state().health[source];
        health.failures += 1;
        health.alone_until = now + (ALONE.0 * f64::from(1 << health.row.min(16))).min(ALONE.1);
        health.row += 1;
    }

    /// Takes in that the bytes of an object were wrong; gives the URL of who sent them, if that is known.
    pub(crate) fn distrust(&self, path: &str) -> Option<&str> {
        let mut state = self.state();
        let source = if self.alone() { 0 } else { state.served.remove(path)? };
        if state.wrong.insert((path.to_owned(), source)) {
            state.health[source].distrusted += 1;
        }
        Some(&self.all[source].url)
    }

    pub(crate) fn stats(&self, now: f64) -> Vec<MirrorStats> {
        let state = self.state();
        let each = self.all.iter().zip(&state.health);
        each.map(|(source, health)| MirrorStats {
            url: source.url.clone(),
            reads: health.reads,
            failures: health.failures,
            distrusted: health.distrusted,
            healthy: self.alone() || health.works(now),
            latency: health.latency.map(Duration::from_secs_f64),
        })
        .collect()
    }
}

/// All sources, the best one first; those that are left alone come last, for when nothing else works.
fn order(state: &State, ask: &Ask<'_>, nearest: bool, now: f64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..state.health.len()).collect();
    let rank = |source: usize| {
        let health = &state.health[source];
        let wrong = state.wrong.contains(&(ask.path.to_owned(), source));
        // One that was never asked goes first: how near it is can only be found out by asking.
        let far = if nearest && ask.fixed { health.latency.unwrap_or(0.0) } else { 0.0 };
        (wrong, !health.works(now) && (ask.fixed || source > 0), far)
    };
    order.sort_by(|a, b| rank(*a).partial_cmp(&rank(*b)).unwrap_or(std::cmp::Ordering::Equal));
    order
}

/// One round over the sources for one read.
#[derive(Debug)]
pub(crate) struct Tour {
    order: Vec<usize>,
    fixed: bool,
    at: usize,
    again: bool,
    /// What the storage itself said, or else the first to fail.
    failure: Option<(usize, Failure)>,
}

impl Tour {
    fn new(order: Vec<usize>, fixed: bool) -> Self {
        Self { order, fixed, at: 0, again: false, failure: None }
    }

    pub(crate) fn source(&self) -> usize {
        self.order[self.at]
    }

    /// Takes in how the source at hand failed; whether there is another one to ask. `passing` says that trying again may help.
    pub(crate) fn next(&mut self, passing: bool, failure: Failure) -> bool {
        let source = self.source();
        self.again |= passing;
        let missing = |failure: &Failure| matches!(failure, Failure::Store(object_store::Error::NotFound { .. }));
        // What the storage itself says for good is so, and what a mirror says of what may change, while that fails.
        let settled = !passing && (source == 0 || (!self.fixed && missing(&failure)));
        if settled {
            self.again = false;
        }
        if source == 0 || settled || self.failure.is_none() {
            self.failure = Some((source, failure));
        }
        self.at += 1;
        if self.at < self.order.len() && !settled {
            return true;
        }
        self.at = 0;
        false
    }

    /// How the round ended, and whether another one may end better.
    pub(crate) fn end(self) -> (Failure, bool) {
        let failure = self.failure.map_or(Failure::Short { range: 0..0, got: 0, cut: true }, |(_, failure)| failure);
        (failure, self.again)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use object_store::memory::InMemory;

    fn three(nearest: bool) -> Sources {
        let source = |url: &str| Source { url: url.into(), store: Arc::new(InMemory::new()), root: Path::default() };
        Sources::new(vec![source("main"), source("near"), source("far")], nearest)
    }

    fn ask(path: &str, fixed: bool) -> Ask<'_> {
        Ask { path, range: None, fixed, version: None }
    }

    fn lap(sources: &Sources, ask: &Ask<'_>, now: f64) -> Vec<usize> {
        sources.tour(ask, now).order
    }

    #[test]
    fn the_nearest_is_asked_first_for_what_never_changes_and_the_storage_itself_for_the_rest() {
        let sources = three(true);
        for (source, millis) in [(0, 50), (1, 10), (2, 90)] {
            sources.began(source, Duration::from_millis(millis));
        }
        assert_eq!(lap(&sources, &ask("x", true), 0.0), [1, 0, 2]);
        assert_eq!(lap(&sources, &ask("x", false), 0.0), [0, 1, 2]);
        let given = three(false);
        given.began(0, Duration::from_millis(50));
        assert_eq!(lap(&given, &ask("x", true), 0.0), [0, 1, 2]);
    }

    #[test]
    fn one_that_failed_is_left_alone_longer_each_time_and_asked_last() {
        let sources = three(false);
        sources.failed(0, 10.0);
        assert_eq!(lap(&sources, &ask("x", true), 10.5), [1, 2, 0]);
        assert_eq!(lap(&sources, &ask("x", true), 11.1), [0, 1, 2]);
        sources.failed(0, 11.1);
        assert_eq!(lap(&sources, &ask("x", true), 12.5), [1, 2, 0]);
        assert_eq!(lap(&sources, &ask("x", false), 12.5), [0, 1, 2], "what may change is the storage's own to say");
        sources.worked(0, &ask("x", true));
        assert_eq!(lap(&sources, &ask("x", true), 12.5), [0, 1, 2]);
    }

    #[test]
    fn who_sent_wrong_bytes_is_asked_last_for_that_object_and_after_a_few_for_all() {
        let sources = three(false);
        assert_eq!(sources.distrust("x"), None, "nobody sent it");
        for path in ["x", "y", "z"] {
            sources.worked(0, &ask(path, true));
            assert_eq!(sources.distrust(path), Some("main"));
            assert_eq!(lap(&sources, &ask(path, true), 0.0), [1, 2, 0]);
            assert_eq!(lap(&sources, &ask("other", true), 0.0) == [0, 1, 2], path != "z");
        }
        assert!(!sources.stats(0.0)[0].healthy);
    }

    #[test]
    fn a_mirror_that_lags_never_makes_an_object_missing() {
        let missing = || Failure::Store(object_store::Error::NotFound { path: "x".into(), source: "x".into() });
        let down = || Failure::Short { range: 0..1, got: 0, cut: true };
        // The mirror misses it and the storage cannot be reached: that is not "not found", and is worth another round.
        let mut tour = Tour::new(vec![1, 0], true);
        assert!(tour.next(false, missing()));
        assert!(!tour.next(true, down()));
        let (failure, again) = tour.end();
        assert!(matches!(failure, Failure::Short { .. }) && again);
        // The storage itself says it: nobody else is asked.
        let mut tour = Tour::new(vec![0, 1], true);
        assert!(!tour.next(false, missing()));
        assert!(matches!(tour.end(), (Failure::Store(object_store::Error::NotFound { .. }), false)));
        // Of what may change, the mirror's word counts while the storage fails: a lake is then as the mirror has it.
        let mut tour = Tour::new(vec![0, 1], false);
        assert!(tour.next(true, down()));
        assert!(!tour.next(false, missing()));
        assert!(matches!(tour.end(), (Failure::Store(object_store::Error::NotFound { .. }), false)));
    }
}
