//! Rows of one table at one commit: read by number, handed to loaders.

use std::{
    ops::Range,
    sync::{Arc, Mutex},
};

use forebay_format::{Column, ColumnData, CommitId, DType, FieldId, OwnedValues};
use forebay_versioning::{At, Error as VersionError, Lake, Rows as Chosen, Selection, Table, Verify};
use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::{
    prelude::*,
    types::{PyBytes, PyDict, PyString},
};

use crate::{
    array,
    batch::{self, Delivered},
    error::{Error, Result},
    filter::filter,
    fork::Owned,
    link,
    schema::{self, Plain},
    session::{Place, lock},
    values::{fixed_shape, one_to_python, to_python, validity_of},
    wait::{block_on, detached},
};

/// Rows of a table at a commit; all of them, or chosen ones in an order.
#[pyclass(frozen, module = "forebay._forebay")]
pub(crate) struct Rows {
    place: Place,
    commit: CommitId,
    table: String,
    chosen: Chosen,
    length: u64,
    state: Mutex<Owned<Arc<Open>>>,
}

/// What this process has open.
pub(crate) struct Open {
    pub(crate) selection: Selection,
    columns: Vec<Plan>,
}

/// A column, and what reading a row of it needs to know.
struct Plan {
    column: Column,
    key: Py<PyString>,
    /// For rows of fixed shape: their dimensions and their bytes.
    fixed: Option<(Vec<usize>, usize)>,
}

/// Rows of a source, a fragment or what overlays it, that lie side by side.
type Piece = (usize, Range<u32>);

impl Rows {
    pub(crate) fn all(place: Place, table: Table) -> Self {
        Self::of(place, Selection::all(table))
    }

    fn of(place: Place, selection: Selection) -> Self {
        Self {
            place,
            commit: selection.table().snapshot().id(),
            table: selection.table().name().to_owned(),
            chosen: selection.rows().clone(),
            length: selection.len(),
            state: Mutex::new(Owned::new(Arc::new(Open::new(selection)))),
        }
    }

    /// What is open in this process; opened anew in a forked child.
    pub(crate) fn open(&self, py: Python<'_>) -> Result<Arc<Open>> {
        if let Some(open) = lock(&self.state).get() {
            return Ok(open.clone());
        }
        let storage = self.place.storage()?;
        let at = At::Commit(self.commit);
        let (lake, table) = block_on(py, || async {
            let (lake, snapshot) = Lake::open_at(storage, &at).await?;
            Ok::<_, VersionError>((lake, snapshot.table(&self.table).await?))
        })?;
        self.place.allow_links(&lake)?;
        let open = Arc::new(Open::new(Selection::new(table, self.chosen.clone())?));
        *lock(&self.state) = Owned::new(open.clone());
        Ok(open)
    }
}

impl Open {
    fn new(selection: Selection) -> Self {
        let plan = |column: &Column| {
            let fixed = fixed_shape(column).zip(column.dtype.item_size()).map(|(shape, item)| {
                let bytes = shape.iter().product::<usize>() * item;
                (shape, bytes)
            });
            Python::attach(|py| Plan { key: PyString::new(py, &column.name).unbind(), column: column.clone(), fixed })
        };
        let columns = selection.table().schema().columns.iter().map(plan).collect();
        Self { selection, columns }
    }

    fn plan(&self, name: &str) -> Result<&Plan> {
        match self.columns.iter().find(|plan| plan.column.name == name) {
            Some(plan) => Ok(plan),
            None => Err(self
                .selection
                .table()
                .schema()
                .column(name)
                .err()
                .map_or_else(|| Error::internal(name), Into::into)),
        }
    }

    /// Table rows of a run of this selection.
    fn run(&self, rows: Range<u64>) -> Result<Vec<u64>> {
        rows.map(|row| Ok(self.selection.row(row)?)).collect()
    }

