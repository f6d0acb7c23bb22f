//! What is fuzzed: each parser of the format, behind right checksums, so that what it checks beyond them is reached.
//!
//! A target must neither panic nor allocate beyond its input; where it takes bytes for right, writing them again must give what was
//! read.

use std::fmt::Debug;

use forebay_format::{meta::*, *};

/// Footers and heads.
pub fn footer(data: &[u8]) {
    let mut bytes = data.to_vec();
    if bytes.len() == Footer::SIZE {
        seal(&mut bytes, 52);
    }
    if let Ok(footer) = Footer::parse(&bytes) {
        assert_eq!(Footer::parse(&footer.encode()).ok(), Some(footer));
    }
    let mut bytes = data.to_vec();
    bytes.resize(Head::SIZE, 0);
    seal(&mut bytes, Head::SIZE - 4);
    let _ = Head::parse(&bytes);
}

/// Indexes: `data` is the flatbuffer. What it says is then asked for every place.
pub fn index(data: &[u8]) {
    let Some((index, _)) = parse(data) else { return };
    for column in index.columns() {
        for block in 0..column.blocks() {
            assert!(column.block(block).range().end <= index.index_offset());
        }
        for row in [0, index.rows() / 2, index.rows().saturating_sub(1)] {
            if row < index.rows() {
                let _ = (column.chunk_of(row), column.row_offset(row), column.media_shape(row));
                assert!(column.ranges_of(row..row + 1).iter().all(|range| range.end <= index.index_offset()));
            }
        }
    }
    let _ = index.sections();
}

/// Blocks: an index, then bytes that are taken for all of its blocks.
pub fn block(data: &[u8]) {
    let Some((length, rest)) = data.split_first_chunk::<2>() else { return };
    let length = usize::from(u16::from_le_bytes(*length)).min(rest.len());
    let (flatbuffer, stored) = rest.split_at(length);
    let Some((index, _)) = parse(flatbuffer) else { return };
    if index.rows() > 4096 {
        return;
    }
    for column in index.columns() {
        let fetch = |block: &Block| {
            let bytes: Vec<u8> = stored.iter().copied().cycle().take(block.stored as usize).collect();
            Ok::<_, Error>(if stored.is_empty() { Vec::new() } else { bytes })
        };
        let _ = column.read_rows(0..index.rows(), fetch);
        for number in 0..column.blocks().min(16) {
            let place = column.block(number);
            if let Ok(bytes) = fetch(&place) {
                let mut out = Vec::new();
                if column.decode_block(number, &bytes, &mut out).is_ok() {
                    let _ = column.ragged_block(number, &out);
                }
            }
        }
    }
}

/// Pages, roots and lists of origins.
pub fn manifest(data: &[u8]) {
    again(b"PAGE", data, Page::decode, Page::encode);
    again(b"ROOT", data, TableRoot::decode, TableRoot::encode);
    again(b"ORIG", data, Origins::decode, Origins::encode);
    let _ = RowSet::decode("rows", data);
}

/// Commits and lake markers.
pub fn commit(data: &[u8]) {
    again(b"CMIT", data, Commit::decode, Commit::encode);
    again(b"LAKE", data, LakeMarker::decode, LakeMarker::encode);
}

/// Entries of logs, tags, pins, and records of collections and purges.
pub fn reference(data: &[u8]) {
    again(b"REFE", data, RefEntry::decode, RefEntry::encode);
    again(b"TAGG", data, Tag::decode, Tag::encode);
    again(b"PINN", data, Pin::decode, Pin::encode);
    again(b"GCRC", data, GcRecord::decode, GcRecord::encode);
    again(b"PURG", data, Purge::decode, Purge::encode);
}

/// Links: no two texts of bytes mean the same one.
pub fn link(data: &[u8]) {
    if let Ok(link) = Link::decode(data) {
        assert_eq!(link.encode().ok().as_deref(), Some(data));
    }
}

/// Puts the CRC-32C of all before it at `at`.
fn seal(bytes: &mut [u8], at: usize) {
    let crc = crc32c(&bytes[..at]);
    bytes[at..at + 4].copy_from_slice(&crc.to_le_bytes());
}

/// Decodes a payload in an envelope that is right; what comes out must come out again.
fn again<T: PartialEq + Debug>(
    kind: &[u8; 4],
    payload: &[u8],
    decode: impl Fn(&[u8]) -> Result<T>,
    encode: impl Fn(&T) -> Result<Vec<u8>>,
) {
    let mut bytes = b"\x89FOREBAY".to_vec();
    bytes.extend_from_slice(kind);
    bytes.extend_from_slice(&[1, 0, 0, 0]);
    bytes.extend_from_slice(&15_u64.to_le_bytes());
    bytes.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    let crc = crc32c(&[&bytes[..], payload].concat());
    bytes.extend_from_slice(&crc.to_le_bytes());
    bytes.extend_from_slice(payload);
    if let Ok(found) = decode(&bytes)
        && let Ok(bytes) = encode(&found)
    {
        assert_eq!(decode(&bytes).ok().as_ref(), Some(&found));
    }
}

/// An index in a file of 16 MiB.
fn parse(flatbuffer: &[u8]) -> Option<(FileIndex, DataFileRef)> {
    // What the golden file's index says of itself: the manifest and the footer have to say the same.
    let offset = 16 << 20;
    let length = u32::try_from(flatbuffer.len()).ok()?;
    let (id, rows, fields) = (Id::from_bytes([7; 16]), 3, (0x11..=0x16).map(FieldId).collect());
    let footer = Footer { id, rows, index_offset: offset, index_length: length, index_crc32c: crc32c(flatbuffer) };
    let file = DataFileRef {
        id,
        size: offset + u64::from(length) + Footer::SIZE as u64,
        index_offset: offset,
        index_length: length,
        fields,
    };
    let tail = [flatbuffer, &footer.encode()].concat();
    Some((FileIndex::parse(&tail, &file).ok()?, file))
}
