//! Builds the stand-in driver.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// Builds the stand-in with these `-D` settings into `folder`.
pub(crate) fn build(folder: &Path, settings: &[&str]) -> PathBuf {
    let library = folder.join("libcuda.so.1");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mock.c");
    let status = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .arg(&library)
        .arg(&source)
        .args(settings.iter().map(|setting| format!("-D{setting}")))
        .status()
        .expect("a C compiler named cc");
    assert!(status.success());
    library
}
