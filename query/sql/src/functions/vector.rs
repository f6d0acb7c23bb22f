//! Distances between vectors: `<->`, `<=>`, `<#>`.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, AsArray, FixedSizeListArray, Float32Array, Float64Array, Float64Builder, ListBuilder},
    compute::cast,
    datatypes::{DataType, Field, Float32Type},
};
use datafusion::{
    common::{Result as DfResult, ScalarValue},
    logical_expr::{ColumnarValue, Signature, Volatility},
};

use super::{Scalar, array, failed, result, rows_of, shared};

pub(super) fn functions() -> Vec<Scalar> {
    let list = DataType::List(Arc::new(Field::new_list_field(DataType::Float64, true)));
    let floats = Signature::exact(vec![DataType::Utf8], Volatility::Immutable);
    let mut all = vec![Scalar::new(FLOATS, floats, list, |args, _, rows| unpack(args, rows))];
    all.extend(DISTANCES.into_iter().map(|Distance { name, operator, of }| {
        let two = Signature::any(2, Volatility::Immutable);
        Scalar::new(name, two, DataType::Float64, move |args, _, rows| pairwise(operator, args, rows, of))
    }));
    all
}

/// A function that compares two vectors.
#[derive(Clone, Copy)]
pub(crate) struct Distance {
    pub(crate) name: &'static str,
    operator: &'static str,
    of: fn(&[f32], &[f32]) -> f64,
}

/// All of them.
pub(crate) const DISTANCES: [Distance; 4] = [
    Distance { name: "l2_distance", operator: "<->", of: |a, b| Metric::L2.distance(a, b) },
    Distance { name: "cosine_distance", operator: "<=>", of: cosine },
    Distance { name: "inner_product", operator: "inner_product", of: dot },
    Distance { name: "negative_inner_product", operator: "<#>", of: |a, b| Metric::InnerProduct.distance(a, b) },
];

impl Distance {
    /// The distance to one vector, as a function of the other vector that goes by `name`.
    ///
    /// # Errors
    /// If `text` is not what [`packed`] gives.
    pub(crate) fn to(self, text: &str, name: String) -> DfResult<Scalar> {
        let numbers: Vec<f32> = unpacked(text)?.into_iter().map(|number| number as f32).collect();
        let item = Arc::new(Field::new_list_field(DataType::Float32, false));
        let values = shared(Float32Array::from(numbers.clone()));
        let vector = FixedSizeListArray::try_new(item, numbers.len() as i32, values, None)?;
        let vector = ColumnarValue::Scalar(ScalarValue::FixedSizeList(Arc::new(vector)));
        let one = Signature::any(1, Volatility::Immutable);
        let mut function = Scalar::new(name, one, DataType::Float64, move |args, _, rows| {
            pairwise(self.operator, &[args[0].clone(), vector.clone()], rows, self.of)
        });
        function.near = Metric::named(self.name).map(|metric| (metric, numbers.into()));
        Ok(function)
    }
}

/// The function that makes a list of doubles of [`packed`] ones.
pub(crate) const FLOATS: &str = "list_of_doubles";

/// A vector that is handed in, as a text: planners copy and print every literal many times, and text is what that costs least for.
/// Distances don't show it to the planner at all, see [`Distance::to`].
pub(crate) fn packed(doubles: &[f64]) -> String {
    // The text is short where the numbers need no more than `float32` has.
    let (prefix, digits) =
        if doubles.iter().all(|double| f64::from(*double as f32).to_bits() == double.to_bits()) { SHORT } else { LONG };
    let mut text = String::with_capacity(prefix.len() + digits * doubles.len());
    text.push_str(prefix);
    for double in doubles {
        let bits = if digits == SHORT.1 { u64::from((*double as f32).to_bits()) } else { double.to_bits() };
        text.extend((0..digits).map(|place| char::from(ZERO + ((bits >> (6 * place)) & 63) as u8)));
    }
    text
}

/// What packed vectors of `float32` and of doubles begin with, and how many digits of six bits a number has.
const SHORT: (&str, usize) = ("floats:", 6);
const LONG: (&str, usize) = ("doubles:", 11);
/// The first of the 64 digits: no quote is among them.
const ZERO: u8 = b'0';

