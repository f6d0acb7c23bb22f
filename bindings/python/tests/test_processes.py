"""Handles in other processes: forked, pickled, spawned."""

from __future__ import annotations

import os
import pickle
import threading

import numpy as np
import pytest
from conftest import ROWS, images, in_child

import forebay as fb


def test_a_dataset_opens_itself_again_in_a_forked_child(photos: fb.Dataset) -> None:
    view, column = photos.select([3, 1]), photos["image"]
    photos["image"][0]

    def child() -> list:
        return [len(photos), photos[5]["id"].item(), view["id"][:].tolist(), column[9].tobytes() == images()[9].tobytes()]

    assert in_child(child) == [ROWS, 5, [3, 1], True]
    assert photos[5]["id"] == 5


def test_a_loader_made_before_the_fork_works_in_the_child(photos: fb.Dataset) -> None:
    loader = photos.numpy(batch_size=50, shuffle=True)
    first = [int(number) for batch in loader for number in batch["id"]]

    def child() -> list[int]:
        loader.set_epoch(0)
        return [int(number) for batch in loader for number in batch["id"]]

    assert in_child(child) == first


def test_an_epoch_under_way_is_not_continued_in_a_child(photos: fb.Dataset) -> None:
    batches = iter(photos.numpy(batch_size=50))
    next(batches)

    def child() -> str:
        with pytest.raises(fb.LoaderError) as raised:
            next(batches)
        return str(raised.value)

    assert "fork" in in_child(child)
    assert len(list(batches)) == ROWS // 50 - 1


def test_rows_that_wait_for_a_commit_stay_with_the_parent(url: str) -> None:
    ds = fb.create(url, {"x": "int64"})
    ds.append({"x": [1, 2, 3]})

    def child() -> int:
        waiting = ds.pending
        ds.append({"x": [9]})
        ds.commit("from the child")
        ds.close()
        return waiting

    assert in_child(child) == 0
    ds.commit("from the parent")
    assert ds["x"][:].tolist() == [9, 1, 2, 3]


def test_forks_while_threads_read_do_not_hang(photos: fb.Dataset) -> None:
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            photos["image"][np.random.randint(0, ROWS, 50)]
            list(photos.numpy(batch_size=100, shuffle=True))

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    try:
        for _ in range(10):
            assert in_child(lambda: len(photos.select([1])["image"][:])) == 1
    finally:
        stop.set()
        for reader in readers:
            reader.join()


def test_a_memory_lake_is_there_in_a_forked_child() -> None:
    ds = fb.create("memory://test-processes", {"x": "int64"})
    ds.append({"x": [4]})
    ds.commit()
    assert in_child(lambda: ds["x"][0].item()) == 4


def test_a_pickled_dataset_is_at_the_same_commit_and_branch(photos: fb.Dataset) -> None:
    data = pickle.dumps(photos)
    photos.append({"image": images(1), "label": [0], "id": [1000]})
    photos.commit()
    again = pickle.loads(data)
    assert len(again) == ROWS and again.branch_name == "main"
    again.append({"image": images(2), "label": [0, 0], "id": [2000, 2001]})
    again.commit()
    assert again["id"][-3:].tolist() == [1000, 2000, 2001]
    tagged = fb.open(photos.url, commit=photos.commit_id)
    assert pickle.loads(pickle.dumps(tagged)).branch_name is None


def test_pickled_views_and_loaders_are_small_and_go_on(photos: fb.Dataset) -> None:
    view = photos.filter(lambda batch: batch["label"] == 3, columns=["label"])
    again = pickle.loads(pickle.dumps(view))
    assert again["id"][:].tolist() == view["id"][:].tolist()
    loader = view.numpy(batch_size=8, shuffle="global", seed=4)
    loader.set_epoch(2)
    data = pickle.dumps(loader)
    assert len(data) < 4096
    other = pickle.loads(data)
    assert other.epoch == 2
    for left, right in zip(loader, other):
        assert left["id"].tolist() == right["id"].tolist()


def test_a_pickle_of_a_deleted_lake_is_a_file_not_found_error(photos: fb.Dataset, tmp_path) -> None:
    data = pickle.dumps(photos)
    os.rename(photos.url, tmp_path / "elsewhere")
    with pytest.raises(FileNotFoundError):
        pickle.loads(data)
