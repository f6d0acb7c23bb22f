//! Metadata objects: what was encoded is decoded, and nothing else is.

use std::fmt::Debug;

use forebay_format::{Error, ObjectId, Result, meta::*};
use proptest::prelude::*;

use crate::{arbitrary, golden};

proptest! {
    #[test]
    fn a_decoded_object_equals_the_encoded_one(
        marker in arbitrary::marker(), commit in arbitrary::commit(), root in arbitrary::table_root(),
        page in arbitrary::page(), origins in arbitrary::origins(), entry in arbitrary::ref_entry(), tag in arbitrary::tag(),
        pin in arbitrary::pin(), record in arbitrary::gc_record(),
    ) {
        prop_assert_eq!(Pin::decode(&pin.encode().unwrap()).unwrap(), pin);
        prop_assert_eq!(GcRecord::decode(&record.encode().unwrap()).unwrap(), record);
        prop_assert_eq!(LakeMarker::decode(&marker.encode().unwrap()).unwrap(), marker);
        prop_assert_eq!(Commit::decode(&commit.encode().unwrap()).unwrap(), commit);
        prop_assert_eq!(TableRoot::decode(&root.encode().unwrap()).unwrap(), root);
        prop_assert_eq!(Page::decode(&page.encode().unwrap()).unwrap(), page);
        prop_assert_eq!(Origins::decode(&origins.encode().unwrap()).unwrap(), origins);
        prop_assert_eq!(RefEntry::decode(&entry.encode().unwrap()).unwrap(), entry);
        prop_assert_eq!(Tag::decode(&tag.encode().unwrap()).unwrap(), tag);
    }

    #[test]
    fn garbage_is_an_error_whatever_parses_it(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(LakeMarker::decode(&bytes).is_err());
        prop_assert!(Commit::decode(&bytes).is_err());
        prop_assert!(TableRoot::decode(&bytes).is_err());
        prop_assert!(Page::decode(&bytes).is_err());
        prop_assert!(Origins::decode(&bytes).is_err());
        prop_assert!(RefEntry::decode(&bytes).is_err());
        prop_assert!(Tag::decode(&bytes).is_err());
        prop_assert!(Pin::decode(&bytes).is_err());
        prop_assert!(GcRecord::decode(&bytes).is_err());
    }

    /// A hostile writer can compute checksums too: behind them every rule is checked again.
    #[test]
    fn a_payload_changed_under_a_right_checksum_never_panics(
        commit in arbitrary::commit(), at in any::<prop::sample::Index>(), value in any::<u8>(),
    ) {
        let mut bytes = commit.encode().unwrap();
        let at = 32 + at.index(bytes.len() - 32);
        bytes[at] = value;
        seal_again(&mut bytes);
        let _ = Commit::decode(&bytes);
    }
}

/// Puts a right checksum on an object.
fn seal_again(bytes: &mut [u8]) {
    let crc = forebay_format::crc32c(&[&bytes[..28], &bytes[32..]].concat());
    bytes[28..32].copy_from_slice(&crc.to_le_bytes());
}

type Decode = fn(&[u8]) -> Result<()>;

/// Every kind of object, as its bytes and what decodes them.
fn every_object() -> Vec<(&'static str, Vec<u8>, Decode)> {
    vec![
        ("lake marker", golden::object("lake"), |bytes| LakeMarker::decode(bytes).map(drop)),
        ("commit", golden::object("commit"), |bytes| Commit::decode(bytes).map(drop)),
        ("table root", golden::object("root"), |bytes| TableRoot::decode(bytes).map(drop)),
        ("manifest page", golden::object("page"), |bytes| Page::decode(bytes).map(drop)),
        ("manifest page", golden::object("page-edits"), |bytes| Page::decode(bytes).map(drop)),
        ("list of origins", golden::object("origins"), |bytes| Origins::decode(bytes).map(drop)),
        ("ref entry", golden::object("ref-commit"), |bytes| RefEntry::decode(bytes).map(drop)),
        ("tag", golden::object("tag"), |bytes| Tag::decode(bytes).map(drop)),
        ("pin", golden::object("pin"), |bytes| Pin::decode(bytes).map(drop)),
        ("record of a collection", golden::object("gc-verdict"), |bytes| GcRecord::decode(bytes).map(drop)),
    ]
}

#[test]
fn any_changed_byte_under_a_right_checksum_never_panics() {
    for (_, intact, decode) in every_object() {
        for at in 32..intact.len() {
            for value in [0, 1, 2, 0x7f, 0x80, 0xff] {
                let mut bytes = intact.clone();
                bytes[at] = value;
                seal_again(&mut bytes);
                let _ = decode(&bytes);
            }
        }
    }
}

#[test]
fn any_changed_byte_is_an_error_that_names_the_object() {
    for (what, bytes, decode) in every_object() {
        decode(&bytes).unwrap();
        for at in 0..bytes.len() {
            for bit in [0x01, 0x80, 0xff] {
                let mut bytes = bytes.clone();
                bytes[at] ^= bit;
                let error = decode(&bytes).expect_err(&format!("byte {at} of a {what}"));
                assert!(error.to_string().contains(what), "byte {at}: {error}");
            }
        }
    }
}

#[test]
fn any_truncation_or_extension_is_an_error() {
    for (what, mut bytes, decode) in every_object() {
        for length in 0..bytes.len() {
            decode(&bytes[..length]).expect_err(&format!("{length} bytes of a {what}"));
        }
        bytes.push(0);
        decode(&bytes).expect_err(what);
    }
}

#[test]
fn one_kind_is_never_taken_for_another() {
    let objects = every_object();
    for (kind, bytes, _) in &objects {
        for (what, _, decode) in &objects {
            if kind != what {
                assert!(matches!(decode(bytes), Err(Error::Corrupt { .. })), "{what}");
            }
        }
    }
}

#[test]
fn a_later_version_or_an_unknown_feature_is_named() {
    for (what, bytes, decode) in every_object() {
        let mut later = bytes.clone();
        later[12] = 2;
        assert_unsupported(decode(&later), what, "format version 2");
        let mut feature = bytes.clone();
        feature[16 + 5] = 1 << 3;
        seal_again(&mut feature);
        assert_unsupported(decode(&feature), what, "feature bit 43");
    }
}

fn assert_unsupported<T: Debug>(result: Result<T>, object: &str, needed: &str) {
    match result {
        Err(Error::Unsupported { what, needs }) => assert_eq!((what.as_str(), needs.as_str()), (object, needed)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_pointer_knows_its_object_by_length_and_hash() {
    let pointer = Pointer::to(ObjectId::random(), b"some bytes");
    pointer.check(b"some bytes").unwrap();
    for other in [&b"some byteS"[..], b"some byte", b"some bytes ", b""] {
        let error = pointer.check(other).unwrap_err();
        assert!(error.to_string().contains(&pointer.id.to_string()));
    }
}
