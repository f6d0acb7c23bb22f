//! Encoded images become pixels, on their way from what was fetched to what is gathered.

use std::{
    io::Cursor,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use image::{
    DynamicImage, GrayImage, ImageDecoder as _, ImageFormat, ImageReader, Limits, RgbImage, metadata::Orientation,
};
use zune_jpeg::{
    JpegDecoder,
    zune_core::{bytestream::ZCursor, colorspace::ColorSpace, options::DecoderOptions},
};

use super::builder::{Builder, Cause, Held, Place, Planned};
use crate::{Error, Fault, Pixels, Result};

/// The most pixels of an image: a damaged header must not choose how much memory is taken.
const MAX_PIXELS: u64 = 1 << 28;

/// A row of a batch, and its pixels or what is wrong with its image.
type Row = (usize, Result<Place, String>);

/// The formats that are decoded, by their first bytes.
fn format(bytes: &[u8]) -> Option<ImageFormat> {
    match bytes {
        [0xff, 0xd8, 0xff, ..] => Some(ImageFormat::Jpeg),
        [0x89, b'P', b'N', b'G', ..] => Some(ImageFormat::Png),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some(ImageFormat::WebP),
        _ => None,
    }
}

/// An image that was encoded as JPEG, PNG or WebP.
pub(crate) struct Decoded {
    pub(crate) height: u32,
    pub(crate) width: u32,
    /// Interleaved.
    pub(crate) bytes: Vec<u8>,
}

/// Decodes an image; or says what is wrong with it.
pub(crate) fn decode(bytes: &[u8], pixels: Pixels) -> Result<Decoded, String> {
    let work = || match format(bytes) {
        Some(ImageFormat::Jpeg) => decode_jpeg(bytes, pixels),
        Some(format) => decode_other(bytes, format, pixels),
        None if bytes.is_empty() => Err("it is empty".to_owned()),
        None => Err("it is no JPEG, PNG or WebP".to_owned()),
    };
    // A decoder that panics on a damaged image must not take the epoch with it.
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| Err("the decoder gave up on it".to_owned()))
}

fn decode_jpeg(bytes: &[u8], pixels: Pixels) -> Result<Decoded, String> {
    let space = match pixels {
        Pixels::Rgb => ColorSpace::RGB,
        Pixels::Grey => ColorSpace::Luma,
    };
    let options = DecoderOptions::new_fast()
        .set_max_width(usize::from(u16::MAX))
        .set_max_height(usize::from(u16::MAX))
        .jpeg_set_out_colorspace(space);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(bytes), options.set_strict_mode(false));
    decoder.decode_headers().map_err(|error| error.to_string())?;
    let info = decoder.info().ok_or("it has no header")?;
    let (height, width) = (u32::from(info.height), u32::from(info.width));
    check_size(height, width)?;
    // Harmless surplus between headers was let pass; damage to the picture isn't.
    decoder.set_options(options.set_strict_mode(true));
    let mut raw = vec![0; height as usize * width as usize * pixels.channels() as usize];
    decoder.decode_into(&mut raw).map_err(|error| error.to_string())?;
    let orientation = decoder.exif().and_then(|exif| Orientation::from_exif_chunk(exif));
    if matches!(orientation, None | Some(Orientation::NoTransforms)) {
        return Ok(Decoded { height, width, bytes: raw });
    }
    let image = match pixels {
        Pixels::Rgb => RgbImage::from_raw(width, height, raw).map(DynamicImage::from),
        Pixels::Grey => GrayImage::from_raw(width, height, raw).map(DynamicImage::from),
    };
    Ok(upright(image.ok_or("it has other pixels than its header says")?, orientation, pixels))
}

fn decode_other(bytes: &[u8], format: ImageFormat, pixels: Pixels) -> Result<Decoded, String> {
    let mut reader = ImageReader::with_format(Cursor::new(bytes), format);
    let mut limits = Limits::no_limits();
    limits.max_alloc = Some(16 * MAX_PIXELS);
    reader.limits(limits);
    let mut decoder = reader.into_decoder().map_err(|error| error.to_string())?;
    let (width, height) = decoder.dimensions();
    check_size(height, width)?;
    // Metadata that can't be read says nothing about the picture.
    let orientation = decoder.orientation().ok();
    let image = DynamicImage::from_decoder(decoder).map_err(|error| error.to_string())?;
    Ok(upright(image, orientation, pixels))
}

/// An image as its Exif metadata says that it is to be seen.
fn upright(mut image: DynamicImage, orientation: Option<Orientation>, pixels: Pixels) -> Decoded {
    image.apply_orientation(orientation.unwrap_or(Orientation::NoTransforms));
    let (width, height) = (image.width(), image.height());
    let bytes = match pixels {
        Pixels::Rgb => image.into_rgb8().into_raw(),
        Pixels::Grey => image.into_luma8().into_raw(),
    };
    Decoded { height, width, bytes }
}

fn check_size(height: u32, width: u32) -> Result<(), String> {
    match u64::from(height) * u64::from(width) {
        0 => Err(format!("it has {height} x {width} pixels")),
        1..=MAX_PIXELS => Ok(()),
        _ => Err(format!("it has {height} x {width} pixels; {MAX_PIXELS} are the limit")),
    }
}

