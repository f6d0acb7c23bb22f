//! Encoded images and their pixels.

use std::{
    io::Cursor,
    panic::{AssertUnwindSafe, catch_unwind},
};

use forebay_jpeg::{CopyRows, Jpeg, Part, Pixels};
use image::{DynamicImage, GrayImage, ImageDecoder, ImageFormat, ImageReader, Limits, RgbImage, metadata::Orientation};

use crate::{buffer::copy_streaming, finish::Needed};

/// The most pixels of an image: a damaged header must not choose how much memory is taken.
const MAX_PIXELS: u64 = 1 << 28;

/// An image that is encoded as JPEG, PNG or WebP, and whose header was read.
pub(crate) struct Encoded<'a> {
    source: Source<'a>,
    /// Height and width, as stored.
    size: [u32; 2],
    /// How it is to be turned to be seen upright.
    orientation: Orientation,
}

enum Source<'a> {
    Jpeg(Jpeg<'a>),
    /// Its header is read once more: what it was read into stays with its thread.
    Other(&'a [u8], ImageFormat),
}

/// The formats that are decoded, by their first bytes.
fn format(bytes: &[u8]) -> Option<ImageFormat> {
    match bytes {
        [0xff, 0xd8, 0xff, ..] => Some(ImageFormat::Jpeg),
        [0x89, b'P', b'N', b'G', ..] => Some(ImageFormat::Png),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some(ImageFormat::WebP),
        _ => None,
    }
}

fn decoder(bytes: &[u8], format: ImageFormat) -> Result<impl ImageDecoder + '_, String> {
    let mut reader = ImageReader::with_format(Cursor::new(bytes), format);
    let mut limits = Limits::no_limits();
    limits.max_alloc = Some(16 * MAX_PIXELS);
    reader.limits(limits);
    reader.into_decoder().map_err(|error| error.to_string())
}

/// A decoder that panics on a damaged image must not take the epoch with it.
fn guarded<T>(work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| Err("the decoder gave up on it".to_owned()))
}

impl<'a> Encoded<'a> {
    /// Reads the header of an image; or says what is wrong with it.
    pub(crate) fn open(bytes: &'a [u8]) -> Result<Self, String> {
        let (source, size, orientation) = match format(bytes) {
            Some(ImageFormat::Jpeg) => {
                let jpeg = Jpeg::open(bytes).map_err(|error| error.to_string())?;
                let orientation = jpeg.exif().and_then(Orientation::from_exif_chunk);
                let size = jpeg.size();
                (Source::Jpeg(jpeg), size, orientation)
            }
            Some(format) => guarded(|| {
                let mut decoder = decoder(bytes, format)?;
                let (width, height) = decoder.dimensions();
                // Metadata that can't be read says nothing about the picture.
                let orientation = decoder.orientation().ok();
                Ok((Source::Other(bytes, format), [height, width], orientation))
            })?,
            None if bytes.is_empty() => return Err("it is empty".to_owned()),
            None => return Err("it is no JPEG, PNG or WebP".to_owned()),
        };
        let [height, width] = size;
        match u64::from(height) * u64::from(width) {
            0 => Err(format!("it has {height} x {width} pixels")),
            1..=MAX_PIXELS => Ok(Self { source, size, orientation: orientation.unwrap_or(Orientation::NoTransforms) }),
            _ => Err(format!("it has {height} x {width} pixels; {MAX_PIXELS} are the limit")),
        }
    }

    /// Height and width, upright.
    pub(crate) fn size(&self) -> [u32; 2] {
        use Orientation::{Rotate90, Rotate90FlipH, Rotate270, Rotate270FlipH};
        let [height, width] = self.size;
        match self.orientation {
            Rotate90 | Rotate90FlipH | Rotate270 | Rotate270FlipH => [width, height],
            _ => [height, width],
        }
    }

