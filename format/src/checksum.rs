//! CRC-32C (Castagnoli, as in iSCSI), the checksum of everything that Forebay writes.

use crc_fast::{CrcAlgorithm, Digest};

use crate::{Error, Result};

/// The CRC-32C of `bytes`.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// A CRC-32C that grows piece by piece.
#[derive(Debug)]
pub(crate) struct Crc32c(Digest);

impl Crc32c {
    pub(crate) fn new() -> Self {
        Self(Digest::new(CrcAlgorithm::Crc32Iscsi))
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The checksum so far; starts again.
    pub(crate) fn take(&mut self) -> u32 {
        self.0.finalize_reset() as u32
    }
}

/// Checks `bytes`, which start at `offset` of their object, against the checksum on record.
pub(crate) fn check(what: impl FnOnce() -> String, offset: u64, bytes: &[u8], expected: u32) -> Result<()> {
    let found = crc32c(bytes);
    if found == expected {
        return Ok(());
    }
    Err(Error::Checksum { what: what(), offset, length: bytes.len() as u64, expected, found })
}
