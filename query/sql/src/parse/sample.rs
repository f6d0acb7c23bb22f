//! `FROM t TABLESAMPLE BERNOULLI (10)`: a filter by chance. `SAMPLE BY weight LIMIT n`: an order by chance.

use datafusion::sql::sqlparser::{
    ast::{
        BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, OrderByKind, Query, Select,
        SetExpr, TableFactor, TableSampleKind, TableSampleUnit, Value,
    },
    tokenizer::{Token, TokenWithSpan},
};

use super::{
    is,
    rewrite::function,
    walk::{Part, walk},
};
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
    walk(query, &mut |part| match part {
        Part::Enter(query) => {
            let weight = weight(query);
            let SetExpr::Select(select) = &mut *query.body else { return Ok(()) };
            if let Some(weight) = weight {
                // Rows without weight are never chosen, however many are.
                let zero = Expr::Value(Value::Number("0".to_owned(), false).into());
                also(select, operation(Expr::Nested(Box::new(weight)), BinaryOperator::Gt, zero));
            }
            filter(select)
        }
        Part::Table(TableFactor::Table { sample: Some(_), .. } | TableFactor::Derived { sample: Some(_), .. }) => {
            Err(Error::unsupported("TABLESAMPLE goes with the first table of a FROM"))
        }
        _ => Ok(()),
    })
}

fn filter(select: &mut Select) -> Result<()> {
    let Some(TableFactor::Table { sample, .. }) = select.from.first_mut().map(|from| &mut from.relation) else {
        return Ok(());
    };
    let Some(TableSampleKind::BeforeTableAlias(found) | TableSampleKind::AfterTableAlias(found)) = sample.take() else {
        return Ok(());
    };
    let no = |what: &str| Err(Error::unsupported(format!("TABLESAMPLE BERNOULLI (percent) {what}")));
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
    Ok(())
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
