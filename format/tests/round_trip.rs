//! What was written is read, whatever the dtype, the shape, the codec, the nulls and the sizes.

use std::{collections::HashSet, ops::Range};

use forebay_format::*;
use proptest::{collection::vec, prelude::*};

use crate::{
    arbitrary,
    model::{File, Row, batch},
};

fn options() -> impl Strategy<Value = WriteOptions> {
    let chunk = prop_oneof![Just(1), 1usize..300, 300usize..20_000, Just(8 << 20)];
    let block = prop_oneof![64usize..100, 100usize..5000, Just(64 << 10)];
    let buffer = prop_oneof![Just(0), 1usize..5000, Just(128 << 20)];
    (chunk, block, buffer).prop_map(|(chunk_bytes, block_bytes, buffer_bytes)| WriteOptions {
        chunk_bytes,
        block_bytes,
        buffer_bytes,
    })
}

/// Columns with the same number of rows.
pub fn table(max_rows: usize) -> impl Strategy<Value = Vec<(Column, Vec<Row>)>> {
    arbitrary::schema().prop_flat_map(move |schema| {
        let rows: Vec<_> = schema.columns.iter().map(|column| arbitrary::rows(column, max_rows)).collect();
        (Just(schema), rows).prop_map(|(schema, mut rows)| {
            let count = rows.iter().map(Vec::len).min().unwrap();
            rows.iter_mut().for_each(|rows| rows.truncate(count));
            schema.columns.into_iter().zip(rows).collect()
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn what_was_written_is_read(
        table in table(120), push in 1usize..130, options in options(),
        picks in vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 4),
        list in vec(any::<prop::sample::Index>(), 0..20),
    ) {
        let file = File::write(&table, push, options).unwrap();
        file.verify().unwrap();
        let index = file.index().unwrap();
        prop_assert_eq!(index.rows() as usize, table[0].1.len());
        for (column, rows) in &table {
            let found = index.column(column.field).unwrap();
            prop_assert_eq!(found.dtype(), column.dtype);
            prop_assert_eq!(found.shape(), &column.shape[..]);
            prop_assert_eq!(found.compression(), column.compression);
            prop_assert_eq!(found.nullable(), column.nullable);
            prop_assert_eq!(found.layout(), column.layout());
            let count = rows.len() as u32;
            let ranges = picks.iter().map(|(a, b)| {
                let (a, b) = (a.index(rows.len() + 1) as u32, b.index(rows.len() + 1) as u32);
                a.min(b)..a.max(b)
            });
            for range in ranges.chain([0..count, 0..0]) {
                let expected = batch(column, &rows[range.start as usize..range.end as usize]);
                prop_assert_eq!(file.read(found, range.clone()).unwrap(), expected);
                check_ranges(&file, found, range);
            }
            let list: Vec<u32> = list.iter().filter(|_| count > 0).map(|pick| pick.index(rows.len()) as u32).collect();
            let picked: Vec<Row> = list.iter().map(|row| rows[*row as usize].clone()).collect();
            let mut fetched = HashSet::new();
            let read = found.read_list(&list, |block| {
                assert!(fetched.insert(block.offset), "a block is fetched once");
                file.fetch(block)
            }).unwrap();
            prop_assert_eq!(read, batch(column, &picked));
            prop_assert!(file.read(found, 0..count + 1).is_err());
            check_places(&file, found, rows);
        }
    }
}

/// Reading rows takes the bytes that `ranges_of` names, each block once, and no others.
fn check_ranges(file: &File, column: &ColumnIndex, rows: Range<u32>) {
    let ranges = column.ranges_of(rows.clone());
    assert!(ranges.windows(2).all(|pair| pair[0].end < pair[1].start));
    let mut fetched = Vec::new();
    column
        .read_rows(rows, |block| {
            fetched.push(block.range());
            file.fetch(block)
        })
        .unwrap();
    let bytes = |ranges: &[Range<u64>]| ranges.iter().map(|range| range.end - range.start).sum::<u64>();
    assert_eq!(bytes(&fetched), bytes(&ranges));
    for block in fetched {
        assert!(ranges.iter().any(|range| range.start <= block.start && block.end <= range.end));
    }
}

/// Blocks and chunks are where they say, and rows are found in them.
fn check_places(file: &File, column: &ColumnIndex, rows: &[Row]) {
    let mut next = 0;
    for (number, chunk) in column.chunks().iter().enumerate() {
        assert_eq!((chunk.first_row, chunk.offset % 4096), (next, 0));
        next += chunk.rows;
        for row in chunk.row_range() {
            assert_eq!(column.chunk_of(row), number);
        }
        let nulls = rows[chunk.first_row as usize..next as usize].iter().filter(|row| !row.valid).count();
        assert_eq!(chunk.stats.as_ref().unwrap().nulls as usize, nulls);
        assert_eq!(chunk.validity_blocks.is_empty(), nulls == 0);
    }
    assert_eq!(next, column.rows());
    for (row, model) in rows.iter().enumerate() {
        let row = row as u32;
        let holding: Vec<usize> =
            (0..column.blocks()).filter(|block| column.block(*block).row_range().contains(&row)).collect();
        let blocks = column.blocks_of(row..row + 1);
        assert!(holding.iter().copied().eq(blocks), "row {row}");
        match column.direct() {
            Some(row_bytes) => {
                let offset = column.row_offset(row).unwrap() as usize;
                assert_eq!(file.bytes[offset..offset + row_bytes], model.bytes);
            }
            None => assert_eq!(column.row_offset(row), None),
        }
        let media = column.dtype() == DType::Bytes && !model.shape.is_empty();
        assert_eq!(column.media_shape(row), media.then_some(&model.shape[..]));
    }
    assert_eq!(column.row_offset(column.rows()), None);
    for block in (0..column.blocks()).map(|block| column.block(block)) {
        assert!(block.stored <= block.raw && block.raw > 0);
    }
}
