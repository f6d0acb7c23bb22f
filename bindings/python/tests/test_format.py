"""A reader written from docs/format.md alone agrees with Forebay, byte for byte; also on a lake that an earlier version wrote."""

from __future__ import annotations

import base64
import json
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import forebay as fb
import numpy as np
import pytest

from reader import Damaged, Lake, link, row_set

GOLDEN = Path(__file__).parent / "golden"


def _spec(spec: str, **options: Any) -> fb.Column:
    return fb.Column(spec, **options)


def _write(path: Path) -> fb.Dataset:
    """A lake with columns of every layout, in which about everything was changed that can be."""
    schema = {
        "n": "int64",
        "image": "uint8[3,5,4]",
        "large": "float32[70]",
        "packed": fb.Column("int32[300]", compression="lz4"),
        "maybe": "float64?",
        "text": "utf8?",
        "blob": "bytes",
        "points": "uint16[?,2]",
    }
    ds = fb.create(str(path), schema)
    random = np.random.default_rng(5)

    def rows(start: int, stop: int) -> dict[str, Any]:
        count = stop - start
        return {
            "n": np.arange(start, stop),
            "image": random.integers(0, 256, (count, 3, 5, 4), np.uint8),
            "large": random.random((count, 70), np.float32),
            "packed": np.arange(count * 300, dtype=np.int32).reshape(count, 300) // 7,
            "maybe": [None if n % 4 == 1 else n / 3 for n in range(start, stop)],
            "text": [None if n % 5 == 2 else "löwe " * (n % 7) for n in range(start, stop)],
            "blob": [bytes(range(n % 40)) for n in range(start, stop)],
            "points": [np.full((n % 4, 2), n, np.uint16) for n in range(start, stop)],
        }

    ds.append(rows(0, 30))
    ds.commit("first")
    ds.tag("v1")
    ds.append(rows(30, 50))
    ds.commit("second")
    trial = ds.branch("trial")
    trial.update([3, 31], {"text": ["theirs", None], "large": np.ones((2, 70), np.float32)})
    trial.delete([5, 6, 7, 49])
    ds.update([4, 31], {"points": [np.zeros((9, 2), np.uint16), np.zeros((0, 2), np.uint16)], "maybe": [None, 0.5]})
    ds.add_column("score", "float32", default=1.5)
    ds.add_column("note", "utf8?")
    ds.rename_column("blob", "bytes")
    ds.merge("trial")
    ds.append({**{name: data for name, data in rows(50, 53).items() if name != "blob"}, "bytes": [b"a", b"", b"c"],
               "score": [1, 2, 3], "note": ["x", None, "z"]})  # fmt: skip
    ds.commit("third")
    ds.tag("v2")
    ds.compact()
    ds.delete([0])
    ds.update(0, {"note": ["after"]})
    ds.drop_column("image")
    ds.branch("gone")
    ds.delete_branch("gone")
    return ds


def _bytes(ds: fb.Rows, name: str) -> list[Any]:
    """A column's rows as the reader gives them."""
    column = ds.schema[name]
    found: list[Any] = []
    for value in (ds[name][row] for row in range(len(ds))):
        if value is None or value is np.ma.masked:
            found.append(None)
        elif isinstance(value, (str, bytes)):
            found.append((value.encode() if isinstance(value, str) else value, ()))
        else:
            array = np.asarray(value)
            found.append((array.tobytes(), array.shape if None in column.shape else ()))
    return found


def _agree(lake: Lake, url: str, **at: str) -> None:
    kind, name = next(iter(at.items()))
    ds = fb.open(url, **at)
    read = lake.read(getattr(lake, kind)(name), "main")
    assert list(read) == ds.columns
    for column in ds.columns:
        assert read[column] == _bytes(ds, column), f"column '{column}' at {kind} {name}"


def test_a_stranger_reads_what_forebay_wrote(tmp_path: Path) -> None:
    url = str(tmp_path / "lake")
    ds = _write(tmp_path / "lake")
    lake = Lake(url)
    assert lake.branches() == ds.branches() == ["main", "trial"]
    for branch in ds.branches():
        _agree(lake, url, branch=branch)
    for tag in ds.tags():
        _agree(lake, url, tag=tag)
    for commit in ds.log()[:-2]:
        _agree(lake, url, commit=commit.id)
    with pytest.raises(Damaged):
        lake.branch("gone")


