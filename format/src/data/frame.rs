//! The two ends of a data file: its head and its footer.

use crate::{
    Error, FileId, Result,
    bytes::{array_at, u16_at, u32_at, u64_at},
    checksum,
    envelope::{FEATURES, MAGIC, VERSION, check_features, check_version},
    meta::DataFileRef,
};

/// The kind in a data file's head, where a metadata object has its own.
const KIND: [u8; 4] = *b"DATA";

/// What a data file starts with: 4 KiB that say what it is.
///
/// | bytes | what |
/// |---|---|
/// | 0..8 | magic |
/// | 8..12 | `DATA` |
/// | 12..14 | format version, `u16` |
/// | 14..16 | zero |
/// | 16..24 | feature bits, `u64` |
/// | 24..40 | the file's id |
/// | 40..4092 | zero |
/// | 4092..4096 | CRC-32C of bytes 0..4092 |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The file's identity.
    pub id: FileId,
}

impl Head {
    /// Its length.
    pub const SIZE: usize = 4096;

    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(Self::SIZE);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&KIND);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&[0; 2]);
        bytes.extend_from_slice(&FEATURES.to_le_bytes());
        bytes.extend_from_slice(self.id.as_bytes());
        bytes.resize(Self::SIZE - 4, 0);
        let crc = checksum::crc32c(&bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// The head that `bytes`, the first [`SIZE`](Self::SIZE) of a data file, are.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Checksum`] or [`Error::Unsupported`].
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let what = "head of a data file";
        let corrupt = |offset, reason: String| Err(Error::Corrupt { what: what.to_owned(), offset, reason });
        if bytes.len() != Self::SIZE {
            return corrupt(0, format!("{} bytes instead of {}", bytes.len(), Self::SIZE));
        }
        if bytes[..8] != MAGIC || bytes[8..12] != KIND {
            return corrupt(0, "it does not start with a data file's magic bytes".into());
        }
        check_version(what, u16_at(bytes, 12))?;
        checksum::check(|| what.to_owned(), 0, &bytes[..Self::SIZE - 4], u32_at(bytes, Self::SIZE - 4))?;
        check_features(what, u64_at(bytes, 16))?;
        Ok(Self { id: FileId::from_bytes(array_at(bytes, 24)) })
    }
}

/// What a data file ends with: 64 bytes that say where its index is.
///
/// | bytes | what |
/// |---|---|
/// | 0..8 | where the index starts, `u64` |
/// | 8..12 | its length, `u32` |
/// | 12..16 | its CRC-32C |
/// | 16..32 | the file's id |
/// | 32..40 | feature bits, `u64` |
/// | 40..44 | rows, `u32` |
/// | 44..48 | zero |
/// | 48..50 | format version, `u16` |
/// | 50..52 | zero |
/// | 52..56 | CRC-32C of bytes 0..52 |
/// | 56..64 | magic |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footer {
    /// The file's identity.
    pub id: FileId,
    /// Rows in the file.
    pub rows: u32,
    /// Where the index starts.
    pub index_offset: u64,
    /// The index's length.
    pub index_length: u32,
    /// The index's CRC-32C.
    pub index_crc32c: u32,
}

impl Footer {
    /// Its length.
    pub const SIZE: usize = 64;

    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(Self::SIZE);
        bytes.extend_from_slice(&self.index_offset.to_le_bytes());
        bytes.extend_from_slice(&self.index_length.to_le_bytes());
        bytes.extend_from_slice(&self.index_crc32c.to_le_bytes());
        bytes.extend_from_slice(self.id.as_bytes());
        bytes.extend_from_slice(&FEATURES.to_le_bytes());
        bytes.extend_from_slice(&self.rows.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&[0; 2]);
        let crc = checksum::crc32c(&bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        bytes.extend_from_slice(&MAGIC);
        bytes
    }

    /// The footer that `bytes`, the last [`SIZE`](Self::SIZE) of a data file, are.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Checksum`], [`Error::Unsupported`], or [`Error::Limit`] if it names an index of more
    /// than [`FileIndex::MAX_BYTES`](crate::FileIndex::MAX_BYTES). Offsets count from the footer's start.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let what = "footer of a data file";
        let corrupt = |offset, reason: String| Err(Error::Corrupt { what: what.to_owned(), offset, reason });
        if bytes.len() != Self::SIZE {
            return corrupt(0, format!("{} bytes instead of {}", bytes.len(), Self::SIZE));
        }
        if bytes[56..] != MAGIC {
            return corrupt(56, "it does not end with Forebay's magic bytes".into());
        }
        check_version(what, u16_at(bytes, 48))?;
        checksum::check(|| what.to_owned(), 0, &bytes[..52], u32_at(bytes, 52))?;
        check_features(what, u64_at(bytes, 32))?;
        let footer = Self {
            id: FileId::from_bytes(array_at(bytes, 16)),
            rows: u32_at(bytes, 40),
            index_offset: u64_at(bytes, 0),
            index_length: u32_at(bytes, 8),
            index_crc32c: u32_at(bytes, 12),
        };
        check_index_length(footer.index_length)?;
        Ok(footer)
    }
}

/// The most bytes that the index of a data file may have.
pub(crate) const MAX_INDEX_BYTES: u32 = 4 << 20;

fn check_index_length(length: u32) -> Result<()> {
    if length > MAX_INDEX_BYTES {
        return Err(Error::Limit {
            what: "bytes of a data file's index".into(),
            found: u64::from(length),
            limit: u64::from(MAX_INDEX_BYTES),
        });
    }
    Ok(())
}

impl DataFileRef {
    /// Checks that head, index and footer fit in the file, in this order.
    ///
    /// # Errors
    /// [`Error::Corrupt`] or [`Error::Limit`].
    pub fn check(&self) -> Result<()> {
        check_index_length(self.index_length)?;
        let end = self.index_offset.checked_add(u64::from(self.index_length) + Footer::SIZE as u64);
        // Sums of places in the file can't overflow then.
        let possible = self.index_offset >= Head::SIZE as u64 && self.size <= i64::MAX as u64;
        if !possible || end != Some(self.size) {
            return Err(Error::Corrupt {
                what: format!("reference to data file {}", self.id),
                offset: 0,
                reason: format!(
                    "an index at {}, of {} bytes, doesn't end a file of {} bytes",
                    self.index_offset, self.index_length, self.size
                ),
            });
        }
        Ok(())
    }

    /// The bytes to fetch for [`FileIndex::parse`](crate::FileIndex::parse): index and footer.
    #[must_use]
    pub fn tail(&self) -> std::ops::Range<u64> {
        self.index_offset..self.size
    }
}
