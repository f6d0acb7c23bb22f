//! From an image's bytes to RGB pixels.
//!
//! JPEG goes to `forebay-jpeg`, which is strict about the picture and lenient about what surrounds it; all other formats go
//! through the `image` crate.

use std::{
    io::Cursor,
    panic::{AssertUnwindSafe, catch_unwind},
};

use forebay_jpeg::{Jpeg, Part, Pixels};
use image::{DynamicImage, ImageDecoder, ImageFormat, ImageReader, Limits, metadata::Orientation};

use crate::{Error, Result};

/// An image's pixels.
pub(crate) struct Decoded {
    /// Width as stored.
    pub(crate) width: u32,
    /// Height as stored.
    pub(crate) height: u32,
    /// Three bytes a pixel, rows from the top.
    pub(crate) rgb: Vec<u8>,
    /// How it is to be turned for showing.
    pub(crate) orientation: Orientation,
}

/// What an image's header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// Its format.
    pub(crate) format: ImageFormat,
    /// Height, width and channels, as stored: before it is turned for showing.
    pub(crate) shape: [u32; 3],
}

/// The most pixels an image may have: half a gigabyte of RGB.
const MAX_PIXELS: u64 = 178_956_970;

/// The format of these bytes, of which the first few are enough.
pub(crate) fn format(bytes: &[u8]) -> Option<ImageFormat> {
    image::guess_format(bytes).ok().filter(|format| {
        use ImageFormat::{Bmp, Gif, Jpeg, Png, WebP};
        matches!(format, Jpeg | Png | WebP | Bmp | Gif)
    })
}

/// Decodes an image to 8-bit RGB. Grey is repeated, alpha is dropped, 16 bits are rounded to 8, CMYK is converted, and
/// of an animation the first frame is taken. `memory` is used for the pixels where that is possible.
///
/// # Errors
/// If the bytes are no image of a known format, are cut short or damaged, or hold more than [`MAX_PIXELS`].
pub(crate) fn decode(bytes: &[u8], memory: Vec<u8>) -> Result<Decoded> {
    match known(bytes)? {
        ImageFormat::Jpeg => decode_jpeg(bytes, memory),
        format => guarded(|| decode_other(bytes, format)),
    }
}

/// Reads an image's header, and no pixels.
///
/// # Errors
/// As [`decode`], as far as the header shows it.
pub(crate) fn header(bytes: &[u8]) -> Result<Header> {
    let format = known(bytes)?;
    if format == ImageFormat::Jpeg {
        let jpeg = Jpeg::open(bytes).map_err(bad_jpeg)?;
        let [height, width] = jpeg.size();
        check_size(width, height)?;
        return Ok(Header { format, shape: [height, width, jpeg.channels()] });
    }
    guarded(|| {
        let decoder = ImageReader::with_format(Cursor::new(bytes), format).into_decoder().map_err(damaged)?;
        let (width, height) = decoder.dimensions();
        check_size(width, height)?;
        Ok(Header { format, shape: [height, width, u32::from(decoder.color_type().channel_count())] })
    })
}

fn known(bytes: &[u8]) -> Result<ImageFormat> {
    format(bytes).ok_or(Error::NotAnImage { empty: bytes.is_empty() })
}

fn decode_jpeg(bytes: &[u8], mut rgb: Vec<u8>) -> Result<Decoded> {
    let jpeg = Jpeg::open(bytes).map_err(bad_jpeg)?;
    let [height, width] = jpeg.size();
    check_size(width, height)?;
    let orientation = jpeg.exif().and_then(Orientation::from_exif_chunk).unwrap_or(Orientation::NoTransforms);
    let whole = Part::whole([height, width], 1);
    rgb.resize(whole.bytes(Pixels::Rgb), 0);
    jpeg.decode(Pixels::Rgb, &whole, &mut rgb, whole.row_bytes(Pixels::Rgb)).map_err(bad_jpeg)?;
    Ok(Decoded { width, height, rgb, orientation })
}

fn bad_jpeg(error: forebay_jpeg::Error) -> Error {
    match error {
        forebay_jpeg::Error::Truncated => Error::Truncated,
        error => damaged(error),
    }
}

fn decode_other(bytes: &[u8], format: ImageFormat) -> Result<Decoded> {
    let mut reader = ImageReader::with_format(Cursor::new(bytes), format);
    let mut limits = Limits::no_limits();
    // Up to 8 bytes a pixel before it is brought to RGB, and as much again for the decoder's own work.
    limits.max_alloc = Some(16 * MAX_PIXELS);
    reader.limits(limits);
    let mut decoder = reader.into_decoder().map_err(damaged)?;
    let (width, height) = decoder.dimensions();
    check_size(width, height)?;
    // A damaged EXIF block doesn't make the picture unusable.
    let orientation = decoder.orientation().unwrap_or(Orientation::NoTransforms);
    let rgb = DynamicImage::from_decoder(decoder).map_err(damaged)?.into_rgb8().into_raw();
    Ok(Decoded { width, height, rgb, orientation })
}

fn check_size(width: u32, height: u32) -> Result<()> {
    let pixels = u64::from(width) * u64::from(height);
    match pixels {
        0 => Err(damaged(format!("it has {width} x {height} pixels"))),
        1..=MAX_PIXELS => Ok(()),
        _ => Err(Error::TooLarge { width, height, limit: MAX_PIXELS }),
    }
}

/// A decoder that panics on some damaged file must not take the other images with it.
fn guarded<T>(decode: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(decode)).unwrap_or_else(|_| Err(damaged("the decoder gave up on it")))
}

fn damaged(reason: impl ToString) -> Error {
    Error::Undecodable { reason: reason.to_string() }
}
