//! A wrong byte is an error that names its place, or is never looked at; it is never data, and never a panic.

use forebay_format::*;
use proptest::prelude::*;

use crate::{golden, model::File, round_trip::table};

/// Every column of the file, read in full.
fn read_all(file: &File) -> Result<Vec<ColumnData>> {
    let index = file.index()?;
    index.columns().iter().map(|column| file.read(column, 0..index.rows())).collect()
}

fn names_a_place(error: &Error) -> bool {
    let text = error.to_string();
    ["block", "index", "footer", "head", "padding", "row"].iter().any(|part| text.contains(part))
}

#[test]
fn any_changed_byte_of_a_data_file_is_found_by_verification_and_never_read_as_data() {
    let mut file = golden::data_file();
    let intact = read_all(&file).unwrap();
    file.verify().unwrap();
    let mut unseen = 0;
    for at in 0..file.bytes.len() {
        file.bytes[at] ^= 0x10;
        match read_all(&file) {
            Ok(read) => {
                assert_eq!(read, intact, "byte {at}");
                unseen += 1;
            }
            Err(error) => assert!(names_a_place(&error), "byte {at}: {error}"),
        }
        let error = file.verify().expect_err(&format!("byte {at} is covered"));
        assert!(names_a_place(&error), "byte {at}: {error}");
        file.bytes[at] ^= 0x10;
    }
    // Head and padding are what a reader of rows doesn't look at.
    let sections = file.index().unwrap().sections();
    let unread = sections.iter().filter(|section| matches!(section.part, Part::Head | Part::Padding));
    assert_eq!(unseen, unread.map(|section| section.range.end - section.range.start).sum::<u64>());
}

#[test]
fn a_checksum_error_names_object_range_rows_and_column() {
    let mut file = golden::data_file();
    let index = file.index().unwrap();
    let column = &index.columns()[0];
    let offset = column.row_offset(1).unwrap();
    file.bytes[offset as usize] ^= 1;
    let error = file.read(column, 0..1).unwrap_err();
    let Error::Checksum { what, offset, length, .. } = &error else { panic!("{error}") };
    assert_eq!(what, "block 0 (rows 0..3) of column 'image'");
    assert_eq!((*offset, *length), (4096, 3 * 12));
}

#[test]
fn any_truncation_or_extension_of_a_tail_is_an_error() {
    let file = golden::data_file();
    let tail = &file.bytes[file.reference.index_offset as usize..];
    for length in 0..tail.len() {
        FileIndex::parse(&tail[..length], &file.reference).unwrap_err();
        FileIndex::parse(&tail[length + 1..], &file.reference).unwrap_err();
        // Also if the reference agrees.
        let mut reference = file.reference.clone();
        reference.size = reference.index_offset + length as u64;
        reference.index_length = length.saturating_sub(Footer::SIZE) as u32;
        FileIndex::parse(&tail[..length], &reference).unwrap_err();
    }
    FileIndex::parse(&[tail, &[0]].concat(), &file.reference).unwrap_err();
}

#[test]
fn any_truncation_of_a_block_is_an_error() {
    let file = golden::data_file();
    for column in file.index().unwrap().columns() {
        for block in 0..column.blocks() {
            let stored = file.fetch(&column.block(block)).unwrap();
            let mut out = vec![5];
            for length in 0..stored.len() {
                column.decode_block(block, &stored[..length], &mut out).unwrap_err();
                column.check_block(block, &stored[..length]).unwrap_err();
            }
            assert_eq!(out, [5]);
            column.decode_block(block, stored, &mut out).unwrap();
            column.check_block(block, stored).unwrap();
        }
    }
}

#[test]
fn an_index_is_refused_for_any_other_file() {
    let file = golden::data_file();
    let tail = &file.bytes[file.reference.index_offset as usize..];
    let refused = |change: fn(&mut meta::DataFileRef)| {
        let mut reference = file.reference.clone();
        change(&mut reference);
        FileIndex::parse(tail, &reference).unwrap_err()
    };
    refused(|file| file.id = FileId::from_bytes([9; 16]));
    refused(|file| file.size += 1);
    refused(|file| file.index_offset -= 1);
    refused(|file| file.index_length -= 1);
    refused(|file| file.index_length = u32::MAX);
    refused(|file| (file.size, file.index_offset) = (file.size + 4096, file.index_offset + 4096));
    refused(|file| file.fields = file.fields.iter().rev().copied().collect());
    refused(|file| file.fields = file.fields[..2].into());
    refused(|file| (file.size, file.index_offset) = (u64::MAX, u64::MAX));
}

