//! What our SQL has beyond the standard, put in terms of what DataFusion plans.

use std::sync::Arc;

use datafusion::{
    logical_expr::ScalarUDF,
    sql::sqlparser::{
        ast::{
            BinaryOperator, ExcludeSelectItem, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList,
            FunctionArguments, Ident, ObjectName, ObjectNamePart, Query, SelectItem, TableAlias, TableFactor, Value,
            ValueWithSpan,
        },
        tokenizer::{Span, Token, TokenWithSpan},
    },
};

use super::{
    AT, is, name,
    walk::{Part, expressions, walk},
    word,
};
use crate::{
    Result,
    functions::{
        Scalar,
        vector::{DISTANCES, FLOATS},
    },
    scan::{ROW, ROW_ID},
};

/// Between a table's name and its version. No name has it.
const PIN: char = '\u{1}';

/// A table's name with its version in it.
pub(crate) fn pinned(table: &str, version: &str) -> String {
    format!("{table}{PIN}{version}")
}

/// A name's table and version.
pub(crate) fn split_pinned(name: &str) -> (&str, Option<&str>) {
    name.split_once(PIN).map_or((name, None), |(table, version)| (table, Some(version)))
}

/// Folds `t AT 'version'` into one name.
pub(crate) fn versions(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let mut out: Vec<TokenWithSpan> = Vec::with_capacity(tokens.len());
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        let version = match tokens.peek().map(|next| &next.token) {
            Some(Token::SingleQuotedString(version)) if is(&token, AT) => version.clone(),
            _ => {
                out.push(token);
                continue;
            }
        };
        match out.pop() {
            Some(before) if word(&before).is_some() => {
                let value = pinned(&name(&before).unwrap_or_default(), &version);
                let word = Token::make_word(&value, Some('"'));
                out.push(TokenWithSpan::new(word, before.span));
                tokens.next();
            }
            before => {
                out.extend(before);
                out.push(token);
            }
        }
    }
    out
}

/// A call of a function.
pub(crate) fn function(name: &str, arguments: Vec<Expr>) -> Expr {
    let argument = |expr| FunctionArg::Unnamed(FunctionArgExpr::Expr(expr));
    Expr::Function(Function {
        name: ObjectName(vec![ObjectNamePart::Identifier(Ident::new(name))]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args: arguments.into_iter().map(argument).collect(),
            clauses: Vec::new(),
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}

/// Operators on vectors and JSON become calls, and pinned tables keep their plain name as an alias. Distances to vectors that
/// were handed in become functions of this query, which are added to `functions`.
pub(crate) fn operators(query: &mut Query, functions: &mut Vec<Arc<ScalarUDF>>) -> Result<()> {
    walk(query, &mut |part| {
        match part {
            Part::Table(factor) => alias(factor),
            Part::Expr(expr) => {
                call(expr);
                if let Some(function) = distance(expr, functions.len())? {
                    functions.push(Arc::new(ScalarUDF::from(function)));
                }
            }
            Part::Enter(_) | Part::Leave(_) => {}
        }
        Ok(())
    })
}

fn call(expr: &mut Expr) {
    if let Expr::BinaryOp { left, op, right } = expr
        && let Some(name) = call_of(op)
    {
        let nothing = || Box::new(Expr::Value(Value::Null.into()));
        let arguments = vec![*std::mem::replace(left, nothing()), *std::mem::replace(right, nothing())];
        *expr = function(name, arguments);
    }
}

fn alias(factor: &mut TableFactor) {
    if let TableFactor::Table { name, alias: alias @ None, .. } = factor
        && let Some(last) = name.0.last().and_then(ObjectNamePart::as_ident)
        && let (table, Some(_)) = split_pinned(&last.value)
    {
        let name = Ident::with_quote('"', table);
        *alias = Some(TableAlias { explicit: true, name, columns: Vec::new(), at: None });
    }
}

/// The function that an operator stands for.
fn call_of(op: &BinaryOperator) -> Option<&'static str> {
    Some(match op {
        BinaryOperator::LtDashGt => "l2_distance",
        BinaryOperator::Spaceship => "cosine_distance",
        BinaryOperator::Custom(op) if op == "<#>" => "negative_inner_product",
        BinaryOperator::Custom(op) if op == "<->" => "l2_distance",
        BinaryOperator::Custom(op) if op == "<=>" => "cosine_distance",
        BinaryOperator::Arrow => "json_get",
        BinaryOperator::LongArrow => "json_get_text",
        BinaryOperator::HashArrow => "json_path",
        BinaryOperator::HashLongArrow => "json_path_text",
        BinaryOperator::AtArrow => "contains_all",
        _ => return None,
    })
}

/// Makes a distance to a vector that was handed in a call of a function that knows the vector: as an argument, every pass of
/// the planner would copy and print it. Gives that function, which has `number` in its name.
fn distance(expr: &mut Expr, number: usize) -> Result<Option<Scalar>> {
    let Expr::Function(call) = expr else { return Ok(None) };
    let Some(distance) = DISTANCES.into_iter().find(|distance| is_call(call, distance.name)) else { return Ok(None) };
    let FunctionArguments::List(list) = &mut call.args else { return Ok(None) };
    let [_, _] = list.args[..] else { return Ok(None) };
    let Some((place, text)) =
        list.args.iter().enumerate().find_map(|(place, argument)| Some((place, packed(argument)?)))
    else {
        return Ok(None);
    };
    let name = format!("{}_{number}", distance.name);
    let made = distance.to(text, name.clone())?;
    list.args.remove(place);
    call.name = ObjectName::from(vec![Ident::new(name)]);
    Ok(Some(made))
}

/// The text of a vector that was handed in.
fn packed(argument: &FunctionArg) -> Option<&str> {
    let FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Function(call))) = argument else { return None };
    let FunctionArguments::List(list) = &call.args else { return None };
    let [FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Value(text)))] = &list.args[..] else { return None };
    match &text.value {
        Value::SingleQuotedString(text) if is_call(call, FLOATS) => Some(text),
        _ => None,
    }
}

