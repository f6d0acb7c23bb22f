//! Tensors handed to Python without a copy: the DLPack protocol over memory that Rust owns.
//!
//! The layout is that of DLPack 1.1 (`dlpack.h` of the dmlc project). A capsule owns a boxed managed tensor whose context keeps the
//! memory alive. Its deleter only drops that box: no Python object is in it, so any thread may call it without the GIL.
#![allow(unsafe_code)]

use std::{
    any::Any,
    ffi::{CStr, c_void},
    ops::Range,
    ptr::NonNull,
    sync::Arc,
};

use forebay_format::DType;
use forebay_gpu::DeviceBuffer;
use pyo3::{
    exceptions::{PyBufferError, PyTypeError},
    ffi,
    prelude::*,
};

const UNVERSIONED: &CStr = c"dltensor";
const VERSIONED: &CStr = c"dltensor_versioned";
/// The device type of main memory.
const CPU: i32 = 1;
/// The device type of a CUDA device's memory.
const CUDA: i32 = 2;
/// The flag of a tensor that was copied for the consumer.
const FLAG_IS_COPIED: u64 = 2;

#[repr(C)]
#[derive(Clone, Copy)]
struct DlDevice {
    device_type: i32,
    device_id: i32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct DlDataType {
    code: u8,
    bits: u8,
    lanes: u16,
}

#[repr(C)]
struct DlTensor {
    data: *mut c_void,
    device: DlDevice,
    ndim: i32,
    dtype: DlDataType,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

#[repr(C)]
struct Unversioned {
    tensor: DlTensor,
    manager_ctx: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Self)>,
}

#[repr(C)]
struct Versioned {
    major: u32,
    minor: u32,
    manager_ctx: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Self)>,
    flags: u64,
    tensor: DlTensor,
}

const _: () = assert!(size_of::<DlTensor>() == 48 && size_of::<Unversioned>() == 64 && size_of::<Versioned>() == 80);

/// What a managed tensor keeps alive, and the arrays that its `DlTensor` points to.
struct Context {
    _memory: Arc<Memory>,
    shape: Vec<i64>,
    strides: Vec<i64>,
}

/// Bytes that Python may read and write as long as one handle to them lives.
pub(crate) struct Memory {
    start: NonNull<u8>,
    length: usize,
    owner: Owner,
}

/// What keeps the bytes alive.
enum Owner {
    /// Main memory.
    Host { _owner: Box<dyn Any + Send + Sync> },
    /// A device's memory, which may still be being written: consumers are put behind that. It may be let go of on any thread.
    Device(DeviceBuffer),
}

impl Owner {
    fn host(owner: impl Any + Send + Sync) -> Self {
        Self::Host { _owner: Box::new(owner) }
    }
}

// SAFETY: the bytes are owned by `owner`, which is Send + Sync; `Memory` itself never reads or writes them from two threads. What
// Python does with them is under the rules that it has for every array.
unsafe impl Send for Memory {}
// SAFETY: as above; a shared `Memory` gives out only its address and length.
unsafe impl Sync for Memory {}

impl Memory {
    /// The bytes of a vector.
    pub(crate) fn of_vec(mut bytes: Vec<u8>) -> Self {
        // A vector's heap block stays where it is when the vector moves.
        let start = NonNull::new(bytes.as_mut_ptr()).unwrap_or(NonNull::dangling());
        Self { start, length: bytes.len(), owner: Owner::host(bytes) }
    }

    /// The bytes of a vector of offsets or lengths.
    pub(crate) fn of_i64(mut values: Vec<i64>) -> Self {
        let start = NonNull::new(values.as_mut_ptr().cast()).unwrap_or(NonNull::dangling());
        Self { start, length: values.len() * 8, owner: Owner::host(values) }
    }

    /// `length` bytes at `start`, which live as long as `owner`.
    ///
    /// # Safety
    /// The bytes must stay where they are, initialised and exclusive to this `Memory`, until `owner` is dropped.
    pub(crate) unsafe fn owned_by(start: *mut u8, length: usize, owner: Box<dyn Any + Send + Sync>) -> Self {
        Self { start: NonNull::new(start).unwrap_or(NonNull::dangling()), length, owner: Owner::Host { _owner: owner } }
    }

