//! What `forebay-versioning` promises, shown on real stores.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, unreachable_pub)]

mod branches;
mod changes;
mod commits;
mod copies;
mod faults;
mod flips;
mod gc;
mod keys;
mod laws;
mod links;
mod machine;
mod model;
mod plain;
#[cfg(target_os = "linux")]
mod power;
mod processes;
mod purge;
mod repair;
mod schedule;
#[cfg(feature = "server-tests")]
mod servers;
mod support;
