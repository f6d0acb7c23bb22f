"""Rows deleted, updated and upserted, columns changed, branches merged: what each promises, and that loaders see it."""

from __future__ import annotations

from pathlib import Path

import forebay as fb
import numpy as np
import pytest


def _lake(path: Path, rows: int = 20) -> fb.Dataset:
    ds = fb.create(str(path / "lake"), {"n": "int64", "v": "float32[2]", "t": "utf8?"})
    for part in (range(rows // 2), range(rows // 2, rows)):
        ds.append({"n": list(part), "v": [[n, -n] for n in part], "t": [None if n % 3 == 0 else f"t{n}" for n in part]})
        ds.commit("rows")
    return ds


def _loaded(ds: fb.Rows, column: str) -> list[int]:
    return [int(n) for batch in ds.numpy(batch_size=3) for n in batch[column]]


def test_deleted_rows_are_gone_for_readers_and_loaders(tmp_path: Path) -> None:
    ds = _lake(tmp_path)
    before = ds.commit_id
    ds.delete([0, 9, 10])
    ds.delete(slice(-2, None))
    ds.delete(ds["n"][:] == 5)
    left = [n for n in range(18) if n not in (0, 9, 10, 5)]
    assert len(ds) == len(left)
    assert ds["n"][:].tolist() == left == _loaded(ds, "n")
    assert ds["v"][:].tolist() == [[n, -n] for n in left]
    assert [row["n"] for row in ds] == left
    assert ds["t"][[0, -1]] == ["t1", "t17"]
    assert len(fb.open(ds.url, commit=before)) == 20


def test_updated_cells_are_seen_everywhere_and_other_cells_stay(tmp_path: Path) -> None:
    ds = _lake(tmp_path)
    ds.update([3, 15], {"v": np.full((2, 2), 7, np.float32), "t": ["new", None]})
    ds.update(15, {"n": [150]})
    numbers = [150 if n == 15 else n for n in range(20)]
    assert ds["n"][:].tolist() == numbers == _loaded(ds, "n")
    assert ds["v"][3].tolist() == ds[15]["v"].tolist() == [7, 7]
    assert ds["v"][2:5].tolist() == [[2, -2], [7, 7], [4, -4]]
    assert (ds["t"][3], ds["t"][15], ds["t"][4]) == ("new", None, "t4")
    with pytest.raises(fb.UnknownColumnError):
        ds.update(0, {"x": [1]})
    with pytest.raises(fb.DataError):
        ds.update([0, 1], {"n": [1]})


def test_columns_are_added_renamed_and_dropped(tmp_path: Path) -> None:
    ds = _lake(tmp_path)
    ds.add_column("score", "float32", np.arange(20, dtype=np.float32) / 2, default=-1.0)
    ds.add_column("note", "utf8?")
    ds.rename_column("t", "text")
    ds.drop_column("v")
    ds.append({"n": [20], "text": ["late"], "score": [5.5], "note": ["x"]})
    ds.commit("one more")
    assert ds.columns == ["n", "text", "score", "note"]
    assert ds["score"][:].tolist() == [n / 2 for n in range(20)] + [5.5]
    assert ds["note"][:] == [None] * 20 + ["x"]
    assert [float(s) for batch in ds.numpy(batch_size=4, columns=["score"]) for s in batch["score"]][-2:] == [9.5, 5.5]
    with pytest.raises(fb.ArgumentError, match="default"):
        ds.add_column("bare", "int64")
    with pytest.raises(fb.SchemaError):
        ds.add_column("n", "int64", default=0)


def test_a_change_over_an_older_commit_is_merged_or_refused(tmp_path: Path) -> None:
    ds = _lake(tmp_path)
    other = fb.open(ds.url)
    ds.update(3, {"n": [33]})
    other.delete(0)
    assert other["n"][:4].tolist() == [1, 2, 33, 4]
    with pytest.raises(fb.ConflictError, match="column 'n'.*1 row"):
        ds.update([2, 4], {"n": [22, 44]}) and other.update(3, {"n": [0]})
    ds.append({"n": [1], "v": [[0, 0]], "t": [None]})
    with pytest.raises(fb.UncommittedError):
        ds.delete(0)


def test_branches_merge_row_by_row(tmp_path: Path) -> None:
    ds = _lake(tmp_path)
    trial = ds.branch("trial")
    trial.update([1, 2], {"n": [-1, -2]})
    trial.delete(0)
    ds.update(1, {"t": ["ours"]})
    ds.compact()
    dry = ds.merge("trial", dry_run=True)
    assert (dry.outcome, dry.conflicts) == ("merged", [])
    assert ds.merge("trial").outcome == "merged"
    assert ds["n"][:3].tolist() == [-1, -2, 3]
    assert ds["t"][0] == "ours"
    assert ds.merge("trial").outcome == "up to date"
    trial.update(1, {"n": [5]})
    ds.update(1, {"n": [6]})
    conflicts = ds.merge("trial", dry_run=True).conflicts
    assert len(conflicts) == 1 and "column 'n'" in conflicts[0]
    with pytest.raises(fb.ConflictError, match="column 'n'"):
        ds.merge("trial")
    ds.merge("trial", {"n": "theirs", "*": "ours"})
    assert ds["n"][1] == 5
    assert len(ds.log(1)[0].parents) == 2


def test_history_can_be_undone_and_shown(tmp_path: Path) -> None:
    ds = _lake(tmp_path)
    start = ds.commit_id
    ds.tag("start")
    bad = ds.delete(slice(0, 5))
    ds.update(0, {"n": [55]})
    difference = ds.diff("start")
    assert [(d["rows_added"], d["rows_deleted"], d["rows_changed"]) for d in difference] == [(0, 5, 1)]
    ds.revert(bad)
    assert len(ds) == 20 and 55 in ds["n"][:].tolist()
    ds.reset("start")
    assert ds.commit_id == start and ds["n"][:].tolist() == list(range(20))
    ds.branch("other")
    ds.delete_branch("other")
    assert ds.branches() == ["main"]
    ds.undelete_branch("other")
    assert ds.branches() == ["main", "other"]
    ds.delete_tag("start")
    assert ds.tags() == []
    with pytest.raises(fb.ExistsError):
        ds.tag("start")


def test_rows_are_upserted_by_their_key(tmp_path: Path) -> None:
    url = str(tmp_path / "keyed")
    ds = fb.create(url, {"id": "utf8", "n": "int64"}, key="id")
    ds.append({"id": ["a", "b"], "n": [1, 2]})
    ds.commit("two")
    ds.upsert({"id": ["b", "c"], "n": [20, 30]})
    found = dict(zip(ds["id"][:], ds["n"][:].tolist()))
    assert found == {"a": 1, "b": 20, "c": 30}
    ds.append({"id": ["a"], "n": [5]})
    with pytest.raises(fb.Error, match="the same id"):
        ds.commit("a second a")


def test_creating_again_needs_the_same_key(tmp_path: Path) -> None:
    url, schema = str(tmp_path / "keyed"), {"id": "utf8", "n": "int64"}
    fb.create(url, schema, key=["id", "n"])
    assert len(fb.create(url, schema, key=["id", "n"], exist_ok=True)) == 0
    with pytest.raises(fb.ExistsError, match="key: id, n"):
        fb.create(url, schema, key="id", exist_ok=True)
    with pytest.raises(fb.SchemaError, match="nullable"):
        fb.create(str(tmp_path / "other"), {"id": "utf8?"}, key="id")
    with pytest.raises(fb.UnknownColumnError):
        fb.create(str(tmp_path / "third"), schema, key="nothing")


def test_a_table_without_a_key_takes_no_upsert(tmp_path: Path) -> None:
    with pytest.raises(fb.ArgumentError, match="key"):
        _lake(tmp_path).upsert({"n": [1], "v": np.zeros((1, 2), np.float32), "t": ["x"]})
