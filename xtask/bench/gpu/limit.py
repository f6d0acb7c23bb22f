"""What the host's memory and the link give for rows in random places, without a loader: batched copies from mapped files."""

from __future__ import annotations

import ctypes
import mmap
from pathlib import Path

import numpy as np
import torch
from clock import Took

#: Registered for all contexts, seen by devices, only read.
PORTABLE, MAPPED, READ_ONLY = 1, 2, 8
IN_STREAM_ORDER = 1
#: Batches that are on their way at once.
DEEP = 4


class Rows:
    """The files of a lake, registered with the driver; rows of ``row`` bytes in random places of them."""

    def __init__(self, url: str, row: int) -> None:
        self._driver, self._row = ctypes.CDLL("libcuda.so.1"), row
        self._maps = [
            mmap.mmap(file.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ)
            for path in Path(url).rglob("*")
            if path.is_file() and path.stat().st_size > 2**25
            for file in [path.open("rb")]
        ]
        arrays = [np.frombuffer(map_, np.uint8) for map_ in self._maps]
        self._places = np.concatenate([a.ctypes.data + np.arange(0, len(a) - row, row, dtype=np.uint64) for a in arrays])
        for array in arrays:
            self._call("cuMemHostRegister_v2", ctypes.c_void_p(array.ctypes.data), ctypes.c_size_t(len(array)), PORTABLE | MAPPED | READ_ONLY)

    def _call(self, name: str, *arguments: object) -> None:
        code = getattr(self._driver, name)(*arguments)
        if code:
            raise RuntimeError(f"{name} answered {code}")

    def rate(self, batch: int, batches: int) -> float:
        """Bytes a second of ``batches`` batched copies of ``batch`` rows each."""
        stream = torch.cuda.Stream()
        buffers = [torch.empty((batch, self._row), dtype=torch.uint8, device="cuda") for _ in range(DEEP)]
        targets = [np.uint64(one.data_ptr()) + np.arange(batch, dtype=np.uint64) * np.uint64(self._row) for one in buffers]
        sizes, first = np.full(batch, self._row, np.uint64), np.zeros(1, np.uint64)
        attributes = np.zeros(6, np.uint32)
        attributes[0] = IN_STREAM_ORDER
        chosen = np.random.default_rng().permuted(np.resize(self._places, batch * batches)).reshape(batches, batch)
        events = [torch.cuda.Event() for _ in range(DEEP)]

        def copies(count: int) -> None:
            for number in range(count):
                events[number % DEEP].synchronize()
                pointers = [ctypes.c_void_p(array.ctypes.data) for array in (targets[number % DEEP], chosen[number], sizes)]
                more = [ctypes.c_void_p(attributes.ctypes.data), ctypes.c_void_p(first.ctypes.data), ctypes.c_size_t(1)]
                self._call("cuMemcpyBatchAsync_v2", *pointers, ctypes.c_size_t(batch), *more, ctypes.c_void_p(stream.cuda_stream))
                events[number % DEEP].record(stream)

        copies(batches // 4)
        with Took() as took:
            copies(batches)
        return batch * batches * self._row / took.seconds
