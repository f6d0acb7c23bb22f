//! A finish that was fitted to a column.

use forebay_format::{Column, DType, Dim};

use super::{CHANNELS, Crop, Finish, Interpolation, LONGEST, Layout, Number, Resize, Scratch, Window, host, window};
use crate::{Error, Result};

/// A [`Finish`] that was fitted to the rows of a column.
#[derive(Clone, Debug, PartialEq)]
pub struct Prepared {
    column: String,
    pub(super) finish: Finish,
    input: Layout,
    interpolation: Interpolation,
    /// Height and width of every row; `None` if each has its own.
    size: Option<[u32; 2]>,
    channels: u32,
    out: [u32; 2],
    /// Divided by 65536, the unit of blended values.
    scale: [f32; CHANNELS],
    bias: [f32; CHANNELS],
}

impl Finish {
    /// Fits it to the rows of `column`: images of u8, `[height, width, channels]` or `[channels, height, width]`, or
    /// `[height, width]`. Heights and widths may be free if they are resized to one size.
    ///
    /// # Errors
    /// [`Error::Finish`] names what doesn't fit.
    pub fn prepare(&self, column: &Column) -> Result<Prepared> {
        let error = |reason: String| Error::Finish { column: column.name.clone(), reason };
        let fail = |reason: String| Err(error(reason));
        if column.dtype != DType::U8 {
            return fail(format!("its rows are {}; images of uint8 are needed", column.dtype.name()));
        }
        if column.nullable {
            return fail("its rows may be null; there is nothing to make of a null".to_owned());
        }
        let input = match self.input.or_else(|| layout_of(column)) {
            Some(input) => input,
            None => return fail(shape_error(&column.shape)),
        };
        let (height, width, channels) = match (column.shape.as_slice(), input) {
            (&[height, width], _) => (height, width, Dim::Fixed(1)),
            (&[height, width, channels], Layout::Interleaved) => (height, width, channels),
            (&[channels, height, width], Layout::Planar) => (height, width, channels),
            _ => return fail(shape_error(&column.shape)),
        };
        let channels = match channels {
            Dim::Fixed(channels) if (1..=CHANNELS as u32).contains(&channels) => channels,
            Dim::Fixed(channels) => return fail(format!("{channels} channels: 1 to {CHANNELS} are supported")),
            Dim::Free => return fail("the number of its channels is not fixed".to_owned()),
        };
        let size = match (height, width) {
            (Dim::Fixed(height), Dim::Fixed(width)) => Some([height, width]),
            _ => None,
        };
        if let Some(reason) = self.odd() {
            return fail(reason);
        }
        let out = self.output_size(size).map_err(error)?;
        let spread = |name: &str, values: &[f32]| {
            if values.len() != 1 && values.len() != channels as usize {
                return Err(format!("{} values of {name} for {channels} channels", values.len()));
            }
            if let Some(value) = values.iter().find(|value| !value.is_finite()) {
                return Err(format!("{name} of {value}"));
            }
            let mut all = [0.0; CHANNELS];
            for (channel, slot) in all.iter_mut().enumerate().take(channels as usize) {
                *slot = values[if values.len() == 1 { 0 } else { channel }];
            }
            Ok(all)
        };
        Ok(Prepared {
            column: column.name.clone(),
            input,
            interpolation: self.interpolation.unwrap_or_else(|| interpolation_of(column)),
            size,
            channels,
            out,
            scale: spread("scale", &self.scale).map_err(error)?.map(|value| value / 65536.0),
            bias: spread("bias", &self.bias).map_err(error)?,
            finish: self.clone(),
        })
    }

    /// What makes no sense for any column.
    fn odd(&self) -> Option<String> {
        if let Some(Resize::RandomPart { area, ratio, .. }) = self.resize {
            if !(area.0 > 0.0 && area.0 <= area.1 && area.1 <= 1.0) {
                return Some(format!("a scale of {area:?}: two shares of the image, above 0, ascending, are needed"));
            }
            if !(ratio.0 > 0.0 && ratio.0 <= ratio.1 && ratio.1.is_finite()) {
                return Some(format!("a ratio of {ratio:?}: two ratios above 0, ascending, are needed"));
            }
        }
        if !(0.0..=1.0).contains(&self.mirror) {
            return Some(format!("mirrored with probability {}: 0 to 1 is one", self.mirror));
        }
        None
    }

