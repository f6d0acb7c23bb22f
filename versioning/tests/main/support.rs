//! A small table and ways to fill and read it.

use forebay_format::{
    Codec, Column, ColumnData, ColumnSlice, Compression, DType, Dim, OwnedValues, Schema, WriteOptions,
};
use forebay_storage::{Options, Storage};
use forebay_versioning::{At, Lake, Result, Snapshot, Table, Transaction};

/// One row as the tests see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub id: i64,
    pub text: Option<String>,
    pub pixels: [u8; 6],
    /// A ragged row: `[n, 2]` of u16.
    pub points: Vec<[u16; 2]>,
}

impl Row {
    /// The row that a number stands for.
    pub fn of(id: i64) -> Self {
        let text = (id % 3 != 0).then(|| format!("row {id} {}", "é".repeat((id % 5) as usize)));
        let points = (0..id % 4).map(|i| [id as u16, i as u16]).collect();
        Self { id, text, pixels: std::array::from_fn(|i| (id as u8).wrapping_mul(3).wrapping_add(i as u8)), points }
    }
}

pub fn rows(ids: impl IntoIterator<Item = i64>) -> Vec<Row> {
    ids.into_iter().map(Row::of).collect()
}

pub fn schema() -> Schema {
    let mut text = Column::new("text", DType::Utf8, []).unwrap();
    text.nullable = true;
    let mut points = Column::new("points", DType::U16, [Dim::Free, Dim::Fixed(2)]).unwrap();
    points.compression = Compression { codec: Codec::Lz4, shuffle: true };
    Schema::new(vec![
        Column::new("id", DType::I64, []).unwrap(),
        text,
        Column::new("pixels", DType::U8, [Dim::Fixed(2), Dim::Fixed(3)]).unwrap(),
        points,
    ])
    .unwrap()
}

/// Rows as columns of [`schema`].
pub fn columns(rows: &[Row]) -> Vec<ColumnData> {
    let mut validity = vec![0_u8; rows.len().div_ceil(8)];
    let (mut text, mut text_offsets) = (Vec::new(), vec![0_u64]);
    let (mut points, mut point_offsets, mut shapes) = (Vec::new(), vec![0_u64], Vec::new());
    for (index, row) in rows.iter().enumerate() {
        if let Some(value) = &row.text {
            validity[index / 8] |= 1 << (index % 8);
            text.extend_from_slice(value.as_bytes());
        }
        text_offsets.push(text.len() as u64);
        points.extend(row.points.iter().flatten().flat_map(|value| value.to_le_bytes()));
        point_offsets.push(points.len() as u64);
        shapes.extend([row.points.len() as u32, 2]);
    }
    let column = |values, validity| ColumnData { rows: rows.len(), values, validity };
    vec![
        column(OwnedValues::Fixed(rows.iter().flat_map(|row| row.id.to_le_bytes()).collect()), None),
        column(OwnedValues::Ragged { offsets: text_offsets, shapes: vec![], bytes: text }, Some(validity)),
        column(OwnedValues::Fixed(rows.iter().flat_map(|row| row.pixels).collect()), None),
        column(OwnedValues::Ragged { offsets: point_offsets, shapes, bytes: points }, None),
    ]
}

/// Small chunks and blocks, so that small tables have many.
pub fn small() -> WriteOptions {
    WriteOptions { chunk_bytes: 256, block_bytes: 64, buffer_bytes: 4096 }
}

pub fn temporary() -> (tempfile::TempDir, Storage) {
    let folder = tempfile::tempdir().unwrap();
    let storage = Storage::open(folder.path().to_str().unwrap(), &Options::default()).unwrap();
    (folder, storage)
}

pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    forebay_storage::runtime().unwrap().block_on(future)
}

/// Writes rows for table `main` of a transaction.
pub async fn write(transaction: &mut Transaction, rows: &[Row]) -> Result<()> {
    let mut writer = transaction.writer("main").await?.with_options(small()).with_file_bytes(16 << 10);
    let columns = columns(rows);
    let written = tokio::task::spawn_blocking(move || {
        let slices: Vec<ColumnSlice<'_>> = columns.iter().map(ColumnData::as_slice).collect();
        writer.push(&slices)?;
        writer.finish()
    })
    .await
    .unwrap()?;
    transaction.append(written);
    Ok(())
}

/// A lake with table `main` and one commit of rows a range.
pub async fn lake(storage: Storage, commits: &[std::ops::Range<i64>]) -> Result<Lake> {
    let lake = Lake::create(storage).await?;
    let mut transaction = lake.begin("main").await?;
    transaction.create_table("main", schema())?;
    transaction.commit("create table", "tester").await?;
    for ids in commits {
        append(&lake, "main", ids.clone()).await?;
    }
    Ok(lake)
}

pub async fn append(lake: &Lake, branch: &str, ids: std::ops::Range<i64>) -> Result<Snapshot> {
    let mut transaction = lake.begin(branch).await?;
    write(&mut transaction, &rows(ids.clone())).await?;
    transaction.commit(&format!("rows {ids:?}"), "tester").await
}

/// Every row of table `main` at a version.
pub async fn all(lake: &Lake, at: &At) -> Result<Vec<Row>> {
    let table = lake.snapshot(at).await?.table("main").await?;
    read(&table, 0..table.rows()).await
}

pub async fn read(table: &Table, range: std::ops::Range<u64>) -> Result<Vec<Row>> {
    let mut columns = Vec::new();
    for name in ["id", "text", "pixels", "points"] {
        columns.push(table.read(name, range.clone()).await?);
    }
    Ok(parse(&columns))
}

/// Columns as rows.
pub fn parse(columns: &[ColumnData]) -> Vec<Row> {
    let fixed = |column: usize| match &columns[column].values {
        OwnedValues::Fixed(bytes) => bytes.as_slice(),
        OwnedValues::Ragged { .. } => panic!("column {column} is ragged"),
    };
    let ragged = |column: usize, row: usize| match &columns[column].values {
        OwnedValues::Ragged { offsets, bytes, .. } => &bytes[offsets[row] as usize..offsets[row + 1] as usize],
        OwnedValues::Fixed(_) => panic!("column {column} is fixed"),
    };
    (0..columns[0].rows)
        .map(|row| {
            let valid = columns[1].validity.as_ref().is_none_or(|bits| bits[row / 8] >> (row % 8) & 1 == 1);
            let points = ragged(3, row).chunks_exact(4);
            Row {
                id: i64::from_le_bytes(fixed(0)[row * 8..][..8].try_into().unwrap()),
                text: valid.then(|| String::from_utf8(ragged(1, row).to_vec()).unwrap()),
                pixels: fixed(2)[row * 6..][..6].try_into().unwrap(),
                points: points.map(|p| [u16::from_le_bytes([p[0], p[1]]), u16::from_le_bytes([p[2], p[3]])]).collect(),
            }
        })
        .collect()
}
