//! Indexes that no writer of ours makes, under right checksums: each breaks one rule, and is refused for it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::{
    Block, FileIndex,
    chunk::{ChunkDraft, tail},
};
use crate::{
    Bitmap, Codec, Column, ColumnSlice, Compression, DType, DataFileWriter, Dim, Error, FileId, Result, Values,
    WriteOptions, checksum::crc32c, meta::DataFileRef,
};

const END: u64 = 3 * 4096;

/// Parses an index of 10 rows made of these columns and chunks, at `END`.
fn parse(columns: &[(&Column, &[ChunkDraft])], block_bytes: u32) -> Result<FileIndex> {
    let id = FileId::from_bytes([1; 16]);
    let (bytes, footer) = tail(id, 10, block_bytes, columns, END).unwrap();
    let fields = columns.iter().map(|(column, _)| column.field).collect();
    let size = END + bytes.len() as u64;
    FileIndex::parse(&bytes, &DataFileRef { id, size, index_offset: END, index_length: footer.index_length, fields })
}

fn column(dtype: DType, shape: &[Dim], codec: Codec) -> Column {
    let mut column = Column::new("x", dtype, shape).unwrap();
    column.compression = Compression { codec, shuffle: false };
    column.nullable = true;
    column
}

fn refused(what: &str, column: &Column, good: &impl Fn() -> ChunkDraft, change: impl Fn(&mut ChunkDraft)) {
    parse(&[(column, &[good()])], 64).expect("the chunk is right before it is changed");
    let mut draft = good();
    change(&mut draft);
    match parse(&[(column, &[draft])], 64) {
        Err(Error::Corrupt { .. }) => {}
        other => panic!("{what}: {other:?}"),
    }
}

#[test]
fn chunks_that_break_a_rule_are_refused() {
    // 8 rows of 8 bytes fill a block.
    let direct = column(DType::U8, &[Dim::Fixed(8)], Codec::None);
    let good = || ChunkDraft { rows: 10, offset: 4096, length: 80, crc: vec![1, 2], ..Default::default() };
    let refuse = |what: &str, change: fn(&mut ChunkDraft)| refused(what, &direct, &good, change);
    refuse("rows missing", |chunk| (chunk.rows, chunk.length) = (9, 72));
    refuse("rows too many", |chunk| (chunk.rows, chunk.length) = (11, 88));
    refuse("no rows", |chunk| chunk.rows = 0);
    refuse("in the head", |chunk| chunk.offset = 0);
    refuse("not aligned", |chunk| chunk.offset = 4097);
    refuse("behind the index", |chunk| chunk.offset = END);
    refuse("at the end of all numbers", |chunk| chunk.offset = u64::MAX - 4095);
    refuse("longer than its blocks", |chunk| chunk.length = 81);
    refuse("shorter than its blocks", |chunk| chunk.length = 79);
    refuse("a checksum too few", |chunk| chunk.crc.truncate(1));
    refuse("a checksum too many", |chunk| chunk.crc.push(3));
    refuse("stored lengths without a codec", |chunk| chunk.stored = vec![64, 16]);
    refuse("validity blocks too many", |chunk| (chunk.validity_crc, chunk.length) = (vec![1, 2], 84));
    refuse("validity without its bytes", |chunk| chunk.validity_crc = vec![1]);
    refuse("shapes of no rank", |chunk| chunk.media_shapes = vec![1]);
    refuse("too few shapes", |chunk| (chunk.media_rank, chunk.media_shapes) = (2, vec![1, 2, 3]));
    refuse("a rank too high", |chunk| (chunk.media_rank, chunk.media_shapes) = (9, vec![1; 9]));

    let mut strict = direct.clone();
    strict.nullable = false;
    let nulls = ChunkDraft { validity_crc: vec![1], length: 82, ..good() };
    assert!(parse(&[(&strict, &[nulls])], 64).is_err(), "nulls in a column that has none");
}

