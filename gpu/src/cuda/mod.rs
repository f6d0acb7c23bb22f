//! CUDA itself: the driver's objects as Rust values, each released when it is dropped.
//!
//! Every object holds its [`Context`], and enters it before it calls the driver: the context is current for the call
//! and what was current before is so again afterwards, because the calling thread may belong to a framework.

mod batch_copy;
mod context;
mod event;
mod kernels;
mod link;
mod memory;
mod region;
mod stream;

pub(crate) use batch_copy::BatchCopier;
pub(crate) use context::Context;
pub(crate) use event::Event;
pub(crate) use kernels::{FinishLaunch, GatherLaunch, Kernels};
pub(crate) use memory::{DeviceMemory, Pinned, copy_on_device, copy_to_host, upload};
pub(crate) use region::{Registered, register};
pub(crate) use stream::{Stream, StreamRef, capturing};