def test_a_wrong_byte_is_found_by_a_stranger(tmp_path: Path) -> None:
    _write(tmp_path / "lake")
    lake = Lake(tmp_path / "lake")
    file = lake.pages(lake.tables(lake.branch("main"))["main"].table(3))[0][0].files[0]
    path = tmp_path / "lake" / "data" / file.name.hex()
    data = bytearray(path.read_bytes())
    data[4096 + 5] ^= 1
    path.chmod(0o644)
    path.write_bytes(data)
    with pytest.raises(Damaged, match="checksum"):
        lake.read(lake.branch("main"), "main")


def test_the_example_of_a_row_set_is_right() -> None:
    assert row_set(bytes.fromhex("0003A90201")) == [0, 1, 2, 300]


def _golden(name: str, make: Callable[[Path], Any], tmp_path: Path) -> str:
    """The URL of a golden lake. ``FOREBAY_GOLDEN=write`` makes it where it is missing; what is there is never written again."""
    golden = GOLDEN / f"{name}.json"
    if os.environ.get("FOREBAY_GOLDEN") == "write" and not golden.exists():
        made = tmp_path / "made"
        make(made)
        files = sorted(path for path in made.rglob("*") if path.is_file())
        packed = {str(path.relative_to(made)): base64.b64encode(zlib.compress(path.read_bytes(), 9)).decode() for path in files}
        GOLDEN.mkdir(exist_ok=True)
        golden.write_text(json.dumps(packed, indent=0, sort_keys=True) + "\n")
    for path_name, text in json.loads(golden.read_text()).items():
        path = tmp_path / "lake" / path_name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(zlib.decompress(base64.b64decode(text)))
    return str(tmp_path / "lake")


def test_a_golden_lake_is_read_by_both(tmp_path: Path) -> None:
    url = _golden("v1", _write, tmp_path)
    lake = Lake(url)
    assert lake.branches() == ["main", "trial"]
    for at in ({"branch": "main"}, {"branch": "trial"}, {"tag": "v1"}, {"tag": "v2"}):
        _agree(lake, url, **at)
    assert (len(fb.open(url)), len(fb.open(url, tag="v2")), len(fb.open(url, tag="v1"))) == (48, 49, 30)
    ds = fb.open(url)
    ds.delete(0)
    _agree(Lake(url), url, branch="main")


def test_commits_of_a_golden_lake_are_pointed_at_and_copied_as_they_were_written(tmp_path: Path) -> None:
    """This version may write the same commit otherwise."""
    url = _golden("v1", _write, tmp_path)
    old = fb.open(url, tag="v1")
    old.branch("old")
    old.tag("again")
    ds = fb.open(url)
    ds.reset("v1")
    ds.delete_tag("v2")
    copy = str(tmp_path / "copy")
    fb.clone(url, copy)
    for place in (url, copy):
        lake = Lake(place)
        for at in ({"branch": "main"}, {"branch": "old"}, {"branch": "trial"}, {"tag": "v1"}, {"tag": "again"}):
            _agree(lake, place, **at)
        assert fb.open(place).tags() == ["again", "v1"]


def _collected(path: Path) -> None:
    """A lake that was collected under a pin: its branches have fences, and old commits have no tables."""
    ds = _write(path)
    pin = fb.open(str(path), tag="v1").pin(holder="golden")
    ds.gc(grace=0, retention=0, expire=True)
    # A pin that nobody releases: it ends with its lease.
    del pin


def test_a_golden_lake_that_was_collected_is_read_by_both(tmp_path: Path) -> None:
    url = _golden("v1-gc", _collected, tmp_path)
    assert len(list((tmp_path / "lake/pins").iterdir())) == 1
    assert [path.name for path in sorted((tmp_path / "lake/gc").rglob("*")) if path.is_file()] == [
        "done", "pins", "start", "verdict"
    ]  # fmt: skip
    lake = Lake(url)
    for at in ({"branch": "main"}, {"branch": "trial"}, {"tag": "v1"}, {"tag": "v2"}):
        _agree(lake, url, **at)
    ds = fb.open(url)
    with pytest.raises(fb.UnknownVersionError, match="older than the history that is kept"):
        fb.open(url, commit=ds.log()[1].id).branch("old")
    ds.delete(0)
    assert ds.gc(grace=0, retention=0)["epoch"] == 2
    _agree(Lake(url), url, branch="main")


