//! Statements that change what there is: tables, columns, branches, tags, transactions.

use datafusion::sql::sqlparser::ast::{
    AlterTable, AlterTableOperation, ColumnDef, ColumnOption, CreateTable, Expr, ObjectName, ObjectNamePart,
    ObjectType, RenameTableNameKind, Statement, TableConstraint,
};
use forebay_format::{Column, Schema};
use forebay_versioning::{At, DEFAULT_LEASE, MergeOptions};

use crate::{
    Error, Result, Session, change,
    declare::{self, Declared},
    index,
    parse::What,
    refs,
    select::normal,
    session::{Outcome, Scope},
    show,
};

/// A table's name: one part, as SQL takes it.
pub(crate) fn plain(name: &ObjectName) -> Result<String> {
    match &name.0[..] {
        [ObjectNamePart::Identifier(ident)] => Ok(normal(ident)),
        _ => Err(Error::unsupported(format!("'{name}' has several parts: tables of a lake have plain names"))),
    }
}

fn done(what: &'static str, session: &Session) -> Outcome {
    Outcome::Changed { what, rows: 0, commit: Some(session.snapshot.id()) }
}

/// `CREATE TABLE name (...)` and `CREATE TABLE name AS SELECT`.
pub(crate) async fn create_table(session: &mut Session, create: CreateTable, scope: Scope) -> Result<Outcome> {
    session.refresh().await?;
    let name = plain(&create.name)?;
    let exists = session.snapshot.tables().contains(&name.as_str());
    if exists && create.if_not_exists {
        return Ok(Outcome::Changed { what: "CREATE TABLE", rows: 0, commit: None });
    }
    if create.temporary || create.external || create.or_replace {
        return Err(Error::unsupported("tables are made by CREATE TABLE [IF NOT EXISTS], and are permanent"));
    }
    if let Some(query) = create.query {
        let answer = session.rows(*query, &scope).await?;
        let columns = answer.schema.fields().iter().map(|field| declare::shown(field)).collect::<Result<Vec<_>>>()?;
        return change::fill(session, &name, Schema::new(columns)?, answer).await;
    }
    let mut key = Vec::new();
    let mut columns = Vec::with_capacity(create.columns.len());
    for def in &create.columns {
        let Declared { column, primary } = declare::declared(def, &scope.names)?;
        key.extend(primary.then(|| column.name.clone()));
        columns.push(column);
    }
    for constraint in &create.constraints {
        match constraint {
            TableConstraint::PrimaryKey(primary) => {
                for indexed in &primary.columns {
                    let Expr::Identifier(ident) = &indexed.column.expr else {
                        return Err(Error::unsupported("a key is made of columns"));
                    };
                    key.push(normal(ident));
                }
            }
            other => return Err(Error::unsupported(format!("'{other}': of constraints there is PRIMARY KEY alone"))),
        }
    }
    for column in columns.iter_mut().filter(|column| key.contains(&column.name)) {
        column.nullable = false;
    }
    let mut transaction = session.lake().begin(session.branch()?).await?;
    let key: Vec<&str> = key.iter().map(String::as_str).collect();
    transaction.create_table_with_key(&name, Schema::new(columns)?, &key)?;
    session.snapshot = transaction.commit(&format!("create table {name}"), &session.options.author).await?;
    Ok(done("CREATE TABLE", session))
}

