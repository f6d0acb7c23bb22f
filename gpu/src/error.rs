//! Why a transfer to a device failed.

use crate::Missing;

/// The result of this crate's operations.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a transfer to a device failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no CUDA here, or none that can be used.
    #[error(transparent)]
    Missing(#[from] Missing),
    /// A call of the driver failed.
    #[error("CUDA failed in {call}: {reason} (code {code})")]
    Call {
        /// The function called.
        call: &'static str,
        /// The driver's code, a `CUresult`.
        code: i32,
        /// What the driver says the code means.
        reason: String,
    },
    /// More device or registered memory is needed than the budget leaves.
    #[error(
        "{needed} bytes of {kind} memory are needed, and {used} of the budget of {budget} are in use ({held} by batches \
         that are still held): release batches, or raise the budget"
    )]
    Budget {
        /// What kind of memory: `device` or `registered`.
        kind: &'static str,
        /// Bytes asked for.
        needed: u64,
        /// Bytes in use.
        used: u64,
        /// Bytes of those that belong to batches which were handed out and not given back.
        held: u64,
        /// The budget.
        budget: u64,
    },
    /// A plan reads outside its region or writes outside its output.
    #[error(
        "column {column}, row {row} of the batch: {bytes} bytes at offset {offset} are outside their memory of {length} bytes"
    )]
    OutOfBounds {
        /// The column's place in the plan.
        column: usize,
        /// The row's place in the batch.
        row: usize,
        /// The offset.
        offset: u64,
        /// The row's bytes.
        bytes: u64,
        /// The memory's length.
        length: u64,
    },
    /// A batch was to be handed over on a stream from which a graph is being captured.
    #[error(
        "a graph is being captured from this stream, and a batch can't be part of it: capture the work on fixed buffers, \
         and fill them between the replays"
    )]
    Capturing,
    /// The system refused memory.
    #[error("the system refused {bytes} bytes of memory")]
    OutOfMemory {
        /// How many bytes were asked for.
        bytes: u64,
    },
    /// The system refused a thread.
    #[error("a thread could not be started: {reason}")]
    Threads {
        /// What it said.
        reason: String,
    },
    /// What is to be done to a column's rows doesn't fit its shape or type.
    #[error("the finish does not fit the rows: {reason}")]
    Finish {
        /// What doesn't fit.
        reason: String,
    },
}
