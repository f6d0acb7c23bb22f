"""Reading by number, slice, list and mask: as NumPy does."""

from __future__ import annotations

import json

import numpy as np
import pytest
from conftest import ROWS, images

import forebay as fb

KEYS = [
    slice(10, 20), slice(None), slice(None, None, -1), slice(5, 100, 7), slice(-20, None), slice(490, 510), slice(20, 10),
    slice(295, 305), [3, 1, 2], [0, 0, 0], [-1, -500], [], np.array([299, 300, 301]), np.arange(ROWS) % 3 == 0,
    np.zeros(ROWS, bool), (np.arange(ROWS) == 7).tolist(), range(4, 8),
]  # fmt: skip


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_a_column_is_indexed_as_numpy_indexes_the_same_array(photos: fb.Dataset, key: object) -> None:
    pixels = images()
    wanted = pixels[list(key) if isinstance(key, (range, list)) and not len(key) == 0 else key] if not isinstance(key, list) or key else pixels[:0]
    assert np.array_equal(photos["image"][key], wanted)
    assert photos["image"][key].dtype == np.uint8


@pytest.mark.parametrize("row", [0, 1, 299, 300, 499, -1, -500, np.int64(7), np.uint8(9), True])
def test_one_row_of_a_column_is_that_row(photos: fb.Dataset, row: int) -> None:
    assert np.array_equal(photos["image"][row], images()[int(row)])
    assert photos["id"][row] == range(ROWS)[int(row)]


def test_further_indices_go_into_the_rows(photos: fb.Dataset) -> None:
    pixels = images()
    assert np.array_equal(photos["image"][10:20, 0], pixels[10:20, 0])
    assert np.array_equal(photos["image"][5, :, 2:4], pixels[5, :, 2:4])
    assert np.array_equal(photos["image"][[1, 2], ..., 0], pixels[[1, 2], ..., 0])


def test_a_row_is_a_dict_and_several_are_a_dict_of_columns(photos: fb.Dataset) -> None:
    row = photos[5]
    assert list(row) == ["image", "label", "id"]
    assert np.array_equal(row["image"], images()[5])
    assert isinstance(row["label"], np.int64) and row["label"] == 5
    rows = photos[2:5]
    assert rows["id"].tolist() == [2, 3, 4] and rows["image"].shape == (3, 3, 16, 16)
    assert photos[[1, 2]]["id"].tolist() == [1, 2]
    assert photos[np.arange(ROWS) > 497]["id"].tolist() == [498, 499]


@pytest.mark.parametrize("row", [ROWS, -ROWS - 1, [0, ROWS], [-ROWS - 1], 2**62, np.ones(3, bool)])
def test_rows_that_are_not_there_are_an_index_error(photos: fb.Dataset, row: object) -> None:
    for place in (photos, photos["image"]):
        with pytest.raises(IndexError):
            place[row]


@pytest.mark.parametrize("key", [1.5, None, [1.5], ["a"], object()])
def test_other_keys_are_a_type_error(photos: fb.Dataset, key: object) -> None:
    with pytest.raises(TypeError):
        photos["image"][key]


def test_an_unknown_column_is_a_key_error_that_lists_the_known(photos: fb.Dataset) -> None:
    with pytest.raises(KeyError) as raised:
        photos["imag"]
    assert isinstance(raised.value, fb.UnknownColumnError)
    assert str(raised.value) == "no column 'imag'; the table has image, label, id"


def test_length_columns_and_iteration(photos: fb.Dataset) -> None:
    assert len(photos) == ROWS == len(photos["id"])
    assert photos.columns == ["image", "label", "id"]
    assert photos["image"].shape == (ROWS, 3, 16, 16) and photos["image"].dtype == "uint8"
    assert [int(row["id"]) for row in photos] == list(range(ROWS))
    assert [int(number) for number in photos["id"]] == list(range(ROWS))
    assert np.asarray(photos["label"]).sum() == sum(i % 10 for i in range(ROWS))
    with pytest.raises(ValueError, match="copy"):
        np.asarray(photos["label"], copy=False) if np.lib.NumpyVersion(np.__version__) >= "2.0.0" else photos[
            "label"
        ].__array__(copy=False)


def test_arrays_belong_to_the_caller(photos: fb.Dataset) -> None:
    photos["image"][3][:] = 0
    photos["image"][0:5][:] = 0
    photos[[3, 4]]["image"][:] = 0
    assert np.array_equal(photos["image"][0:5], images()[:5])


