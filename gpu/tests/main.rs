//! Discovery and the path of batches to a device, over stand-ins for the driver that are built here with `cc`.
#![cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod batches;
mod discovery;
mod driver;
mod finishing;
mod gathering;
mod linking;
mod mock;
mod ordering;
