//! `FROM t TABLESAMPLE BERNOULLI (10)`: a filter by chance. `SAMPLE BY weight LIMIT n`: an order by chance.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::{
    ast::{
        BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, OrderByKind, Query, Select,
        SetExpr, TableFactor, TableSampleKind, TableSampleUnit, Value, VisitMut, VisitorMut,
    },
    tokenizer::{Token, TokenWithSpan},
};

use super::{is, rewrite::function};
use crate::{Error, Result};

/// The function that orders rows by chance and weight.
const KEY: &str = "sample_key";

/// Puts `SAMPLE BY weight` as an order: the rows with the smallest keys are a sample without replacement.
pub(super) fn weights(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let mut out = Vec::with_capacity(tokens.len());
    let mut rest = tokens.into_iter().peekable();
    let mut open: Option<usize> = None;
    let mut depth = 0_usize;
    while let Some(token) = rest.next() {
        let span = token.span;
        let plain = |token: Token| TokenWithSpan::new(token, span);
        let word = |text: &str| TokenWithSpan::new(Token::make_word(text, None), span);
        match token.token {
            Token::LParen => depth += 1,
            Token::RParen => {
                if open == Some(depth) {
                    out.push(plain(Token::RParen));
                    open = None;
                }
                depth = depth.saturating_sub(1);
            }
            _ if open == Some(depth) && is(&token, "LIMIT") => {
                out.push(plain(Token::RParen));
                open = None;
            }
            _ if open.is_none() && is(&token, "SAMPLE") && rest.peek().is_some_and(|next| is(next, "BY")) => {
                rest.next();
                let random = [word("random"), plain(Token::LParen), plain(Token::RParen), plain(Token::Comma)];
                out.extend([word("ORDER"), word("BY"), word(KEY), plain(Token::LParen)].into_iter().chain(random));
                open = Some(depth);
                continue;
            }
            _ => {}
        }
        out.push(token);
    }
    if let (Some(_), Some(last)) = (open, out.last()) {
        let span = last.span;
        out.push(TokenWithSpan::new(Token::RParen, span));
    }
    out
}

/// The weight that a query orders by.
fn weight(query: &Query) -> Option<Expr> {
    let OrderByKind::Expressions(by) = &query.order_by.as_ref()?.kind else { return None };
    let Expr::Function(Function { name, args: FunctionArguments::List(list), .. }) = &by.first()?.expr else {
        return None;
    };
    let [_, FunctionArg::Unnamed(FunctionArgExpr::Expr(weight))] = &list.args[..] else { return None };
    (name.to_string() == KEY).then(|| weight.clone())
}

/// Makes filters of the samples in a query.
///
/// # Errors
/// [`Error::Unsupported`] for a sample that is no part of the rows of the first table of a `FROM`.
pub(crate) fn samples(query: &mut Query) -> Result<()> {
    match query.visit(&mut Samples) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

struct Samples;

impl VisitorMut for Samples {
    type Break = Error;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Error> {
        let weight = weight(query);
        let SetExpr::Select(select) = &mut *query.body else { return ControlFlow::Continue(()) };
        if let Some(weight) = weight {
            // Rows without weight are never chosen, however many are.
            let zero = Expr::Value(Value::Number("0".to_owned(), false).into());
            also(select, operation(Expr::Nested(Box::new(weight)), BinaryOperator::Gt, zero));
        }
        filter(select)
    }

    fn post_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<Error> {
        match factor {
            TableFactor::Table { sample: Some(_), .. } | TableFactor::Derived { sample: Some(_), .. } => {
                ControlFlow::Break(Error::unsupported("TABLESAMPLE goes with the first table of a FROM"))
            }
            _ => ControlFlow::Continue(()),
        }
    }
}

fn filter(select: &mut Select) -> ControlFlow<Error> {
    let Some(TableFactor::Table { sample, .. }) = select.from.first_mut().map(|from| &mut from.relation) else {
        return ControlFlow::Continue(());
    };
    let Some(TableSampleKind::BeforeTableAlias(found) | TableSampleKind::AfterTableAlias(found)) = sample.take() else {
        return ControlFlow::Continue(());
    };
    let no = |what: &str| ControlFlow::Break(Error::unsupported(format!("TABLESAMPLE BERNOULLI (percent) {what}")));
    if found.seed.is_some() {
        return no("has no REPEATABLE: give a seed beside the statement");
    }
    let quantity = match found.quantity {
        Some(quantity) if quantity.unit != Some(TableSampleUnit::Rows) && found.bucket.is_none() => quantity.value,
        _ => return no("takes a part of the rows: for a number of rows, ORDER BY random() LIMIT n"),
    };
    let hundred = Expr::Value(Value::Number("100.0".to_owned(), false).into());
    let part = operation(quantity, BinaryOperator::Divide, hundred);
    also(select, operation(function("random", Vec::new()), BinaryOperator::Lt, part));
    ControlFlow::Continue(())
}

fn operation(left: Expr, op: BinaryOperator, right: Expr) -> Expr {
    Expr::BinaryOp { left: Box::new(left), op, right: Box::new(right) }
}

/// Adds a condition to a `WHERE`.
fn also(select: &mut Select, condition: Expr) {
    select.selection = Some(match select.selection.take() {
        Some(before) => operation(Expr::Nested(Box::new(before)), BinaryOperator::And, condition),
        None => condition,
    });
}