    /// Decodes what is needed of the image, upright, into `out`, a C-order array `[height, width, channels]` of what is held; or says
    /// what is wrong with it. An image that [can't shrink](Self::shrinks) is needed at full size. `past_caches` is for pixels that nobody
    /// reads soon.
    pub(crate) fn decode(
        self,
        pixels: Pixels,
        needed: &Needed,
        out: &mut [u8],
        past_caches: bool,
    ) -> Result<(), String> {
        let Self { source, size, orientation } = self;
        // The places of what is read.
        let [held_rows, held_columns] = &needed.held;
        let [rows, columns] = needed.read.clone();
        let stride = held_columns.len() * pixels.channels() as usize;
        let row_bytes = columns.len() * pixels.channels() as usize;
        let start = (rows.start - held_rows.start) as usize * stride
            + (columns.start - held_columns.start) as usize * pixels.channels() as usize;
        let other = || "it has other pixels than its header says".to_owned();
        let out = out.get_mut(start..start + (rows.len() - 1) * stride + row_bytes).ok_or_else(other)?;
        let image = match source {
            Source::Jpeg(jpeg) if orientation == Orientation::NoTransforms => {
                let part = Part { shrink: needed.shrink, rows, columns };
                let copy = past_caches.then_some(copy_streaming as CopyRows);
                return jpeg.decode_by(pixels, &part, out, stride, copy).map_err(|error| error.to_string());
            }
            Source::Jpeg(jpeg) => {
                let whole = Part::whole(size, needed.shrink);
                let mut stored = vec![0; whole.bytes(pixels)];
                jpeg.decode(pixels, &whole, &mut stored, whole.row_bytes(pixels)).map_err(|error| error.to_string())?;
                match pixels {
                    Pixels::Rgb => {
                        RgbImage::from_raw(whole.columns.end, whole.rows.end, stored).map(DynamicImage::from)
                    }
                    Pixels::Grey => {
                        GrayImage::from_raw(whole.columns.end, whole.rows.end, stored).map(DynamicImage::from)
                    }
                }
                .ok_or_else(other)?
            }
            Source::Other(bytes, format) => guarded(|| {
                let decoded = DynamicImage::from_decoder(decoder(bytes, format)?);
                decoded.map_err(|error| error.to_string())
            })?,
        };
        let (width, image) = upright(image, orientation, pixels);
        let lines = image.chunks_exact(width * pixels.channels() as usize).skip(rows.start as usize);
        let left = columns.start as usize * pixels.channels() as usize;
        let mut copied = 0;
        for (line, out) in lines.zip(out.chunks_mut(stride)) {
            out[..row_bytes].copy_from_slice(line.get(left..left + row_bytes).ok_or_else(other)?);
            copied += 1;
        }
        if copied == rows.len() { Ok(()) } else { Err(other()) }
    }

    /// Whether it can be decoded at a half, a quarter or an eighth of its size.
    pub(crate) fn shrinks(&self) -> bool {
        matches!(self.source, Source::Jpeg(_))
    }
}