#[test]
fn chunks_that_overlap_are_refused() {
    let (one, two) = (column(DType::U8, &[Dim::Fixed(8)], Codec::None), column(DType::U8, &[], Codec::None));
    let mut two = two;
    two.name = "y".into();
    let at = |offset| ChunkDraft { rows: 10, offset, length: 80, crc: vec![1, 2], ..Default::default() };
    let small = |offset| ChunkDraft { rows: 10, offset, length: 10, crc: vec![1], ..Default::default() };
    parse(&[(&one, &[at(4096)]), (&two, &[small(8192)])], 64).unwrap();
    parse(&[(&one, &[at(8192)]), (&two, &[small(4096)])], 64).unwrap();
    assert!(parse(&[(&one, &[at(4096)]), (&two, &[small(4096)])], 64).is_err());
    // A chunk that reaches into the next one.
    let wide = column(DType::U8, &[Dim::Fixed(500)], Codec::None);
    let large = |offset| ChunkDraft { rows: 10, offset, length: 5000, crc: vec![1; 80], ..Default::default() };
    assert!(parse(&[(&wide, &[large(4096)]), (&two, &[small(8192)])], 64).is_err());
    assert!(parse(&[(&wide, &[large(8192)])], 64).is_err(), "it reaches into the index");
    assert!(parse(&[(&one, &[at(4096)]), (&one, &[at(8192)])], 64).is_err(), "a column twice");
}

#[test]
fn stored_lengths_of_no_block_are_refused() {
    let coded = column(DType::U8, &[Dim::Fixed(8)], Codec::Lz4);
    let good = || ChunkDraft {
        rows: 10,
        offset: 4096,
        length: 40,
        crc: vec![1, 2],
        stored: vec![30, 10],
        ..Default::default()
    };
    let refuse = |what: &str, change: fn(&mut ChunkDraft)| refused(what, &coded, &good, change);
    refuse("none", |chunk| (chunk.stored, chunk.length) = (vec![40, 0], 40));
    refuse("more than raw", |chunk| (chunk.stored, chunk.length) = (vec![30, 17], 47));
    refuse("too few", |chunk| (chunk.stored, chunk.length) = (vec![30], 30));
    refuse("too many", |chunk| chunk.stored.push(1));
}

#[test]
fn blocks_of_free_shape_that_break_a_rule_are_refused() {
    let text = column(DType::Utf8, &[], Codec::None);
    // Four rows, a row of 130 bytes in three blocks, five rows.
    let good = || ChunkDraft {
        rows: 10,
        offset: 4096,
        length: 190,
        crc: vec![1; 5],
        block_rows: vec![4, 1, 0, 0, 5],
        block_raw: vec![20, 64, 64, 6, 36],
        ..Default::default()
    };
    let refuse = |what: &str, change: fn(&mut ChunkDraft)| refused(what, &text, &good, change);
    refuse("a start with no row", |chunk| chunk.block_rows = vec![0, 5, 0, 0, 5]);
    refuse("going on with several rows", |chunk| chunk.block_rows = vec![4, 2, 0, 0, 4]);
    refuse("rows too many", |chunk| chunk.block_rows[4] = 6);
    refuse("rows beyond all numbers", |chunk| chunk.block_rows[4] = u32::MAX);
    refuse("rows too few", |chunk| chunk.block_rows[4] = 4);
    refuse("a block of nothing", |chunk| (chunk.block_raw[4], chunk.length) = (0, 154));
    refuse("a block too large", |chunk| (chunk.block_raw[4], chunk.length) = (65, 219));
    refuse("row counts too few", |chunk| chunk.block_rows.truncate(4));
    refuse("raw lengths too few", |chunk| chunk.block_raw.truncate(4));
    refuse("a header and nothing of a row that goes on", |chunk| (chunk.block_raw[1], chunk.length) = (4, 130));
}

/// Reads a chunk of these blocks, of ten rows of text.
fn read_text(block_rows: Vec<u32>, blocks: &[&[u8]]) -> Result<crate::ColumnData> {
    let text = column(DType::Utf8, &[], Codec::None);
    let draft = ChunkDraft {
        rows: 10,
        offset: 4096,
        length: blocks.iter().map(|block| block.len() as u64).sum(),
        crc: blocks.iter().map(|block| crc32c(block)).collect(),
        block_rows,
        block_raw: blocks.iter().map(|block| block.len() as u32).collect(),
        ..Default::default()
    };
    let index = parse(&[(&text, &[draft])], 64)?;
    let all = blocks.concat();
    let fetch = |block: &Block| Ok(&all[(block.offset - 4096) as usize..][..block.stored as usize]);
    index.columns()[0].read_rows(0..10, fetch)
}

fn block(ends: &[u32], values: &[u8]) -> Vec<u8> {
    ends.iter().flat_map(|end| end.to_le_bytes()).chain(values.iter().copied()).collect()
}

