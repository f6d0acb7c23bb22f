"""Pins, collections, copies between lakes, rows that differ."""

from __future__ import annotations

from pathlib import Path

import pytest

import forebay as fb


def objects(url: str) -> int:
    return sum(1 for folder in ("meta", "data") for _ in (Path(url) / folder).iterdir())


def test_a_collection_deletes_what_nothing_leads_to(url: str) -> None:
    ds = fb.create(url, {"x": "int64"})
    ds.append({"x": [1, 2]})
    ds.commit("two")
    kept = objects(url)
    exp = ds.branch("exp")
    exp.append({"x": [3]})
    exp.commit("three")
    pinned = fb.open(url, commit=exp.commit_id)
    with pinned.pin(lease=60.0) as pin:
        ds.delete_branch("exp")
        assert pin.held
        report = ds.gc(grace=0, retention=0)
        assert (report["garbage"], report["pins"]) == (0, 1)
        assert pinned["x"][:].tolist() == [1, 2, 3]
    assert not pin.held
    calls: list[tuple[int, int]] = []
    dry = ds.gc(grace=0, retention=0, dry_run=True)
    report = ds.gc(grace=0, retention=0, progress=lambda done, total: calls.append((done, total)))
    assert report["deleted"] == dry["garbage"] == 2
    assert calls[-1] == (2, 2)
    assert objects(url) == kept
    ds.refresh()
    assert ds["x"][:].tolist() == [1, 2]
    with pytest.raises(fb.UnknownVersionError):
        fb.open(url, commit=pinned.commit_id)
    with pytest.raises(fb.UnknownVersionError):
        ds.undelete_branch("exp")


def test_what_a_progress_callback_raises_is_raised(url: str) -> None:
    ds = fb.create(url, {"x": "int64"})

    def refuse(done: int, total: int) -> None:
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        ds.gc(progress=refuse)


def test_expired_commits_stay_in_the_log_and_lose_their_rows(url: str) -> None:
    ds = fb.create(url, {"x": "int64"})
    for value in range(3):
        ds.append({"x": [value]})
        ds.commit(f"row {value}")
        ds.update(0, {"x": [value + 10]})
    ds.compact()
    log = ds.log()
    report = ds.gc(grace=0, retention=0, expire=True)
    assert report["expired"] > 3 and report["deleted"] > 3
    assert [commit.id for commit in fb.open(url).log()] == [commit.id for commit in log]
    assert fb.open(url)["x"][:].tolist() == [12, 1, 2]
    with pytest.raises(fb.UnknownVersionError, match="older than the history that is kept"):
        fb.open(url, commit=log[1].id)["x"][:]


def test_clone_push_and_pull_copy_what_is_missing(url: str, tmp_path: Path) -> None:
    ds = fb.create(url, {"x": "int64"})
    ds.append({"x": [1, 2]})
    ds.commit("two")
    ds.tag("v1")
    copy = str(tmp_path / "copy")
    calls: list[tuple[int, int]] = []
    report = fb.clone(url, copy, progress=lambda done, total: calls.append((done, total)))
    assert report["commits"] == 3 and calls[-1] == (report["bytes"], report["bytes"])
    other = fb.open(copy)
    assert other.commit_id == ds.commit_id and other.tags() == ["v1"]
    assert other["x"][:].tolist() == [1, 2]
    with pytest.raises(fb.ExistsError):
        fb.clone(url, copy)

    ds.append({"x": [3]})
    ds.commit("three")
    assert ds.push(copy)["commits"] == 1
    other.refresh()
    assert other["x"][:].tolist() == [1, 2, 3]
    assert ds.push(copy) == {"commits": 0, "objects": 0, "bytes": 0}

    other.append({"x": [4]})
    other.commit("four")
    ds.append({"x": [5]})
    ds.commit("five")
    with pytest.raises(fb.ConflictError, match="doesn't follow"):
        ds.push(copy)
    ds.pull(copy, "main", into="theirs")
    ds.merge("theirs")
    ds.push(copy)
    other.refresh()
    assert sorted(other["x"][:].tolist()) == [1, 2, 3, 4, 5]


