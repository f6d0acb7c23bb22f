//! Choosing rows, against a plain model.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod model;
mod promises;
mod support;