def mixed(url: str, compression: str | None = None) -> tuple[fb.Dataset, dict[str, list]]:
    """A table with every kind of column, and its values."""
    rng = np.random.default_rng(3)
    rows = 200
    values = {
        "fixed": [rng.random((2, 3)).astype(np.float32) for _ in range(rows)],
        "ragged": [rng.integers(0, 9, (i % 4, 2), dtype=np.int32) for i in range(rows)],
        "text": [None if i % 7 == 0 else "é" * (i % 50) for i in range(rows)],
        "blob": [bytes(rng.integers(0, 256, i, dtype=np.uint8)) for i in range(rows)],
        "doc": [{"i": i, "tags": ["x"] * (i % 3)} for i in range(rows)],
        "maybe": [None if i % 5 == 0 else i for i in range(rows)],
    }
    spec = {"fixed": "float32[2,3]", "ragged": "int32[?,2]", "text": "utf8?", "blob": "bytes", "doc": "json", "maybe": "int16?"}
    ds = fb.create(url, {name: fb.Column(text, compression=compression) for name, text in spec.items()})
    for start in (0, 90):
        stop = rows if start else 90
        ds.append({name: column[start:stop] for name, column in values.items()})
        ds.commit()
    return ds, values


def same(found: object, wanted: object) -> bool:
    if isinstance(wanted, np.ndarray):
        return isinstance(found, np.ndarray) and found.dtype == wanted.dtype and np.array_equal(found, wanted)
    return found == wanted


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_every_kind_of_column_reads_the_same_by_row_slice_and_list(url: str, compression: str | None) -> None:
    ds, values = mixed(url, compression)
    picked = [150, 3, 3, 89, 90, 199, 0]
    for name, column in values.items():
        assert all(same(ds[name][row], column[row]) for row in range(0, 200, 3)), name
        for rows in (range(80, 110), picked):
            got = ds[name][rows.start : rows.stop] if isinstance(rows, range) else ds[name][rows]
            if isinstance(got, np.ma.MaskedArray):
                got = got.tolist()
            assert len(got) == len(rows)
            assert all(same(value, column[row]) for value, row in zip(got, rows)), name


def test_a_filter_keeps_the_rows_it_says_true_for(photos: fb.Dataset) -> None:
    view = photos.filter(lambda batch: batch["label"] == 3, columns=["label"])
    assert view["id"][:].tolist() == list(range(3, ROWS, 10))
    assert np.array_equal(view["image"][-1], images()[493])
    assert len(view) == 50 and view[4]["id"] == 43
    again = view.filter(lambda batch: [number > 250 for number in batch["id"]], columns="id")
    assert again["id"][:].tolist() == [number for number in range(3, ROWS, 10) if number > 250]
    assert len(photos.filter(lambda batch: np.zeros(len(batch["id"]), bool))) == 0
    assert "50 rows" in repr(view)


def test_a_filter_sees_only_the_columns_it_named(photos: fb.Dataset) -> None:
    seen = set()
    photos.filter(lambda batch: seen.update(batch) or batch["id"] >= 0, columns=["id", "label"])
    assert seen == {"id", "label"}


def test_a_comparison_with_null_is_not_true(url: str) -> None:
    ds, _ = mixed(url)
    kept = ds.filter(lambda batch: batch["maybe"] < 12, columns=["maybe"])
    assert kept["maybe"][:].tolist() == [i for i in range(12) if i % 5]


def test_a_filter_that_gives_something_else_is_an_error(photos: fb.Dataset) -> None:
    for wrong in (lambda batch: True, lambda batch: batch["id"], lambda batch: [True]):
        with pytest.raises(fb.DataError, match="truth value"):
            photos.filter(wrong, columns=["id"])
    with pytest.raises(KeyError):
        photos.filter(lambda batch: batch, columns=["nothing"])
    with pytest.raises(ZeroDivisionError):
        photos.filter(lambda batch: 1 / 0)


def test_a_view_keeps_order_and_repeats(photos: fb.Dataset) -> None:
    view = photos.select([9, 2, 2, -1])
    assert view["id"][:].tolist() == [9, 2, 2, 499]
    assert view[1:3]["id"].tolist() == [2, 2]
    assert view.select([3, 0])["id"][:].tolist() == [499, 9]
    assert photos.select(slice(10, 13))["id"][:].tolist() == [10, 11, 12]


def test_rows_can_be_shown_as_json(photos: fb.Dataset) -> None:
    assert json.dumps({"id": photos[3]["id"].item()}) == '{"id": 3}'