impl Builder {
    /// Decodes the images of a batch, by several threads.
    pub(super) fn decode(&self, planned: &mut Planned, faults: &mut Vec<Fault>) -> Result<(), Cause> {
        for column in 0..self.job.columns.len() {
            let Some(pixels) = self.job.columns[column].pixels else { continue };
            let rows: Vec<usize> = (0..planned.positions.len()).collect();
            let found = self.decode_rows(&planned.columns[column].rows, &rows, pixels)?;
            for (row, decoded) in found {
                match decoded {
                    Ok(place) => planned.columns[column].rows[row] = place,
                    Err(reason) => {
                        let error = Error::Decode { column: self.job.columns[column].name.to_string(), reason };
                        if !self.job.options.faults.tolerates() {
                            return Err(Cause::Row { row, column, error });
                        }
                        self.mend(planned, row, &[(column, error.to_string())], faults)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// What becomes of each row that has an image, in order.
    fn decode_rows(&self, places: &[Place], rows: &[usize], pixels: Pixels) -> Result<Vec<Row>, Cause> {
        let next = AtomicUsize::new(0);
        let done = Mutex::new(Vec::with_capacity(rows.len()));
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = if self.job.options.threads == 0 { cores } else { self.job.options.threads };
        let work = || {
            while let Some(row) = rows.get(next.fetch_add(1, Ordering::Relaxed)) {
                let decoded = self.decode_place(&places[*row], pixels).transpose();
                if let Some(decoded) = decoded {
                    done.lock().unwrap_or_else(PoisonError::into_inner).push((*row, decoded));
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..threads.min(rows.len()) {
                scope.spawn(work);
            }
            work();
        });
        let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
        done.sort_unstable_by_key(|(row, _)| *row);
        let mut found = Vec::with_capacity(done.len());
        for (row, decoded) in done {
            found.push((
                row,
                match decoded {
                    Ok(place) => Ok(place),
                    Err(Wrong::Image(reason)) => Err(reason),
                    Err(Wrong::Other(cause)) => return Err(cause),
                },
            ));
        }
        Ok(found)
    }

    /// The decoded image of a row, if it has one that isn't decoded yet.
    fn decode_place(&self, place: &Place, pixels: Pixels) -> Result<Option<Place>, Wrong> {
        let bytes = match place {
            Place::Linked(held) => &held.region.buffer().bytes()[..held.length],
            place => match place.fetched().map_err(Wrong::Other)? {
                Some(Some(bytes)) => bytes,
                Some(None) => return Ok(Some(Place::Masked)),
                None => return Ok(None),
            },
        };
        let held = self.pixels(bytes, pixels).map_err(|error| match error {
            Ok(reason) => Wrong::Image(reason),
            Err(error) => Wrong::Other(error.into()),
        })?;
        Ok(Some(Place::Held(held)))
    }

    /// The pixels of an image in a buffer of its own; or what is wrong with the image, or with the machine.
    pub(super) fn pixels(&self, bytes: &[u8], pixels: Pixels) -> Result<Held, Result<String, Error>> {
        let decoded = decode(bytes, pixels).map_err(Ok)?;
        let shape = vec![decoded.height, decoded.width, pixels.channels()];
        let region = self.buffer(decoded.bytes.len(), |buffer| buffer.copy_from_slice(&decoded.bytes)).map_err(Err)?;
        Ok(Held { region, length: decoded.bytes.len(), shape, valid: true })
    }
}

/// Why a row has no pixels.
enum Wrong {
    /// Its image can't be decoded.
    Image(String),
    Other(Cause),
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn picture() -> image::RgbImage {
        image::RgbImage::from_fn(40, 30, |x, y| image::Rgb([x as u8 * 6, y as u8 * 8, (x + y) as u8 * 3]))
    }

    fn encoded(format: ImageFormat) -> Vec<u8> {
        let mut bytes = Cursor::new(Vec::new());
        picture().write_to(&mut bytes, format).unwrap();
        bytes.into_inner()
    }

    #[test]
    fn lossless_images_have_the_pixels_that_were_encoded_and_jpegs_nearly() {
        for format in [ImageFormat::Png, ImageFormat::WebP, ImageFormat::Jpeg] {
            let decoded = decode(&encoded(format), Pixels::Rgb).unwrap();
            assert_eq!((decoded.height, decoded.width), (30, 40));
            let most =
                decoded.bytes.iter().zip(picture().as_raw()).map(|(found, wanted)| found.abs_diff(*wanted)).max();
            assert!(most.unwrap() <= if format == ImageFormat::Jpeg { 40 } else { 0 }, "{format:?}: {most:?}");
            let grey = decode(&encoded(format), Pixels::Grey).unwrap();
            assert_eq!(grey.bytes.len(), 30 * 40);
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
            let flat = decode(&encoded(ImageFormat::Jpeg), pixels).unwrap();
            let channels = pixels.channels() as usize;
            let at = |image: &Decoded, y: usize, x: usize| {
                let start = (y * image.width as usize + x) * channels;
                image.bytes[start..start + channels].to_vec()
            };
            assert_eq!(decode(&turned(1), pixels).unwrap().bytes, flat.bytes);
            for orientation in 2..=8 {
                let image = decode(&turned(orientation), pixels).unwrap();
                let (height, width) = if orientation < 5 { (30, 40) } else { (40, 30) };
                assert_eq!((image.height, image.width), (height, width), "orientation {orientation}");
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
                    assert_eq!(at(&image, seen_y, seen_x), at(&flat, y, x), "orientation {orientation}");
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
