//! JSON as Postgres has it: `->`, `->>`, `#>`, `#>>`, `@>`. Documents are texts.

use arrow::{
    array::{Array, ArrayRef, AsArray, BooleanBuilder, LargeStringArray, LargeStringBuilder},
    compute::cast,
    datatypes::{DataType, Int64Type},
};
use datafusion::{
    common::Result as DfResult,
    logical_expr::{ColumnarValue, Signature, Volatility},
};
use serde_json::Value;

use super::{Scalar, array, failed, result, rows_of, shared};

pub(super) fn functions() -> Vec<Scalar> {
    let two = || Signature::any(2, Volatility::Immutable);
    let text = DataType::LargeUtf8;
    vec![
        Scalar::new("json_get", two(), text.clone(), |args, _, rows| get(args, rows, one_step, false)),
        Scalar::new("json_get_text", two(), text.clone(), |args, _, rows| get(args, rows, one_step, true)),
        Scalar::new("json_path", two(), text.clone(), |args, _, rows| get(args, rows, steps, false)),
        Scalar::new("json_path_text", two(), text, |args, _, rows| get(args, rows, steps, true)),
        Scalar::new("contains_all", two(), DataType::Boolean, |args, _, rows| contains(args, rows)),
    ]
}

/// A step into a document: a member's name, or an item's number, from the end if it is negative.
enum Step {
    Name(String),
    Number(i64),
}

fn documents(argument: &ColumnarValue, rows: usize) -> DfResult<LargeStringArray> {
    let documents = array(argument, rows)?;
    match documents.data_type() {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Null => {
            Ok(cast(&documents, &DataType::LargeUtf8)?.as_string::<i64>().clone())
        }
        other => Err(failed(format!("JSON operators take JSON, not {other}"))),
    }
}

fn parsed(text: &str, row: usize) -> DfResult<Value> {
    serde_json::from_str(text).map_err(|error| failed(format!("row {row} is no JSON: {error}")))
}

/// `-> 'name'` and `-> 1`.
fn one_step(path: &ArrayRef, row: usize) -> DfResult<Vec<Step>> {
    if path.data_type().is_integer() {
        let number = cast(&path.slice(row, 1), &DataType::Int64)?;
        return Ok(vec![Step::Number(number.as_primitive::<Int64Type>().value(0))]);
    }
    let name = cast(&path.slice(row, 1), &DataType::LargeUtf8)?;
    Ok(vec![Step::Name(name.as_string::<i64>().value(0).to_owned())])
}

/// `#> '{a,0,b}'`.
fn steps(path: &ArrayRef, row: usize) -> DfResult<Vec<Step>> {
    let text = cast(&path.slice(row, 1), &DataType::LargeUtf8)?;
    let text = text.as_string::<i64>().value(0);
    let inner = text.strip_prefix('{').and_then(|text| text.strip_suffix('}'));
    let inner = inner.ok_or_else(|| failed(format!("'{text}' is no path: write '{{a,0,b}}'")))?;
    Ok(inner
        .split(',')
        .filter(|step| !step.is_empty())
        .map(|step| {
            let step = step.trim().trim_matches('"');
            step.parse().map_or_else(|_| Step::Name(step.to_owned()), Step::Number)
        })
        .collect())
}

fn walk<'a>(document: &'a Value, steps: &[Step]) -> Option<&'a Value> {
    steps.iter().try_fold(document, |value, step| match (value, step) {
        (Value::Object(members), Step::Name(name)) => members.get(name),
        (Value::Object(members), Step::Number(number)) => members.get(&number.to_string()),
        (Value::Array(items), Step::Number(number)) => {
            let place = if *number < 0 { items.len() as i64 + number } else { *number };
            usize::try_from(place).ok().and_then(|place| items.get(place))
        }
        _ => None,
    })
}

fn get(
    arguments: &[ColumnarValue],
    rows: usize,
    path: fn(&ArrayRef, usize) -> DfResult<Vec<Step>>,
    as_text: bool,
) -> DfResult<ColumnarValue> {
    let rows = rows_of(arguments, rows);
    let documents = documents(&arguments[0], rows)?;
    let constant = matches!(arguments[1], ColumnarValue::Scalar(_));
    let paths = array(&arguments[1], if constant { 1 } else { rows })?;
    let fixed = if constant && !paths.is_null(0) { Some(path(&paths, 0)?) } else { None };
    let mut found = LargeStringBuilder::new();
    for row in 0..rows {
        if documents.is_null(row) || paths.is_null(if constant { 0 } else { row }) {
            found.append_null();
            continue;
        }
        let document = parsed(documents.value(row), row)?;
        let value = match &fixed {
            Some(steps) => walk(&document, steps),
            None => walk(&document, &path(&paths, row)?),
        };
        match value {
            None => found.append_null(),
            Some(Value::Null) if as_text => found.append_null(),
            Some(Value::String(text)) if as_text => found.append_value(text),
            Some(value) => found.append_value(value.to_string()),
        }
    }
    result(arguments, shared(found.finish()))
}

/// `a @> b`: whether b's structure is part of a's.
fn contains(arguments: &[ColumnarValue], rows: usize) -> DfResult<ColumnarValue> {
    let rows = rows_of(arguments, rows);
    let (all, parts) = (documents(&arguments[0], rows)?, documents(&arguments[1], rows)?);
    let mut answers = BooleanBuilder::new();
    for row in 0..rows {
        if all.is_null(row) || parts.is_null(row) {
            answers.append_null();
        } else {
            answers.append_value(holds(&parsed(all.value(row), row)?, &parsed(parts.value(row), row)?, true));
        }
    }
    result(arguments, shared(answers.finish()))
}

fn holds(all: &Value, part: &Value, top: bool) -> bool {
    match (all, part) {
        (Value::Object(all), Value::Object(part)) => {
            part.iter().all(|(name, value)| all.get(name).is_some_and(|found| holds(found, value, false)))
        }
        (Value::Array(all), Value::Array(part)) => {
            part.iter().all(|value| all.iter().any(|found| holds(found, value, false)))
        }
        // As Postgres has it: an array may contain a bare value.
        (Value::Array(all), value) if top => all.contains(value),
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        (all, part) => all == part,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn containment_is_that_of_postgres() {
        let check = |all: &str, part: &str| {
            holds(&serde_json::from_str(all).unwrap(), &serde_json::from_str(part).unwrap(), true)
        };
        assert!(check(r#"{"a":1,"b":{"c":[1,2,3]}}"#, r#"{"b":{"c":[3]}}"#));
        assert!(check("[1,2,3]", "2") && check("[1,2,2]", "[2]") && check("1", "1.0"));
        assert!(!check(r#"{"a":[[1]]}"#, r#"{"a":[1]}"#));
        assert!(!check(r#"{"a":1}"#, r#"{"a":1,"b":2}"#));
    }
}
