"""Loaders: every row exactly once, in one order for one seed, handed over without a copy."""

from __future__ import annotations

import gc
import itertools
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from conftest import ROWS, images

import forebay as fb

SMALL_WINDOW = fb.Window(lanes=8, window=4, unit_bytes=4096)
SHUFFLES = [False, True, "windowed", "global", SMALL_WINDOW]


def ids(loader: Any) -> list[int]:
    return [int(number) for batch in loader for number in batch["id"]]


@pytest.mark.parametrize("shuffle", SHUFFLES, ids=str)
@pytest.mark.parametrize("kind", ["pytorch", "numpy"])
def test_an_epoch_has_every_row_once_with_its_own_bytes(photos: fb.Dataset, shuffle: Any, kind: str) -> None:
    pixels = images()
    loader = getattr(photos, kind)(batch_size=64, shuffle=shuffle, seed=5)
    assert len(loader) == 8
    seen = []
    for batch in loader:
        rows = np.asarray(batch["id"])
        assert np.array_equal(np.asarray(batch["image"]), pixels[rows])
        assert np.array_equal(np.asarray(batch["label"]), rows % 10)
        seen.extend(rows.tolist())
    assert sorted(seen) == list(range(ROWS))
    assert (seen == list(range(ROWS))) == (shuffle is False)


def test_batches_are_torch_tensors_or_arrays_of_the_columns_type(photos: fb.Dataset) -> None:
    batch = next(iter(photos.pytorch(batch_size=64)))
    assert list(batch) == ["image", "label", "id"]
    assert isinstance(batch["image"], torch.Tensor)
    assert batch["image"].dtype == torch.uint8 and batch["image"].shape == (64, 3, 16, 16)
    assert batch["image"].is_contiguous() and batch["label"].dtype == torch.int64
    array = next(iter(photos.numpy(batch_size=64)))["image"]
    assert isinstance(array, np.ndarray) and array.dtype == np.uint8 and array.flags.c_contiguous


@pytest.mark.parametrize("shuffle", [True, "global", SMALL_WINDOW], ids=str)
def test_the_order_depends_on_seed_and_epoch_alone(photos: fb.Dataset, shuffle: Any) -> None:
    def order(seed: int, epoch: int, **options: Any) -> list[int]:
        loader = photos.pytorch(batch_size=50, shuffle=shuffle, seed=seed, columns=["id"], **options)
        loader.set_epoch(epoch)
        return ids(loader)

    first = order(1, 0)
    assert order(1, 0, num_workers=3, prefetch_factor=5) == first
    others = [order(1, 1), order(2, 0), order(0, 1), order(2**64 - 1, 0)]
    assert all(sorted(other) == list(range(ROWS)) for other in others)
    assert all(left != right for left, right in itertools.combinations([first, *others], 2))


def test_the_next_epoch_comes_after_a_whole_one(photos: fb.Dataset) -> None:
    loader = photos.pytorch(batch_size=100, shuffle=True, columns="id")
    zero, one = ids(loader), ids(loader)
    assert zero != one and loader.epoch == 2
    loader.set_epoch(0)
    next(iter(loader))  # Looking into an epoch doesn't use it up.
    assert loader.epoch == 0
    assert ids(loader) == zero


@pytest.mark.parametrize("world", [1, 2, 4, 8])
@pytest.mark.parametrize("shuffle", [False, True, "global"], ids=str)
def test_ranks_share_an_epoch_whose_order_does_not_depend_on_their_number(photos: fb.Dataset, world: int, shuffle: Any) -> None:
    alone = ids(photos.pytorch(batch_size=1, shuffle=shuffle, seed=3, columns=["id"]))
    ranks = [
        ids(photos.pytorch(batch_size=16, shuffle=shuffle, seed=3, columns=["id"], rank=rank, world_size=world))
        for rank in range(world)
    ]
    merged = [number for group in itertools.zip_longest(*ranks) for number in group if number is not None]
    assert merged == alone


def test_drop_last_gives_every_rank_as_many_whole_batches(photos: fb.Dataset) -> None:
    loaders = [photos.pytorch(batch_size=32, drop_last=True, rank=rank, world_size=3) for rank in range(3)]
    assert [len(loader) for loader in loaders] == [5, 5, 5]
    assert all(len(batch["id"]) == 32 for loader in loaders for batch in loader)
    assert [len(batch["id"]) for batch in photos.numpy(batch_size=300)] == [300, 200]


def test_columns_are_delivered_as_asked_for(photos: fb.Dataset) -> None:
    assert list(next(iter(photos.numpy(8, columns=["id", "image"])))) == ["id", "image"]
    assert list(next(iter(photos.pytorch(8, columns="label")))) == ["label"]


# Without a copy