    /// A buffer in a device's memory.
    pub(crate) fn of_device(buffer: DeviceBuffer) -> Self {
        let start = NonNull::new(buffer.address().unwrap_or(0) as *mut u8).unwrap_or(NonNull::dangling());
        Self { start, length: buffer.len(), owner: Owner::Device(buffer) }
    }

    fn device(&self) -> DlDevice {
        match &self.owner {
            Owner::Host { .. } => DlDevice { device_type: CPU, device_id: 0 },
            Owner::Device(buffer) => DlDevice { device_type: CUDA, device_id: buffer.device().cast_signed() },
        }
    }

    /// The buffer in a device's memory, if it is one.
    pub(crate) fn device_buffer(&self) -> Option<&DeviceBuffer> {
        match &self.owner {
            Owner::Host { .. } => None,
            Owner::Device(buffer) => Some(buffer),
        }
    }

    pub(crate) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// The bytes; none of a device's memory. Not for memory that Python has seen already: it may be writing.
    pub(crate) fn as_slice(&self) -> &[u8] {
        if let Owner::Device(_) = self.owner {
            return &[];
        }
        // SAFETY: `start..start + length` is initialised and alive (see `owned_by`), and a byte has no invalid values.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

/// A C-order tensor in main or a device's memory, for Python's array libraries (`__dlpack__`) and NumPy (`numpy()`).
#[pyclass(frozen, module = "forebay._forebay")]
pub(crate) struct Tensor {
    memory: Arc<Memory>,
    dtype: DType,
    shape: Vec<usize>,
}

impl Tensor {
    /// The first `shape` elements of `memory`; `None` when it is too short for them.
    pub(crate) fn new(memory: Arc<Memory>, dtype: DType, shape: Vec<usize>) -> Option<Self> {
        let bytes = shape.iter().try_fold(dtype.item_size()?, |bytes, length| bytes.checked_mul(*length))?;
        (bytes <= memory.len()).then_some(Self { memory, dtype, shape })
    }

    /// The bytes of so many rows from one on; of all without them.
    fn bytes_of(&self, rows: Option<(usize, usize)>) -> Range<usize> {
        let row = self.shape.iter().skip(1).product::<usize>() * self.dtype.item_size().unwrap_or(1);
        let bytes = |rows: usize| rows.saturating_mul(row).min(self.memory.len());
        rows.map_or(0..self.memory.len(), |(first, count)| bytes(first)..bytes(first.saturating_add(count)))
    }

    /// Puts the consumer's stream behind what is still being written. The numbers are the protocol's: 1 is the legacy stream, and
    /// also meant by None, 2 that of the calling thread, -1 asks for no order, 0 could mean either of two.
    fn hand_over(&self, stream: Option<&Bound<'_, PyAny>>, copied: bool) -> PyResult<()> {
        let Owner::Device(buffer) = &self.memory.owner else {
            return match stream {
                None => Ok(()),
                Some(_) => Err(PyBufferError::new_err("a tensor in main memory has no stream: pass stream=None")),
            };
        };
        if buffer.address().is_none() {
            return Err(PyBufferError::new_err("these rows are still in the device cache, and can only be copied"));
        }
        if copied {
            return Err(PyBufferError::new_err(
                "a tensor in device memory isn't copied: copy it with the consumer's library",
            ));
        }
        let stream = match stream.map(|stream| stream.extract::<i64>()).transpose()?.unwrap_or(1) {
            -1 => return Ok(()),
            0 => return Err(PyBufferError::new_err("stream=0 could be one of two: pass 1 or 2")),
            stream => usize::try_from(stream).map_err(|_| PyBufferError::new_err("a stream is a handle, or -1"))?,
        };
        // SAFETY: the protocol says that the number is a stream of this tensor's device, and the consumer uses the tensor on it; a
        // library keeps a stream that it named for as long as its tensors.
        unsafe { buffer.order(stream) }.map_err(|error| PyBufferError::new_err(error.to_string()))
    }

    fn context(&self, memory: Arc<Memory>) -> Context {
        let shape: Vec<i64> = self.shape.iter().map(|length| *length as i64).collect();
        let mut strides = vec![1_i64; shape.len()];
        for axis in (1..shape.len()).rev() {
            strides[axis - 1] = strides[axis] * shape[axis].max(1);
        }
        Context { _memory: memory, shape, strides }
    }
}

/// A tensor, the address that it is copied to, and which of its rows: from one on so many, or all.
type PlainCopy = (Py<Tensor>, u64, Option<(usize, usize)>);

/// Copies tensors in a device's memory, or so many rows of them from one on, to the addresses beside them, on a stream of the consumer's:
/// 0 or 1 for the legacy stream, 2 for that of the calling thread, or a handle. Nothing waits: the copies are done in the stream's order.
///
/// It is Python's part to see that at each address there is room in that device's memory.
#[pyfunction]
pub(crate) fn copy_on_device(py: Python<'_>, copies: Vec<PlainCopy>, stream: usize) -> crate::error::Result<()> {
    let buffers = copies.iter().map(|(tensor, to, rows)| {
        let tensor = tensor.get();
        Some((tensor.memory.device_buffer()?, tensor.bytes_of(*rows), *to))
    });
    let buffers: Vec<_> = buffers
        .collect::<Option<_>>()
        .ok_or_else(|| crate::error::Error::internal("a tensor in main memory was to be copied on a device"))?;
    // SAFETY: the loaders in `_torch.py` and `_jax.py`, which alone call this, allocate each target on the stream that they name, or check
    // it, and keep it until after this call; from then on their library's allocator keeps it for the stream.
    crate::wait::detached(py, || Ok(unsafe { DeviceBuffer::copy_all(&buffers, stream) }?))
}

/// The DLPack type of a dtype that has elements of one size.
fn data_type(dtype: DType) -> Option<DlDataType> {
    let code = match dtype {
        DType::I8 | DType::I16 | DType::I32 | DType::I64 | DType::Timestamp => 0,
        DType::U8 | DType::U16 | DType::U32 | DType::U64 => 1,
        DType::F16 | DType::F32 | DType::F64 => 2,
        DType::BF16 => 4,
        DType::Bool => 6,
        DType::F8E4M3 => 10,
        DType::F8E5M2 => 12,
        _ => return None,
    };
    let bits = u8::try_from(dtype.item_size()? * 8).ok()?;
    Some(DlDataType { code, bits, lanes: 1 })
}

fn dl_tensor(context: &mut Context, data: *mut u8, device: DlDevice, dtype: DlDataType) -> DlTensor {
    DlTensor {
        data: data.cast(),
        device,
        ndim: context.shape.len() as i32,
        dtype,
        shape: context.shape.as_mut_ptr(),
        strides: context.strides.as_mut_ptr(),
        byte_offset: 0,
    }
}

unsafe extern "C" fn delete_unversioned(managed: *mut Unversioned) {
    if !managed.is_null() {
        // SAFETY: the protocol calls a deleter once, with the pointer that the capsule held; both boxes were made in `__dlpack__`.
        unsafe {
            let managed = Box::from_raw(managed);
            drop(Box::from_raw(managed.manager_ctx.cast::<Context>()));
        }
    }
}

unsafe extern "C" fn delete_versioned(managed: *mut Versioned) {
    if !managed.is_null() {
        // SAFETY: as in `delete_unversioned`.
        unsafe {
            let managed = Box::from_raw(managed);
            drop(Box::from_raw(managed.manager_ctx.cast::<Context>()));
        }
    }
}

/// Frees the tensor of a capsule that nobody consumed; a consumer renames the capsule and calls the deleter itself.
unsafe extern "C" fn destroy_capsule(capsule: *mut ffi::PyObject) {
    // SAFETY: Python calls this with the GIL held and the capsule that it was registered for; the name says which structure the
    // capsule's pointer refers to, and `PyCapsule_IsValid` with it says that the pointer is there.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, UNVERSIONED.as_ptr()) == 1 {
            delete_unversioned(ffi::PyCapsule_GetPointer(capsule, UNVERSIONED.as_ptr()).cast());
        } else if ffi::PyCapsule_IsValid(capsule, VERSIONED.as_ptr()) == 1 {
            delete_versioned(ffi::PyCapsule_GetPointer(capsule, VERSIONED.as_ptr()).cast());
        }
    }
}