    /// Height and width of the result.
    fn output_size(&self, size: Option<[u32; 2]>) -> Result<[u32; 2], String> {
        let check = |what: &str, height: usize, width: usize| {
            if [height, width].iter().any(|side| *side == 0 || *side > LONGEST) {
                return Err(format!("{what} of {height} x {width}: sides are 1 to {LONGEST} pixels"));
            }
            Ok([height as u32, width as u32])
        };
        if let Some([height, width]) = size {
            check("an image", height as usize, width as usize)?;
        }
        // What a crop must fit in; of an image whose size isn't known, at least this much is there.
        let (resized, known) = match self.resize {
            Some(Resize::To { height, width } | Resize::RandomPart { height, width, .. }) => {
                (check("a result", height, width)?, true)
            }
            Some(Resize::Shorter(side)) => {
                check("a result", side, side)?;
                match size {
                    Some(size) => {
                        let [height, width] = window::shorter(size, side as u32);
                        (check("a result", height as usize, width as usize)?, true)
                    }
                    None => ([side as u32; 2], false),
                }
            }
            None => match size {
                Some(size) => (size, true),
                None => return Err("its rows have sizes of their own: resize them to one".to_owned()),
            },
        };
        match self.crop {
            Some(Crop::Centre { height, width } | Crop::Random { height, width }) => {
                let crop = check("a crop", height, width)?;
                if crop[0] > resized[0] || crop[1] > resized[1] {
                    let [has, had] = resized;
                    return Err(format!("a crop of {height} x {width} is larger than the image of {has} x {had}"));
                }
                Ok(crop)
            }
            None if known => Ok(resized),
            None => Err("its rows have sizes of their own: crop them to one size once they are resized".to_owned()),
        }
    }
}

fn shape_error(shape: &[Dim]) -> String {
    let dims: Vec<_> = shape
        .iter()
        .map(|dim| match dim {
            Dim::Fixed(length) => length.to_string(),
            Dim::Free => "?".to_owned(),
        })
        .collect();
    let dims = dims.join(", ");
    match shape.len() {
        2 | 3 => {
            format!("rows of shape [{dims}] could be of either layout: say in the schema which, [H, W, C] or [C, H, W]")
        }
        _ => format!("rows of shape [{dims}] are no images of two or three dimensions"),
    }
}

/// Where the channels of a column's images are, if the column says so.
fn layout_of(column: &Column) -> Option<Layout> {
    match column.kind.metadata.get("layout").map(String::as_str) {
        Some("HWC") => return Some(Layout::Interleaved),
        Some("CHW") => return Some(Layout::Planar),
        _ => {}
    }
    let like_channels = |dim: Dim| matches!(dim, Dim::Fixed(1 | 3 | 4));
    match column.shape.as_slice() {
        [_, _] => Some(Layout::Interleaved),
        [first, _, last] => match (like_channels(*first), like_channels(*last)) {
            (false, true) => Some(Layout::Interleaved),
            (true, false) => Some(Layout::Planar),
            _ => None,
        },
        _ => None,
    }
}

/// How a column's images are resized, if nobody says so.
fn interpolation_of(column: &Column) -> Interpolation {
    if column.kind.name == "mask" { Interpolation::Nearest } else { Interpolation::Bilinear }
}

impl Prepared {
    /// The numbers of the result.
    #[must_use]
    pub fn number(&self) -> Number {
        self.finish.number
    }

    /// The layout of the rows.
    #[must_use]
    pub fn input(&self) -> Layout {
        self.input
    }

    /// Of what pixels are made.
    #[must_use]
    pub fn interpolation(&self) -> Interpolation {
        self.interpolation
    }

    /// The layout of the result.
    #[must_use]
    pub fn output(&self) -> Layout {
        self.finish.output
    }

