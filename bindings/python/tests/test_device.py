"""Batches for a device, on a machine that has none or one."""

import numpy as np
import pytest
import torch

import forebay as fb


@pytest.fixture
def ds(tmp_path):
    ds = fb.create(str(tmp_path / "lake"), {"image": fb.Image((3, 8, 8), layout="CHW"), "id": "int64", "text": "utf8"})
    ids = np.arange(50)
    ds.append({"image": np.repeat(ids.astype(np.uint8), 192).reshape(50, 3, 8, 8), "id": ids, "text": [f"row {i}" for i in ids]})
    ds.commit("rows")
    return ds


def test_the_host_can_be_asked_for_by_name(ds):
    for device in ("cpu", torch.device("cpu")):
        batch = next(iter(ds.pytorch(8, device=device)))
        assert batch["image"].device.type == "cpu" and batch["id"].tolist() == list(range(8))


def test_what_is_no_device_of_ours_is_refused(ds):
    for device in ("meta", "nonsense", 1.5):
        with pytest.raises(fb.ArgumentError, match="device = "):
            ds.pytorch(8, device=device)
    with pytest.raises(fb.ArgumentError, match="DataLoader"):
        ds.pytorch(device="cuda")


def test_what_only_a_device_can_do_is_refused_without_one(ds):
    with pytest.raises(fb.ArgumentError, match="device_cache"):
        ds.pytorch(8, device_cache="1GiB")
    with pytest.raises(fb.ArgumentError, match="group_bytes"):
        ds.pytorch(8, group_bytes="1MiB")
    with pytest.raises(fb.ArgumentError, match="out="):
        ds.pytorch(8, out={"id": torch.empty(8, dtype=torch.int64)})
    with pytest.raises(fb.ArgumentError, match="DataLoader"):
        ds.pytorch(device_cache="1GiB")
    with pytest.raises(fb.ArgumentError, match="DataLoader"):
        ds.pytorch(out={})
    with pytest.raises(fb.ArgumentError, match="DataLoader"):
        ds.pytorch(group_bytes=0)


def test_the_memory_that_devices_may_take_is_said_once_for_the_process(script):
    run = script(
        """
        import forebay as fb
        before = fb.gpu.configure()
        assert before["registered"] > 0 and before["device_memory"] > 0
        assert fb.gpu.configure(registered="1GiB") == {**before, "registered": 1 << 30}
        assert fb.gpu.configure(device_memory=123)["registered"] == 1 << 30
        """
    )
    assert run.returncode == 0, run.stderr


def test_a_device_gives_the_rows_or_says_what_is_missing(ds):
    info = fb.gpu.info()
    if not info["devices"]:
        with pytest.raises(fb.LoaderError) as raised:
            ds.pytorch(8, device="cuda")
        assert str(raised.value) == info["missing"][0]
        return
    loader = ds.pytorch(8, shuffle="global", device="cuda:0")
    rows = 0
    for batch in loader:
        assert batch["image"].is_cuda and batch["id"].is_cuda
        ids = batch["id"].tolist()
        assert (batch["image"].cpu().numpy()[:, 0, 0, 0] == ids).all()
        assert batch["text"] == [f"row {i}" for i in ids]
        rows += len(ids)
    assert rows == 50
    assert set(loader.stats()["device"]["columns"]) >= {"image", "id"}
