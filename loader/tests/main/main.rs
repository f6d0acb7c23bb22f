//! What `forebay-loader` promises.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, unreachable_pub)]

mod decoding;
mod faults;
mod finished;
mod finishing;
mod grouping;
mod images;
mod life;
mod linked;
mod mending;
mod mixing;
mod model;
mod order;
mod remote;
mod resume;
mod stages;
mod storms;
mod support;
mod taken_up;
