//! What `forebay-versioning` promises, shown on real stores.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, unreachable_pub)]

mod branches;
mod changes;
mod commits;
mod copies;
mod faults;
mod flips;
mod gc;
mod machine;
mod model;
mod plain;
#[cfg(target_os = "linux")]
mod power;
mod processes;
mod purge;
mod repair;
#[cfg(feature = "s3-tests")]
mod s3;
mod schedule;
mod support;
