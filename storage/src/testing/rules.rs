//! What may go wrong, and when.

use std::ops::Range;
use std::time::Duration;

/// A kind of request to a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OpKind {
    /// A read of an object or of a range of it.
    Get,
    /// A request for the size and age of an object.
    Head,
    /// A write that replaces.
    Put,
    /// A put-if-absent.
    Create,
    /// The start of an upload in parts.
    Begin,
    /// One part of an upload.
    Part,
    /// The end of an upload, which makes the object visible.
    Complete,
    /// The end of an upload that is given up.
    Abort,
    /// A listing.
    List,
    /// The removal of an object.
    Delete,
    /// A copy.
    Copy,
}

/// Something that goes wrong with one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It fails and had no effect, but nobody can know that.
    ErrorBefore,
    /// It takes effect and its reply is lost.
    ErrorAfter,
    /// It fails now and takes effect just before the n-th operation after it (1: the next one), whoever sends that.
    /// Writes only; anything else fails as with [`Fault::ErrorBefore`].
    Late(u32),
    /// It is refused for lack of permission: it surely has no effect.
    Refuse,
    /// The body that is read ends after this many bytes; `None` lets the seed say where.
    Truncate(Option<u64>),
    /// This bit of the body that is read is flipped (modulo its length); `None` lets the seed say which.
    Flip(Option<u64>),
    /// It waits before anything happens.
    Delay(Duration),
    /// It waits any time up to this one before anything happens, as the seed says.
    Jitter(Duration),
    /// It is answered with "slow down" and had no effect.
    Throttle,
    /// It is never answered: its sender waits until it gives up.
    Stall,
    /// The body that is read begins, and its rest never comes.
    StallBody,
    /// The body that is read breaks off with an error after this many bytes; `None` lets the seed say where.
    Break(Option<u64>),
    /// The code of the store panics before anything happens.
    Panic,
    /// The process dies before it is sent: it fails, and so does every later operation.
    StopBefore,
    /// The process dies after it took effect: it fails, and so does every later operation.
    StopAfter,
}

/// A fault and the requests that it befalls.
#[derive(Debug, Clone)]
pub struct Rule {
    pub(super) fault: Fault,
    kinds: Vec<OpKind>,
    path: Option<String>,
    when: When,
    seen: u64,
}

#[derive(Debug, Clone, Copy)]
enum When {
    Always,
    Nth(u64),
    From(u64),
    Chance(f64),
}

impl Rule {
    /// A fault of every request; narrow it with the other methods.
    pub fn new(fault: Fault) -> Self {
        Self { fault, kinds: Vec::new(), path: None, when: When::Always, seen: 0 }
    }

    /// Only requests of this kind; call it again to add another kind.
    #[must_use]
    pub fn on(mut self, kind: OpKind) -> Self {
        self.kinds.push(kind);
        self
    }

    /// Only requests whose object name contains this.
    #[must_use]
    pub fn path(mut self, part: impl Into<String>) -> Self {
        self.path = Some(part.into());
        self
    }

    /// Only the n-th of the requests that fit, counted from 0.
    #[must_use]
    pub fn nth(mut self, n: u64) -> Self {
        self.when = When::Nth(n);
        self
    }

    /// The n-th of the requests that fit, counted from 0, and all after it.
    #[must_use]
    pub fn from(mut self, n: u64) -> Self {
        self.when = When::From(n);
        self
    }

    /// Each of the requests that fit with this probability, by the store's seed.
    #[must_use]
    pub fn chance(mut self, probability: f64) -> Self {
        self.when = When::Chance(probability);
        self
    }

    /// Whether the fault befalls this request; counts it if it fits. `random` is uniform in 0..1.
    pub(super) fn fires(&mut self, kind: OpKind, path: &str, random: impl FnOnce() -> f64) -> bool {
        let fits = (self.kinds.is_empty() || self.kinds.contains(&kind))
            && self.path.as_ref().is_none_or(|part| path.contains(part.as_str()));
        if !fits {
            return false;
        }
        let n = self.seen;
        self.seen += 1;
        match self.when {
            When::Always => true,
            When::Nth(wanted) => n == wanted,
            When::From(first) => n >= first,
            When::Chance(probability) => random() < probability,
        }
    }
}

/// A request that reached a [`FaultStore`](super::FaultStore).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    /// What was asked.
    pub kind: OpKind,
    /// The object or folder, by its full name.
    pub path: String,
    /// The bytes asked for, if not all.
    pub range: Option<Range<u64>>,
    /// Bytes of the body that was sent or received.
    pub bytes: u64,
    /// What went wrong on purpose.
    pub fault: Option<Fault>,
}
