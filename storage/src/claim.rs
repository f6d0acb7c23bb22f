//! Put-if-absent that always knows who won.
//!
//! A request to create an object can fail in three ways: the object is there already, the request surely had no effect,
//! or nobody knows: the reply was lost, the server failed half-way, the connection broke. A client that merely retries
//! then meets its own first request and reports a conflict with itself. So after everything but a plain success the object
//! is read back and compared; payloads hold a nonce, so equal bytes mean that the object is ours.
//!
//! [`next`] is the whole decision and does no IO.

use bytes::Bytes;

use crate::error::Error;

/// Who has the name after a [`claim`](crate::Storage::claim).
#[derive(Debug)]
pub enum Claim {
    /// We do: the object holds our bytes and is durable.
    Ours,
    /// Somebody else does, with these bytes; they are durable too.
    Theirs(Bytes),
    /// Nobody can say now; our request may even take effect later. Only once the name is seen to hold other bytes is it
    /// sure that it never will.
    Unknown(Error),
}

/// How one request to create the object failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attempt {
    /// The store says that the name is taken.
    Taken,
    /// It failed and surely has and will have no effect.
    Refused,
    /// It failed and may have had an effect, or may have it later.
    Ambiguous,
    /// It is stored but may not survive a power loss.
    NotDurable,
}

/// What reading the object back gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    /// It was not read.
    NotAsked,
    /// There is no such object.
    Nothing,
    /// It holds these bytes.
    Bytes(Bytes),
    /// Reading failed.
    Failed,
}

/// What to do after an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Read the object back and decide again.
    ReadBack,
    /// Report that the name is ours.
    Ours,
    /// Report that the name is another's.
    Theirs(Bytes),
    /// Report the error of the attempt: nothing happened.
    Refused,
    /// Try again if attempts are left, else report that nobody can say.
    Retry,
    /// Report that nobody can say; trying again would not help.
    Unknown,
}

/// Decides after one failed attempt and, once [`Next::ReadBack`] was answered, what was read.
///
/// `ours` is what was to be stored. `open` says whether an earlier attempt was ambiguous, so that its request may still
/// take effect.
pub fn next(attempt: Attempt, seen: &Seen, ours: &[u8], open: bool) -> Next {
    match (attempt, seen) {
        (Attempt::NotDurable, _) => Next::Unknown,
        (_, Seen::NotAsked) => Next::ReadBack,
        // An earlier call of ours stored it, and this one was refused before it could make sure that it is durable.
        (Attempt::Refused, Seen::Bytes(bytes)) if bytes == ours && !open => Next::Unknown,
        (_, Seen::Bytes(bytes)) if bytes == ours => Next::Ours,
        (_, Seen::Bytes(bytes)) => Next::Theirs(bytes.clone()),
        (Attempt::Refused, Seen::Nothing | Seen::Failed) if !open => Next::Refused,
        (Attempt::Refused, Seen::Nothing | Seen::Failed) => Next::Unknown,
        (Attempt::Taken | Attempt::Ambiguous, Seen::Nothing | Seen::Failed) => Next::Retry,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Attempt::*;

    const OURS: &[u8] = b"ours";

    fn seen_ours() -> Seen {
        Seen::Bytes(Bytes::from_static(OURS))
    }
    fn seen_theirs() -> Seen {
        Seen::Bytes(Bytes::from_static(b"theirs"))
    }

    #[test]
    fn our_own_bytes_are_never_reported_as_a_conflict() {
        for (attempt, open) in [(Taken, false), (Taken, true), (Refused, true), (Ambiguous, false), (Ambiguous, true)] {
            assert_eq!(next(attempt, &seen_ours(), OURS, open), Next::Ours, "{attempt:?}");
        }
    }

    #[test]
    fn what_an_earlier_call_stored_is_ours_only_once_a_call_could_confirm_it() {
        assert_eq!(next(Refused, &seen_ours(), OURS, false), Next::Unknown);
    }

    #[test]
    fn anothers_bytes_are_a_conflict_however_our_request_failed() {
        for attempt in [Taken, Refused, Ambiguous] {
            for open in [false, true] {
                let theirs = Next::Theirs(Bytes::from_static(b"theirs"));
                assert_eq!(next(attempt, &seen_theirs(), OURS, open), theirs, "{attempt:?}");
            }
        }
    }

    #[test]
    fn an_empty_payload_is_compared_like_any_other() {
        assert_eq!(next(Taken, &Seen::Bytes(Bytes::new()), b"", false), Next::Ours);
        assert_eq!(next(Taken, &Seen::Bytes(Bytes::new()), OURS, false), Next::Theirs(Bytes::new()));
    }

    #[test]
    fn a_failure_is_not_judged_before_the_object_was_read_back() {
        for attempt in [Taken, Refused, Ambiguous] {
            assert_eq!(next(attempt, &Seen::NotAsked, OURS, false), Next::ReadBack);
        }
    }

    #[test]
    fn a_refusal_is_final_only_while_no_earlier_request_is_on_its_way() {
        for seen in [Seen::Nothing, Seen::Failed] {
            assert_eq!(next(Refused, &seen, OURS, false), Next::Refused);
            assert_eq!(next(Refused, &seen, OURS, true), Next::Unknown);
        }
    }

    #[test]
    fn what_cannot_be_seen_is_tried_again() {
        for attempt in [Taken, Ambiguous] {
            for seen in [Seen::Nothing, Seen::Failed] {
                for open in [false, true] {
                    assert_eq!(next(attempt, &seen, OURS, open), Next::Retry);
                }
            }
        }
    }

    #[test]
    fn what_may_not_survive_a_power_loss_is_not_called_ours() {
        for seen in [Seen::NotAsked, seen_ours(), Seen::Nothing] {
            assert_eq!(next(NotDurable, &seen, OURS, false), Next::Unknown);
        }
    }
}