def test_a_tensor_lies_where_the_loaders_buffer_lies(photos: fb.Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    import forebay._torch as module

    addresses: list[int] = []
    genuine = module.from_dlpack
    monkeypatch.setattr(module, "from_dlpack", lambda native: addresses.append(native.data_ptr) or genuine(native))
    batch = next(iter(photos.pytorch(batch_size=64)))
    assert [batch[name].data_ptr() for name in ("image", "label", "id")] == addresses
    assert all(address % 64 == 0 for address in addresses)


def test_an_array_lies_where_the_loaders_buffer_lies_and_may_be_written(photos: fb.Dataset) -> None:
    native = photos.numpy(batch_size=64)._native.iter(0).next()[0][0][1]
    array = native.numpy()
    assert array.ctypes.data == native.data_ptr and array.ctypes.data % 64 == 0
    assert array.flags.writeable and array.flags.aligned and not array.flags.owndata
    array[:] = 0
    assert np.array_equal(photos["image"][:64], images()[:64])


def test_buffers_are_used_again_only_after_the_last_tensor_is_gone(photos: fb.Dataset) -> None:
    loader = photos.pytorch(batch_size=20, columns=["image"])
    kept, copies, addresses = [], [], []
    for number, batch in enumerate(loader):
        addresses.append(batch["image"].data_ptr())
        if number % 3 == 0:
            kept.append(batch["image"][5, 1])  # A small part keeps the whole buffer.
            copies.append(kept[-1].clone())
        del batch
    assert all(torch.equal(part, copy) for part, copy in zip(kept, copies))
    held = {part.untyped_storage().data_ptr() for part in kept}
    assert len(held) == len(kept)
    assert len(set(addresses)) < len(addresses), "no buffer was ever used again"


def test_a_batch_outlives_its_loader_and_its_lake(photos: fb.Dataset) -> None:
    batches = [batch["image"] for batch in photos.pytorch(batch_size=100)]
    arrays = [batch["image"] for batch in photos.numpy(batch_size=100)]
    photos.close()
    gc.collect()
    assert np.array_equal(torch.cat(batches).numpy(), images())
    assert np.array_equal(np.concatenate(arrays), images())


def test_memory_stays_flat_over_epochs(script: Callable[..., Any], photos: fb.Dataset) -> None:
    result = script(
        """
        import sys, forebay as fb
        def rss():
            return int(open("/proc/self/statm").read().split()[1]) * 4096
        loader = fb.open(sys.argv[1]).numpy(batch_size=50, shuffle="global")
        sizes = []
        for epoch in range(60):
            for batch in loader:
                pass
            sizes.append(rss())
        print(max(sizes[10:]) - min(sizes[10:]))
        """,
        photos.url,
    )
    assert result.returncode == 0, result.stderr
    assert int(result.stdout) < 12 << 20


# Ends


def threads() -> int:
    return len(os.listdir("/proc/self/task"))


def test_leaving_an_epoch_early_stops_its_threads(photos: fb.Dataset) -> None:
    next(iter(photos.pytorch(batch_size=10)))  # What a process starts once is started.
    gc.collect()
    time.sleep(0.3)
    before = threads()
    gc.disable()  # An iteration ends when it is dropped.
    try:
        for options in [{}, {"map_batches": lambda batch: batch, "map_threads": 2}]:
            for _ in range(3):
                for batch in photos.pytorch(batch_size=10, shuffle=True, **options):
                    break
                del batch
    finally:
        gc.enable()
    deadline = time.monotonic() + 10
    while threads() > before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert threads() <= before


def test_a_process_ends_in_the_middle_of_an_epoch(script: Callable[..., Any], photos: fb.Dataset) -> None:
    for end in ("sys.exit(3)", "raise SystemExit(3)", "os._exit(3)", "os.kill(os.getpid(), 9)"):
        result = script(
            f"""
            import os, sys, forebay as fb
            loader = fb.open(sys.argv[1]).numpy(batch_size=10, shuffle=True)
            batches = iter(loader)
            batch = next(batches)
            {end}
            """,
            photos.url,
            timeout=60,
        )
        assert result.returncode in (3, -9), (end, result.stderr)


def test_two_loaders_and_two_iterations_go_on_side_by_side(photos: fb.Dataset) -> None:
    loader, other = photos.pytorch(batch_size=50, shuffle=True, seed=1), photos.numpy(batch_size=50, shuffle="global")
    pairs = list(zip(loader, other, iter(loader)))
    assert len(pairs) == 10
    for column in range(3):
        assert sorted(int(number) for pair in pairs for number in pair[column]["id"]) == list(range(ROWS))
    assert all(torch.equal(pair[0]["id"], pair[2]["id"]) for pair in pairs)


def test_threads_share_a_dataset_and_an_iteration(photos: fb.Dataset) -> None:
    shared, lock, seen, failed = iter(photos.pytorch(batch_size=10, shuffle=True)), threading.Lock(), [], []

    def work() -> None:
        try:
            for batch in shared:
                rows = batch["id"].numpy()
                assert np.array_equal(batch["image"].numpy(), images()[rows])
                assert np.array_equal(photos["image"][rows], images()[rows])
                with lock:
                    seen.extend(rows.tolist())
        except BaseException as error:
            failed.append(error)

    workers = [threading.Thread(target=work) for _ in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert not failed and sorted(seen) == list(range(ROWS))


def test_tensors_may_die_in_any_thread(photos: fb.Dataset) -> None:
    batches = [batch["image"] for batch in photos.pytorch(batch_size=5)]
    parts = [batches[index::8] for index in range(8)]
    del batches

    workers = [threading.Thread(target=part.clear) for part in parts]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert ids(photos.numpy(batch_size=5, columns=["id"])) == list(range(ROWS))


# What it reports and refuses


def test_stats_count_what_was_delivered(photos: fb.Dataset) -> None:
    loader = photos.pytorch(batch_size=64, shuffle=True)
    assert loader.stats() == {}
    batches = iter(loader)
    next(batches)
    assert loader.stats()["batches"] == 1 and loader.stats()["rows"] == 64
    for _ in batches:
        pass
    stats = loader.stats()
    assert stats["batches"] == 8 and stats["rows"] == ROWS
    assert stats["bytes"] == ROWS * (3 * 16 * 16 + 16)
    assert stats["routes"] == {"image": "mapped", "label": "mapped", "id": "mapped"}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"batch_size": 0}, "batch_size"),
        ({"batch_size": -1}, "batch_size"),
        ({"batch_size": 1.5}, "batch_size"),
        ({"seed": -1}, "seed"),
        ({"seed": 2**64}, "seed"),
        ({"shuffle": "sometimes"}, "shuffle"),
        ({"shuffle": fb.Window(lanes=0)}, "lanes"),
        ({"rank": 2, "world_size": 2}, "rank"),
        ({"rank": 0}, "world_size"),
        ({"prefetch_factor": 0}, "prefetch"),
        ({"num_workers": -1}, "num_workers"),
        ({"columns": []}, "column"),
        ({"columns": ["id", "id"]}, "twice"),
        ({"memory_budget": "much"}, "memory_budget"),
        ({"memory_budget": 1000}, "memory_budget"),
    ],
)
def test_an_option_that_makes_no_sense_is_a_value_error_that_names_it(photos: fb.Dataset, options: dict, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        photos.pytorch(**{"batch_size": 8, **options})


def test_an_unknown_column_is_a_key_error(photos: fb.Dataset) -> None:
    for make in (photos.pytorch, photos.numpy):
        with pytest.raises(fb.UnknownColumnError, match="nope"):
            make(batch_size=8, columns=["nope"])
    with pytest.raises(fb.UnknownColumnError):
        photos.pytorch(columns=["nope"])


def test_a_budget_may_be_a_text(photos: fb.Dataset) -> None:
    loader = photos.pytorch(batch_size=8, memory_budget="64 MiB", shuffle=fb.Window(8, 4, "4KiB"))
    assert sorted(ids(loader)) == list(range(ROWS))


def test_options_of_the_native_loader_are_refused_without_a_batch_size(photos: fb.Dataset) -> None:
    with pytest.raises(ValueError, match="batch_size"):
        photos.pytorch(shuffle=True)


def test_a_loader_keeps_the_commit_it_was_built_at(photos: fb.Dataset) -> None:
    loader = photos.numpy(batch_size=100, columns=["id"])
    photos.append({"image": images(10), "label": np.zeros(10, np.int64), "id": np.arange(1000, 1010)})
    photos.commit()
    assert sorted(ids(loader)) == list(range(ROWS))
    assert len(ids(photos.numpy(batch_size=100, columns=["id"]))) == ROWS + 10


def test_an_empty_table_has_no_batches(url: str) -> None:
    ds = fb.create(url, {"x": "int64"})
    for loader in (ds.pytorch(batch_size=4, shuffle=True), ds.numpy(batch_size=4, shuffle="global")):
        assert len(loader) == 0 and list(loader) == []
    assert len(ds.pytorch()) == 0


def test_a_view_is_loaded_as_chosen(photos: fb.Dataset) -> None:
    view = photos.filter(lambda batch: batch["label"] < 2, columns=["label"])
    loader = view.pytorch(batch_size=16, shuffle=True)
    found = ids(loader)
    assert sorted(found) == [number for number in range(ROWS) if number % 10 < 2] and found != sorted(found)
    assert ids(photos.select([7, 7, 3]).numpy(batch_size=2)) == [7, 7, 3]
