"""The package as a user installs it: what it imports, typing, the command, the docs' examples."""

from __future__ import annotations

import doctest
import importlib.metadata
import inspect
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import forebay as fb

PACKAGE = Path(fb.__file__).parent


def test_importing_is_light() -> None:
    # How long it takes is measured by `cargo xtask bench local`.
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
