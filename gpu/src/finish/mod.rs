//! What is done to a batch of images on its way into a tensor: crop, resize, mirror, scale, cast, lay out.
//!
//! One pass does all of it. [`Prepared::run`] does it on the host and is the oracle of the GPU's kernel: the results are
//! equal to the bit, because positions and weights are fixed-point integers, what is blended is exact in an f32, and the
//! one multiplication and one addition that follow are rounded the same way everywhere.
//!
//! What is random about a sample comes from one 64-bit seed for it, so it doesn't depend on the batch, the rank or the
//! device that the sample lands on.

mod host;
mod window;

pub use window::Window;

use crate::{Error, Result};

/// The most channels that an image can have here.
pub const CHANNELS: usize = 8;
/// The longest side that an image can have here, in pixels.
const LONGEST: usize = 65_535;

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
}

/// Which part of an image is taken, and the size that it becomes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Geometry {
    /// All of it, as it is.
    Whole,
    /// All of it, resized.
    Resize {
        /// Height of the result.
        height: usize,
        /// Width of the result.
        width: usize,
    },
    /// The part of this size in the middle.
    CentreCrop {
        /// Height of the part.
        height: usize,
        /// Width of the part.
        width: usize,
    },
    /// A part of this size, anywhere.
    RandomCrop {
        /// Height of the part.
        height: usize,
        /// Width of the part.
        width: usize,
    },
    /// A part of random size, aspect ratio and place, resized. The part's area is uniform in `area` times the image's,
    /// and the logarithm of its width over its height uniform in `ratio`'s; the middle is taken if ten draws don't fit.
    RandomResizedCrop {
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

/// What is done to images. Resizing is bilinear with weights of 1/256, without smoothing.
///
/// Each number of the result is `value * scale[channel] + bias[channel]`, rounded to nearest.
#[derive(Clone, Debug, PartialEq)]
pub struct Finish {
    /// The layout of the rows.
    pub input: Layout,
    /// The layout of the result.
    pub output: Layout,
    /// The numbers of the result.
    pub number: Number,
    /// A factor for each channel, or one for all.
    pub scale: Vec<f32>,
    /// What is added, for each channel, or one for all.
    pub bias: Vec<f32>,
    /// Which part is taken.
    pub geometry: Geometry,
    /// How probably an image is mirrored, left and right.
    pub mirror: f64,
}

impl Default for Finish {
    fn default() -> Self {
        Self {
            input: Layout::Interleaved,
            output: Layout::Interleaved,
            number: Number::F32,
            scale: vec![1.0],
            bias: vec![0.0],
            geometry: Geometry::Whole,
            mirror: 0.0,
        }
    }
}

/// A [`Finish`] for rows of one shape.
#[derive(Clone, Debug, PartialEq)]
pub struct Prepared {
    pub(crate) height: u32,
    pub(crate) width: u32,
    pub(crate) channels: u32,
    pub(crate) out_height: u32,
    pub(crate) out_width: u32,
    pub(crate) in_planar: bool,
    pub(crate) out_planar: bool,
    pub(crate) number: Number,
    /// Divided by 65536, the unit of blended values.
    pub(crate) scale: [f32; CHANNELS],
    pub(crate) bias: [f32; CHANNELS],
    geometry: Geometry,
    mirror: f64,
}

impl Finish {
    /// Fits it to u8 rows of `shape`: three dimensions as [`input`](Self::input) says, or two, height and width.
    ///
    /// # Errors
    /// [`Error::Finish`] names what doesn't fit.
    pub fn prepare(&self, shape: &[usize]) -> Result<Prepared> {
        let fail = |reason: String| Err(Error::Finish { reason });
        let (height, width, channels) = match (shape, self.input) {
            (&[height, width], _) => (height, width, 1),
            (&[height, width, channels], Layout::Interleaved) => (height, width, channels),
            (&[channels, height, width], Layout::Planar) => (height, width, channels),
            _ => return fail(format!("rows of shape {shape:?} are no images of two or three dimensions")),
        };
        if channels == 0 || channels > CHANNELS {
            return fail(format!("{channels} channels: 1 to {CHANNELS} are supported"));
        }
        let (out_height, out_width) = match self.geometry {
            Geometry::Whole => (height, width),
            Geometry::Resize { height, width }
            | Geometry::CentreCrop { height, width }
            | Geometry::RandomCrop { height, width }
            | Geometry::RandomResizedCrop { height, width, .. } => (height, width),
        };
        if [height, width, out_height, out_width].iter().any(|side| *side == 0 || *side > LONGEST) {
            return fail(format!(
                "sides of an image are 1 to {LONGEST} pixels; this goes from {height} x {width} to {out_height} x {out_width}"
            ));
        }
        match self.geometry {
            Geometry::CentreCrop { .. } | Geometry::RandomCrop { .. } if out_height > height || out_width > width => {
                return fail(format!(
                    "a crop of {out_height} x {out_width} is larger than the image of {height} x {width}"
                ));
            }
            Geometry::RandomResizedCrop { area, ratio, .. } => {
                if !(area.0 > 0.0 && area.0 <= area.1 && area.1 <= 1.0) {
                    return fail(format!(
                        "an area of {area:?}: two shares of the image, above 0, ascending, are needed"
                    ));
                }
                if !(ratio.0 > 0.0 && ratio.0 <= ratio.1 && ratio.1.is_finite()) {
                    return fail(format!("a ratio of {ratio:?}: two ratios above 0, ascending, are needed"));
                }
            }
            _ => {}
        }
        if !(0.0..=1.0).contains(&self.mirror) {
            return fail(format!("mirrored with probability {}: 0 to 1 is one", self.mirror));
        }
        let spread = |name: &str, values: &[f32]| {
            if values.len() != 1 && values.len() != channels {
                return Err(Error::Finish {
                    reason: format!("{} values of {name} for {channels} channels", values.len()),
                });
            }
            if let Some(value) = values.iter().find(|value| !value.is_finite()) {
                return Err(Error::Finish { reason: format!("{name} of {value}") });
            }
            let mut all = [0.0; CHANNELS];
            for (channel, slot) in all.iter_mut().enumerate().take(channels) {
                *slot = values[if values.len() == 1 { 0 } else { channel }];
            }
            Ok(all)
        };
        Ok(Prepared {
            height: height as u32,
            width: width as u32,
            channels: channels as u32,
            out_height: out_height as u32,
            out_width: out_width as u32,
            in_planar: self.input == Layout::Planar,
            out_planar: self.output == Layout::Planar,
            number: self.number,
            scale: spread("scale", &self.scale)?.map(|value| value / 65536.0),
            bias: spread("bias", &self.bias)?,
            geometry: self.geometry,
            mirror: self.mirror,
        })
    }
}

impl Prepared {
    /// The shape of a finished row.
    #[must_use]
    pub fn shape(&self) -> [usize; 3] {
        let (height, width, channels) = (self.out_height as usize, self.out_width as usize, self.channels as usize);
        if self.out_planar { [channels, height, width] } else { [height, width, channels] }
    }

    /// Bytes of a row before.
    #[must_use]
    pub fn row_bytes(&self) -> usize {
        self.height as usize * self.width as usize * self.channels as usize
    }

    /// Bytes of a row after.
    #[must_use]
    pub fn out_row_bytes(&self) -> usize {
        self.out_height as usize * self.out_width as usize * self.channels as usize * self.number.bytes()
    }

    /// The part of the sample of this seed that is taken.
    #[must_use]
    pub fn window(&self, seed: u64) -> Window {
        window::draw(self, self.geometry, self.mirror, seed)
    }

    /// Finishes one row on the host.
    ///
    /// # Errors
    /// [`Error::Finish`] if `row` or `out` has another length than [`row_bytes`](Self::row_bytes) and
    /// [`out_row_bytes`](Self::out_row_bytes).
    pub fn run(&self, row: &[u8], window: &Window, out: &mut [u8]) -> Result<()> {
        if row.len() != self.row_bytes() || out.len() != self.out_row_bytes() {
            return Err(Error::Finish {
                reason: format!(
                    "a row of {} bytes into {}: {} and {} are needed",
                    row.len(),
                    out.len(),
                    self.row_bytes(),
                    self.out_row_bytes()
                ),
            });
        }
        host::run(self, row, window, out);
        Ok(())
    }
}
