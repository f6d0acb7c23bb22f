//! Values of rows, for showing: small ones whole, large ones summarised.

use forebay_format::{Bitmap, Column, ColumnData, DType, Dim, Link, OwnedValues};
use serde_json::{Value, json};

use crate::{Error, Result, human};

/// The most elements of a tensor that are shown one by one.
const FEW: usize = 8;

/// Every row of `data` as JSON. A large tensor is an object with its dtype, shape, min, max and mean; encoded bytes are
/// one with their length and the shape of what is in them, a link one with its URL, size and checks.
///
/// # Errors
/// [`Error::Unexpected`] if `data` isn't what `column` says.
pub(crate) fn rows(column: &Column, data: &ColumnData) -> Result<Vec<Value>> {
    let validity = data.validity.as_deref().map(Bitmap);
    let null = |row| validity.is_some_and(|validity| !validity.get(row));
    let unexpected = |found| Error::Unexpected { column: column.name.clone(), found };
    match &data.values {
        OwnedValues::Fixed(bytes) => {
            let item = column.dtype.item_size().ok_or_else(|| unexpected("rows of fixed size"))?;
            let shape: Vec<u32> = column
                .shape
                .iter()
                .filter_map(|dim| match dim {
                    Dim::Fixed(length) => Some(*length),
                    Dim::Free => None,
                })
                .collect();
            let size = shape.iter().fold(item, |size, length| size * *length as usize);
            if bytes.len() != size * data.rows {
                return Err(unexpected("another number of bytes"));
            }
            let row = |row: usize| tensor(column.dtype, &shape, &bytes[row * size..(row + 1) * size]);
            Ok((0..data.rows).map(|at| if null(at) { Value::Null } else { row(at) }).collect())
        }
        OwnedValues::Ragged { offsets, shapes, bytes } => {
            if offsets.len() != data.rows + 1 {
                return Err(unexpected("another number of rows"));
            }
            let rank = shapes.len().checked_div(data.rows).unwrap_or(0);
            (0..data.rows)
                .map(|row| {
                    let value = bytes.get(offsets[row] as usize..offsets[row + 1] as usize);
                    let value = value.ok_or_else(|| unexpected("offsets past its bytes"))?;
                    let shape = &shapes[row * rank..(row + 1) * rank];
                    Ok(match column.dtype {
                        _ if null(row) => Value::Null,
                        DType::Utf8 => json!(String::from_utf8_lossy(value)),
                        DType::Json => {
                            serde_json::from_slice(value).unwrap_or_else(|_| json!(String::from_utf8_lossy(value)))
                        }
                        DType::Link => link(column, value),
                        DType::Bytes if shape.is_empty() => json!({ "bytes": value.len() }),
                        DType::Bytes => json!({ "bytes": value.len(), "shape": shape }),
                        dtype => tensor(dtype, shape, value),
                    })
                })
                .collect()
        }
    }
}

/// A link as an object of its parts.
fn link(column: &Column, value: &[u8]) -> Value {
    let Ok(link) = Link::decode(value) else { return json!({ "bytes": value.len() }) };
    let link = column.link_base().map_or(link.clone(), |base| link.below(base));
    let part = link.part.as_ref().map(|part| [part.start, part.end]);
    json!({ "url": link.url, "size": link.size, "range": part, "etag": link.etag, "hash": link.hash_text() })
}

/// A value of [`rows`] as text of a line.
pub(crate) fn text(value: &Value) -> String {
    match value {
        Value::String(text) => human::shortened(text, 60),
        Value::Object(summary) if summary.contains_key("mean") => {
            let part = |key: &str| summary.get(key).map_or_else(String::new, text);
            let shape = summary.get("shape").map_or_else(String::new, ToString::to_string);
            format!("{}{shape} {}..{} mean {}", part("dtype"), part("min"), part("max"), part("mean"))
        }
        Value::Object(link) if link.contains_key("url") => {
            let size = human::bytes(link.get("size").and_then(Value::as_u64).unwrap_or(0));
            format!("{} {size}", link.get("url").map_or_else(String::new, text))
        }
        Value::Object(blob) if blob.contains_key("bytes") => {
            let size = human::bytes(blob.get("bytes").and_then(Value::as_u64).unwrap_or(0));
            blob.get("shape").map_or_else(|| size.clone(), |shape| format!("{size} {shape}"))
        }
        Value::Number(number) if number.is_f64() => {
            let number = number.as_f64().unwrap_or(f64::NAN);
            format!("{}", (number * 1e4).round() / 1e4)
        }
        Value::Null => "null".to_owned(),
        other => human::shortened(&other.to_string(), 60),
    }
}

