"""Columns and schemas: dtype, shape, storage and meaning."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Union

from ._errors import SchemaError

if TYPE_CHECKING:
    ColumnSpec = Union[str, type, "Column", Any]
    NativeColumn = tuple[
        str, str, "list[int | None]", bool, "str | None", int, bool, str, "dict[str, str]"
    ]

#: The names of the dtypes, in the order of the format.
DTYPES = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "bfloat16",
    "float32", "float64", "float8_e4m3fn", "float8_e5m2", "utf8", "bytes", "json", "timestamp", "link",
)  # fmt: skip

_ALIASES = {"str": "utf8", "string": "utf8", "text": "utf8", "datetime64[us]": "timestamp", "object": ""}
_PYTHON_TYPES = {bool: "bool", int: "int64", float: "float64", str: "utf8", bytes: "bytes", dict: "json"}
_DEFAULT_ZSTD_LEVEL = 3


def _dtype_name(dtype: Any) -> str:
    """The format's name of a dtype given as a name, a Python type, or a NumPy, ml_dtypes or torch dtype."""
    if not isinstance(dtype, str):
        if isinstance(dtype, type) and dtype in _PYTHON_TYPES:
            return _PYTHON_TYPES[dtype]
        text = str(dtype)
        if text.startswith("torch."):
            dtype = text[len("torch.") :]
        else:
            import numpy as np

            try:
                dtype = str(np.dtype(dtype))
            except TypeError:
                raise SchemaError(f"{dtype!r} is not a dtype") from None
    name: str = _ALIASES.get(dtype, dtype)
    if dtype[:2] in ("<U", "|S"):
        name = "utf8" if dtype[1] == "U" else "bytes"
    if name not in DTYPES:
        raise SchemaError(f"unknown dtype '{dtype}'; the dtypes are {', '.join(DTYPES)}")
    return name


def _parse(text: str) -> tuple[str, tuple[int | None, ...], bool]:
    """Splits ``"float32[?,4]?"`` into dtype, shape and nullability."""
    spec = text.strip()
    nullable = spec.endswith("?")
    if nullable:
        spec = spec[:-1].rstrip()
    if spec in _ALIASES or "[" not in spec:
        return _dtype_name(spec), (), nullable
    name, _, dims = spec.partition("[")
    if not dims.endswith("]"):
        raise SchemaError(f"'{text}' is not a column: expected 'dtype' or 'dtype[3,224,?]'")
    shape: list[int | None] = []
    for dim in dims[:-1].split(","):
        dim = dim.strip()
        if dim == "?":
            shape.append(None)
        elif dim.isdecimal():
            shape.append(int(dim))
        elif dim or dims != "]":
            raise SchemaError(f"'{text}' is not a column: '{dim}' is not a length; write a number, or ? for any length")
    return _dtype_name(name.strip()), tuple(shape), nullable


