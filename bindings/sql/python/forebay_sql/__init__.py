"""The SQL engine of the package ``forebay``, which loads it by itself: use ``forebay``."""

from __future__ import annotations

from . import _sql

__version__: str = _sql.__version__

__all__ = ["__version__"]
