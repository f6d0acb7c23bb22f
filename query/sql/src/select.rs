//! Queries whose rows are rows of a table: what a loader takes.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, AsArray, UInt64Array},
    compute::{SortColumn, concat, lexsort_to_indices, take},
    datatypes::{DataType, UInt64Type},
};
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
    /// The columns that the query names, computed ones among them, or none for `*`.
    pub columns: Option<Vec<String>>,
    /// The columns that are computed.
    pub computed: Vec<Computed>,
    /// Whether the query has an order.
    pub ordered: bool,
    /// Whether its order is `ORDER BY RANDOM()` without a limit: a new one each epoch.
    pub shuffle: bool,
    /// What `random()` and samples followed from.
    pub seed: u64,
}

/// A column that a selection computes.
#[derive(Clone, Debug)]
pub struct Computed {
    /// Its name, which the query gives.
    pub name: String,
    /// Numbers or truth values, one for each selected row, in their order.
    pub values: ArrayRef,
    /// Whether it may have nulls, whether or not it has any.
    pub nullable: bool,
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
    let mut scope = Scope { names, given: given.clone(), ..Scope::default() };
    parse::operators(&mut query, &mut scope.functions)?;
    let no = |what: &str| Err(Error::unsupported(format!("a selection's rows are rows of one table: {what}")));
    if let Some(what) = regrouping(&query) {
        return no(what);
    }
    let shuffle = query.limit_clause.is_none() && query.fetch.is_none() && is_random_order(&query);
    if shuffle {
        query.order_by = None;
    }
    let ordered = query.order_by.is_some();
    let seed = given.seed.unwrap_or_else(rand_seed);
    scope.given.seed = Some(seed);
    crate::matching::search(session, &mut query, &mut scope).await?;
    seed_randoms(&mut query, Some(seed))?;
    let SetExpr::Select(select) = &mut *query.body else { return no("it has no SELECT") };
    let Some(base) = number(select) else { return no("its FROM must begin with a table of the lake") };
    if given.tables.contains_key(&base.table) {
        return no(&format!("'{}' is not in the lake", base.table));
    }
    let items = items(select, &base)?;
    let item = SelectItem::ExprWithAlias { expr: base.column(ROW), alias: Ident::with_quote('"', NUMBER) };
    select.projection.insert(0, item);
    let table = session.tables(&scope).find(&base.table).await?;
    for item in &items {
        if let Item::Named(name) = item {
            alter::column(table.schema(), name, &scope)?;
        }
    }
    let stored: Vec<&str> = table.schema().columns.iter().map(|column| column.name.as_str()).collect();
    let columns = named(&items, &stored);
    let twice = |(place, name): (usize, &String)| columns.iter().flatten().take(place).any(|other| other == name);
    let names = computed_names(&items);
    if let Some((_, name)) = columns.iter().flatten().enumerate().find(|found| !names.is_empty() && twice(*found)) {
        return Err(Error::sql(format!("two columns are named {name}"), scope.names.place(name)));
    }
    let (rows, computed) = numbers(session, query, &names, &scope).await?;
    let (rows, computed) = if ordered { (rows, computed) } else { sorted(rows, computed)? };
    Ok(Chosen { table, rows, columns, computed, ordered, shuffle, seed })
}

/// In the order of the rows. A row that is selected several times comes in the order of its computed values: the same one each time.
fn sorted(mut rows: Vec<u64>, mut computed: Vec<Computed>) -> Result<(Vec<u64>, Vec<Computed>)> {
    if computed.is_empty() {
        rows.sort_unstable();
        return Ok((rows, computed));
    }
    let rows: ArrayRef = Arc::new(UInt64Array::from(rows));
    let keys = std::iter::once(&rows).chain(computed.iter().map(|column| &column.values));
    let keys: Vec<SortColumn> = keys.map(|values| SortColumn { values: values.clone(), options: None }).collect();
    let order = lexsort_to_indices(&keys, None)?;
    for column in &mut computed {
        column.values = take(&column.values, &order, None)?;
    }
    Ok((take(&rows, &order, None)?.as_primitive::<UInt64Type>().values().to_vec(), computed))
}

/// A seed that nobody chose.
pub(crate) fn rand_seed() -> u64 {
    let id = forebay_format::CommitId::random();
    id.as_bytes().iter().fold(0, |seed: u64, byte| seed.rotate_left(9) ^ u64::from(*byte)) >> 1
}

