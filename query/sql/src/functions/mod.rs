//! Functions that lakes need beside those of DataFusion.

mod chance;
mod json;
mod tensor;
pub(crate) mod vector;

use std::{
    fmt,
    hash::{Hash, Hasher},
    sync::Arc,
};

pub(crate) use vector::Metric;

use arrow::{
    array::ArrayRef,
    datatypes::{DataType, FieldRef},
};
use datafusion::{
    common::{DataFusionError, Result as DfResult},
    logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature},
    prelude::SessionContext,
};

/// Makes all of them known.
pub(crate) fn register(context: &SessionContext) {
    let all = [chance::functions(), json::functions(), tensor::functions(), vector::functions()];
    for function in all.into_iter().flatten() {
        context.register_udf(ScalarUDF::from(function));
    }
}

/// What a function computes: from its arguments, their fields and the number of rows.
type Call = dyn Fn(&[ColumnarValue], &[FieldRef], usize) -> DfResult<ColumnarValue> + Send + Sync;

/// A function of rows.
pub(crate) struct Scalar {
    name: String,
    signature: Signature,
    returns: DataType,
    call: Box<Call>,
    /// What a distance to a vector that was handed in is of: an index may know which rows are near.
    pub(crate) near: Option<(Metric, Arc<[f32]>)>,
}

impl Scalar {
    pub(crate) fn new(
        name: impl Into<String>,
        signature: Signature,
        returns: DataType,
        call: impl Fn(&[ColumnarValue], &[FieldRef], usize) -> DfResult<ColumnarValue> + Send + Sync + 'static,
    ) -> Self {
        Self { name: name.into(), signature, returns, call: Box::new(call), near: None }
    }
}

impl fmt::Debug for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Scalar").field(&self.name).finish()
    }
}

impl PartialEq for Scalar {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Scalar {}

impl Hash for Scalar {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl ScalarUDFImpl for Scalar {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DfResult<DataType> {
        Ok(self.returns.clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        (self.call)(&args.args, &args.arg_fields, args.number_rows)
    }
}

/// An argument as an array of `rows` rows.
fn array(argument: &ColumnarValue, rows: usize) -> DfResult<ArrayRef> {
    argument.to_array(rows)
}

/// A result: one value if every argument was one.
fn result(arguments: &[ColumnarValue], array: ArrayRef) -> DfResult<ColumnarValue> {
    let constant = arguments.iter().all(|argument| matches!(argument, ColumnarValue::Scalar(_)));
    if constant && array.len() == 1 {
        return Ok(ColumnarValue::Scalar(datafusion::common::ScalarValue::try_from_array(&array, 0)?));
    }
    Ok(ColumnarValue::Array(array))
}

/// How many rows must be computed: one if every argument is one value.
fn rows_of(arguments: &[ColumnarValue], rows: usize) -> usize {
    if arguments.iter().all(|argument| matches!(argument, ColumnarValue::Scalar(_))) { 1 } else { rows }
}

fn failed(message: String) -> DataFusionError {
    DataFusionError::Execution(message)
}

fn shared(array: impl arrow::array::Array + 'static) -> ArrayRef {
    Arc::new(array)
}
