"""Python data on its way into a column: checked, and laid out as the format wants it. Nothing is stored here.

A fixed-shape column becomes one C-order array of bytes (without a copy when a NumPy array of the right dtype is given); any other
becomes row offsets, row shapes and bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ._errors import DataError, DTypeError, UnknownColumnError
from ._forebay import Link
from ._schema import Column, Schema

if TYPE_CHECKING:
    import numpy as np

    #: (offsets, shapes, bytes, validity): offsets is None for rows of fixed shape.
    Encoded = tuple["np.ndarray | None", "np.ndarray | None", "np.ndarray", "np.ndarray | None"]

_VIEWED_AS = {"bfloat16": "uint16", "float8_e4m3fn": "uint8", "float8_e5m2": "uint8", "timestamp": "int64"}


def encode_rows(schema: Schema, data: Mapping[str, Any]) -> tuple[int, list[Encoded]]:
    """Lays out one batch of rows for the native writer.

    Returns
    -------
    (rows, columns)
        One entry a column of the schema, in its order.

    Raises
    ------
    forebay.UnknownColumnError
        If ``data`` names a column that isn't in the schema.
    forebay.DataError, forebay.DTypeError
        If a column is missing, the lengths differ, or values don't fit.
    """
    if not isinstance(data, Mapping):
        raise DataError(f"append takes a dict of columns, not {type(data).__name__}")
    for name in data:
        if name not in schema:
            raise UnknownColumnError(f"no column '{name}'; the table has {', '.join(schema)}")
    missing = [name for name, column in schema.items() if name not in data and not column.nullable]
    if missing:
        raise DataError(f"no values for column '{missing[0]}', which is not nullable")
    if not data:
        raise DataError("no columns were given")
    rows, first = -1, ""
    for name, values in data.items():
        try:
            count = len(values)
        except TypeError:
            raise DataError(f"column '{name}': expected one value for each row, got a single {type(values).__name__}") from None
        if rows < 0:
            rows, first = count, name
        elif count != rows:
            raise DataError(f"column '{name}' has {count} rows, column '{first}' has {rows}")
    encoded = []
    for name, column in schema.items():
        values = data[name] if name in data else [None] * rows
        encoded.append(_encode(name, column, values, rows))
    return rows, encoded


def _encode(name: str, column: Column, values: Any, rows: int) -> Encoded:
    if column.dtype in ("utf8", "bytes", "json", "link"):
        return _variable(name, column, values)
    if None in column.shape:
        return _ragged(name, column, values)
    array, valid = _numbers(name, column, values, rows)
    return None, None, array, valid


def _no_nulls(name: str, valid: np.ndarray | None, column: Column) -> None:
    if valid is not None and not column.nullable:
        row = int((~valid).argmax())
        raise DataError(f"column '{name}' is not nullable, but row {row} of the batch is None")


# Numbers of fixed shape


def _numbers(name: str, column: Column, values: Any, rows: int) -> tuple[np.ndarray, np.ndarray | None]:
    """The rows as bytes, uint8 [rows * row_bytes], and which of them are valid, bool [rows], or None if all are."""
    import numpy as np

    shape = tuple(dim or 0 for dim in column.shape)
    valid: np.ndarray | None = None
    if isinstance(values, np.ma.MaskedArray):
        values, valid = _unmask(name, values)
    elif isinstance(values, (list, tuple)) and any(value is None for value in values):
        valid = np.fromiter((value is not None for value in values), bool, len(values))
        values = _without_none(name, column, values, valid)
    array = _array(name, column, values)
    if array.dtype == "M8[us]":
        nat = np.isnat(array)
        if nat.any():
            moments: np.ndarray = ~nat.reshape(rows, -1).any(axis=1)
            valid = moments if valid is None else np.logical_and(valid, moments)
            array = np.where(nat, np.datetime64(0, "us"), array)
    _no_nulls(name, valid, column)
    if array.shape != (rows, *shape):
        raise DataError(
            f"column '{name}': expected rows of shape {list(shape)}, got {list(array.shape[1:])}"
            if array.ndim
            else f"column '{name}': expected {rows} rows, got a single value"
        )
    if valid is not None and not valid.all():
        # Null rows are stored as zeros; a masked array carries whatever was under the mask.
        array = array.copy()
        array[~valid] = np.zeros((), array.dtype)
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8), valid


def _unmask(name: str, values: np.ma.MaskedArray) -> tuple[np.ndarray, np.ndarray | None]:
    import numpy as np

    masked = np.ma.getmaskarray(values).reshape(len(values), -1)
    if (masked.any(axis=1) != masked.all(axis=1)).any():
        raise DataError(f"column '{name}': a row is null as a whole, but only a part of one is masked")
    rows = np.asarray(masked.all(axis=1)) if masked.shape[1] else np.zeros(len(values), bool)
    return values.data, np.logical_not(rows) if rows.any() else None


def _without_none(name: str, column: Column, values: Sequence[Any], valid: np.ndarray) -> list[Any]:
    import numpy as np

    filler: Any
    if column.shape:
        given = next((value for value in values if value is not None), None)
        known = getattr(given, "dtype", None)
        filler = np.zeros([dim or 0 for dim in column.shape], known if isinstance(known, np.dtype) else np.uint8)
    elif column.dtype == "timestamp":
        filler = np.datetime64(0, "us")
    elif column.names is not None:
        filler = column.names[0] if column.names else 0
        if not any(isinstance(value, str) for value in values):
            filler = 0
    else:
        filler = False if column.dtype == "bool" else 0
    return [filler if value is None else value for value in values]


def _array(name: str, column: Column, values: Any) -> np.ndarray:
    """``values`` as an array of the column's dtype, if that loses nothing."""
    import numpy as np

    if type(values).__module__.partition(".")[0] == "torch":
        return _from_torch(name, column, values)
    if isinstance(values, (list, tuple)):
        return _from_list(name, column, values)
    array = np.asarray(values)
    if array.dtype == object or array.dtype.kind in "US":
        return _from_list(name, column, array.tolist())
    return _cast(name, column, array)


