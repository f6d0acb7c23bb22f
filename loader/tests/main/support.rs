//! Random tables, a plain model of their rows, and ways to compare batches with it.

use std::sync::Arc;

use forebay_format::{
    Bitmap, Codec, Column, ColumnData, ColumnSlice, Compression, DType, Dim, Layout, OwnedValues, Schema, Values,
    WriteOptions,
};
use forebay_loader::{Batch, BatchValues, Device, HostDevice, Loader, LoaderOptions};
use forebay_storage::{Options, Storage};
use forebay_versioning::{At, Lake, Selection, Table};
use rand::{Rng as _, RngExt as _, SeedableRng as _, rngs::StdRng};

/// One value of the model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    pub bytes: Vec<u8>,
    pub shape: Vec<u32>,
    pub valid: bool,
}

/// A table as lists.
#[derive(Clone, Debug)]
pub struct Model {
    pub columns: Vec<Column>,
    /// By column, then row.
    pub cells: Vec<Vec<Cell>>,
}

pub fn column(name: &str, dtype: DType, shape: &[Dim]) -> Column {
    Column::new(name, dtype, shape.to_vec()).unwrap()
}

/// Columns of every kind: fixed and ragged, text, null, compressed, large and empty rows.
pub fn columns() -> Vec<Column> {
    let fixed = |lengths: &[u32]| lengths.iter().copied().map(Dim::Fixed).collect::<Vec<_>>();
    let coded = |mut column: Column, codec, shuffle| {
        column.compression = Compression { codec, shuffle };
        column
    };
    let nullable = |mut column: Column| {
        column.nullable = true;
        column
    };
    vec![
        column("id", DType::I64, &[]),
        column("image", DType::U8, &fixed(&[3, 5, 4])),
        column("large", DType::F32, &fixed(&[70])),
        column("nothing", DType::F64, &fixed(&[0, 3])),
        coded(column("packed", DType::I32, &fixed(&[6])), Codec::Lz4, true),
        coded(column("packed_large", DType::U16, &fixed(&[90])), Codec::Zstd { level: 3 }, false),
        nullable(column("maybe", DType::F64, &[])),
        nullable(column("text", DType::Utf8, &[])),
        coded(column("blob", DType::Bytes, &[]), Codec::Lz4, false),
        column("points", DType::U16, &[Dim::Free, Dim::Fixed(2)]),
        nullable(coded(column("matrix", DType::F32, &[Dim::Free, Dim::Free]), Codec::Zstd { level: 1 }, true)),
    ]
}

impl Model {
    pub fn random(columns: Vec<Column>, rows: usize, seed: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let cells = columns.iter().map(|column| (0..rows).map(|row| cell(column, row, &mut random)).collect());
        Self { cells: cells.collect(), columns }
    }

    pub fn rows(&self) -> usize {
        self.cells[0].len()
    }

    /// Writes the rows in `commits` of about the same size, in files of many small chunks and blocks.
    pub fn write(&self, storage: Storage, commits: usize) -> Lake {
        let lake = block_on(Lake::create(storage)).unwrap();
        let mut transaction = block_on(lake.begin("main")).unwrap();
        transaction.create_table("main", Schema::new(self.columns.clone()).unwrap()).unwrap();
        block_on(transaction.commit("create", "test")).unwrap();
        let step = self.rows().div_ceil(commits).max(1);
        for start in (0..self.rows()).step_by(step) {
            let transaction = block_on(lake.begin("main")).unwrap();
            self.append(transaction, start, (start + step).min(self.rows()));
        }
        lake
    }

    fn append(&self, mut transaction: forebay_versioning::Transaction, start: usize, end: usize) {
        let options = WriteOptions { chunk_bytes: 700, block_bytes: 128, buffer_bytes: 8192 };
        let writer = block_on(transaction.writer("main")).unwrap();
        let mut writer = writer.with_options(options).with_file_bytes(20 << 10);
        let owned: Vec<Owned> = self
            .columns
            .iter()
            .zip(&self.cells)
            .map(|(column, cells)| Owned::new(column, &cells[start..end]))
            .collect();
        let slices: Vec<_> = owned.iter().map(Owned::slice).collect();
        writer.push(&slices).unwrap();
        transaction.append(writer.finish().unwrap());
        block_on(transaction.commit("rows", "test")).unwrap();
    }

