"""Loaders stop and go on: at any sample, on any number of ranks, in the same order."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import ROWS, ids

import forebay as fb


@pytest.mark.parametrize("kind", ["pytorch", "numpy"])
@pytest.mark.parametrize("shuffle", [False, True, "global"], ids=str)
def test_the_rest_of_an_epoch_follows_on_any_number_of_ranks_and_with_any_batch(photos: fb.Dataset, kind: str, shuffle: Any) -> None:
    def make(**options: Any) -> Any:
        return getattr(photos, kind)(shuffle=shuffle, seed=7, columns=["id"], **options)

    whole = ids(make(batch_size=10))
    first = [make(batch_size=9, rank=rank, world_size=3) for rank in range(3)]
    parts = [ids(loader, 4) for loader in first]
    states = [loader.state_dict() for loader in first]
    assert states[0] == states[1] == states[2] and states[0]["position"] == 108
    assert len(json.dumps(states[0])) < 4096
    assert sorted(sum(parts, [])) == sorted(whole[:108])

    state = json.loads(json.dumps(states[0]))
    second = [make(batch_size=5, rank=rank, world_size=2, num_workers=3) for rank in range(2)]
    for loader in second:
        loader.load_state_dict(state)
        loader.set_epoch(state["epoch"])  # As training loops do: it doesn't go back to the start of this epoch.
    rest = [ids(loader) for loader in second]
    assert [row for pair in zip(*rest) for row in pair] == whole[108:]
    assert all(loader.epoch == 1 for loader in second)


def test_a_state_follows_what_was_delivered_not_what_was_made_ahead(photos: fb.Dataset) -> None:
    loader = photos.numpy(batch_size=50, prefetch_factor=5, columns=["id"])
    assert loader.state_dict()["position"] == 0
    batches = iter(loader)
    for step in range(1, 10):
        next(batches)
        assert (loader.state_dict()["epoch"], loader.state_dict()["position"]) == (0, step * 50)
    next(batches)
    assert (loader.state_dict()["epoch"], loader.state_dict()["position"]) == (1, 0)
    assert next(batches, None) is None
    assert (loader.state_dict()["epoch"], loader.state_dict()["position"]) == (1, 0)
    ids(loader, 2)  # Left early: the state is that of the iteration that was left.
    assert (loader.state_dict()["epoch"], loader.state_dict()["position"]) == (1, 100)
    loader.set_epoch(5)
    assert (loader.state_dict()["epoch"], loader.state_dict()["position"]) == (5, 0)


def test_a_pickled_loader_goes_on_where_its_state_was(photos: fb.Dataset) -> None:
    loader = photos.numpy(batch_size=50, columns=["id"])
    state = photos.numpy(batch_size=1, columns=["id"])
    ids(state, 123)
    loader.load_state_dict(state.state_dict())
    assert ids(pickle.loads(pickle.dumps(loader))) == list(range(123, ROWS))


def test_a_state_that_was_damaged_or_is_of_something_else_is_refused_by_its_field(photos: fb.Dataset) -> None:
    loader = photos.numpy(batch_size=50, shuffle=True, seed=1)
    state = loader.state_dict()
    for name, value in state.items():
        other = value + 1 if isinstance(value, int) else ("0" if value[0] != "0" else "1") + value[1:]
        with pytest.raises(fb.StateError, match="version" if name == "version" else "checksum"):
            loader.load_state_dict({**state, name: other})
        with pytest.raises(fb.StateError):
            loader.load_state_dict({key: kept for key, kept in state.items() if key != name})
    for options, field in [({"seed": 2}, "seed"), ({"shuffle": "global"}, "shuffle"), ({"shuffle": fb.Window(8)}, "shuffle")]:
        with pytest.raises(fb.StateError, match=f"its {field} is"):
            photos.numpy(**{"batch_size": 50, "shuffle": True, "seed": 1, **options}).load_state_dict(state)
    with pytest.raises(ValueError, match="its selection is"):
        photos.filter(lambda batch: batch["id"] < 100).numpy(batch_size=50, shuffle=True, seed=1).load_state_dict(state)
    photos.append({"image": np.zeros((1, 3, 16, 16), np.uint8), "label": [0], "id": [ROWS]})
    photos.commit("another commit")
    with pytest.raises(fb.StateError, match="its commit is"):
        photos.numpy(batch_size=50, shuffle=True, seed=1).load_state_dict(state)


# Ranks


def test_ranks_of_a_data_group_receive_the_same_rows(photos: fb.Dataset) -> None:
    loaders = [photos.numpy(batch_size=25, shuffle=True, columns=["id"], rank=rank, world_size=6, data_group=2) for rank in range(6)]
    parts = [ids(loader) for loader in loaders]
    assert parts[0] == parts[1] and parts[2] == parts[3] and parts[4] == parts[5]
    assert sorted(parts[0] + parts[2] + parts[4]) == list(range(ROWS))
    with pytest.raises(fb.ArgumentError, match="divides world_size"):
        photos.numpy(batch_size=25, rank=0, world_size=6, data_group=4)


@pytest.mark.parametrize("kind", ["pytorch", "numpy"])
def test_padding_fills_the_last_batch_of_every_rank_with_rows_of_weight_0(photos: fb.Dataset, kind: str) -> None:
    seen: list[int] = []
    for rank in range(7):
        loader = getattr(photos, kind)(batch_size=64, shuffle=True, rank=rank, world_size=7, pad_last=True)
        assert len(loader) == 2
        for batch in loader:
            weight = np.asarray(batch["sample_weight"])
            assert weight.dtype == np.float32 and weight.shape == (64,) and batch["image"].shape == (64, 3, 16, 16)
            seen += np.asarray(batch["id"])[weight == 1].tolist()
            assert not np.asarray(batch["image"])[weight == 0].any()
    assert sorted(seen) == list(range(ROWS))
    with pytest.raises(fb.ArgumentError, match="choose one"):
        photos.numpy(batch_size=64, pad_last=True, drop_last=True)


def test_ranks_without_a_process_group_compare_a_digest(photos: fb.Dataset) -> None:
    digest = photos.numpy(batch_size=8, seed=3, rank=0, world_size=2).digest
    assert photos.numpy(batch_size=8, seed=3, rank=1, world_size=2, num_workers=1, digest=digest).digest == digest
    for options in ({"seed": 4}, {"batch_size": 9}, {"shuffle": True}, {"columns": ["id"]}):
        with pytest.raises(fb.AgreementError, match="not " + digest):
            photos.numpy(**{"batch_size": 8, "seed": 3, "rank": 1, "world_size": 2, "digest": digest, **options})


# Damaged rows


def _damage(url: str, pixels: bytes) -> None:
    """Changes one byte of this row, in whichever data file has it."""
    for file in sorted((Path(url) / "data").iterdir()):
        content = bytearray(file.read_bytes())
        at = content.find(pixels)
        if at >= 0:
            content[at + 5] ^= 1
            file.write_bytes(content)
            return
    pytest.fail("no data file has this row")


@pytest.mark.parametrize("kind", ["pytorch", "numpy"])
def test_a_damaged_row_ends_the_epoch_or_is_masked_or_replaced_and_is_named(photos: fb.Dataset, kind: str) -> None:
    _damage(photos.url, photos["image"][77].tobytes())

    def make(**options: Any) -> Any:
        return getattr(fb.open(photos.url), kind)(batch_size=50, shuffle="global", **options)

    with pytest.raises(fb.CorruptError, match="image.*checksum"):
        list(make())
    assert len(list(make(verify="never"))) == 10

    loader = make(on_fault="skip")
    masked = [int(i) for batch in loader for i, weight in zip(batch["id"], batch["sample_weight"]) if weight == 0]
    faults = loader.faults()
    assert 77 in {fault["row"] for fault in faults} and len(faults) == len(masked) == loader.stats()["faults"]
    assert all(fault["column"] == "image" and fault["commit"] and "checksum" in fault["cause"] for fault in faults)
    assert {fault["substitute"] for fault in faults} == {None}

    loader = make(on_fault="substitute")
    delivered = ids(loader)
    bad = {fault["row"] for fault in faults}
    assert len(delivered) == ROWS and not bad & set(delivered)
    assert all(delivered[fault["position"]] == fault["substitute"] for fault in loader.faults())

    with pytest.raises(fb.CorruptError, match="0 are allowed.*image"):
        list(make(on_fault="skip", max_faults=0))
    with pytest.raises(fb.ArgumentError, match="on_fault"):
        make(on_fault="ignore")
