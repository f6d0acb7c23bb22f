//! Rows that can't be delivered as they are: what is done about them, how many are too many, and what happened to which.

use std::fmt;

use forebay_versioning::Error as LakeError;

use crate::{Error, Result};

/// What happens to a row with a value that is damaged, missing or can't be decoded, or with a link to what changed or is gone.
///
/// A store that fails is no damaged row: what it fails to give ends the epoch whatever the policy, so that an outage never passes
/// for data that isn't there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OnFault {
    /// The epoch ends with an error that names it.
    #[default]
    Fail,
    /// It comes as a masked row: zeros, empty or null in every column, and `false` in [`Batch::mask`](crate::Batch::mask).
    Skip,
    /// Another row of the selection comes in its place: which one depends on seed, epoch and position alone.
    Substitute,
}

/// How damaged rows are dealt with, and how many are put up with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FaultPolicy {
    /// What happens to one.
    pub on_fault: OnFault,
    /// The most of them that this rank puts up with in an iteration.
    pub max_faults: u64,
    /// The most of them as a share of the rows of an iteration on this rank, 0 to 1.
    pub max_rate: f64,
}

impl Default for FaultPolicy {
    /// Fails on the first.
    fn default() -> Self {
        Self { on_fault: OnFault::Fail, max_faults: 1000, max_rate: 1.0 }
    }
}

impl FaultPolicy {
    pub(crate) fn tolerates(&self) -> bool {
        self.on_fault != OnFault::Fail
    }

    /// How many of `rows` rows may be faulty.
    pub(crate) fn allowed(&self, rows: u64) -> u64 {
        self.max_faults.min((rows as f64 * self.max_rate) as u64)
    }
}

/// What was done about a faulty row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// It was masked.
    Masked,
    /// This row of the table came instead.
    Replaced {
        /// Its number in the table.
        by: u64,
    },
}

/// A row that could not be delivered as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The commit that was read, in hex.
    pub commit: String,
    /// The position in the epoch that the row came up at.
    pub position: u64,
    /// Its number in the table.
    pub row: u64,
    /// The column whose value is at fault.
    pub column: String,
    /// What is wrong, with the object and its rows.
    pub cause: String,
    /// What came instead.
    pub remedy: Remedy,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { commit, position, row, column, cause, remedy } = self;
        write!(f, "row {row} of commit {commit}, position {position}, column '{column}': {cause}; ")?;
        match remedy {
            Remedy::Masked => write!(f, "it is masked"),
            Remedy::Replaced { by } => write!(f, "row {by} comes instead"),
        }
    }
}

/// The faults of an iteration, in the order of its batches.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    rows: u64,
    list: Vec<Fault>,
}

impl Faults {
    /// Adds those of a batch.
    ///
    /// # Errors
    /// [`Error::TooManyFaults`] once there are more faulty rows than `allowed`.
    pub(crate) fn add(&mut self, faults: Vec<Fault>, allowed: u64) -> Result<()> {
        for fault in faults {
            tracing::warn!(commit = fault.commit, row = fault.row, column = fault.column, "{fault}");
            // Several columns of one row are one faulty row.
            let same = self.list.last().is_some_and(|last| last.position == fault.position);
            self.rows += u64::from(!same);
            if self.rows > allowed {
                return Err(Error::TooManyFaults { faults: self.rows, allowed, last: Box::new(fault) });
            }
            self.list.push(fault);
        }
        Ok(())
    }

    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }

    pub(crate) fn list(&self) -> &[Fault] {
        &self.list
    }
}

impl Error {
    /// Whether it is the row that is at fault, rather than the store, the machine or the caller.
    #[must_use]
    pub fn is_of_row(&self) -> bool {
        match self {
            Self::Read { source, .. } | Self::Link { source, .. } => of_data(source),
            Self::Lake(source) => of_data(source),
            Self::Data(_) | Self::Finish { .. } | Self::Decode { .. } => true,
            _ => false,
        }
    }
}

fn of_data(error: &LakeError) -> bool {
    match error {
        LakeError::Object { .. }
        | LakeError::Missing { .. }
        | LakeError::Inconsistent { .. }
        | LakeError::LinkBroken { .. }
        | LakeError::Data(_) => true,
        LakeError::Storage(source) => source.is_not_found(),
        _ => false,
    }
}
