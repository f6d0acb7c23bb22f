"""The map-style dataset in PyTorch's own DataLoader, however its workers are started."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import torch
from conftest import ROWS, images
from test_read import mixed
from torch.utils.data import DataLoader

import forebay as fb

pytestmark = pytest.mark.filterwarnings("ignore:.*suggested max number of worker.*", "ignore:.*multi-threaded, use of fork.*")


def check_epoch(loader: DataLoader[Any]) -> None:
    pixels, seen = images(), []
    for batch in loader:
        rows = batch["id"].numpy()
        assert batch["image"].dtype == torch.uint8 and batch["label"].dtype == torch.int64
        assert np.array_equal(batch["image"].numpy(), pixels[rows])
        assert np.array_equal(batch["label"].numpy(), rows % 10)
        seen.extend(rows.tolist())
    assert sorted(seen) == list(range(ROWS))


@pytest.mark.parametrize("workers", [0, 2, 8])
def test_an_epoch_of_the_dataloader_under_fork_has_every_row_once(photos: fb.Dataset, workers: int) -> None:
    context = "fork" if workers else None
    loader = DataLoader(
        photos.pytorch(), batch_size=32, shuffle=True, num_workers=workers, multiprocessing_context=context, timeout=60 if workers else 0
    )
    assert len(loader) == 16
    check_epoch(loader)
    check_epoch(loader)


@pytest.mark.parametrize("context", ["spawn", "forkserver"])
def test_an_epoch_of_the_dataloader_in_fresh_processes_has_every_row_once(photos: fb.Dataset, context: str) -> None:
    loader = DataLoader(
        photos.pytorch(), batch_size=32, shuffle=True, num_workers=2, multiprocessing_context=context, timeout=120,
        persistent_workers=True,
    )  # fmt: skip
    check_epoch(loader)
    check_epoch(loader)


def test_workers_forked_in_the_middle_of_a_native_epoch_do_not_hang(photos: fb.Dataset) -> None:
    batches = iter(photos.pytorch(batch_size=10, shuffle=True))
    next(batches)
    check_epoch(DataLoader(photos.pytorch(), batch_size=50, num_workers=2, multiprocessing_context="fork", timeout=60))
    assert sum(1 for _ in batches) == ROWS // 10 - 1


def test_items_are_dicts_of_tensors(photos: fb.Dataset) -> None:
    rows = photos.pytorch(columns=["id", "image"])
    assert len(rows) == ROWS and isinstance(rows, torch.utils.data.Dataset)
    assert list(rows[7]) == ["id", "image"]
    assert rows[7]["id"].item() == 7 and rows[-1]["id"].item() == ROWS - 1
    assert np.array_equal(rows[7]["image"].numpy(), images()[7])
    assert [item["id"].item() for item in rows.__getitems__([5, 5, 301])] == [5, 5, 301]
    with pytest.raises(IndexError):
        rows[ROWS]


def test_texts_bytes_and_nulls_are_collated(url: str) -> None:
    ds, values = mixed(url)
    names = ["text", "blob", "maybe", "fixed"]
    loader = DataLoader(ds.pytorch(columns=names), batch_size=20, num_workers=2, multiprocessing_context="fork", timeout=60)
    row = 0
    for batch in loader:
        rows = range(row, row + 20)
        assert batch["text"] == [values["text"][i] or "" for i in rows]
        assert batch["text_valid"].tolist() == [values["text"][i] is not None for i in rows]
        assert batch["blob"] == [values["blob"][i] for i in rows]
        assert batch["maybe"].tolist() == [values["maybe"][i] or 0 for i in rows]
        assert batch["fixed"].shape == (20, 2, 3)
        row += 20
    assert row == 200


def test_free_shapes_go_through_a_collate_function_of_ones_own(url: str) -> None:
    ds, values = mixed(url)
    loader = DataLoader(ds.pytorch(columns=["ragged"]), batch_size=50, collate_fn=lambda rows: [row["ragged"] for row in rows])
    found = [part for batch in loader for part in batch]
    assert all(np.array_equal(part.numpy(), wanted) for part, wanted in zip(found, values["ragged"]))


def test_a_view_is_a_dataset_too(photos: fb.Dataset) -> None:
    view = photos.filter(lambda batch: batch["label"] == 1, columns=["label"])
    loader = DataLoader(view.pytorch(), batch_size=10, num_workers=2, multiprocessing_context="fork", timeout=60)
    assert torch.cat([batch["id"] for batch in loader]).tolist() == list(range(1, ROWS, 10))


def test_the_map_style_dataset_can_be_pickled(photos: fb.Dataset) -> None:
    again = pickle.loads(pickle.dumps(photos.pytorch(columns=["id"])))
    assert again[3]["id"].item() == 3
