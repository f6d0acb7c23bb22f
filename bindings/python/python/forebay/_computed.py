"""Columns that a query computed for the rows that it selected: in memory, one value for each place in the selection."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ._errors import ArgumentError, UnsupportedError
from ._schema import Column

if TYPE_CHECKING:
    import numpy as np

    from . import _forebay

#: What the places of a batch's rows in their selection are called on their way from the native side: -1 for masked ones.
SAMPLE_INDEX = "sample_index"


class Computed:
    """The values of a computed column, and which are valid: None unless it may have nulls, which are zeros."""

    __slots__ = ("valid", "values")

    def __init__(self, values: np.ndarray, valid: np.ndarray | None) -> None:
        self.values = values
        self.valid = valid

    @classmethod
    def of_bytes(cls, dtype: str, values: bytes, valid: bytes | None) -> Computed:
        """From what the engine of SQL gives."""
        import numpy as np

        return cls(np.frombuffer(values, dtype), None if valid is None else np.frombuffer(valid, bool))

    @property
    def column(self) -> Column:
        """What it holds."""
        return Column(self.values.dtype.name, nullable=self.valid is not None)

    def take(self, rows: Any) -> Computed:
        """Those at some places."""
        return Computed(self.values[rows], None if self.valid is None else self.valid[rows])

    def sampled(self, places: np.ndarray) -> Computed:
        """Those of a batch; a place below 0 is of a masked row."""
        found, masked = self.take(places), places < 0
        if masked.any():
            found.values[masked] = 0
            if found.valid is not None:
                found.valid[masked] = False
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        return Computed, (self.values, self.valid)


class Beside:
    """Native rows of a table with computed columns beside them: reads like native rows."""

    __slots__ = ("computed", "native")

    #: Its rows are read by number.
    whole = False

    def __init__(self, native: _forebay.Rows, computed: Mapping[str, Computed]) -> None:
        self.native = native
        self.computed = dict(computed)

    def __getattr__(self, name: str) -> Any:
        if name in Beside.__slots__:  # Not set yet.
            raise AttributeError(name)
        return getattr(self.native, name)

    def __len__(self) -> int:
        return len(self.native)

    def select(self, rows: np.ndarray) -> Beside:
        """Some of them."""
        return Beside(self.native.select(rows), {name: column.take(rows) for name, column in self.computed.items()})

    def read(self, name: str, start: int, stop: int) -> tuple[Any, np.ndarray | None]:
        """A run of rows of a column."""
        return self.take(name, slice(start, stop)) if name in self.computed else self.native.read(name, start, stop)

    def take(self, name: str, rows: Any) -> tuple[Any, np.ndarray | None]:
        """Rows of a column; arrays are the caller's own."""
        if name not in self.computed:
            return self.native.take(name, rows)
        found = self.computed[name].take(rows)
        return found.values.copy(), found.valid

    def value(self, name: str, row: int) -> Any:
        """A value."""
        if name not in self.computed:
            return self.native.value(name, row)
        if not -len(self) <= row < len(self):
            raise IndexError(f"row {row} of {len(self)} rows")
        column = self.computed[name]
        return column.values[row] if column.valid is None or column.valid[row] else None

    def batch(self, names: list[str], rows: np.ndarray) -> list[_forebay.BatchColumn]:
        """For a map-style dataset."""
        for name in names:
            if name in self.computed:
                raise UnsupportedError(f"column '{name}' is computed, and comes in a loader's batches: give a batch_size, or leave it out")
        return self.native.batch(names, rows)

    def digest(self) -> str:
        """A hash of rows and computed values."""
        return hashlib.sha256("".join([self.native.digest(), *self.digests()]).encode()).hexdigest()

    def digests(self) -> list[str]:
        """Hashes of the computed columns, with their names."""
        whole = ((name, column.values.tobytes(), b"" if column.valid is None else column.valid.tobytes()) for name, column in self.computed.items())
        return [f"{name} {hashlib.sha256(values).hexdigest()} {hashlib.sha256(valid).hexdigest()}" for name, values, valid in whole]


def computed_of(native: Any) -> dict[str, Computed]:
    """The computed columns of a view's rows."""
    return native.computed if isinstance(native, Beside) else {}


def stored(native: Any) -> _forebay.Rows:
    """A view's rows as the native side knows them."""
    return native.native if isinstance(native, Beside) else native


class Delivery:
    """What a loader delivers of computed columns, and in which order among the others."""

    def __init__(self, natives: Sequence[Any], names: list[str], on_fault: str, device: Any, of_stored: Mapping[str, Any]) -> None:
        computed = computed_of(natives[0])
        self.names = names
        self.computed = {name: computed[name] for name in names if name in computed}
        self.stored = [name for name in names if name not in computed]
        if len(natives) > 1 and any(computed_of(native) for native in natives):
            raise ArgumentError("a mixture has no computed columns: materialize() the views that have some")
        if not self.computed:
            return
        what = f"column '{next(iter(self.computed))}' is computed"
        if not self.stored:
            raise ArgumentError(f"{what}, and batches need a column of the table: select one besides")
        if SAMPLE_INDEX in names:
            raise ArgumentError(f"{what}, and a column has the name '{SAMPLE_INDEX}', by which its values are found: leave it out")
        if device is not None:
            raise ArgumentError(f"{what}, and comes in main memory: leave out the device, or the column")
        if on_fault == "substitute":
            raise ArgumentError(f"{what} for each row, and none comes in place of another: use on_fault='skip'")
        for option, given in of_stored.items():
            for name in given or ():
                if name in self.computed:
                    raise ArgumentError(f"{option}: column '{name}' is computed, and comes as it is")

    def complete(self, batch: dict[str, Any], array: Any) -> dict[str, Any]:
        """A batch with its computed columns; ``array`` makes an array of the consumer's library from NumPy's."""
        import numpy as np

        places = np.asarray(batch.pop(SAMPLE_INDEX))
        whole: dict[str, Any] = {}
        for name in self.names:
            if name in self.computed:
                found = self.computed[name].sampled(places)
                whole[name] = array(found.values)
                if found.valid is not None:
                    whole[f"{name}_valid"] = array(found.valid)
            else:
                whole[name] = batch.pop(name)
                if f"{name}_valid" in batch:
                    whole[f"{name}_valid"] = batch.pop(f"{name}_valid")
        return {**whole, **batch}