    /// The channels of an image.
    #[must_use]
    pub fn channels(&self) -> u32 {
        self.channels
    }

    /// Height and width of the rows; `None` if each has its own.
    #[must_use]
    pub fn size(&self) -> Option<[u32; 2]> {
        self.size
    }

    /// Height and width of the result.
    #[must_use]
    pub fn out_size(&self) -> [u32; 2] {
        self.out
    }

    /// The factor of each channel for values in 1/65536, as they are blended.
    #[must_use]
    pub fn scale(&self) -> &[f32; CHANNELS] {
        &self.scale
    }

    /// What is added to each channel.
    #[must_use]
    pub fn bias(&self) -> &[f32; CHANNELS] {
        &self.bias
    }

    /// The shape of a finished row.
    #[must_use]
    pub fn shape(&self) -> [usize; 3] {
        let ([height, width], channels) = (self.out.map(|side| side as usize), self.channels as usize);
        match self.finish.output {
            Layout::Planar => [channels, height, width],
            Layout::Interleaved => [height, width, channels],
        }
    }

    /// Bytes of a row before, whose window this is.
    #[must_use]
    pub fn row_bytes(&self, window: &Window) -> usize {
        window.size.iter().map(|side| *side as usize).product::<usize>() * self.channels as usize
    }

    /// Bytes of a finished row.
    #[must_use]
    pub fn out_row_bytes(&self) -> usize {
        self.shape().iter().product::<usize>() * self.finish.number.bytes()
    }

    /// Height and width of a row of this shape, for rows of sizes of their own.
    #[must_use]
    pub fn size_of(&self, shape: &[u32]) -> [u32; 2] {
        match (shape, self.input) {
            (&[_, height, width], Layout::Planar) | (&[height, width, ..], _) => [height, width],
            _ => [0, 0],
        }
    }

    /// The part that is taken of the sample of this seed, whose image has this height and width.
    ///
    /// # Errors
    /// [`Error::Finish`] for an image without pixels or with too many.
    pub fn window(&self, seed: u64, size: [u32; 2]) -> Result<Window> {
        if size.iter().any(|side| *side == 0 || *side as usize > LONGEST) {
            let [height, width] = size;
            return Err(self.error(format!("a row is {height} x {width}: sides are 1 to {LONGEST} pixels")));
        }
        let window = window::draw(self, size, seed);
        window.ok_or_else(|| self.error(format!("an image of {size:?} becomes longer than {LONGEST} pixels")))
    }

    /// Whether a window's part lies in its image, and every pixel of the result in the part. Those of [`window`](Self::window) do.
    #[must_use]
    pub fn fits(&self, window: &Window) -> bool {
        (0..2).all(|axis| {
            let end = window.corner[axis].checked_add(window.part[axis]);
            let resized = u64::from(window.skip[axis]) + u64::from(self.out[axis]);
            let last = resized.checked_mul(window.step[axis]);
            window.part[axis] > 0
                && end.is_some_and(|end| end <= window.size[axis])
                && last.is_some_and(|last| last <= (u64::from(window.part[axis]) << 32) + resized)
        })
    }

    /// Finishes one row on the host. The scratch memory may be used for any rows of this finish.
    ///
    /// # Errors
    /// [`Error::Finish`] if `row` or `out` has another length than the window's image and
    /// [`out_row_bytes`](Self::out_row_bytes).
    pub fn run(&self, row: &[u8], window: &Window, out: &mut [u8], scratch: &mut Scratch) -> Result<()> {
        let needed = self.row_bytes(window);
        if row.len() != needed || out.len() != self.out_row_bytes() || !self.fits(window) {
            let (row, out, becomes) = (row.len(), out.len(), self.out_row_bytes());
            return Err(self.error(format!("a row of {row} bytes into {out}: {needed} and {becomes} are needed")));
        }
        host::run(self, row, window, out, scratch);
        Ok(())
    }

    fn error(&self, reason: String) -> Error {
        Error::Finish { column: self.column.clone(), reason }
    }
}
