//! What is done to a column of images on its way into a batch: resize, crop, mirror, scale, cast, lay out.
//!
//! All of it is one pass over the rows where they lie. Images are blended of the four pixels around, without smoothing, masks
//! take the nearest. [`Prepared::run`] is that pass on the
//! host and the oracle of every other device: results are equal to the bit, because positions and weights are fixed-point
//! integers, what is blended is exact in an f32, and the one multiplication and one addition that follow are rounded the same
//! way everywhere.
//!
//! ```text
//!  seed of the sample ──► Window ──► run: row of u8 ──► blend of 4 pixels ──► * scale + bias ──► u8, f16, bf16, f32
//!  (order, position)      (pure)                        in 1/65536, exact      in f32             interleaved or planar
//! ```
//!
//! What is random about a sample is drawn from one seed, a hash of the loader's seed, the epoch and the sample's position in
//! it. So it depends neither on the batch nor on the rank, the device or where an epoch was taken up again; and the columns of
//! one sample share it, so that an image and its mask are cropped alike.
//!
//! A JPEG that becomes smaller is decoded at a half, a quarter or an eighth, and only the part that is taken, unless
//! [`LoaderOptions::shrink_on_load`](crate::LoaderOptions::shrink_on_load) says otherwise; windows are drawn for its full size.

mod host;
mod needed;
mod prepare;
mod window;

pub use host::Scratch;
pub(crate) use needed::Needed;
pub use prepare::Prepared;
pub use window::Window;

use forebay_format::DType;

/// The most channels that an image can have here.
pub const CHANNELS: usize = 8;
/// The longest side that an image can have here, in pixels.
pub const LONGEST: usize = 65_535;

/// Where the channels of an image are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// `[height, width, channels]`.
    Interleaved,
    /// `[channels, height, width]`.
    Planar,
}

/// The numbers of the finished tensor. Its input is u8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Number {
    /// u8, blended and rounded, neither scaled nor shifted.
    U8,
    /// f16.
    F16,
    /// bf16.
    Bf16,
    /// f32.
    F32,
}

impl Number {
    /// Bytes of one.
    #[must_use]
    pub fn bytes(self) -> usize {
        match self {
            Self::U8 => 1,
            Self::F16 | Self::Bf16 => 2,
            Self::F32 => 4,
        }
    }

    /// Its element type.
    #[must_use]
    pub fn dtype(self) -> DType {
        match self {
            Self::U8 => DType::U8,
            Self::F16 => DType::F16,
            Self::Bf16 => DType::BF16,
            Self::F32 => DType::F32,
        }
    }
}

/// What a pixel becomes whose centre falls between those of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interpolation {
    /// A blend of the four around it, by how near they are.
    Bilinear,
    /// The nearest of them: for numbers that name something, such as the classes of a mask.
    Nearest,
}

/// The size that an image, or a part of it, becomes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Resize {
    /// The whole image, whatever its shape was.
    To {
        /// Height of the result.
        height: usize,
        /// Width of the result.
        width: usize,
    },
    /// The whole image; its shorter side becomes as long as this, and the other as its shape asks, rounded down.
    Shorter(usize),
    /// A part of random size, aspect ratio and place. The part's area is uniform in `area` times the image's, and the
    /// logarithm of its width over its height uniform in `ratio`'s; the middle is taken if ten draws don't fit.
    RandomPart {
        /// Height of the result.
        height: usize,
        /// Width of the result.
        width: usize,
        /// Least and greatest area.
        area: (f64, f64),
        /// Least and greatest ratio.
        ratio: (f64, f64),
    },
}

/// The part that is left of an image once it was resized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crop {
    /// The part of this size in the middle.
    Centre {
        /// Height of the part.
        height: usize,
        /// Width of the part.
        width: usize,
    },
    /// A part of this size, anywhere.
    Random {
        /// Height of the part.
        height: usize,
        /// Width of the part.
        width: usize,
    },
}

/// What is done to the images of a column: they are resized, cropped and mirrored, in this order, and each number of the
/// result is `value * scale[channel] + bias[channel]`, rounded to nearest.
#[derive(Clone, Debug, PartialEq)]
pub struct Finish {
    /// The layout of the rows. `None` takes it from the column: what its kind says, or else the one whose channels would
    /// be 1, 3 or 4.
    pub input: Option<Layout>,
    /// The layout of the result.
    pub output: Layout,
    /// The numbers of the result.
    pub number: Number,
    /// A factor for each channel, or one for all.
    pub scale: Vec<f32>,
    /// What is added, for each channel, or one for all.
    pub bias: Vec<f32>,
    /// How images are resized.
    pub resize: Option<Resize>,
    /// Of what its pixels are made then. `None` takes it from the column: the nearest if its kind is a mask, or else a blend.
    pub interpolation: Option<Interpolation>,
    /// Which part is left.
    pub crop: Option<Crop>,
    /// How probably an image is mirrored, left and right.
    pub mirror: f64,
}

impl Default for Finish {
    fn default() -> Self {
        Self {
            input: None,
            output: Layout::Interleaved,
            number: Number::F32,
            scale: vec![1.0],
            bias: vec![0.0],
            resize: None,
            interpolation: None,
            crop: None,
            mirror: 0.0,
        }
    }
}
