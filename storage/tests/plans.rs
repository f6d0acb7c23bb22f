//! Read planning against a plain model.

use std::ops::Range;

use bytes::Bytes;
use forebay_storage::plan::{Limits, Plan};
use proptest::prelude::*;

const SIZE: u64 = 2000;

fn ranges() -> impl Strategy<Value = Vec<Range<u64>>> {
    prop::collection::vec((0..SIZE, 0..300u64).prop_map(|(start, len)| start..(start + len).min(SIZE)), 0..40)
}

fn limits() -> impl Strategy<Value = Limits> {
    (0..400u64, prop_oneof![Just(0), 1..500u64]).prop_map(|(gap, max)| Limits { gap, max })
}

fn object() -> Vec<u8> {
    (0..SIZE).map(|i| (i * 7 % 251) as u8).collect()
}

proptest! {
    #[test]
    fn every_range_gets_exactly_its_bytes(ranges in ranges(), limits in limits()) {
        let (object, plan) = (object(), Plan::new(&ranges, limits));
        let slice = |r: &Range<u64>| &object[r.start as usize..r.end as usize];
        let reads: Vec<Bytes> = plan.reads.iter().map(|r| Bytes::copy_from_slice(slice(r))).collect();
        let got = plan.assemble(&reads);
        prop_assert_eq!(got.len(), ranges.len());
        for (range, got) in ranges.iter().zip(&got) {
            prop_assert_eq!(&got[..], slice(range));
        }
    }

    #[test]
    fn reads_ascend_without_overlap_and_keep_the_limits(ranges in ranges(), limits in limits()) {
        let plan = Plan::new(&ranges, limits);
        for read in &plan.reads {
            prop_assert!(read.start < read.end);
            prop_assert!(limits.max == 0 || read.end - read.start <= limits.max);
        }
        for pair in plan.reads.windows(2) {
            prop_assert!(pair[0].end <= pair[1].start);
        }
    }

    #[test]
    fn no_more_than_the_gap_is_read_in_vain_at_any_place(ranges in ranges(), limits in limits()) {
        let plan = Plan::new(&ranges, limits);
        let wanted = |byte: u64| ranges.iter().any(|r| r.contains(&byte));
        for read in &plan.reads {
            let mut idle = 0;
            for byte in read.clone() {
                idle = if wanted(byte) { 0 } else { idle + 1 };
                prop_assert!(idle <= limits.gap);
            }
        }
    }

    #[test]
    fn ranges_closer_than_the_gap_are_one_read_when_no_limit_forbids(ranges in ranges(), gap in 0..400u64) {
        let plan = Plan::new(&ranges, Limits { gap, max: 0 });
        for pair in plan.reads.windows(2) {
            prop_assert!(pair[1].start - pair[0].end > gap);
        }
    }

    #[test]
    fn planning_the_reads_of_a_plan_changes_nothing(ranges in ranges(), limits in limits()) {
        let plan = Plan::new(&ranges, Limits { gap: 0, ..limits });
        for read in &plan.reads {
            prop_assert_eq!(&Plan::new(std::slice::from_ref(read), limits).reads, std::slice::from_ref(read));
        }
    }
}

#[test]
fn a_large_range_becomes_even_parts() {
    let plan = Plan::new(std::slice::from_ref(&(100..1125)), Limits { gap: 0, max: 512 });
    assert_eq!(plan.reads, [100..442, 442..784, 784..1125]);
}

#[test]
fn ranges_near_the_end_of_the_number_space_do_not_overflow() {
    let ranges = [u64::MAX - 10..u64::MAX, 0..5];
    let plan = Plan::new(&ranges, Limits { gap: u64::MAX, max: 0 });
    assert_eq!(plan.reads, [0..u64::MAX]);
}
