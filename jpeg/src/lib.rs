//! Pixels of JPEG files, by the decoder of libjpeg-turbo: whole images or a part, at full size, a half, a quarter or an eighth.
//!
//! The code is that of MozJPEG, a fork of libjpeg-turbo that changes only its encoder, built from source into the program. On
//! x86 its assembler needs the program `nasm` when this crate is built; without it the same pixels come more slowly.
//!
//! ```text
//!  bytes ──► Jpeg::open: size, Exif ──► Jpeg::decode(part)               ──► the caller's memory, [rows, columns, channels]
//! ```
//!
//! | | here | plain libjpeg |
//! |---|---|---|
//! | pixels at full size | those of Pillow, to the bit | the same |
//! | a part | the pixels of the whole image at that place, to the bit | those at its left and right edge differ |
//! | missing or damaged data | [`Error`] | a warning, and grey |
//! | an image of four inks | red, green and blue, as Pillow converts them | left as it is |
//! | a message | part of an [`Error`] | printed, and the process ends |

mod decoder;
mod inks;

pub use decoder::Jpeg;

use std::ops::Range;

/// What an image is decoded to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pixels {
    /// Red, green and blue. Grey images have the same of all three.
    Rgb,
    /// Brightness.
    Grey,
}

impl Pixels {
    /// Numbers of a pixel.
    #[must_use]
    pub fn channels(self) -> u32 {
        match self {
            Self::Rgb => 3,
            Self::Grey => 1,
        }
    }
}

/// The part of an image that is decoded, and at what size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// How many pixels, across and down, become one: 1, 2, 4 or 8. That is done where an image has frequencies and no pixels yet,
    /// as good as an average of the pixels, and saves the time to make them. (The decoder knows other eighths, which take longer
    /// than the next of these.)
    pub shrink: u32,
    /// The rows that are wanted, of the image of that size.
    pub rows: Range<u32>,
    /// The columns.
    pub columns: Range<u32>,
}

impl Part {
    /// All of an image of this height and width, which are rounded up as it shrinks.
    #[must_use]
    pub fn whole(size: [u32; 2], shrink: u32) -> Self {
        let [height, width] = size.map(|side| side.div_ceil(shrink.max(1)));
        Self { shrink, rows: 0..height, columns: 0..width }
    }

    /// Bytes of its pixels.
    #[must_use]
    pub fn bytes(&self, pixels: Pixels) -> usize {
        self.rows.len() * self.row_bytes(pixels)
    }

    /// Bytes of a row of its pixels.
    #[must_use]
    pub fn row_bytes(&self, pixels: Pixels) -> usize {
        self.columns.len() * pixels.channels() as usize
    }
}

/// Why an image has no pixels.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The bytes end before the picture does.
    #[error("the file ends before the picture does")]
    Truncated,
    /// The decoder can't make sense of the bytes, or doesn't know what they use.
    #[error("{reason}")]
    Undecodable {
        /// What the decoder said.
        reason: String,
    },
    /// What is asked for isn't a part of the image, or doesn't fit in the memory given.
    #[error("{part:?} of an image of {height} x {width} into {bytes} bytes")]
    Part {
        /// What was asked for.
        part: Part,
        /// Height of the image.
        height: u32,
        /// Width of the image.
        width: u32,
        /// The memory given.
        bytes: usize,
    },
}

/// Copies bytes to as many others.
pub type CopyRows = fn(&mut [u8], &[u8]);

/// What comes of decoding.
pub type Result<T, E = Error> = std::result::Result<T, E>;
