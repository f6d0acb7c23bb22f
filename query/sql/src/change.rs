//! `INSERT`, `UPDATE` and `DELETE`: each a commit.

use std::collections::HashSet;

use arrow::{
    array::{ArrayRef, AsArray, Int64Array, RecordBatch, new_null_array},
    compute::concat_batches,
    datatypes::{Int64Type, UInt64Type},
};
use datafusion::sql::sqlparser::ast::{
    AssignmentTarget, Delete, Expr, FromTable, Ident, Insert, ObjectNamePart, Query, Select, SelectItem, SetExpr,
    TableObject, TableWithJoins, Update, UpdateTableFromKind,
};
use forebay_format::{Column, ColumnData, ColumnSlice, Schema};
use forebay_versioning::{Rows, Selection, Table, TableWriter, Transaction};
use futures::TryStreamExt as _;

use crate::{
    Error, Result, Session,
    alter::{self, counted},
    cells::cells,
    declare::SERIAL,
    parse, select,
    select::normal,
    session::{Answer, Outcome, Scope},
};

/// Attempts to give numbers to rows before somebody else gives the same.
const ATTEMPTS: usize = 100;

/// `INSERT INTO name [(columns)] query`.
pub(crate) async fn insert(session: &mut Session, insert: Insert, scope: Scope) -> Result<Outcome> {
    if insert.returning.is_some() || insert.on.is_some() || insert.overwrite || insert.replace_into {
        return Err(Error::unsupported(
            "INSERT has no RETURNING and no ON CONFLICT: rows of a keyed table are upserted by upsert()",
        ));
    }
    let TableObject::TableName(name) = &insert.table else {
        return Err(Error::unsupported("INSERT INTO takes the name of a table"));
    };
    let name = alter::plain(name)?;
    session.refresh().await?;
    let table = session.tables(&scope).find(&name).await?;
    let source = insert.source.ok_or_else(|| Error::unsupported("INSERT needs VALUES or a query"))?;
    let answer = session.rows(*source, &scope).await?;
    let given: Vec<String> = match &insert.columns[..] {
        [] => table.schema().columns.iter().map(|c| c.name.clone()).take(answer.schema.fields().len()).collect(),
        named => named.iter().map(alter::plain).collect::<Result<_>>()?,
    };
    for column in &given {
        alter::column(table.schema(), column, &scope)?;
    }
    if let Some(twice) =
        given.iter().enumerate().find_map(|(place, name)| given[..place].contains(name).then_some(name))
    {
        return Err(Error::sql(format!("column {twice} is named twice"), scope.names.place(twice)));
    }
    if given.len() != answer.schema.fields().len() {
        let message = format!("{} columns are named and {} are given", given.len(), answer.schema.fields().len());
        return Err(Error::sql(message, scope.names.place(&name)));
    }
    append(session, &table, &given, answer, "insert").await
}

/// Appends what a query gives to a table of the branch's end.
pub(crate) async fn append(
    session: &mut Session,
    table: &Table,
    given: &[String],
    answer: Answer,
    what: &'static str,
) -> Result<Outcome> {
    let schema = table.schema().clone();
    let serial =
        schema.columns.iter().find(|column| column.kind.name == SERIAL && !given.contains(&column.name)).cloned();
    let Some(serial) = serial else {
        let transaction = session.lake().begin_at(session.branch()?, table.snapshot()).await?;
        let writer = transaction.writer(table.name()).await?;
        let (writer, rows) = write(writer, &schema, given, answer, None).await?;
        return commit(session, transaction, writer, (what, table.name(), rows)).await;
    };
    // Somebody else may give the same numbers at the same time: whoever is second tries again.
    let fields = answer.schema.clone();
    let batch = concat_batches(&fields, &answer.collect().await?)?;
    for _ in 0..ATTEMPTS {
        session.refresh().await?;
        let table = session.snapshot.table(table.name()).await?;
        let next = next_number(&table, &serial).await?;
        let transaction = session.lake().begin_at(session.branch()?, table.snapshot()).await?;
        let writer = transaction.writer(table.name()).await?;
        let (writer, rows) = write(writer, &schema, given, Answer::of(batch.clone()), Some((&serial, next))).await?;
        match commit(session, transaction, writer, (what, table.name(), rows)).await {
            Err(Error::Lake(
                forebay_versioning::Error::DuplicateKey { .. } | forebay_versioning::Error::Conflict { .. },
            )) => {}
            done => return done,
        }
    }
    let (branch, attempts) = (session.branch()?.to_owned(), ATTEMPTS as u32);
    Err(forebay_versioning::Error::Contention { branch, attempts }.into())
}

async fn next_number(table: &Table, serial: &Column) -> Result<i64> {
    if let Some(largest) = crate::scan::largest(table, serial).await? {
        return Ok(largest.max(0) + 1);
    }
    let data = table.read(&serial.name, 0..table.rows()).await?;
    let array = crate::arrays::array(serial, data)?;
    Ok(arrow::compute::max(array.as_primitive::<Int64Type>()).unwrap_or(0) + 1)
}

