"""The package as a user installs it: import time, typing, the command, the docs' examples."""

from __future__ import annotations

import doctest
import importlib.metadata
import inspect
import re
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forebay as fb

PACKAGE = Path(fb.__file__).parent


def test_importing_takes_less_than_a_tenth_of_a_second_and_imports_neither_numpy_nor_torch() -> None:
    def seconds(code: str) -> float:
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        return time.perf_counter() - start

    bare, whole = ([seconds(code) for _ in range(7)] for code in ("pass", "import forebay"))
    assert statistics.median(whole) - statistics.median(bare) < 0.1
    check = "import forebay, sys; print([name for name in ('numpy', 'torch', 'asyncio') if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", check], capture_output=True, text=True).stdout.strip() == "[]"


def test_the_package_is_typed() -> None:
    assert (PACKAGE / "py.typed").exists()
    assert (PACKAGE / "_forebay.pyi").exists()


def test_the_stub_names_what_the_native_module_has() -> None:
    native = fb._forebay
    stub = (PACKAGE / "_forebay.pyi").read_text()
    for kind in (native.Session, native.Rows, native.Loader, native.Batches, native.Tensor):
        body = re.search(rf"^class {kind.__name__}:\n((?:    .*\n|\n)*)", stub, re.M)
        assert body is not None, kind
        named = set(re.findall(r"    def (\w+)\(", body.group(1))) - {"__init__"}
        there = {name for name in vars(kind) if not name.startswith("__") or name in ("__len__", "__dlpack__", "__dlpack_device__")}
        assert named == there, kind


def public() -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for name in fb.__all__:
        value = getattr(fb, name)
        found.append((name, value))
        if inspect.isclass(value):
            members = {name: member for base in value.__mro__ if base.__module__.startswith("forebay") for name, member in vars(base).items()}
            found += [(f"{name}.{key}", member) for key, member in members.items() if not key.startswith("_")]
    return found


def test_everything_public_is_documented() -> None:
    missing = [
        name
        for name, value in public()
        if (inspect.isroutine(value) or inspect.isclass(value) or isinstance(value, property)) and not inspect.getdoc(value)
    ]
    assert missing == []
    assert set(fb.__all__) <= set(dir(fb))
    with pytest.raises(AttributeError):
        fb.nothing  # noqa: B018


def test_the_versions_agree() -> None:
    assert fb.__version__ == importlib.metadata.version("forebay")


def test_the_example_in_the_package_docs_runs() -> None:
    assert doctest.testmod(fb).failed == 0


def command() -> list[str]:
    beside = Path(sys.executable).with_name("forebay")
    found = str(beside) if beside.exists() else shutil.which("forebay")
    assert found, "the console script is not installed"
    return [found]


def test_the_console_script_is_the_command(photos: fb.Dataset) -> None:
    for start in (command(), [sys.executable, "-m", "forebay"]):
        version = subprocess.run([*start, "--version"], capture_output=True, text=True, timeout=60)
        assert version.returncode == 0 and fb.__version__ in version.stdout
        info = subprocess.run([*start, "info", photos.url], capture_output=True, text=True, timeout=60)
        assert info.returncode == 0 and "500" in info.stdout, info.stderr
        assert subprocess.run([*start, "info", "/nonexistent"], capture_output=True, timeout=60).returncode == 1
        assert subprocess.run([*start, "no-such-command"], capture_output=True, timeout=60).returncode == 2


def test_gpu_info_says_what_there_is_or_why_there_is_nothing() -> None:
    info = fb.gpu.info()
    assert set(info) == {"driver", "devices", "missing"}
    assert info["devices"] or info["missing"]
    assert all(isinstance(reason, str) and reason for reason in info["missing"])


def test_one_row_of_one_tensor_column_costs_at_most_three_copies_from_a_memmap(tmp_path: Path) -> None:
    """The promise is 0.3 of a memmap's row copy at 150,528 bytes; the bench measures it, this keeps it from being lost."""
    rows = np.random.default_rng(0).integers(0, 256, (300, 150_528), dtype=np.uint8)
    ds = fb.create(str(tmp_path / "lake"), {"x": "uint8[150528]"})
    ds.append({"x": rows})
    ds.commit()
    flat = np.memmap(tmp_path / "flat", np.uint8, "w+", shape=rows.shape)
    flat[:] = rows
    numbers = np.random.default_rng(1).permutation(300).tolist()

    def took(read: Callable[[int], Any]) -> float:
        start = time.perf_counter()
        for number in numbers:
            read(number)
        return time.perf_counter() - start

    took(lambda number: ds[number])
    pairs = [(took(lambda number: np.array(flat[number])), took(lambda number: ds[number])) for _ in range(9)]
    floor, ours = (min(pair[side] for pair in pairs) for side in (0, 1))
    assert floor / ours > 0.3, f"{floor / ours:.2f}"
