"""Mixtures, draws by weight, epochs of fixed length; what is done to batches: collated, mapped, decoded."""

from __future__ import annotations

import io
import json
import pickle
import threading
from collections import Counter
from itertools import zip_longest
from typing import Any

import numpy as np
import pytest
import torch
from conftest import ROWS
from PIL import Image

import forebay as fb
from forebay import transforms as T


@pytest.fixture
def other(tmp_path: Any) -> fb.Dataset:
    """200 rows of the columns of ``photos``, with ids from 1000, in a lake of their own."""
    ds = fb.create(str(tmp_path / "other"), {"image": "uint8[3,16,16]", "label": fb.ClassLabel(), "id": "int64"})
    ids = np.arange(1000, 1200)
    ds.append({"image": np.zeros((200, 3, 16, 16), np.uint8), "label": ids % 10, "id": ids})
    ds.commit("others")
    return ds


def rows(loader: Any, steps: int | None = None) -> list[int]:
    found: list[int] = []
    for step, batch in enumerate(loader, 1):
        found += np.asarray(batch["id"]).tolist()
        if step == steps:
            break
    return found


@pytest.mark.parametrize("kind", ["pytorch", "numpy"])
@pytest.mark.parametrize("shuffle", [False, True, "global"], ids=str)
def test_a_mixture_holds_its_sources_in_proportion_and_says_which_is_which(
    photos: fb.Dataset, other: fb.Dataset, kind: str, shuffle: Any
) -> None:
    mixed = fb.mix({"photos": photos, "other": other}, weights={"photos": 3, "other": 1})
    loader = getattr(mixed, kind)(batch_size=64, shuffle=shuffle, seed=2, columns=["id"])
    assert loader.sources == mixed.names == ["photos", "other"]
    found = []
    for batch in loader:
        ids = np.asarray(batch["id"])
        assert np.array_equal(np.asarray(batch["source"]), ids >= 1000)
        found += ids.tolist()
    # photos is the first to be exhausted.
    assert sorted(row for row in found if row < 1000) == list(range(ROWS))
    counts = Counter(row >= 1000 for row in found[:512])
    assert counts == {False: 384, True: 128}
    assert len(set(found)) == len(found)


def test_a_mixture_stops_at_the_last_source_or_after_a_number_and_resumes_on_other_ranks(photos: fb.Dataset, other: fb.Dataset) -> None:
    mixed = fb.mix([photos, other], [1, 1], stop="last")
    whole = rows(mixed.numpy(batch_size=50, shuffle=True, seed=1))
    counts = Counter(whole)
    assert {counts[row] for row in range(ROWS)} == {1} and {counts[row] for row in range(1000, 1200)} <= {2, 3}
    first = mixed.numpy(batch_size=50, shuffle=True, seed=1)
    begun = rows(first, 7)
    halves = [mixed.numpy(batch_size=20, shuffle=True, seed=1, rank=rank, world_size=2) for rank in range(2)]
    for half in halves:
        half.load_state_dict(first.state_dict())
    parts = [rows(pickle.loads(pickle.dumps(half))) for half in halves]
    assert begun + [row for pair in zip_longest(*parts) for row in pair if row is not None] == whole
    assert len(rows(mixed.numpy(batch_size=50, epoch_length=1234))) == 1234
    twice = rows(photos.numpy(batch_size=50, shuffle="global", epoch_length=2 * ROWS))
    assert set(Counter(twice).values()) == {2} and twice[:ROWS] != twice[ROWS:]
    with pytest.raises(fb.StateError, match="selection"):
        fb.mix([photos, other], [1, 2], stop="last").numpy(batch_size=50, shuffle=True, seed=1).load_state_dict(first.state_dict())


def test_what_can_not_be_mixed_is_refused(photos: fb.Dataset, tmp_path: Any) -> None:
    with pytest.raises(fb.ArgumentError, match="no source"):
        fb.mix([])
    with pytest.raises(fb.ArgumentError, match="weights"):
        fb.mix({"a": photos}, {"b": 1})
    with pytest.raises(fb.ArgumentError, match="2 weights for 1"):
        fb.mix([photos], [1, 2])
    odd = fb.create(str(tmp_path / "odd"), {"image": "uint8[3,8,8]", "label": fb.ClassLabel(), "id": "int64"})
    odd.append({"image": np.zeros((1, 3, 8, 8), np.uint8), "label": [0], "id": [0]})
    odd.commit("odd")
    with pytest.raises(fb.ArgumentError, match="'image'"):
        fb.mix([photos, odd]).numpy(batch_size=4)


