"""Batches of rows of similar length, or of so many tokens."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ._collate import Pack, Pad, lengths_of
from ._errors import ArgumentError, DataError
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

    def _cut(self, lengths: np.ndarray, sizes: Sequence[int], how: Pad | Pack | None) -> list[np.ndarray]:
        """Which rows make up each batch, of a window of rows of these lengths that came in batches of these sizes."""
        # The short last batch keeps its size.
        return np.split(np.argsort(lengths, kind="stable"), np.cumsum(sizes)[:-1])


class Tokens:
    """Makes batches of at most so many tokens: the rows of every ``window`` batches become as many batches as that takes, in random order.

    What counts is what a model sees. Rows that :class:`Pad` pads, or nobody, are sorted by length, and count as long as the longest of
    their batch; sequences for :class:`Pack` are packed over the whole window, and count as whole packed rows. A state resumes exactly, as
    with :class:`Buckets`. How many batches there are depends on the lengths: ``len`` of the loader is a TypeError, and ranks differ; end
    their epochs together with ``torch.distributed.algorithms.Join``, or after a number of steps.

    Parameters
    ----------
    column : str
        The column of free shape whose first dimension is the length.
    budget : int
        Tokens of a batch. A row that is longer alone is an ``fb.DataError``.
    window : int
        Rows of how many batches are dealt anew.
    """

    __slots__ = ("budget", "column", "window")

    def __init__(self, column: str, budget: int, window: int = 16) -> None:
        if window < 1 or budget < 1:
            raise ArgumentError(f"Tokens: budget = {budget} and window = {window} are at least 1")
        self.column = column
        self.budget = budget
        self.window = window

    def __repr__(self) -> str:
        return f"Tokens({self.column!r}, {self.budget}, window={self.window})"

    def _cut(self, lengths: np.ndarray, sizes: Sequence[int], how: Pad | Pack | None) -> list[np.ndarray]:
        if isinstance(how, Pack):
            weighed, most, unit = how._bins(lengths), self.budget // how.length, f" packed rows of {how.length} tokens"
        else:
            pad = how or Pad()
            weighed = [(np.array([row]), pad._padded(int(lengths[row]))) for row in np.argsort(lengths, kind="stable")]
            most, unit = self.budget, " tokens"
        parts: list[list[np.ndarray]] = []
        taken = 0
        for rows, weight in weighed:
            if weight > most:
                raise DataError(f"column '{self.column}': a row of length {lengths[rows].max()} takes {weight}{unit}, a batch has {most}: raise the budget")
            # Padded rows come shorter ones first, and all count as much as the last.
            taken = taken + weight if isinstance(how, Pack) else weight * (len(parts[-1]) + 1 if parts else 1)
            if not parts or taken > most:
                parts.append([])
                taken = weight
            parts[-1].append(rows)
        # In the order in which they came, so that packing a batch alone gives the rows that packing the window gave.
        return [np.sort(np.concatenate(part)) for part in parts]


class Windows:
    """The batches of an iteration, dealt anew within windows; ``how`` is what is done to their column then."""

    def __init__(
        self, buckets: Buckets | Tokens, how: Pad | Pack | None, take: Callable[[], Item | None], start: tuple[int, int, int], seed: int
    ) -> None:
        self._buckets = buckets
        self._how = how
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
            made = self._dealt([batch for batch, _ in taken])
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

    def _dealt(self, batches: list[dict[str, Any]]) -> list[dict[str, Any]]:
        column = self._buckets.column
        if not isinstance(batches[0][column], Ragged):
            raise ArgumentError(f"buckets: column '{column}' has rows of one shape, or texts: they have no lengths to go by")
        sizes = [len(batch[column].shapes) for batch in batches]
        merged = {name: _joined([batch[name] for batch in batches]) for name in batches[0]}
        parts = self._buckets._cut(lengths_of(merged[column]), sizes, self._how)
        # The same draw on every rank puts batches of like lengths at the same step.
        draw = np.random.default_rng([self._seed, self._epoch, self._start]).permutation(len(parts))
        return [{name: _chosen(values, parts[part]) for name, values in merged.items()} for part in draw]


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
