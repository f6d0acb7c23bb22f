//! What SQL promises, checked against lakes in memory.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod changes;
mod errors;
mod queries;
mod reading;
mod selections;
mod support;
mod texts;
mod vectors;