def test_rows_are_drawn_by_weight_with_and_without_replacement(photos: fb.Dataset) -> None:
    weights = np.arange(ROWS) % 4
    again = rows(photos.numpy(batch_size=50, shuffle=fb.Weighted(weights), epoch_length=3000, seed=3))
    assert len(again) == 3000 and all(row % 4 for row in again)
    assert 1.5 < Counter(row % 4 for row in again)[3] / Counter(row % 4 for row in again)[1] < 6
    once = photos.numpy(batch_size=50, shuffle=fb.Weighted(weights, replacement=False), seed=3)
    drawn = rows(once)
    assert sorted(drawn) == [row for row in range(ROWS) if row % 4]
    assert rows(once) != drawn
    with pytest.raises(fb.ArgumentError, match="one weight for each"):
        photos.numpy(batch_size=50, shuffle=fb.Weighted([1, 2]))


# What is done to batches


@pytest.fixture
def sentences(tmp_path: Any) -> fb.Dataset:
    """Row i holds i % 9 + 1 tokens: i * 100, i * 100 + 1, and so on."""
    ds = fb.create(str(tmp_path / "sentences"), {"tokens": "int32[?]", "id": "int64"})
    ids = np.arange(60)
    ds.append({"tokens": [np.arange(i * 100, i * 100 + i % 9 + 1, dtype=np.int32) for i in range(60)], "id": ids})
    ds.commit("sentences")
    return ds


@pytest.mark.parametrize("kind", ["pytorch", "numpy"])
def test_rows_are_padded_to_their_longest_to_a_multiple_or_to_a_length(sentences: fb.Dataset, kind: str) -> None:
    for pad, length in ((fb.Pad(-1), 9), (fb.Pad(-1, multiple=8), 16), (fb.Pad(-1, length=12), 12), (fb.Pad(-1, length=4, truncate=True), 4)):
        for batch in getattr(sentences, kind)(batch_size=20, collate={"tokens": pad}):
            tokens, lengths = np.asarray(batch["tokens"]), np.asarray(batch["tokens_length"])
            assert tokens.shape == (20, length) and tokens.dtype == np.int32
            for i, row, filled in zip(batch["id"].tolist(), tokens, lengths):
                assert filled == min(i % 9 + 1, length)
                assert row[:filled].tolist() == [i * 100 + place for place in range(filled)] and set(row[filled:]) <= {-1}
    with pytest.raises(fb.DataError, match="longer than 4"):
        list(sentences.numpy(batch_size=20, collate={"tokens": fb.Pad(length=4)}))
    with pytest.raises(fb.ArgumentError, match="nothing to pad"):
        list(sentences.numpy(batch_size=20, collate={"id": fb.Pad()}))


@pytest.mark.parametrize("kind", ["pytorch", "numpy"])
def test_buckets_bring_rows_of_like_length_together_and_resume_within_a_window(sentences: fb.Dataset, kind: str) -> None:
    def make(**options: Any) -> Any:
        options = {"batch_size": 4, "shuffle": True, "seed": 8, "buckets": fb.Buckets("tokens", window=5), **options}
        return getattr(sentences, kind)(**options)

    def batches(loader: Any, steps: int | None = None) -> list[list[int]]:
        found = []
        for step, batch in enumerate(loader, 1):
            for place, i in enumerate(batch["id"].tolist()):
                assert batch["tokens"].row(place).tolist() == [i * 100 + token for token in range(i % 9 + 1)]
            found.append(batch["id"].tolist())
            if step == steps:
                break
        return found

    def spread(found: list[list[int]]) -> float:
        return float(np.mean([max(i % 9 for i in batch) - min(i % 9 for i in batch) for batch in found]))

    whole = batches(make())
    assert sorted(sum(whole, [])) == list(range(60)) and len(whole) == 15
    assert spread(whole) < spread(batches(make(buckets=None))) / 2
    for steps in range(1, 15):
        loader = make()
        begun = batches(loader, steps)
        rest = make()
        rest.load_state_dict(loader.state_dict())
        assert begun + batches(rest) == whole
        halves = [make(batch_size=2, rank=rank, world_size=2) for rank in range(2)]
        if steps % 5:
            with pytest.raises(fb.StateError, match="window"):
                make(batch_size=5).load_state_dict(loader.state_dict())
        for half in halves:
            half.load_state_dict(loader.state_dict())
        parts = [sum(batches(half), []) for half in halves]
        if steps % 5 == 0:
            assert sorted(sum(begun, []) + parts[0] + parts[1]) == list(range(60))
    damaged = make().state_dict()
    damaged["window"]["batches"] += 1
    with pytest.raises(fb.StateError, match="window"):
        make().load_state_dict(damaged)
    with pytest.raises(fb.StateError, match="window"):
        make(buckets=None).load_state_dict(make().state_dict())


