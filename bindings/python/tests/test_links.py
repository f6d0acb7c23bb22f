"""Links: columns that point at bytes elsewhere, read by rows and loaders, checked, and only where they may lead."""

from __future__ import annotations

import io
import json
import os
import pickle
from pathlib import Path
from typing import Any

import forebay as fb
import numpy as np
import pytest
from PIL import Image


def _photo(row: int) -> bytes:
    pixels = np.full((6, 8, 3), row * 10, np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def _etag(path: Path) -> str:
    """As the local store makes it."""
    stat = path.stat()
    return f"{stat.st_ino:x}-{stat.st_mtime_ns:x}-{stat.st_size:x}"


def _links(folder: Path, rows: int = 12) -> list[fb.Link]:
    links = []
    for row in range(rows):
        path = folder / ("even" if row % 2 == 0 else "odd") / f"{row:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(_photo(row))
        links.append(fb.Link(str(path), path.stat().st_size, etag=_etag(path)))
    return links


def _lake(tmp_path: Path, **options: Any) -> tuple[fb.Dataset, list[fb.Link], Path]:
    photos = tmp_path / "photos"
    links = _links(photos)
    schema = {"id": "int64", "photo": fb.Links(str(photos), kind="image", encoding="png", **options)}
    ds = fb.create(str(tmp_path / "lake"), schema, links=[str(photos)])
    ds.append({"id": np.arange(len(links)), "photo": links})
    ds.commit("links")
    return ds, links, photos


def test_a_link_is_a_value(tmp_path: Path) -> None:
    link = fb.Link("s3://bucket/a.jpg", 100, etag="x", hash="ab" * 32, offset=10, length=5)
    assert (link.url, link.size, link.etag, link.hash, link.offset, link.length) == ("s3://bucket/a.jpg", 100, "x", "ab" * 32, 10, 5)
    whole = fb.Link("s3://bucket/a.jpg", 100, etag="x")
    assert (whole.offset, whole.length, whole.hash) == (0, 100, None)
    for value in (link, whole):
        assert pickle.loads(pickle.dumps(value)) == value == eval(repr(value), {"Link": fb.Link})
    assert link != whole and len({link, whole, pickle.loads(pickle.dumps(link))}) == 2
    assert fb.Link("a", 10, etag="x", offset=4).length == 6
    for wrong in ({}, {"etag": ""}, {"etag": "x", "offset": 4, "length": 7}, {"etag": "a\nb"}):
        with pytest.raises(fb.DataError):
            fb.Link("a", 10, **wrong)
    with pytest.raises(fb.ArgumentError, match="64 hexadecimal digits"):
        fb.Link("a", 10, hash="abc")
    with pytest.raises(fb.DataError, match="no name below a base"):
        fb.Link("../a", 10, etag="x")


def test_rows_give_links_and_fetch_what_they_lead_to(tmp_path: Path) -> None:
    ds, links, _ = _lake(tmp_path, nullable=True)
    ds.append({"id": [99], "photo": [None]})
    ds.commit("a null")
    assert str(ds.schema["photo"]) == "link?" and ds.schema["photo"].kind == "image"
    assert ds[3]["photo"] == links[3] and ds["photo"][2:4] == links[2:4] and ds[12]["photo"] is None
    column = ds["photo"]
    assert column.fetch(3) == _photo(3)
    assert column.fetch([5, 12, 1]) == [_photo(5), None, _photo(1)]
    assert column.fetch() == [*map(_photo, range(12)), None]
    assert ds.select([7, 2])["photo"].fetch() == [_photo(7), _photo(2)]
    with pytest.raises(fb.ArgumentError, match="holds no links"):
        ds["id"].fetch(0)
    with pytest.raises(fb.DTypeError, match="expected a forebay.Link in row 0"):
        ds.append({"id": [1], "photo": [_photo(1)]})
    # A link that is read can be written again, and is as short as before.
    ds.append(ds[0:2])
    ds.commit("again")
    assert ds["photo"].fetch(13) == _photo(0)


def test_every_loader_delivers_what_links_lead_to(tmp_path: Path) -> None:
    import torch

    ds, _, _ = _lake(tmp_path)
    for shuffle in (False, "windowed", "global"):
        seen = {}
        for batch in ds.pytorch(5, shuffle=shuffle):
            seen.update(zip(batch["id"].tolist(), batch["photo"]))
        assert seen == {row: _photo(row) for row in range(12)}
    loader = ds.pytorch(4, decode={"photo": "RGB"}, transforms={"photo": [fb.transforms.Resize((6, 8))]})
    for batch in loader:
        assert batch["photo"].shape == (len(batch["id"]), 3, 6, 8)
        assert torch.equal(batch["photo"].float().mean((1, 2, 3)), batch["id"].float() * 10)
    assert dict(loader.stats()["routes"])["photo"] == "linked"
    rows = ds.pytorch()
    assert rows[4]["photo"] == _photo(4)
    workers = torch.utils.data.DataLoader(rows, batch_size=4, num_workers=2, collate_fn=list, multiprocessing_context="fork")
    assert [row["photo"] for batch in workers for row in batch] == [_photo(row) for row in range(12)]
    assert [bytes(photo) for batch in ds.numpy(5) for photo in batch["photo"]] == [_photo(row) for row in range(12)]


def test_links_lead_nowhere_but_where_the_opener_says(tmp_path: Path) -> None:
    _, _, photos = _lake(tmp_path)
    url = str(tmp_path / "lake")
    ds = fb.open(url)
    with pytest.raises(fb.AccessError, match=r"row 0: link to .*even/00.png: .*links=\[\".*photos/even\"\]"):
        ds["photo"].fetch(0)
    with pytest.raises(fb.AccessError):
        next(iter(ds.pytorch(4, on_fault="skip")))
    assert fb.open(url, links=[str(photos / "even")])["photo"].fetch(2) == _photo(2)
    with pytest.raises(fb.AccessError):
        fb.open(url, links=[str(photos / "even")])["photo"].fetch(1)
    allowed = fb.open(url, links={str(photos): None})
    for opened in (allowed, pickle.loads(pickle.dumps(allowed)), pickle.loads(pickle.dumps(allowed.select([1]))), allowed.branch("b")):
        assert opened["photo"].fetch(0) in (_photo(0), _photo(1))
    with pytest.raises(fb.ArgumentError, match="links is a list"):
        fb.open(url, links=str(photos))
    with pytest.raises(fb.ArgumentError, match="unknown storage option"):
        fb.open(url, links={str(photos): {"no_such_option": 1}})


def test_what_changed_or_is_gone_is_an_error_or_a_fault(tmp_path: Path) -> None:
    ds, _, photos = _lake(tmp_path)
    os.remove(photos / "odd/05.png")
    (photos / "even/06.png").write_bytes(b"other bytes")
    (photos / "odd/07.png").write_bytes(_photo(7)[:20])
    with pytest.raises(fb.LinkError, match=r"row 5: link to .*odd/05.png: there is no such object any more"):
        ds["photo"].fetch(5)
    with pytest.raises(fb.LinkError, match=r"row 6: link to .*changed since it was linked: it has 11 bytes and had"):
        ds["photo"].fetch([1, 6])
    with pytest.raises(fb.CorruptError, match="row 7"):
        ds["photo"].fetch(7)
    with pytest.raises(fb.LinkError, match="column 'photo', row 5"):
        list(ds.pytorch(4))
    loader = ds.pytorch(4, on_fault="skip")
    batches = list(loader)
    weights = [weight for batch in batches for weight in batch["sample_weight"].tolist()]
    assert [row for row, weight in enumerate(weights) if weight == 0] == [5, 6, 7]
    assert sorted(fault["row"] for fault in loader.faults()) == [5, 6, 7]


def test_parts_and_hashes(tmp_path: Path) -> None:
    shard = tmp_path / "lake" / "shard.tar"
    ds = fb.create(str(tmp_path / "lake"), {"part": "link"})
    shard.write_bytes(bytes(range(200)))
    whole = fb.Link("shard.tar", 200, etag=_etag(shard))
    ds.append({"part": [whole] + [fb.Link("shard.tar", 200, etag=_etag(shard), offset=n, length=n) for n in range(3)]})
    ds.commit("parts of a shard below the lake's own root")
    assert ds["part"].fetch() == [bytes(range(200)), b"", bytes([1]), bytes([2, 3])]
    assert ds[2]["part"].url == "shard.tar" and (ds[2]["part"].offset, ds[2]["part"].length) == (1, 1)
    # Links below the lake's own root lead nowhere in a copy of the lake.
    copy = tmp_path / "copy"
    fb.clone(str(tmp_path / "lake"), str(copy))
    assert not (copy / "shard.tar").exists()
    with pytest.raises(fb.LinkError):
        fb.open(str(copy))["part"].fetch(0)


def test_links_are_versioned_like_any_value(tmp_path: Path) -> None:
    ds, links, photos = _lake(tmp_path)
    trial = ds.branch("trial")
    trial.update([1], {"photo": [links[9]]})
    ds.delete([0])
    ds.merge("trial")
    ds.compact()
    assert ds[0]["photo"] == links[9] and len(ds) == 11
    before = sorted(photos.rglob("*"))
    ds.gc(grace=0, retention=0)
    assert sorted(photos.rglob("*")) == before and ds["photo"].fetch(0) == _photo(9)


def test_landing_links_makes_them_bytes(tmp_path: Path) -> None:
    ds, links, photos = _lake(tmp_path, nullable=True)
    ds.append({"id": [99], "photo": [None]})
    ds.commit("a null")
    kept = ds.materialize("kept", ds.select([4, 2]))
    assert kept["photo"][:] == [links[4], links[2]]
    landed = ds.materialize("landed", ds.select([4, 12, 2]), land=True)
    column = landed.schema["photo"]
    assert (str(column), column.kind, dict(column.metadata)) == ("bytes?", "image", {"encoding": "png"})
    (photos / "even/08.png").unlink()
    with pytest.raises(fb.LinkError, match="row 8"):
        ds.materialize("broken", ds, land=True)
    assert "broken" not in ds.tables
    for path in photos.rglob("*.png"):
        path.unlink()
    assert [row["photo"] for row in landed] == [_photo(4), None, _photo(2)]


def test_links_to_all_objects_of_a_folder_are_found(tmp_path: Path) -> None:
    links = _links(tmp_path / "photos")
    order = [*range(0, 12, 2), *range(1, 12, 2)]
    assert fb.find_links(str(tmp_path / "photos")) == [links[row] for row in order]
    hashed = fb.find_links(str(tmp_path / "photos"), hash=True)
    assert all(len(link.hash or "") == 64 for link in hashed)
    # In a copy of the folder the etags are others, and the bytes are not.
    copy = tmp_path / "copy"
    (tmp_path / "photos").rename(tmp_path / "moved")
    for link in hashed:
        path = copy / Path(link.url).relative_to(tmp_path / "photos")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes((tmp_path / "moved" / Path(link.url).relative_to(tmp_path / "photos")).read_bytes())
    moved = [fb.Link(str(copy / Path(link.url).relative_to(tmp_path / "photos")), link.size, hash=link.hash) for link in hashed]
    ds = fb.create(str(tmp_path / "lake"), {"photo": fb.Links(str(copy))}, links=[str(copy)])
    ds.append({"photo": moved})
    ds.commit("links by hash")
    assert ds["photo"].fetch() == [_photo(row) for row in order]


def test_the_command_links_a_folder_and_asks_what_became_of_it(tmp_path: Path) -> None:
    from forebay._cli import main

    photos, lake = tmp_path / "photos", str(tmp_path / "lake")
    links = _links(photos)
    (photos / "notes.txt").write_text("no image")

    def run(*arguments: str) -> tuple[int, dict[str, Any]]:
        import subprocess
        import sys

        done = subprocess.run([sys.executable, "-m", "forebay", *arguments, "--json"], capture_output=True, text=True)
        return done.returncode, json.loads(done.stdout) if done.stdout else {"error": done.stderr}

    assert callable(main)
    code, made = run("create", lake, "--from", str(photos), "--link")
    assert (code, made["rows"], made["ignored"], made["classes"]) == (0, 12, 1, ["even", "odd"]), made
    ds = fb.open(lake, links=[str(photos)])
    column = ds.schema["image"]
    assert (column.dtype, column.kind, column.metadata["encoding"], column.metadata["base"]) == ("link", "image", "png", str(photos))
    order = [*range(0, 12, 2), *range(1, 12, 2)]
    assert ds["image"][:] == [links[row] for row in order] and ds["label"][:].tolist() == [0] * 6 + [1] * 6
    assert ds["image"].fetch() == [_photo(row) for row in order]
    # Only what is new is linked.
    new = _links(photos, 14)[12:]
    ds = fb.open(lake)
    code, made = run("create", lake, "--from", str(photos), "--link", "--append", "--hash")
    assert (code, made["rows"], made["known"]) == (0, 2, 12), made
    ds = fb.open(lake, links=[str(photos)])
    assert [link.url for link in ds["image"][12:]] == [link.url for link in new] and ds[12]["image"].hash is not None
    code, made = run("create", lake, "--from", str(photos), "--link", "--append")
    assert (code, made["rows"], made["known"], len(fb.open(lake))) == (0, 0, 14, 14), made
    # What became of them.
    code, found = run("verify", lake, "--links")
    assert code == 1 and "--allow" in found["error"]
    changed = photos / "odd/03.png"
    changed.write_bytes(b"changed")
    code, found = run("verify", lake, "--links", "--allow", str(photos))
    # Files that were written anew have another etag: the first twelve.
    assert (code, found["links"], found["ok"], found["faults"]) == (1, 14, False, []), found
    broken = {link["row"]: link["reason"] for link in found["broken_links"]}
    assert set(broken) == set(range(12)) and "it has 7 bytes" in broken[7]
