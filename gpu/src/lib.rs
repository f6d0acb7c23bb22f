//! CUDA discovery at run time.
