//! Epoch order, shards, prefetch, shuffle: turns a selection into batches through a device.
//!
//! ```text
//!  Selection ──► order ──► rows of a batch ──► where each row lies ──► GatherPlan ──► Device ──► Batch
//!  (versioning)  (pure)                        mapped local file,      (region,       host threads
//!                                              or arena filled ahead    offset)       or a GPU
//! ```
//!
//! | to | use |
//! |---|---|
//! | know the order of an epoch | [`order::Course`], [`order::Shard`]: pure functions of seed, epoch and position |
//! | mix several tables | [`Loader::mix`], [`order::Mixture`] |
//! | draw rows by weight | [`order::Sampling`] |
//! | load batches | [`Loader`], [`Batches`] |
//! | go on where an earlier run stopped | [`Loader::state`], [`Loader::resume`], [`State`] |
//! | live with damaged rows | [`FaultPolicy`], [`Batches::faults`] |
//! | resize, crop, normalise and cast images on the way | [`finish::Finish`] |
//! | change batches by code of one's own | [`Stage`] |
//! | put them elsewhere than host memory | [`device::Device`] |
//!
//! Two routes bring rows to the device. Rows of fixed shape, uncompressed, in files on a local disk are gathered from
//! the files' maps: one memory copy a byte, and nothing is read ahead. All others (remote stores, compressed columns,
//! ragged ones, nullable ones) are fetched ahead of their use, checked and decoded into an arena within a byte budget,
//! and gathered from there. What links lead to is read by the builders of batches, each its own ahead of its turn. [`Stats::routes`] says which column took which.
//!
//! An epoch has two threads of its own, besides the device's and the storage's: see `engine`. None of them ever waits for
//! another rank, and none outlives its [`Batches`].

mod batch;
mod buffer;
pub mod device;
mod engine;
mod error;
mod faults;
pub mod finish;
mod host;
mod image;
mod ledger;
mod loader;
mod options;
pub mod order;
mod signal;
mod stage;
mod state;
mod stats;

pub use batch::{Batch, BatchColumn, BatchField, BatchValues};
pub use buffer::{ALIGNMENT, HostBuffer, HostPool};
pub use device::{Buffer, Device};
pub use error::{Error, Result, RowsOf};
pub use faults::{Fault, FaultPolicy, OnFault, Remedy};
pub use forebay_jpeg::Pixels;
pub use forebay_versioning::Verify;
pub use host::HostDevice;
pub use loader::{Batches, Loader, Next};
pub use options::LoaderOptions;
pub use order::{Shuffle, Tail, Window};
pub use stage::{Samples, Stage, StageError};
pub use state::State;
pub use stats::{Route, Stats};