/// Whether a function is called by this name, and no schema's.
fn is_call(function: &Function, name: &str) -> bool {
    matches!(&function.name.0[..], [ObjectNamePart::Identifier(ident)] if ident.value.eq_ignore_ascii_case(name))
}

/// `random()` becomes a hash of `seed`, of the row that `row` names, and of which call it is. Gives whether there was one.
pub(crate) fn randoms(query: &mut Query, seed: u64, row: &Expr) -> Result<bool> {
    let mut calls = 0_u64;
    expressions(query, &mut |expr| {
        if is_random(expr) {
            let number = |value: u64| {
                Expr::Value(ValueWithSpan { value: Value::Number(value.to_string(), false), span: Span::empty() })
            };
            *expr = function("row_random", vec![number(seed >> 1), number(calls), row.clone()]);
            calls += 1;
        }
        Ok(())
    })?;
    Ok(calls > 0)
}

/// Whether an expression is a bare `random()`.
pub(crate) fn is_random(expr: &Expr) -> bool {
    let Expr::Function(call) = expr else { return false };
    is_call(call, "random") && matches!(&call.args, FunctionArguments::List(list) if list.args.is_empty())
}

/// Leaves row numbers out of what `*` stands for.
pub(crate) fn without_numbers(select: &mut datafusion::sql::sqlparser::ast::Select) {
    for item in &mut select.projection {
        if let SelectItem::Wildcard(options) | SelectItem::QualifiedWildcard(_, options) = item {
            let mut names: Vec<ObjectName> = match options.opt_exclude.take() {
                Some(ExcludeSelectItem::Single(name)) => vec![name],
                Some(ExcludeSelectItem::Multiple(names)) => names,
                None => Vec::new(),
            };
            let hidden = [ROW, ROW_ID].map(|name| ObjectName::from(vec![Ident::new(name)]));
            names.extend(hidden.into_iter().filter(|name| !names.contains(name)).collect::<Vec<_>>());
            options.opt_exclude = Some(ExcludeSelectItem::Multiple(names));
        }
    }
}
