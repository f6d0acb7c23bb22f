//! Which failures of a read are worth another try, and after which wait.

use std::fmt;
use std::ops::Range;
use std::time::Duration;

use object_store::client::HttpError;

use crate::clouds::Rejected;
use crate::error::{Error, cause};

/// How one attempt failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The store failed, or nobody answered.
    Store(object_store::Error),
    /// Another number of bytes came than was asked for.
    Short {
        range: Range<u64>,
        got: u64,
        /// Whether the answer was cut off on its way, and not the object shorter.
        cut: bool,
    },
    /// The object is not the one that was meant.
    Changed { reason: String },
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(error) => error.fmt(f),
            Self::Short { range, got, .. } => write!(f, "{got} bytes came instead of {}", range.end - range.start),
            Self::Changed { reason } => write!(f, "the object changed: {reason}"),
        }
    }
}

/// What a failure means for the next attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// The same would happen again.
    Final,
    /// It may not happen again.
    Transient,
    /// It will happen again if too many ask again too soon.
    Throttled,
    /// It may not happen again, or the store can't do otherwise: a few tries tell.
    Doubtful,
}

/// How often it is tried in all what is [doubtful](Class::Doubtful).
pub(crate) const DOUBTED: u32 = 3;

/// No whole answer came in time.
#[derive(Debug, thiserror::Error)]
#[error("no whole answer within {after:?}")]
pub(crate) struct Late {
    pub(crate) after: Duration,
}

impl From<Late> for object_store::Error {
    fn from(late: Late) -> Self {
        Self::Generic { store: "network", source: Box::new(late) }
    }
}

/// A failure made on purpose, which counts as the network's.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub(crate) struct Injected {
    pub(crate) what: &'static str,
    pub(crate) throttled: bool,
}

/// Sorts a failure. What is not known to pass is final: asking again what cannot succeed only hides why.
pub(crate) fn classify(failure: &Failure) -> Class {
    let error = match failure {
        Failure::Short { cut: true, .. } => return Class::Transient,
        Failure::Short { cut: false, .. } | Failure::Changed { .. } => return Class::Final,
        Failure::Store(error) => error,
    };
    if !matches!(error, object_store::Error::Generic { .. }) || cause::<Error>(error).is_some() {
        return Class::Final;
    }
    match (cause::<Rejected>(error), cause::<Injected>(error)) {
        (Some(Rejected::NoBucket), _) => return Class::Final,
        (Some(Rejected::Busy { status: 429 | 503, .. }), _) => return Class::Throttled,
        (Some(Rejected::Busy { .. }), _) => return Class::Transient,
        (Some(Rejected::Whole { .. }), _) => return Class::Doubtful,
        (None, Some(Injected { throttled: true, .. })) => return Class::Throttled,
        (None, Some(_)) => return Class::Transient,
        (None, None) => {}
    }
    let passing = cause::<HttpError>(error).is_some() || cause::<Late>(error).is_some();
    if passing { Class::Transient } else { Class::Final }
}

/// The longest wait between two attempts.
const LONGEST: Duration = Duration::from_secs(10);

/// A wait before attempt `n + 1`: full jitter, any time up to a bound that doubles, so that many who failed together do
/// not come back together.
pub(crate) fn wait(n: u32, first: Duration) -> Duration {
    first.saturating_mul(1 << n.saturating_sub(1).min(16)).min(LONGEST).mul_f64(random())
}

/// Uniform in 0..1, without a generator to carry around: a wait needs no better.
pub(crate) fn random() -> f64 {
    f64::from(uuid::Uuid::new_v4().as_u128() as u32) / (f64::from(u32::MAX) + 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_anything_up_to_a_bound_that_doubles_and_ends() {
        for (n, bound) in [(1, 100), (2, 200), (3, 400), (8, 10_000), (60, 10_000)] {
            let bound = Duration::from_millis(bound);
            let waits: Vec<_> = (0..200).map(|_| wait(n, Duration::from_millis(100))).collect();
            assert!(waits.iter().all(|wait| *wait < bound), "{n}");
            assert!(
                waits.iter().any(|wait| *wait < bound / 4) && waits.iter().any(|wait| *wait > bound / 4 * 3),
                "{n}"
            );
        }
    }

    #[test]
    fn only_what_may_pass_is_tried_again() {
        let generic = |source| Failure::Store(object_store::Error::Generic { store: "x", source });
        let busy = |status| generic(Box::new(Rejected::Busy { status, body: String::new() }));
        let ours = Error::InvalidOption { option: String::new(), value: String::new(), reason: String::new() };
        let not_found = object_store::Error::NotFound { path: String::new(), source: "x".into() };
        for (failure, class) in [
            (busy(500), Class::Transient),
            (busy(503), Class::Throttled),
            (busy(429), Class::Throttled),
            (Failure::Store(Late { after: Duration::ZERO }.into()), Class::Transient),
            (Failure::Short { range: 0..2, got: 1, cut: true }, Class::Transient),
            (Failure::Short { range: 0..2, got: 1, cut: false }, Class::Final),
            (Failure::Changed { reason: String::new() }, Class::Final),
            (generic(Box::new(Rejected::NoBucket)), Class::Final),
            (generic(Box::new(Rejected::Whole { length: String::new() })), Class::Doubtful),
            (generic(Box::new(ours)), Class::Final),
            (generic("400: what?".into()), Class::Final),
            (Failure::Store(not_found), Class::Final),
        ] {
            assert_eq!(classify(&failure), class, "{failure:?}");
        }
    }
}
