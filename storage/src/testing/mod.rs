//! Tools to show that code above survives what stores and machines do: for tests and benches, here and downstream.
//!
//! | to show that | use |
//! |---|---|
//! | errors, lost replies, late effects, wrong bytes and slow answers are handled | [`FaultStore`] with [`Rule`]s |
//! | a process may stop at any operation | [`FaultStore`] with [`Fault::StopBefore`] and [`Fault::StopAfter`] |
//! | a stalled or throttled read ends, and goes on where it can | [`Fault::Stall`], [`Fault::StallBody`], [`Fault::Break`], [`Fault::Throttle`] |
//! | a store whose put-if-absent is not atomic is recognised | [`LyingStore`] |
//! | only so many requests and bytes are spent | [`FaultStore`] without rules, [`FaultStore::operations`] |
//! | what was said to be on disk survives a power loss | `disk` (Linux) |
//!
//! A [`FaultStore`] wraps any store and goes into [`Storage::from_store`](crate::Storage::from_store), which tries nothing
//! again, or into [`Storage::from_remote_store`](crate::Storage::from_remote_store), which reads as from a cloud:
//!
//! ```
//! use std::sync::Arc;
//! use forebay_storage::{Claim, Options, Storage};
//! use forebay_storage::testing::{Fault, FaultStore, OpKind, Rule};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
//! let real = Storage::open("memory://doc", &Options::new())?;
//! let faults = Arc::new(FaultStore::new(real.store()?, 7));
//! let storage = Storage::from_store(faults.clone(), "faulty");
//!
//! // The first put-if-absent takes effect, but its reply is lost.
//! faults.add(Rule::new(Fault::ErrorAfter).on(OpKind::Create).nth(0));
//! assert!(matches!(storage.claim("refs/1", "mine".into()).await?, Claim::Ours));
//! assert_eq!(faults.operations().len(), 2); // the claim, and reading it back
//! # Ok::<(), forebay_storage::Error>(()) }).unwrap();
//! ```

#[cfg(target_os = "linux")]
pub mod disk;
mod faults;
mod lying;
mod rules;

pub use faults::FaultStore;
pub use lying::{Lie, LyingStore};
pub use rules::{Fault, OpKind, Operation, Rule};
