//! Data files: the columns of a fragment.

mod frame;
pub use frame::{Footer, Head};
