"""Views that are kept by name, tables made of them, tables made with their rows."""

from __future__ import annotations

import numpy as np
import pytest

import forebay as fb

COLUMNS = {"id": "int64", "label": "int32?", "text": "utf8", "points": "float32[?,2]", "about": "json", "pixels": "uint8[4,4]"}


def rows(start: int, stop: int) -> dict:
    ids = np.arange(start, stop)
    return {
        "id": ids,
        "label": [None if i % 5 == 0 else int(i % 3) for i in ids],
        "text": [f"row {i} ä" for i in ids],
        "points": [np.full((i % 4, 2), i, np.float32) for i in ids],
        "about": [{"id": int(i)} for i in ids],
        "pixels": np.repeat(ids % 256, 16).reshape(-1, 4, 4).astype(np.uint8),
    }


@pytest.fixture
def ds(tmp_path):
    dataset = fb.create(str(tmp_path / "lake"), COLUMNS)
    dataset.append(rows(0, 50))
    dataset.commit("first")
    dataset.append(rows(50, 80))
    dataset.commit("second")
    return dataset


def same(view, numbers):
    numbers = list(numbers)
    assert view["id"][:].tolist() == numbers
    expected = [rows(i, i + 1) for i in numbers]
    assert [p.tolist() for p in view["points"][:]] == [e["points"][0].tolist() for e in expected]
    assert view["text"][:] == [e["text"][0] for e in expected]
    assert [row["label"] for row in view] == [e["label"][0] for e in expected]
    assert [row["about"] for row in view] == [e["about"][0] for e in expected]
    assert np.array_equal(view["pixels"][:], np.concatenate([e["pixels"] for e in expected]))


def test_a_saved_view_stays_what_it_was(ds):
    chosen = [7, 3, 3, 70]
    ds.save_view("few", ds.select(chosen))
    ds.delete([3, 4, 5])
    assert ds.views() == ["few"] and ds.tables == ["main"]
    same(ds.view("few"), chosen)
    again = fb.open(ds.url)
    same(again.view("few"), chosen)
    assert again.log(5)[1].message == "save view few"
    assert again.view("few").commit_id != again.commit_id


def test_what_keeps_views_is_no_table_to_choose_from(tmp_path):
    ds = fb.create(str(tmp_path / "lake"), {"id": "int64"}, table="photos")
    ds.append({"id": [1, 2]})
    ds.commit()
    ds.save_view("few", ds.select([1]))
    assert fb.open(ds.url).name == "photos"


def test_a_view_of_all_rows_and_one_of_none(ds):
    ds.save_view("all", ds)
    ds.save_view("none", ds.select([]))
    ds.append(rows(80, 81))
    ds.commit()
    assert (len(ds), len(ds.view("all")), len(ds.view("none"))) == (81, 80, 0)
    assert ds.views() == ["all", "none"]


def test_columns_of_a_view_are_kept(ds):
    view = ds.select(slice(0, 4))
    narrow = type(view)(view._rows(), type(view.schema)({"text": view.schema["text"]}))
    ds.save_view("texts", narrow)
    assert ds.view("texts").columns == ["text"]
    assert ds.view("texts")["text"][:] == [f"row {i} ä" for i in range(4)]


def test_views_belong_to_branches(ds):
    side = ds.branch("side")
    side.save_view("mine", side.select([1]))
    assert ds.views() == [] and side.views() == ["mine"]
    ds.merge("side")
    same(ds.view("mine"), [1])


def test_a_name_is_taken_once_unless_it_is_replaced(ds):
    ds.save_view("few", ds.select([1]))
    before = ds.commit_id
    with pytest.raises(fb.ExistsError):
        ds.save_view("few", ds.select([2]))
    assert ds.commit_id == before
    ds.save_view("few", ds.select([2]), replace=True)
    same(ds.view("few"), [2])
    ds.drop_view("few")
    assert ds.views() == []
    with pytest.raises(fb.UnknownTableError, match="there is no view 'few'"):
        ds.view("few")
    with pytest.raises(fb.UnknownTableError):
        ds.drop_view("few")


def test_rows_of_another_lake_are_no_view_of_this_one(ds, tmp_path):
    other = fb.create(str(tmp_path / "other"), {"id": "int64"})
    with pytest.raises(fb.ArgumentError, match="views are kept with their rows"):
        other.save_view("theirs", ds.select([1]))


def test_a_materialized_view_has_its_rows_in_its_order(ds):
    order = np.random.default_rng(0).permutation(80)
    table = ds.materialize("mixed", ds.select(order))
    same(table, order)
    assert {name: (c.dtype, c.shape, c.nullable) for name, c in table.schema.items()} == {
        name: (c.dtype, c.shape, c.nullable) for name, c in ds.schema.items()
    }
    with pytest.raises(fb.ExistsError):
        ds.materialize("mixed", ds.select([1]))
    assert len(ds.materialize("empty", ds.select([]))) == 0
    batches = [batch["id"] for batch in table.select(slice(0, 80)).numpy(batch_size=16, columns=["id"])]
    assert np.concatenate(batches).tolist() == order.tolist()


def test_a_table_is_made_with_its_rows_in_one_commit(ds):
    before = len(ds.log())
    made = ds.create_table("more", COLUMNS, key="id", data=(rows(i, i + 10) for i in range(0, 30, 10)))
    assert len(ds.log()) == before + 1
    same(made, range(30))
    same(ds.create_table("one", COLUMNS, data=rows(5, 7)), [5, 6])


def test_a_table_whose_rows_fail_is_not_made(ds):
    before = ds.commit_id

    def broken():
        yield rows(0, 5)
        raise RuntimeError("the source broke")

    with pytest.raises(RuntimeError, match="the source broke"):
        ds.create_table("broken", COLUMNS, data=broken())
    with pytest.raises(fb.DataError):
        ds.create_table("broken", COLUMNS, data=[rows(0, 5), {"id": [1]}])
    with pytest.raises(fb.DataError, match="same id"):
        ds.create_table("broken", COLUMNS, key="id", data=[rows(0, 5), rows(4, 6)])
    assert fb.open(ds.url).commit_id == before and ds.commit_id == before
    assert ds.tables == ["main"]


def test_a_table_is_dropped_and_older_commits_keep_it(ds):
    ds.create_table("gone", {"id": "int64"}, data={"id": [1, 2]})
    ds.tag("with")
    ds.drop_table("gone")
    assert ds.tables == ["main"]
    assert len(fb.open(ds.url, table="gone", tag="with")) == 2
    with pytest.raises(fb.UnknownTableError):
        ds.drop_table("gone")
    with pytest.raises(fb.ReadOnlyError):
        fb.open(ds.url, tag="with").drop_table("gone")
