"""What the tests share: small lakes with known contents, and ways to run code elsewhere."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import textwrap
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forebay as fb

#: Batches for a device are for Linux alone.
collect_ignore = [] if sys.platform == "linux" else ["test_stand_in.py"]

ROWS = 500
SHAPE = (3, 16, 16)


def images(rows: int = ROWS, seed: int = 0) -> np.ndarray:
    """Rows that differ from each other, uint8 [rows, 3, 16, 16]."""
    return np.random.default_rng(seed).integers(0, 256, (rows, *SHAPE), dtype=np.uint8)


def ids(batches: Any, steps: int | None = None) -> list[int]:
    """The ids of the first batches, or of all."""
    found: list[int] = []
    for step, batch in enumerate(batches, 1):
        found += batch["id"].tolist()
        if step == steps:
            break
    return found


@pytest.fixture
def url(tmp_path: Path) -> str:
    return str(tmp_path / "lake")


@pytest.fixture
def photos(url: str) -> fb.Dataset:
    """500 images with ids 0 to 499 and labels id % 10, in two commits."""
    ds = fb.create(url, {"image": "uint8[3,16,16]", "label": fb.ClassLabel(), "id": "int64"})
    pixels = images()
    for start, stop in ((0, 300), (300, ROWS)):
        ids = np.arange(start, stop)
        ds.append({"image": pixels[start:stop], "label": ids % 10, "id": ids})
        ds.commit(f"rows {start} to {stop}")
    return ds


@pytest.fixture
def script(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a Python script in a process of its own, within a time limit."""

    def run(source: str, *arguments: str, timeout: float = 90, **options: Any) -> subprocess.CompletedProcess[str]:
        path = tmp_path / "script.py"
        path.write_text(textwrap.dedent(source))
        return subprocess.run(
            [sys.executable, str(path), *arguments], capture_output=True, text=True, timeout=timeout, **options
        )

    return run


def in_child(work: Callable[[], Any]) -> Any:
    """Runs ``work`` in a forked child and gives what it returned; fails if it raised, crashed or hung."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(read)
            try:
                result: tuple[bool, Any] = (True, work())
            except BaseException:
                result = (False, traceback.format_exc())
            with os.fdopen(write, "wb") as pipe:
                pickle.dump(result, pipe)
        finally:
            os._exit(0)
    os.close(write)
    import select

    with os.fdopen(read, "rb") as pipe:
        ready, _, _ = select.select([pipe], [], [], 60)
        if not ready:
            os.kill(child, 9)
            os.waitpid(child, 0)
            pytest.fail("the forked child hung")
        answer = pipe.read()
    os.waitpid(child, 0)
    assert answer, "the forked child died"
    fine, value = pickle.loads(answer)
    assert fine, value
    return value
