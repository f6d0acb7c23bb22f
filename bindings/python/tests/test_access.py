"""Reaching a lake: credentials from code, and a web server that only gives."""

from __future__ import annotations

import functools
import http.server
import os
import pickle
import signal
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import forebay as fb
import numpy as np
import pytest
from conftest import images


class Files(http.server.SimpleHTTPRequestHandler):
    """Serves a folder, with ranges."""

    def do_GET(self) -> None:  # noqa: N802 - the name that http.server calls
        try:
            data = Path(self.translate_path(self.path)).read_bytes()
        except OSError:
            return self.send_error(404)
        asked = self.headers.get("range")
        if asked is None:
            self.send_response(200)
        else:
            first, last = asked.removeprefix("bytes=").split("-")
            whole, data = len(data), data[int(first) : int(last) + 1]
            self.send_response(206)
            self.send_header("content-range", f"bytes {first}-{int(first) + len(data) - 1}/{whole}")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def site(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Files, directory=tmp_path))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", tmp_path
    server.shutdown()
    server.server_close()


def test_a_lake_on_a_web_server_is_read_and_never_written(site: tuple[str, Path]) -> None:
    url, folder = site
    images = np.arange(40 * 3 * 16 * 16, dtype=np.uint32).astype(np.uint8).reshape(40, 3, 16, 16)
    with fb.create(folder / "lake", {"image": "uint8[3,16,16]", "id": "int64"}) as made:
        made.append({"image": images, "id": np.arange(40)})
        made.commit("some")
    ds = fb.open(f"{url}/lake")
    assert len(ds) == 40 and (ds["image"][10:20] == images[10:20]).all()
    got = np.concatenate([batch["id"] for batch in ds.numpy(batch_size=16, shuffle=True, drop_last=False)])
    assert sorted(got.tolist()) == list(range(40))
    with pytest.raises(fb.ReadOnlyError, match="can only be read"):
        ds.append({"image": images[:1], "id": [7]})
        ds.commit("more")
    with pytest.raises(fb.UnsupportedError, match="web server"):
        ds.branches()
    with pytest.raises(FileNotFoundError):
        fb.open(f"{url}/no-such-lake")


def test_what_a_loader_keeps_in_memory_is_not_fetched_again(site: tuple[str, Path]) -> None:
    url, folder = site
    pixels = images(40)
    with fb.create(folder / "lake", {"image": "uint8[3,16,16]", "id": "int64"}) as made:
        made.append({"image": pixels, "id": np.arange(40)})
        made.commit("some")
    loader = fb.open(f"{url}/lake").numpy(batch_size=16, shuffle=True, host_cache="1MiB")
    for epoch in range(3):
        loader.set_epoch(epoch)
        for batch in loader:
            assert (batch["image"] == pixels[batch["id"]]).all()
        stats = loader.stats()
        assert stats["kept_bytes"] == 40 * (3 * 16 * 16 + 8)
        assert (stats["fetched"] > 0) == (epoch == 0)
    with pytest.raises(fb.ArgumentError, match="host_cache"):
        fb.open(f"{url}/lake").numpy(batch_size=16, host_cache="much")


def test_a_loader_says_what_its_storage_did(site: tuple[str, Path]) -> None:
    url, folder = site
    with fb.create(folder / "lake", {"image": "uint8[3,16,16]", "id": "int64"}) as made:
        made.append({"image": np.zeros((40, 3, 16, 16), np.uint8), "id": np.arange(40)})
        made.commit("some")
        local = made.numpy(batch_size=16)
        list(local)
    assert list(local.stats()["storage"]) == [made.url] and local.stats()["storage"][made.url]["cache"] is None
    ds = fb.open(f"{url}/lake", cache={"memory": "64MiB"})
    loader = ds.numpy(batch_size=16, shuffle=True)
    list(loader)
    first = loader.stats()["storage"][f"{url}/lake"]
    list(loader)
    second = loader.stats()["storage"][f"{url}/lake"]
    assert first["requests"] == second["requests"] > 0, "the second epoch came from the cache"
    assert first["bytes"] >= 40 * 776 and first["cache"]["misses"] > 0
    assert second["cache"]["memory_hits"] > first["cache"]["memory_hits"] and second["cache"]["hit_bytes"] >= 40 * 776
    assert [first[name] for name in ("retries", "throttled", "timeouts", "in_flight", "fell_back")] == [0] * 5
    assert first["limit"] > 0 and first["pace"] is None and [mirror["url"] for mirror in first["mirrors"]] == [f"{url}/lake"]