async fn commit(
    session: &mut Session,
    mut transaction: Transaction,
    writer: TableWriter,
    (what, table, rows): (&'static str, &str, u64),
) -> Result<Outcome> {
    let kind = if what == "copy" { "COPY" } else { "INSERT" };
    if rows == 0 {
        return Ok(Outcome::Changed { what: kind, rows, commit: None });
    }
    transaction.append(blocking(move || Ok(writer.finish()?)).await?);
    session.snapshot = transaction.commit(&counted(what, rows, table), &session.options.author).await?;
    Ok(Outcome::Changed { what: kind, rows, commit: Some(session.snapshot.id()) })
}

/// Makes a table of what a query gives.
pub(crate) async fn fill(session: &mut Session, name: &str, schema: Schema, answer: Answer) -> Result<Outcome> {
    let mut transaction = session.lake().begin(session.branch()?).await?;
    transaction.create_table(name, schema.clone())?;
    let given: Vec<String> = schema.columns.iter().map(|column| column.name.clone()).collect();
    let (writer, rows) = write(transaction.writer(name).await?, &schema, &given, answer, None).await?;
    transaction.append(blocking(move || Ok(writer.finish()?)).await?);
    session.snapshot =
        transaction.commit(&format!("create table {name} of {rows} rows"), &session.options.author).await?;
    Ok(Outcome::Changed { what: "CREATE TABLE", rows, commit: Some(session.snapshot.id()) })
}

/// Writes batches as they come; columns that aren't given are numbered, or null.
async fn write(
    mut writer: TableWriter,
    schema: &Schema,
    given: &[String],
    answer: Answer,
    mut serial: Option<(&Column, i64)>,
) -> Result<(TableWriter, u64)> {
    let mut rows = 0;
    let mut batches = answer.batches;
    while let Some(batch) = batches.try_next().await? {
        let mut data = Vec::with_capacity(schema.columns.len());
        for column in &schema.columns {
            let array: ArrayRef = match (given.iter().position(|name| *name == column.name), &mut serial) {
                (Some(place), _) => batch.column(place).clone(),
                (None, Some((numbered, next))) if numbered.name == column.name => {
                    let first = *next;
                    *next += batch.num_rows() as i64;
                    std::sync::Arc::new(Int64Array::from_iter_values(first..*next))
                }
                (None, _) if column.nullable => {
                    new_null_array(crate::types::field(column).data_type(), batch.num_rows())
                }
                (None, _) => {
                    let reason = "it is declared NOT NULL, and no value was given".to_owned();
                    return Err(Error::Value { column: column.name.clone(), reason });
                }
            };
            data.push(cells(column, &array)?);
        }
        rows += batch.num_rows() as u64;
        writer = blocking(move || {
            let slices: Vec<ColumnSlice<'_>> = data.iter().map(ColumnData::as_slice).collect();
            writer.push(&slices)?;
            Ok(writer)
        })
        .await?;
    }
    Ok((writer, rows))
}

/// Runs what waits for a disk or for uploads where it may.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(source) => match source.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(source) => Err(forebay_versioning::Error::Cancelled { source }.into()),
        },
    }
}

/// The value of an expression without rows.
pub(crate) async fn constant(session: &Session, expr: &Expr, column: &Column, scope: &Scope) -> Result<ColumnData> {
    let mut query = template()?;
    select_of(&mut query)?.projection = vec![SelectItem::UnnamedExpr(expr.clone())];
    let answer = session.rows(query, scope).await?;
    let schema = answer.schema.clone();
    cells(column, concat_batches(&schema, &answer.collect().await?)?.column(0))
}

