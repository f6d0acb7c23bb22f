"""The DLPack export by itself: versions, strides, ownership."""

from __future__ import annotations

import ctypes
import gc
import threading

import numpy as np
import pytest
import torch
from conftest import images

import forebay as fb


@pytest.fixture
def native(photos: fb.Dataset):  # noqa: ANN201 - the native tensor has no public name
    """The images of the first eight rows as the loader's own tensor."""
    return photos.pytorch(batch_size=8)._native.iter(0).next()[0][0][1]


def name_of(capsule: object) -> str:
    get = ctypes.pythonapi.PyCapsule_GetName
    get.restype, get.argtypes = ctypes.c_char_p, [ctypes.py_object]
    return get(capsule).decode()


def pointer_of(capsule: object) -> int:
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return get(capsule, name_of(capsule).encode())


def test_a_consumer_gets_the_version_it_knows(native) -> None:
    assert name_of(native.__dlpack__()) == "dltensor"
    assert name_of(native.__dlpack__(max_version=(0, 8))) == "dltensor"
    assert name_of(native.__dlpack__(max_version=(1, 0))) == "dltensor_versioned"
    assert name_of(native.__dlpack__(max_version=(2, 3))) == "dltensor_versioned"
    assert native.__dlpack_device__() == (1, 0)


class Header(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64),
    ]  # fmt: skip


class Versioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("manager", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64), ("tensor", Header),
    ]  # fmt: skip


@pytest.mark.parametrize("copy", [None, False, True])
def test_the_structure_says_what_is_there(native, copy: bool | None) -> None:
    capsule = native.__dlpack__(max_version=(1, 0), copy=copy)
    managed = Versioned.from_address(pointer_of(capsule))
    tensor = managed.tensor
    assert (managed.major, managed.flags) == (1, 2 if copy else 0)
    assert (tensor.data == native.data_ptr) == (copy is not True)
    assert (tensor.device_type, tensor.device_id, tensor.byte_offset) == (1, 0, 0)
    assert (tensor.code, tensor.bits, tensor.lanes) == (1, 8, 1)
    assert tensor.ndim == 4 and tensor.shape[:4] == [8, 3, 16, 16] and tensor.strides[:4] == [768, 256, 16, 1]


def test_both_versions_are_consumed_by_torch_and_numpy(native) -> None:
    wanted = images()[:8]
    for max_version in (None, (1, 0)):
        tensor = torch.utils.dlpack.from_dlpack(native.__dlpack__(max_version=max_version))
        assert tensor.data_ptr() == native.data_ptr and np.array_equal(tensor.numpy(), wanted)
    assert np.array_equal(np.from_dlpack(native), wanted)
    assert np.from_dlpack(native).ctypes.data == native.data_ptr


def test_a_copy_is_apart(native) -> None:
    copied = torch.utils.dlpack.from_dlpack(native.__dlpack__(copy=True))
    copied.zero_()
    assert np.array_equal(native.numpy(), images()[:8])


@pytest.mark.parametrize("arguments", [{"stream": 1}, {"dl_device": (2, 0)}, {"dl_device": (1, 1)}])
def test_what_main_memory_cannot_do_is_a_buffer_error(native, arguments: dict) -> None:
    with pytest.raises(BufferError):
        native.__dlpack__(**arguments)


def test_capsules_that_nobody_consumes_and_deleters_without_the_gil_free_the_buffer(photos: fb.Dataset) -> None:
    """A pool whose buffers came back gives the same addresses out again; one that leaked would give new ones."""
    loader = photos.pytorch(batch_size=250, columns=["image"])
    addresses = set()

    def delete(pointer: int, deleter: int) -> None:
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(deleter)(pointer)  # CFUNCTYPE lets go of the GIL.

    for epoch in range(20):
        batches = loader._native.iter(epoch)
        while (taken := batches.next()) is not None:
            columns = taken[0]
            native = columns[0][1]
            addresses.add(native.data_ptr)
            capsule = native.__dlpack__(max_version=(1, 0))
            if epoch % 2:
                managed = Versioned.from_address(pointer_of(capsule))
                rename = ctypes.pythonapi.PyCapsule_SetName
                rename.argtypes = [ctypes.py_object, ctypes.c_char_p]
                rename(capsule, b"used_dltensor_versioned")
                worker = threading.Thread(target=delete, args=(pointer_of(capsule), managed.deleter))
                worker.start()
                worker.join()
            del native, columns, capsule
        gc.collect()
    assert len(addresses) <= 8


def test_scalars_and_empty_tensors_are_exported(url: str) -> None:
    ds = fb.create(url, {"x": "float32", "e": "int16[0,3]"})
    ds.append({"x": [1.5, 2.5], "e": np.zeros((2, 0, 3), np.int16)})
    ds.commit()
    batch = next(iter(ds.pytorch(batch_size=2)))
    assert batch["x"].tolist() == [1.5, 2.5] and batch["e"].shape == (2, 0, 3)
    assert next(iter(ds.numpy(batch_size=2)))["e"].shape == (2, 0, 3)