fn capsule<'py>(py: Python<'py>, pointer: *mut c_void, name: &'static CStr) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: the GIL is held; `pointer` is a fresh box that the capsule owns from here on; `name` is static.
    unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyCapsule_New(pointer, name.as_ptr(), Some(destroy_capsule))) }
}

#[pymethods]
impl Tensor {
    /// Shape of the tensor.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, pyo3::types::PyTuple>> {
        pyo3::types::PyTuple::new(py, &self.shape)
    }

    /// Name of its dtype.
    #[getter]
    fn dtype(&self) -> &'static str {
        self.dtype.name()
    }

    /// Whether it is in a device's memory.
    #[getter]
    fn on_device(&self) -> bool {
        self.memory.device_buffer().is_some()
    }

    /// Whether its rows are still in the device cache, from which they can only be copied.
    #[getter]
    fn in_cache(&self) -> bool {
        self.memory.device_buffer().is_some_and(|buffer| buffer.address().is_none())
    }

    /// Address of its first element.
    #[getter]
    fn data_ptr(&self) -> usize {
        self.memory.start() as usize
    }

    /// The same memory as bytes: the last dimension counts bytes.
    fn as_bytes(&self) -> PyResult<Self> {
        let item = self.dtype.item_size().unwrap_or(1);
        let mut shape = self.shape.clone();
        match shape.last_mut() {
            Some(last) => *last *= item,
            None => shape.push(item),
        }
        Ok(Self { memory: self.memory.clone(), dtype: DType::U8, shape })
    }

    /// A NumPy array over the same memory.
    ///
    /// Raises
    /// ------
    /// forebay.DTypeError
    ///     If NumPy lacks the dtype and the package ``ml_dtypes`` isn't there.
    fn numpy<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        if self.memory.device().device_type != CPU {
            return Err(PyTypeError::new_err(
                "NumPy can't read a device's memory: copy the tensor to main memory first",
            ));
        }
        crate::array::over(py, self.memory.clone(), 0, self.dtype, &self.shape)
    }

    /// The device: (1, 0) for main memory, (2, ordinal) for a CUDA device.
    fn __dlpack_device__(&self) -> (i32, i32) {
        let device = self.memory.device();
        (device.device_type, device.device_id)
    }

    /// A DLPack capsule over the same memory; versioned (1.x) if ``max_version`` allows it.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<Bound<'py, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let device = self.memory.device();
        if dl_device.is_some_and(|wanted| wanted != (device.device_type, device.device_id)) {
            let here = format!("this tensor is on device ({}, {})", device.device_type, device.device_id);
            return Err(PyBufferError::new_err(here));
        }
        let dtype = data_type(self.dtype)
            .ok_or_else(|| PyTypeError::new_err(format!("DLPack has no type for {}", self.dtype)))?;
        let copied = copy == Some(true);
        self.hand_over(stream.as_ref(), copied)?;
        let memory =
            if copied { Arc::new(Memory::of_vec(self.memory.as_slice().to_vec())) } else { self.memory.clone() };
        let data = memory.start();
        let mut context = Box::new(self.context(memory));
        let tensor = dl_tensor(&mut context, data, device, dtype);
        let manager_ctx = Box::into_raw(context).cast::<c_void>();
        if max_version.is_some_and(|(major, _)| major >= 1) {
            let flags = if copied { FLAG_IS_COPIED } else { 0 };
            let deleter = Some(delete_versioned as unsafe extern "C" fn(*mut Versioned));
            let managed = Versioned { major: 1, minor: 1, manager_ctx, deleter, flags, tensor };
            capsule(py, Box::into_raw(Box::new(managed)).cast(), VERSIONED)
        } else {
            let deleter = Some(delete_unversioned as unsafe extern "C" fn(*mut Unversioned));
            let managed = Unversioned { tensor, manager_ctx, deleter };
            capsule(py, Box::into_raw(Box::new(managed)).cast(), UNVERSIONED)
        }
    }
}
