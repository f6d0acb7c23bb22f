//! What storages promise, shown over every kind of them.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]
// Tests make runtimes of every kind on purpose, and one of them renames without syncing to be caught.
#![allow(clippy::disallowed_methods)]

mod bad_input;
mod caches;
mod claims;
mod clouds;
mod conformance;
mod engine;
#[cfg(target_os = "linux")]
mod failing_disk;
mod faults;
mod kinds;
mod local_disk;
mod mirrors;
mod plans;
#[cfg(target_os = "linux")]
mod power_loss;
mod processes;
#[cfg(feature = "server-tests")]
mod s3;
mod versions;
mod web;
