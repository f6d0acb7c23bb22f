"""The same rows through PyTorch's DataLoader with all cores: a memory map, and JPEG files."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch
from clock import Took
from torch.utils.data import DataLoader, Dataset

BATCH = 256


class Memmap(Dataset):  # type: ignore[type-arg]
    def __init__(self, path: Path, rows: int) -> None:
        self.images = np.memmap(path, np.uint8, "r", shape=(rows, 3, 224, 224))

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, row: int) -> tuple[torch.Tensor, int]:
        return torch.from_numpy(self.images[row].copy()), row


class Jpegs(Dataset):  # type: ignore[type-arg]
    def __init__(self, folder: Path) -> None:
        self.paths = sorted(folder.iterdir())

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, row: int) -> tuple[torch.Tensor, int]:
        import torchvision

        return torchvision.io.read_image(str(self.paths[row])), row


def epoch(dataset: Any, workers: int) -> float:
    """Images a second on the device, the workers' start left out."""
    loader = DataLoader(dataset, BATCH, shuffle=True, num_workers=workers, pin_memory=True, drop_last=True)
    batches = iter(loader)
    next(batches)[0].to("cuda")
    rows = 0
    with Took() as took:
        for images, _ in batches:
            rows += len(images.to("cuda", non_blocking=True))
    return rows / took.seconds


def deep_lake(folder: Path, lake: Any, workers: int) -> float:
    """Images a second of the same images in a local Deep Lake dataset; its package is needed."""
    import deeplake  # type: ignore[import-not-found]

    shutil.rmtree(folder, ignore_errors=True)
    dataset = deeplake.create(f"file://{folder}")
    dataset.add_column("image", deeplake.types.Array("uint8", shape=[3, 224, 224]))
    for first in range(0, 8000, 1000):
        dataset.append({"image": lake.expected(np.arange(first, first + 1000)).reshape(-1, 3, 224, 224)})
    dataset.commit()
    loader = DataLoader(dataset.pytorch(), BATCH, shuffle=True, num_workers=workers, pin_memory=True, drop_last=True)
    batches = iter(loader)
    next(batches)
    rows = 0
    with Took() as took:
        for batch in batches:
            rows += len(batch["image"].to("cuda", non_blocking=True))
    return rows / took.seconds


def run(bench: Any) -> None:
    import torchvision

    lake, cores = bench.lake("images"), os.cpu_count() or 1
    rows = min(lake.rows, 20_000)
    path = bench.folder / "images.bin"
    if not path.exists() or path.stat().st_size != rows * lake.row:
        with open(path, "wb") as file:
            for first in range(0, rows, 1000):
                file.write(lake.expected(np.arange(first, min(first + 1000, rows))).tobytes())
    limit = bench.link / (lake.row + 8)
    rate = epoch(Memmap(path, rows), cores)
    bench.report.rate(f"PyTorch's DataLoader, memmap, {cores} workers", rate, "images/s", limit)
    path.unlink()
    folder = bench.folder / "jpegs"
    if not folder.exists():
        folder.mkdir()
        # Smooth, as photographs are: noise has no JPEG worth the name.
        for number in range(6000):
            small = torch.from_numpy(np.random.default_rng(number).integers(0, 256, (1, 3, 14, 14), np.uint8)).float()
            image = torch.nn.functional.interpolate(small, (224, 224), mode="bicubic").clamp(0, 255).byte()[0]
            torchvision.io.write_jpeg(image, str(folder / f"{number:05}.jpg"), quality=90)
    rate = epoch(Jpegs(folder), cores)
    bench.report.rate(f"PyTorch's DataLoader, JPEG files, {cores} workers", rate, "images/s", limit)
    try:
        rate = deep_lake(bench.folder / "deep-lake", lake, cores)
        bench.report.rate(f"Deep Lake through PyTorch's DataLoader, {cores} workers", rate, "images/s", limit)
    except Exception as error:  # noqa: BLE001  (it needn't be there)
        bench.report.say(f"   Deep Lake: not measured, {type(error).__name__}: {error}")
    bench.report.say("   DALI and FFCV: not measured; their wheels are not part of this folder")
