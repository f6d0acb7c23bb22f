"""Batches of rows of similar length."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ._errors import ArgumentError
from ._ragged import Ragged

#: A batch, or what was taken of one, and how far an epoch is with it: epoch, position, and batches of the window that begins there.
Item = tuple[Any, "tuple[int, int, int] | None"]


class Buckets:
    """Makes batches of rows of similar length, so that little is padded: the rows of every ``window`` batches are sorted by length, cut
    into batches again, and these come in random order.

    Every rank has as many batches as without, and at the same step rows of about the same length. A state resumes exactly: in the
    middle of a window with as many ranks and rows of a batch as before, between two windows with any.

    Parameters
    ----------
    column : str
        The column of free shape whose first dimension is the length.
    window : int
        How many batches are sorted together.
    """

    __slots__ = ("column", "window")

    def __init__(self, column: str, window: int = 16) -> None:
        if window < 1:
            raise ArgumentError(f"Buckets: window = {window} is at least 1")
        self.column = column
        self.window = window

    def __repr__(self) -> str:
        return f"Buckets({self.column!r}, window={self.window})"


class Windows:
    """The batches of an iteration, sorted by length within windows."""

    def __init__(self, buckets: Buckets, take: Callable[[], Item | None], start: tuple[int, int, int], seed: int) -> None:
        self._buckets = buckets
        self._take = take
        self._epoch, self._start, self._skip = start
        self._seed = seed
        self._ready: deque[Item] = deque()

    def next(self) -> Item | None:
        """The next batch, and how far the epoch is with it."""
        while not self._ready:
            taken = []
            for _ in range(self._buckets.window):
                item = self._take()
                if item is None:
                    break
                taken.append(item)
            if not taken:
                return None
            end = taken[-1][1]
            made = self._sorted([batch for batch, _ in taken])
            for number, batch in enumerate(made, 1):
                here = (self._epoch, self._start, number)
                self._ready.append((batch, end if number == len(made) else here))
            if end is not None:
                self._start = end[1]
            for _ in range(self._skip):
                if self._ready:
                    self._ready.popleft()
            self._skip = 0
        return self._ready.popleft()

    def _sorted(self, batches: list[dict[str, Any]]) -> list[dict[str, Any]]:
        column = self._buckets.column
        if not isinstance(batches[0][column], Ragged):
            raise ArgumentError(f"buckets: column '{column}' has rows of one shape, or texts: they have no lengths to sort by")
        sizes = [len(batch[column].shapes) for batch in batches]
        merged = {name: _joined([batch[name] for batch in batches]) for name in batches[0]}
        lengths = np.asarray(merged[column].shapes)[:, 0]
        order = np.argsort(lengths, kind="stable")
        # The short last batch keeps its size; the same draw on every rank puts batches of like lengths at the same step.
        draw = np.random.default_rng([self._seed, self._epoch, self._start]).permutation(len(sizes))
        bounds = np.cumsum([0, *sizes])
        return [{name: _chosen(values, order[bounds[part] : bounds[part + 1]]) for name, values in merged.items()} for part in draw]


def _joined(parts: Sequence[Any]) -> Any:
    first = parts[0]
    if isinstance(first, list):
        return [value for part in parts for value in part]
    if not isinstance(first, Ragged):
        return _concatenate(parts)
    ends = np.cumsum([0, *(int(part.offsets[-1]) for part in parts)])
    offsets = [part.offsets[:-1] + int(end) for part, end in zip(parts, ends)]
    last = parts[-1].offsets[-1:] + int(ends[-2])
    return Ragged(_concatenate([part.values for part in parts]), _concatenate([*offsets, last]), _concatenate([part.shapes for part in parts]))


def _concatenate(parts: Sequence[Any]) -> Any:
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)
    import torch

    return torch.cat(list(parts))


def _chosen(values: Any, rows: np.ndarray) -> Any:
    if isinstance(values, list):
        return [values[row] for row in rows.tolist()]
    if not isinstance(values, Ragged):
        return values[rows if isinstance(values, np.ndarray) else _tensor(rows)]
    offsets = np.asarray(values.offsets)
    lengths = offsets[1:][rows] - offsets[:-1][rows]
    ends = np.cumsum(lengths)
    elements = np.arange(ends[-1] if len(ends) else 0) + np.repeat(offsets[:-1][rows] - (ends - lengths), lengths)
    starts = np.concatenate([[0], ends]).astype(np.int64)
    if isinstance(values.values, np.ndarray):
        return Ragged(values.values[elements], starts, values.shapes[rows])
    return Ragged(values.values[_tensor(elements)], _tensor(starts), values.shapes[_tensor(rows)])


def _tensor(numbers: np.ndarray) -> Any:
    import torch

    return torch.from_numpy(np.ascontiguousarray(numbers))