def test_a_loading_process_that_is_killed_leaves_nothing_behind(site: tuple[str, Path]) -> None:
    url, folder = site
    pixels = images(300)
    with fb.create(folder / "lake", {"image": "uint8[3,16,16]", "id": "int64"}) as made:
        for start in range(0, 300, 50):  # Several files, and so several requests and pieces.
            made.append({"image": pixels[start : start + 50], "id": np.arange(start, start + 50)})
            made.commit("some")
    cache = {"dir": str(folder / "cache"), "size": 150_000}

    def shared() -> set[str]:
        """What lies in shared memory, but for what other Python programs may put there."""
        names = os.listdir("/dev/shm") if os.path.isdir("/dev/shm") else []
        return {name for name in names if not name.startswith(("torch_", "psm_", "sem.", "pym-"))}

    before = shared()

    def epoch() -> None:
        seen = []
        for batch in fb.open(f"{url}/lake", cache=cache).numpy(batch_size=16, shuffle=True, seed=1):
            assert (batch["image"] == pixels[batch["id"]]).all()
            seen += batch["id"].tolist()
        assert sorted(seen) == list(range(300))

    moments = np.random.default_rng(5)
    for _ in range(100 if os.environ.get("FOREBAY_LONG") else 10):
        child = os.fork()
        if child == 0:
            try:
                while True:
                    epoch()
            finally:
                os._exit(1)  # Only a wrong batch gets here.
        time.sleep(moments.uniform(0, 0.5))
        os.kill(child, signal.SIGKILL)
        assert os.waitpid(child, 0)[1] == signal.SIGKILL
        epoch()
        pieces = [path.name for path in (folder / "cache").glob("forebay-cache-1/*/*-*")]
        assert 0 < sum(int(name.split("-")[1].split(".")[0]) for name in pieces) <= 150_000
        assert shared() <= before


def test_what_a_credentials_callable_raises_or_gives_wrong_is_shown(tmp_path: Path) -> None:
    def sealed() -> dict[str, Any]:
        raise RuntimeError("the vault is sealed")

    options = {"endpoint": "http://127.0.0.1:1", "max_retries": 0}
    with pytest.raises(fb.AccessError, match="the vault is sealed") as caught:
        fb.open("s3://bucket/lake", storage_options=options, credentials=sealed)
    assert isinstance(caught.value.__cause__, RuntimeError)
    for wrong, said in [({"key": "x"}, "access_key_id"), ("text", "not str"), ({"token": "t"}, "an access key id")]:
        with pytest.raises(fb.AccessError, match=said):
            fb.open("s3://bucket/lake", storage_options=options, credentials=lambda: wrong)
    with pytest.raises(fb.ArgumentError, match="callable"):
        fb.open("s3://bucket/lake", credentials={"token": "t"})  # type: ignore[arg-type]


def test_a_cache_keeps_what_was_read_and_mirrors_stand_in_for_what_is_down(site: tuple[str, Path], tmp_path: Path) -> None:
    url, folder = site
    with fb.create(folder / "lake", {"image": "uint8[3,64,64]", "id": "int64"}) as made:
        made.append({"image": np.full((300, 3, 64, 64), 7, np.uint8), "id": np.arange(300)})
        made.commit("some")
    for cache in (tmp_path / "cache", {"dir": tmp_path / "cache", "size": "1GiB", "memory": "64MiB"}):
        ds = fb.open(f"{url}/lake", cache=cache)
        for _ in range(2):
            assert (ds["image"][:] == 7).all() and ds["id"][:].tolist() == list(range(300))
        assert pickle.loads(pickle.dumps(ds))["id"][7] == 7
    # A server that is not there any more, and a copy.
    ds = fb.open("http://127.0.0.1:1/lake", mirrors=[f"{url}/lake"], storage_options={"connect_timeout": "1s"})
    assert (ds["image"][:] == 7).all()
    with pytest.raises(fb.ArgumentError, match="list of URLs"):
        fb.open("s3://bucket/lake", mirrors="s3://other/lake")
    with pytest.raises(fb.ArgumentError, match="no 'folder'"):
        fb.open("s3://bucket/lake", cache={"folder": "x"})
    with pytest.raises(fb.ArgumentError, match="cache_size"):
        fb.open(f"{url}/lake", cache={"dir": tmp_path / "x", "size": "much"})


calls = 0


def broker() -> dict[str, Any]:
    global calls
    calls += 1
    time.sleep(0.01)  # A callable that waits keeps nobody from running.
    return {"access_key_id": "test", "secret_access_key": "test", "expires_at": time.time() + 3600}


def test_credentials_from_a_callable_sign_everything_and_travel_to_other_processes() -> None:
    global calls
    calls = 0
    options = {"endpoint": os.environ["FOREBAY_TEST_S3"], "region": "us-east-1"}
    url = f"s3://forebay-test/{uuid.uuid4()}"
    ds = fb.create(url, {"id": "int64"}, storage_options=options, credentials=broker)
    ds.append({"id": np.arange(10)})
    ds.commit("ten")
    assert calls == 1
    again = pickle.loads(pickle.dumps(ds))
    assert again["id"][:].tolist() == list(range(10))
    assert calls == 2
