//! Queries whose rows are rows of a table: what a loader takes.

use arrow::{array::AsArray, datatypes::UInt64Type};
use datafusion::{
    logical_expr::{LogicalPlanBuilder, col},
    sql::sqlparser::ast::{
        ExcludeSelectItem, Expr, GroupByExpr, Ident, ObjectName, ObjectNamePart, OrderByKind, Query, Select,
        SelectItem, SelectItemQualifiedWildcardKind, SetExpr, TableAlias, TableFactor, WildcardAdditionalOptions,
    },
};
use forebay_versioning::{Rows, Selection, Table};
use futures::TryStreamExt as _;

use crate::{
    Error, Result, Session, alter,
    catalog::NUMBERED,
    parse::{self, Names, split_pinned},
    scan::{ROW, ROW_ID},
    session::{Given, Scope, run},
};

/// Rows of a table that a query selected.
#[derive(Clone, Debug)]
pub struct Chosen {
    /// The table.
    pub table: Table,
    /// The rows: in the query's order if it has one, else in the table's. A join may select a row more than once.
    pub rows: Vec<u64>,
    /// The columns that the query names, or none for `*`.
    pub columns: Option<Vec<String>>,
    /// Whether the query has an order.
    pub ordered: bool,
    /// Whether its order is `ORDER BY RANDOM()` without a limit: a new one each epoch.
    pub shuffle: bool,
    /// What `random()` and samples followed from.
    pub seed: u64,
}

impl Chosen {
    /// As the selection that a loader takes.
    ///
    /// # Errors
    /// [`Error::Lake`] never, unless the table changed under us.
    pub fn selection(&self) -> Result<Selection> {
        let whole = !self.ordered && self.rows.len() as u64 == self.table.rows();
        let rows = if whole && self.rows.is_sorted_by(|a, b| a < b) {
            Rows::All
        } else {
            Rows::List(self.rows.clone().into())
        };
        Ok(Selection::new(self.table.clone(), rows)?)
    }
}

/// The name that the row's number goes by, which no column has.
const NUMBER: &str = "\u{3}row";

pub(crate) async fn select(session: &Session, mut query: Query, names: Names, given: &Given) -> Result<Chosen> {
    crate::parameters::bind(&mut query, &given.parameters)?;
    parse::samples(&mut query)?;
    parse::operators(&mut query)?;
    let no = |what: &str| Err(Error::unsupported(format!("a selection's rows are rows of one table: {what}")));
    if let Some(what) = regrouping(&query) {
        return no(what);
    }
    let shuffle = query.limit_clause.is_none() && query.fetch.is_none() && is_random_order(&query);
    if shuffle {
        query.order_by = None;
    }
    let ordered = query.order_by.is_some();
    let mut scope = Scope { names, given: given.clone(), ..Scope::default() };
    let seed = given.seed.unwrap_or_else(rand_seed);
    scope.given.seed = Some(seed);
    crate::matching::search(session, &mut query, &mut scope).await?;
    seed_randoms(&mut query, Some(seed))?;
    let SetExpr::Select(select) = &mut *query.body else { return no("it has no SELECT") };
    let Some(base) = number(select) else { return no("its FROM must begin with a table of the lake") };
    if given.tables.contains_key(&base.table) {
        return no(&format!("'{}' is not in the lake", base.table));
    }
    let columns = columns(select, &base)?;
    let item = SelectItem::ExprWithAlias { expr: base.column(ROW), alias: Ident::with_quote('"', NUMBER) };
    select.projection.insert(0, item);
    let table = session.tables(&scope).find(&base.table).await?;
    for name in columns.iter().flatten() {
        alter::column(table.schema(), name, &scope)?;
    }
    let rows = numbers(session, query, &scope).await?;
    let rows = if ordered { rows } else { sorted(rows) };
    Ok(Chosen { table, rows, columns, ordered, shuffle, seed })
}

fn sorted(mut rows: Vec<u64>) -> Vec<u64> {
    rows.sort_unstable();
    rows
}

/// A seed that nobody chose.
pub(crate) fn rand_seed() -> u64 {
    let id = forebay_format::CommitId::random();
    id.as_bytes().iter().fold(0, |seed: u64, byte| seed.rotate_left(9) ^ u64::from(*byte)) >> 1
}

/// The first column, [`NUMBER`], of a query's rows; the others are not read unless its order needs them.
async fn numbers(session: &Session, query: Query, scope: &Scope) -> Result<Vec<u64>> {
    let (state, plan) = session.planned(query, scope).await?;
    let plan = LogicalPlanBuilder::from(plan).project([col(datafusion::common::Column::from_name(NUMBER))])?.build()?;
    let physical = state.create_physical_plan(&plan).await?;
    let mut batches = run(&state, physical)?.batches;
    let mut rows = Vec::new();
    while let Some(batch) = batches.try_next().await? {
        rows.extend_from_slice(batch.column(0).as_primitive::<UInt64Type>().values());
    }
    Ok(rows)
}

