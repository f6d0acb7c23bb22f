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


def test_links_lead_to_objects_of_a_bucket_as_they_were(remote: fb.Dataset, options: dict[str, Any]) -> None:
    import boto3

    client = boto3.client(
        "s3", endpoint_url=options["endpoint"], region_name="us-east-1", aws_access_key_id="test", aws_secret_access_key="test"
    )
    folder = f"linked-{uuid.uuid4()}"
    put = lambda name, body: client.put_object(Bucket="forebay-test", Key=f"{folder}/{name}", Body=body)  # noqa: E731
    for number in range(30):
        put(f"{number:02}", bytes([number]) * 1000)
    base = f"s3://forebay-test/{folder}"
    links = fb.find_links(base, storage_options=options)
    assert [link.url for link in links] == [f"{base}/{number:02}" for number in range(30)] and all(link.etag for link in links)
    parts = [fb.Link(f"{base}/07", 1000, etag=links[7].etag, offset=number, length=3) for number in range(30)]
    url = f"s3://forebay-test/{uuid.uuid4()}"
    ds = fb.create(url, {"id": "int64", "whole": fb.Links(base), "part": fb.Links(base)}, storage_options=options, links=[base])
    ds.append({"id": np.arange(30), "whole": links, "part": parts})
    ds.commit("links")
    for shuffle in (False, True, "global"):
        seen = {}
        for batch in ds.numpy(8, shuffle=shuffle):
            assert all(bytes(part) == b"\7\7\7" for part in batch["part"])
            seen.update(zip(batch["id"].tolist(), batch["whole"]))
        assert {number: bytes(whole) for number, whole in seen.items()} == {number: bytes([number]) * 1000 for number in range(30)}
    with pytest.raises(fb.AccessError, match="links="):
        fb.open(url, storage_options=options)["whole"].fetch(0)
    put("03", b"3" * 1000)
    put("04", b"short")
    client.delete_object(Bucket="forebay-test", Key=f"{folder}/05")
    loader = ds.numpy(8, on_fault="skip")
    list(loader)
    causes = {fault["row"]: fault["cause"] for fault in loader.faults()}
    assert set(causes) == {3, 4, 5}
    assert "its etag is" in causes[3] and "it has 5 bytes and had 1000" in causes[4] and "no such object" in causes[5]
    put("07", b"x" * 2)
    with pytest.raises(fb.LinkError, match="it has 2 bytes and had 1000"):
        ds["part"].fetch([20, 1])