/// `DROP TABLE` and `ALTER TABLE`.
pub(crate) async fn alter(session: &mut Session, statement: Statement, scope: &Scope) -> Result<Outcome> {
    session.refresh().await?;
    match statement {
        Statement::Drop { object_type: ObjectType::Table, if_exists, names, .. } => {
            let names = names.iter().map(plain).collect::<Result<Vec<_>>>()?;
            let mut transaction = session.lake().begin(session.branch()?).await?;
            let mut any = false;
            for name in &names {
                if !if_exists || session.snapshot.tables().contains(&name.as_str()) {
                    let table = session.tables(scope).find(name).await?;
                    transaction.drop_table(name)?;
                    for index in session.tables(scope).indexes(&table).await?.tables(None) {
                        transaction.drop_table(&index)?;
                    }
                    any = true;
                }
            }
            if !any {
                return Ok(Outcome::Changed { what: "DROP TABLE", rows: 0, commit: None });
            }
            let message = format!("drop table {}", names.join(", "));
            session.snapshot = transaction.commit(&message, &session.options.author).await?;
            Ok(done("DROP TABLE", session))
        }
        Statement::Drop { object_type: ObjectType::Index, if_exists, names, .. } => {
            let mut transaction = session.lake().begin(session.branch()?).await?;
            let mut dropped = Vec::new();
            for name in names.iter().map(plain).collect::<Result<Vec<_>>>()? {
                let own = format!("{}{name}", index::PREFIX);
                let there = session.snapshot.tables().contains(&own.as_str());
                if !there && !if_exists {
                    return Err(Error::sql(format!("no index {name}"), scope.names.place(&name)));
                }
                if there {
                    transaction.drop_table(&own)?;
                    dropped.push(name);
                }
            }
            if dropped.is_empty() {
                return Ok(Outcome::Changed { what: "DROP INDEX", rows: 0, commit: None });
            }
            let message = format!("drop index {}", dropped.join(", "));
            session.snapshot = transaction.commit(&message, &session.options.author).await?;
            Ok(done("DROP INDEX", session))
        }
        Statement::AlterTable(alter) => alter_table(session, alter, scope).await,
        other => Err(Error::unsupported(format!("'{other}': DROP drops tables, indexes, branches and tags"))),
    }
}

async fn alter_table(session: &mut Session, alter: AlterTable, scope: &Scope) -> Result<Outcome> {
    let name = plain(&alter.name)?;
    session.tables(scope).find(&name).await?;
    let mut transaction = session.lake().begin(session.branch()?).await?;
    let table = transaction.base().table(&name).await?;
    let known = |name: &str| column(table.schema(), name, scope).map(drop);
    for operation in &alter.operations {
        match operation {
            AlterTableOperation::AddColumn { column_def, if_not_exists, .. } => {
                let exists = table.schema().column(&normal(&column_def.name)).is_ok();
                if exists && *if_not_exists {
                    continue;
                }
                let Declared { column, .. } = declare::declared(&without_default(column_def), &scope.names)?;
                let default = match default(column_def) {
                    Some(expr) => Some(change::constant(session, expr, &column, scope).await?),
                    None => None,
                };
                transaction.add_column(&table, column, default.as_ref()).await?;
            }
            AlterTableOperation::DropColumn { column_names, if_exists, .. } => {
                for column in column_names.iter().map(normal) {
                    if !if_exists || table.schema().column(&column).is_ok() {
                        known(&column)?;
                        transaction.drop_column(&table, &column)?;
                        let field = table.schema().column(&column).map(|column| column.field).ok();
                        for index in session.tables(scope).indexes(&table).await?.tables(field) {
                            transaction.drop_table(&index)?;
                        }
                    }
                }
            }
            AlterTableOperation::RenameColumn { old_column_name, new_column_name } => {
                known(&normal(old_column_name))?;
                transaction.rename_column(&table, &normal(old_column_name), &normal(new_column_name))?;
            }
            AlterTableOperation::RenameTable {
                table_name: RenameTableNameKind::To(to) | RenameTableNameKind::As(to),
            } => {
                transaction.rename_table(&name, &plain(to)?)?;
            }
            other => {
                return Err(Error::unsupported(format!(
                    "ALTER TABLE {name} {other}: columns are added, dropped and renamed"
                )));
            }
        }
    }
    session.snapshot = transaction.commit(&format!("alter table {name}"), &session.options.author).await?;
    Ok(done("ALTER TABLE", session))
}

fn default(def: &ColumnDef) -> Option<&Expr> {
    def.options
        .iter()
        .find_map(|option| if let ColumnOption::Default(expr) = &option.option { Some(expr) } else { None })
}

fn without_default(def: &ColumnDef) -> ColumnDef {
    let mut def = def.clone();
    def.options.retain(|option| !matches!(option.option, ColumnOption::Default(_)));
    def
}

