//! Pointers between metadata objects.

use super::Pointer;
use crate::{Error, ObjectId, Result};

impl Pointer {
    /// A pointer to the object `id`, whose content is `bytes`.
    ///
    /// # Panics
    /// If `bytes` are 4 GiB or more; no object that this crate encodes is.
    #[must_use]
    pub fn to(id: ObjectId, bytes: &[u8]) -> Self {
        assert!(bytes.len() <= u32::MAX as usize, "a metadata object of {} bytes", bytes.len());
        Self { id, length: bytes.len() as u32, hash: *blake3::hash(bytes).as_bytes() }
    }

    /// Checks that `bytes` are what this pointer was made for.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if their length or their hash is another.
    pub fn check(&self, bytes: &[u8]) -> Result<()> {
        let corrupt = |reason| Err(Error::Corrupt { what: format!("object {}", self.id), offset: 0, reason });
        if bytes.len() as u64 != u64::from(self.length) {
            return corrupt(format!("it has {} bytes, its pointer says {}", bytes.len(), self.length));
        }
        if *blake3::hash(bytes).as_bytes() != self.hash {
            return corrupt("its BLAKE3 hash is not the one in its pointer".into());
        }
        Ok(())
    }
}
