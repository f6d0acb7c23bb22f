//! What our SQL has beyond the standard, put in terms of what DataFusion plans.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::{
    ast::{
        BinaryOperator, ExcludeSelectItem, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList,
        FunctionArguments, Ident, ObjectName, ObjectNamePart, SelectItem, TableAlias, TableFactor, Value,
        ValueWithSpan, VisitMut, VisitorMut, visit_expressions_mut,
    },
    tokenizer::{Span, Token, TokenWithSpan},
};

use super::{AT, is, name, word};
use crate::scan::{ROW, ROW_ID};

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

/// Operators on vectors and JSON become calls, and pinned tables keep their plain name as an alias.
pub(crate) fn operators(statement: &mut impl VisitMut) {
    let _: ControlFlow<()> = visit_expressions_mut(statement, |expr| {
        let Expr::BinaryOp { left, op, right } = expr else { return ControlFlow::Continue(()) };
        let name = match op {
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
            _ => return ControlFlow::Continue(()),
        };
        let nothing = || Box::new(Expr::Value(Value::Null.into()));
        let arguments = vec![*std::mem::replace(left, nothing()), *std::mem::replace(right, nothing())];
        *expr = function(name, arguments);
        ControlFlow::Continue(())
    });
    let _: ControlFlow<()> = statement.visit(&mut Aliases);
}

struct Aliases;

impl VisitorMut for Aliases {
    type Break = ();

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        if let TableFactor::Table { name, alias: alias @ None, .. } = factor
            && let Some(last) = name.0.last().and_then(ObjectNamePart::as_ident)
            && let (table, Some(_)) = split_pinned(&last.value)
        {
            let name = Ident::with_quote('"', table);
            *alias = Some(TableAlias { explicit: true, name, columns: Vec::new(), at: None });
        }
        ControlFlow::Continue(())
    }
}

/// `random()` becomes a hash of `seed`, of the row that `row` names, and of which call it is. Gives whether there was one.
pub(crate) fn randoms(statement: &mut impl VisitMut, seed: u64, row: &Expr) -> bool {
    let mut calls = 0_u64;
    let _: ControlFlow<()> = visit_expressions_mut(statement, |expr| {
        if is_random(expr) {
            let number = |value: u64| {
                Expr::Value(ValueWithSpan { value: Value::Number(value.to_string(), false), span: Span::empty() })
            };
            *expr = function("row_random", vec![number(seed >> 1), number(calls), row.clone()]);
            calls += 1;
        }
        ControlFlow::Continue(())
    });
    calls > 0
}

/// Whether an expression is a bare `random()`.
pub(crate) fn is_random(expr: &Expr) -> bool {
    let Expr::Function(Function { name, args: FunctionArguments::List(list), .. }) = expr else { return false };
    let [ObjectNamePart::Identifier(name)] = &name.0[..] else { return false };
    list.args.is_empty() && name.value.eq_ignore_ascii_case("random")
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
