"""Forebay: versioned tensor tables on object storage, streamed to PyTorch and NumPy at the rate of the link.

>>> import forebay as fb
>>> import numpy as np
>>> ds = fb.create("memory://readme", {"image": "uint8[8,8]", "label": fb.ClassLabel(["cat", "dog"])})
>>> ds.append({"image": np.zeros((3, 8, 8), np.uint8), "label": ["cat", "dog", "cat"]})
>>> _ = ds.commit("three pictures")
>>> len(ds), ds[1]["label"].item()
(3, 1)

Importing this imports neither NumPy nor PyTorch: they are imported when they are needed.
"""

from __future__ import annotations

from typing import Any

from . import _forebay
from ._errors import (
    AccessError,
    AgreementError,
    ArgumentError,
    ClosedError,
    ConflictError,
    CorruptError,
    DataError,
    DTypeError,
    Error,
    ExistsError,
    InternalError,
    LinkError,
    LoaderError,
    MissingPackageError,
    NotFoundError,
    NothingToCommitError,
    ReadOnlyError,
    SchemaError,
    SqlError,
    StateError,
    StorageError,
    TransformError,
    UncommittedError,
    UnknownColumnError,
    UnknownTableError,
    UnknownVersionError,
    UnsupportedError,
)
from ._dataset import Dataset, create, open
from ._history import Commit, Merge
from ._keep import Assessment, BranchState, Loss, Pin, Purge, RowChanges, clone
from ._forebay import Link
from ._links import find_links
from ._kinds import Boxes, Bytes, ClassLabel, Embedding, Image, Json, Links, Mask, Tensor, Text, Timestamp
from ._ragged import Ragged
from ._rows import ColumnRows, Rows, View
from ._schema import Column, Schema
from ._sql import Lake, Result, connect

__version__: str = _forebay.__version__

__all__ = [
    "AccessError",
    "AgreementError",
    "ArgumentError",
    "Assessment",
    "Boxes",
    "BranchState",
    "Buckets",
    "Buffer",
    "Bytes",
    "ClassLabel",
    "ClosedError",
    "Column",
    "ColumnRows",
    "Commit",
    "ConflictError",
    "CorruptError",
    "DTypeError",
    "DataError",
    "Dataset",
    "Embedding",
    "Error",
    "ExistsError",
    "Feed",
    "Image",
    "InternalError",
    "Json",
    "Lake",
    "Link",
    "LinkError",
    "Links",
    "LoaderError",
    "Loss",
    "Mask",
    "Merge",
    "MissingPackageError",
    "Mix",
    "NotFoundError",
    "NothingToCommitError",
    "NumpyLoader",
    "Pack",
    "Pad",
    "Ragged",
    "Pin",
    "Purge",
    "ReadOnlyError",
    "Result",
    "RowChanges",
    "Rows",
    "Schema",
    "SchemaError",
    "SqlError",
    "StateError",
    "StorageError",
    "Tensor",
    "Text",
    "Timestamp",
    "Tokens",
    "TorchLoader",
    "TorchRows",
    "TransformError",
    "UncommittedError",
    "UnknownColumnError",
    "UnknownTableError",
    "UnknownVersionError",
    "UnsupportedError",
    "View",
    "Weighted",
    "Window",
    "clone",
    "connect",
    "create",
    "feed",
    "find_links",
    "gpu",
    "mix",
    "open",
    "transforms",
]

_LATER = {
    "Buckets": "_buckets", "Buffer": "_orders", "Feed": "_feed", "Mix": "_mix", "NumpyLoader": "_loader", "Pack": "_collate", "Pad": "_collate", "Tokens": "_buckets", "TorchLoader": "_torch", "TorchRows": "_torch",
    "Weighted": "_orders", "Window": "_orders", "feed": "_feed", "gpu": "gpu", "mix": "_mix", "transforms": "transforms",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    module = _LATER.get(name)
    if module is None:
        raise AttributeError(f"module 'forebay' has no attribute '{name}'")
    import importlib

    found = importlib.import_module(f"forebay.{module}")
    value = found if name == module else getattr(found, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
