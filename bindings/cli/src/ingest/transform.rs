//! From a decoded image to the pixels that a model takes: the shortest side resized, then the centre cropped.
//!
//! The geometry is that of torchvision's `Resize(side)` and `CenterCrop(crop)`; the filter is the antialiased bilinear
//! one of Pillow. Only the pixels inside the crop are computed.

use fast_image_resize::{
    FilterType, ResizeAlg, ResizeOptions, Resizer,
    images::{TypedImage, TypedImageRef},
    pixels::U8x3,
};
use image::metadata::Orientation;

use super::decode::Decoded;
use crate::{Error, Result};

/// The size to which images are brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Recipe {
    /// The length of the shortest side after resizing.
    pub(crate) resize: u32,
    /// The length of both sides of the part kept; at most `resize`.
    pub(crate) crop: u32,
}

impl Recipe {
    /// Bytes of one image.
    pub(crate) fn row_bytes(self) -> usize {
        3 * (self.crop as usize).pow(2)
    }

    /// The resized size of an image: torchvision rounds the longer side down.
    fn resized(self, (width, height): (u32, u32)) -> (u32, u32) {
        let long = |long: u32, short: u32| {
            let length = u64::from(self.resize) * u64::from(long) / u64::from(short);
            u32::try_from(length).unwrap_or(u32::MAX)
        };
        if width <= height { (self.resize, long(height, width)) } else { (long(width, height), self.resize) }
    }
}

/// Where a centred window starts: half of what is left over, rounded half to even as Python's `round` does.
fn centred(length: u32, crop: u32) -> u32 {
    let rest = length.saturating_sub(crop);
    let half = rest / 2;
    if rest % 2 == 1 && half % 2 == 1 { half + 1 } else { half }
}

/// Where the pixel that is shown at `(x, y)` lies in an image stored as `(width, height)`.
fn stored_at(orientation: Orientation, (width, height): (u32, u32), (x, y): (u32, u32)) -> (u32, u32) {
    let (right, bottom) = (width - 1, height - 1);
    match orientation {
        Orientation::NoTransforms => (x, y),
        Orientation::FlipHorizontal => (right - x, y),
        Orientation::Rotate180 => (right - x, bottom - y),
        Orientation::FlipVertical => (x, bottom - y),
        Orientation::Rotate90 => (y, bottom - x),
        Orientation::Rotate270 => (right - y, x),
        Orientation::Rotate90FlipH => (y, x),
        Orientation::Rotate270FlipH => (right - y, bottom - x),
    }
}

/// The shown size of an image, or the stored size of a shown one.
fn turned(orientation: Orientation, (width, height): (u32, u32)) -> (u32, u32) {
    match orientation {
        Orientation::Rotate90 | Orientation::Rotate270 | Orientation::Rotate90FlipH | Orientation::Rotate270FlipH => {
            (height, width)
        }
        _ => (width, height),
    }
}

/// Working memory that is used again for each image.
#[derive(Default)]
pub(crate) struct Scratch {
    resizer: Resizer,
    square: Vec<u8>,
    /// Memory for the next decoded picture.
    pub(crate) pixels: Vec<u8>,
}

/// Memory of a decoded picture that a thread keeps for the next one: a photo of 21 megapixels.
const KEPT: usize = 64 << 20;

impl Scratch {
    /// Keeps the memory of a picture for the next one, unless it is unusually large.
    pub(crate) fn keep(&mut self, pixels: Vec<u8>) {
        if pixels.capacity() <= KEPT {
            self.pixels = pixels;
        }
    }
}