/// What makes a query's rows others than those of its table.
fn regrouping(query: &Query) -> Option<&'static str> {
    let SetExpr::Select(select) = &*query.body else { return Some("it has no UNION, INTERSECT, EXCEPT or VALUES") };
    if select.distinct.is_some() {
        return Some("it has no DISTINCT");
    }
    if !matches!(&select.group_by, GroupByExpr::Expressions(by, _) if by.is_empty()) || select.having.is_some() {
        return Some("it has no GROUP BY");
    }
    None
}

fn is_random_order(query: &Query) -> bool {
    match query.order_by.as_ref().map(|order| &order.kind) {
        Some(OrderByKind::Expressions(by)) => by.len() == 1 && parse::is_random(&by[0].expr),
        _ => false,
    }
}

/// The first table of a `FROM`.
#[derive(Debug)]
pub(crate) struct Base {
    /// Its name, with its version if it has one.
    pub(crate) table: String,
    /// What columns are qualified by.
    alias: Ident,
}

impl Base {
    pub(crate) fn column(&self, name: &str) -> Expr {
        Expr::CompoundIdentifier(vec![self.alias.clone(), Ident::with_quote('"', name)])
    }

    pub(crate) fn is(&self, qualifier: &Ident) -> bool {
        normal(qualifier) == normal(&self.alias)
    }
}

/// An identifier as SQL takes it.
pub(crate) fn normal(ident: &Ident) -> String {
    if ident.quote_style.is_some() { ident.value.clone() } else { ident.value.to_lowercase() }
}

/// Gives the first table of a `FROM` its rows' numbers as columns.
pub(crate) fn number(select: &mut Select) -> Option<Base> {
    let base = number_factor(&mut select.from.first_mut()?.relation)?;
    parse::without_numbers(select);
    Some(base)
}

pub(crate) fn number_factor(factor: &mut TableFactor) -> Option<Base> {
    let TableFactor::Table { name, alias, args: None, .. } = factor else { return None };
    let [ObjectNamePart::Identifier(ident)] = &mut name.0[..] else { return None };
    let table = normal(ident);
    let table = table.strip_suffix(NUMBERED).unwrap_or(&table).to_owned();
    let alias = alias.get_or_insert_with(|| TableAlias {
        explicit: true,
        name: Ident::with_quote('"', split_pinned(&table).0),
        columns: Vec::new(),
        at: None,
    });
    *ident = Ident { span: ident.span, ..Ident::with_quote('"', format!("{table}{NUMBERED}")) };
    Some(Base { table, alias: alias.name.clone() })
}

/// Whether a `*` stands for all columns, as only the rows' numbers are left out of it.
fn is_plain(options: &WildcardAdditionalOptions) -> bool {
    let hidden = |name: &ObjectName| [ROW, ROW_ID].contains(&name.to_string().as_str());
    let excluded = match &options.opt_exclude {
        None => true,
        Some(ExcludeSelectItem::Single(name)) => hidden(name),
        Some(ExcludeSelectItem::Multiple(names)) => names.iter().all(hidden),
    };
    excluded && options.opt_except.is_none() && options.opt_replace.is_none() && options.opt_rename.is_none()
}

/// The columns that a selection names.
fn columns(select: &Select, base: &Base) -> Result<Option<Vec<String>>> {
    let mut columns = Vec::new();
    for item in &select.projection {
        match item {
            SelectItem::Wildcard(options) if is_plain(options) => return Ok(None),
            SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), options)
                if is_plain(options)
                    && matches!(&name.0[..], [ObjectNamePart::Identifier(ident)] if base.is(ident)) =>
            {
                return Ok(None);
            }
            SelectItem::UnnamedExpr(Expr::Identifier(ident)) => columns.push(normal(ident)),
            SelectItem::UnnamedExpr(Expr::CompoundIdentifier(parts)) if parts.len() == 2 && base.is(&parts[0]) => {
                columns.push(normal(&parts[1]));
            }
            other => {
                let message = format!(
                    "a selection names columns of '{}', and '{other}' is none: execute() gives computed columns",
                    split_pinned(&base.table).0
                );
                return Err(Error::unsupported(message));
            }
        }
    }
    columns.retain(|name| name != ROW && name != ROW_ID);
    Ok(Some(columns))
}

/// Makes `random()` follow from the row where a query reads a table. Without a seed, only if it must: `random()` is then as
/// DataFusion has it.
pub(crate) fn seed_randoms(query: &mut Query, seed: Option<u64>) -> Result<()> {
    let Some(seed) = seed else { return Ok(()) };
    parse::walk(query, &mut |part| {
        // Inner queries first: what is random in them follows from their own rows.
        let parse::Part::Leave(query) = part else { return Ok(()) };
        let mut probe = query.clone();
        if parse::randoms(&mut probe, seed, &Expr::Identifier(Ident::new(ROW)))?
            && let SetExpr::Select(select) = &mut *query.body
            && let Some(base) = number(select)
        {
            parse::randoms(query, seed, &base.column(ROW))?;
        }
        Ok(())
    })
}

/// Makes `_row` and `_row_id` columns of every table that a query reads, and no part of `*`.
pub(crate) fn hide_numbers(query: &mut Query) -> Result<()> {
    parse::walk(query, &mut |part| {
        if let parse::Part::Enter(query) = part
            && let SetExpr::Select(select) = &mut *query.body
        {
            number(select);
        }
        Ok(())
    })
}