/// `UPDATE name SET column = expression, ... [FROM ...] [WHERE ...]`.
pub(crate) async fn update(session: &mut Session, update: Update, scope: Scope) -> Result<Outcome> {
    if update.returning.is_some() || update.limit.is_some() || !update.order_by.is_empty() {
        return Err(Error::unsupported("UPDATE has no RETURNING, ORDER BY or LIMIT"));
    }
    session.refresh().await?;
    let mut from = vec![update.table];
    from.extend(update.from.into_iter().flat_map(|from| match from {
        UpdateTableFromKind::BeforeSet(tables) | UpdateTableFromKind::AfterSet(tables) => tables,
    }));
    let mut names: Vec<String> = Vec::new();
    let mut values = Vec::new();
    for assignment in update.assignments {
        let AssignmentTarget::ColumnName(target) = assignment.target else {
            return Err(Error::unsupported("UPDATE sets columns one by one"));
        };
        let Some(ObjectNamePart::Identifier(ident)) = target.0.last() else {
            return Err(Error::unsupported("UPDATE sets columns by name"));
        };
        if names.contains(&normal(ident)) {
            return Err(Error::sql(format!("column {} is set twice", ident.value), scope.names.place(&normal(ident))));
        }
        names.push(normal(ident));
        values.push(assignment.value);
    }
    let (table, batch) = touched(session, from, update.selection, values, &scope, Some(&names)).await?;
    let rows: Vec<u64> = batch.column(0).as_primitive::<UInt64Type>().values().to_vec();
    if rows.is_empty() {
        return Ok(Outcome::Changed { what: "UPDATE", rows: 0, commit: None });
    }
    let mut data = Vec::with_capacity(names.len());
    for (place, name) in names.iter().enumerate() {
        data.push(cells(
            table.schema().column(name).map_err(forebay_versioning::Error::from)?,
            batch.column(place + 1),
        )?);
    }
    if rows.iter().collect::<HashSet<_>>().len() != rows.len() {
        return Err(Error::unsupported("a row is to be updated twice: several rows of FROM match it"));
    }
    let count = rows.len() as u64;
    let selection = Selection::new(table.clone(), Rows::List(rows.into()))?;
    let mut transaction = session.lake().begin_at(session.branch()?, table.snapshot()).await?;
    let values: Vec<(&str, ColumnSlice<'_>)> =
        names.iter().map(String::as_str).zip(data.iter().map(ColumnData::as_slice)).collect();
    transaction.update(&selection, &values).await?;
    session.snapshot = transaction.commit(&counted("update", count, table.name()), &session.options.author).await?;
    Ok(Outcome::Changed { what: "UPDATE", rows: count, commit: Some(session.snapshot.id()) })
}

/// `DELETE FROM name [USING ...] [WHERE ...]`.
pub(crate) async fn delete(session: &mut Session, delete: Delete, scope: Scope) -> Result<Outcome> {
    if delete.returning.is_some() || delete.limit.is_some() || !delete.order_by.is_empty() {
        return Err(Error::unsupported("DELETE has no RETURNING, ORDER BY or LIMIT"));
    }
    session.refresh().await?;
    let (FromTable::WithFromKeyword(mut from) | FromTable::WithoutKeyword(mut from)) = delete.from;
    from.extend(delete.using.into_iter().flatten());
    let (table, batch) = touched(session, from, delete.selection, Vec::new(), &scope, None).await?;
    let mut rows: Vec<u64> = batch.column(0).as_primitive::<UInt64Type>().values().to_vec();
    rows.sort_unstable();
    rows.dedup();
    if rows.is_empty() {
        return Ok(Outcome::Changed { what: "DELETE", rows: 0, commit: None });
    }
    let count = rows.len() as u64;
    let mut transaction = session.lake().begin_at(session.branch()?, table.snapshot()).await?;
    transaction.delete(&Selection::new(table.clone(), Rows::List(rows.into()))?)?;
    session.snapshot = transaction.commit(&counted("delete", count, table.name()), &session.options.author).await?;
    Ok(Outcome::Changed { what: "DELETE", rows: count, commit: Some(session.snapshot.id()) })
}

/// The numbers of the rows of the first table that a condition holds for, and values computed for them.
async fn touched(
    session: &Session,
    from: Vec<TableWithJoins>,
    selection: Option<Expr>,
    values: Vec<Expr>,
    scope: &Scope,
    names: Option<&[String]>,
) -> Result<(Table, RecordBatch)> {
    let mut query = template()?;
    let body = select_of(&mut query)?;
    (body.from, body.selection) = (from, selection);
    body.projection = values.into_iter().enumerate().map(|(place, expr)| named(expr, place + 1)).collect();
    crate::parameters::bind(&mut query, &scope.given.parameters)?;
    let mut scope = scope.clone();
    parse::operators(&mut query, &mut scope.functions)?;
    crate::matching::search(session, &mut query, &mut scope).await?;
    let scope = &scope;
    select::seed_randoms(&mut query, Some(scope.given.seed.unwrap_or_else(select::rand_seed)))?;
    let body = select_of(&mut query)?;
    let base = select::number(body)
        .ok_or_else(|| Error::unsupported("rows are changed in one table of the lake, named first"))?;
    body.projection.insert(0, named(base.column(crate::scan::ROW), 0));
    let table = session.tables(scope).find(&base.table).await?;
    if parse::split_pinned(&base.table).1.is_some() {
        return Err(Error::ReadOnly { at: "a version named by AT".to_owned() });
    }
    for name in names.into_iter().flatten() {
        alter::column(table.schema(), name, scope)?;
    }
    let (state, plan) = session.planned(query, scope).await?;
    let physical = state.create_physical_plan(&plan).await?;
    let answer = crate::session::run(&state, physical)?;
    let schema = answer.schema.clone();
    Ok((table, concat_batches(&schema, &answer.collect().await?)?))
}

fn named(expr: Expr, place: usize) -> SelectItem {
    SelectItem::ExprWithAlias { expr, alias: Ident::with_quote('"', format!("\u{3}{place}")) }
}

/// A query to be filled in.
fn template() -> Result<Query> {
    query("SELECT 1")
}

/// A query of our own.
pub(crate) fn query(text: &str) -> Result<Query> {
    let dialect = datafusion::sql::sqlparser::dialect::PostgreSqlDialect {};
    let mut parser = datafusion::sql::sqlparser::parser::Parser::new(&dialect).try_with_sql(text)?;
    Ok(*parser.parse_query()?)
}

fn select_of(query: &mut Query) -> Result<&mut Select> {
    match &mut *query.body {
        SetExpr::Select(select) => Ok(select),
        _ => Err(Error::unsupported("a SELECT was expected")),
    }
}