def _purged(path: Path) -> None:
    ds = _write(path)
    fb.open(str(path), tag="v1").purge([2, 11], "a test", author="golden")
    ds.refresh()
    ds.update(0, {"note": ["after the purge"]})
    ds.compact()


def test_a_golden_lake_with_erased_rows_is_read_by_both(tmp_path: Path) -> None:
    url = _golden("v1-purge", _purged, tmp_path)
    lake = Lake(url)
    for at in ({"branch": "main"}, {"branch": "trial"}, {"tag": "v1"}, {"tag": "v2"}):
        _agree(lake, url, **at)
    assert len(fb.open(url, tag="v1")) == 28
    assert not {2, 11} & set(fb.open(url)["n"][:].tolist())
    ds = fb.open(url)
    ds.delete(0)
    _agree(Lake(url), url, branch="main")


def test_a_golden_lake_of_packed_pages_is_read_by_both(tmp_path: Path) -> None:
    url = _golden("v1-runs", _write, tmp_path)
    bits = [int.from_bytes(path.read_bytes()[16:24], "little") for path in (tmp_path / "lake/meta").iterdir()]
    assert any(bit & 8 for bit in bits), "a page has runs"
    lake = Lake(url)
    for at in ({"branch": "main"}, {"branch": "trial"}, {"tag": "v1"}, {"tag": "v2"}):
        _agree(lake, url, **at)
    ds = fb.open(url)
    ds.delete(0)
    _agree(Lake(url), url, branch="main")


BASE = "s3://bucket/photos"


def _linked(path: Path) -> None:
    """A lake of links, each with other parts, some updated; nothing is behind them."""
    links = [
        fb.Link(f"{BASE}/cat/a.jpg", 1234, etag="v1"),
        fb.Link(f"{BASE}/löwe.jpg", 9, hash="0f" * 32),
        None,
        fb.Link(f"{BASE}/shard.tar", 1 << 40, etag="v2", hash="f0" * 32, offset=512, length=100),
        fb.Link("https://example.org/a b.jpg", 0, etag="-"),
        fb.Link("/data/c.jpg", 5, etag="x" * 40),
    ]
    ds = fb.create(str(path), {"n": "int64", "photo": fb.Links(BASE, nullable=True, kind="image", encoding="jpeg"), "file": "link"})
    ds.append({"n": range(6), "photo": links, "file": [fb.Link(f"{n}/x", n, etag="e") for n in range(6)]})
    ds.commit("links")
    ds.tag("v1")
    ds.update([1], {"photo": [fb.Link(f"{BASE}/updated.jpg", 7, etag="v3")]})
    ds.compact()
    ds.delete([0])


def test_a_golden_lake_of_links_is_read_by_both(tmp_path: Path) -> None:
    url = _golden("v1-links", _linked, tmp_path)
    lake = Lake(url)
    for at, kind, name, rows in (({"tag": "v1"}, "tag", "v1", 6), ({"branch": "main"}, "branch", "main", 5)):
        ds = fb.open(url, **at)
        commit = getattr(lake, kind)(name)
        assert lake.bases(commit, "main") == {"photo": BASE, "file": None}
        read = lake.read(commit, "main")
        assert len(ds) == rows and ds.schema["photo"].dtype == "link" and ds.schema["photo"].kind == "image"
        for column, base in lake.bases(commit, "main").items():
            for found, value in zip(read[column], ds[column][:], strict=True):
                if value is None:
                    assert found is None
                    continue
                plain = link(found[0])
                url_of = plain["url"] if base is None or "://" in plain["url"] or plain["url"][0] == "/" else f"{base}/{plain['url']}"
                assert (url_of, plain["size"], plain["etag"]) == (value.url, value.size, value.etag)
                assert plain["range"] == (value.offset, value.offset + value.length)
                assert (plain["hash"] or b"").hex() == (value.hash or "")
    assert [value and value.url for value in fb.open(url)["photo"][:]][0] == f"{BASE}/updated.jpg"
