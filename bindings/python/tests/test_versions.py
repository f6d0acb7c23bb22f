"""Commits, branches, tags, tables: what is visible when, and to whom."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pytest
from conftest import ROWS

import forebay as fb


def test_rows_are_seen_after_the_commit_and_not_before(url: str) -> None:
    ds = fb.create(url, {"x": "int64"})
    ds.append({"x": [1, 2]})
    assert len(ds) == 0 and ds.pending == 2
    assert len(fb.open(url)) == 0
    ds.commit("two")
    assert len(ds) == 2 and ds.pending == 0
    assert fb.open(url)["x"][:].tolist() == [1, 2]


def test_a_handle_stays_at_its_commit_until_it_moves(url: str) -> None:
    ds = fb.create(url, {"x": "int64"})
    reader = fb.open(url)
    column, at = reader["x"], reader.commit_id
    ds.append({"x": [1]})
    commit = ds.commit()
    assert len(reader) == 0 and reader.commit_id == at
    reader.refresh()
    assert len(reader) == 1 and reader.commit_id == commit
    assert column[:].tolist() == [1]


def test_concurrent_appends_are_both_there(url: str) -> None:
    first = fb.create(url, {"x": "int64"})
    second = fb.open(url)
    first.append({"x": [1]})
    second.append({"x": [2]})
    first.commit("first")
    second.commit("second")
    assert second["x"][:].tolist() == [1, 2]
    assert first["x"][:].tolist() == [1]


def test_the_log_says_who_what_and_when(url: str) -> None:
    ds = fb.create(url, {"x": "int64"})
    ds.append({"x": [1, 2, 3]})
    before = dt.datetime.now(dt.timezone.utc)
    commit = ds.commit("three rows", author="Ada")
    log = ds.log()
    assert [entry.message for entry in log] == ["three rows", "create table main", "create lake"]
    assert log[0].id == commit == ds.commit_id and log[0].author == "Ada"
    assert log[0].parents == [log[1].id] and log[0].tables == {"main": 3}
    assert abs(log[0].time - before) < dt.timedelta(minutes=1)
    assert "three rows" in repr(log[0])
    assert [entry.id for entry in ds.log(limit=1)] == [commit]
    assert ds.log(limit=0) == []


def test_the_author_comes_from_the_environment_if_not_given(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOREBAY_AUTHOR", "Grace")
    ds = fb.create(url, {"x": "int64"})
    ds.append({"x": [1]})
    ds.commit()
    assert ds.log(1)[0].author == "Grace"


def test_nothing_to_commit_is_an_error_of_its_own(url: str) -> None:
    ds = fb.create(url, {"x": "int64"})
    for _ in range(2):
        with pytest.raises(fb.NothingToCommitError):
            ds.commit()
    assert len(ds.log()) == 2


def test_discarded_rows_are_never_seen(url: str) -> None:
    ds = fb.create(url, {"x": "int64"})
    ds.append({"x": [1]})
    ds.discard()
    assert ds.pending == 0
    ds.append({"x": [2]})
    ds.commit()
    assert ds["x"][:].tolist() == [2]


def test_a_branch_goes_its_own_way(photos: fb.Dataset) -> None:
    branch = photos.branch("experiment")
    assert branch.branch_name == "experiment" and len(branch) == ROWS
    branch.append({"image": np.zeros((1, 3, 16, 16), np.uint8), "label": [0], "id": [1000]})
    branch.commit("one more")
    assert len(branch) == ROWS + 1
    photos.refresh()
    assert len(photos) == ROWS
    assert photos.branches() == ["experiment", "main"]
    assert len(fb.open(photos.url, branch="experiment")) == ROWS + 1


def test_a_tag_never_moves(photos: fb.Dataset) -> None:
    photos.tag("v1")
    photos.append({"image": np.zeros((1, 3, 16, 16), np.uint8), "label": [0], "id": [1000]})
    photos.commit()
    assert photos.tags() == ["v1"]
    assert len(fb.open(photos.url, tag="v1")) == ROWS
    with pytest.raises(fb.ExistsError, match="v1"):
        photos.tag("v1")


def test_a_commit_can_be_opened_by_id(photos: fb.Dataset) -> None:
    older = photos.log()[1]
    ds = fb.open(photos.url, commit=older.id)
    assert len(ds) == 300 and ds.commit_id == older.id and ds.branch_name is None


@pytest.mark.parametrize("by", ["tag", "commit"])
def test_a_handle_at_a_tag_or_commit_cannot_be_written(photos: fb.Dataset, by: str) -> None:
    photos.tag("v1")
    ds = fb.open(photos.url, **{by: "v1" if by == "tag" else photos.commit_id})
    row = {"image": np.zeros((1, 3, 16, 16), np.uint8), "label": [0], "id": [1]}
    for write in (lambda: ds.append(row), ds.commit, lambda: ds.create_table("t", {"x": "int64"})):
        with pytest.raises(fb.ReadOnlyError):
            write()


def test_unknown_versions_and_tables_are_key_errors_that_list_the_known(photos: fb.Dataset) -> None:
    for arguments, says in (
        ({"branch": "nope"}, "main"),
        ({"tag": "nope"}, "none"),
        ({"commit": "0" * 32}, "0000"),
        ({"commit": "nonsense"}, "hexadecimal"),
        ({"table": "nope"}, "main"),
    ):
        with pytest.raises(fb.Error, match=says) as raised:
            fb.open(photos.url, **arguments)
        assert isinstance(raised.value, KeyError)
    with pytest.raises(KeyError):
        photos.table("nope")
    with pytest.raises(ValueError, match="at most one"):
        fb.open(photos.url, branch="main", tag="v1")


def test_names_that_exist_or_break_a_rule_are_refused(photos: fb.Dataset) -> None:
    with pytest.raises(fb.ExistsError) as raised:
        photos.branch("main")
    assert isinstance(raised.value, FileExistsError)
    for name in ("", "a/../b", "a b", "."):
        with pytest.raises(fb.ArgumentError):
            photos.branch(name)


def test_tables_of_a_lake_are_committed_together(url: str) -> None:
    ds = fb.create(url, {"x": "int64"}, table="train")
    val = ds.create_table("val", {"y": "utf8"})
    assert ds.tables == ["train", "val"]
    ds.append({"x": [1, 2]})
    val.append({"y": ["a"]})
    assert len(ds) == 0 and len(val) == 0
    val.commit("both")
    assert len(ds) == 2 and val["y"][:] == ["a"]
    assert fb.open(url, table="val")["y"][0] == "a"
    assert ds.table("val").name == "val"
    assert ds.log(1)[0].tables == {"train": 2, "val": 1}
    with pytest.raises(fb.ExistsError):
        ds.create_table("val", {"y": "utf8"})


def test_a_table_is_not_made_while_rows_wait(url: str) -> None:
    ds = fb.create(url, {"x": "int64"})
    ds.append({"x": [1]})
    with pytest.raises(fb.UncommittedError, match="1 appended"):
        ds.create_table("other", {"y": "int64"})
    assert ds.pending == 1


def test_a_lake_with_one_table_opens_at_it(url: str) -> None:
    fb.create(url, {"x": "int64"}, table="train")
    assert fb.open(url).name == "train"


def test_creating_again_needs_exist_ok_and_the_same_columns(url: str) -> None:
    ds = fb.create(url, {"x": "int64"})
    ds.append({"x": [1]})
    ds.commit()
    with pytest.raises(fb.ExistsError):
        fb.create(url, {"x": "int64"})
    assert len(fb.create(url, {"x": "int64"}, exist_ok=True)) == 1
    with pytest.raises(fb.ExistsError, match="other columns"):
        fb.create(url, {"x": "int32"}, exist_ok=True)
    assert fb.create(url, {"y": "utf8"}, table="more").tables == ["main", "more"]


def test_a_closed_handle_says_so(photos: fb.Dataset) -> None:
    with photos as ds:
        assert len(ds) == ROWS
    assert photos.closed
    for use in (lambda: len(photos), lambda: photos[0], lambda: photos.append({}), photos.log, photos.commit):
        with pytest.raises(fb.ClosedError):
            use()
    photos.close()
    assert "closed" in repr(photos)


def test_leaving_without_a_commit_warns_and_drops_the_rows(url: str) -> None:
    fb.create(url, {"x": "int64"})
    with pytest.warns(RuntimeWarning, match="2 appended rows"), fb.open(url) as ds:
        ds.append({"x": [1, 2]})
    assert len(fb.open(url)) == 0


def test_an_exception_in_a_with_block_is_not_masked(url: str) -> None:
    fb.create(url, {"x": "int64"})
    with pytest.raises(ZeroDivisionError), fb.open(url) as ds:
        ds.append({"x": [1]})
        1 / 0
    assert len(fb.open(url)) == 0


def test_memory_lakes_are_shared_by_name_within_the_process() -> None:
    ds = fb.create("memory://test-versions", {"x": "int64"})
    ds.append({"x": [7]})
    ds.commit()
    assert fb.open("memory://test-versions")["x"][0] == 7


def test_paths_may_be_path_objects_and_file_urls(tmp_path) -> None:
    fb.create(tmp_path / "lake", {"x": "int64"})
    assert len(fb.open(f"file://{tmp_path}/lake")) == 0
