"""Appending: what is taken, how it is converted, and what is refused."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pytest
import torch

import forebay as fb


def stored(url: str, spec: object, values: object) -> object:
    """Column ``x`` after values were appended and committed."""
    ds = fb.create(url, {"x": spec})
    ds.append({"x": values})
    ds.commit()
    return fb.open(url)["x"][:]


NUMBERS = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64"]


@pytest.mark.parametrize("dtype", NUMBERS)
def test_arrays_of_every_dtype_come_back_bit_for_bit(url: str, dtype: str) -> None:
    bits = np.random.default_rng(1).integers(0, 256, (50, 24), dtype=np.uint8)
    values = (bits % 2 == 0) if dtype == "bool" else bits.view(dtype)
    back = stored(url, f"{dtype}[{values.shape[1]}]", values)
    assert back.dtype == dtype
    assert back.tobytes() == values.tobytes()


@pytest.mark.parametrize("compression", [None, "lz4", "zstd", "zstd:9"])
@pytest.mark.parametrize("byte_shuffle", [False, True])
def test_compressed_columns_come_back_the_same(url: str, compression: str | None, byte_shuffle: bool) -> None:
    values = np.cumsum(np.ones((3000, 10)), axis=0).astype(np.float32)
    column = fb.Column("float32[10]", compression=compression, byte_shuffle=byte_shuffle and compression is not None)
    back = stored(url, column, values)
    assert np.array_equal(back, values)


def test_strided_and_foreign_endian_arrays_are_taken(url: str) -> None:
    values = np.arange(100, dtype=">i4").reshape(10, 10).T[::2]
    assert np.array_equal(stored(url, "int32[10]", values), values)


def test_dtypes_that_fit_without_loss_are_converted(url: str) -> None:
    assert stored(url, "int64", np.arange(5, dtype=np.uint8)).tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        ("uint8[2]", np.zeros((3, 2), np.int64)),
        ("float32", np.zeros(3)),
        ("int32", np.zeros(3, np.float32)),
        ("int32", [0.5]),
        ("int64", ["a"]),
        ("int64", [b"a"]),
        ("int64", [object()]),
        ("utf8", [1]),
        ("utf8", [b"bytes"]),
        ("bytes", ["text"]),
        ("json", [{1, 2}]),
        ("bfloat16", np.zeros(3, np.float32)),
        ("timestamp", np.zeros(2, np.float64)),
        ("timestamp", np.zeros(2, "datetime64[ns]")),
        ("int64", torch.zeros(3)),
    ],
)
def test_a_dtype_that_does_not_fit_is_a_type_error(url: str, dtype: str, values: object) -> None:
    ds = fb.create(url, {"x": dtype})
    with pytest.raises(fb.DTypeError, match="'x'") as raised:
        ds.append({"x": values})
    assert isinstance(raised.value, TypeError)
    assert ds.pending == 0


@pytest.mark.parametrize(
    ("dtype", "values", "says"),
    [
        ("uint8[3,4]", np.zeros((5, 3, 5), np.uint8), "shape"),
        ("uint8[3,4]", np.zeros((5, 12), np.uint8), "shape"),
        ("uint8[3]", [[1, 2, 3], [1, 2]], "shape"),
        ("float32[?,4]", [np.zeros((2, 4), np.float32), np.zeros((2, 5), np.float32)], "row 1"),
        ("float32[?,4]", [np.zeros(4, np.float32)], "row 0"),
        ("uint8", [1, 256], "256"),
        ("uint8", [-1], "-1"),
        ("int64", [2**70], "x"),
        ("int64", [1, None], "not nullable"),
        ("utf8", ["a", None], "not nullable"),
        ("int64", 5, "each row"),
        ("utf8", "abc", "each row"),
        ("utf8", ["\ud800"], "text"),
        ("json", [float("nan")], "JSON"),
        ("json", [b"{"], "JSON"),
        ("int64", np.ma.MaskedArray([1, 2], [False, True]), "not nullable"),
    ],
)
def test_values_that_do_not_fit_are_a_value_error(url: str, dtype: str, values: object, says: str) -> None:
    ds = fb.create(url, {"x": dtype})
    with pytest.raises(fb.DataError, match=says) as raised:
        ds.append({"x": values})
    assert isinstance(raised.value, ValueError)
    assert ds.pending == 0


def test_columns_of_different_lengths_are_refused_with_both_names(url: str) -> None:
    ds = fb.create(url, {"a": "int64", "b": "int64"})
    with pytest.raises(fb.DataError, match="'b' has 3 rows, column 'a' has 2"):
        ds.append({"a": [1, 2], "b": [1, 2, 3]})


def test_an_unknown_or_missing_column_is_refused_by_name(url: str) -> None:
    ds = fb.create(url, {"a": "int64", "b": "int64"})
    with pytest.raises(KeyError, match="no column 'c'; the table has a, b"):
        ds.append({"a": [1], "b": [1], "c": [1]})
    with pytest.raises(fb.DataError, match="'b'"):
        ds.append({"a": [1]})
    with pytest.raises(fb.DataError):
        ds.append([1, 2])  # type: ignore[arg-type]


def test_a_refused_batch_leaves_earlier_ones_as_they_were(url: str) -> None:
    ds = fb.create(url, {"a": "int64"})
    ds.append({"a": [1, 2]})
    with pytest.raises(fb.DTypeError):
        ds.append({"a": ["x"]})
    ds.append({"a": [3]})
    assert ds.pending == 3
    ds.commit()
    assert ds["a"][:].tolist() == [1, 2, 3]


def test_nulls_in_every_kind_of_column(url: str) -> None:
    ds = fb.create(url, {"n": "int32[2]?", "t": "utf8?", "r": "float32[?]?", "j": "json?", "b": "bytes?", "ts": "timestamp?", "x": "int8?"})
    ds.append({
        "n": [[1, 2], None, [3, 4]],
        "t": ["a", None, ""],
        "r": [np.ones(2, np.float32), None, np.zeros(0, np.float32)],
        "j": [{"k": 1}, None, 0],
        "b": [None, b"", b"x"],
        "ts": np.array(["2020-01-01", "NaT", "2021-01-01"], "datetime64[us]"),
    })  # fmt: skip
    ds.commit()
    row = ds[1]
    assert [row[name] for name in ("n", "t", "r", "j", "ts", "x")] == [None] * 6
    assert row["b"] == b""
    n = ds["n"][:]
    assert isinstance(n, np.ma.MaskedArray)
    assert n.mask.tolist() == [[False] * 2, [True] * 2, [False] * 2]
    assert n.data.tolist() == [[1, 2], [0, 0], [3, 4]]
    assert ds["t"][:] == ["a", None, ""]
    assert ds["j"][:] == [{"k": 1}, None, 0]
    assert ds["r"][2].shape == (0,)
    assert ds["x"][:].mask.all()


def test_a_masked_array_brings_its_nulls(url: str) -> None:
    values = np.ma.MaskedArray(np.arange(4), [False, True, False, True])
    back = stored(url, "int64?", values)
    assert back.tolist() == [0, None, 2, None]


def test_json_values_are_what_was_appended(url: str) -> None:
    values = [{"a": [1, 2.5, None]}, "text", 7, None, [], b'{"raw": true}']
    assert stored(url, "json", values) == [*values[:-1], {"raw": True}]


def test_moments_are_stored_in_utc(url: str) -> None:
    zone = dt.timezone(dt.timedelta(hours=2))
    values = [dt.datetime(2024, 5, 1, 12, tzinfo=zone), dt.datetime(2024, 5, 1, 12)]
    assert stored(url, "timestamp", values).tolist() == [dt.datetime(2024, 5, 1, 10), dt.datetime(2024, 5, 1, 12)]


def test_class_names_are_stored_as_their_index(url: str) -> None:
    ds = fb.create(url, {"x": fb.ClassLabel(["cat", "dog"], nullable=True)})
    ds.append({"x": ["dog", "cat", None, "dog"]})
    ds.append({"x": np.array([1, 0])})
    with pytest.raises(fb.DataError, match="cow"):
        ds.append({"x": ["cow"]})
    ds.commit()
    assert ds["x"][:].tolist() == [1, 0, None, 1, 1, 0]


def test_torch_tensors_are_appended_also_those_that_numpy_lacks(url: str) -> None:
    half, small = torch.arange(8).reshape(2, 4).bfloat16(), torch.tensor([1.0, 2.0]).to(torch.float8_e4m3fn)
    ds = fb.create(url, {"h": "bfloat16[4]", "s": "float8_e4m3fn", "f": "float32[2]"})
    ds.append({"h": half, "s": small, "f": [torch.ones(2), torch.zeros(2)]})
    ds.commit()
    batch = next(iter(ds.pytorch(2)))
    assert batch["h"].dtype == torch.bfloat16 and torch.equal(batch["h"], half)
    assert batch["s"].dtype == torch.float8_e4m3fn and torch.equal(batch["s"].float(), small.float())
    assert torch.equal(batch["f"], torch.tensor([[1.0, 1.0], [0.0, 0.0]]))


def test_low_floats_reach_numpy_through_ml_dtypes_or_say_that_it_is_missing(url: str) -> None:
    ds = fb.create(url, {"h": "bfloat16"})
    ds.append({"h": torch.tensor([1.5]).bfloat16()})
    ds.commit()
    try:
        import ml_dtypes
    except ImportError:
        with pytest.raises(fb.DTypeError, match="ml_dtypes"):
            ds["h"][:]
    else:
        assert ds["h"][:].dtype == ml_dtypes.bfloat16
        assert float(ds["h"][0]) == 1.5
        ds.append({"h": [2.5]})
        ds.append({"h": np.array([3.5], ml_dtypes.bfloat16)})
        ds.commit()
        assert ds["h"][:].astype(float).tolist() == [1.5, 2.5, 3.5]


def test_empty_batches_and_empty_rows_are_fine(url: str) -> None:
    ds = fb.create(url, {"a": "float32[?,4]", "b": "uint8[0]", "c": "utf8"})
    ds.append({"a": [], "b": np.zeros((0, 0), np.uint8), "c": []})
    ds.append({"a": [[], np.zeros((1, 4), np.float32)], "b": np.zeros((2, 0), np.uint8), "c": ["", "x"]})
    ds.commit()
    assert [row.shape for row in ds["a"][:]] == [(0, 4), (1, 4)]
    assert ds["b"][:].shape == (2, 0)
    assert ds["c"][:] == ["", "x"]


def test_memory_of_an_append_is_bounded(script, url: str) -> None:
    result = script(
        """
        import resource, sys, numpy as np, forebay as fb
        rows = np.ones((2000, 3, 64, 64), np.uint8)
        ds = fb.create(sys.argv[1], {"image": "uint8[3,64,64]"})
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for _ in range(30):  # 737 MB
            ds.append({"image": rows})
        ds.commit()
        print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
        """,
        url,
    )
    assert result.returncode == 0, result.stderr
    assert int(result.stdout) < 300
