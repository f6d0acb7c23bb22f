//! Files that are cut, damaged or malicious give a typed error or pixels, and never a crash.

use forebay_jpeg::{Error, Jpeg, Part, Pixels};
use jpeg_encoder::SamplingFactor;
use proptest::prelude::*;

use super::{Coding, decode, picture};

const START_OF_SCAN: u8 = 0xda;

fn codings() -> [Coding; 4] {
    let small = Coding { sampling: SamplingFactor::R_4_2_0, ..Coding::default() };
    [
        small.clone(),
        Coding { progressive: true, ..small.clone() },
        Coding { restart: 2, ..small.clone() },
        Coding { optimized: true, ..small },
    ]
}

/// Where a segment starts: its marker's first byte.
fn segment(bytes: &[u8], marker: u8) -> usize {
    let mut at = 2;
    while bytes[at + 1] != marker {
        at += 2 + usize::from(u16::from_be_bytes([bytes[at + 2], bytes[at + 3]]));
    }
    at
}

fn reason(bytes: &[u8]) -> String {
    match decode(bytes, Pixels::Rgb, None).unwrap_err() {
        Error::Undecodable { reason } => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_file_that_was_cut_anywhere_is_an_error() {
    for coding in codings() {
        let bytes = picture(40, 56, &coding);
        let scan = segment(&bytes, START_OF_SCAN);
        assert!(decode(&bytes, Pixels::Rgb, None).is_ok());
        for length in 0..bytes.len() {
            let error = decode(&bytes[..length], Pixels::Rgb, None).unwrap_err();
            assert!(length < scan || error == Error::Truncated, "{length} bytes of {coding:?}: {error}");
            // As a program leaves it that wants to please. A progressive file that ends between two scans is a coarser picture.
            let closed = decode(&[&bytes[..length], &[0xff, 0xd9]].concat(), Pixels::Rgb, None);
            let close = coding.progressive || length + 8 >= bytes.len();
            assert!(closed.is_err() || close, "{length} bytes of {coding:?}, closed");
        }
    }
}

#[test]
fn rows_before_the_cut_can_be_had() {
    let bytes = picture(64, 40, &Coding::default());
    let part = |rows| Part { shrink: 1, rows, columns: 0..40 };
    let cut = &bytes[..segment(&bytes, START_OF_SCAN) + (bytes.len() - segment(&bytes, START_OF_SCAN)) / 2];
    let whole = decode(&bytes, Pixels::Rgb, Some(part(4..12))).unwrap();
    assert_eq!(decode(cut, Pixels::Rgb, Some(part(4..12))).unwrap(), whole);
    assert_eq!(decode(cut, Pixels::Rgb, Some(part(50..64))), Err(Error::Truncated));
}

#[test]
fn what_the_decoder_does_not_know_is_said() {
    let bytes = picture(24, 24, &Coding::default());
    let frame = segment(&bytes, 0xc0);
    let with = |at: usize, value: u8| {
        let mut bytes = bytes.clone();
        bytes[at] = value;
        bytes
    };
    assert!(reason(&with(frame + 4, 12)).contains("precision 12"));
    assert!(reason(&with(frame + 1, 0xc3)).contains("SOF type 0xc3"));
    assert!(reason(&with(frame + 6, 0)).contains("Empty JPEG image"));
    assert!(reason(&with(frame + 8, 0)).contains("Empty JPEG image"));
    assert!(reason(b"\xff\xd8\xff\xd9").contains("no image"));
    assert!(reason(b"GIF89a").contains("Not a JPEG file"));
    // Two components: neither grey nor colours.
    let mut two = bytes.clone();
    (two[frame + 3], two[frame + 9]) = (14, 2);
    two.drain(frame + 16..frame + 19);
    let scan = segment(&two, START_OF_SCAN);
    (two[scan + 3], two[scan + 4]) = (10, 2);
    two.drain(scan + 9..scan + 11);
    assert!(reason(&two).contains("color conversion"));
}

#[test]
fn a_header_of_the_largest_image_gives_its_size_and_no_pixels() {
    let mut bytes = picture(24, 24, &Coding::default());
    let frame = segment(&bytes, 0xc0);
    for (size, known) in [([0xff, 0xdc], true), ([0xff, 0xff], false)] {
        bytes[frame + 5..frame + 7].copy_from_slice(&size);
        bytes[frame + 7..frame + 9].copy_from_slice(&size);
        assert_eq!(Jpeg::open(&bytes).map(|jpeg| jpeg.size()).ok(), known.then_some([65_500; 2]));
    }
    bytes[frame + 5..frame + 9].copy_from_slice(&[0xff, 0xdc, 0xff, 0xdc]);
    let part = Part { shrink: 8, rows: 0..8000, columns: 0..10 };
    assert_eq!(decode(&bytes, Pixels::Rgb, Some(part)), Err(Error::Truncated));
}

#[test]
fn a_file_that_asks_for_endless_passes_is_refused() {
    let bytes = picture(16, 16, &Coding { optimized: true, ..Coding::default() });
    let scan = segment(&bytes, START_OF_SCAN);
    let data = bytes[scan + 2..].windows(2).position(|pair| pair[0] == 0xff && !matches!(pair[1], 0 | 0xd0..=0xd7));
    let again = bytes[scan..scan + 2 + data.unwrap()].to_vec();
    let with = |times: usize| {
        let mut bytes = bytes.clone();
        bytes.splice(scan..scan, again.repeat(times));
        bytes
    };
    assert_eq!(decode(&with(3), Pixels::Rgb, None), decode(&bytes, Pixels::Rgb, None));
    assert!(reason(&with(600)).contains("500 scans"));
}

#[test]
fn surplus_bytes_do_no_harm() {
    let bytes = picture(24, 24, &Coding::default());
    let wanted = decode(&bytes, Pixels::Rgb, None).unwrap();
    assert_eq!(decode(&[&bytes[..], b"trailing"].concat(), Pixels::Rgb, None).unwrap(), wanted);
    let mut padded = bytes.clone();
    padded.splice(bytes.len() - 2..bytes.len() - 2, [0; 5]);
    assert_eq!(decode(&padded, Pixels::Rgb, None).unwrap(), wanted);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if std::env::var_os("FOREBAY_LONG").is_some() { 200_000 } else { 4_000 }))]

    #[test]
    fn damage_gives_an_error_or_the_same_pixels_each_time(
        coding in prop::sample::select(codings().to_vec()),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        (shrink, part) in (prop::sample::select(vec![1_u32, 2, 4, 8]), any::<bool>()),
    ) {
        let mut bytes = picture(40, 56, &coding);
        for (at, value) in flips {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        let once = || {
            let jpeg = Jpeg::open(&bytes)?;
            let [height, width] = jpeg.size();
            drop(jpeg);
            // A header may ask for gigabytes; it is the caller who says no.
            if u64::from(height) * u64::from(width) > 1 << 22 {
                return Err(Error::Undecodable { reason: "too large".to_owned() });
            }
            let mut wanted = Part::whole([height, width], shrink);
            if part {
                wanted.rows.start = wanted.rows.end / 2;
                wanted.columns.end = wanted.columns.end.div_ceil(2);
            }
            decode(&bytes, Pixels::Rgb, Some(wanted))
        };
        prop_assert_eq!(once(), once());
    }
}