    /// Deletes some rows, updates some cells, and adds a column, in a commit each.
    pub fn edit(&mut self, lake: &Lake, seed: u64) {
        let mut random = StdRng::seed_from_u64(seed);
        let begin = || {
            let transaction = block_on(lake.begin("main")).unwrap();
            let table = block_on(transaction.base().table("main")).unwrap();
            (transaction, table)
        };
        let commit = |transaction: forebay_versioning::Transaction| {
            block_on(transaction.commit("edit", "test")).unwrap();
        };
        let some = |rows: usize, random: &mut StdRng| -> Vec<usize> {
            (0..rows).filter(|row| *row == 0 || random.random_range(0..4) == 0).collect()
        };
        let select = |table: &Table, rows: &[usize]| {
            let rows = rows.iter().map(|row| *row as u64).collect();
            Selection::new(table.clone(), forebay_versioning::Rows::List(rows)).unwrap()
        };
        for _ in 0..2 {
            let (mut transaction, table) = begin();
            let rows = some(self.rows(), &mut random);
            for number in 1..self.columns.len() {
                let column = &self.columns[number];
                let new: Vec<Cell> = rows.iter().map(|row| cell(column, *row, &mut random)).collect();
                let owned = Owned::new(column, &new);
                let values = [(column.name.as_str(), owned.slice())];
                block_on(transaction.update(&select(&table, &rows), &values)).unwrap();
                for (row, cell) in rows.iter().zip(new) {
                    self.cells[number][*row] = cell;
                }
            }
            commit(transaction);
        }
        if self.rows() > 1 {
            let (mut transaction, table) = begin();
            let rows = some(self.rows() - 1, &mut random);
            transaction.delete(&select(&table, &rows)).unwrap();
            commit(transaction);
            for cells in &mut self.cells {
                let mut row = 0;
                cells.retain(|_| {
                    row += 1;
                    rows.binary_search(&(row - 1)).is_err()
                });
            }
        }
        for (name, dtype) in [("later", DType::F32), ("later_text", DType::Utf8)] {
            let (mut transaction, table) = begin();
            let column = Column::new(name, dtype, []).unwrap();
            let value = Cell { bytes: b"four".to_vec(), shape: Vec::new(), valid: true };
            let values = if dtype == DType::Utf8 {
                OwnedValues::Ragged { offsets: vec![0, 4], shapes: Vec::new(), bytes: value.bytes.clone() }
            } else {
                OwnedValues::Fixed(value.bytes.clone())
            };
            let default = ColumnData { rows: 1, values, validity: None };
            block_on(transaction.add_column(&table, column.clone(), Some(&default))).unwrap();
            commit(transaction);
            self.cells.push(vec![value; self.rows()]);
            self.columns.push(column);
        }
    }

    /// Asserts that a batch holds the rows that it says.
    pub fn assert_batch(&self, batch: &Batch) {
        self.assert_some(batch, |_| true);
    }

    /// Asserts that a batch holds the rows that it says, at these places.
    pub fn assert_some(&self, batch: &Batch, wanted: impl Fn(usize) -> bool) {
        for column in &batch.columns {
            let number = self.columns.iter().position(|known| known.name == *column.name).unwrap();
            assert_eq!(column.dtype, self.columns[number].dtype);
            let found = cells(column, batch.rows.len());
            for (place, (row, found)) in batch.rows.iter().zip(found).enumerate() {
                if !wanted(place) {
                    continue;
                }
                if batch.mask.as_ref().is_some_and(|mask| !mask[place]) {
                    assert!(found.bytes.iter().all(|byte| *byte == 0), "a masked row is zeros");
                    assert_eq!(found.valid, !self.columns[number].nullable);
                    continue;
                }
                let expected = &self.cells[number][*row as usize];
                assert_eq!(&found, expected, "row {row} of column '{}'", column.name);
            }
        }
    }
}

fn cell(column: &Column, row: usize, random: &mut StdRng) -> Cell {
    let valid = !column.nullable || random.random_range(0..4) > 0;
    let shape: Vec<u32> = column
        .shape
        .iter()
        .map(|dim| match dim {
            Dim::Fixed(length) => *length,
            Dim::Free => {
                if valid {
                    random.random_range(0..5) * random.random_range(0..3)
                } else {
                    0
                }
            }
        })
        .collect();
    let length = match column.dtype.item_size() {
        Some(item) => shape.iter().map(|length| *length as usize).product::<usize>() * item,
        // Some rows are longer than a block.
        None => random.random_range(0..20) * if random.random_range(0..8) == 0 { 40 } else { 1 },
    };
    let mut bytes = vec![0; length];
    if column.name == "id" {
        bytes.copy_from_slice(&(row as i64).to_le_bytes());
    } else if column.dtype == DType::Utf8 {
        bytes.iter_mut().for_each(|byte| *byte = random.random_range(b'a'..=b'z'));
    } else {
        random.fill_bytes(&mut bytes);
    }
    let ragged = matches!(column.layout(), Layout::Ragged { .. });
    if !valid {
        bytes = vec![0; if ragged { 0 } else { length }];
    }
    let shape = if ragged && column.dtype.item_size().is_some() { shape } else { Vec::new() };
    Cell { bytes, shape, valid }
}

