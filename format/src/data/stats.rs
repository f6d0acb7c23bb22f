//! What is known of the values of a chunk, so that a filter can pass it over without reading it.

use std::cmp::Ordering;

use crate::{Bitmap, DType, Values};

/// A bound of the values of a chunk, in the widest type of its kind.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Bound {
    /// Of signed integers, booleans (0 and 1) and timestamps (microseconds).
    Int(i64),
    /// Of unsigned integers.
    Uint(u64),
    /// Of `float32` and `float64`; never NaN.
    Float(f64),
    /// Of text: by bytes. It may be shorter than every value, and is then still a bound.
    Text(String),
}

/// Bounds of one kind are ordered as the values; those of different kinds are not.
impl PartialOrd for Bound {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Int(a), Self::Int(b)) => a.partial_cmp(b),
            (Self::Uint(a), Self::Uint(b)) => a.partial_cmp(b),
            (Self::Float(a), Self::Float(b)) => a.partial_cmp(b),
            (Self::Text(a), Self::Text(b)) => a.partial_cmp(b),
            _ => None,
        }
    }
}

/// What is known of the values of a chunk. What is `None` is unknown, and must not prune.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Stats {
    /// Null rows. All other statistics leave them out.
    pub nulls: u32,
    /// NaN values, which lie outside the bounds.
    pub nans: Option<u32>,
    /// Distinct values, when all are integers from 0 to 65,535.
    pub distinct: Option<u32>,
    /// No value that is neither null nor NaN is less.
    pub min: Option<Bound>,
    /// No value that is neither null nor NaN is greater.
    pub max: Option<Bound>,
}

/// The most bytes that a bound of text takes in the index.
const TEXT: usize = 32;
/// Distinct values are counted below this.
const DISTINCT: u64 = 1 << 16;

/// Gathers the statistics of the open chunk of a column.
#[derive(Debug)]
pub(crate) struct Gatherer {
    dtype: DType,
    seen: Seen,
    /// One bit for each of the integers from 0 to 65,535; `None` once there was another.
    distinct: Option<Vec<u64>>,
}

#[derive(Debug)]
enum Seen {
    /// Nothing is gathered of such columns: the values are only passed through.
    Nothing,
    Ints(Option<(i64, i64)>),
    Uints(Option<(u64, u64)>),
    Floats(Option<(f64, f64)>, u32),
    Texts(Option<(Vec<u8>, Vec<u8>)>),
}

impl Gatherer {
    /// For rows of this dtype; `scalar` if a row is one value.
    pub(crate) fn new(dtype: DType, scalar: bool) -> Self {
        use DType::{Bool, F32, F64, I8, I16, I32, I64, Timestamp, U8, U16, U32, U64, Utf8};
        let seen = match dtype {
            _ if !scalar => Seen::Nothing,
            Bool | I8 | I16 | I32 | I64 | Timestamp => Seen::Ints(None),
            U8 | U16 | U32 | U64 => Seen::Uints(None),
            F32 | F64 => Seen::Floats(None, 0),
            Utf8 => Seen::Texts(None),
            _ => Seen::Nothing,
        };
        let distinct = matches!(seen, Seen::Ints(_) | Seen::Uints(_)).then(|| vec![0; DISTINCT as usize / 64]);
        Self { dtype, seen, distinct }
    }

