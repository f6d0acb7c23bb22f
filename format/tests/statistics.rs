//! Statistics never hide a row: every value is within the bounds, or is null or NaN and counted.

use std::collections::BTreeSet;

use forebay_format::*;
use proptest::{collection::vec, prelude::*};

use crate::model::{File, Row};

/// The statistics of a column of one chunk.
fn stats(column: &Column, rows: &[Row]) -> Stats {
    let file = File::write(&[(column.clone(), rows.to_vec())], 7, WriteOptions::default()).unwrap();
    let index = file.index().unwrap();
    let chunks = index.columns()[0].chunks();
    assert_eq!(chunks.len(), 1);
    chunks[0].stats.clone().unwrap()
}

fn scalar(dtype: DType) -> Column {
    let mut column = Column::new("x", dtype, vec![]).unwrap();
    column.nullable = true;
    column
}

fn row(valid: bool, bytes: &[u8]) -> Row {
    let layout_bytes = if valid { bytes.to_vec() } else { vec![0; bytes.len()] };
    Row { valid, shape: vec![], bytes: layout_bytes }
}

macro_rules! integers {
    ($test:ident, $type:ty, $dtype:expr, $bound:ident) => {
        proptest! {
            #[test]
            fn $test(values in vec((prop::bool::weighted(0.8), prop_oneof![any::<$type>(), 0..100 as $type]), 1..50)) {
                let rows: Vec<_> = values.iter().map(|(valid, value)| row(*valid, &value.to_le_bytes())).collect();
                let found = stats(&scalar($dtype), &rows);
                let valid: BTreeSet<$type> = values.iter().filter(|(valid, _)| *valid).map(|(_, value)| *value).collect();
                let nulls = values.iter().filter(|(valid, _)| !valid).count() as u32;
                let small = valid.iter().all(|value| u16::try_from(*value).is_ok());
                prop_assert_eq!(found, Stats {
                    nulls,
                    nans: None,
                    distinct: small.then_some(valid.len() as u32),
                    min: valid.first().map(|value| Bound::$bound((*value).into())),
                    max: valid.last().map(|value| Bound::$bound((*value).into())),
                });
            }
        }
    };
}

integers!(int8, i8, DType::I8, Int);
integers!(int16, i16, DType::I16, Int);
integers!(int32, i32, DType::I32, Int);
integers!(int64, i64, DType::I64, Int);
integers!(timestamps, i64, DType::Timestamp, Int);
integers!(uint8, u8, DType::U8, Uint);
integers!(uint16, u16, DType::U16, Uint);
integers!(uint32, u32, DType::U32, Uint);
integers!(uint64, u64, DType::U64, Uint);

macro_rules! floats {
    ($test:ident, $type:ident, $dtype:expr) => {
        proptest! {
            #[test]
            fn $test(values in vec((prop::bool::weighted(0.8), prop_oneof![
                4 => prop::num::$type::ANY,
                1 => prop::sample::select(vec![0.0, -0.0, $type::NAN, $type::INFINITY, $type::NEG_INFINITY]),
            ]), 1..30)) {
                let rows: Vec<_> = values.iter().map(|(valid, value)| row(*valid, &value.to_le_bytes())).collect();
                let found = stats(&scalar($dtype), &rows);
                let valid: Vec<$type> = values.iter().filter(|(valid, _)| *valid).map(|(_, value)| *value).collect();
                prop_assert_eq!(found.nulls as usize, values.len() - valid.len());
                prop_assert_eq!(found.nans, Some(valid.iter().filter(|value| value.is_nan()).count() as u32));
                let numbers: Vec<f64> = valid.iter().filter(|value| !value.is_nan()).map(|value| f64::from(*value)).collect();
                match (found.min, found.max) {
                    (None, None) => prop_assert!(numbers.is_empty()),
                    (Some(Bound::Float(min)), Some(Bound::Float(max))) => {
                        // In the total order, where -0 is less than 0.
                        prop_assert!(numbers.iter().all(|n| min.total_cmp(n).is_le() && n.total_cmp(&max).is_le()));
                        prop_assert!(numbers.contains(&min) && numbers.contains(&max));
                    }
                    other => prop_assert!(false, "{:?}", other),
                }
            }
        }
    };
}

floats!(float32, f32, DType::F32);
floats!(float64, f64, DType::F64);

proptest! {
    #[test]
    fn text(values in vec((prop::bool::weighted(0.8), prop_oneof![".{0,5}", "a{28,40}.{0,5}", "\u{10ffff}{7,9}"]), 1..30)) {
        let rows: Vec<_> = values
            .iter()
            .map(|(valid, value)| Row { valid: *valid, shape: vec![], bytes: if *valid { value.clone().into() } else { vec![] } })
            .collect();
        let found = stats(&scalar(DType::Utf8), &rows);
        let valid: Vec<&String> = values.iter().filter(|(valid, _)| *valid).map(|(_, value)| value).collect();
        prop_assert_eq!(found.nulls as usize, values.len() - valid.len());
        prop_assert_eq!(found.min.is_none(), valid.is_empty());
        if let Some(Bound::Text(min)) = &found.min {
            prop_assert!(min.len() <= 32 && valid.iter().all(|value| min <= *value));
            prop_assert!(valid.iter().any(|value| value.starts_with(min.as_str())));
        }
        if let Some(Bound::Text(max)) = &found.max {
            prop_assert!(max.len() <= 36 && valid.iter().all(|value| *value <= max));
        }
    }
}

#[test]
fn booleans_are_zero_and_one() {
    let rows: Vec<_> = [(true, 1), (false, 0), (true, 1)].iter().map(|(valid, bit)| row(*valid, &[*bit])).collect();
    let one = Some(Bound::Int(1));
    let expected = Stats { nulls: 1, nans: None, distinct: Some(1), min: one.clone(), max: one };
    assert_eq!(stats(&scalar(DType::Bool), &rows), expected);
}

#[test]
fn what_is_no_scalar_has_a_null_count_and_nothing_else() {
    let mut column = Column::new("x", DType::F32, vec![Dim::Fixed(2)]).unwrap();
    column.nullable = true;
    let rows = [row(true, &[1; 8]), row(false, &[0; 8])];
    assert_eq!(stats(&column, &rows), Stats { nulls: 1, ..Stats::default() });
}
