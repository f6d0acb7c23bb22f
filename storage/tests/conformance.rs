//! What every kind of storage does.

use std::io::Write;

use bytes::Bytes;
use forebay_storage::{Claim, Error, Storage};

use crate::kinds::{self, Fresh};

/// Runs a check over every kind and names the one that failed.
async fn over_all<F: AsyncFn(&Storage)>(check: F) {
    for Fresh { storage, kind, .. } in &kinds::all() {
        eprintln!("kind: {kind}");
        check(storage).await;
    }
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i * 31 % 251) as u8).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_put_is_got_and_a_second_put_replaces_it() {
    over_all(async |s| {
        for bytes in [&b""[..], b"one", b"the second one"] {
            s.put("a/b/c", Bytes::copy_from_slice(bytes)).await.unwrap();
            assert_eq!(s.get("a/b/c").await.unwrap(), bytes);
            assert_eq!(s.head("a/b/c").await.unwrap().size, bytes.len() as u64);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_object_is_a_distinct_error_that_names_it() {
    over_all(async |s| {
        for error in [
            s.get("no/such").await.unwrap_err(),
            s.get_range("no/such", 0..5).await.unwrap_err(),
            s.get_ranges("no/such", &[0..5, 7..9]).await.unwrap_err(),
            s.read_into("no/such", 3, vec![&mut [0; 5]]).await.unwrap_err(),
            s.head("no/such").await.unwrap_err(),
        ] {
            assert!(error.is_not_found(), "{error}");
            assert!(error.to_string().contains("no/such") && error.to_string().contains(s.url()), "{error}");
        }
        s.delete("no/such").await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_range_gives_exactly_its_bytes_or_an_error() {
    over_all(async |s| {
        let bytes = pattern(1000);
        s.put("x", bytes.clone().into()).await.unwrap();
        for range in [0..1000u64, 0..1, 999..1000, 10..500, 0..0, 1000..1000, 5000..5000] {
            let expected = bytes.get(range.start as usize..range.end as usize).unwrap_or_default();
            assert_eq!(s.get_range("x", range).await.unwrap(), expected);
        }
        for range in [0..1001u64, 999..1001, 1000..1001, 5000..6000] {
            let error = s.get_range("x", range.clone()).await.unwrap_err();
            assert!(matches!(&error, Error::ShortRead { range: r, .. } if *r == range), "{range:?}: {error:?}");
            let error = s.get_ranges("x", &[3..9, range]).await.unwrap_err();
            assert!(matches!(error, Error::ShortRead { .. }), "{error:?}");
        }
        #[allow(clippy::reversed_empty_ranges)]
        let error = s.get_range("x", 9..3).await.unwrap_err();
        assert!(matches!(error, Error::InvalidRange { .. }), "{error}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_fill_the_buffers_given_or_it_is_an_error() {
    over_all(async |s| {
        // More than one request fetches, on every store.
        let bytes = pattern(20 << 20);
        s.put("x", bytes.clone().into()).await.unwrap();
        for (start, lengths) in [
            (0, vec![20 << 20]),
            (7, vec![1, 0, 5000, 3 << 20, 9 << 20, 2]),
            (100, vec![]),
            ((20 << 20) - 5, vec![0, 2, 3, 0]),
        ] {
            let mut buffers: Vec<Vec<u8>> = lengths.iter().map(|&length| vec![0; length]).collect();
            s.read_into("x", start, buffers.iter_mut().map(|buffer| &mut buffer[..]).collect()).await.unwrap();
            let got = buffers.concat();
            assert!(got == bytes[start as usize..start as usize + got.len()], "{start} {lengths:?}");
        }
        let error = s.read_into("x", (20 << 20) - 5, vec![&mut [0; 3], &mut [0; 3]]).await.unwrap_err();
        assert!(matches!(error, Error::ShortRead { .. }), "{error:?}");
        let error = s.read_into("x", u64::MAX - 2, vec![&mut [0; 5]]).await.unwrap_err();
        assert!(matches!(error, Error::InvalidRange { .. }), "{error:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_ranges_come_back_in_the_order_asked() {
    over_all(async |s| {
        let bytes = pattern(3 << 20);
        s.put("x", bytes.clone().into()).await.unwrap();
        let end = bytes.len() as u64;
        let ranges = [
            end - 10..end,
            0..0,
            5..25,
            5..25,
            0..1 << 20,
            700_000..2_000_000,
            12..13,
            end - 10..end - 5,
            2_900_000..end,
        ];
        let got = s.get_ranges("x", &ranges).await.unwrap();
        for (range, got) in ranges.iter().zip(&got) {
            assert_eq!(got, &bytes[range.start as usize..range.end as usize], "{range:?}");
        }
        assert_eq!(got.len(), ranges.len());
        assert!(s.get_ranges("x", &[]).await.unwrap().is_empty());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_claim_wins_and_the_next_one_sees_it() {
    over_all(async |s| {
        assert!(matches!(s.claim("refs/1", "mine".into()).await.unwrap(), Claim::Ours));
        match s.claim("refs/1", "yours".into()).await.unwrap() {
            Claim::Theirs(bytes) => assert_eq!(bytes, "mine"),
            other => panic!("{other:?}"),
        }
        // The same bytes again are a retry of the same claim.
        assert!(matches!(s.claim("refs/1", "mine".into()).await.unwrap(), Claim::Ours));
        assert_eq!(s.get("refs/1").await.unwrap(), "mine");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_16_racing_claims_exactly_one_wins_and_all_agree_on_it() {
    over_all(async |s| {
        for round in 0..5 {
            let claims = (0..16).map(|i| {
                let (s, path) = (s.clone(), format!("race/{round}"));
                tokio::spawn(async move { (i, s.claim(&path, format!("claimant {i}").into()).await.unwrap()) })
            });
            let results: Vec<_> = futures::future::join_all(claims).await.into_iter().map(Result::unwrap).collect();
            let winners: Vec<_> = results.iter().filter(|(_, c)| matches!(c, Claim::Ours)).map(|(i, _)| *i).collect();
            assert_eq!(winners.len(), 1, "{results:?}");
            for (_, claim) in &results {
                assert!(!matches!(claim, Claim::Unknown(_)));
                if let Claim::Theirs(bytes) = claim {
                    assert_eq!(bytes, &format!("claimant {}", winners[0]));
                }
            }
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn listings_are_complete_ordered_and_relative_to_the_root() {
    over_all(async |s| {
        assert!(s.list("").await.unwrap().is_empty());
        let names = ["a", "b/1", "b/10", "b/2", "b/c/x", "b-", "bb/1", "ü/ß"];
        for name in names {
            s.put(name, name.into()).await.unwrap();
        }
        let list =
            async |prefix: &str| -> Vec<String> { s.list(prefix).await.unwrap().into_iter().map(|e| e.path).collect() };
        assert_eq!(list("").await, ["a", "b-", "b/1", "b/10", "b/2", "b/c/x", "bb/1", "ü/ß"]);
        assert_eq!(list("b").await, ["b/1", "b/10", "b/2", "b/c/x"]);
        assert_eq!(list("b/c").await, ["b/c/x"]);
        assert_eq!(list("nothing").await, [""; 0]);
        let after: Vec<_> = s.list_after("b", "b/10").await.unwrap().into_iter().map(|e| e.path).collect();
        assert_eq!(after, ["b/2", "b/c/x"]);
        assert_eq!(s.folders("").await.unwrap(), ["b", "bb", "ü"]);
        assert_eq!(s.folders("b").await.unwrap(), ["c"]);
        let entry = s.list("bb").await.unwrap().remove(0);
        assert_eq!(entry.size, 4);
        assert!(entry.modified.elapsed().map_or(0, |d| d.as_secs()) < 3600);

        s.delete("b/1").await.unwrap();
        assert_eq!(list("b").await, ["b/10", "b/2", "b/c/x"]);
        assert!(s.get("b/1").await.unwrap_err().is_not_found());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_shows_its_object_only_when_finished() {
    over_all(async |s| {
        // Below one part, more than the buffer, and several parts with a rest.
        for (name, length) in [("empty", 0), ("small", 1000), ("large", 37 << 20)] {
            let bytes = pattern(length);
            let mut writer = s.writer(&format!("data/{name}")).unwrap();
            for chunk in bytes.chunks(1 << 20) {
                writer.write_all(chunk).unwrap();
            }
            assert_eq!(writer.written(), length as u64);
            assert!(s.list("").await.unwrap().iter().all(|e| e.path != format!("data/{name}")));
            // From inside asynchronous code, on purpose: slow for others, but it works.
            writer.finish().unwrap();
            assert!(s.get(&format!("data/{name}")).await.unwrap() == bytes, "{name}");
        }
        assert!(s.leftovers().unwrap().is_empty());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_that_is_dropped_leaves_nothing() {
    over_all(async |s| {
        for length in [0, 10, 40 << 20] {
            let mut writer = s.writer("data/x").unwrap();
            writer.write_all(&pattern(length)).unwrap();
            drop(writer);
            assert!(s.list("").await.unwrap().is_empty());
            assert!(s.leftovers().unwrap().is_empty());
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn writers_work_on_threads_of_no_runtime_and_of_blocking_work() {
    over_all(async |s| {
        let write = |s: Storage, path: &str| {
            let mut writer = s.writer(path).unwrap();
            writer.write_all(&pattern(20 << 20)).unwrap();
            writer.finish().unwrap();
        };
        let storage = s.clone();
        std::thread::spawn(move || write(storage, "thread")).join().unwrap();
        let storage = s.clone();
        tokio::task::spawn_blocking(move || write(storage, "blocking")).await.unwrap();
        assert_eq!(s.head("thread").await.unwrap().size, s.head("blocking").await.unwrap().size);
    })
    .await;
}

#[tokio::test]
async fn a_writer_works_in_a_runtime_of_one_thread() {
    for Fresh { storage, .. } in &kinds::all() {
        let mut writer = storage.writer("x").unwrap();
        writer.write_all(&pattern(20 << 20)).unwrap();
        writer.finish().unwrap();
        assert_eq!(storage.head("x").await.unwrap().size, 20 << 20);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_can_be_relied_on_is_found_to_be_one() {
    over_all(async |s| {
        s.probe("meta/probe").await.unwrap();
        assert!(s.list("").await.unwrap().is_empty(), "the probe leaves nothing");
    })
    .await;
}
