//! The promises of the format, each against a plain model of it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, unreachable_pub)]

mod arbitrary;
mod damage;
mod golden;
mod links;
mod metadata;
mod model;
mod round_trip;
mod statistics;
mod writer;
