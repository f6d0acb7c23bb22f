//! Discovery against a stand-in driver, built here with `cc`.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod discovery;
mod mock;
