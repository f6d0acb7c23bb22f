//! Object IO: URLs and credentials, range planning, mapped local files, put-if-absent claims.
//!
//! [`Storage`] is one root of an object store. Everything above it (versions, queries, loaders) sees objects by name and
//! never asks where they live. What each kind of storage does with the same call:
//!
//! | | local folder | `s3://`, `gs://`, `az://` | `http(s)://` | `memory://` |
//! |---|---|---|---|---|
//! | [`Storage::put`] | temporary file, fsync, rename, fsync of the folder | one PUT | refused | map entry |
//! | [`Storage::claim`] | temporary file, fsync, hard link, fsync of the folder | a conditional PUT | refused | map entry |
//! | [`Storage::writer`] | the file itself, synced while it grows, then as `put` | one PUT, or parts in parallel | refused | one entry |
//! | [`Storage::get_ranges`] | near ranges together, `pread` | near ranges together, large ones split, many at once | the same | slices |
//! | [`Storage::list`] | the folder | a listing | refused | the map |
//! | [`Storage::map`] | a read-only map on local filesystems | `None` | `None` | `None` |
//! | survives | power loss, once the call returned | what the provider promises | | nothing |
//!
//! The hard decisions are pure functions, tested without IO: [`plan`] says which reads to make, [`claim`] says who won.
//! [`testing`] holds a store wrapper that fails on schedule and a power-loss simulator for the local path; downstream
//! crates use both in their own tests.
//!
//! Why not `object_store::local::LocalFileSystem`: it never syncs, so what it stored a moment ago can be gone or half
//! there after a power loss. Its trait is kept, so any store and any wrapper fits.

mod cache;
pub mod claim;
mod clouds;
mod credentials;
mod engine;
mod error;
mod forked;
mod local;
mod location;
mod mapped;
mod options;
pub mod plan;
mod runtime;
mod storage;
pub mod testing;
mod version;
mod writer;

pub use cache::CacheStats;
pub use claim::Claim;
pub use credentials::{Credential, Credentials, Issued};
pub use engine::{MirrorStats, Stats};
pub use error::{Error, Result};
pub use mapped::Mapped;
pub use object_store::{self, ObjectStore};
pub use options::Options;
pub use runtime::{configure_runtime, runtime};
pub use storage::{Entry, Storage, StorageBuilder};
pub use version::Version;
pub use writer::ObjectWriter;
