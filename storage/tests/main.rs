//! What storages promise, shown over every kind of them.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod bad_input;
mod conformance;
mod kinds;
mod plans;
