//! The built `forebay` command, run on folders made here.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod damage;
mod images;
mod ingest;
mod inputs;
mod keep;
mod pixels;
mod show;
mod support;
