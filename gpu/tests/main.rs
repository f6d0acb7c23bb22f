//! Discovery and the path of batches to a device, over stand-ins for the driver that are built here with `cc`.
#![cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod batches;
mod discovery;
mod driver;
mod finishing;
mod gathering;
mod handing_over;
mod linking;
mod loading;
mod mock;
mod ordering;
// The loader's own images, and finishes of them.
#[path = "../../loader/tests/main/images.rs"]
#[allow(dead_code, unreachable_pub)]
mod images;
// The loader's own tables of random rows of every kind.
#[path = "../../loader/tests/main/support.rs"]
#[allow(dead_code, unreachable_pub)]
mod support;