/// Statements about branches, tags and transactions.
pub(crate) async fn versions(session: &mut Session, what: What) -> Result<Outcome> {
    let lake = session.lake().clone();
    let changed = |what| Ok(Outcome::Changed { what, rows: 0, commit: None });
    match what {
        What::Sql(_) | What::Reindex { .. } | What::ShowIndexes => {
            Err(Error::unsupported("it is no statement about versions"))
        }
        What::Create { tag, name, from, if_not_exists } => {
            let from = match from {
                Some(from) => refs::resolve(&lake, &from).await?,
                None => At::Commit(session.snapshot.id()),
            };
            let made = if tag {
                lake.create_tag(&name, &from, &session.options.author).await
            } else {
                lake.create_branch(&name, &from).await
            };
            match made {
                Err(forebay_versioning::Error::BranchExists { .. } | forebay_versioning::Error::TagExists { .. })
                    if if_not_exists => {}
                made => made?,
            }
            changed(if tag { "CREATE TAG" } else { "CREATE BRANCH" })
        }
        What::Drop { tag, name, if_exists } => {
            let gone = if tag {
                lake.delete_tag(&name, &session.options.author).await
            } else {
                lake.delete_branch(&name).await
            };
            match gone {
                Err(forebay_versioning::Error::UnknownBranch { .. } | forebay_versioning::Error::UnknownTag { .. })
                    if if_exists => {}
                gone => gone?,
            }
            changed(if tag { "DROP TAG" } else { "DROP BRANCH" })
        }
        What::Merge { from } => {
            let from = refs::resolve(&lake, &from).await?;
            let mut options = MergeOptions::default();
            options.author.clone_from(&session.options.author);
            session.snapshot = lake.merge(session.branch()?, &from, &options).await?.snapshot;
            Ok(done("MERGE BRANCH", session))
        }
        What::Show { tags } => {
            let names = if tags { lake.tags().await? } else { lake.branches().await? };
            Ok(Outcome::Rows(show::texts(if tags { "tag" } else { "branch" }, names)?))
        }
        What::Begin => begin(session).await,
        What::Commit => commit(session).await,
        What::Rollback => rollback(session).await,
    }
}

/// A transaction works on a branch of its own, so that it sees its changes and nobody else does; committing merges it.
async fn begin(session: &mut Session) -> Result<Outcome> {
    if session.transaction.is_some() {
        return Err(Error::unsupported("a transaction is open: COMMIT or ROLLBACK it first"));
    }
    session.refresh().await?;
    let target = session.branch()?.to_owned();
    let own = session.lake().scratch(&At::Commit(session.snapshot.id()), DEFAULT_LEASE).await?;
    session.at = At::Branch(own.branch().to_owned());
    session.transaction = Some((own, target));
    Ok(Outcome::Changed { what: "BEGIN", rows: 0, commit: None })
}

async fn commit(session: &mut Session) -> Result<Outcome> {
    let Some((own, target)) = &session.transaction else {
        return Err(Error::unsupported("no transaction is open: BEGIN one"));
    };
    let mut options = MergeOptions::default();
    options.author.clone_from(&session.options.author);
    let merged = session.lake().merge(target, &At::Branch(own.branch().to_owned()), &options).await;
    // Whether it was merged or not, the transaction is over, and its branch with it.
    rollback(session).await?;
    session.snapshot = merged?.snapshot;
    Ok(done("COMMIT", session))
}

pub(crate) async fn rollback(session: &mut Session) -> Result<Outcome> {
    let Some((own, target)) = session.transaction.take() else {
        return Err(Error::unsupported("no transaction is open: BEGIN one"));
    };
    session.at = At::Branch(target);
    own.end().await?;
    session.refresh().await?;
    Ok(Outcome::Changed { what: "ROLLBACK", rows: 0, commit: None })
}

/// For the messages of commits.
pub(crate) fn counted(what: &str, rows: u64, table: &str) -> String {
    format!("{what} {rows} rows of {table}")
}

/// The schema's columns by name.
pub(crate) fn column<'a>(schema: &'a Schema, name: &str, scope: &Scope) -> Result<&'a Column> {
    schema.column(name).map_err(|_| {
        let (at, names): (_, Vec<&str>) =
            (scope.names.place(name), schema.columns.iter().map(|c| c.name.as_str()).collect());
        let hint = Some(crate::hint::of(name, &names));
        Error::Sql { message: format!("no column {name}"), line: at.line, column: at.column, hint }
    })
}
