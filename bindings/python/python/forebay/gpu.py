"""What CUDA there is, and what of it may be used."""

from __future__ import annotations

from typing import Any

from . import _forebay
from ._loader import parse_bytes


def info() -> dict[str, Any]:
    """Looks for a CUDA driver and its devices.

    The first call initialises CUDA in this process, which can take a second or two; importing forebay never does.

    Returns
    -------
    dict
        ``driver``: None, or a dict with ``library`` and ``cuda`` (the newest version that it supports, as (major, minor)).
        ``devices``: a list of dicts with ``ordinal``, ``name``, ``compute`` (capability, as (major, minor)) and ``memory`` (bytes).
        ``missing``: a list of texts, each of which says why the driver or a device can't be used. Not empty without devices.
    """
    return _forebay.gpu_info()


def configure(*, registered: int | str | None = None, device_memory: int | str | None = None) -> dict[str, int]:
    """Says how much memory CUDA devices may take. It holds for devices that no loader of this process uses yet.

    Parameters
    ----------
    registered : int or str, optional
        Bytes of host memory (``"64GiB"``) that may be registered with the driver and so stay in memory: mapped files, and the buffers
        for bytes from a store. What goes beyond comes by way of the CPU, and ``stats()`` says so.
    device_memory : int or str, optional
        Bytes of each device's memory for batches on their way, and for those that CuPy holds. A ``device_cache`` comes on top.

    Returns
    -------
    dict
        ``registered`` and ``device_memory`` in bytes, as they are now.
    """
    values = [None if value is None else parse_bytes(what, value) for what, value in (("registered", registered), ("device_memory", device_memory))]
    return dict(zip(("registered", "device_memory"), _forebay.gpu_configure(*values)))
