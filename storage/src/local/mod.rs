//! The local disk as an object store that survives power loss.

mod durable;
mod files;
mod store;

pub(crate) use durable::{Folders, Publish, Staged};
pub(crate) use files::is_leftover_name;
pub(crate) use store::LocalStore;
