//! NumPy arrays: fresh ones to fill, and ones over memory that Rust owns.
#![allow(unsafe_code)]

use std::{ffi::c_void, ptr, sync::Arc};

use forebay_format::DType;
use numpy::{
    PyArrayDescr, PyArrayDescrMethods, PyUntypedArray,
    npyffi::{PY_ARRAY_API, npy_intp},
};
use pyo3::{ffi, prelude::*, sync::PyOnceLock};

use crate::dlpack::Memory;
use crate::error::Error;

/// NumPy's flags of arrays made over given memory.
const C_CONTIGUOUS: i32 = 0x0001;
const ALIGNED: i32 = 0x0100;
const WRITEABLE: i32 = 0x0400;

/// The NumPy dtype of a column of numbers.
///
/// # Errors
/// [`Error::NoNumpyDType`] if NumPy has none, not even through `ml_dtypes`.
pub(crate) fn descr<'py>(py: Python<'py>, dtype: DType) -> PyResult<Bound<'py, PyArrayDescr>> {
    static CACHE: [PyOnceLock<Py<PyArrayDescr>>; DType::ALL.len()] = [const { PyOnceLock::new() }; DType::ALL.len()];
    let slot = DType::ALL.iter().position(|known| *known == dtype).unwrap_or_default();
    let cached = CACHE[slot].get_or_try_init(py, || {
        let named = match dtype {
            DType::BF16 => ml_dtype(py, "bfloat16")?,
            DType::F8E4M3 => ml_dtype(py, "float8_e4m3fn")?,
            DType::F8E5M2 => ml_dtype(py, "float8_e5m2")?,
            DType::Timestamp => PyArrayDescr::new(py, "datetime64[us]")?,
            DType::Utf8 | DType::Bytes | DType::Json | DType::Link => {
                return Err(Error::NoNumpyDType { dtype, hint: "" }.into());
            }
            number => PyArrayDescr::new(py, number.name())?,
        };
        Ok::<_, PyErr>(named.unbind())
    })?;
    Ok(cached.bind(py).clone())
}

fn ml_dtype<'py>(py: Python<'py>, name: &'static str) -> PyResult<Bound<'py, PyArrayDescr>> {
    let dtype = DType::ALL.into_iter().find(|dtype| dtype.name() == name).unwrap_or(DType::BF16);
    let missing = || Error::NoNumpyDType { dtype, hint: ": install ml_dtypes, or read the column with ds.pytorch()" };
    let module = py.import("ml_dtypes").map_err(|_| missing())?;
    PyArrayDescr::new(py, module.getattr(name)?)
}

/// Makes an array of `shape` with the data at `data`, or with new memory when that is null.
///
/// # Safety
/// `data` must be null, or hold an array of that shape and dtype as long as the object that becomes its base.
unsafe fn new<'py>(
    py: Python<'py>,
    descr: Bound<'py, PyArrayDescr>,
    shape: &[usize],
    data: *mut c_void,
) -> PyResult<Bound<'py, PyAny>> {
    let mut dims: Vec<npy_intp> = shape.iter().map(|length| *length as npy_intp).collect();
    let aligned = if data.addr().is_multiple_of(descr.alignment().max(1)) { ALIGNED } else { 0 };
    let flags = if data.is_null() { 0 } else { C_CONTIGUOUS | WRITEABLE | aligned };
    // SAFETY: NumPy is imported (a descriptor is at hand) and the GIL is held; the descriptor's reference is given away, as the
    // function takes it; `dims` outlives the call; null strides mean C order.
    unsafe {
        let subtype = numpy::npyffi::get_type_object(py, numpy::npyffi::NpyTypes::PyArray_Type);
        let array = PY_ARRAY_API.PyArray_NewFromDescr(
            py,
            subtype,
            descr.into_dtype_ptr(),
            dims.len() as i32,
            dims.as_mut_ptr(),
            ptr::null_mut(),
            data,
            flags,
            ptr::null_mut(),
        );
        Bound::from_owned_ptr_or_err(py, array)
    }
}