    /// Takes rows `start..end` of a batch.
    pub(crate) fn update(&mut self, values: &Values<'_>, validity: Option<Bitmap<'_>>, start: usize, end: usize) {
        let valid = |row: usize| validity.is_none_or(|validity| validity.get(row));
        match (&mut self.seen, values) {
            (Seen::Ints(range), Values::Fixed(bytes)) => {
                let distinct = &mut self.distinct;
                let each = |value: i64| {
                    widen(range, value);
                    // A negative one turns into a large one.
                    count(distinct, value as u64);
                };
                let rows = (start..end).filter(|row| valid(*row));
                match self.dtype {
                    DType::Bool => rows.map(|row| i64::from(bytes[row] != 0)).for_each(each),
                    DType::I8 => rows.map(|row| i64::from(bytes[row] as i8)).for_each(each),
                    DType::I16 => rows.map(|row| i64::from(i16::from_le_bytes(at(bytes, row)))).for_each(each),
                    DType::I32 => rows.map(|row| i64::from(i32::from_le_bytes(at(bytes, row)))).for_each(each),
                    _ => rows.map(|row| i64::from_le_bytes(at(bytes, row))).for_each(each),
                }
            }
            (Seen::Uints(range), Values::Fixed(bytes)) => {
                let distinct = &mut self.distinct;
                let each = |value: u64| {
                    widen(range, value);
                    count(distinct, value);
                };
                let rows = (start..end).filter(|row| valid(*row));
                match self.dtype {
                    DType::U8 => rows.map(|row| u64::from(bytes[row])).for_each(each),
                    DType::U16 => rows.map(|row| u64::from(u16::from_le_bytes(at(bytes, row)))).for_each(each),
                    DType::U32 => rows.map(|row| u64::from(u32::from_le_bytes(at(bytes, row)))).for_each(each),
                    _ => rows.map(|row| u64::from_le_bytes(at(bytes, row))).for_each(each),
                }
            }
            (Seen::Floats(range, nans), Values::Fixed(bytes)) => {
                let each = |value: f64| {
                    if value.is_nan() {
                        *nans += 1;
                    } else {
                        widen(range, value);
                    }
                };
                let rows = (start..end).filter(|row| valid(*row));
                match self.dtype {
                    DType::F32 => rows.map(|row| f64::from(f32::from_le_bytes(at(bytes, row)))).for_each(each),
                    _ => rows.map(|row| f64::from_le_bytes(at(bytes, row))).for_each(each),
                }
            }
            (Seen::Texts(range), Values::Ragged { offsets, bytes, .. }) => {
                for row in (start..end).filter(|row| valid(*row)) {
                    let text = start_of(&bytes[offsets[row] as usize..offsets[row + 1] as usize]);
                    match range {
                        None => *range = Some((text.to_vec(), text.to_vec())),
                        Some((min, _)) if text < &min[..] => text.clone_into(min),
                        Some((_, max)) if text > &max[..] => text.clone_into(max),
                        Some(_) => {}
                    }
                }
            }
            _ => {}
        }
    }

    /// The statistics of the chunk, of which `nulls` rows were null; starts again.
    pub(crate) fn take(&mut self, nulls: u32) -> Stats {
        let mut stats = Stats { nulls, ..Stats::default() };
        let bounds = match &mut self.seen {
            Seen::Nothing => None,
            Seen::Ints(range) => range.take().map(|(min, max)| (Some(Bound::Int(min)), Some(Bound::Int(max)))),
            Seen::Uints(range) => range.take().map(|(min, max)| (Some(Bound::Uint(min)), Some(Bound::Uint(max)))),
            Seen::Floats(range, nans) => {
                stats.nans = Some(std::mem::take(nans));
                // Zeros compare equal, but some comparisons order them: the bounds hold for these too.
                range.take().map(|(min, max)| {
                    let (min, max) = (if min == 0.0 { -0.0 } else { min }, if max == 0.0 { 0.0 } else { max });
                    (Some(Bound::Float(min)), Some(Bound::Float(max)))
                })
            }
            Seen::Texts(range) => range.take().map(|(min, max)| {
                (prefix(&min).map(|text| Bound::Text(text.to_owned())), successor(&max).map(Bound::Text))
            }),
        };
        (stats.min, stats.max) = bounds.unwrap_or_default();
        if matches!(self.seen, Seen::Ints(_) | Seen::Uints(_)) {
            let distinct = self.distinct.take();
            stats.distinct = distinct.as_ref().map(|bits| bits.iter().map(|word| word.count_ones()).sum());
            let mut bits = distinct.unwrap_or_default();
            bits.clear();
            bits.resize(DISTINCT as usize / 64, 0);
            self.distinct = Some(bits);
        }
        stats
    }
}

