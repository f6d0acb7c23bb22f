//! Chance that can be had again: hashes of a seed and of rows.

use arrow::{
    array::{Array, AsArray, Float64Array, StringArray, StringBuilder},
    compute::cast,
    datatypes::{DataType, Float64Type, UInt64Type},
};
use datafusion::{
    common::Result as DfResult,
    logical_expr::{ColumnarValue, Signature, Volatility},
};

use super::{Scalar, array, failed, result, rows_of, shared};

pub(super) fn functions() -> Vec<Scalar> {
    let weights = vec![DataType::Float64; 2];
    vec![
        Scalar::new("row_random", Signature::any(3, Volatility::Immutable), DataType::Float64, |args, _, rows| {
            row_random(args, rows)
        }),
        Scalar::new(
            "sample_key",
            Signature::exact(weights, Volatility::Immutable),
            DataType::Float64,
            |args, _, rows| sample_key(args, rows),
        ),
        Scalar::new("split_of", Signature::variadic_any(Volatility::Immutable), DataType::Utf8, |args, _, rows| {
            split_of(args, rows)
        }),
    ]
}

/// SplitMix64's finaliser (Steele, Lea and Flood 2014): every bit of the input changes half of the output's.
fn mix(mut value: u64) -> u64 {
    value = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    value = (value ^ value >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    value = (value ^ value >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ value >> 31
}

/// A number from 0 up to 1, not included, of 53 bits.
fn unit(hash: u64) -> f64 {
    (hash >> 11) as f64 / (1_u64 << 53) as f64
}

/// `row_random(seed, call, row)`: what `random()` is.
fn row_random(arguments: &[ColumnarValue], rows: usize) -> DfResult<ColumnarValue> {
    let rows = rows_of(arguments, rows);
    let number = |argument| Ok(cast(&array(argument, rows)?, &DataType::UInt64)?);
    let arrays = arguments.iter().map(number).collect::<DfResult<Vec<_>>>()?;
    let [seed, call, row] = [0, 1, 2].map(|place| arrays[place].as_primitive::<UInt64Type>());
    let hash = |place: usize| mix(mix(mix(seed.value(place)) ^ call.value(place)) ^ row.value(place));
    result(arguments, shared(Float64Array::from_iter_values((0..rows).map(|place| unit(hash(place))))))
}

/// `sample_key(u, weight)`: the smallest keys of rows are a sample without replacement by weight (Efraimidis and
/// Spirakis 2006). Null for a weight that isn't positive.
fn sample_key(arguments: &[ColumnarValue], rows: usize) -> DfResult<ColumnarValue> {
    let rows = rows_of(arguments, rows);
    let (chance, weight) = (array(&arguments[0], rows)?, array(&arguments[1], rows)?);
    let (chance, weight) = (chance.as_primitive::<Float64Type>(), weight.as_primitive::<Float64Type>());
    let key = |place: usize| {
        let weight = weight.is_valid(place).then(|| weight.value(place)).filter(|weight| *weight > 0.0)?;
        Some(-(1.0 - chance.value(place)).ln() / weight)
    };
    result(arguments, shared((0..rows).map(key).collect::<Float64Array>()))
}

/// `split_of(identity, train, validation)`: 'train', 'validation' or 'test', in these parts, the rest being the last. It
/// follows from the identity alone, so that rows stay in their part whatever is added.
fn split_of(arguments: &[ColumnarValue], rows: usize) -> DfResult<ColumnarValue> {
    let [identity, train, validation] = arguments else {
        return Err(failed(
            "split_of takes an identity and the parts of train and validation, such as split_of(id, 0.8, 0.1)"
                .to_owned(),
        ));
    };
    let rows = rows_of(arguments, rows);
    let texts = cast(&array(identity, rows)?, &DataType::Utf8)?;
    let part = |argument| -> DfResult<f64> {
        let array = cast(&array(argument, 1)?, &DataType::Float64)?;
        let part = array.as_primitive::<Float64Type>().value(0);
        if (0.0..=1.0).contains(&part) { Ok(part) } else { Err(failed(format!("split_of: {part} is no part of 1"))) }
    };
    let (train, validation) = (part(train)?, part(validation)?);
    let texts: &StringArray = texts.as_string();
    let mut parts = StringBuilder::new();
    for row in 0..rows {
        if texts.is_null(row) {
            parts.append_null();
            continue;
        }
        let hash = blake3::hash(texts.value(row).as_bytes());
        let bytes = hash.as_bytes();
        let place =
            unit(u64::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3], bytes[4], bytes[5], bytes[6], bytes[7]]));
        parts.append_value(if place < train {
            "train"
        } else if place < train + validation {
            "validation"
        } else {
            "test"
        });
    }
    result(arguments, shared(parts.finish()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_spread_evenly() {
        let numbers: Vec<f64> = (0..10_000).map(|row| unit(mix(mix(7) ^ row))).collect();
        let mean = numbers.iter().sum::<f64>() / 10_000.0;
        assert!((mean - 0.5).abs() < 0.01, "{mean}");
        assert!(numbers.iter().all(|number| (0.0..1.0).contains(number)));
    }
}