    /// Whether `column` can be copied from mapped files; opens the files of the pieces if need be.
    fn mapped(&self, py: Python<'_>, field: FieldId, pieces: &[Piece]) -> Result<bool> {
        let table = self.selection.table();
        let mut closed = Vec::new();
        for (source, _) in pieces {
            if table.opened(*source, field)?.is_none() && closed.last() != Some(&(*source, field)) {
                closed.push((*source, field));
            }
        }
        if !closed.is_empty() {
            block_on(py, || table.open_files(closed))?;
        }
        for (fragment, _) in pieces {
            let file = table.opened(*fragment, field)?;
            let direct = file.is_some_and(|file| {
                file.map().is_some() && file.index().column(field).is_some_and(|index| index.direct().is_some())
            });
            if !direct {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Copies rows from mapped files.
    fn copy(&self, field: FieldId, row_bytes: usize, pieces: &[Piece], out: &mut [u8]) -> Result<()> {
        let mut out = out;
        for (fragment, rows) in pieces {
            let file = self.selection.table().opened(*fragment, field)?;
            let found = file.and_then(|file| Some((file, file.position(field)?)));
            let Some((file, position)) = found else { return Err(Error::internal("a file closed itself")) };
            let (part, rest) = out.split_at_mut(rows.len() * row_bytes);
            file.copy_rows(position, rows.clone(), part, Verify::First)?;
            out = rest;
        }
        Ok(())
    }

    /// Runs of rows of sources in which a column's values of these table rows lie side by side.
    fn pieces(&self, field: FieldId, rows: &[u64]) -> Result<Vec<Piece>> {
        let table = self.selection.table();
        let mut pieces: Vec<Piece> = Vec::new();
        for row in rows {
            let at = table.cell(table.locate(*row)?, field);
            match pieces.last_mut() {
                Some((fragment, run)) if *fragment == at.fragment && run.end == at.row => run.end += 1,
                _ => pieces.push((at.fragment, at.row..at.row + 1)),
            }
        }
        Ok(pieces)
    }

    /// Rows of one column: numbers of fixed shape as an array, else a list; and which rows are valid, for a nullable column of fixed
    /// shape.
    fn gather<'py>(
        &self,
        py: Python<'py>,
        plan: &Plan,
        rows: &Wanted,
    ) -> Result<(Bound<'py, PyAny>, Option<Bound<'py, PyAny>>)> {
        if let (Some((shape, row_bytes)), false) = (&plan.fixed, plan.column.nullable) {
            let pieces = match rows {
                Wanted::Run(run) => self.selection.table().pieces(plan.column.field, run.clone())?,
                Wanted::List(list) => self.pieces(plan.column.field, list)?,
            };
            if self.mapped(py, plan.column.field, &pieces)? {
                let mut dims = vec![rows.len()];
                dims.extend_from_slice(shape);
                let (made, mut fresh) = array::uninit(py, plan.column.dtype, &dims, rows.len() * row_bytes)?;
                detached(py, || self.copy(plan.column.field, *row_bytes, &pieces, fresh.as_mut_slice()))?;
                return Ok((made, None));
            }
        }
        let (table, name) = (self.selection.table(), plan.column.name.as_str());
        let data = match rows {
            Wanted::Run(run) => block_on(py, || table.read(name, run.clone()))?,
            Wanted::List(list) => block_on(py, || table.take(name, list))?,
        };
        let valid = validity_of(py, &plan.column, &data)?;
        Ok((to_python(py, &plan.column, data)?, valid))
    }

    /// Rows of one column as a loader delivers them.
    fn deliver<'py>(&self, py: Python<'py>, plan: &Plan, rows: &[u64]) -> Result<Delivered<'py>> {
        if let (Some((_, row_bytes)), false) = (&plan.fixed, plan.column.nullable) {
            let pieces = self.pieces(plan.column.field, rows)?;
            if self.mapped(py, plan.column.field, &pieces)? {
                let bytes = detached(py, || {
                    let mut bytes = vec![0; rows.len() * row_bytes];
                    self.copy(plan.column.field, *row_bytes, &pieces, &mut bytes)?;
                    Ok(bytes)
                })?;
                let data = ColumnData { rows: rows.len(), values: OwnedValues::Fixed(bytes), validity: None };
                return batch::of_rows(py, data, &plan.column);
            }
        }
        let table = self.selection.table();
        if plan.column.dtype == DType::Link {
            let (column, data) = link::delivered(py, table, &plan.column, rows)?;
            return batch::of_rows(py, data, &column);
        }
        let data = block_on(py, || table.take(&plan.column.name, rows))?;
        batch::of_rows(py, data, &plan.column)
    }