fn unpacked(text: &str) -> DfResult<Vec<f64>> {
    let number = |digits: &[u8]| {
        digits.iter().rev().try_fold(0_u64, |bits, digit| {
            let digit = digit.checked_sub(ZERO).filter(|digit| *digit < 64)?;
            Some((bits << 6) | u64::from(digit))
        })
    };
    let digits_of = |(prefix, digits): (&str, usize)| Some(text.strip_prefix(prefix)?.as_bytes().chunks(digits));
    let found = match (digits_of(SHORT), digits_of(LONG)) {
        (Some(short), _) => short.map(|digits| Some(f64::from(f32::from_bits(number(digits)? as u32)))).collect(),
        (_, Some(long)) => long.map(|digits| Some(f64::from_bits(number(digits)?))).collect(),
        _ => None,
    };
    found.ok_or_else(|| failed("a text is no vector: an array of numbers is one".to_owned()))
}

fn unpack(arguments: &[ColumnarValue], rows: usize) -> DfResult<ColumnarValue> {
    let rows = rows_of(arguments, rows);
    let lists = array(&arguments[0], rows)?;
    let mut made = ListBuilder::new(Float64Builder::new());
    for text in lists.as_string::<i32>() {
        made.values().append_slice(&text.map(unpacked).transpose()?.unwrap_or_default());
        made.append(text.is_some());
    }
    result(arguments, shared(made.finish()))
}

/// How far vectors are from each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Metric {
    L2,
    Cosine,
    InnerProduct,
}

impl Metric {
    /// The one that a function computes.
    pub(crate) fn named(function: &str) -> Option<Self> {
        match function {
            "l2_distance" => Some(Self::L2),
            "cosine_distance" => Some(Self::Cosine),
            "negative_inner_product" => Some(Self::InnerProduct),
            _ => None,
        }
    }

    /// The distance, smaller being nearer.
    pub(crate) fn distance(self, a: &[f32], b: &[f32]) -> f64 {
        match self {
            Self::L2 => squared_distance(a, b).sqrt(),
            Self::Cosine => cosine(a, b),
            Self::InnerProduct => -dot(a, b),
        }
    }
}

/// The numbers of one vector, as `float32`; none if it is null, or none.
pub(crate) fn numbers_of(value: &ScalarValue) -> Option<ArrayRef> {
    let lists = Vectors::of("", &ColumnarValue::Scalar(value.clone()), 1).ok()?;
    (!lists.is_null(0)).then_some(lists.values)
}

/// Sums that run side by side, so that the compiler uses vector registers.
const LANES: usize = 16;

#[inline]
fn summed(a: &[f32], b: &[f32], term: impl Fn(f32, f32) -> f32 + Copy) -> f64 {
    let mut sums = [0_f32; LANES];
    let (whole, rest) = (a.chunks_exact(LANES), a.chunks_exact(LANES).remainder());
    for (a, b) in whole.zip(b.chunks_exact(LANES)) {
        for lane in 0..LANES {
            sums[lane] += term(a[lane], b[lane]);
        }
    }
    let tail = &b[b.len() - rest.len()..];
    let rest: f32 = rest.iter().zip(tail).map(|(a, b)| term(*a, *b)).sum();
    sums.iter().map(|sum| f64::from(*sum)).sum::<f64>() + f64::from(rest)
}

/// The square of the Euclidean distance.
fn squared_distance(a: &[f32], b: &[f32]) -> f64 {
    summed(a, b, |a, b| (a - b) * (a - b))
}

/// The inner product.
fn dot(a: &[f32], b: &[f32]) -> f64 {
    summed(a, b, |a, b| a * b)
}

/// 1 minus the cosine of the angle; NaN if a vector is all zeros.
fn cosine(a: &[f32], b: &[f32]) -> f64 {
    1.0 - dot(a, b) / (dot(a, a).sqrt() * dot(b, b).sqrt())
}

/// Rows of vectors, all of one length, or one vector for all rows.
struct Vectors {
    values: ArrayRef,
    length: usize,
    nulls: Option<arrow::buffer::NullBuffer>,
    constant: bool,
}

