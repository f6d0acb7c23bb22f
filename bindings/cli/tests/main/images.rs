//! Images made for the tests, and a plain implementation of what the command does with them.

use image::{
    DynamicImage, GrayImage, ImageBuffer, ImageEncoder as _, ImageFormat, Pixel, Rgb, RgbImage,
    codecs::{png::PngEncoder, webp::WebPEncoder},
};
use jpeg_encoder::{ColorType, Encoder, SamplingFactor};
use zune_jpeg::{JpegDecoder, zune_core::bytestream::ZCursor};

/// A smooth picture with detail: no two seeds give the same.
pub(crate) fn picture(width: u32, height: u32, seed: u32) -> RgbImage {
    RgbImage::from_fn(width, height, |x, y| {
        let wave = |a: u32, b: u32, phase: f64| {
            let at = f64::from(x * a + y * b) / 17.0 + phase + f64::from(seed);
            (127.5 + 127.5 * at.sin()) as u8
        };
        Rgb([wave(1, 2, 0.0), wave(3, 1, 1.0), wave(1, 5, 2.0)])
    })
}

/// The bytes of a file in this format.
pub(crate) fn encode(image: &DynamicImage, format: ImageFormat) -> Vec<u8> {
    let mut bytes = std::io::Cursor::new(Vec::new());
    image.write_to(&mut bytes, format).unwrap();
    bytes.into_inner()
}

/// The bytes of a PNG of these pixels.
pub(crate) fn png(image: &RgbImage) -> Vec<u8> {
    encode(&DynamicImage::ImageRgb8(image.clone()), ImageFormat::Png)
}

/// The bytes of a JPEG of these pixels.
pub(crate) fn jpeg(image: &RgbImage) -> Vec<u8> {
    jpeg_with(image, ColorType::Rgb, None)
}

/// The bytes of a grey JPEG of these pixels.
pub(crate) fn grey_jpeg(image: &GrayImage) -> Vec<u8> {
    jpeg_with(image, ColorType::Luma, None)
}

fn jpeg_with<P>(image: &ImageBuffer<P, Vec<u8>>, color: ColorType, exif: Option<&[u8]>) -> Vec<u8>
where
    P: Pixel<Subpixel = u8>,
{
    let mut bytes = Vec::new();
    let mut encoder = Encoder::new(&mut bytes, 90);
    encoder.set_sampling_factor(SamplingFactor::R_4_4_4);
    if let Some(exif) = exif {
        encoder.add_exif_metadata(exif).unwrap();
    }
    encoder.encode(image.as_raw(), image.width() as u16, image.height() as u16, color).unwrap();
    bytes
}

/// What another decoder makes of a file.
pub(crate) fn seen(bytes: &[u8]) -> RgbImage {
    if image::guess_format(bytes).unwrap() != ImageFormat::Jpeg {
        return image::load_from_memory(bytes).unwrap().into_rgb8();
    }
    let mut decoder = JpegDecoder::new(ZCursor::new(bytes));
    let pixels = decoder.decode().unwrap();
    let (width, height) = decoder.dimensions().unwrap();
    let (width, height) = (width as u32, height as u32);
    match GrayImage::from_raw(width, height, pixels.clone()) {
        Some(grey) if pixels.len() == (width * height) as usize => DynamicImage::from(grey).into_rgb8(),
        _ => RgbImage::from_raw(width, height, pixels).unwrap(),
    }
}

/// The bytes of a file of these pixels whose EXIF block says how it is to be turned.
pub(crate) fn turned(image: &RgbImage, format: ImageFormat, orientation: u8) -> Vec<u8> {
    let exif =
        [b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0".as_slice(), &[orientation, 0, 0, 0, 0, 0, 0, 0]].concat();
    let mut bytes = Vec::new();
    let (width, height) = image.dimensions();
    let color = image::ExtendedColorType::Rgb8;
    match format {
        ImageFormat::Jpeg => return jpeg_with(image, ColorType::Rgb, Some(&exif)),
        ImageFormat::Png => {
            let mut encoder = PngEncoder::new(&mut bytes);
            encoder.set_exif_metadata(exif).unwrap();
            encoder.write_image(image, width, height, color).unwrap();
        }
        _ => {
            let mut encoder = WebPEncoder::new_lossless(&mut bytes);
            encoder.set_exif_metadata(exif).unwrap();
            encoder.write_image(image, width, height, color).unwrap();
        }
    }
    bytes
}

/// What a plain reader makes of a picture: the shortest side to `resize` by the antialiased triangle filter in 64-bit
/// floats over the whole image, then the centre, as planes.
pub(crate) fn expected(image: &RgbImage, resize: u32, crop: u32) -> Vec<u8> {
    let (width, height) = image.dimensions();
    let long = |long: u32, short: u32| (f64::from(resize) * f64::from(long) / f64::from(short)) as u32;
    let (new_width, new_height) =
        if width <= height { (resize, long(height, width)) } else { (long(width, height), resize) };
    let (columns, rows) = (weights(width, new_width), weights(height, new_height));
    let centre = |length: u32| ((f64::from(length) - f64::from(crop)) / 2.0).round_ties_even() as usize;
    let (left, top) = (centre(new_width), centre(new_height));
    let mut planes = Vec::new();
    for channel in 0..3 {
        for row in &rows[top..top + crop as usize] {
            for column in &columns[left..left + crop as usize] {
                let mut sum = 0.0;
                for (y, wy) in row {
                    for (x, wx) in column {
                        sum += wy * wx * f64::from(image.get_pixel(*x, *y)[channel]);
                    }
                }
                planes.push(sum.round().clamp(0.0, 255.0) as u8);
            }
        }
    }
    planes
}

/// For each output pixel the input pixels that it is made of.
fn weights(from: u32, to: u32) -> Vec<Vec<(u32, f64)>> {
    let scale = f64::from(from) / f64::from(to);
    let support = scale.max(1.0);
    let of = |out: u32| {
        let centre = (f64::from(out) + 0.5) * scale;
        let raw = |x: u32| (1.0 - ((f64::from(x) + 0.5 - centre) / support).abs()).max(0.0);
        let sum: f64 = (0..from).map(raw).sum();
        (0..from).map(|x| (x, raw(x) / sum)).filter(|(_, weight)| *weight > 0.0).collect()
    };
    (0..to).map(of).collect()
}

/// Asserts that two lists of bytes are the same within some levels.
pub(crate) fn assert_close(found: &[u8], wanted: &[u8], levels: u8, what: &str) {
    assert_eq!(found.len(), wanted.len(), "{what}");
    let worst = found.iter().zip(wanted).map(|(a, b)| a.abs_diff(*b)).max().unwrap_or(0);
    assert!(worst <= levels, "{what}: {worst} levels apart");
}
