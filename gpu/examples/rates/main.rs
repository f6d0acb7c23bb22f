//! Rates of batches from the page cache to a device, and a check of every byte, on a machine with a GPU.
//!
//! `rates check` gathers and finishes random rows and compares them with the host's; `rates FILE GIBIBYTES` writes a file of
//! that size and measures.
#![cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
#![allow(unsafe_code, clippy::print_stdout)]

mod check;
mod data;
mod measure;

use std::{path::Path, process::ExitCode};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let done = match &arguments[..] {
        [mode] if mode == "check" => check::run(400),
        [mode, cases] if mode == "check" => cases.parse().map_err(Into::into).and_then(check::run),
        [file, size] => size.parse().map_err(Into::into).and_then(|size| measure::run(Path::new(file), size)),
        _ => Err("rates check [CASES] | rates FILE GIBIBYTES".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("{error}");
            ExitCode::FAILURE
        }
    }
}
