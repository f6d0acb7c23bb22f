"""The same on S3: a real server process, named by FOREBAY_TEST_S3. Without it these tests fail: the test runner starts one."""

from __future__ import annotations

import os
import pickle
import uuid
from typing import Any

import numpy as np
import pytest
from conftest import images, in_child
from torch.utils.data import DataLoader

import forebay as fb

OPTIONS = {"access_key_id": "test", "secret_access_key": "test", "region": "us-east-1", "allow_http": True}


@pytest.fixture(scope="module")
def options() -> dict[str, Any]:
    endpoint = os.environ.get("FOREBAY_TEST_S3")
    assert endpoint, "FOREBAY_TEST_S3 must name an S3 server with a bucket 'forebay-test' (cargo xtask test starts one)"
    return {**OPTIONS, "endpoint": endpoint}


@pytest.fixture(scope="module")
def remote(options: dict[str, Any]) -> fb.Dataset:
    ds = fb.create(f"s3://forebay-test/{uuid.uuid4()}", {"image": "uint8[3,16,16]", "id": "int64", "text": "utf8?"}, storage_options=options)
    texts = [None if number % 4 == 0 else f"row {number}" for number in range(120)]
    for start in (0, 60):
        rows = slice(start, start + 60)
        ds.append({"image": images(120)[rows], "id": np.arange(120)[rows], "text": texts[rows]})
        ds.commit(f"from {start}")
    return ds


def test_rows_are_read_as_they_were_appended(remote: fb.Dataset, options: dict[str, Any]) -> None:
    ds = fb.open(remote.url, storage_options=options)
    assert len(ds) == 120 and [entry.message for entry in ds.log(2)] == ["from 60", "from 0"]
    assert np.array_equal(ds["image"][50:70], images(120)[50:70])
    assert np.array_equal(ds["image"][[119, 0, 60]], images(120)[[119, 0, 60]])
    assert ds[1]["text"] == "row 1" and ds[4]["text"] is None


@pytest.mark.parametrize("shuffle", [False, True, "global"], ids=str)
def test_an_epoch_has_every_row_once(remote: fb.Dataset, shuffle: Any) -> None:
    seen = []
    loader = remote.pytorch(batch_size=32, shuffle=shuffle)
    for batch in loader:
        rows = batch["id"].numpy()
        assert np.array_equal(batch["image"].numpy(), images(120)[rows])
        seen.extend(rows.tolist())
    assert sorted(seen) == list(range(120))
    assert set(loader.stats()["routes"].values()) == {"fetched"}


def test_handles_work_in_forked_children_and_after_pickling(remote: fb.Dataset) -> None:
    assert in_child(lambda: remote["id"][7].item()) == 7
    assert pickle.loads(pickle.dumps(remote))["id"][7] == 7
    seen = []
    loader = DataLoader(remote.pytorch(columns=["id"]), batch_size=30, num_workers=2, multiprocessing_context="fork", timeout=60)
    for batch in loader:
        seen.extend(batch["id"].tolist())
    assert seen == list(range(120))


def test_concurrent_commits_are_both_there(remote: fb.Dataset, options: dict[str, Any]) -> None:
    branch = remote.branch("concurrent")
    other = fb.open(remote.url, branch="concurrent", storage_options=options)
    for number, ds in ((1, branch), (2, other)):
        ds.append({"image": images(1), "id": [number], "text": [None]})
    branch.commit()
    other.commit()
    assert other["id"][-2:].tolist() == [1, 2]


def test_wrong_places_are_clear_errors(options: dict[str, Any]) -> None:
    with pytest.raises(FileNotFoundError):
        fb.open(f"s3://forebay-test/{uuid.uuid4()}", storage_options=options)
    with pytest.raises(OSError):
        fb.open("s3://no-such-bucket-here/lake", storage_options=options)
    with pytest.raises(fb.StorageError):
        fb.open("s3://forebay-test/x", storage_options={**options, "endpoint": "http://127.0.0.1:1", "max_retries": 0})
