//! Walks through the syntax of a query.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{Expr, Query, TableFactor, VisitMut as _, VisitorMut};

use crate::{Error, Result};

/// What a walk comes by: queries, tables and expressions, inner ones too.
pub(crate) enum Part<'a> {
    /// A query, before what is in it.
    Enter(&'a mut Query),
    /// A query, after what is in it.
    Leave(&'a mut Query),
    /// What a `FROM` names, before what is in it.
    Table(&'a mut TableFactor),
    /// An expression, after what is in it.
    Expr(&'a mut Expr),
}

/// Calls `step` for each part of a query.
///
/// All walks share one visitor: the parser's syntax is compiled anew, in full, for each type of them.
///
/// # Errors
/// The first one of `step`.
pub(crate) fn walk(query: &mut Query, step: &mut dyn FnMut(Part<'_>) -> Result<()>) -> Result<()> {
    match query.visit(&mut Walk(step)) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

/// Calls `step` for each expression of a query, inner ones first.
pub(crate) fn expressions(query: &mut Query, step: &mut dyn FnMut(&mut Expr) -> Result<()>) -> Result<()> {
    walk(query, &mut |part| if let Part::Expr(expr) = part { step(expr) } else { Ok(()) })
}

struct Walk<'a>(&'a mut dyn FnMut(Part<'_>) -> Result<()>);

impl Walk<'_> {
    fn step(&mut self, part: Part<'_>) -> ControlFlow<Error> {
        match (self.0)(part) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        }
    }
}

impl VisitorMut for Walk<'_> {
    type Break = Error;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Error> {
        self.step(Part::Enter(query))
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<Error> {
        self.step(Part::Leave(query))
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<Error> {
        self.step(Part::Table(factor))
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        self.step(Part::Expr(expr))
    }
}