#[test]
fn blocks_of_free_shape_that_contradict_themselves_or_each_other_are_refused() {
    let nine = block(&[0, 0, 1, 1, 1, 1, 1, 1, 1], b"a");
    let (first, last) = (block(&[70], &[b'x'; 60]), [b'x'; 10]);
    let read = read_text(vec![9, 1, 0], &[&nine, &first, &last]).unwrap();
    assert_eq!(read.rows, 10);
    for (what, rows, blocks) in [
        ("offsets that descend", vec![9, 1, 0], [&block(&[0, 1, 0, 1, 1, 1, 1, 1, 1], b"a")[..], &first, &last]),
        ("offsets past the end", vec![9, 1, 0], [&block(&[0, 0, 1, 1, 1, 1, 1, 1, 2], b"a"), &first, &last]),
        ("offsets before the end", vec![9, 1, 0], [&block(&[0; 9], b"a"), &first, &last]),
        ("a block without room for offsets", vec![9, 1, 0], [b"abc", &first, &last]),
        ("too little of a row", vec![9, 1, 0], [&nine, &first, &last[1..]]),
        ("too much of a row", vec![9, 1, 0], [&nine, &first, &[b'x'; 11]]),
        ("a row that goes on without need", vec![9, 1, 0], [&nine, &block(&[60], &[b'x'; 60]), &last]),
        ("text that is none", vec![9, 1, 0], [&nine, &first, &[0xff; 10]]),
    ] {
        let result = read_text(rows, &blocks);
        assert!(matches!(result, Err(Error::Corrupt { .. })), "{what}: {result:?}");
    }
    // A row that goes on at the chunk's end, in front of another row, or nowhere.
    let one = block(&[1], b"a");
    assert!(read_text(vec![9, 1], &[&nine, &first]).is_err());
    assert!(read_text(vec![1, 0, 9], &[&first, &last, &nine]).is_ok());
    assert!(read_text(vec![1, 0, 9], &[&first, &last[1..], &nine]).is_err());
    assert!(read_text(vec![9, 1, 0], &[&nine, &one, &last]).is_err());
}

#[test]
fn decoded_shapes_may_change_their_rank_between_batches_and_equal_ones_are_kept_once() {
    let column = Column::new("photo", DType::Bytes, vec![]).unwrap();
    let mut writer =
        DataFileWriter::new(Vec::new(), FileId::random(), std::slice::from_ref(&column), WriteOptions::default())
            .unwrap();
    let mut push = |shapes: &[u32]| {
        let values = Values::Ragged { offsets: &[0, 1, 2], shapes, bytes: b"ab" };
        writer.push(&[ColumnSlice { rows: 2, values, validity: None::<Bitmap<'_>> }]).unwrap();
    };
    push(&[4, 5, 4, 5]);
    push(&[4, 5, 4, 5]);
    push(&[]);
    push(&[1, 2, 3, 4, 5, 6]);
    let (bytes, file) = writer.finish().unwrap();
    let index = FileIndex::parse(&bytes[file.index_offset as usize..], &file).unwrap();
    let column = &index.columns()[0];
    let shapes: Vec<_> = (0..8).map(|row| column.media_shape(row)).collect();
    let (same, none) = (Some(&[4, 5][..]), None);
    assert_eq!(shapes, [same, same, same, same, none, none, Some(&[1, 2, 3]), Some(&[4, 5, 6])]);
    assert_eq!(column.chunks()[0].media_shapes, [4, 5], "one shape for four rows");
    assert_eq!(column.chunks().len(), 3);

    // Rows of one rank come with their shapes; rows of several without any.
    let shapes_of = |rows: std::ops::Range<u32>| {
        let fetch = |block: &Block| Ok::<_, Error>(&bytes[block.offset as usize..][..block.stored as usize]);
        match column.read_rows(rows, fetch).unwrap().values {
            crate::OwnedValues::Ragged { shapes, .. } => shapes,
            crate::OwnedValues::Fixed(_) => panic!("bytes are of free shape"),
        }
    };
    assert_eq!(shapes_of(2..4), [4, 5, 4, 5]);
    assert_eq!(shapes_of(6..8), [1, 2, 3, 4, 5, 6]);
    for mixed in [0..8, 3..5, 4..8, 3..7] {
        assert_eq!(shapes_of(mixed), []);
    }
}

#[test]
fn an_index_of_blocks_out_of_bounds_is_refused() {
    let direct = column(DType::U8, &[], Codec::None);
    let good = || ChunkDraft { rows: 10, offset: 4096, length: 10, crc: vec![1], ..Default::default() };
    for block_bytes in [0, 63, (16 << 20) + 1, u32::MAX] {
        assert!(matches!(parse(&[(&direct, &[good()])], block_bytes), Err(Error::Corrupt { .. })));
    }
    parse(&[(&direct, &[good()])], 16 << 20).unwrap();
}