impl Vectors {
    fn of(operator: &str, argument: &ColumnarValue, rows: usize) -> DfResult<Self> {
        let constant = matches!(argument, ColumnarValue::Scalar(_));
        let lists = array(argument, if constant { 1 } else { rows })?;
        let fail = |what: &DataType| failed(format!("{operator} takes vectors, not {what}"));
        let (values, length): (ArrayRef, usize) = match lists.data_type() {
            DataType::FixedSizeList(_, length) => {
                let list = lists.as_fixed_size_list();
                let start = list.value_offset(0) as usize;
                (list.values().slice(start, lists.len() * *length as usize), *length as usize)
            }
            DataType::List(_) | DataType::LargeList(_) if !lists.is_empty() => {
                let item = Arc::new(Field::new_list_field(DataType::Float32, true));
                let large = cast(&lists, &DataType::LargeList(item.clone()))?;
                let list = large.as_list::<i64>();
                let lengths: Vec<i32> = (0..list.len())
                    .filter(|row| list.is_valid(*row))
                    .map(|row| list.value_length(row) as i32)
                    .collect();
                let length = lengths.first().copied().unwrap_or(0);
                if lengths.iter().any(|other| *other != length) {
                    return Err(failed(format!("{operator}: vectors of one column have different lengths")));
                }
                let fixed = cast(&large, &DataType::FixedSizeList(item, length))?;
                let nulls = fixed.nulls().cloned();
                let values = fixed.as_fixed_size_list().values().clone();
                return Ok(Self { values, length: length as usize, nulls, constant });
            }
            DataType::List(_) | DataType::LargeList(_) => (arrow::array::new_empty_array(&DataType::Float32), 0),
            DataType::Null => {
                let nulls = Some(arrow::buffer::NullBuffer::new_null(lists.len()));
                return Ok(Self {
                    values: arrow::array::new_empty_array(&DataType::Float32),
                    length: 0,
                    nulls,
                    constant,
                });
            }
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {
                return Err(failed(format!("{operator}: a text is no vector: an array of numbers is one")));
            }
            other => return Err(fail(other)),
        };
        if !values.data_type().is_numeric() {
            return Err(fail(lists.data_type()));
        }
        let values = if *values.data_type() == DataType::Float32 { values } else { cast(&values, &DataType::Float32)? };
        Ok(Self { values, length, nulls: lists.nulls().cloned(), constant })
    }

    fn place(&self, row: usize) -> usize {
        if self.constant { 0 } else { row }
    }

    fn is_null(&self, row: usize) -> bool {
        self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(self.place(row)))
    }
}

fn pairwise(
    operator: &str,
    arguments: &[ColumnarValue],
    rows: usize,
    distance: impl Fn(&[f32], &[f32]) -> f64,
) -> DfResult<ColumnarValue> {
    let rows = rows_of(arguments, rows);
    let (left, right) = (Vectors::of(operator, &arguments[0], rows)?, Vectors::of(operator, &arguments[1], rows)?);
    let unknown = |vectors: &Vectors| vectors.constant && vectors.is_null(0);
    if unknown(&left) || unknown(&right) || rows == 0 {
        return if rows == 0 {
            Ok(ColumnarValue::Array(shared(Float64Array::from(Vec::<f64>::new()))))
        } else {
            Ok(ColumnarValue::Scalar(ScalarValue::Float64(None)))
        };
    }
    if left.length != right.length {
        return Err(failed(format!(
            "{operator}: vectors of {} and {} numbers have no distance",
            left.length, right.length
        )));
    }
    let length = left.length;
    let (a, b) =
        (left.values.as_primitive::<Float32Type>().values(), right.values.as_primitive::<Float32Type>().values());
    let at = |vectors: &Vectors, row: usize| vectors.place(row) * length..(vectors.place(row) + 1) * length;
    let value = |row: usize| {
        (!left.is_null(row) && !right.is_null(row)).then(|| distance(&a[at(&left, row)], &b[at(&right, row)]))
    };
    result(arguments, shared((0..rows).map(value).collect::<Float64Array>()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_vectors_are_what_was_packed() {
        let bits = |numbers: &[f64]| numbers.iter().map(|number| number.to_bits()).collect::<Vec<_>>();
        for numbers in
            [&[1.0, f64::NAN, -0.0, f64::MIN_POSITIVE, f64::NEG_INFINITY][..], &[0.5, -0.0, f64::INFINITY], &[0.1], &[]]
        {
            assert_eq!(bits(&unpacked(&packed(numbers)).unwrap_or_default()), bits(numbers));
        }
        assert!(packed(&[0.5; 100]).len() < packed(&[0.1; 100]).len());
        assert!(unpacked("doubles:é").is_err() && unpacked("floats:    ").is_err() && unpacked("[1, 2]").is_err());
    }

    #[test]
    fn distances_are_those_of_plain_loops() {
        for length in [0, 1, 15, 16, 17, 100] {
            let a: Vec<f32> = (0..length).map(|i| i as f32 * 0.5 - 3.0).collect();
            let b: Vec<f32> = (0..length).map(|i| 1.0 / (1.0 + i as f32)).collect();
            let plain: f64 = a.iter().zip(&b).map(|(a, b)| f64::from(a - b).powi(2)).sum();
            assert!((squared_distance(&a, &b) - plain).abs() <= 1e-3 * plain.abs().max(1.0), "{length}");
            let plain: f64 = a.iter().zip(&b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
            assert!((dot(&a, &b) - plain).abs() <= 1e-3 * plain.abs().max(1.0), "{length}");
        }
    }
}
