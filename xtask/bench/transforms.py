"""Part of bench local: images transformed on their way, for each second of one core, beside PyTorch's own operators."""

from __future__ import annotations

import importlib.util
import time
from pathlib import Path
from typing import Any

import numpy as np
from measure import in_own_process, median
from report import Report
from source import BATCH, SHAPE, Source

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
SIZE = 224
ROUNDS = 3
#: Rows that are transformed in a round, if there are so many.
ROWS = 4 * BATCH


def transformed(report: Report, source: Source, lake: Path) -> None:
    report.say("transforms: RandomResizedCrop(224), flip, normalize, bfloat16; images a second of one core, beside torch's operators")
    for memory_format in ("contiguous_format", "channels_last"):
        ours = in_own_process(loader_rounds, lake, memory_format)
        floors = in_own_process(torch_rounds, source, memory_format)
        report.rate(f"transforms, {memory_format}", median(ours), "images/core s", median(floors))
    if importlib.util.find_spec("torchvision"):
        ours = in_own_process(loader_rounds, lake, "contiguous_format")
        report.rate("transforms, beside torchvision", median(ours), "images/core s", median(in_own_process(vision_rounds, source)))


def loader_rounds(lake: Path, memory_format: str) -> list[float]:
    """Images for each second of processor time, whichever thread took it."""
    import forebay as fb
    from forebay import transforms as T

    chain = [
        T.RandomResizedCrop(SIZE),
        T.RandomHorizontalFlip(),
        T.ToDtype("bfloat16", scale=True),
        T.Normalize(MEAN, STD),
        T.ToMemoryFormat(memory_format),
    ]
    ds = fb.open(str(lake))
    loader = ds.select(range(min(ROWS, len(ds)))).pytorch(BATCH, columns=["image"], shuffle="global", transforms={"image": chain}, num_workers=1)
    rates = []
    for number in range(ROUNDS + 1):
        start = time.process_time()
        images = sum(len(batch["image"]) for batch in loader)
        # In the first each block is checked.
        rates += [images / (time.process_time() - start)] * (number > 0)
    return rates


def torch_rounds(source: Source, memory_format: str) -> list[float]:
    """As a dataset's `__getitem__` and `collate_fn` would, in one thread."""
    import torch

    torch.set_num_threads(1)
    mean = torch.tensor(MEAN).view(1, 3, 1, 1)
    std = torch.tensor(STD).view(1, 3, 1, 1)
    random = np.random.default_rng(1)

    def one(row: np.ndarray) -> Any:
        image = torch.from_numpy(row.reshape(1, *SHAPE))
        area = SHAPE[1] * SHAPE[2] * random.uniform(0.08, 1.0)
        ratio = np.exp(random.uniform(np.log(3 / 4), np.log(4 / 3)))
        width, height = (min(SIZE, max(1, round(side))) for side in ((area * ratio) ** 0.5, (area / ratio) ** 0.5))
        top, left = random.integers(SHAPE[1] - height + 1), random.integers(SHAPE[2] - width + 1)
        image = image[..., top : top + height, left : left + width]
        image = torch.nn.functional.interpolate(image, (SIZE, SIZE), mode="bilinear", align_corners=False)
        if random.random() < 0.5:
            image = image.flip(-1)
        image = image.float().div_(255).sub_(mean).div_(std)
        return image.to(torch.bfloat16, memory_format=getattr(torch, memory_format))

    return rounds(source, lambda batch: torch.cat([one(row) for row in batch]))


def vision_rounds(source: Source) -> list[float]:
    import torch
    from torchvision.transforms import v2

    torch.set_num_threads(1)
    chain = v2.Compose(
        [
            v2.RandomResizedCrop(SIZE, antialias=False),
            v2.RandomHorizontalFlip(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(MEAN, STD),
            v2.ToDtype(torch.bfloat16),
        ]
    )
    return rounds(source, lambda batch: torch.stack([chain(torch.from_numpy(row.reshape(SHAPE))) for row in batch]))


def rounds(source: Source, make: Any) -> list[float]:
    rows = source.mapped()[:ROWS]
    rows[:, ::4096].max()
    order = np.random.default_rng(2).permutation(len(rows))
    rates = []
    for number in range(ROUNDS + 1):
        start = time.process_time()
        for first in range(0, len(rows), BATCH):
            # As from a memmap: each row is copied once.
            make([rows[row].copy() for row in order[first : first + BATCH]])
        rates += [len(rows) / (time.process_time() - start)] * (number > 0)
    return rates