@pytest.mark.parametrize("kind", ["pytorch", "numpy"])
@pytest.mark.parametrize("length", [4, 9, 16])
def test_packed_sequences_are_whole_and_apart(sentences: fb.Dataset, kind: str, length: int) -> None:
    for batch in getattr(sentences, kind)(batch_size=25, shuffle=True, collate={"tokens": fb.Pack(length, value=-1)}):
        tokens, segment, position, bounds = (
            np.asarray(batch[f"tokens{suffix}"]) for suffix in ("", "_segment", "_position", "_cu_seqlens")
        )
        assert tokens.shape == segment.shape == position.shape and tokens.shape[1] == length
        for number, i in enumerate(batch["id"].tolist(), 1):
            order = np.argsort(position[segment == number])
            assert tokens[segment == number][order].tolist() == [i * 100 + place for place in range(i % 9 + 1)]
        assert (tokens[segment == 0] == -1).all()
        assert bounds[0] == 0 and bounds[-1] == tokens.size and bounds.dtype == np.int32
        for start, end in zip(bounds, bounds[1:]):
            assert end > start and len(set(segment.reshape(-1)[start:end])) == 1 and start // length == (end - 1) // length
        # Longest first, each into the first row with room: no two rows are half empty.
        assert ((segment > 0).sum(1) * 2 <= length).sum() <= 1


@pytest.mark.parametrize("kind", ["pytorch", "numpy"])
@pytest.mark.parametrize("collate", [{}, {"tokens": fb.Pad(-1, multiple=4)}, {"tokens": fb.Pack(8)}, {"tokens": fb.Pack(5)}])
def test_batches_hold_at_most_so_many_tokens_and_resume_within_a_window(sentences: fb.Dataset, kind: str, collate: dict[str, Any]) -> None:
    def make(**options: Any) -> Any:
        options = {"batch_size": 6, "shuffle": True, "seed": 8, "buckets": fb.Tokens("tokens", 40, window=4), "collate": collate, **options}
        return getattr(sentences, kind)(**options)

    def batches(loader: Any, steps: int | None = None) -> list[list[int]]:
        found = []
        for step, batch in enumerate(loader, 1):
            ids = batch["id"].tolist()
            tokens = batch["tokens"]
            if isinstance(collate.get("tokens"), fb.Pack):
                segment = np.asarray(batch["tokens_segment"])
                assert sorted(np.asarray(tokens)[segment > 0].tolist()) == sorted(i * 100 + token for i in ids for token in range(i % 9 + 1))
                assert segment.size <= 40
            elif collate:
                assert tokens.shape[0] * tokens.shape[1] <= 40
            else:
                assert max(i % 9 + 1 for i in ids) * len(ids) <= 40
                assert all(tokens.row(place).tolist() == [i * 100 + token for token in range(i % 9 + 1)] for place, i in enumerate(ids))
            found.append(ids)
            if step == steps:
                break
        return found

    whole = batches(make())
    assert sorted(sum(whole, [])) == list(range(60)) and len({len(batch) for batch in whole}) > 1
    for steps in range(1, len(whole)):
        loader = make()
        begun = batches(loader, steps)
        rest = make()
        rest.load_state_dict(json.loads(json.dumps(loader.state_dict())))
        assert begun + batches(rest) == whole
    ranks = [sum(batches(make(rank=rank, world_size=3)), []) for rank in range(3)]
    assert sorted(sum(ranks, [])) == list(range(60))
    with pytest.raises(TypeError, match="depends on the lengths"):
        len(make())
    with pytest.raises(fb.DataError, match="raise the budget"):
        list(make(buckets=fb.Tokens("tokens", 4)))
    with pytest.raises(fb.ArgumentError, match="at least 1"):
        fb.Tokens("tokens", 0)