fn at<const N: usize>(bytes: &[u8], row: usize) -> [u8; N] {
    crate::bytes::array_at(bytes, row * N)
}

fn widen<T: PartialOrd + Copy>(range: &mut Option<(T, T)>, value: T) {
    match range {
        None => *range = Some((value, value)),
        Some((min, max)) => {
            if value < *min {
                *min = value;
            }
            if value > *max {
                *max = value;
            }
        }
    }
}

fn count(distinct: &mut Option<Vec<u64>>, value: u64) {
    if let Some(bits) = distinct {
        if value < DISTINCT {
            bits[value as usize / 64] |= 1 << (value % 64);
        } else {
            *distinct = None;
        }
    }
}

/// As much of a text as its bounds depend on, with room to tell that there was more.
fn start_of(text: &[u8]) -> &[u8] {
    let mut end = text.len().min(2 * TEXT);
    while end < text.len() && text[end] & 0xc0 == 0x80 {
        end -= 1;
    }
    &text[..end]
}

/// The text, or as much of its start as a bound may take: never greater than the text.
fn prefix(text: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(text).ok()?;
    Some(&text[..text.floor_char_boundary(TEXT)])
}

/// The text, or a short one that is greater; `None` if there is none.
fn successor(text: &[u8]) -> Option<String> {
    let start = prefix(text)?;
    if start.len() == text.len() {
        return Some(start.to_owned());
    }
    let mut chars: Vec<char> = start.chars().collect();
    while let Some(last) = chars.pop() {
        let next = if last == '\u{d7ff}' { Some('\u{e000}') } else { char::from_u32(last as u32 + 1) };
        if let Some(next) = next {
            chars.push(next);
            return Some(chars.into_iter().collect());
        }
    }
    None
}

/// A bound as it is stored; `None`, unknown, if it has not the form that the dtype asks for.
pub(crate) fn bound(dtype: DType, bytes: &[u8]) -> Option<Bound> {
    use DType::{Bool, F32, F64, I8, I16, I32, I64, Timestamp, U8, U16, U32, U64, Utf8};
    match dtype {
        Bool | I8 | I16 | I32 | I64 | Timestamp => Some(Bound::Int(i64::from_le_bytes(bytes.try_into().ok()?))),
        U8 | U16 | U32 | U64 => Some(Bound::Uint(u64::from_le_bytes(bytes.try_into().ok()?))),
        F32 | F64 => Some(f64::from_le_bytes(bytes.try_into().ok()?)).filter(|bound| !bound.is_nan()).map(Bound::Float),
        Utf8 => Some(Bound::Text(String::from_utf8(bytes.to_vec()).ok()?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_ordered_as_values_of_one_kind_and_not_at_all_across_kinds() {
        let text = |text: &str| Bound::Text(text.to_owned());
        assert!(Bound::Int(-1) < Bound::Int(0) && Bound::Uint(2) > Bound::Uint(1));
        assert!(Bound::Float(-0.5) < Bound::Float(0.0) && text("a") < text("ab"));
        assert_eq!(Bound::Int(1).partial_cmp(&Bound::Uint(2)), None);
        assert_eq!(text("1").partial_cmp(&Bound::Float(2.0)), None);
    }

    #[test]
    fn bounds_of_long_text_are_short_and_still_bounds() {
        for text in ["a".repeat(40), "é".repeat(40), "\u{10ffff}".repeat(40), format!("{}\u{10ffff}b", "x".repeat(28))]
        {
            let low = prefix(text.as_bytes());
            assert!(low.is_some_and(|low| low.len() <= TEXT && *low <= text[..]));
            assert!(successor(text.as_bytes()).is_none_or(|high| high.len() <= TEXT + 4 && high > text));
        }
        assert_eq!(successor("\u{10ffff}".repeat(40).as_bytes()), None);
        assert_eq!(successor(b"short"), Some("short".to_owned()));
    }
}
