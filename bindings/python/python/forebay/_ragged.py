"""Rows of different shapes in one piece of memory."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


class Ragged(namedtuple("Ragged", ["values", "offsets", "shapes"])):
    """Arrays of different shapes, one behind the other.

    Attributes
    ----------
    values : array or tensor [elements]
        The elements of all rows in C order.
    offsets : int64 [rows + 1]
        Row ``i`` is ``values[offsets[i]:offsets[i + 1]]``.
    shapes : int64 [rows, rank]
        The shape of each row.
    """

    __slots__ = ()

    def row(self, index: int) -> Any:
        """Row ``index`` in its shape: a view, nothing is copied."""
        rows = len(self.shapes)
        if not -rows <= index < rows:
            raise IndexError(f"row {index} is out of range for {rows} rows")
        index %= rows
        start, end = int(self.offsets[index]), int(self.offsets[index + 1])
        return self.values[start:end].reshape([int(length) for length in self.shapes[index]])

    def rows(self) -> Iterator[Any]:
        """All rows, in order."""
        return (self.row(index) for index in range(len(self.shapes)))

    def nested(self) -> torch.Tensor:
        """A jagged ``torch`` nested tensor over the same memory, if only the first dimension differs between the rows.

        Raises
        ------
        ValueError
            If another dimension differs, or there are no rows.
        TypeError
            If these are not torch tensors.
        """
        import torch

        if not isinstance(self.values, torch.Tensor):
            raise TypeError("a nested tensor is made of torch tensors: load with ds.pytorch()")
        rest = self.shapes[:, 1:]
        if len(rest) == 0 or bool((rest != rest[0]).any()):
            raise ValueError("a nested tensor needs rows that differ in their first dimension only")
        dims = [int(length) for length in rest[0]]
        lengths = self.shapes[:, 0]
        offsets = torch.zeros(len(lengths) + 1, dtype=torch.int64)
        torch.cumsum(lengths, 0, out=offsets[1:])
        return torch.nested.nested_tensor_from_jagged(self.values.reshape([int(offsets[-1]), *dims]), offsets)
