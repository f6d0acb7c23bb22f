"""The lakes that the bench works on: rows that say themselves what they must be."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np

#: Bytes of a row, by the name of its lake. The rows of `images` are pixels [3, 224, 224].
ROWS = {"images": 150_528, "rows-151875": 151_875, "rows-24576": 24_576, "rows-1024": 1024, "rows-1000": 1000}
SHAPES: dict[str, tuple[int, ...]] = {"images": (3, 224, 224)}
#: A prime, so that neighbours differ everywhere.
STEP = 7


class Lake:
    """``bytes_`` of rows: row ``i`` starts with ``i`` as a little-endian int64; byte ``j`` of what follows is ``base[j] + 7 i``."""

    def __init__(self, folder: Path, name: str, bytes_: float) -> None:
        self.url, self.name, self.row = str(folder / name), name, ROWS[name]
        self.rows = int(bytes_ / self.row)
        self.shape = SHAPES.get(name, (self.row,))
        self.base = np.random.default_rng(5).integers(0, 256, self.row, np.uint8)

    @property
    def bytes(self) -> int:
        return self.rows * self.row

    def make(self) -> None:
        """Writes the lake unless it is there."""
        import forebay as fb

        if Path(self.url).exists():
            ds = fb.open(self.url)
            if len(ds) == self.rows:
                return
            shutil.rmtree(self.url)
        image = fb.Image(self.shape, layout="CHW") if len(self.shape) == 3 else f"uint8[{self.row}]"
        ds = fb.create(self.url, {"image": image, "id": "int64"})
        part = max(1, (256 << 20) // self.row)
        for first in range(0, self.rows, part):
            ids = np.arange(first, min(first + part, self.rows))
            ds.append({"image": self.expected(ids).reshape(-1, *self.shape), "id": ids})
        ds.commit("rows")

    def expected(self, ids: np.ndarray) -> np.ndarray:
        """uint8 [n, row]: the rows of these ids."""
        rows = self.base[None] + (ids * STEP % 256).astype(np.uint8)[:, None]
        rows[:, :8] = ids.astype("<i8").view(np.uint8).reshape(-1, 8)
        return rows

    def wrong(self, batch: dict[str, Any]) -> Any:
        """On the device: how many rows of a batch of torch tensors are not what their ids say."""
        import torch

        images, ids = batch["image"].reshape(-1, self.row), batch["id"]
        if getattr(self, "_base", None) is None or self._base.device != images.device:
            self._base = torch.from_numpy(self.base).to(images.device)
        expected = self._base[None] + (ids * STEP % 256).to(torch.uint8)[:, None]
        expected[:, :8] = ids[:, None].contiguous().view(torch.uint8)
        return (images != expected).any(dim=1).sum()

    def drop_from_page_cache(self) -> None:
        for path in Path(self.url).rglob("*"):
            if path.is_file():
                file = os.open(path, os.O_RDONLY)
                os.fsync(file)
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
                os.close(file)


def check_ids(ids: np.ndarray, rows: int) -> None:
    """Whether every id is there exactly once."""
    counts = np.bincount(ids, minlength=rows)
    if len(counts) != rows or not (counts == 1).all():
        raise AssertionError(f"{(counts == 0).sum()} ids are missing and {(counts > 1).sum()} came more than once")
