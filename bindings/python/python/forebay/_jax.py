"""JAX: native batches as arrays on a CUDA device."""

from __future__ import annotations

from collections import deque
from typing import Any

import jax

from . import _forebay
from ._errors import ArgumentError
from ._loader import Loader
from ._rows import View

#: Arrays whose copies may be under way at once, before the oldest is waited for.
_UNDER_WAY = 64


class JaxLoader(Loader):
    """Batches as dicts of JAX arrays, in memory of JAX's own. Made by :meth:`Dataset.jax`.

    JAX doesn't say when its streams are done with memory of others. So each array is copied once more, on the device, and the loader's
    memory is given back when JAX says that the copy is there; the program waits for nothing. Of columns of free shape the offsets count
    bytes, and the shapes are NumPy's.
    """

    def __init__(self, view: View, batch_size: int, *, device: Any = None, **options: Any) -> None:
        if device is None:
            device = jax.devices()[0]
        elif not isinstance(device, jax.Device):
            device = jax.devices("cuda")[int(device)]
        if device.platform != "gpu":
            raise ArgumentError(f"device = {device}: batches go to a CUDA device; for main memory use numpy()")
        super().__init__(view, batch_size, device=device.local_hardware_id, **options)
        #: What JAX copies from, and the copies, oldest first.
        self._under_way: deque[tuple[Any, Any]] = deque()

    def _array(self, native: _forebay.Tensor) -> Any:
        if not native.on_device:
            return native.numpy()
        theirs = jax.dlpack.from_dlpack(native)
        copy = jax.numpy.array(theirs, copy=True)
        self._under_way.append((theirs, copy))
        while self._under_way and (len(self._under_way) > _UNDER_WAY or self._under_way[0][1].is_ready()):
            self._under_way.popleft()[1].block_until_ready()
        return copy

    def _channels_first(self, array: Any) -> Any:
        return array.transpose(0, 3, 1, 2)
