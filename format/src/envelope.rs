//! The envelope around every metadata object, and the rules that all of Forebay's flatbuffers are verified by.
//!
//! | bytes | what |
//! |---|---|
//! | 0..8 | magic |
//! | 8..12 | kind, four ASCII letters |
//! | 12..14 | format version, `u16` |
//! | 14..16 | zero |
//! | 16..24 | feature bits, `u64` |
//! | 24..28 | length of the payload, `u32` |
//! | 28..32 | CRC-32C of bytes 0..28 and the payload |
//! | 32.. | payload: a flatbuffer |

use flatbuffers::{Follow, InvalidFlatbuffer, Verifiable, VerifierOptions};

use crate::{
    Error, Result,
    bytes::{u16_at, u32_at, u64_at},
    checksum::Crc32c,
};

/// What every object of Forebay's starts with.
pub(crate) const MAGIC: [u8; 8] = *b"\x89FOREBAY";
/// The format version that this crate writes, and the latest that it reads.
pub(crate) const VERSION: u16 = 1;
/// Feature bit 0: rows were deleted or overlaid.
pub(crate) const EDITS: u64 = 1 << 0;
/// Feature bit 1: a table has a key, which a writer must keep.
pub(crate) const KEYS: u64 = 1 << 1;
/// Feature bit 2: rows were erased from the lake, and files replaced.
pub(crate) const PURGES: u64 = 1 << 2;
/// Feature bit 3: fragments are packed in runs.
pub(crate) const RUNS: u64 = 1 << 3;
/// The feature bits that this crate knows in metadata objects.
const META_FEATURES: u64 = EDITS | KEYS | PURGES | RUNS;
/// The feature bits that this crate knows in data files, and writes.
pub(crate) const FEATURES: u64 = 0;

const HEADER: usize = 32;

/// The most bytes that a metadata object may have.
pub(crate) const MAX_META_BYTES: usize = 16 << 20;

/// Wraps `payload` as an object of `kind` that needs `features` of its reader.
pub(crate) fn seal(what: &str, kind: [u8; 4], features: u64, payload: &[u8]) -> Result<Vec<u8>> {
    check_size(what, HEADER + payload.len())?;
    let mut bytes = Vec::with_capacity(HEADER + payload.len());
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&kind);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&[0; 2]);
    bytes.extend_from_slice(&features.to_le_bytes());
    bytes.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    let crc = checksum(&bytes, payload);
    bytes.extend_from_slice(&crc.to_le_bytes());
    bytes.extend_from_slice(payload);
    Ok(bytes)
}

/// The payload of an object of `kind`, after everything around it was checked.
pub(crate) fn open<'a>(what: &str, kind: [u8; 4], bytes: &'a [u8]) -> Result<&'a [u8]> {
    let corrupt = |offset, reason: String| Err(Error::Corrupt { what: what.to_owned(), offset, reason });
    check_size(what, bytes.len())?;
    if bytes.len() < HEADER {
        return corrupt(0, format!("{} bytes, less than a header of {HEADER}", bytes.len()));
    }
    let (header, payload) = bytes.split_at(HEADER);
    if header[..8] != MAGIC {
        return corrupt(0, "it does not start with Forebay's magic bytes".into());
    }
    if header[8..12] != kind {
        let (expected, found) = (kind.escape_ascii(), header[8..12].escape_ascii());
        return corrupt(8, format!("its kind is '{found}', expected '{expected}'"));
    }
    // The version comes before the checksum: a later one may place that elsewhere.
    check_version(what, u16_at(header, 12))?;
    if header[14..16] != [0; 2] {
        return corrupt(14, "reserved bytes are not zero".into());
    }
    let length = u32_at(header, 24) as usize;
    if payload.len() != length {
        return corrupt(24, format!("its payload has {} bytes, its header says {length}", payload.len()));
    }
    let (expected, found) = (u32_at(header, 28), checksum(&header[..28], payload));
    if expected != found {
        return Err(Error::Checksum { what: what.into(), offset: 0, length: bytes.len() as u64, expected, found });
    }
    check_unknown(what, u64_at(header, 16) & !META_FEATURES)?;
    Ok(payload)
}

fn checksum(header: &[u8], payload: &[u8]) -> u32 {
    let mut crc = Crc32c::new();
    crc.update(header);
    crc.update(payload);
    crc.take()
}

fn check_size(what: &str, bytes: usize) -> Result<()> {
    if bytes > MAX_META_BYTES {
        return Err(Error::Limit {
            what: format!("bytes of a {what}"),
            found: bytes as u64,
            limit: MAX_META_BYTES as u64,
        });
    }
    Ok(())
}

/// Refuses versions that this crate can't read.
pub(crate) fn check_version(what: &str, version: u16) -> Result<()> {
    match version {
        VERSION => Ok(()),
        0 => Err(Error::Corrupt { what: what.to_owned(), offset: 0, reason: "its format version is 0".into() }),
        later => Err(Error::Unsupported { what: what.to_owned(), needs: format!("format version {later}") }),
    }
}

/// Refuses features of a data file that this crate doesn't know.
pub(crate) fn check_features(what: &str, features: u64) -> Result<()> {
    check_unknown(what, features & !FEATURES)
}

fn check_unknown(what: &str, unknown: u64) -> Result<()> {
    if unknown == 0 {
        return Ok(());
    }
    Err(Error::Unsupported { what: what.to_owned(), needs: format!("feature bit {}", unknown.trailing_zeros()) })
}

/// The root table of a flatbuffer, verified: nothing in it points outside it, and reading all of it takes time and
/// memory in proportion to its length.
pub(crate) fn root<'a, T>(what: &str, offset: u64, payload: &'a [u8]) -> Result<T::Inner>
where
    T: 'a + Follow<'a> + Verifiable,
{
    let options = VerifierOptions {
        max_depth: 16,
        // The smallest table takes 4 bytes and another 4 for what points to it.
        max_tables: payload.len() / 8 + 1,
        // Vtables are shared, and counted at every use.
        max_apparent_size: payload.len() * 8 + 1024,
        ignore_missing_null_terminator: false,
    };
    let corrupt = |reason: InvalidFlatbuffer| Error::Corrupt {
        what: what.to_owned(),
        offset,
        reason: format!("not a valid flatbuffer: {}", first_line(&reason)),
    };
    flatbuffers::root_with_opts::<T>(&options, payload).map_err(corrupt)
}

fn first_line(error: &InvalidFlatbuffer) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}
