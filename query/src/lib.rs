//! Choosing rows: scans the columns that a predicate needs, in batches of bounded memory, and hands out a
//! [`Selection`](forebay_versioning::Selection): what a loader takes.
//!
//! ```text
//!   Table --[ only the named columns, batch by batch ]--> predicate --[ a mask a batch ]--> Selection
//! ```
//!
//! A predicate sees a few columns of a few thousand rows at a time and says which rows it wants; the bytes of other
//! columns are never read, so that choosing among a million images by their labels reads labels. SQL comes on top of the
//! same result type.
//!
//! ```
//! # use forebay_query::{ScanOptions, select};
//! # async fn example(table: &forebay_versioning::Table) -> Result<(), forebay_query::Error> {
//! use forebay_format::OwnedValues;
//!
//! let cats = select(table, &["label"], ScanOptions::default(), |columns| {
//!     let OwnedValues::Fixed(labels) = &columns[0].data.values else { return Err("labels are numbers") };
//!     Ok(labels.chunks_exact(8).map(|label| label == 3_i64.to_le_bytes()).collect())
//! })
//! .await?;
//! println!("{} of {} rows", cats.len(), table.rows());
//! # Ok(())
//! # }
//! ```

mod error;
mod plan;
mod runs;
mod select;

pub use error::{Error, Result};
pub use select::{NamedColumn, ScanOptions, select};