class Column:
    """What a column holds and how it is stored.

    Parameters
    ----------
    dtype : str, type or dtype
        A name (``"uint8"``, ``"bfloat16"``, ``"utf8"``, ``"bytes"``, ``"json"``, ``"timestamp"``, ``"link"``), which may carry the shape and
        a ``?`` for nullable (``"float32[?,4]?"``); or a Python type, or a NumPy, ml_dtypes or torch dtype.
    shape : sequence of int or None, optional
        The shape of one row; None is a dimension whose length each row chooses.
    nullable : bool
        Whether rows may be None.
    compression : {None, "lz4", "zstd", "zstd:1" ... "zstd:19"}
        None stores the rows as they are, which the loaders deliver fastest.
    byte_shuffle : bool
        Whether the bytes of the elements are transposed before compression. Helps with numbers that change little.
    kind : str, optional
        What the column means (``"image"``, ``"label"``, ``"embedding"``, or a name of your own).
    **metadata
        What is to be remembered with the kind. Values are kept as text; anything but a text as JSON.

    Raises
    ------
    forebay.SchemaError
        If a part is malformed.
    """

    __slots__ = ("byte_shuffle", "compression", "dtype", "kind", "metadata", "nullable", "shape")

    dtype: str
    shape: tuple[int | None, ...]
    nullable: bool
    compression: str | None
    byte_shuffle: bool
    kind: str
    metadata: Mapping[str, str]

    def __init__(
        self,
        dtype: Any,
        shape: Sequence[int | None] | None = None,
        *,
        nullable: bool = False,
        compression: str | None = None,
        byte_shuffle: bool = False,
        kind: str | None = None,
        **metadata: Any,
    ) -> None:
        name, parsed, optional = _parse(dtype) if isinstance(dtype, str) else (_dtype_name(dtype), (), False)
        if shape is not None and parsed:
            raise SchemaError(f"the shape is given twice: {dtype!r} and {shape!r}")
        dims = parsed if shape is None else tuple(shape)
        for dim in dims:
            if dim is not None and (isinstance(dim, bool) or not isinstance(dim, int) or dim < 0):
                raise SchemaError(f"{dims!r} is not a shape: a dimension is a length, or None for any length")
        self.dtype = name
        self.shape = dims
        self.nullable = nullable or optional
        self.compression = _compression(compression)
        self.byte_shuffle = byte_shuffle
        self.kind = kind or ""
        self.metadata = {key: value if isinstance(value, str) else json.dumps(value) for key, value in metadata.items()}

    @property
    def names(self) -> list[str] | None:
        """The names of the classes, for a column of kind ``label`` that has them."""
        text = self.metadata.get("names")
        return None if text is None else json.loads(text)

    def _native(self, name: str) -> NativeColumn:
        codec, _, level = (self.compression or "").partition(":")
        return (
            name, self.dtype, list(self.shape), self.nullable, codec or None, int(level or 0), self.byte_shuffle,
            self.kind, dict(self.metadata),
        )  # fmt: skip

    @classmethod
    def _from_native(cls, column: NativeColumn) -> Column:
        _, dtype, shape, nullable, codec, level, byte_shuffle, kind, metadata = column
        compression = f"zstd:{level}" if codec == "zstd" else codec
        made = cls(dtype, shape, nullable=nullable, compression=compression, byte_shuffle=byte_shuffle, kind=kind)
        made.metadata = metadata
        return made

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Column):
            return NotImplemented
        return all(getattr(self, part) == getattr(other, part) for part in Column.__slots__)

    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        dims = f"[{','.join('?' if dim is None else str(dim) for dim in self.shape)}]" if self.shape else ""
        return f"{self.dtype}{dims}{'?' if self.nullable else ''}"

    def __repr__(self) -> str:
        parts = [repr(str(self))]
        if self.compression is not None:
            parts.append(f"compression={self.compression!r}")
        if self.byte_shuffle:
            parts.append("byte_shuffle=True")
        if self.kind:
            parts.append(f"kind={self.kind!r}")
        parts += [f"{key}={value if len(value) < 60 else value[:57] + '...'!r}" for key, value in self.metadata.items()]
        return f"Column({', '.join(parts)})"


def _compression(text: str | None) -> str | None:
    if text is None or text in ("none", ""):
        return None
    codec, colon, level = text.partition(":")
    if codec == "lz4" and not colon:
        return "lz4"
    if codec == "zstd" and (not colon or level.isdecimal()):
        return f"zstd:{level or _DEFAULT_ZSTD_LEVEL}"
    raise SchemaError(f"unknown compression '{text}': use None, 'lz4', 'zstd' or 'zstd:LEVEL' with a level of 1 to 19")


class Schema(Mapping[str, Column]):
    """The columns of a table by name, in order. Immutable."""

    __slots__ = ("_columns", "_documents")

    def __init__(self, columns: Mapping[str, ColumnSpec] | Iterable[tuple[str, ColumnSpec]]) -> None:
        made: dict[str, Column] = {}
        for name, spec in columns.items() if isinstance(columns, Mapping) else columns:
            if not isinstance(name, str):
                raise SchemaError(f"a column's name is a text, not {name!r}")
            if name in made:
                raise SchemaError(f"column '{name}' is given twice")
            try:
                made[name] = spec if isinstance(spec, Column) else Column(spec)
            except SchemaError as error:
                raise SchemaError(f"column '{name}': {error}") from None
        self._columns = made
        self._documents = [name for name, column in made.items() if column.dtype == "json"]

    def __getitem__(self, name: str) -> Column:
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def __repr__(self) -> str:
        return "Schema({" + ", ".join(f"{name!r}: {column!r}" for name, column in self._columns.items()) + "})"

    def __str__(self) -> str:
        return "\n".join(f"{name}: {column}" for name, column in self._columns.items())

    def _native(self) -> list[NativeColumn]:
        return [column._native(name) for name, column in self._columns.items()]

    @classmethod
    def _from_native(cls, columns: Iterable[NativeColumn]) -> Schema:
        return cls([(column[0], Column._from_native(column)) for column in columns])
