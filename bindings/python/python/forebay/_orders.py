"""Orders of epochs, as options say them; and numbers that options are."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, Union

from ._errors import ArgumentError

if TYPE_CHECKING:
    Shuffle = Union[bool, str, "Window", "Weighted", "Buffer"]

_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


class Window:
    """How far rows are mixed by a windowed shuffle.

    The epoch is read in ``lanes`` runs side by side, each made of units of ``unit_bytes`` from all over the rows; within a lane,
    rows are mixed among ``window`` units at a time. So ``lanes * window * unit_bytes`` of rows, 1.2 GB by default, are mixed with each
    other, and reads stay as long as a unit. The window is part of the order: another window is another order.

    Parameters
    ----------
    lanes : int
        A multiple of the largest number of ranks planned; then a rank reads only its own lanes.
    window : int
        Units of a lane that are mixed.
    unit_bytes : int or str
        Bytes of a unit.
    """

    __slots__ = ("lanes", "unit_bytes", "window")

    def __init__(self, lanes: int = 96, window: int = 24, unit_bytes: int | str = 512 << 10) -> None:
        self.lanes = lanes
        self.window = window
        self.unit_bytes = parse_bytes("unit_bytes", unit_bytes)

    def __repr__(self) -> str:
        return f"Window(lanes={self.lanes}, window={self.window}, unit_bytes={self.unit_bytes})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Window) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))


class Buffer:
    """Rows in table order, mixed within runs of ``rows`` rows, one run after the other: what a shuffle buffer of a stream does, but
    deterministic and resumable at any row. For tables that are appended to and read in that order: see :func:`forebay.feed`.

    Parameters
    ----------
    rows : int
        Rows that are mixed with each other. They must fit in the memory budget, on every rank.
    """

    __slots__ = ("rows",)

    def __init__(self, rows: int) -> None:
        self.rows = _whole("rows", rows, 1)

    def __repr__(self) -> str:
        return f"Buffer({self.rows})"


class Weighted:
    """Rows drawn by weight, in place of a shuffle.

    Parameters
    ----------
    weights : sequence of float
        One for each row of the dataset or view, at least 0.
    replacement : bool
        Whether a row may come again in an epoch. Without, rows of large weight come early.
    """

    __slots__ = ("replacement", "weights")

    def __init__(self, weights: Any, *, replacement: bool = True) -> None:
        self.weights = [float(weight) for weight in weights]
        self.replacement = bool(replacement)

    def __repr__(self) -> str:
        return f"Weighted({len(self.weights)} weights, replacement={self.replacement})"


def parse_bytes(what: str, value: int | str) -> int:
    """A number of bytes, given as one or as a text: "512MiB", "2 GiB", "1G"."""
    if isinstance(value, str):
        text = value.strip().lower()
        number = text.rstrip("bikmgt ")
        unit = text[len(number) :].strip().rstrip("b").rstrip("i")
        try:
            return int(float(number) * _UNITS[unit])
        except (KeyError, ValueError):
            raise ArgumentError(f"{what} = {value!r} is not a number of bytes: write 536870912 or '512MiB'") from None
    return operator.index(value)


def _shuffle(shuffle: Shuffle) -> tuple[str, int, int, int]:
    if shuffle is True or shuffle == "windowed":
        shuffle = Window()
    if isinstance(shuffle, Window):
        return ("windowed", shuffle.lanes, shuffle.window, shuffle.unit_bytes)
    if shuffle is False or shuffle is None or isinstance(shuffle, Weighted):
        return ("off", 0, 0, 0)
    if shuffle == "global":
        return ("global", 0, 0, 0)
    if isinstance(shuffle, Buffer):
        return ("buffer", shuffle.rows, 0, 0)
    raise ArgumentError(f"shuffle = {shuffle!r}: use True, False, 'windowed', 'global', a forebay.Window, Buffer or Weighted")


def _whole(what: str, value: Any, least: int, most: int = 2**32 - 1) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise ArgumentError(f"{what} is a whole number, not {value!r}") from None
    if not least <= number <= most:
        raise ArgumentError(f"{what} = {number}: it is between {least} and {most}")
    return number