    /// One row of one column.
    fn one<'py>(&self, py: Python<'py>, plan: &Plan, row: u64) -> Result<Bound<'py, PyAny>> {
        let table = self.selection.table();
        if let (Some((shape, row_bytes)), false) = (&plan.fixed, plan.column.nullable) {
            let at = table.cell(table.locate(row)?, plan.column.field);
            let pieces = [(at.fragment, at.row..at.row + 1)];
            if self.mapped(py, plan.column.field, &pieces)? {
                if shape.is_empty() {
                    let mut element = [0; 8];
                    self.copy(plan.column.field, *row_bytes, &pieces, &mut element[..*row_bytes])?;
                    return Ok(array::scalar(py, plan.column.dtype, element)?);
                }
                let (made, mut fresh) = array::uninit(py, plan.column.dtype, shape, *row_bytes)?;
                detached(py, || self.copy(plan.column.field, *row_bytes, &pieces, fresh.as_mut_slice()))?;
                return Ok(made);
            }
        }
        let rows = [row];
        let data = block_on(py, || table.take(&plan.column.name, &rows))?;
        one_to_python(py, &plan.column, data)
    }
}

/// Rows of a table to be read.
enum Wanted {
    Run(Range<u64>),
    List(Vec<u64>),
}

impl Wanted {
    fn len(&self) -> usize {
        match self {
            Self::Run(run) => (run.end - run.start) as usize,
            Self::List(list) => list.len(),
        }
    }
}

#[pymethods]
impl Rows {
    fn __len__(&self) -> usize {
        self.length as usize
    }

    /// The columns in plain types.
    fn schema(&self, py: Python<'_>) -> Result<Vec<Plain>> {
        schema::to_plain(self.open(py)?.selection.table().schema())
    }

    /// Name of the table.
    #[getter]
    fn table(&self) -> &str {
        &self.table
    }

    /// The commit.
    #[getter]
    fn commit_id(&self) -> String {
        self.commit.to_string()
    }

    /// URL of the lake.
    #[getter]
    fn url(&self) -> &str {
        &self.place.url
    }

    /// How the lake's storage is reached.
    #[getter]
    fn access(&self) -> crate::access::Access {
        self.place.access.clone()
    }

    /// Digest of what is selected: equal on two machines exactly when commit, table and rows are.
    fn digest(&self, py: Python<'_>) -> Result<String> {
        Ok(self.open(py)?.selection.digest().iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// One row, which may be counted from the end, as a dict.
    fn row<'py>(&self, py: Python<'py>, row: i64) -> Result<Bound<'py, PyDict>> {
        let open = self.open(py)?;
        let row = open.selection.row(self.number(row)?)?;
        let result = PyDict::new(py);
        for plan in &open.columns {
            result.set_item(&plan.key, open.one(py, plan, row)?)?;
        }
        Ok(result)
    }