/// The memory of a new array that nobody else has seen yet.
pub(crate) struct Fresh {
    start: *mut u8,
    length: usize,
}

// SAFETY: the memory is plain bytes; its one user is whoever holds the `Fresh`.
unsafe impl Send for Fresh {}

impl Fresh {
    /// The bytes, to be written. What they hold before is arbitrary.
    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: NumPy allocated `length` bytes at `start` (checked in `uninit`); the array, which only the maker of this `Fresh`
        // holds and keeps until it is done, was not handed out, so nothing else reads or writes them. They come from a foreign
        // allocator, are bytes, for which every pattern is a value, and are written before Python sees them.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.length) }
    }
}

/// A new array of `bytes` bytes, and its memory to be written before the array is handed out.
pub(crate) fn uninit<'py>(
    py: Python<'py>,
    dtype: DType,
    shape: &[usize],
    bytes: usize,
) -> PyResult<(Bound<'py, PyAny>, Fresh)> {
    // SAFETY: null data: NumPy allocates.
    let array = unsafe { new(py, descr(py, dtype)?, shape, ptr::null_mut()) }?;
    let item = dtype.item_size().unwrap_or(0);
    if shape.iter().product::<usize>() * item != bytes {
        return Err(Error::internal("an array and its rows differ in size").into());
    }
    let start = address(&array)?;
    Ok((array, Fresh { start, length: bytes }))
}

/// The address of an array's first element.
fn address(array: &Bound<'_, PyAny>) -> PyResult<*mut u8> {
    let array = array.cast::<PyUntypedArray>()?;
    // SAFETY: the pointer is to a live array object, whose fields are read under the GIL.
    Ok(unsafe { (*numpy::PyUntypedArrayMethods::as_array_ptr(array)).data }.cast())
}

/// An array over `memory` from byte `offset` on, which it keeps alive.
///
/// # Errors
/// [`Error::Internal`] if the memory is too short.
pub(crate) fn over<'py>(
    py: Python<'py>,
    memory: Arc<Memory>,
    offset: usize,
    dtype: DType,
    shape: &[usize],
) -> PyResult<Bound<'py, PyAny>> {
    let bytes = shape.iter().try_fold(dtype.item_size().unwrap_or(1), |bytes, length| bytes.checked_mul(*length));
    if bytes.and_then(|bytes| bytes.checked_add(offset)).is_none_or(|end| end > memory.len()) {
        return Err(Error::internal("an array is larger than its memory").into());
    }
    let start = memory.start().wrapping_add(offset).cast::<c_void>();
    let base = Bound::new(py, Base { _memory: memory })?;
    // SAFETY: the memory holds that many elements (checked above) and lives as long as `base`, which becomes the array's base just
    // below; until then `base` is alive on this stack.
    unsafe {
        let array = new(py, descr(py, dtype)?, shape, start)?;
        let set = PY_ARRAY_API.PyArray_SetBaseObject(py, array.as_ptr().cast(), base.into_any().into_ptr());
        if set < 0 {
            return Err(PyErr::fetch(py));
        }
        Ok(array)
    }
}

/// A NumPy scalar of the element in the first bytes of `element`.
pub(crate) fn scalar<'py>(py: Python<'py>, dtype: DType, mut element: [u8; 8]) -> PyResult<Bound<'py, PyAny>> {
    let descr = descr(py, dtype)?;
    // SAFETY: an element has at most 8 bytes; NumPy copies it and borrows the descriptor, which is alive until after the call.
    unsafe {
        let data = element.as_mut_ptr().cast();
        let made = PY_ARRAY_API.PyArray_Scalar(py, data, descr.as_dtype_ptr(), ptr::null_mut::<ffi::PyObject>());
        Bound::from_owned_ptr_or_err(py, made)
    }
}

/// The owner of the memory that an array was made over.
#[pyclass(frozen, module = "forebay._forebay")]
struct Base {
    _memory: Arc<Memory>,
}
