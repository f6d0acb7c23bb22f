//! What `flatc` made of `schema/*.fbs`. Never edited by hand: `cargo xtask codegen`.
#![allow(unsafe_code, missing_docs, unreachable_pub, unused, clippy::all, clippy::pedantic, rust_2018_idioms)]
#![allow(mismatched_lifetime_syntaxes, elided_lifetimes_in_paths)]
#![allow(clippy::unwrap_used, clippy::undocumented_unsafe_blocks)]

mod data_generated;
mod meta_generated;

pub(crate) use data_generated::forebay::data;
pub(crate) use meta_generated::forebay::meta;