/// Brings an image to the recipe's size; gives `[3, crop, crop]` bytes: the red plane, the green one, the blue one.
///
/// # Errors
/// If the resizer refuses, which says that the image is too long and thin for it.
pub(crate) fn apply(recipe: Recipe, image: &Decoded, scratch: &mut Scratch) -> Result<Vec<u8>> {
    let crop = recipe.crop;
    let stored = (image.width, image.height);
    let shown_size = recipe.resized(turned(image.orientation, stored));
    let resized = turned(image.orientation, shown_size);

    // The window is centred in the image as it is shown; this finds the same window in the image as it is stored.
    let corner = (centred(shown_size.0, crop), centred(shown_size.1, crop));
    let opposite = (corner.0 + crop - 1, corner.1 + crop - 1);
    let a = stored_at(image.orientation, resized, corner);
    let b = stored_at(image.orientation, resized, opposite);
    let window = (a.0.min(b.0), a.1.min(b.1));

    let (left, width) = span(window.0, crop, stored.0, resized.0);
    let (top, height) = span(window.1, crop, stored.1, resized.1);
    let refused =
        |error: &dyn std::fmt::Display| Error::Undecodable { reason: format!("it can't be resized: {error}") };
    // Typed images: the untyped ones compile the resizer for every kind of pixel, which takes minutes.
    let source = TypedImageRef::<U8x3>::from_buffer(image.width, image.height, &image.rgb).map_err(|e| refused(&e))?;
    scratch.square.resize(recipe.row_bytes(), 0);
    let mut square = TypedImage::<U8x3>::from_buffer(crop, crop, &mut scratch.square).map_err(|e| refused(&e))?;
    let options =
        ResizeOptions::new().resize_alg(ResizeAlg::Convolution(FilterType::Bilinear)).crop(left, top, width, height);
    scratch.resizer.resize_typed(&source, &mut square, &options).map_err(|e| refused(&e))?;
    Ok(planes(&scratch.square, crop, image.orientation))
}

/// The part of `source` pixels that becomes `crop` pixels from `start` when all of it becomes `resized` pixels.
fn span(start: u32, crop: u32, source: u32, resized: u32) -> (f64, f64) {
    let scale = f64::from(source) / f64::from(resized);
    let from = f64::from(start) * scale;
    (from, (f64::from(crop) * scale).min(f64::from(source) - from))
}

/// Interleaved pixels as planes, turned as they are to be shown.
fn planes(pixels: &[u8], side: u32, orientation: Orientation) -> Vec<u8> {
    let area = (side as usize).pow(2);
    let mut planes = vec![0; 3 * area];
    let (red, rest) = planes.split_at_mut(area);
    let (green, blue) = rest.split_at_mut(area);
    let targets = red.iter_mut().zip(green).zip(blue);
    if orientation == Orientation::NoTransforms {
        for (((red, green), blue), pixel) in targets.zip(pixels.chunks_exact(3)) {
            (*red, *green, *blue) = (pixel[0], pixel[1], pixel[2]);
        }
    } else {
        let places = (0..side).flat_map(|y| (0..side).map(move |x| (x, y)));
        for (((red, green), blue), place) in targets.zip(places) {
            let (x, y) = stored_at(orientation, (side, side), place);
            let at = 3 * (y as usize * side as usize + x as usize);
            (*red, *green, *blue) = (pixels[at], pixels[at + 1], pixels[at + 2]);
        }
    }
    planes
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::{Orientation, Recipe, centred, stored_at, turned};
    use image::DynamicImage;

    #[test]
    fn sizes_are_those_of_torchvision() {
        let recipe = Recipe { resize: 256, crop: 224 };
        assert_eq!(recipe.resized((500, 375)), (341, 256));
        assert_eq!(recipe.resized((375, 500)), (256, 341));
        assert_eq!(recipe.resized((10, 10)), (256, 256));
        assert_eq!(recipe.resized((1, 3)), (256, 768));
    }

    #[test]
    fn windows_are_those_of_torchvision() {
        // int(round((341 - 224) / 2.0)) == 58, of (227 - 224) == 2, of (225 - 224) == 0
        assert_eq!((centred(341, 224), centred(227, 224), centred(225, 224), centred(256, 224)), (58, 2, 0, 16));
    }

    #[test]
    fn each_orientation_shows_the_pixels_that_exif_says() {
        let (width, height) = (5, 3);
        let stored = image::RgbImage::from_fn(width, height, |x, y| image::Rgb([x as u8, y as u8, 7]));
        for exif in 1..=8 {
            let orientation = Orientation::from_exif(exif).unwrap();
            let mut shown = DynamicImage::ImageRgb8(stored.clone());
            shown.apply_orientation(orientation);
            assert_eq!(turned(orientation, (width, height)), (shown.width(), shown.height()));
            for (x, y, pixel) in shown.to_rgb8().enumerate_pixels() {
                let (sx, sy) = stored_at(orientation, (width, height), (x, y));
                assert_eq!(pixel, stored.get_pixel(sx, sy), "orientation {exif} at ({x}, {y})");
            }
        }
    }
}
