//! A table with columns of several layouts.

use std::sync::Arc;

use forebay_format::{Bitmap, Column, ColumnSlice, DType, Dim, OwnedValues, Schema, Values, WriteOptions};
use forebay_query::NamedColumn;
use forebay_storage::{Options, Storage, testing::FaultStore};
use forebay_versioning::{At, Lake, Table};

/// A row: a number, a name, and a number that may be null. The table has a large tensor beside them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    pub(crate) number: i64,
    pub(crate) name: String,
    pub(crate) score: Option<i64>,
}

/// Values of the large tensor of each row.
pub(crate) const PIXELS: usize = 2_000;

/// Makes a table of these fragments in memory, behind a store that counts requests.
pub(crate) async fn table(fragments: &[Vec<Row>]) -> (Table, Arc<FaultStore>) {
    let url = format!("memory://query-{}", forebay_format::CommitId::random());
    let inner = Storage::open(&url, &Options::new()).unwrap();
    let store = Arc::new(FaultStore::new(inner.store().unwrap(), 1));
    let lake = Lake::create(Storage::from_store(store.clone(), url)).await.unwrap();
    let mut score = Column::new("score", DType::I64, []).unwrap();
    score.nullable = true;
    let columns = vec![
        Column::new("number", DType::I64, []).unwrap(),
        Column::new("name", DType::Utf8, []).unwrap(),
        Column::new("pixels", DType::U8, [Dim::Fixed(PIXELS as u32)]).unwrap(),
        score,
    ];
    let mut transaction = lake.begin("main").await.unwrap();
    transaction.create_table("main", Schema::new(columns).unwrap()).unwrap();
    let small = WriteOptions { chunk_bytes: 8 << 10, block_bytes: 1 << 10, ..WriteOptions::default() };
    for rows in fragments {
        let mut writer = transaction.writer("main").await.unwrap().with_options(small);
        push(&mut writer, rows);
        transaction.append(writer.finish().unwrap());
    }
    let snapshot = transaction.commit("rows", "test").await.unwrap();
    let lake = Lake::open(lake.storage().clone()).await.unwrap();
    let table = lake.snapshot(&At::Commit(snapshot.id())).await.unwrap().table("main").await.unwrap();
    (table, store)
}

fn push(writer: &mut forebay_versioning::TableWriter, rows: &[Row]) {
    let bytes = |value: i64| value.to_le_bytes();
    let numbers: Vec<u8> = rows.iter().flat_map(|row| bytes(row.number)).collect();
    let scores: Vec<u8> = rows.iter().flat_map(|row| bytes(row.score.unwrap_or(0))).collect();
    let names: String = rows.iter().map(|row| row.name.as_str()).collect();
    let ends = rows.iter().scan(0, |end, row| {
        *end += row.name.len() as u64;
        Some(*end)
    });
    let offsets: Vec<u64> = [0].into_iter().chain(ends).collect();
    let mut valid = vec![0_u8; rows.len().div_ceil(8)];
    for (at, _) in rows.iter().enumerate().filter(|(_, row)| row.score.is_some()) {
        valid[at / 8] |= 1 << (at % 8);
    }
    let pixels = vec![7; rows.len() * PIXELS];
    let whole = |values| ColumnSlice { rows: rows.len(), values, validity: None };
    writer
        .push(&[
            whole(Values::Fixed(&numbers)),
            whole(Values::Ragged { offsets: &offsets, shapes: &[], bytes: names.as_bytes() }),
            whole(Values::Fixed(&pixels)),
            ColumnSlice { validity: Some(Bitmap(&valid)), ..whole(Values::Fixed(&scores)) },
        ])
        .unwrap();
}

/// The numbers of a batch's column.
pub(crate) fn numbers(column: &NamedColumn<'_>) -> Vec<Option<i64>> {
    let OwnedValues::Fixed(bytes) = &column.data.values else { panic!("numbers are of fixed size") };
    let valid = |row| column.data.validity.as_deref().is_none_or(|bits| Bitmap(bits).get(row));
    let number = |(row, bytes): (usize, &[u8])| valid(row).then(|| i64::from_le_bytes(bytes.try_into().unwrap()));
    bytes.chunks_exact(8).enumerate().map(number).collect()
}

/// The texts of a batch's column.
pub(crate) fn texts(column: &NamedColumn<'_>) -> Vec<String> {
    let OwnedValues::Ragged { offsets, bytes, .. } = &column.data.values else { panic!("texts are ragged") };
    let text = |ends: &[u64]| String::from_utf8(bytes[ends[0] as usize..ends[1] as usize].to_vec()).unwrap();
    offsets.windows(2).map(text).collect()
}
