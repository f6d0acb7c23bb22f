//! Rows on their way to Python, as Arrow's C stream.

use std::sync::{Mutex, PoisonError};

use arrow::{
    array::RecordBatch, datatypes::SchemaRef, error::ArrowError, ffi::FFI_ArrowSchema,
    ffi_stream::FFI_ArrowArrayStream, record_batch::RecordBatchReader,
};
use futures::{StreamExt as _, stream::BoxStream};
use pyo3::{prelude::*, types::PyCapsule};

use crate::{
    error::{Error, Result},
    wait::{TICK, check_signals},
};

type Batches = BoxStream<'static, forebay_sql::Result<RecordBatch>>;

/// Rows of a query. They stream, once.
#[pyclass(frozen, module = "forebay_sql._sql")]
pub(crate) struct Answer {
    schema: SchemaRef,
    batches: Mutex<Option<Batches>>,
}

impl Answer {
    pub(crate) fn new(answer: forebay_sql::Answer) -> Self {
        Self { schema: answer.schema, batches: Mutex::new(Some(answer.batches)) }
    }
}

#[pymethods]
impl Answer {
    /// The names of the columns.
    #[getter]
    fn columns(&self) -> Vec<String> {
        self.schema.fields().iter().map(|field| field.name().clone()).collect()
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyCapsule>> {
        let schema = FFI_ArrowSchema::try_from(self.schema.as_ref()).map_err(forebay_sql::Error::from)?;
        Ok(PyCapsule::new_with_value(py, schema, c"arrow_schema")?)
    }

    /// The stream; an answer has one. The requested schema is ignored, as Arrow's interface allows.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> Result<Bound<'py, PyCapsule>> {
        drop(requested_schema);
        let taken = self.batches.lock().unwrap_or_else(PoisonError::into_inner).take();
        let batches = taken.ok_or_else(|| Error::Argument {
            reason: "these rows were read already: run the query again".to_owned(),
        })?;
        let reader = Reader { schema: self.schema.clone(), batches };
        Ok(PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(Box::new(reader)), c"arrow_array_stream")?)
    }
}

/// Batches as Arrow's readers pull them, from any thread, with or without the GIL.
struct Reader {
    schema: SchemaRef,
    batches: Batches,
}

impl Iterator for Reader {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let runtime = match forebay_storage::runtime() {
            Ok(runtime) => runtime,
            Err(error) => return Some(Err(ArrowError::ExternalError(error.to_string().into()))),
        };
        let batch: Result<_> = runtime.block_on(async {
            loop {
                match tokio::time::timeout(TICK, self.batches.next()).await {
                    Ok(batch) => return Ok(batch),
                    Err(_elapsed) => check_signals()?,
                }
            }
        });
        match batch {
            Ok(batch) => batch.map(|batch| batch.map_err(|error| ArrowError::ExternalError(Box::new(error)))),
            Err(interrupted) => Some(Err(ArrowError::ExternalError(Box::new(interrupted)))),
        }
    }
}

impl RecordBatchReader for Reader {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}