fn tensor(dtype: DType, shape: &[u32], bytes: &[u8]) -> Value {
    let size = dtype.item_size().unwrap_or(1);
    let items = bytes.chunks_exact(size).map(|bytes| item(dtype, bytes));
    if shape.is_empty() {
        return items.map(json).next().unwrap_or(Value::Null);
    }
    if bytes.len() / size <= FEW {
        return nested(shape, &items.map(json).collect::<Vec<_>>());
    }
    let mut summary = json!({ "dtype": dtype.name(), "shape": shape });
    if let Some((min, max, mean)) = statistics(items) {
        summary["min"] = json(min);
        summary["max"] = json(max);
        summary["mean"] = json(Item::Float(mean));
    }
    summary
}

/// Flat values as lists in lists.
fn nested(shape: &[u32], values: &[Value]) -> Value {
    match shape {
        [] => values.first().cloned().unwrap_or(Value::Null),
        [_] => Value::Array(values.to_vec()),
        [outer, inner @ ..] => {
            let size: usize = inner.iter().map(|length| *length as usize).product();
            let part = |at: usize| nested(inner, values.get(at * size..(at + 1) * size).unwrap_or(&[]));
            Value::Array((0..*outer as usize).map(part).collect())
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Item {
    Bool(bool),
    Int(i128),
    Float(f64),
    Time(i64),
}

impl Item {
    fn number(self) -> f64 {
        match self {
            Self::Bool(value) => f64::from(u8::from(value)),
            Self::Int(value) => value as f64,
            Self::Float(value) => value,
            Self::Time(value) => value as f64,
        }
    }
}

/// The smallest, the largest and the mean of what isn't NaN.
fn statistics(items: impl Iterator<Item = Item>) -> Option<(Item, Item, f64)> {
    let mut found: Option<(Item, Item)> = None;
    let (mut sum, mut count) = (0.0, 0_u64);
    for item in items.filter(|item| !item.number().is_nan()) {
        let (min, max) = found.unwrap_or((item, item));
        let min = if item.number() < min.number() { item } else { min };
        let max = if item.number() > max.number() { item } else { max };
        found = Some((min, max));
        sum += item.number();
        count += 1;
    }
    found.map(|(min, max)| (min, max, sum / count as f64))
}

fn json(item: Item) -> Value {
    match item {
        Item::Bool(value) => json!(value),
        Item::Int(value) => i64::try_from(value).map_or_else(|_| json!(value as u64), |value| json!(value)),
        // JSON has no such numbers.
        Item::Float(value) if !value.is_finite() => json!(value.to_string()),
        Item::Float(value) => json!(value),
        Item::Time(value) => json!(human::time(value)),
    }
}

/// One little-endian element. `bytes` are as many as the dtype has.
fn item(dtype: DType, bytes: &[u8]) -> Item {
    let mut wide = [0; 8];
    wide[..bytes.len().min(8)].copy_from_slice(&bytes[..bytes.len().min(8)]);
    let bits = u64::from_le_bytes(wide);
    let signed = |width: u32| i128::from((bits << (64 - width)).cast_signed() >> (64 - width));
    match dtype {
        DType::Bool => Item::Bool(bits != 0),
        DType::I8 => Item::Int(signed(8)),
        DType::I16 => Item::Int(signed(16)),
        DType::I32 => Item::Int(signed(32)),
        DType::I64 => Item::Int(signed(64)),
        DType::F16 => Item::Float(small_float(bits, 5, 10, Special::Infinities)),
        DType::BF16 => Item::Float(f64::from(f32::from_bits((bits as u32) << 16))),
        DType::F32 => Item::Float(f64::from(f32::from_bits(bits as u32))),
        DType::F64 => Item::Float(f64::from_bits(bits)),
        DType::F8E4M3 => Item::Float(small_float(bits, 4, 3, Special::OneNan)),
        DType::F8E5M2 => Item::Float(small_float(bits, 5, 2, Special::Infinities)),
        DType::Timestamp => Item::Time(bits.cast_signed()),
        _ => Item::Int(i128::from(bits)),
    }
}

/// What the largest exponent of a float means.
#[derive(Clone, Copy, PartialEq)]
enum Special {
    /// Infinity, or NaN with a fraction: IEEE 754.
    Infinities,
    /// Ordinary numbers, but for NaN where the fraction is all ones.
    OneNan,
}

fn small_float(bits: u64, exponent_bits: u32, fraction_bits: u32, special: Special) -> f64 {
    let fraction = bits & ((1 << fraction_bits) - 1);
    let all_ones = (1 << exponent_bits) - 1;
    let exponent = bits >> fraction_bits & all_ones;
    let sign = if bits >> (exponent_bits + fraction_bits) & 1 == 1 { -1.0 } else { 1.0 };
    let bias = (1_i32 << (exponent_bits - 1)) - 1;
    let unit = 2_f64.powi(-fraction_bits.cast_signed());
    match (exponent == all_ones, special) {
        (true, Special::Infinities) if fraction == 0 => return sign * f64::INFINITY,
        (true, Special::Infinities) => return f64::NAN,
        (true, Special::OneNan) if fraction == (1 << fraction_bits) - 1 => return f64::NAN,
        _ => {}
    }
    match exponent {
        0 => sign * fraction as f64 * unit * 2_f64.powi(1 - bias),
        _ => sign * (1.0 + fraction as f64 * unit) * 2_f64.powi(exponent as i32 - bias),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::{DType, Item, item, rows, text};
    use forebay_format::{Column, ColumnData, Dim, OwnedValues};
    use serde_json::json;

    fn fixed(dtype: DType, shape: &[u32], rows: usize, bytes: Vec<u8>) -> (Column, ColumnData) {
        let dims: Vec<_> = shape.iter().map(|length| Dim::Fixed(*length)).collect();
        (Column::new("c", dtype, dims).unwrap(), ColumnData { rows, values: OwnedValues::Fixed(bytes), validity: None })
    }

    #[test]
    fn floats_of_every_width_have_their_value() {
        let cases: [(DType, &[u8], f64); 10] = [
            (DType::F16, &[0x00, 0x3c], 1.0),
            (DType::F16, &[0x01, 0x00], 2_f64.powi(-24)),
            (DType::F16, &[0xff, 0x7b], 65_504.0),
            (DType::F16, &[0x00, 0xfc], f64::NEG_INFINITY),
            (DType::BF16, &[0x80, 0x3f], 1.0),
            (DType::F8E4M3, &[0x7e], 448.0),
            (DType::F8E4M3, &[0x01], 2_f64.powi(-9)),
            (DType::F8E5M2, &[0x7b], 57_344.0),
            (DType::F8E5M2, &[0xfc], f64::NEG_INFINITY),
            (DType::F32, &[0, 0, 0x20, 0xc1], -10.0),
        ];
        for (dtype, bytes, value) in cases {
            assert_eq!(item(dtype, bytes), Item::Float(value), "{dtype}");
        }
        assert!(item(DType::F8E4M3, &[0xff]).number().is_nan() && item(DType::F16, &[1, 0x7c]).number().is_nan());
    }

    #[test]
    fn whole_numbers_keep_their_sign_and_all_their_digits() {
        assert_eq!(item(DType::I8, &[0xff]), Item::Int(-1));
        assert_eq!(item(DType::U8, &[0xff]), Item::Int(255));
        let (column, data) = fixed(DType::U64, &[], 1, u64::MAX.to_le_bytes().to_vec());
        assert_eq!(rows(&column, &data).unwrap(), [json!(u64::MAX)]);
    }

    #[test]
    fn few_values_are_shown_and_many_are_summarised() {
        let (column, data) = fixed(DType::U8, &[2, 2], 2, vec![1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(rows(&column, &data).unwrap(), [json!([[1, 2], [3, 4]]), json!([[5, 6], [7, 8]])]);
        let (column, data) = fixed(DType::U8, &[3, 4], 1, (0..12).collect());
        let values = rows(&column, &data).unwrap();
        assert_eq!(values, [json!({"dtype": "uint8", "shape": [3, 4], "min": 0, "max": 11, "mean": 5.5})]);
        assert_eq!(text(&values[0]), "uint8[3,4] 0..11 mean 5.5");
    }

    #[test]
    fn nan_hides_nothing_and_nulls_are_null() {
        let (mut column, mut data) = fixed(DType::F32, &[10], 2, vec![0; 80]);
        if let OwnedValues::Fixed(bytes) = &mut data.values {
            bytes[..4].copy_from_slice(&f32::NAN.to_le_bytes());
            bytes[4..8].copy_from_slice(&2_f32.to_le_bytes());
        }
        column.nullable = true;
        data.validity = Some(vec![0b01]);
        let values = rows(&column, &data).unwrap();
        assert_eq!((&values[0]["min"], &values[0]["max"], &values[1]), (&json!(0.0), &json!(2.0), &json!(null)));
    }

    #[test]
    fn text_and_bytes_are_shown_as_what_they_are() {
        let values = |shapes| OwnedValues::Ragged { offsets: vec![0, 2, 3], shapes, bytes: b"abc".to_vec() };
        let column = Column::new("c", DType::Utf8, []).unwrap();
        let data = ColumnData { rows: 2, values: values(vec![]), validity: None };
        assert_eq!(rows(&column, &data).unwrap(), [json!("ab"), json!("c")]);
        let column = Column::new("c", DType::Bytes, []).unwrap();
        let data = ColumnData { rows: 2, values: values(vec![4, 5, 3, 1, 1, 1]), validity: None };
        let values = rows(&column, &data).unwrap();
        assert_eq!(values[0], json!({"bytes": 2, "shape": [4, 5, 3]}));
        assert_eq!(text(&values[0]), "2 B [4,5,3]");
    }
}
