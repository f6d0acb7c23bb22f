//! What a parser asks for is bounded by its input, whatever the input says. A program of its own: it counts all allocations.
#![allow(clippy::unwrap_used, missing_docs)]

use forebay_format::{meta::*, *};
use peak_alloc::PeakAlloc;

#[global_allocator]
static ALLOCATED: PeakAlloc = PeakAlloc;

/// The most bytes that work had at once, beyond what was there before it.
fn peak<T>(work: impl FnOnce() -> T) -> usize {
    ALLOCATED.reset_peak_usage();
    let before = ALLOCATED.current_usage();
    drop(work());
    ALLOCATED.peak_usage().saturating_sub(before)
}

/// What a parser may ask for: decoded structures are some times larger than their bytes.
fn bound(input: usize) -> usize {
    64 * input + (64 << 10)
}

fn seal(bytes: &mut [u8]) {
    let crc = crc32c(&[&bytes[..28], &bytes[32..]].concat());
    bytes[28..32].copy_from_slice(&crc.to_le_bytes());
}

type Decode = fn(&[u8]);

const DECODE: [Decode; 10] = [
    |bytes| drop(LakeMarker::decode(bytes)),
    |bytes| drop(Commit::decode(bytes)),
    |bytes| drop(TableRoot::decode(bytes)),
    |bytes| drop(Page::decode(bytes)),
    |bytes| drop(Origins::decode(bytes)),
    |bytes| drop(RefEntry::decode(bytes)),
    |bytes| drop(Tag::decode(bytes)),
    |bytes| drop(Pin::decode(bytes)),
    |bytes| drop(GcRecord::decode(bytes)),
    |bytes| drop(Purge::decode(bytes)),
];

/// Lengths, offsets and counts as an attacker would choose them.
const NUMBERS: [u32; 6] = [0, 1, 0x0000_FFFF, 0x00FF_FFFF, 0x7FFF_FFFF, u32::MAX];

/// Every four bytes of `bytes` from `first` on replaced by each number.
fn twisted(bytes: &[u8], first: usize, mut look: impl FnMut(&mut Vec<u8>, usize)) {
    for at in (first..bytes.len() - 3).step_by(2) {
        for number in NUMBERS {
            let mut bytes = bytes.to_vec();
            bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
            look(&mut bytes, at);
        }
    }
}

/// One test, so that no other one allocates beside it.
#[test]
fn no_input_makes_a_parser_allocate_more_than_its_size_warrants() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/v1");
    let mut names: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    let mut objects = 0;
    for path in names {
        let bytes = std::fs::read(&path).unwrap();
        if path.ends_with("data") {
            index(&bytes);
            continue;
        }
        let kind = DECODE.iter().enumerate();
        for (number, decode) in kind {
            twisted(&bytes, 32, |bytes, at| {
                seal(bytes);
                let used = peak(|| decode(bytes));
                let most = bound(bytes.len());
                assert!(
                    used <= most,
                    "{}, byte {at}, decoder {number}: {used} bytes of at most {most}",
                    path.display()
                );
            });
        }
        objects += 1;
    }
    assert!(objects > 15);
    // Links whose lengths promise what isn't there.
    for bytes in [&[4, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0x41][..], &[7; 60], &[1; 30]] {
        let used = peak(|| Link::decode(bytes));
        assert!(used <= bound(bytes.len()), "{used} bytes");
    }
    // Sets of rows of a few bytes that are four billion rows.
    for bytes in [&[0, 0xFF, 0xFF, 0xFF, 0xFF, 0x0F][..], &[0xFF; 64], &[1, 1, 1, 1, 1, 1]] {
        let used = peak(|| RowSet::decode("rows", bytes));
        assert!(used <= bound(bytes.len()), "{used} bytes");
    }
}

/// The index of a data file, and what it says of blocks.
fn index(file: &[u8]) {
    let footer = Footer::parse(&file[file.len() - Footer::SIZE..]).unwrap();
    let start = footer.index_offset as usize;
    let (flatbuffer, _) = file[start..].split_at(footer.index_length as usize);
    let fields = (0x11..=0x16).map(FieldId).collect();
    let reference = DataFileRef {
        id: footer.id,
        size: file.len() as u64,
        index_offset: footer.index_offset,
        index_length: footer.index_length,
        fields,
    };
    assert!(FileIndex::parse(&file[start..], &reference).is_ok(), "the golden file's own");
    twisted(flatbuffer, 0, |flatbuffer, at| {
        let footer = Footer { index_crc32c: crc32c(flatbuffer), ..footer };
        let tail = [flatbuffer.as_slice(), &footer.encode()].concat();
        let mut parsed = None;
        let used = peak(|| parsed = FileIndex::parse(&tail, &reference).ok());
        let most = bound(tail.len());
        assert!(used <= most, "byte {at} of the index: {used} bytes of at most {most}");
        // A block has the raw length that the index says, and the index says no more than a block may have.
        let Some(index) = parsed else { return };
        for column in index.columns() {
            for number in 0..column.blocks().min(4) {
                let block = column.block(number);
                let stored = &file[..(block.stored as usize).min(file.len())];
                let mut out = Vec::new();
                let used = peak(|| column.decode_block(number, stored, &mut out));
                assert!(used <= (16 << 20) + bound(stored.len()), "byte {at}: {used} bytes for a block");
            }
        }
    });
}