/// The width and the pixels of an image as it is to be seen.
fn upright(mut image: DynamicImage, orientation: Orientation, pixels: Pixels) -> (usize, Vec<u8>) {
    image.apply_orientation(orientation);
    let width = image.width() as usize;
    let pixels = match pixels {
        Pixels::Rgb => image.into_rgb8().into_raw(),
        Pixels::Grey => image.into_luma8().into_raw(),
    };
    (width, pixels)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn picture() -> RgbImage {
        RgbImage::from_fn(40, 30, |x, y| image::Rgb([x as u8 * 6, y as u8 * 8, (x + y) as u8 * 3]))
    }

    fn encoded(format: ImageFormat) -> Vec<u8> {
        let mut bytes = Vec::new();
        if format == ImageFormat::Jpeg {
            let encoder = jpeg_encoder::Encoder::new(&mut bytes, 90);
            encoder.encode(picture().as_raw(), 40, 30, jpeg_encoder::ColorType::Rgb).unwrap();
        } else {
            picture().write_to(&mut Cursor::new(&mut bytes), format).unwrap();
        }
        bytes
    }

    /// Its height, its width and its pixels.
    fn decode(bytes: &[u8], pixels: Pixels) -> Result<([u32; 2], Vec<u8>), String> {
        let image = Encoded::open(bytes)?;
        let size = image.size();
        let mut out = vec![0xa5; size.iter().product::<u32>() as usize * pixels.channels() as usize];
        image.decode(pixels, &Needed::all(size), &mut out, false)?;
        Ok((size, out))
    }

    #[test]
    fn what_is_needed_of_an_image_comes_to_its_place_and_nothing_else_is_touched() {
        let mut files: Vec<Vec<u8>> = [ImageFormat::Png, ImageFormat::WebP, ImageFormat::Jpeg].map(encoded).into();
        files.extend((2..=8).map(turned));
        for (bytes, shrink) in files.iter().map(|bytes| (bytes, 1)).chain(files[2..].iter().map(|bytes| (bytes, 2))) {
            let image = Encoded::open(bytes).unwrap();
            let [height, width] = image.size().map(|side| side / shrink);
            assert_eq!(image.shrinks(), !bytes.starts_with(b"\x89PNG") && !bytes.starts_with(b"RIFF"));
            let sides = [0..height, 0..width];
            let mut whole = vec![0; (height * width * 3) as usize];
            let all = Needed { shrink, held: sides.clone(), read: sides };
            image.decode(Pixels::Rgb, &all, &mut whole, true).unwrap();
            let needed = Needed { shrink, held: [2..14, 1..13], read: [4..11, 3..12] };
            let mut found = vec![0xa5; 12 * 12 * 3];
            Encoded::open(bytes).unwrap().decode(Pixels::Rgb, &needed, &mut found, false).unwrap();
            for (place, pixel) in found.as_chunks::<3>().0.iter().enumerate() {
                let (row, column) = (2 + place as u32 / 12, 1 + place as u32 % 12);
                let at = (row * width + column) as usize * 3;
                let read = needed.read[0].contains(&row) && needed.read[1].contains(&column);
                assert_eq!(pixel[..], if read { whole[at..at + 3].to_vec() } else { vec![0xa5; 3] }[..]);
            }
        }
    }

    #[test]
    fn lossless_images_have_the_pixels_that_were_encoded_and_jpegs_nearly() {
        for format in [ImageFormat::Png, ImageFormat::WebP, ImageFormat::Jpeg] {
            let (size, found) = decode(&encoded(format), Pixels::Rgb).unwrap();
            assert_eq!(size, [30, 40]);
            let most = found.iter().zip(picture().as_raw()).map(|(found, wanted)| found.abs_diff(*wanted)).max();
            assert!(most.unwrap() <= if format == ImageFormat::Jpeg { 40 } else { 0 }, "{format:?}: {most:?}");
            let (_, grey) = decode(&encoded(format), Pixels::Grey).unwrap();
            assert_eq!(grey.len(), 30 * 40);
        }
    }

    /// A JPEG with an orientation in its Exif metadata.
    fn turned(orientation: u8) -> Vec<u8> {
        let mut exif = b"Exif\0\0MM\0\x2a\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0".to_vec();
        exif.extend([orientation, 0, 0, 0, 0, 0, 0]);
        let mut bytes = encoded(ImageFormat::Jpeg);
        let mut segment = vec![0xff, 0xe1];
        segment.extend((exif.len() as u16 + 2).to_be_bytes());
        segment.extend(exif);
        bytes.splice(2..2, segment);
        bytes
    }

    #[test]
    fn photos_come_upright() {
        for pixels in [Pixels::Rgb, Pixels::Grey] {
            let (_, flat) = decode(&encoded(ImageFormat::Jpeg), pixels).unwrap();
            let channels = pixels.channels() as usize;
            let at = |image: &[u8], width: usize, y: usize, x: usize| {
                let start = (y * width + x) * channels;
                image[start..start + channels].to_vec()
            };
            assert_eq!(decode(&turned(1), pixels).unwrap().1, flat);
            for orientation in 2..=8 {
                let ([height, width], image) = decode(&turned(orientation), pixels).unwrap();
                let wanted = if orientation < 5 { [30, 40] } else { [40, 30] };
                assert_eq!([height, width], wanted, "orientation {orientation}");
                for (y, x) in [(0, 0), (3, 7), (29, 0), (11, 29)] {
                    // Where the pixel of a row and column of the stored picture is seen, as the standard words it.
                    let (seen_y, seen_x) = match orientation {
                        2 => (y, 39 - x),
                        3 => (29 - y, 39 - x),
                        4 => (29 - y, x),
                        5 => (x, y),
                        6 => (x, 29 - y),
                        7 => (39 - x, 29 - y),
                        _ => (39 - x, y),
                    };
                    let seen = at(&image, width as usize, seen_y, seen_x);
                    assert_eq!(seen, at(&flat, 40, y, x), "orientation {orientation}");
                }
            }
        }
    }

    #[test]
    fn what_is_no_image_or_was_cut_short_is_an_error_and_no_panic() {
        assert!(decode(b"", Pixels::Rgb).is_err() && decode(b"GIF89a", Pixels::Rgb).is_err());
        for format in [ImageFormat::Png, ImageFormat::WebP, ImageFormat::Jpeg] {
            let bytes = encoded(format);
            for length in [1, 4, 20, bytes.len() / 2] {
                assert!(decode(&bytes[..length], Pixels::Rgb).is_err(), "{length} bytes of {format:?}");
            }
        }
    }
}
