//! Indexes: of vectors and of texts.
//!
//! An index is a table of the lake, so that it is versioned, branched and merged as all tables are. It knows fragments by their
//! identity. What it doesn't cover (fragments appended since, and those whose values were changed in place) is looked at when
//! somebody asks, so that nothing is missed while an index is behind.

mod bm25;
mod ivf;

use std::{collections::BTreeMap, sync::Arc};

use datafusion::sql::sqlparser::ast::{BinaryOperator, CreateIndex, Expr, IndexType, Value};
use forebay_format::{Column, DType, Dim, FieldId, Kind};
use forebay_versioning::{Snapshot, Table};

pub(crate) use bm25::Texts;
pub(crate) use ivf::{Candidate, Vectors};

use crate::{
    Error, Result, Session, alter,
    change::blocking,
    select::normal,
    session::{Outcome, Scope},
};

/// Before the names of the tables that hold indexes.
pub(crate) const PREFIX: &str = "index.";

/// The column that an index is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Of {
    /// The table's identity, which outlives its name.
    pub(crate) table: String,
    pub(crate) field: FieldId,
}

impl Of {
    fn new(table: &Table, column: &Column) -> Self {
        Self { table: table.id().to_string(), field: column.field }
    }

    fn read(kind: &Kind) -> Option<Self> {
        let field = u64::from_str_radix(kind.metadata.get("field")?, 16).ok()?;
        Some(Self { table: kind.metadata.get("table")?.clone(), field: FieldId(field) })
    }

    fn metadata(&self) -> BTreeMap<String, String> {
        [("table", self.table.clone()), ("field", self.field.to_string())]
            .map(|(key, value)| (key.to_owned(), value))
            .into()
    }

    /// The table and the column in a version of the lake.
    async fn find(&self, index: &str, snapshot: &Snapshot) -> Result<(Table, Column)> {
        for name in snapshot.tables().into_iter().filter(|name| !name.starts_with(PREFIX)) {
            let table = snapshot.table(name).await?;
            if table.id().to_string() == self.table {
                let column = table.schema().columns.iter().find(|column| column.field == self.field).cloned();
                return Ok((table, column.ok_or_else(|| broken(index, "its column is gone"))?));
            }
        }
        Err(broken(index, "its table is gone"))
    }
}

fn broken(index: &str, what: &str) -> Error {
    Error::unsupported(format!("index {index} can't be used: {what}; DROP INDEX it and make it anew"))
}

/// The indexes of a version of the lake, or of a table.
#[derive(Debug, Default)]
pub(crate) struct Indexes {
    pub(crate) vectors: Vec<Arc<Vectors>>,
    pub(crate) texts: Vec<Arc<Texts>>,
}

impl Indexes {
    /// Those of a version.
    pub(crate) async fn of(snapshot: &Snapshot) -> Result<Self> {
        let mut all = Self::default();
        for name in snapshot.tables().into_iter().filter(|name| name.starts_with(PREFIX)) {
            all.add(snapshot.table(name).await?);
        }
        Ok(all)
    }

    fn add(&mut self, table: Table) {
        let name = table.name().trim_start_matches(PREFIX).to_owned();
        let Some((kind, of)) =
            table.schema().columns.first().and_then(|first| Some((&first.kind, Of::read(&first.kind)?)))
        else {
            return;
        };
        match kind.name.as_str() {
            ivf::KIND => self.vectors.extend(Vectors::of(table, name, of).map(Arc::new)),
            bm25::KIND => self.texts.extend(Texts::of(table, name, of).map(Arc::new)),
            _ => {}
        }
    }

    /// Those of one table.
    pub(crate) fn of_table(&self, table: &Table) -> Self {
        let id = table.id().to_string();
        Self {
            vectors: self.vectors.iter().filter(|index| index.of.table == id).cloned().collect(),
            texts: self.texts.iter().filter(|index| index.of.table == id).cloned().collect(),
        }
    }

    /// The name, the column and what is covered of each.
    pub(crate) async fn describe(&self, table: &Table) -> Result<Vec<(&str, &Of, Vec<bool>)>> {
        let mut all = Vec::new();
        for index in &self.vectors {
            all.push((index.name.as_str(), &index.of, index.covered(table).await?));
        }
        for index in &self.texts {
            all.push((index.name.as_str(), &index.of, index.covered(table).await?));
        }
        Ok(all)
    }

    /// The tables that hold them, of a column if one is given.
    pub(crate) fn tables(&self, field: Option<FieldId>) -> Vec<String> {
        let vectors = self.vectors.iter().map(|index| (&index.name, &index.of));
        let all = vectors.chain(self.texts.iter().map(|index| (&index.name, &index.of)));
        let all = all.filter(|(_, of)| field.is_none_or(|field| of.field == field));
        all.map(|(name, _)| format!("{PREFIX}{name}")).collect()
    }
}

