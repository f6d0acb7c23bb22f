//! What is done to images on their way into a batch, as `forebay.transforms` puts it into plain types.

use forebay_format::DType;
use forebay_loader::finish::{Crop, Finish, Interpolation, Layout, Number, Resize};
use pyo3::prelude::*;

use crate::error::{Error, Result};

/// The transforms of one column, fused.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Transform {
    column: String,
    /// `to` height and width, `shorter` (either), or a random `part` that becomes height by width.
    resize: Option<(String, usize, usize)>,
    /// Least and greatest area, least and greatest ratio of a random part.
    part: Option<(f64, f64, f64, f64)>,
    /// `bilinear` or `nearest-exact`; None leaves it to the column.
    interpolation: Option<String>,
    /// `center` or `random`, height and width.
    crop: Option<(String, usize, usize)>,
    mirror: f64,
    dtype: String,
    scale: Vec<f64>,
    bias: Vec<f64>,
    channels_last: bool,
}

impl Transform {
    /// The column's name and what is done to it.
    pub(crate) fn into_finish(self) -> Result<(String, Finish)> {
        let unknown = |what: &str| Error::internal(format!("transforms: {what}"));
        let resize = match self.resize {
            None => None,
            Some((kind, height, width)) => Some(match (kind.as_str(), self.part) {
                ("to", _) => Resize::To { height, width },
                ("shorter", _) => Resize::Shorter(height),
                ("part", Some((least, most, narrow, wide))) => {
                    Resize::RandomPart { height, width, area: (least, most), ratio: (narrow, wide) }
                }
                (other, _) => return Err(unknown(other)),
            }),
        };
        let interpolation = match self.interpolation.as_deref() {
            None => None,
            Some("bilinear") => Some(Interpolation::Bilinear),
            Some("nearest-exact") => Some(Interpolation::Nearest),
            Some(other) => return Err(unknown(other)),
        };
        let crop = match self.crop {
            None => None,
            Some((kind, height, width)) => Some(match kind.as_str() {
                "center" => Crop::Centre { height, width },
                "random" => Crop::Random { height, width },
                other => return Err(unknown(other)),
            }),
        };
        let number = match self.dtype.parse::<DType>()? {
            DType::U8 => Number::U8,
            DType::F16 => Number::F16,
            DType::BF16 => Number::Bf16,
            DType::F32 => Number::F32,
            other => return Err(unknown(other.name())),
        };
        let finish = Finish {
            input: None,
            output: if self.channels_last { Layout::Interleaved } else { Layout::Planar },
            number,
            scale: self.scale.into_iter().map(|value| value as f32).collect(),
            bias: self.bias.into_iter().map(|value| value as f32).collect(),
            resize,
            interpolation,
            crop,
            mirror: self.mirror,
        };
        Ok((self.column, finish))
    }
}
