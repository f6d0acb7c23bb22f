"""Feeds: rows in table order, and those that are appended meanwhile."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import ids

import forebay as fb


@pytest.fixture
def events(tmp_path: Path) -> fb.Dataset:
    ds = fb.create(tmp_path / "events", {"id": "int64"})
    add(ds, 0, 500)
    return ds


def add(ds: fb.Dataset, start: int, end: int) -> None:
    ds.append({"id": np.arange(start, end)})
    ds.commit(f"to {end}")


@pytest.mark.parametrize("kind", ["numpy", "pytorch"])
def test_what_is_there_comes_first_and_then_what_was_appended(events: fb.Dataset, kind: str) -> None:
    feed = fb.feed(events, 32, kind=kind)
    assert ids(feed) == list(range(500)) and ids(feed) == [] and feed.rows == 500
    writer = fb.open(events.url)
    add(writer, 500, 530)
    assert ids(feed) == [], "the handle sees it when it is refreshed"
    events.refresh()
    add(writer, 530, 570)
    assert ids(feed) == list(range(500, 530))
    events.refresh()
    assert ids(feed) == list(range(530, 570))


def test_a_buffer_mixes_what_is_near_each_other_the_same_way_each_time(events: fb.Dataset) -> None:
    found = ids(fb.feed(events, 32, shuffle=fb.Buffer(100), seed=3))
    assert found == ids(fb.feed(events, 10, shuffle=fb.Buffer(100), seed=3)) != ids(fb.feed(events, 10, shuffle=fb.Buffer(100), seed=4))
    for start in range(0, 500, 100):
        run = found[start : start + 100]
        assert sorted(run) == list(range(start, start + 100)) and run != sorted(run)


@pytest.mark.parametrize("steps", [1, 7, 15, 16])
def test_a_state_goes_on_at_a_newer_commit_on_other_ranks(events: fb.Dataset, steps: int) -> None:
    options: dict[str, Any] = {"shuffle": fb.Buffer(64), "seed": 5}
    whole = ids(fb.feed(events, 32, **options))
    first = fb.feed(events, 32, **options)
    before = ids(first, steps)
    state = json.loads(json.dumps(first.state_dict()))
    add(fb.open(events.url), 500, 620)  # The group that the state stands in, and the segment, stay as they were.
    assert before == whole[: len(before)]
    feeds = [fb.feed(fb.open(events.url), 8, rank=rank, world_size=2, **options) for rank in range(2)]
    for feed in feeds:
        feed.load_state_dict(state)
    if len(before) < 500:
        rest = [ids(feed) for feed in feeds]
        assert [row for pair in zip(*rest) for row in pair] == whole[len(before) :]
    added = [ids(feed) for feed in feeds]
    assert sorted(sum(added, [])) == list(range(500, 620))


def test_rows_that_changed_after_they_were_delivered_are_an_error(events: fb.Dataset) -> None:
    feed = fb.feed(events, 32)
    ids(feed)
    events.delete([3])
    with pytest.raises(fb.DataError, match="append"):
        ids(feed)


def test_a_damaged_state_is_refused_and_changes_nothing(events: fb.Dataset) -> None:
    feed = fb.feed(events, 32)
    ids(feed, 3)
    state = feed.state_dict()
    for name in state:
        with pytest.raises(fb.StateError):
            fb.feed(events, 32).load_state_dict({**state, name: "x" if state[name] is None else None})
    with pytest.raises(fb.StateError, match="seed|shuffle"):
        fb.feed(events, 32, shuffle=fb.Buffer(9), seed=1).load_state_dict(state)
    with pytest.raises(fb.ArgumentError):
        fb.feed(events, 32, epoch_length=7)
    with pytest.raises(fb.ArgumentError):
        fb.feed(events, 32, kind="lists")
    assert ids(feed) == list(range(96, 500))