/// Cells of a column as a writer takes them.
struct Owned {
    rows: usize,
    ragged: bool,
    offsets: Vec<u64>,
    shapes: Vec<u32>,
    bytes: Vec<u8>,
    validity: Option<Vec<u8>>,
}

impl Owned {
    fn new(column: &Column, cells: &[Cell]) -> Self {
        let mut offsets = vec![0];
        let mut validity = vec![0; cells.len().div_ceil(8)];
        for (row, cell) in cells.iter().enumerate() {
            offsets.push(offsets[row] + cell.bytes.len() as u64);
            validity[row / 8] |= u8::from(cell.valid) << (row % 8);
        }
        Self {
            rows: cells.len(),
            ragged: matches!(column.layout(), Layout::Ragged { .. }),
            offsets,
            shapes: cells.iter().flat_map(|cell| cell.shape.clone()).collect(),
            bytes: cells.iter().flat_map(|cell| cell.bytes.clone()).collect(),
            validity: column.nullable.then_some(validity),
        }
    }

    fn slice(&self) -> ColumnSlice<'_> {
        let values = if self.ragged {
            Values::Ragged { offsets: &self.offsets, shapes: &self.shapes, bytes: &self.bytes }
        } else {
            Values::Fixed(&self.bytes)
        };
        ColumnSlice { rows: self.rows, values, validity: self.validity.as_deref().map(Bitmap) }
    }
}

/// The cells of a column of a batch of `rows` rows.
fn cells(column: &forebay_loader::BatchColumn, rows: usize) -> Vec<Cell> {
    let valid = |row: usize| match &column.validity {
        None => true,
        Some(validity) => {
            let validity = validity.host().unwrap();
            assert_eq!(validity.len(), rows);
            validity[row] == 1
        }
    };
    match &column.values {
        BatchValues::Fixed { shape, buffer } => {
            let (buffer, item) = (buffer.host().unwrap(), column.dtype.item_size().unwrap());
            assert_eq!(shape[0], rows);
            assert_eq!(buffer.len(), shape.iter().product::<usize>() * item);
            assert_eq!(buffer.as_ptr() as usize % forebay_loader::ALIGNMENT, 0);
            let row = buffer.len() / rows;
            let cell = |index: usize| Cell {
                bytes: buffer[index * row..][..row].to_vec(),
                shape: vec![],
                valid: valid(index),
            };
            (0..rows).map(cell).collect()
        }
        BatchValues::Ragged { offsets, shapes, bytes } => {
            let offsets: Vec<usize> = offsets
                .host()
                .unwrap()
                .chunks_exact(8)
                .map(|offset| usize::try_from(i64::from_le_bytes(offset.try_into().unwrap())).unwrap())
                .collect();
            assert_eq!((offsets.len(), offsets[0], offsets[rows]), (rows + 1, 0, bytes.len()));
            let (bytes, rank) = (bytes.host().unwrap(), shapes.len() / rows);
            assert_eq!(shapes.len(), rank * rows);
            let cell = |row: usize| Cell {
                bytes: bytes[offsets[row]..offsets[row + 1]].to_vec(),
                shape: shapes[row * rank..(row + 1) * rank].to_vec(),
                valid: valid(row),
            };
            (0..rows).map(cell).collect()
        }
    }
}

pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    forebay_storage::runtime().unwrap().block_on(future)
}

pub fn folder() -> (tempfile::TempDir, Storage) {
    let folder = tempfile::tempdir().unwrap();
    let storage = Storage::open(folder.path().to_str().unwrap(), &Options::default()).unwrap();
    (folder, storage)
}

/// A store in memory: never mapped.
pub fn memory() -> Storage {
    Storage::from_store(Arc::new(forebay_storage::object_store::memory::InMemory::new()), "memory://test")
}

/// Table `main`, with no file open yet.
pub fn table(storage: Storage) -> Table {
    let lake = block_on(Lake::open(storage)).unwrap();
    block_on(async { lake.snapshot(&At::Branch("main".into())).await.unwrap().table("main").await.unwrap() })
}

pub fn host(threads: usize) -> Arc<dyn Device> {
    HostDevice::new(threads).unwrap()
}

pub fn loader(table: &Table, options: LoaderOptions) -> Loader {
    Loader::new(Selection::all(table.clone()), options, host(2)).unwrap()
}
