//! Links: what is written comes back, and hostile bytes are errors.

use forebay_format::{Column, DType, Dim, Error, Kind, Link};
use proptest::prelude::*;

use crate::arbitrary;

fn link(url: &str) -> Link {
    Link { url: url.into(), size: 100, part: None, etag: Some("v1".into()), hash: None }
}

proptest! {
    #[test]
    fn a_link_comes_back_as_it_was_written(link in arbitrary::link()) {
        let bytes = link.encode().unwrap();
        prop_assert_eq!(Link::decode(&bytes).unwrap(), link);
    }

    #[test]
    fn a_link_that_was_cut_short_or_changed_is_another_one_or_an_error(
        link in arbitrary::link(), cut in any::<prop::sample::Index>(), at in any::<prop::sample::Index>(), bit in 0_u32..8,
    ) {
        let bytes = link.encode().unwrap();
        // A shorter URL is a URL.
        let head = bytes.len() - link.url.len();
        prop_assert!(Link::decode(&bytes[..cut.index(head + 1)]).is_err());
        let mut changed = bytes.clone();
        changed[at.index(bytes.len())] ^= 1_u8 << bit;
        if let Ok(found) = Link::decode(&changed) {
            prop_assert_ne!(&found, &link);
            prop_assert_eq!(found.encode().unwrap(), changed, "no two bytes mean the same link");
        }
    }

    #[test]
    fn any_bytes_are_a_link_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..80), what in 0_u8..9) {
        let bytes = [&[what][..], &bytes].concat();
        if let Ok(link) = Link::decode(&bytes) {
            prop_assert_eq!(link.encode().unwrap(), bytes);
        }
    }

    #[test]
    fn a_name_below_a_base_is_a_url_and_again_a_name(name in arbitrary::name(), slash: bool) {
        let base = if slash { "s3://bucket/photos/" } else { "s3://bucket/photos" };
        let whole = link(&name).below(base);
        prop_assert_eq!(&whole.url, &format!("s3://bucket/photos/{name}"));
        prop_assert_eq!(whole.clone().below("/elsewhere"), whole.clone(), "a whole URL stays");
        prop_assert_eq!(whole.clone().relative_to(base), link(&name));
        prop_assert_eq!(whole.clone().relative_to("s3://bucket/photo"), whole);
    }
}

#[test]
fn a_link_that_breaks_a_rule_is_neither_written_nor_read() {
    let good = link("a/b.jpg");
    good.encode().unwrap();
    let long = "x".repeat(Link::MAX_URL + 1);
    let bad = [
        Link { url: String::new(), ..good.clone() },
        Link { url: long.clone(), ..good.clone() },
        Link { url: "a\nb".into(), ..good.clone() },
        Link { url: "../secret".into(), ..good.clone() },
        Link { url: "a/./b".into(), ..good.clone() },
        Link { url: "a//b".into(), ..good.clone() },
        Link { url: "a/".into(), ..good.clone() },
        Link { part: Some(std::ops::Range { start: 7, end: 6 }), ..good.clone() },
        Link { part: Some(7..101), ..good.clone() },
        Link { etag: None, ..good.clone() },
        Link { etag: Some(String::new()), ..good.clone() },
        Link { etag: Some(long), ..good.clone() },
        Link { etag: Some("a\r\nHost: b".into()), ..good.clone() },
    ];
    for link in bad {
        assert!(matches!(link.encode(), Err(Error::InvalidLink { .. })), "{link:?}");
    }
    assert_eq!(good.range(), 0..100);
    assert_eq!(Link { part: Some(7..9), ..good }.range(), 7..9);
}

#[test]
fn bytes_are_those_that_were_linked_by_their_number_and_hash() {
    let hash = Some(Link::hash_of(b"four"));
    let link = Link { part: Some(2..6), hash, ..link("a") };
    assert!(link.fits(b"four") && !link.fits(b"fOur") && !link.fits(b"fourt"));
    let text = link.hash_text().unwrap();
    assert_eq!((text.len(), Link::parse_hash(&text), Link::parse_hash(&text[1..])), (64, link.hash, None));
    assert!(Link { hash: None, ..link }.fits(b"fOur"));
}

#[test]
fn bytes_that_break_a_rule_name_the_place() {
    let good = Link { part: Some(1..5), hash: Some([7; 32]), ..link("s3://bucket/a.jpg") }.encode().unwrap();
    let broken = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = good.clone();
        change(&mut bytes);
        Link::decode(&bytes).unwrap_err().to_string()
    };
    assert!(broken(&|bytes| bytes[0] |= 0x10).contains("bits 0x10 of its first byte mean: use a newer forebay"));
    assert!(broken(&|bytes| bytes.truncate(5)).contains("at byte 1: it ends in the size"));
    assert!(broken(&|bytes| bytes[17..25].fill(0xff)).contains("past 2^64"));
    assert!(broken(&|bytes| bytes[9] = 99).contains("bytes 99..103 aren't in an object of 100 bytes"));
    assert!(broken(&|bytes| bytes[57] = 0xff).contains("it ends in the etag"));
    assert!(broken(&|bytes| *bytes.last_mut().unwrap() = 0xff).contains("its URL is not UTF-8"));
}

#[test]
fn links_have_no_shape_and_their_base_is_a_whole_url() {
    assert!(Column::new("link", DType::Link, [Dim::Fixed(2)]).is_err());
    let mut column = Column::new("link", DType::Link, []).unwrap();
    assert_eq!(column.link_base(), None);
    let kind = |base: &str| Kind { name: "image".into(), metadata: [("base".into(), base.into())].into() };
    for (base, right) in [("s3://bucket/photos", true), ("/data/photos", true), ("photos", false), ("", false)] {
        column.kind = kind(base);
        assert_eq!((column.check().is_ok(), column.link_base()), (right, Some(base)));
    }
    let mut bytes = Column::new("bytes", DType::Bytes, []).unwrap();
    bytes.kind = kind("photos");
    assert_eq!((bytes.check().is_ok(), bytes.link_base()), (true, None), "of other columns a base means nothing");
}
