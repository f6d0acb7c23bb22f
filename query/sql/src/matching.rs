//! `match(column, 'words')` and `bm25(column, 'words')`: what an index of texts says of the rows of the first table of a `FROM`.

use std::{collections::HashMap, sync::Arc};

use arrow::{
    array::{AsArray, BooleanArray, Float32Array},
    datatypes::{DataType, UInt64Type},
};
use datafusion::{
    logical_expr::{ColumnarValue, ScalarUDF, Signature, Volatility},
    sql::sqlparser::ast::{
        Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, ObjectNamePart, Query, SetExpr, Value,
    },
};

use crate::{
    Error, Result, Session, alter,
    functions::Scalar,
    parse::{Part, expressions, function, walk},
    scan::ROW,
    select::{Base, normal, number},
    session::Scope,
};

/// A call that is answered by an index.
struct Call {
    /// The function that takes its place.
    name: String,
    /// The table's name, with its version if it has one.
    table: String,
    column: String,
    words: String,
    score: bool,
}

/// Searches for the calls of a query, and makes functions of row numbers of them, which `scope` then has.
pub(crate) async fn search(session: &Session, query: &mut Query, scope: &mut Scope) -> Result<()> {
    let mut calls = Vec::new();
    // Inner queries first: what they ask is of their own rows.
    walk(query, &mut |part| if let Part::Leave(query) = part { replaced(query, &mut calls) } else { Ok(()) })?;
    let mut searched: HashMap<(String, String, String), Arc<HashMap<u64, f32>>> = HashMap::new();
    for Call { name, table, column, words, score } in calls {
        let key = (table.clone(), column.clone(), words.clone());
        let tables = session.tables(scope);
        let table = tables.find(&table).await?;
        let column = alter::column(table.schema(), &column, scope)?;
        let indexes = tables.indexes(&table).await?;
        let Some(index) = indexes.texts.iter().find(|index| index.of.field == column.field) else {
            let message = format!("column {} has no index of texts", column.name);
            let at = scope.names.place(&column.name);
            let hint = Some(format!("CREATE INDEX name ON {} USING bm25 ({})", table.name(), column.name));
            return Err(Error::Sql { message, line: at.line, column: at.column, hint });
        };
        let rows = match searched.get(&key) {
            Some(rows) => rows.clone(),
            None => searched.entry(key).or_insert(Arc::new(index.search(&table, column, &words).await?)).clone(),
        };
        scope.functions.push(Arc::new(ScalarUDF::from(function_of(name, rows, score))));
    }
    Ok(())
}

/// Puts functions of row numbers in the place of a query's calls.
fn replaced(query: &mut Query, calls: &mut Vec<Call>) -> Result<()> {
    let mut asks = false;
    expressions(query, &mut |expr| {
        asks |= called(expr).is_some();
        Ok(())
    })?;
    if !asks {
        return Ok(());
    }
    let Some(base) = (if let SetExpr::Select(select) = &mut *query.body { number(select) } else { None }) else {
        let what = "match() and bm25() are of columns of the first table of a FROM, which is one of the lake";
        return Err(Error::unsupported(what));
    };
    expressions(query, &mut |expr| {
        let Some((score, arguments)) = called(expr) else { return Ok(()) };
        let (column, words) = asked(arguments, &base)?;
        let name = format!("row_match_{}", calls.len());
        calls.push(Call { name: name.clone(), table: base.table.clone(), column, words, score });
        *expr = function(&name, vec![base.column(ROW)]);
        Ok(())
    })
}

/// The column and the words of a call.
fn asked(arguments: &[FunctionArg], base: &Base) -> Result<(String, String)> {
    let wrong = || Error::unsupported("match(column, 'words') and bm25(column, 'words') take a column and a text");
    let [
        FunctionArg::Unnamed(FunctionArgExpr::Expr(column)),
        FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Value(words))),
    ] = arguments
    else {
        return Err(wrong());
    };
    let column = match column {
        Expr::Identifier(ident) => normal(ident),
        Expr::CompoundIdentifier(parts) if parts.len() == 2 && base.is(&parts[0]) => normal(&parts[1]),
        _ => return Err(wrong()),
    };
    let Value::SingleQuotedString(words) = &words.value else { return Err(wrong()) };
    Ok((column, words.clone()))
}

/// Whether an expression calls one of the two functions, whether it asks for the score, and with what.
fn called(expr: &Expr) -> Option<(bool, &[FunctionArg])> {
    let Expr::Function(Function { name, args: FunctionArguments::List(list), .. }) = expr else { return None };
    let [ObjectNamePart::Identifier(Ident { value, .. })] = &name.0[..] else { return None };
    let score = value.eq_ignore_ascii_case("bm25");
    (score || value.eq_ignore_ascii_case("match")).then_some((score, &list.args))
}

/// What a search found, as a function of a row's number: whether it was found, or its score, which is 0 if it was not.
fn function_of(name: String, rows: Arc<HashMap<u64, f32>>, score: bool) -> Scalar {
    let signature = Signature::exact(vec![DataType::UInt64], Volatility::Immutable);
    let returns = if score { DataType::Float32 } else { DataType::Boolean };
    Scalar::new(name, signature, returns, move |arguments, _, count| {
        let numbers = arguments[0].to_array(count)?;
        let found = numbers.as_primitive::<UInt64Type>().values().iter().map(|row| rows.get(row).copied());
        Ok(ColumnarValue::Array(if score {
            Arc::new(Float32Array::from_iter_values(found.map(|score| score.unwrap_or(0.0))))
        } else {
            Arc::new(found.map(|score| Some(score.is_some())).collect::<BooleanArray>())
        }))
    })
}