def _cast(name: str, column: Column, array: np.ndarray) -> np.ndarray:
    """Casts if every value of the one dtype exists in the other."""
    import numpy as np

    found = str(array.dtype)
    if found == column.dtype:
        return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
    if column.dtype in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
        raise DTypeError(f"column '{name}': expected {column.dtype}, got {found}; convert with ml_dtypes or torch first")
    target = np.dtype("M8[us]" if column.dtype == "timestamp" else column.dtype)
    if column.dtype == "timestamp" and array.dtype == np.int64:
        return array.view(target)
    if array.size == 0 and array.dtype == np.float64:
        return array.astype(target)  # An empty list has no dtype of its own.
    if not np.can_cast(array.dtype, target, "safe") or (target.kind == "M") != (array.dtype.kind == "M"):
        raise DTypeError(
            f"column '{name}': expected {column.dtype}, got {found}, which doesn't fit without loss; "
            f"convert it with .astype('{target}') if you mean it"
        )
    return array.astype(target)


def _from_list(name: str, column: Column, values: Sequence[Any]) -> np.ndarray:
    """An array of a list of arrays, Python numbers, datetimes or class names."""
    import numpy as np

    if values and all(type(value).__module__.partition(".")[0] == "torch" for value in values):
        import torch

        try:
            return _from_torch(name, column, torch.stack(list(values)))
        except RuntimeError as error:
            raise DataError(f"column '{name}': {error}") from None
    if any(isinstance(value, str) for value in values):
        return _cast(name, column, _class_indices(name, column, values))
    if column.dtype == "timestamp":
        return _moments(name, values)
    try:
        array = np.asarray(values)
    except ValueError:
        raise DataError(f"column '{name}': the rows have different shapes; expected {list(column.shape)} in each") from None
    except OverflowError as error:
        raise DataError(f"column '{name}': {error}") from None
    if array.dtype == object:
        if all(isinstance(value, int) for value in values):
            large = max(values, key=abs)
            raise DataError(f"column '{name}': {large} is out of the range of {column.dtype}")
        raise DTypeError(f"column '{name}': expected {column.dtype}, got {_odd_one(values)}")
    if values and all(isinstance(value, (np.ndarray, np.generic)) for value in values):
        return _cast(name, column, array)  # The values have a dtype of their own: it must fit.
    return _from_python_numbers(name, column, array)


