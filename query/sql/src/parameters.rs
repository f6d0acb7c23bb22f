//! Values that a statement names: `$1`, `$2`, or `$name`.

use std::collections::BTreeMap;

use datafusion::sql::sqlparser::{
    ast::{Array, CastKind, DataType, Expr, Query, TimezoneInfo, Value, ValueWithSpan},
    tokenizer::Span,
};

use crate::{
    Error, Result,
    functions::vector::{FLOATS, packed},
    parse,
};

/// Numbers of a list that are literals each; a longer list is one.
const SHORT: usize = 16;

/// Values by name: positions are named `1`, `2` and so on.
pub type Parameters = BTreeMap<String, Parameter>;

/// A value handed in.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Parameter {
    /// No value.
    Null,
    /// A truth value.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A whole number that needs all 64 bits.
    Uint(u64),
    /// A number.
    Float(f64),
    /// A text.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
    /// Microseconds since 1970 UTC.
    Timestamp(i64),
    /// A list, such as a vector.
    List(Vec<Parameter>),
}

/// Puts parameters where a statement names them.
///
/// They become literals of the parsed statement, never text: no value can change what a statement does.
///
/// # Errors
/// [`Error::Parameter`] for a name without a value.
pub(crate) fn bind(query: &mut Query, parameters: &Parameters) -> Result<()> {
    parse::expressions(query, &mut |expr| {
        if let Expr::Value(ValueWithSpan { value: Value::Placeholder(name), span }) = expr {
            let Some(parameter) = parameters.get(name.trim_start_matches(['$', ':', '@'])) else {
                let known: Vec<String> = parameters.keys().map(|key| format!("${key}")).collect();
                let given = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                let reason = format!("no value was given; there are: {given}");
                return Err(Error::Parameter { name: name.clone(), reason });
            };
            *expr = literal(parameter, *span);
        }
        Ok(())
    })
}

/// The numbers of a list that has nothing else.
fn doubles(items: &[Parameter]) -> Option<Vec<f64>> {
    items.iter().map(|item| if let Parameter::Float(value) = item { Some(*value) } else { None }).collect()
}

fn literal(parameter: &Parameter, span: Span) -> Expr {
    let plain = |value: Value| Expr::Value(ValueWithSpan { value, span });
    let number = |text: String| plain(Value::Number(text, false));
    let cast = |expr: Expr, data_type: DataType| Expr::Cast {
        kind: CastKind::Cast,
        expr: Box::new(expr),
        data_type,
        array: false,
        format: None,
    };
    match parameter {
        Parameter::Null => plain(Value::Null),
        Parameter::Bool(value) => plain(Value::Boolean(*value)),
        // The smallest number has no positive counterpart, so it is no literal behind a sign.
        Parameter::Int(i64::MIN) => {
            cast(plain(Value::SingleQuotedString(i64::MIN.to_string())), DataType::BigInt(None))
        }
        Parameter::Int(value) if *value < 0 => {
            let minus = datafusion::sql::sqlparser::ast::UnaryOperator::Minus;
            Expr::UnaryOp { op: minus, expr: Box::new(number(value.unsigned_abs().to_string())) }
        }
        Parameter::Int(value) => number(value.to_string()),
        Parameter::Uint(value) => number(value.to_string()),
        Parameter::Float(value) => cast(plain(Value::SingleQuotedString(value.to_string())), DataType::DoublePrecision),
        Parameter::Text(value) => plain(Value::SingleQuotedString(value.clone())),
        Parameter::Bytes(bytes) => {
            plain(Value::HexStringLiteral(bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
        }
        Parameter::Timestamp(micros) => {
            let text = arrow::temporal_conversions::timestamp_us_to_datetime(*micros)
                .map_or_else(|| micros.to_string(), |time| time.format("%Y-%m-%dT%H:%M:%S%.6f").to_string());
            cast(plain(Value::SingleQuotedString(text)), DataType::Timestamp(None, TimezoneInfo::None))
        }
        Parameter::List(items) => {
            if let Some(doubles) = doubles(items).filter(|doubles| doubles.len() > SHORT) {
                return parse::function(FLOATS, vec![literal(&Parameter::Text(packed(&doubles)), span)]);
            }
            let elem = items.iter().map(|item| literal(item, span)).collect();
            Expr::Array(Array { elem, named: false })
        }
    }
}
