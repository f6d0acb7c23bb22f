"""Bad places and bad moments: one clear error each, and never half a commit."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from conftest import in_child

import forebay as fb

ROW = {"x": np.arange(16, dtype=np.uint8).reshape(1, 16)}


def test_a_missing_lake_is_a_file_not_found_error(tmp_path: Path) -> None:
    for place in (tmp_path / "nothing", tmp_path):
        with pytest.raises(fb.NotFoundError, match="no lake") as raised:
            fb.open(str(place))
        assert isinstance(raised.value, FileNotFoundError)


def test_opening_makes_no_folder(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        fb.open(str(tmp_path / "nothing"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("url", ["", "gopher://x/y", "s3://", "memory://"])
def test_a_url_that_makes_no_sense_is_a_value_error(url: str) -> None:
    with pytest.raises(fb.ArgumentError) as raised:
        fb.open(url)
    assert isinstance(raised.value, ValueError)


def test_an_unknown_storage_option_is_a_value_error(tmp_path: Path) -> None:
    with pytest.raises(fb.ArgumentError, match="endpiont"):
        fb.create(str(tmp_path / "lake"), {"x": "int64"}, storage_options={"endpiont": "http://x"})


def test_s3_without_credentials_is_a_permission_error_at_once(script) -> None:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    result = script(
        """
        import forebay as fb, time
        start = time.monotonic()
        try:
            fb.open("s3://bucket/lake", storage_options={"region": "us-east-1"})
        except PermissionError as error:
            assert isinstance(error, fb.AccessError)
            print("credentials" in str(error), time.monotonic() - start < 5)
        """,
        env=clean,
    )
    assert result.stdout.split() == ["True", "True"], result.stderr


def test_a_file_in_the_way_is_an_os_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OSError) as raised:
        fb.create(str(tmp_path / "file" / "lake"), {"x": "int64"})
    assert isinstance(raised.value, fb.Error)


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that every user of the machine can reach."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o777)
    yield folder
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o777)
    shutil.rmtree(folder)


def powerless() -> None:
    """Gives up root in this (forked) process, for which no folder is read-only."""
    if os.geteuid() == 0:
        os.setgid(65534)
        os.setuid(65534)


def test_a_read_only_folder_is_a_permission_error(public: Path) -> None:
    public.chmod(0o555)

    def create() -> str:
        powerless()
        with pytest.raises(PermissionError) as raised:
            fb.create(str(public / "lake"), {"x": "uint8[16]"})
        assert isinstance(raised.value, fb.AccessError)
        return str(raised.value)

    assert str(public) in in_child(create)
    assert list(public.iterdir()) == []


def test_a_lake_that_became_read_only_is_read_but_takes_no_commit(public: Path) -> None:
    url = str(public / "lake")
    ds = fb.create(url, {"x": "uint8[16]"})
    ds.append(ROW)
    ds.commit()
    for path in [public, *public.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)

    def write() -> int:
        powerless()
        ds = fb.open(url)
        assert np.array_equal(ds["x"][:], ROW["x"])
        with pytest.raises(PermissionError):
            ds.append(ROW)
            ds.commit()
        return len(fb.open(url))

    assert in_child(write) == 1


def grow_until_it_fails(url: str, steps: list[int]) -> tuple[int, int | None, str]:
    """Appends and commits rows step by step until a write fails; gives the rows committed, the error's number and its class."""
    ds = fb.open(url)
    try:
        for rows in steps:
            ds.append({"x": np.zeros((rows, 16), np.uint8)})
            ds.commit()
    except fb.StorageError as error:
        failed = error
    else:
        raise AssertionError("the disk never filled up")
    return len(ds), failed.errno, type(failed).__name__


def check_after(url: str, committed: int, least: int) -> None:
    """The lake holds what was committed and nothing else, in ``least`` commits or more."""
    again = fb.open(url)
    assert len(again) == committed == again.log(1)[0].tables["main"]
    assert not again["x"][:].any()
    assert len(again.log()) >= least


def test_a_file_size_limit_is_an_os_error_and_leaves_no_half_commit(url: str) -> None:
    fb.create(url, {"x": "uint8[16]"})

    def fill() -> tuple[int, int | None, str]:
        resource.setrlimit(resource.RLIMIT_FSIZE, (512 << 10, 512 << 10))
        return grow_until_it_fails(url, [65536])

    committed, number, kind = in_child(fill)
    assert (committed, number, kind) == (0, errno.EFBIG, "StorageError")
    check_after(url, 0, 2)


