"""CuPy: native batches as arrays on a CUDA device."""

from __future__ import annotations

from typing import Any

import cupy

from . import _forebay
from ._loader import Loader
from ._rows import View


class CupyLoader(Loader):
    """Batches as dicts of CuPy arrays over the loader's device memory. Made by :meth:`Dataset.cupy`.

    CuPy names its current stream when it takes an array, which puts that stream behind the batch; the memory is written again only
    after what that stream was asked to do until the last array was gone. Of columns of free shape the offsets count bytes, and the
    shapes are NumPy's.
    """

    def __init__(self, view: View, batch_size: int, *, device: int | None = None, **options: Any) -> None:
        ordinal = cupy.cuda.Device().id if device is None else int(device)
        super().__init__(view, batch_size, device=ordinal, **options)

    def _array(self, native: _forebay.Tensor) -> Any:
        if not native.on_device:
            return native.numpy()
        with cupy.cuda.Device(self._options["device"]):
            return cupy.from_dlpack(native)

    def _channels_first(self, array: Any) -> Any:
        return array.transpose(0, 3, 1, 2)