def test_rows_that_differ_come_some_at_a_time(url: str) -> None:
    ds = fb.create(url, {"x": "int64", "y": "int64"})
    ds.append({"x": [1, 2, 3], "y": [1, 2, 3]})
    before = ds.commit("three")
    ds.update(0, {"y": [10]})
    ds.delete(1)
    ds.append({"x": [4], "y": [4]})
    ds.commit("four")
    parts = list(ds.diff_rows(before))
    assert all(isinstance(part, fb.RowChanges) for part in parts)
    assert sum(len(part.added) for part in parts) == 1
    assert [row[-2:] for part in parts for row in part.deleted] == [":1"]
    assert [(old == new, columns) for part in parts for old, new, columns in part.changed] == [(True, ["y"])]
    assert list(ds.diff_rows(ds.commit_id)) == []


def test_commits_remember_properties_and_the_tables_they_changed(url: str) -> None:
    ds = fb.create(url, {"x": "int64"})
    more = ds.create_table("more", {"x": "int64"})
    ds.append({"x": [1]})
    ds.commit("one", properties={"run": 17, "loss": 0.5})
    more.append({"x": [1]})
    more.commit("other")
    newest, one = ds.log(2)
    assert one.properties == {"run": "17", "loss": "0.5"} and newest.properties == {}
    assert (newest.changed, one.changed) == (["more"], ["main"])
    assert [commit.message for commit in ds.log(table="main")] == ["one", "create table main"]


def test_a_branch_is_renamed(url: str) -> None:
    ds = fb.create(url, {"x": "int64"})
    ds.branch("exp")
    ds.rename_branch("exp", "better")
    assert ds.branches() == ["better", "main"]
    with pytest.raises(fb.ExistsError):
        ds.rename_branch("better", "main")


def test_purged_rows_are_gone_from_every_version_and_every_byte(url: str) -> None:
    ds = fb.create(url, {"x": "int64", "text": "utf8"})
    ds.append({"x": [1, 2, 3], "text": ["a", "SECRET", "c"]})
    ds.commit("three")
    ds.tag("v1")
    ds.update(1, {"text": ["SECRET again"]})
    ds.compact()
    ds.append({"x": [4], "text": ["d"]})
    ds.commit("four")
    commits = [commit.id for commit in ds.log()[:-2]]

    def secret() -> bool:
        return any(b"SECRET" in path.read_bytes() for path in Path(url).rglob("*") if path.is_file())

    assert secret()
    report = ds.purge(1, "asked to", author="Ada")
    assert report["rows"] == 1 and report["files"] >= 2
    assert not secret()
    assert ds["x"][:].tolist() == [1, 3, 4]
    for commit in commits:
        assert 2 not in fb.open(url, commit=commit)["x"][:].tolist()
    assert list(fb.open(url, tag="v1")["text"][:]) == ["a", "c"]
    assert [(purge.author, purge.reason, purge.rows) for purge in ds.purges()] == [("Ada", "asked to", 1)]
    ds.finish_purges()
    ds.append({"x": [5], "text": ["e"]})
    ds.commit("five")
    assert fb.open(url)["x"][:].tolist() == [1, 3, 4, 5]


def test_damage_is_told_by_rows_and_the_newest_whole_commit_is_named(url: str) -> None:
    ds = fb.create(url, {"x": "int64", "text": "utf8"})
    ds.append({"x": [1, 2, 3], "text": ["a", "b", "c"]})
    good = ds.commit("three")
    known = {path.name for path in (Path(url) / "data").iterdir()}
    ds.append({"x": [4], "text": ["d"]})
    bad = ds.commit("four")
    found = ds.assess()
    assert found.faults == {} and [(state.newest, state.whole) for state in found.branches] == [(bad, bad)]
    (file,) = (path for path in (Path(url) / "data").iterdir() if path.name not in known)
    file.unlink()
    found = fb.open(url).assess()
    assert list(found.faults) == [f"data/{file.name}"]
    (main,) = found.branches
    assert (main.name, main.newest, main.whole, main.entries_lost) == ("main", bad, good, 0)
    assert [(loss.table, loss.column, loss.rows) for loss in main.losses] == [("main", "text", 1), ("main", "x", 1)]
    ds.reset(main.whole)
    assert ds["x"][:].tolist() == [1, 2, 3]
