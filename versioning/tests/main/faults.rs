//! Operations that fail.
