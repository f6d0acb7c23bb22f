//! Statements that describe: `EXPLAIN`, `DESCRIBE`, `SHOW`.

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, BooleanArray, Int64Array, RecordBatch, StringArray},
    datatypes::{Field, Schema},
};
use datafusion::{
    physical_plan::{collect, display::DisplayableExecutionPlan},
    sql::sqlparser::ast::{ObjectName, Query},
};

use crate::{
    Result, Session,
    catalog::is_hidden,
    session::{Answer, Scope},
    types,
};

/// The plan of a query, and what it reads; with `analyze` it is run, and the plan says what it did.
pub(crate) async fn explain(
    session: &Session,
    query: Query,
    scope: &Scope,
    analyze: bool,
    verbose: bool,
) -> Result<Answer> {
    let (state, plan) = session.plan(query, scope).await?;
    let physical = state.create_physical_plan(&plan).await?;
    let text = if analyze {
        collect(physical.clone(), state.task_ctx()).await?;
        DisplayableExecutionPlan::with_metrics(physical.as_ref()).indent(verbose).to_string()
    } else {
        let physical = DisplayableExecutionPlan::new(physical.as_ref()).indent(verbose).to_string();
        if verbose { format!("{}\n\n{physical}", state.optimize(&plan)?.display_indent()) } else { physical }
    };
    let lines: ArrayRef = Arc::new(StringArray::from(text.lines().collect::<Vec<_>>()));
    table(vec![("plan", lines)])
}

/// The columns of a table.
pub(crate) async fn columns(session: &Session, name: &ObjectName, scope: &Scope) -> Result<Answer> {
    let described = session.tables(scope).find(&crate::alter::plain(name)?).await?;
    let key = described.key();
    let all = &described.schema().columns;
    let texts = |of: &dyn Fn(&forebay_format::Column) -> String| -> ArrayRef {
        Arc::new(StringArray::from_iter_values(all.iter().map(of)))
    };
    let flags = |of: &dyn Fn(&forebay_format::Column) -> bool| -> ArrayRef {
        Arc::new(all.iter().map(|column| Some(of(column))).collect::<BooleanArray>())
    };
    let kind = |column: &forebay_format::Column| {
        let text = format!("{}", forebay_format::Column { name: String::new(), nullable: false, ..column.clone() });
        text.trim_start_matches(": ").to_owned()
    };
    table(vec![
        ("column", texts(&|column| column.name.clone())),
        ("type", texts(&kind)),
        ("kind", texts(&|column| column.kind.name.clone())),
        ("sql", texts(&|column| types::field(column).data_type().to_string())),
        ("nullable", flags(&|column| column.nullable)),
        ("key", flags(&|column| key.iter().any(|other| other.field == column.field))),
    ])
}

/// The tables of the version that queries see.
pub(crate) fn tables(session: &Session) -> Result<Answer> {
    let commit = session.snapshot().commit();
    let mut entries: Vec<_> = commit.tables.iter().filter(|table| !is_hidden(&table.name)).collect();
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    let names: ArrayRef = Arc::new(StringArray::from_iter_values(entries.iter().map(|table| &table.name)));
    let rows: ArrayRef = Arc::new(Int64Array::from_iter_values(entries.iter().map(|table| table.rows as i64)));
    table(vec![("table", names), ("rows", rows)])
}

/// The indexes of the version that queries see, and how many fragments of their tables each covers.
pub(crate) async fn indexes(session: &Session, scope: &Scope) -> Result<Answer> {
    let mut rows: [Vec<String>; 4] = Default::default();
    let snapshot = session.snapshot();
    for name in snapshot.tables().into_iter().filter(|name| !is_hidden(name)) {
        let table = session.tables(scope).find(name).await?;
        for (index, of, covered) in session.tables(scope).indexes(&table).await?.describe(&table).await? {
            let column = table.schema().columns.iter().find(|column| column.field == of.field);
            let (known, all) = (covered.iter().filter(|covered| **covered).count(), covered.len());
            let column = column.map_or_else(String::new, |column| column.name.clone());
            let row = [index.to_owned(), name.to_owned(), column, format!("{known}/{all}")];
            rows.iter_mut().zip(row).for_each(|(column, text)| column.push(text));
        }
    }
    let names = ["index", "table", "column", "fragments"];
    let arrays = rows.map(|texts| Arc::new(StringArray::from(texts)) as ArrayRef);
    table(names.into_iter().zip(arrays).collect())
}

/// One column of texts.
pub(crate) fn texts(name: &str, texts: Vec<String>) -> Result<Answer> {
    table(vec![(name, Arc::new(StringArray::from_iter_values(texts)))])
}

fn table(columns: Vec<(&str, ArrayRef)>) -> Result<Answer> {
    let field = |(name, array): &(&str, ArrayRef)| Field::new(*name, array.data_type().clone(), false);
    let schema = Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>()));
    Ok(Answer::of(RecordBatch::try_new(schema, columns.into_iter().map(|(_, array)| array).collect())?))
}
