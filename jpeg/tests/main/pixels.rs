//! Whole images, beside what another decoder makes of them.

use forebay_jpeg::{Jpeg, Pixels};
use jpeg_encoder::{ColorType, SamplingFactor};
use zune_jpeg::{
    JpegDecoder,
    zune_core::{bytestream::ZCursor, colorspace::ColorSpace, options::DecoderOptions},
};

use super::{Coding, decode, encoded, picture, waves};

fn worst(found: &[u8], wanted: &[u8]) -> u8 {
    assert_eq!(found.len(), wanted.len());
    found.iter().zip(wanted).map(|(found, wanted)| found.abs_diff(*wanted)).max().unwrap()
}

#[test]
fn pixels_are_those_of_another_decoder_nearly() {
    for (progressive, optimized, restart) in [(false, false, 0), (true, false, 0), (false, true, 0), (true, false, 3)] {
        let bytes = picture(75, 101, &Coding { progressive, optimized, restart, ..Coding::default() });
        for (pixels, space) in [(Pixels::Rgb, ColorSpace::RGB), (Pixels::Grey, ColorSpace::Luma)] {
            let options = DecoderOptions::default().jpeg_set_out_colorspace(space);
            let wanted = JpegDecoder::new_with_options(ZCursor::new(&bytes[..]), options).decode().unwrap();
            let found = decode(&bytes, pixels, None).unwrap();
            assert!(worst(&found, &wanted) <= 3, "{pixels:?}, progressive {progressive}: {}", worst(&found, &wanted));
        }
    }
}

#[test]
fn colours_of_fewer_samples_are_near_those_that_were_encoded() {
    use SamplingFactor::{R_4_1_1, R_4_2_0, R_4_2_2, R_4_4_0};
    for sampling in [R_4_2_2, R_4_2_0, R_4_1_1, R_4_4_0] {
        let coding = Coding { sampling, quality: 100, ..Coding::default() };
        let found = decode(&picture(64, 80, &coding), Pixels::Rgb, None).unwrap();
        let apart = found.iter().zip(waves(64, 80, 3, 1)).map(|(a, b)| f64::from(a.abs_diff(b))).sum::<f64>();
        assert!(apart / (found.len() as f64) < 20.0, "{sampling:?}: {}", apart / found.len() as f64);
    }
}

#[test]
fn grey_is_repeated_and_colours_have_a_brightness() {
    let values = waves(33, 29, 1, 1);
    let bytes = encoded(&values, 33, 29, &Coding { color: ColorType::Luma, ..Coding::default() });
    let grey = decode(&bytes, Pixels::Grey, None).unwrap();
    assert!(worst(&grey, &values) < 16);
    let repeated: Vec<u8> = grey.iter().flat_map(|value| [*value; 3]).collect();
    assert_eq!(decode(&bytes, Pixels::Rgb, None).unwrap(), repeated);
    assert_eq!(Jpeg::open(&bytes).unwrap().channels(), 1);
    let bytes = picture(33, 29, &Coding::default());
    let shown = decode(&bytes, Pixels::Rgb, None).unwrap();
    let bright = shown.as_chunks::<3>().0.iter().map(|[red, green, blue]| {
        (0.299 * f64::from(*red) + 0.587 * f64::from(*green) + 0.114 * f64::from(*blue)).round() as u8
    });
    assert!(worst(&decode(&bytes, Pixels::Grey, None).unwrap(), &bright.collect::<Vec<_>>()) <= 8);
}

#[test]
fn inks_become_what_screens_show() {
    for color in [ColorType::Cmyk, ColorType::CmykAsYcck] {
        // As Adobe's programs write them, paper is 255.
        let patches = [[255, 255, 255, 255], [0, 255, 255, 255], [255, 0, 255, 128], [40, 90, 200, 255], [9, 9, 9, 0]];
        for inks in patches {
            let coding = Coding { color, quality: 100, ..Coding::default() };
            // The encoder turns inks over as Adobe's programs do, so it is given ink and not paper.
            let given: Vec<u8> = inks.map(|ink| 255 - ink).repeat(64);
            let bytes = encoded(&given, 8, 8, &coding);
            let jpeg = Jpeg::open(&bytes).unwrap();
            assert_eq!(jpeg.channels(), 4);
            let [cyan, magenta, yellow, black] = inks.map(f64::from);
            let shown = [cyan, magenta, yellow].map(|ink| (ink * black / 255.0).round() as u8);
            let found = decode(&bytes, Pixels::Rgb, None).unwrap();
            assert!(worst(&found[..3], &shown) <= 3, "{color:?} {inks:?}: {:?} for {shown:?}", &found[..3]);
            let bright =
                (0.299 * f64::from(found[0]) + 0.587 * f64::from(found[1]) + 0.114 * f64::from(found[2])).round();
            assert!(worst(&decode(&bytes, Pixels::Grey, None).unwrap()[..1], &[bright as u8]) <= 1);
        }
    }
}

#[test]
fn arithmetic_codes_stand_for_the_same_pixels_as_huffmans() {
    let [huffman, arithmetic] =
        [&include_bytes!("../data/huffman.jpg")[..], &include_bytes!("../data/arithmetic.jpg")[..]];
    assert_eq!(Jpeg::open(arithmetic).unwrap().size(), [40, 56]);
    assert_eq!(decode(arithmetic, Pixels::Rgb, None).unwrap(), decode(huffman, Pixels::Rgb, None).unwrap());
}

#[test]
fn exif_metadata_is_what_follows_its_name() {
    let mut bytes = picture(8, 8, &Coding::default());
    assert_eq!(Jpeg::open(&bytes).unwrap().exif(), None);
    let segment = |content: &[u8]| [&[0xff, 0xe1, 0, content.len() as u8 + 2][..], content].concat();
    let segments = [segment(b"http://ns.adobe.com/"), segment(b"Exif\0\0MM\0\x2a"), segment(b"Exif\0\0other")].concat();
    bytes.splice(2..2, segments);
    assert_eq!(Jpeg::open(&bytes).unwrap().exif(), Some(&b"MM\0\x2a"[..]));
}