def small_disk(folder: Path) -> tuple[list[str], str, int]:
    """How to start a process that finds a small disk at ``folder``: a command before its own, Python to run first, and the error's number.

    A tmpfs in a mount namespace of its own, which needs no root where the kernel allows user namespaces; elsewhere a limit on file sizes.
    """
    mount = f'mount -t tmpfs -o size=12m tmpfs "{folder}"'
    unshare = ["unshare", "--mount"] + ([] if os.geteuid() == 0 else ["--map-root-user"])
    if shutil.which("unshare") and subprocess.run([*unshare, "sh", "-c", mount], capture_output=True).returncode == 0:
        return [*unshare, "sh", "-c", f'{mount} && exec "$@"', "sh"], "", errno.ENOSPC
    return [], "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (2 << 20, 2 << 20))\n", errno.EFBIG


def test_a_full_disk_is_an_os_error_and_leaves_no_half_commit(tmp_path: Path) -> None:
    folder = tmp_path / "small"
    folder.mkdir()
    before, prepare, number = small_disk(folder)
    source = (
        f"{prepare}import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "import forebay as fb, numpy as np, test_failures as t\n"
        f"url = {str(folder / 'lake')!r}\n"
        "fb.create(url, {'x': 'uint8[16]'})\n"
        "committed, number, kind = t.grow_until_it_fails(url, [65536, 65536, *[1 << 18] * 100])\n"
        "t.check_after(url, committed, 2)\n"
        "print(committed > 0, number, kind)\n"
    )
    result = subprocess.run([*before, sys.executable, "-c", source], capture_output=True, text=True, timeout=120)
    assert result.stdout.split() == ["True", str(number), "StorageError"], result.stderr


def test_after_a_failed_append_the_handle_takes_no_more_until_discard(url: str) -> None:
    fb.create(url, {"x": "uint8[65536]"})

    def fail() -> None:
        ds = fb.open(url)
        ds.append({"x": np.zeros((1, 65536), np.uint8)})
        resource.setrlimit(resource.RLIMIT_FSIZE, (100 << 10, resource.RLIM_INFINITY))
        with pytest.raises(fb.StorageError):
            for _ in range(50):
                ds.append({"x": np.zeros((400, 65536), np.uint8)})
        for write in (lambda: ds.append({"x": np.zeros((1, 65536), np.uint8)}), ds.commit):
            with pytest.raises(fb.UncommittedError, match="discard"):
                write()
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        ds.discard()
        ds.append({"x": np.ones((2, 65536), np.uint8)})
        ds.commit()

    in_child(fail)
    assert fb.open(url)["x"][:].all() and len(fb.open(url)) == 2


def data_files(url: str) -> list[Path]:
    return sorted(path for path in Path(url, "data").rglob("*") if path.is_file())


def test_a_flipped_byte_is_a_corrupt_error_that_names_file_and_column(photos: fb.Dataset) -> None:
    path = data_files(photos.url)[0]
    data = bytearray(path.read_bytes())
    data[5000] ^= 1
    path.write_bytes(data)
    ds = fb.open(photos.url)
    for read in (lambda: ds["image"][:], lambda: list(ds.pytorch(100)), lambda: list(ds.numpy(100, columns=["image"]))):
        with pytest.raises(fb.CorruptError, match="image") as raised:
            read()
        assert path.name in str(raised.value)


def test_a_truncated_file_is_an_error(photos: fb.Dataset) -> None:
    path = data_files(photos.url)[0]
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(fb.Error):
        fb.open(photos.url)["image"][:]


def test_a_missing_file_is_a_corrupt_error(photos: fb.Dataset) -> None:
    for path in data_files(photos.url):
        path.unlink()
    with pytest.raises(fb.CorruptError, match="missing"):
        fb.open(photos.url)["image"][:]


def test_every_error_is_a_forebay_error() -> None:
    kinds = [kind for kind in vars(fb).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    assert len(kinds) > 15 and all(issubclass(kind, fb.Error) for kind in kinds)


CTRL_C = """
import signal, socket, forebay as fb
signal.signal(signal.SIGINT, signal.default_int_handler)  # A shell that starts jobs in the background has it ignored.
listener = socket.socket()
listener.bind(("127.0.0.1", 0))
listener.listen()  # Takes connections and never answers.
options = {"endpoint": f"http://127.0.0.1:{listener.getsockname()[1]}", "access_key_id": "a", "secret_access_key": "b",
           "region": "us-east-1", "allow_http": True}
print("waiting", flush=True)
try:
    fb.open("s3://bucket/lake", storage_options=options)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def test_ctrl_c_ends_a_long_wait(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", CTRL_C], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "waiting\n"
    import time

    time.sleep(0.5)
    start = time.monotonic()
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=20)
    assert output == "interrupted\n" and process.returncode == 0
    assert time.monotonic() - start < 5