    /// One value, of a row which may be counted from the end.
    fn value<'py>(&self, py: Python<'py>, column: &str, row: i64) -> Result<Bound<'py, PyAny>> {
        let open = self.open(py)?;
        let row = open.selection.row(self.number(row)?)?;
        open.one(py, open.plan(column)?, row)
    }

    /// A run of rows of a column, and which are valid (for a nullable column of fixed shape).
    fn read<'py>(
        &self,
        py: Python<'py>,
        column: &str,
        start: u64,
        stop: u64,
    ) -> Result<(Bound<'py, PyAny>, Option<Bound<'py, PyAny>>)> {
        let open = self.open(py)?;
        let wanted = match &self.chosen {
            Chosen::All => Wanted::Run(start..stop.max(start)),
            _ => Wanted::List(open.run(start..stop.max(start))?),
        };
        open.gather(py, open.plan(column)?, &wanted)
    }

    /// Rows of a column in the order given, and which are valid (for a nullable column of fixed shape).
    fn take<'py>(
        &self,
        py: Python<'py>,
        column: &str,
        rows: PyReadonlyArray1<'py, i64>,
    ) -> Result<(Bound<'py, PyAny>, Option<Bound<'py, PyAny>>)> {
        let open = self.open(py)?;
        let list = self.numbers(&open, &rows)?;
        open.gather(py, open.plan(column)?, &Wanted::List(list))
    }

    /// What the links of a column lead to, as bytes, in the order given; None for nulls.
    fn fetch<'py>(
        &self,
        py: Python<'py>,
        column: &str,
        rows: PyReadonlyArray1<'py, i64>,
    ) -> Result<Vec<Option<Bound<'py, PyBytes>>>> {
        let open = self.open(py)?;
        let list = self.numbers(&open, &rows)?;
        let read = link::fetch(py, open.selection.table(), column, &list)?;
        Ok(read.into_iter().map(|bytes| bytes.map(|bytes| PyBytes::new(py, &bytes))).collect())
    }

    /// Rows of some columns in the order given, as a loader's batch.
    fn batch<'py>(
        &self,
        py: Python<'py>,
        columns: Vec<String>,
        rows: PyReadonlyArray1<'py, i64>,
    ) -> Result<Vec<Delivered<'py>>> {
        let open = self.open(py)?;
        let list = self.numbers(&open, &rows)?;
        columns.iter().map(|name| open.deliver(py, open.plan(name)?, &list)).collect()
    }

    /// Some of these rows, in the order given.
    fn select(&self, py: Python<'_>, rows: PyReadonlyArray1<'_, i64>) -> Result<Self> {
        let open = self.open(py)?;
        let list = self.numbers(&open, &rows)?;
        let selection = Selection::new(open.selection.table().clone(), chosen(list))?;
        Ok(Self::of(self.place.clone(), selection))
    }

    /// Whether these are all rows of the table.
    #[getter]
    fn whole(&self) -> bool {
        self.chosen == Chosen::All
    }

    /// The rows of the whole table for which `ask` says true, given the values of some columns, a batch of rows at a time.
    fn filter(&self, py: Python<'_>, columns: Vec<String>, ask: Py<PyAny>) -> Result<Self> {
        let open = self.open(py)?;
        let selection = filter(py, open.selection.table(), &columns, &ask)?;
        Ok(Self::of(self.place.clone(), selection))
    }

    /// The table's row numbers of these rows, int64; None for all rows.
    fn numbers_or_none<'py>(&self, py: Python<'py>) -> Result<Option<Bound<'py, PyArray1<i64>>>> {
        if self.chosen == Chosen::All {
            return Ok(None);
        }
        let rows = self.open(py)?.run(0..self.length)?;
        Ok(Some(PyArray1::from_iter(py, rows.into_iter().map(|row| row as i64))))
    }
}

impl Rows {
    fn number(&self, row: i64) -> Result<u64> {
        let counted = if row < 0 { row.checked_add_unsigned(self.length) } else { Some(row) };
        counted.and_then(|row| u64::try_from(row).ok()).filter(|row| *row < self.length).ok_or_else(|| {
            let message = format!("row {row} is out of range for {} rows", self.length);
            Error::Python(pyo3::exceptions::PyIndexError::new_err(message))
        })
    }

    fn numbers(&self, open: &Open, rows: &PyReadonlyArray1<'_, i64>) -> Result<Vec<u64>> {
        rows.as_array().iter().map(|row| Ok(open.selection.row(self.number(*row)?)?)).collect()
    }
}

/// Ascending rows as runs, which hash and store small; others as a list.
fn chosen(rows: Vec<u64>) -> Chosen {
    if !rows.is_sorted_by(|left, right| left < right) {
        return Chosen::List(rows.into());
    }
    let mut runs: Vec<Range<u64>> = Vec::new();
    for row in rows {
        match runs.last_mut() {
            Some(run) if run.end == row => run.end += 1,
            _ => runs.push(row..row + 1),
        }
    }
    Chosen::Runs(runs.into())
}