def _from_python_numbers(name: str, column: Column, array: np.ndarray) -> np.ndarray:
    """Python's numbers have no width: whole numbers are checked against the range, floats go into any float."""
    import numpy as np

    if column.dtype in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
        if array.dtype.kind not in "iufb":
            raise DTypeError(f"column '{name}': expected {column.dtype}, got {array.dtype}")
        return array.astype(_ml_dtype(name, column.dtype))
    target = np.dtype(column.dtype)
    if array.size == 0 or array.dtype == target:
        return array.astype(target, copy=False)
    if target.kind in "iu" and array.dtype.kind in "iu":
        info = np.iinfo(target)
        low, high = int(array.min()), int(array.max())
        if low < info.min or high > info.max:
            raise DataError(f"column '{name}': {low if low < info.min else high} is out of the range of {target}")
        return array.astype(target)
    if target.kind == "f" and array.dtype.kind in "iuf":
        return array.astype(target)
    return _cast(name, column, array)


def _ml_dtype(name: str, dtype: str) -> Any:
    try:
        import ml_dtypes
    except ImportError:
        raise DTypeError(f"column '{name}': NumPy has no {dtype}: install ml_dtypes, or append torch tensors") from None
    return getattr(ml_dtypes, dtype)


def _from_torch(name: str, column: Column, tensor: Any) -> np.ndarray:
    import torch

    found = str(tensor.dtype).partition(".")[2]
    tensor = tensor.detach().cpu()
    if found == column.dtype and found in _VIEWED_AS:
        bits = tensor.contiguous().view(torch.uint8 if tensor.element_size() == 1 else torch.int16)
        found_bits: np.ndarray = bits.numpy()
        return found_bits
    if found in _VIEWED_AS:
        raise DTypeError(f"column '{name}': expected {column.dtype}, got torch.{found}; convert it with .to() if you mean it")
    return _cast(name, column, tensor.numpy())


def _class_indices(name: str, column: Column, values: Sequence[Any]) -> np.ndarray:
    import numpy as np

    names = column.names
    if names is None:
        text = next(value for value in values if isinstance(value, str))
        raise DTypeError(f"column '{name}': expected {column.dtype}, got the text {text[:40]!r}")
    index = {text: number for number, text in enumerate(names)}
    try:
        numbers = [index[value] if isinstance(value, str) else int(value) for value in values]
    except KeyError as error:
        raise DataError(f"column '{name}': no class is named {error.args[0]!r}; the classes are {', '.join(names[:20])}") from None
    return _from_python_numbers(name, column, np.asarray(numbers, np.int64))


def _moments(name: str, values: Sequence[Any]) -> np.ndarray:
    import datetime

    import numpy as np

    def moment(value: Any) -> Any:
        if isinstance(value, datetime.datetime) and value.tzinfo is not None:
            return value.astimezone(datetime.timezone.utc).replace(tzinfo=None)
        return value

    try:
        array = np.asarray([moment(value) for value in values])
        if array.dtype.kind in "iu":
            return array.astype(np.int64).view("M8[us]")
        if array.dtype.kind == "O" or array.dtype.kind == "M":
            return array.astype("M8[us]", casting="safe" if array.dtype.kind == "M" else "unsafe")
    except (TypeError, ValueError):
        pass
    if not len(values):
        return np.empty(0, "M8[us]")
    raise DTypeError(f"column '{name}': expected datetimes, datetime64 of at most microseconds, or whole numbers of microseconds")


def _odd_one(values: Sequence[Any]) -> str:
    import numbers

    odd = next((value for value in values if not isinstance(value, (numbers.Number, list, tuple))), values[0])
    return f"a {type(odd).__name__}"


# Rows of different lengths