/// `CREATE INDEX name ON table USING ivf|bm25 (column) [WITH (...)]`.
pub(crate) async fn create(session: &mut Session, create: CreateIndex, scope: &Scope) -> Result<Outcome> {
    let name =
        create.name.as_ref().ok_or_else(|| Error::unsupported("an index has a name: CREATE INDEX name ON ..."))?;
    let name = alter::plain(name)?;
    let kind = match &create.using {
        Some(IndexType::Custom(kind)) => normal(kind),
        _ => String::new(),
    };
    let with = match kind.as_str() {
        ivf::KIND => options(&create.with, &["lists", "probes"])?,
        bm25::KIND => options(&create.with, &["language"])?,
        _ => {
            let what = "indexes are of vectors and of texts: CREATE INDEX name ON t USING ivf (column), or bm25";
            return Err(Error::unsupported(what));
        }
    };
    session.refresh().await?;
    let own = format!("{PREFIX}{name}");
    if session.snapshot.tables().contains(&own.as_str()) {
        if create.if_not_exists {
            return Ok(Outcome::Changed { what: "CREATE INDEX", rows: 0, commit: None });
        }
        return Err(Error::sql(format!("there is an index {name} already"), scope.names.place(&name)));
    }
    let table = session.tables(scope).find(&alter::plain(&create.table_name)?).await?;
    let [Expr::Identifier(column)] = &create.columns.iter().map(|c| c.column.expr.clone()).collect::<Vec<_>>()[..]
    else {
        return Err(Error::unsupported("an index is of one column"));
    };
    let column = alter::column(table.schema(), &normal(column), scope)?.clone();
    let of = Of::new(&table, &column);
    let wrong = |what: &str| Err(Error::sql(format!("{column} {what}"), scope.names.place(&column.name)));
    let mut transaction = session.lake().begin_at(session.branch()?, table.snapshot()).await?;
    let (writer, rows) = match (kind.as_str(), column.dtype, &column.shape[..]) {
        (ivf::KIND, DType::F32 | DType::F16 | DType::BF16, [Dim::Fixed(length)]) if *length > 0 => {
            let settings = ivf::Settings::new(*length, table.rows(), number(&with, "lists")?, number(&with, "probes")?);
            transaction.create_table(&own, settings.schema(&of)?)?;
            ivf::build(&table, &column, &settings, transaction.writer(&own).await?).await?
        }
        (ivf::KIND, ..) => return wrong("has no vectors: USING ivf is for VECTOR(n) and other floats of fixed length"),
        (_, DType::Utf8, []) => {
            let language = with.get("language").map_or("english", |language| text(language));
            let language = bm25::language_named(language)?;
            transaction.create_table(&own, bm25::schema(&of, language)?)?;
            let all = (0..table.fragments().len()).collect();
            bm25::write_part(&table, &column, all, language, transaction.writer(&own).await?).await?
        }
        _ => return wrong("has no texts: USING bm25 is for TEXT"),
    };
    transaction.append(blocking(move || Ok(writer.finish()?)).await?);
    session.snapshot = transaction.commit(&format!("create index {name}"), &session.options.author).await?;
    Ok(Outcome::Changed { what: "CREATE INDEX", rows, commit: Some(session.snapshot.id()) })
}

/// `REINDEX name`: takes in the fragments that the index doesn't cover yet.
pub(crate) async fn reindex(session: &mut Session, name: &str, scope: &Scope) -> Result<Outcome> {
    session.refresh().await?;
    let own = format!("{PREFIX}{name}");
    if !session.snapshot.tables().contains(&own.as_str()) {
        return Err(Error::sql(format!("no index {name}"), scope.names.place(name)));
    }
    let mut found = Indexes::default();
    found.add(session.snapshot.table(&own).await?);
    let mut transaction = session.lake().begin_at(session.branch()?, &session.snapshot).await?;
    let writer = transaction.writer(&own).await?;
    let (writer, rows) = match (&found.vectors[..], &found.texts[..]) {
        ([index], []) => {
            let (table, column) = index.of.find(name, &session.snapshot).await?;
            index.take_in(&table, &column, writer).await?
        }
        ([], [index]) => {
            let (table, column) = index.of.find(name, &session.snapshot).await?;
            index.take_in(&table, &column, writer).await?
        }
        _ => return Err(broken(name, "its table holds no index")),
    };
    if rows == 0 {
        return Ok(Outcome::Changed { what: "REINDEX", rows, commit: None });
    }
    transaction.append(blocking(move || Ok(writer.finish()?)).await?);
    session.snapshot = transaction.commit(&format!("reindex {name}"), &session.options.author).await?;
    Ok(Outcome::Changed { what: "REINDEX", rows, commit: Some(session.snapshot.id()) })
}

/// The settings of `WITH (name = value, ...)`.
fn options(with: &[Expr], known: &[&str]) -> Result<BTreeMap<String, Value>> {
    let one = |expr: &Expr| match expr {
        Expr::BinaryOp { left, op: BinaryOperator::Eq, right } => match (&**left, &**right) {
            (Expr::Identifier(name), Expr::Value(value)) if known.contains(&normal(name).as_str()) => {
                Some((normal(name), value.value.clone()))
            }
            _ => None,
        },
        _ => None,
    };
    let all = with.iter().map(|expr| {
        one(expr).ok_or_else(|| Error::unsupported(format!("WITH ({expr}): it takes {}", known.join(" and "))))
    });
    all.collect()
}

fn number(with: &BTreeMap<String, Value>, name: &str) -> Result<Option<usize>> {
    let Some(value) = with.get(name) else { return Ok(None) };
    let number = text(value).parse().ok().filter(|number| (1..=65_536).contains(number));
    let no = || Error::unsupported(format!("{name} = {value}: a whole number from 1 to 65536 is needed"));
    number.map(Some).ok_or_else(no)
}

fn text(value: &Value) -> &str {
    match value {
        Value::Number(text, _) | Value::SingleQuotedString(text) => text,
        _ => "",
    }
}