#[test]
fn a_later_version_or_an_unknown_feature_of_a_data_file_is_named() {
    let file = golden::data_file();
    let mut footer = file.bytes[file.bytes.len() - Footer::SIZE..].to_vec();
    footer[48] = 7;
    assert!(matches!(Footer::parse(&footer), Err(Error::Unsupported { needs, .. }) if needs == "format version 7"));
    footer[48] = 1;
    footer[33] = 0x80;
    let crc = crc32c(&footer[..52]);
    footer[52..56].copy_from_slice(&crc.to_le_bytes());
    assert!(matches!(Footer::parse(&footer), Err(Error::Unsupported { needs, .. }) if needs == "feature bit 15"));

    let mut head = file.bytes[..Head::SIZE].to_vec();
    head[12] = 7;
    assert!(matches!(Head::parse(&head), Err(Error::Unsupported { needs, .. }) if needs == "format version 7"));
    head[12] = 1;
    head[16] = 4;
    let crc = crc32c(&head[..Head::SIZE - 4]);
    head[Head::SIZE - 4..].copy_from_slice(&crc.to_le_bytes());
    assert!(matches!(Head::parse(&head), Err(Error::Unsupported { needs, .. }) if needs == "feature bit 2"));
}

/// Makes the checksums of a changed index right again.
fn seal_index(file: &mut File) {
    let (start, length) = (file.reference.index_offset as usize, file.reference.index_length as usize);
    let crc = crc32c(&file.bytes[start..start + length]);
    let footer = &mut file.bytes[start + length..];
    footer[12..16].copy_from_slice(&crc.to_le_bytes());
    let crc = crc32c(&footer[..52]);
    footer[52..56].copy_from_slice(&crc.to_le_bytes());
}

/// Asks an index for all that it can give.
fn use_index(file: &File) {
    let Ok(index) = file.index() else { return };
    for section in index.sections() {
        let range = section.range.start as usize..section.range.end as usize;
        let _ = index.check_section(&section, &file.bytes[range]);
    }
    for column in index.columns() {
        let rows = index.rows().min(500);
        let _ = file.read(column, 0..rows);
        for row in 0..rows {
            let _ = (column.row_offset(row), column.media_shape(row), column.ranges_of(row..row + 1));
        }
    }
}

/// A hostile writer can compute checksums: behind them every rule is checked again.
#[test]
fn any_changed_byte_of_an_index_under_right_checksums_never_panics() {
    let intact = golden::data_file();
    let (start, length) = (intact.reference.index_offset as usize, intact.reference.index_length as usize);
    for at in start..start + length {
        for value in [0, 1, 2, 0x7f, 0x80, 0xff] {
            let mut file = intact.clone();
            if file.bytes[at] == value {
                continue;
            }
            file.bytes[at] = value;
            seal_index(&mut file);
            use_index(&file);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn several_changed_bytes_of_an_index_under_right_checksums_never_panic(
        table in table(40), chunk_bytes in 1usize..2000,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let options = WriteOptions { chunk_bytes, block_bytes: 64, ..Default::default() };
        let mut file = File::write(&table, 7, options).unwrap();
        let (start, length) = (file.reference.index_offset as usize, file.reference.index_length as usize);
        for (at, value) in changes {
            file.bytes[start + at.index(length)] = value;
        }
        seal_index(&mut file);
        use_index(&file);
    }

    #[test]
    fn garbage_is_never_a_footer_a_head_or_an_index(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let file = golden::data_file();
        prop_assert!(Footer::parse(&bytes).is_err());
        prop_assert!(Head::parse(&bytes).is_err());
        prop_assert!(FileIndex::parse(&bytes, &file.reference).is_err());
        let mut padded = bytes.clone();
        padded.resize(Head::SIZE, 0);
        prop_assert!(Head::parse(&padded).is_err());
        padded.truncate(Footer::SIZE);
        prop_assert!(Footer::parse(&padded).is_err());
    }

    #[test]
    fn garbage_in_a_block_is_an_error_even_under_a_right_checksum(
        table in table(40), bytes in prop::collection::vec(any::<u8>(), 1..64),
    ) {
        let options = WriteOptions { block_bytes: 64, ..Default::default() };
        let mut file = File::write(&table, 7, options).unwrap();
        let index = file.index().unwrap();
        for column in index.columns() {
            for block in 0..column.blocks() {
                let place = column.block(block);
                let range = place.offset as usize..(place.offset + u64::from(place.stored)) as usize;
                for (to, byte) in file.bytes[range.clone()].iter_mut().zip(bytes.iter().cycle()) {
                    *to = *byte;
                }
                // Where the index keeps the checksum: anywhere that the old one is found.
                let (start, crc) = (file.reference.index_offset as usize, crc32c(&file.bytes[range]));
                let old = place.crc32c.to_le_bytes();
                let index_bytes = &mut file.bytes[start..];
                let found: Vec<_> = index_bytes.windows(4).enumerate().filter(|(_, w)| *w == old).map(|(at, _)| at).collect();
                for at in found {
                    index_bytes[at..at + 4].copy_from_slice(&crc.to_le_bytes());
                }
            }
        }
        seal_index(&mut file);
        use_index(&file);
    }
}
