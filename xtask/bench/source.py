"""The rows that the benches work on: random bytes in a flat file, made once, the source of every check and floor."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

SHAPE = (3, 224, 224)
ROW = 3 * 224 * 224
BATCH = 256
SCHEMA = {"image": "uint8[3,224,224]", "label": "int64", "id": "int64"}


class Source:
    """``n`` rows of uint8 [3, 224, 224] with an int64 label and id, in ``folder``."""

    def __init__(self, folder: Path, n: int) -> None:
        self.path, self.n = folder / f"rows-{n}.bin", n

    @property
    def bytes(self) -> int:
        """Of the images alone."""
        return self.n * ROW

    def make(self) -> None:
        """Writes the file unless it is there."""
        if self.path.exists() and self.path.stat().st_size == self.bytes:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        part = self.path.with_suffix(".part")
        random = np.random.Generator(np.random.SFC64(7))
        with open(part, "wb") as file:
            for first in range(0, self.n, BATCH):
                file.write(random.bytes(min(BATCH, self.n - first) * ROW))
        os.replace(part, self.path)

    def mapped(self) -> np.ndarray:
        """uint8 [n, 150528], mapped."""
        return np.asarray(np.memmap(self.path, np.uint8, "r", shape=(self.n, ROW)))

    def loaded(self) -> np.ndarray:
        """uint8 [n, 3, 224, 224], in memory of its own."""
        rows = np.empty((self.n, *SHAPE), np.uint8)
        view = memoryview(rows).cast("B")
        with open(self.path, "rb", buffering=0) as file:
            done = 0
            while done < len(view):
                done += file.readinto(view[done:])
        return rows

    def labels(self) -> np.ndarray:
        """int64 [n]: the label of each id."""
        return self.ids() * 7919 % 1000

    def ids(self) -> np.ndarray:
        """int64 [n]"""
        return np.arange(self.n, dtype=np.int64)


def check_batch(batch: dict, rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The ids of a batch, once every byte and label of it was compared with the source."""
    ids = np.asarray(batch["id"])
    images = np.asarray(batch["image"]).reshape(len(ids), ROW)
    if not np.array_equal(images, rows[ids]):
        raise AssertionError(f"wrong bytes in a batch with id {ids[0]}")
    if not np.array_equal(np.asarray(batch["label"]), labels[ids]):
        raise AssertionError(f"wrong labels in a batch with id {ids[0]}")
    return ids


def check_ids(ids: np.ndarray, n: int) -> None:
    """Whether every id is there exactly once."""
    if not np.array_equal(np.sort(ids), np.arange(n)):
        counts = np.bincount(ids, minlength=n)
        raise AssertionError(f"{(counts == 0).sum()} ids are missing and {(counts > 1).sum()} came more than once")
