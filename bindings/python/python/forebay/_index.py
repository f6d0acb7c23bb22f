"""What stands between the brackets: numbers, slices, lists and masks, as NumPy understands them."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np


def resolve(key: Any, length: int) -> int | range | np.ndarray:
    """Rows that ``key`` names among ``length`` rows.

    Returns
    -------
    int, range or numpy.ndarray
        One row; or an arithmetic run of rows; or row numbers, int64 [n]. All are in 0 to ``length - 1``.

    Raises
    ------
    IndexError
        If a row is out of range, or a mask has another length.
    TypeError
        If the key is none of these.
    """
    if isinstance(key, slice):
        return range(*key.indices(length))
    if isinstance(key, range):
        key = list(key)
    if not isinstance(key, (list, tuple)) and not hasattr(key, "__array__"):
        try:
            row = operator.index(key)
        except TypeError:
            raise TypeError(
                f"rows are chosen by a number, a slice, a list of numbers or a boolean mask, not {type(key).__name__}"
            ) from None
        return _row(row, length)
    import numpy as np

    chosen = np.asarray(key)
    if chosen.ndim == 0 and np.issubdtype(chosen.dtype, np.integer):
        return _row(int(chosen), length)
    if chosen.ndim != 1:
        raise IndexError(f"rows are chosen by a list of one dimension, not {chosen.ndim}")
    if chosen.dtype == bool:
        if len(chosen) != length:
            raise IndexError(f"the mask has {len(chosen)} entries for {length} rows")
        return np.flatnonzero(chosen).astype(np.int64, copy=False)
    if chosen.size == 0:
        return np.empty(0, np.int64)
    if not np.issubdtype(chosen.dtype, np.integer):
        raise TypeError(f"rows are chosen by whole numbers or a boolean mask, not {chosen.dtype}")
    if chosen.dtype == np.uint64 and chosen.max() > np.iinfo(np.int64).max:
        raise IndexError(f"row {chosen.max()} is out of range for {length} rows")
    chosen = chosen.astype(np.int64)
    low, high = int(chosen.min()), int(chosen.max())
    if low < -length or high >= length:
        raise IndexError(f"row {low if low < -length else high} is out of range for {length} rows")
    if low < 0:
        chosen[chosen < 0] += length
    return chosen


def _row(row: int, length: int) -> int:
    if not -length <= row < length:
        raise IndexError(f"row {row} is out of range for {length} rows")
    return row + length if row < 0 else row
