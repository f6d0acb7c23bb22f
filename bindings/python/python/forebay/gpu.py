"""What CUDA there is."""

from __future__ import annotations

from typing import Any

from . import _forebay


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
