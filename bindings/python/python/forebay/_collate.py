"""Rows of different lengths as arrays of one shape: padded, or packed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Union

import numpy as np

from ._errors import ArgumentError, DataError
from ._ragged import Ragged


class Pad:
    """Pads the rows of a column of free shape to one length: that of the longest of their batch, or a fixed one.

    Beside the padded column ``name``, [rows, length, ...], comes ``name_length``, int64 [rows].

    Parameters
    ----------
    value : number
        What fills rows up.
    multiple : int
        The length is rounded up to a multiple of this, so that kernels and compiled graphs see few of them.
    length : int, optional
        The length of every batch. A longer row is an error, unless ``truncate``.
    truncate : bool
        Whether rows longer than ``length`` lose their end.
    """

    __slots__ = ("length", "multiple", "truncate", "value")

    def __init__(self, value: float = 0, *, multiple: int = 1, length: int | None = None, truncate: bool = False) -> None:
        if multiple < 1 or (length is not None and length < 1):
            raise ArgumentError(f"Pad: multiple = {multiple} and length = {length} are at least 1")
        if truncate and length is None:
            raise ArgumentError("Pad: truncate goes with a length")
        self.value = value
        self.multiple = multiple
        self.length = length
        self.truncate = truncate

    def __repr__(self) -> str:
        return f"Pad({self.value}, multiple={self.multiple}, length={self.length}, truncate={self.truncate})"

    def _collate(self, name: str, ragged: Ragged) -> dict[str, Any]:
        lengths, rest = _lengths(name, ragged)
        if self.length is not None and len(lengths) and lengths.max() > self.length:
            if not self.truncate:
                raise DataError(f"column '{name}': a row of length {lengths.max()} is longer than {self.length}: truncate it, or raise the length")
            ragged, lengths = _truncated(ragged, lengths, rest, self.length)
        longest = self._padded(int(lengths.max(initial=0)))
        inside = np.arange(longest) < lengths[:, None]
        padded = _full(ragged.values, (len(lengths), longest, *rest), self.value)
        padded[_like(ragged.values, inside)] = ragged.values.reshape(-1, *rest)
        return {name: padded, f"{name}_length": _like(ragged.values, lengths)}

    def _padded(self, longest: int) -> int:
        """The length of a batch whose longest row is that long."""
        longest = longest if self.length is None else self.length
        return -(-longest // self.multiple) * self.multiple


class Pack:
    """Packs the rows of a batch, sequences of tokens, behind each other into rows of one length.

    Each batch is packed for itself, longest sequences first, each into the first row that has room; so the result depends on the
    batch alone, and a state resumes exactly; :class:`Tokens` packs over a window of batches. Beside the packed column ``name``, [packed rows, length], come

    ``name_segment``, int64 [packed rows, length]
        Which sequence of the batch each token is of, from 1; 0 is padding. Tokens attend to those of their own segment only.
    ``name_position``, int64 [packed rows, length]
        The place of each token in its sequence.
    ``name_cu_seqlens``, int32 [segments + 1]
        Where each run of one segment or of padding begins in the packed rows behind each other, as variable-length attention kernels
        take it.

    Other columns stay one row a sequence. Sequences longer than ``length`` are split; their parts keep their segment and positions.

    Parameters
    ----------
    length : int
        Tokens of a packed row.
    value : number
        What fills rows up.
    """

    __slots__ = ("length", "value")

    def __init__(self, length: int, *, value: float = 0) -> None:
        if length < 1:
            raise ArgumentError(f"Pack: length = {length} is at least 1")
        self.length = length
        self.value = value

    def __repr__(self) -> str:
        return f"Pack({self.length}, value={self.value})"

    def _bins(self, lengths: np.ndarray) -> list[tuple[np.ndarray, int]]:
        """Sequences that share packed rows with each other and no others, in ascending order, and how many rows these are.

        First fit puts the sequences of some of its rows alone into the same rows, since all that went elsewhere left them as they are.
        """
        rests = lengths % self.length
        full = (lengths // self.length).tolist()
        room: list[int] = []
        bins: list[list[int]] = []
        for sequence in np.argsort(-rests, kind="stable").tolist():
            rest = int(rests[sequence])
            row = next((row for row, free in enumerate(room) if free >= rest), len(room)) if rest else len(room)
            if row == len(room):
                room.append(self.length if rest else 0)
                bins.append([])
            room[row] -= rest
            bins[row].append(sequence)
        return [(np.sort(bin), sum(full[sequence] for sequence in bin) + int(rests[bin].any())) for bin in bins]

    def _collate(self, name: str, ragged: Ragged) -> dict[str, Any]:
        lengths, rest = _lengths(name, ragged)
        if rest:
            raise ArgumentError(f"column '{name}' has rows of shape [?, {', '.join(map(str, rest))}]: sequences of single tokens are packed")
        starts = np.concatenate([[0], np.cumsum(lengths)])
        parts = [
            (min(self.length, length - at), sequence, at)
            for sequence, length in enumerate(lengths.tolist())
            for at in range(0, length, self.length)
        ]
        parts.sort(key=lambda part: (-part[0], part[1], part[2]))
        room: list[int] = []
        source, target, segment, position = [], [], [], []
        for length, sequence, at in parts:
            row = next((row for row, free in enumerate(room) if free >= length), len(room))
            if row == len(room):
                room.append(self.length)
            place = row * self.length + self.length - room[row]
            room[row] -= length
            tokens = np.arange(length)
            source.append(starts[sequence] + at + tokens)
            target.append(place + tokens)
            segment.append(np.full(length, sequence + 1))
            position.append(at + tokens)
        shape = (len(room), self.length)
        ids = np.zeros(len(room) * self.length, np.int64)
        places = np.zeros_like(ids)
        packed = _full(ragged.values, (ids.size,), self.value)
        if parts:
            into = np.concatenate(target)
            ids[into] = np.concatenate(segment)
            places[into] = np.concatenate(position)
            packed[_like(ragged.values, into)] = ragged.values[_like(ragged.values, np.concatenate(source))]
        begins = np.flatnonzero((np.diff(ids, prepend=-1) != 0) | (np.arange(ids.size) % self.length == 0))
        cu_seqlens = np.append(begins, ids.size).astype(np.int32)
        return {
            name: packed.reshape(shape),
            f"{name}_segment": _like(ragged.values, ids.reshape(shape)),
            f"{name}_position": _like(ragged.values, places.reshape(shape)),
            f"{name}_cu_seqlens": _like(ragged.values, cu_seqlens),
        }


Collate = Mapping[str, Union[Pad, Pack]]


def collated(batch: dict[str, Any], collate: Collate) -> dict[str, Any]:
    """A batch with some of its columns padded or packed."""
    made: dict[str, Any] = {}
    for name, values in batch.items():
        how = collate.get(name)
        if how is None:
            made[name] = values
        elif not isinstance(values, Ragged):
            raise ArgumentError(f"column '{name}' has rows of one shape, or texts: there is nothing to pad or pack")
        else:
            made.update(how._collate(name, values))
    return made


def lengths_of(ragged: Ragged) -> np.ndarray:
    """The length of each row, int64 [rows]."""
    return np.asarray(ragged.shapes.cpu() if hasattr(ragged.shapes, "cpu") else ragged.shapes)[:, 0].astype(np.int64)


def _lengths(name: str, ragged: Ragged) -> tuple[np.ndarray, tuple[int, ...]]:
    """The length of each row, and the shape of what it is made of."""
    shapes = np.asarray(ragged.shapes.cpu() if hasattr(ragged.shapes, "cpu") else ragged.shapes)
    rest = shapes[:, 1:]
    filled = rest[shapes[:, 0] > 0]
    if len(filled) and (filled != filled[0]).any():
        raise ArgumentError(f"column '{name}' has rows that differ in more than their length: they can't be padded or packed")
    return lengths_of(ragged), tuple(filled[0].tolist()) if len(filled) else (1,) * rest.shape[1]


def _truncated(ragged: Ragged, lengths: np.ndarray, rest: tuple[int, ...], length: int) -> tuple[Ragged, np.ndarray]:
    keep = np.concatenate([np.arange(row) < length for row in lengths.tolist()])
    values = ragged.values.reshape(-1, *rest)[_like(ragged.values, keep)]
    return Ragged(values, ragged.offsets, ragged.shapes), np.minimum(lengths, length)


def _full(like: Any, shape: tuple[int, ...], value: float) -> Any:
    if isinstance(like, np.ndarray):
        return np.full(shape, value, like.dtype)
    return like.new_full(shape, value)


def _like(values: Any, array: np.ndarray) -> Any:
    """An array in the library and on the device of ``values``."""
    if isinstance(values, np.ndarray):
        return array
    import torch

    return torch.from_numpy(np.ascontiguousarray(array)).to(values.device)
