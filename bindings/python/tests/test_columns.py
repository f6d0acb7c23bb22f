"""Loading texts, bytes, JSON, ragged tensors, nulls and moments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from test_read import mixed, same

import forebay as fb


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
@pytest.mark.parametrize("shuffle", [False, True, "global"], ids=str)
@pytest.mark.parametrize("kind", ["pytorch", "numpy"])
def test_every_kind_of_column_is_loaded_as_it_was_appended(url: str, compression: Any, shuffle: Any, kind: str) -> None:
    ds, values = mixed(url, compression)
    with_rows = ds.select(slice(None))
    order = []
    for batch in getattr(with_rows, kind)(batch_size=48, shuffle=shuffle):
        rows = [doc["i"] for doc in batch["doc"]]
        order += rows
        assert batch["text"] == [values["text"][row] for row in rows]
        assert batch["text_valid"].tolist() == [values["text"][row] is not None for row in rows]
        assert batch["blob"] == [values["blob"][row] for row in rows]
        assert batch["doc"] == [values["doc"][row] for row in rows]
        assert batch["maybe"].tolist() == [values["maybe"][row] or 0 for row in rows]
        assert batch["maybe_valid"].tolist() == [values["maybe"][row] is not None for row in rows]
        assert isinstance(batch["ragged"], fb.Ragged)
        assert all(same(np.asarray(found), values["ragged"][row]) for found, row in zip(batch["ragged"].rows(), rows))
        assert all(same(np.asarray(found), values["fixed"][row]) for found, row in zip(batch["fixed"], rows))
        assert "doc_valid" not in batch and "fixed_valid" not in batch
    assert sorted(order) == list(range(200))


def test_masks_and_ragged_parts_have_stated_types(url: str) -> None:
    ds, _ = mixed(url)
    batch = next(iter(ds.pytorch(batch_size=10)))
    assert batch["maybe_valid"].dtype == torch.bool
    values, offsets, shapes = batch["ragged"]
    assert values.dtype == torch.int32 and values.ndim == 1
    assert offsets.dtype == torch.int64 and offsets.shape == (11,) and int(offsets[-1]) == len(values)
    assert shapes.dtype == torch.int64 and shapes.shape == (10, 2)
    assert batch["ragged"].row(-1).shape == tuple(shapes[9])
    assert batch["ragged"].row(3).data_ptr() >= values.data_ptr()
    with pytest.raises(IndexError):
        batch["ragged"].row(10)


def test_rows_that_differ_in_their_first_dimension_are_a_nested_tensor(url: str) -> None:
    ds, values = mixed(url)
    ragged = next(iter(ds.pytorch(batch_size=20)))["ragged"]
    nested = ragged.nested()
    assert nested.is_nested
    assert all(np.array_equal(part.numpy(), wanted) for part, wanted in zip(nested.unbind(), values["ragged"]))
    with pytest.raises(TypeError):
        next(iter(ds.numpy(batch_size=20)))["ragged"].nested()


def test_rows_that_differ_elsewhere_are_no_nested_tensor(url: str) -> None:
    ds = fb.create(url, {"x": "uint8[?,?]"})
    ds.append({"x": [np.zeros((1, 2), np.uint8), np.zeros((1, 3), np.uint8)]})
    ds.commit()
    with pytest.raises(ValueError, match="first dimension"):
        next(iter(ds.pytorch(batch_size=2)))["x"].nested()


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float16"])
def test_low_floats_are_torch_tensors_of_that_dtype(url: str, name: str) -> None:
    dtype = getattr(torch, name)
    rows = torch.linspace(-4, 4, 60).reshape(20, 3).to(dtype)
    ds = fb.create(url, {"x": f"{name}[3]", "s": name, "n": f"{name}?"})
    ds.append({"x": rows, "s": rows[:, 0].contiguous(), "n": rows[:, 1].contiguous()})
    ds.commit()
    for batch in ds.pytorch(batch_size=8, shuffle=True, columns=["x", "s", "n"]):
        assert batch["x"].dtype == batch["s"].dtype == batch["n"].dtype == dtype
        assert torch.equal(batch["x"][:, 0].float(), batch["s"].float())
    samples = ds.pytorch()
    assert samples[3]["x"].dtype == dtype and torch.equal(samples[3]["x"].float(), rows[3].float())


def test_moments_are_microseconds_for_torch_and_datetime64_for_numpy(url: str) -> None:
    moments = np.array(["2024-01-01T00:00:00.000001", "1969-12-31"], "datetime64[us]")
    ds = fb.create(url, {"t": "timestamp"})
    ds.append({"t": moments})
    ds.commit()
    assert next(iter(ds.pytorch(batch_size=2)))["t"].tolist() == moments.view(np.int64).tolist()
    assert np.array_equal(next(iter(ds.numpy(batch_size=2)))["t"], moments)
    assert ds["t"][0] == moments[0]


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "uint32", "uint64", "float64"])
def test_other_numbers_keep_their_dtype(url: str, dtype: str) -> None:
    values = np.array([0, 1, 1, 0]).astype(dtype)
    ds = fb.create(url, {"x": dtype})
    ds.append({"x": values})
    ds.commit()
    batch = next(iter(ds.pytorch(batch_size=4)))
    assert str(batch["x"].dtype) == f"torch.{dtype}" and np.array_equal(batch["x"].numpy(), values)
