//! Which files make room: pure.

use std::time::SystemTime;

/// A file of the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) file: String,
    pub(super) length: u64,
    /// When it was last read, or written.
    pub(super) used: SystemTime,
    /// How many reads from now it is read, if that is known.
    pub(super) until: Option<u64>,
}

/// What to remove so that `wanted` bytes fit into `budget`; `None` if the new piece is not worth it.
///
/// Where it is known what will be read (`new` is how many reads from now the new piece is), what is read last goes first,
/// and what is not known to be read before that; the new piece is not taken in if it is the one that would go. Where nothing
/// is known, what was used longest ago goes first. An eighth more than needed is freed, so that not every piece has to look.
pub(super) fn choose(mut held: Vec<Held>, wanted: u64, budget: u64, new: Option<u64>) -> Option<Vec<Held>> {
    let mut total: u64 = held.iter().map(|held| held.length).sum();
    if wanted > budget {
        return None;
    }
    if total + wanted <= budget {
        return Some(Vec::new());
    }
    // Largest first: not known to be read, read late, used long ago.
    held.sort_by_key(|held| (std::cmp::Reverse(held.until.unwrap_or(u64::MAX)), held.used));
    let goal = budget - wanted.max(budget / 8).min(budget);
    let mut gone = Vec::new();
    for held in held {
        let needed = total + wanted > budget;
        let sooner = |new: u64| held.until.is_some_and(|until| until <= new);
        if new.is_some_and(sooner) {
            if needed {
                return None;
            }
            break;
        }
        if total <= goal && !needed {
            break;
        }
        total -= held.length;
        gone.push(held);
    }
    Some(gone)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn held(name: &str, used: u64, until: Option<u64>) -> Held {
        Held { file: name.into(), length: 10, used: SystemTime::UNIX_EPOCH + Duration::from_secs(used), until }
    }

    fn names(held: Vec<Held>, wanted: u64, budget: u64, new: Option<u64>) -> Option<Vec<String>> {
        choose(held, wanted, budget, new).map(|gone| gone.into_iter().map(|held| held.file).collect())
    }

    #[test]
    fn nothing_goes_while_there_is_room_and_the_longest_unused_after_that() {
        let all = || vec![held("b", 2, None), held("a", 1, None), held("c", 3, None)];
        assert_eq!(names(all(), 10, 40, None), Some(vec![]));
        assert_eq!(names(all(), 10, 30, None), Some(vec!["a".into()]));
        assert_eq!(names(all(), 20, 30, None), Some(vec!["a".into(), "b".into()]));
        assert_eq!(names(all(), 31, 30, None), None);
    }

    #[test]
    fn what_is_read_last_goes_first_and_a_piece_read_later_than_all_is_not_taken_in() {
        let all = || vec![held("soon", 1, Some(5)), held("late", 3, Some(90)), held("never", 2, None)];
        assert_eq!(names(all(), 10, 30, Some(50)), Some(vec!["never".into()]));
        assert_eq!(names(all(), 20, 30, Some(50)), Some(vec!["never".into(), "late".into()]));
        assert_eq!(names(all(), 20, 30, Some(100)), None);
        assert_eq!(names(vec![held("soon", 1, Some(5))], 10, 10, Some(6)), None);
    }

    #[test]
    fn over_two_rounds_through_more_than_fits_what_is_known_of_the_future_hits_and_the_oldest_first_never_does() {
        // 20 pieces of which 10 fit, read in order, twice.
        let run = |known: bool| {
            let (mut kept, mut hits) = (Vec::<Held>::new(), 0);
            for now in 0..40_u64 {
                let piece = (now % 20).to_string();
                let until = |file: &str| {
                    let place = file.parse::<u64>().unwrap_or(0);
                    [place, place + 20].into_iter().find(|place| *place > now).map(|place| place - now)
                };
                if kept.iter().any(|held| held.file == piece) {
                    hits += 1;
                    continue;
                }
                kept.iter_mut().for_each(|held| held.until = until(&held.file).filter(|_| known));
                let new = known.then(|| until(&piece).unwrap_or(u64::MAX));
                if let Some(gone) = choose(kept.clone(), 10, 100, new) {
                    kept.retain(|held| !gone.contains(held));
                    kept.push(held(&piece, now, None));
                }
            }
            hits
        };
        assert_eq!(run(false), 0);
        assert!(run(true) >= 9, "{}", run(true));
    }
}
