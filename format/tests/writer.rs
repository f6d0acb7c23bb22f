//! The writer's promises: bounded memory, no copies of large batches, all or nothing, and limits.

use std::io::{self, Write};

use forebay_format::*;

use crate::model::{File, Row};

fn dims(lengths: &[u32]) -> Vec<Dim> {
    lengths.iter().copied().map(Dim::Fixed).collect()
}

fn fixed(rows: usize, bytes: &[u8]) -> ColumnSlice<'_> {
    ColumnSlice { rows, values: Values::Fixed(bytes), validity: None }
}

/// Counts what it gets, and where writes come from.
#[derive(Default)]
struct Counter {
    bytes: u64,
    /// Bytes that were written straight from this range of addresses.
    borrowed: std::ops::Range<usize>,
    direct: u64,
}

impl Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes += bytes.len() as u64;
        if self.borrowed.contains(&(bytes.as_ptr() as usize)) {
            self.direct += bytes.len() as u64;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_writer_of_many_columns_stays_within_its_memory() {
    let columns: Vec<_> = (0..40u32)
        .map(|number| {
            let (dtype, shape) = match number % 4 {
                0 => (DType::U8, dims(&[1 + number * 7])),
                1 => (DType::Utf8, vec![]),
                2 => (DType::F32, vec![Dim::Free, Dim::Fixed(2)]),
                _ => (DType::I64, vec![]),
            };
            let mut column = Column::new(format!("c{number}"), dtype, shape).unwrap();
            column.nullable = number % 3 == 0;
            if number % 5 == 0 {
                column.compression = Compression { codec: Codec::Lz4, shuffle: true };
            }
            column
        })
        .collect();
    let options = WriteOptions { chunk_bytes: 256 << 10, block_bytes: 1 << 10, buffer_bytes: 1 << 20 };
    let mut writer = DataFileWriter::new(Counter::default(), FileId::random(), &columns, options).unwrap();
    let mut pushed = 0;
    for push in 0..300 {
        let rows = 1 + push * 13 % 97;
        let row = |column: &Column, index: usize| {
            let valid = !column.nullable || index % 4 != 1;
            let bytes = match column.layout() {
                Layout::Fixed { row_bytes } => vec![if valid { (index * 31) as u8 } else { 0 }; row_bytes],
                Layout::Ragged { .. } => vec![b'a'; if valid { (index + push) % 40 * 8 } else { 0 }],
            };
            let shape = if column.dtype == DType::F32 { vec![bytes.len() as u32 / 8, 2] } else { vec![] };
            Row { valid, shape, bytes }
        };
        let batches: Vec<_> = columns
            .iter()
            .map(|column| crate::model::batch(column, &(0..rows).map(|index| row(column, index)).collect::<Vec<_>>()))
            .collect();
        let slices: Vec<_> = batches.iter().map(ColumnData::as_slice).collect();
        pushed += batches
            .iter()
            .map(|batch| match &batch.values {
                OwnedValues::Fixed(bytes) | OwnedValues::Ragged { bytes, .. } => bytes.len(),
            })
            .sum::<usize>();
        writer.push(&slices).unwrap();
        // Small scratch of a block or two a column comes on top.
        let bound = options.buffer_bytes + columns.len() * 4 * options.block_bytes;
        assert!(writer.memory() <= bound, "{} bytes held after push {push}", writer.memory());
    }
    assert!(pushed > 20 << 20, "{pushed} bytes are enough to tell");
    let size = writer.size();
    let (counter, file) = writer.finish().unwrap();
    assert_eq!(counter.bytes, file.size);
    assert!(size <= file.size);
}

#[test]
fn a_large_batch_is_written_from_where_it_is() {
    let column = Column::new("image", DType::U8, dims(&[3, 100])).unwrap();
    let options = WriteOptions { chunk_bytes: 64 << 10, block_bytes: 4 << 10, ..Default::default() };
    for rows in [110, 218, 219, 1000, 1001] {
        let batch = vec![7; rows * 300];
        let start = batch.as_ptr() as usize;
        let counter = Counter { borrowed: start..start + batch.len(), ..Default::default() };
        let mut writer =
            DataFileWriter::new(counter, FileId::random(), std::slice::from_ref(&column), options).unwrap();
        writer.push(&[fixed(rows, &batch)]).unwrap();
        // The rows that don't fill a block of 13 wait for more; all others were written.
        let waiting = rows % 13 * 300;
        assert_eq!(writer.memory(), waiting, "{rows} rows");
        let (counter, _) = writer.finish().unwrap();
        assert_eq!(counter.direct, (batch.len() - waiting) as u64, "{rows} rows");
    }
}

#[test]
fn chunks_of_small_batches_are_full_and_those_of_large_ones_at_least_half() {
    let column = Column::new("x", DType::U8, dims(&[100])).unwrap();
    let options = WriteOptions { chunk_bytes: 10_000, block_bytes: 1000, ..Default::default() };
    for push in [1, 3, 49, 50, 99, 100, 101, 150, 1000, 1234] {
        let rows: Vec<_> =
            (0..5000u32).map(|row| Row { valid: true, shape: vec![], bytes: vec![row as u8; 100] }).collect();
        let file = File::write(&[(column.clone(), rows)], push, options).unwrap();
        let index = file.index().unwrap();
        let chunks = index.columns()[0].chunks();
        let (_, full) = chunks.split_last().unwrap();
        let least = if push < 50 { 100 } else { 50 };
        assert!(full.iter().all(|chunk| (least..=100).contains(&chunk.rows)), "pushes of {push}");
    }
}

#[test]
fn a_batch_that_does_not_fit_leaves_no_trace() {
    let mut text = Column::new("text", DType::Utf8, vec![]).unwrap();
    text.nullable = true;
    let columns = [
        Column::new("x", DType::I32, dims(&[2])).unwrap(),
        text,
        Column::new("t", DType::I16, vec![Dim::Free]).unwrap(),
    ];
    let words = Values::Ragged { offsets: &[0, 2, 3], shapes: &[], bytes: b"abc" };
    let tensors = Values::Ragged { offsets: &[0, 4, 4], shapes: &[2, 0], bytes: &[1, 0, 2, 0] };
    let slice = |values| ColumnSlice { rows: 2, values, validity: None };
    let good = [fixed(2, &[7; 16]), slice(words), slice(tensors)];
    let id = FileId::random();
    let write = |bad: Option<[ColumnSlice<'_>; 3]>| {
        let mut writer = DataFileWriter::new(Vec::new(), id, &columns, WriteOptions::default()).unwrap();
        writer.push(&good).unwrap();
        if let Some(bad) = bad {
            let error = writer.push(&bad).unwrap_err();
            assert!(matches!(error, Error::ColumnMismatch { .. }), "{error}");
        }
        assert!(matches!(writer.push(&good[..2]), Err(Error::ColumnMismatch { .. })));
        writer.push(&good).unwrap();
        writer.finish().unwrap().0
    };
    let expected = write(None);
    let ragged = |offsets, shapes, bytes| slice(Values::Ragged { offsets, shapes, bytes });
    let bad_words = [
        ragged(&[0, 2], &[], b"ab"),
        ragged(&[0, 2, 4], &[], b"abc"),
        ragged(&[0, 3, 2], &[], b"abc"),
        ragged(&[1, 2, 3], &[], b"abc"),
        ragged(&[0, 2, 3], &[1, 1], b"abc"),
        ragged(&[0, 2, 3], &[], b"a\xffb"),
        ragged(&[0, 1, 2], &[], "é".as_bytes()),
        fixed(2, b"abc"),
        ColumnSlice { rows: 1, ..slice(words) },
        ColumnSlice { validity: Some(Bitmap(&[])), ..slice(words) },
        ColumnSlice { validity: Some(Bitmap(&[3, 0])), ..slice(words) },
    ];
    for bad in bad_words {
        assert_eq!(write(Some([good[0], bad, good[2]])), expected, "{bad:?}");
    }
    let bad_numbers = [
        fixed(2, &[7; 15]),
        fixed(2, &[7; 17]),
        slice(words),
        fixed(3, &[7; 24]),
        ColumnSlice { validity: Some(Bitmap(&[3])), ..good[0] },
    ];
    for bad in bad_numbers {
        assert_eq!(write(Some([bad, good[1], good[2]])), expected, "{bad:?}");
    }
    let bad_tensors = [
        ragged(&[0, 4, 4], &[2], &[1, 0, 2, 0]),
        ragged(&[0, 4, 4], &[2, 1], &[1, 0, 2, 0]),
        ragged(&[0, 3, 4], &[2, 0], &[1, 0, 2, 0]),
        ragged(&[0, 4, 4], &[u32::MAX, 0], &[1, 0, 2, 0]),
    ];
    for bad in bad_tensors {
        assert_eq!(write(Some([good[0], good[1], bad])), expected, "{bad:?}");
    }
}

#[test]
fn null_rows_of_free_shape_are_empty() {
    let mut column = Column::new("t", DType::I16, vec![Dim::Free]).unwrap();
    column.nullable = true;
    let check = |offsets: &[u64], bytes: &[u8]| {
        let values = Values::Ragged { offsets, shapes: &[1, 1], bytes };
        ColumnSlice { rows: 2, values, validity: Some(Bitmap(&[1])) }.check(&column)
    };
    check(&[0, 2, 2], &[1, 2]).unwrap();
    check(&[0, 2, 4], &[1, 2, 3, 4]).unwrap_err();
}

/// Fails when it has got so many bytes, and works again afterwards.
struct Failing(usize);

impl Write for Failing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0 == 0 {
            self.0 = usize::MAX;
            return Err(io::Error::new(io::ErrorKind::StorageFull, "no space left on device"));
        }
        let taken = bytes.len().min(self.0);
        self.0 -= taken;
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_sink_that_fails_fails_the_writer_for_good() {
    let column = [Column::new("x", DType::U8, dims(&[1000])).unwrap()];
    let options = WriteOptions { chunk_bytes: 10_000, ..Default::default() };
    assert!(matches!(DataFileWriter::new(Failing(10), FileId::random(), &column, options), Err(Error::Sink(_))));
    let mut writer = DataFileWriter::new(Failing(5000), FileId::random(), &column, options).unwrap();
    let error = writer.push(&[fixed(20, &[1; 20_000])]).unwrap_err();
    assert!(error.to_string().contains("no space left"), "{error}");
    assert!(matches!(writer.push(&[fixed(1, &[1; 1000])]), Err(Error::Sink(_))));
    assert!(matches!(writer.finish(), Err(Error::Sink(_))));
}

#[test]
fn rows_without_bytes_files_without_rows_and_rows_of_many_blocks_are_kept() {
    let shapes: [&[Dim]; 5] =
        [&[Dim::Fixed(0)], &[Dim::Fixed(0), Dim::Free], &[], &[Dim::Fixed(1000)], &[Dim::Free, Dim::Fixed(500)]];
    for shape in shapes {
        for codec in [Codec::None, Codec::Lz4, Codec::Zstd { level: 1 }] {
            for rows in [0, 1, 2, 50] {
                let mut column = Column::new("x", DType::U16, shape).unwrap();
                column.compression.codec = codec;
                column.nullable = true;
                let lengths: Vec<u32> = shape.iter().map(|dim| if let Dim::Fixed(n) = dim { *n } else { 3 }).collect();
                let bytes = vec![9; 2 * lengths.iter().product::<u32>() as usize];
                let shape = if shape.contains(&Dim::Free) { lengths } else { vec![] };
                let rows = vec![Row { valid: true, shape, bytes }; rows];
                let options = WriteOptions { block_bytes: 300, chunk_bytes: 7000, ..Default::default() };
                let file = File::write(&[(column.clone(), rows.clone())], 7, options).unwrap();
                file.verify().unwrap();
                let index = file.index().unwrap();
                let read = file.read(&index.columns()[0], 0..rows.len() as u32).unwrap();
                assert_eq!(read, crate::model::batch(&column, &rows));
            }
        }
    }
}

#[test]
fn a_file_takes_as_many_rows_as_32_bits_count_and_no_more() {
    let column = [Column::new("x", DType::U8, dims(&[0])).unwrap()];
    let mut writer = DataFileWriter::new(Vec::new(), FileId::random(), &column, WriteOptions::default()).unwrap();
    writer.push(&[fixed(u32::MAX as usize, &[])]).unwrap();
    assert!(matches!(writer.push(&[fixed(1, &[])]), Err(Error::Limit { .. })));
    writer.push(&[fixed(0, &[])]).unwrap();
    let (bytes, reference) = writer.finish().unwrap();
    let file = File { bytes, reference };
    file.verify().unwrap();
    let index = file.index().unwrap();
    let column = &index.columns()[0];
    assert_eq!(column.rows(), u32::MAX);
    assert_eq!(column.row_offset(u32::MAX - 1), Some(4096));
    assert_eq!(file.read(column, 5..u32::MAX).unwrap().rows, u32::MAX as usize - 5);
}

#[test]
fn an_index_never_passes_its_limit_and_a_full_file_says_so_before() {
    let column = [Column::new("photo", DType::Bytes, vec![]).unwrap()];
    let mut writer = DataFileWriter::new(Vec::new(), FileId::random(), &column, WriteOptions::default()).unwrap();
    let rows = 10_000;
    let offsets: Vec<u64> = (0..=rows).collect();
    let (shapes, bytes): (Vec<u32>, Vec<u8>) = ((0..rows as u32 * 3).collect(), vec![1; rows as usize]);
    let values = Values::Ragged { offsets: &offsets, shapes: &shapes, bytes: &bytes };
    let slice = ColumnSlice { rows: rows as usize, values, validity: None };
    let mut full = None;
    let refused = loop {
        if writer.is_full() && full.is_none() {
            full = Some(writer.rows());
        }
        if let Err(error) = writer.push(&[slice]) {
            break error;
        }
    };
    assert!(matches!(refused, Error::Limit { limit, .. } if limit == u64::from(FileIndex::MAX_BYTES)), "{refused}");
    assert!(full.unwrap() < writer.rows());
    let (bytes, reference) = writer.finish().unwrap();
    assert!(reference.index_length <= FileIndex::MAX_BYTES);
    File { bytes, reference }.verify().unwrap();
}

#[test]
fn options_out_of_bounds_and_columns_that_break_a_rule_are_refused() {
    let column = [Column::new("x", DType::U8, vec![]).unwrap()];
    let new = |columns: &[Column], change: fn(&mut WriteOptions)| {
        let mut options = WriteOptions::default();
        change(&mut options);
        DataFileWriter::new(Vec::new(), FileId::random(), columns, options).map(drop)
    };
    new(&column, |_| ()).unwrap();
    assert!(matches!(new(&column, |options| options.block_bytes = 63), Err(Error::Limit { .. })));
    assert!(matches!(new(&column, |options| options.block_bytes = (16 << 20) + 1), Err(Error::Limit { .. })));
    assert!(matches!(new(&column, |options| options.chunk_bytes = (1 << 30) + 1), Err(Error::Limit { .. })));
    assert!(matches!(new(&[], |_| ()), Err(Error::InvalidSchema { .. })));
    assert!(matches!(new(&[column[0].clone(), column[0].clone()], |_| ()), Err(Error::InvalidSchema { .. })));
}
