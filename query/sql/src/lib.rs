//! SQL over lakes, on DataFusion: queries with what a lake can leave out of reading, selections for a loader, and changes that
//! are commits.
//!
//! | statement | becomes |
//! |---|---|
//! | `SELECT` | Arrow batches that stream ([`Session::execute`]), or rows of a table ([`Session::select`]) |
//! | `INSERT`, `UPDATE`, `DELETE`, `COPY` | a commit on the session's branch |
//! | `CREATE`, `ALTER`, `DROP TABLE`; `CREATE`, `DROP INDEX`; `REINDEX` | a commit |
//! | `CREATE`, `DROP BRANCH`, `TAG`; `MERGE BRANCH` | a reference; a merge |
//! | `BEGIN` ... `COMMIT` | a branch of its own, merged at the end |
//!
//! A scan reads the indexes of files, passes over chunks whose statistics exclude what is asked for, evaluates filters on small
//! columns before it reads large ones, and reads large ones only for rows that are left.

mod alter;
mod arrays;
mod catalog;
mod cells;
mod change;
mod copy;
mod declare;
mod error;
mod float8;
mod functions;
mod hint;
mod index;
mod inputs;
mod links;
mod matching;
mod parameters;
mod parse;
mod planner;
mod refs;
mod scan;
mod select;
mod session;
mod show;
mod tasks;
mod tensor;
mod types;

pub use error::{Error, Result};
pub use inputs::{Input, table_of, table_of_parquet};
pub use parameters::{Parameter, Parameters};
pub use select::{Chosen, Computed};
pub use session::{Answer, Given, Options, Outcome, Session};