/// The first column, [`NUMBER`], of a query's rows, and those that it computes; the others are not read unless its order needs them.
async fn numbers(
    session: &Session,
    query: Query,
    names: &[String],
    scope: &Scope,
) -> Result<(Vec<u64>, Vec<Computed>)> {
    let (state, plan) = session.planned(query, scope).await?;
    let wanted = std::iter::once(NUMBER).chain(names.iter().map(String::as_str));
    let wanted = wanted.map(|name| col(datafusion::common::Column::from_name(name)));
    let plan = LogicalPlanBuilder::from(plan).project(wanted)?.build()?;
    for (name, field) in names.iter().zip(plan.schema().fields().iter().skip(1)) {
        if !(is_number(field.data_type()) || *field.data_type() == DataType::Boolean) {
            let message = format!(
                "{name} is computed, and of type {}: a selection computes numbers and truth values",
                field.data_type()
            );
            let place = scope.names.place(name);
            let hint = Some("execute() gives columns of all types".to_owned());
            return Err(Error::Sql { message, line: place.line, column: place.column, hint });
        }
    }
    let physical = state.create_physical_plan(&plan).await?;
    let answer = run(&state, physical)?;
    let (schema, mut batches) = (answer.schema, answer.batches);
    let (mut rows, mut parts) = (Vec::new(), vec![Vec::new(); names.len()]);
    while let Some(batch) = batches.try_next().await? {
        rows.extend_from_slice(batch.column(0).as_primitive::<UInt64Type>().values());
        parts.iter_mut().zip(batch.columns().iter().skip(1)).for_each(|(parts, values)| parts.push(values.clone()));
    }
    let mut computed = Vec::with_capacity(names.len());
    for ((name, field), parts) in names.iter().zip(schema.fields().iter().skip(1)).zip(parts) {
        let parts: Vec<&dyn Array> = parts.iter().map(|values: &ArrayRef| values.as_ref()).collect();
        let none = || arrow::array::new_empty_array(field.data_type());
        let values = if parts.is_empty() { none() } else { concat(&parts)? };
        computed.push(Computed { name: name.clone(), values, nullable: field.is_nullable() });
    }
    Ok((rows, computed))
}

/// Whether NumPy, PyTorch and Arrow have the type alike.
fn is_number(data_type: &DataType) -> bool {
    data_type.is_integer() || matches!(data_type, DataType::Float16 | DataType::Float32 | DataType::Float64)
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

/// What a selection names.
#[derive(Debug, PartialEq, Eq)]
enum Item {
    /// All columns of its table.
    All,
    /// One of them.
    Named(String),
    /// What it computes, by the name that it gives it.
    Computed(String),
}

/// What a selection names. A column of another table of the query counts as computed.
fn items(select: &mut Select, base: &Base) -> Result<Vec<Item>> {
    let mut items = Vec::new();
    for item in &mut select.projection {
        match item {
            SelectItem::Wildcard(options) if is_plain(options) => items.push(Item::All),
            SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), options)
                if is_plain(options)
                    && matches!(&name.0[..], [ObjectNamePart::Identifier(ident)] if base.is(ident)) =>
            {
                items.push(Item::All);
            }
            SelectItem::UnnamedExpr(Expr::Identifier(ident)) => items.push(Item::Named(normal(ident))),
            SelectItem::UnnamedExpr(Expr::CompoundIdentifier(parts)) if parts.len() == 2 && base.is(&parts[0]) => {
                items.push(Item::Named(normal(&parts[1])));
            }
            SelectItem::ExprWithAlias { alias, .. } => items.push(Item::Computed(normal(alias))),
            SelectItem::UnnamedExpr(expr @ Expr::CompoundIdentifier(_)) => {
                let Expr::CompoundIdentifier(parts) = &*expr else { continue };
                let Some(name) = parts.last().map(normal) else { continue };
                let alias = Ident::with_quote('"', name.as_str());
                *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
                items.push(Item::Computed(name));
            }
            other => {
                let message = format!(
                    "a selection names columns of '{}', and '{other}' is none: give what is computed a name, as in {other} AS name",
                    split_pinned(&base.table).0
                );
                return Err(Error::unsupported(message));
            }
        }
    }
    items.retain(|item| !matches!(item, Item::Named(name) if name == ROW || name == ROW_ID));
    Ok(items)
}

/// The names of what a selection names, where its table has the columns `stored`; none if that is all of them and nothing else.
fn named(items: &[Item], stored: &[&str]) -> Option<Vec<String>> {
    let all = items.contains(&Item::All);
    let computed = computed_names(items);
    if all && computed.is_empty() {
        return None;
    }
    // Beside all columns a column of its own says nothing more.
    let names = items.iter().flat_map(|item| match item {
        Item::All => stored.iter().map(|name| (*name).to_owned()).collect(),
        Item::Named(_) if all => Vec::new(),
        Item::Named(name) | Item::Computed(name) => vec![name.clone()],
    });
    Some(names.collect())
}

fn computed_names(items: &[Item]) -> Vec<String> {
    let name = |item: &Item| if let Item::Computed(name) = item { Some(name.clone()) } else { None };
    items.iter().filter_map(name).collect()
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