def _layout(lengths: np.ndarray) -> np.ndarray:
    import numpy as np

    offsets = np.zeros(len(lengths) + 1, np.uint64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def _variable(name: str, column: Column, values: Any) -> Encoded:
    """Texts, bytes, documents and links."""
    import numpy as np

    if isinstance(values, (str, bytes, bytearray, memoryview, Mapping)):
        raise DataError(f"column '{name}': expected one value for each row, got a single {type(values).__name__}")
    if isinstance(values, np.ma.MaskedArray):
        values, valid = values.tolist(), None
    elif isinstance(values, np.ndarray):
        values, valid = values.tolist(), None
    else:
        values, valid = list(values), None
    # None is a document of its own kind unless it can be a null.
    if any(value is None for value in values) and not (column.dtype == "json" and not column.nullable):
        valid = np.fromiter((value is not None for value in values), bool, len(values))
        _no_nulls(name, valid, column)
    encode: Callable[[str, int, Any], bytes]
    if column.dtype == "link":
        base = column.metadata.get("base")
        encode = lambda name, row, value: _link(name, row, value, base)  # noqa: E731
    else:
        encode = {"utf8": _text, "bytes": _bytes, "json": _document}[column.dtype]
    parts = [b"" if value is None and valid is not None else encode(name, row, value) for row, value in enumerate(values)]
    lengths = np.fromiter((len(part) for part in parts), np.uint64, len(parts))
    joined = np.frombuffer(b"".join(parts), np.uint8)
    return _layout(lengths), None, joined, valid


def _text(name: str, row: int, value: Any) -> bytes:
    if not isinstance(value, str):
        raise DTypeError(f"column '{name}': expected a text in row {row} of the batch, got {type(value).__name__}")
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise DataError(f"column '{name}': row {row} of the batch is not valid text: {error}") from None


def _bytes(name: str, row: int, value: Any) -> bytes:
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise DTypeError(f"column '{name}': expected bytes in row {row} of the batch, got {type(value).__name__}")
    return bytes(value)


def _link(name: str, row: int, value: Any, base: str | None) -> bytes:
    if not isinstance(value, Link):
        raise DTypeError(f"column '{name}': expected a forebay.Link in row {row} of the batch, got {type(value).__name__}")
    return bytes(value._encode(base))


def _document(name: str, row: int, value: Any) -> bytes:
    try:
        if isinstance(value, (bytes, bytearray)):
            json.loads(value)
            return bytes(value)
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except TypeError as error:
        raise DTypeError(f"column '{name}': row {row} of the batch can't be written as JSON: {error}") from None
    except ValueError as error:
        raise DataError(f"column '{name}': row {row} of the batch is not JSON: {error}") from None


def _ragged(name: str, column: Column, values: Any) -> Encoded:
    """Arrays, each with lengths of its own where the column's shape has None."""
    import numpy as np

    rank = len(column.shape)
    valid = None
    if isinstance(values, np.ndarray) and values.dtype != object:
        values = list(values)
    if any(value is None for value in values):
        valid = np.fromiter((value is not None for value in values), bool, len(values))
        _no_nulls(name, valid, column)
    convert: Callable[[Any], np.ndarray] = lambda value: _array(name, column, value)  # noqa: E731
    arrays = []
    shapes = np.zeros((len(values), rank), np.uint32)
    for row, value in enumerate(values):
        if value is None:
            continue
        array = convert(value)
        if array.shape == (0,) and rank > 1:
            array = array.reshape([dim or 0 for dim in column.shape])  # [] is an empty row of any rank.
        fits = array.ndim == rank and all(dim is None or dim == length for dim, length in zip(column.shape, array.shape))
        if not fits:
            wanted = ["?" if dim is None else dim for dim in column.shape]
            raise DataError(
                f"column '{name}': expected shape [{', '.join(map(str, wanted))}] in row {row} of the batch, "
                f"got {list(array.shape)}"
            )
        shapes[row] = array.shape
        arrays.append(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
    lengths = np.zeros(len(values), np.uint64)
    lengths[slice(None) if valid is None else valid] = [len(array) for array in arrays]
    joined = np.concatenate(arrays) if arrays else np.empty(0, np.uint8)
    return _layout(lengths), shapes.reshape(-1), joined, valid
