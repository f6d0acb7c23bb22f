"""Columns with a meaning: short ways to write the common ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ._errors import SchemaError
from ._schema import Column

_ENCODINGS = ("raw", "jpeg", "png", "webp", "mixed")


def Image(
    shape: Sequence[int | None] | None = None,
    *,
    encoding: str = "raw",
    layout: str = "HWC",
    dtype: Any = "uint8",
    **options: Any,
) -> Column:
    """Images: pixels, or encoded files.

    Parameters
    ----------
    shape : sequence of int or None, optional
        Shape of one raw image in the order of ``layout``. By default any height and width and 3 channels.
    encoding : {"raw", "jpeg", "png", "webp", "mixed"}
        "raw" holds pixels; the others hold the bytes of encoded files, untouched.
    layout : {"HWC", "CHW"}
        Order of the dimensions of raw images, or of decoded ones.
    dtype
        dtype of raw pixels.
    **options
        As of :class:`Column`.
    """
    if encoding not in _ENCODINGS:
        raise SchemaError(f"unknown encoding '{encoding}': use one of {', '.join(_ENCODINGS)}")
    if layout not in ("HWC", "CHW"):
        raise SchemaError(f"unknown layout '{layout}': use HWC or CHW")
    if encoding != "raw":
        if shape is not None:
            raise SchemaError(f"encoded images ({encoding}) have no fixed shape: leave it out")
        return Column("bytes", kind="image", encoding=encoding, layout=layout, **options)
    if shape is None:
        shape = (None, None, 3) if layout == "HWC" else (3, None, None)
    return Column(dtype, shape, kind="image", encoding="raw", layout=layout, **options)


def ClassLabel(names: Sequence[str] | None = None, *, dtype: Any = "int64", **options: Any) -> Column:
    """Class labels: whole numbers, with the names of the classes if there are any.

    With ``names``, ``append`` also takes names and stores their index.
    """
    if names is None:
        return Column(dtype, kind="label", **options)
    names = list(names)
    if len(set(names)) != len(names):
        raise SchemaError("two classes have the same name")
    return Column(dtype, kind="label", names=names, **options)


def Embedding(n: int, *, dtype: Any = "float32", **options: Any) -> Column:
    """Vectors of ``n`` numbers."""
    return Column(dtype, (n,), kind="embedding", **options)


def Tensor(shape: Sequence[int | None], *, dtype: Any = "float32", **options: Any) -> Column:
    """Arrays of this shape; None is a dimension whose length each row chooses."""
    return Column(dtype, shape, **options)


def Boxes(*, format: str = "xyxy", dtype: Any = "float32", **options: Any) -> Column:
    """Bounding boxes, any number a row: ``[?, 4]`` in the order of ``format`` ("xyxy", "xywh" or "cxcywh")."""
    if format not in ("xyxy", "xywh", "cxcywh"):
        raise SchemaError(f"unknown format of boxes '{format}': use xyxy, xywh or cxcywh")
    return Column(dtype, (None, 4), kind="boxes", format=format, **options)


def Mask(shape: Sequence[int | None] = (None, None), *, dtype: Any = "uint8", **options: Any) -> Column:
    """Segmentation masks."""
    return Column(dtype, shape, kind="mask", **options)


def Text(**options: Any) -> Column:
    """Texts of any length."""
    return Column("utf8", kind="text", **options)


def Bytes(**options: Any) -> Column:
    """Bytes of any length."""
    return Column("bytes", **options)


def Json(**options: Any) -> Column:
    """JSON documents: dicts, lists, numbers, texts. Bytes are taken as a document that is encoded already."""
    return Column("json", kind="json", **options)


def Links(base: str | None = None, **options: Any) -> Column:
    """Links to bytes that aren't in the lake: values are :class:`Link`. Loaders deliver what they lead to.

    Parameters
    ----------
    base : str, optional
        A URL or an absolute path: links below it are stored without it.
    **options
        As of :class:`Column`; ``kind`` and its metadata say what the links lead to: ``kind="image", encoding="jpeg"``.
    """
    return Column("link", **options) if base is None else Column("link", base=base, **options)


def Timestamp(**options: Any) -> Column:
    """Moments, in microseconds since 1970 UTC: ``datetime``, ``numpy.datetime64`` or whole numbers."""
    return Column("timestamp", **options)
