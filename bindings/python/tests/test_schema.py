"""Schemas: what can be written, and that it comes back."""

from __future__ import annotations

import numpy as np
import pytest

import forebay as fb


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ("uint8[3,224,224]", "uint8[3,224,224]"),
        ("int64", "int64"),
        ("float32[?,4]", "float32[?,4]"),
        ("float32[ ? , 4 ]?", "float32[?,4]?"),
        ("utf8?", "utf8?"),
        ("str", "utf8"),
        (str, "utf8"),
        (bytes, "bytes"),
        (dict, "json"),
        (int, "int64"),
        (float, "float64"),
        (bool, "bool"),
        (np.uint16, "uint16"),
        (np.dtype("float16"), "float16"),
        (np.dtype("datetime64[us]"), "timestamp"),
        ("bfloat16[768]", "bfloat16[768]"),
        ("float8_e5m2[2]", "float8_e5m2[2]"),
        (fb.Image((3, 8, 8), layout="CHW"), "uint8[3,8,8]"),
        (fb.Image(), "uint8[?,?,3]"),
        (fb.Image(encoding="jpeg"), "bytes"),
        (fb.ClassLabel(["a", "b"], dtype="uint8"), "uint8"),
        (fb.Embedding(16), "float32[16]"),
        (fb.Boxes(), "float32[?,4]"),
        (fb.Mask((8, 8)), "uint8[8,8]"),
        (fb.Tensor((None, 3), dtype="int16", nullable=True), "int16[?,3]?"),
        (fb.Text(), "utf8"),
        (fb.Bytes(), "bytes"),
        (fb.Json(), "json"),
        (fb.Timestamp(), "timestamp"),
    ],
)
def test_every_way_to_write_a_column_says_what_it_means(spec: object, text: str) -> None:
    assert str(fb.Schema({"x": spec})["x"]) == text


def test_torch_dtypes_are_dtypes() -> None:
    import torch

    assert str(fb.Column(torch.bfloat16, (4,))) == "bfloat16[4]"


@pytest.mark.parametrize(
    "spec", ["uint7", "uint8[", "uint8[3,x]", "uint8[-1]", "", object(), fb, "float32[4"]
)
def test_a_malformed_column_is_a_schema_error_that_names_it(url: str, spec: object) -> None:
    with pytest.raises(fb.SchemaError, match="weight"):
        fb.create(url, {"weight": spec})


@pytest.mark.parametrize("compression", ["gzip", "zstd:99", "zstd:x", "lz4:3"])
def test_an_unknown_compression_is_a_schema_error(url: str, compression: str) -> None:
    with pytest.raises(fb.SchemaError):
        fb.create(url, {"x": fb.Column("uint8[4]", compression=compression)})


def test_a_byte_shuffle_without_a_codec_is_a_schema_error(url: str) -> None:
    with pytest.raises(fb.SchemaError, match="codec"):
        fb.create(url, {"x": fb.Column("float32[4]", byte_shuffle=True)})


def test_a_table_without_columns_is_a_schema_error(url: str) -> None:
    with pytest.raises(fb.SchemaError):
        fb.create(url, {})


def test_a_schema_comes_back_as_it_was_written(url: str) -> None:
    schema = {
        "image": fb.Image((3, 8, 8), layout="CHW", compression="zstd:5", byte_shuffle=True),
        "label": fb.ClassLabel(["cat", "dog"]),
        "boxes": fb.Boxes(format="xywh", nullable=True),
        "vector": fb.Embedding(7, dtype="bfloat16", compression="lz4"),
        "note": fb.Column("utf8", kind="my-own", origin="camera", depth=3),
    }
    fb.create(url, schema)
    read = fb.open(url).schema
    assert list(read) == list(schema)
    for name, column in schema.items():
        assert read[name] == column
    assert read["label"].names == ["cat", "dog"]
    assert read["note"].metadata == {"origin": "camera", "depth": "3"}


def test_shape_given_twice_is_a_schema_error() -> None:
    with pytest.raises(fb.SchemaError, match="twice"):
        fb.Column("uint8[3]", (3,))


def test_reprs_say_what_things_are(photos: fb.Dataset) -> None:
    assert "500 rows" in repr(photos) and "uint8[3,16,16]" in repr(photos)
    assert "image" in str(photos.schema)
    assert "uint8" in repr(photos["image"])
    assert "label" in repr(photos.schema["label"])