def test_packing_over_a_window_fills_rows_better_than_packing_each_batch(tmp_path: Any) -> None:
    lengths = np.random.default_rng(3).integers(1, 130, 2000)
    ds = fb.create(str(tmp_path / "texts"), {"tokens": "int32[?]"})
    ds.append({"tokens": [np.full(length, number, np.int32) for number, length in enumerate(lengths)]})
    ds.commit("texts")

    def filled(**options: Any) -> float:
        batches = list(ds.numpy(shuffle=True, collate={"tokens": fb.Pack(128)}, **options))
        segments = [batch["tokens_segment"] for batch in batches]
        assert sum(int((segment > 0).sum()) for segment in segments) == lengths.sum()
        return lengths.sum() / sum(segment.size for segment in segments)

    alone, together = filled(batch_size=16), filled(batch_size=16, buckets=fb.Tokens("tokens", 1024, window=32))
    assert alone < 0.9 < 0.97 < together


@pytest.mark.parametrize("threads", [None, 0, 3])
def test_a_function_of_batches_runs_ahead_in_threads_and_batches_stay_in_order(photos: fb.Dataset, threads: int | None) -> None:
    names = set()

    def work(batch: dict[str, Any]) -> dict[str, Any]:
        names.add(threading.current_thread().name)
        return {"id": batch["id"] * 2, "draw": np.random.default_rng(batch["sample_seed"].tolist()).random()}

    loader = photos.numpy(batch_size=20, shuffle=True, columns=["id"], map_batches=work, map_threads=threads, sample_seeds=True)
    plain = photos.numpy(batch_size=20, shuffle=True, columns=["id"], sample_seeds=True)
    expected = [(batch["id"] * 2, batch["sample_seed"]) for batch in plain]
    found = list(loader)
    assert all(np.array_equal(batch["id"], ids) for batch, (ids, _) in zip(found, expected)) and len(found) == len(expected)
    assert [batch["draw"] for batch in found] == [np.random.default_rng(seeds.tolist()).random() for _, seeds in expected]
    assert len(np.unique(np.concatenate([seeds for _, seeds in expected]))) == ROWS
    assert all(name.startswith("forebay-map") for name in names) == (threads != 0)
    loader.set_epoch(0)
    batches = iter(loader)
    next(batches)
    assert loader.state_dict()["position"] == 20, "what is made ahead doesn't count"


def test_an_error_of_a_function_comes_in_its_turn_and_ends_the_epoch(photos: fb.Dataset) -> None:
    def work(batch: dict[str, Any]) -> dict[str, Any]:
        if 45 in batch["id"]:
            raise RuntimeError("not this one")
        return batch

    batches = iter(photos.numpy(batch_size=20, map_batches=work, map_threads=2))
    assert [next(batches)["id"][0] for _ in range(2)] == [0, 20]
    with pytest.raises(RuntimeError, match="not this one"):
        next(batches)
    assert next(batches, None) is None


def test_encoded_images_are_decoded_and_transformed_and_bad_ones_are_faults(tmp_path: Any) -> None:
    ds = fb.create(str(tmp_path / "encoded"), {"photo": fb.Image(encoding="mixed"), "id": "int64"})

    def encoded(i: int) -> bytes:
        if i == 7:
            return b"no image"
        file = io.BytesIO()
        Image.fromarray(np.full((10 + i, 12, 3), i, np.uint8)).save(file, "PNG")
        return file.getvalue()

    ds.append({"photo": [encoded(i) for i in range(20)], "id": np.arange(20)})
    ds.commit("encoded")
    for batch in ds.numpy(batch_size=6, decode={"photo": "RGB"}, on_fault="skip"):
        for place, i in enumerate(batch["id"].tolist()):
            if batch["sample_weight"][place]:
                assert np.array_equal(batch["photo"].row(place), np.full((10 + i, 12, 3), i))
    loader = ds.pytorch(batch_size=6, decode={"photo": "RGB"}, transforms={"photo": [T.Resize((4, 4))]}, on_fault="substitute")
    assert loader.schema["photo"].shape == (3, 4, 4)
    for batch in loader:
        assert batch["photo"].shape[1:] == (3, 4, 4) and torch.equal(batch["photo"][:, 0, 0, 0].long(), batch["id"])
    assert [fault["row"] for fault in loader.faults()] == [7]
    with pytest.raises(fb.CorruptError, match="no JPEG"):
        list(ds.numpy(batch_size=6, decode={"photo": "L"}))
