"""What the examples share: a small lake whose labels can be learnt, and a model. `python shapes.py URL` makes the lake."""

from __future__ import annotations

import sys

import numpy as np
import torch

import forebay as fb
from forebay import transforms as T

CLASSES = 10
TRAIN = [
    T.RandomCrop(56),
    T.RandomHorizontalFlip(),
    T.ToDtype("bfloat16", scale=True),
    T.Normalize(mean=[0.5, 0.5, 0.5], std=[0.25, 0.25, 0.25]),
    T.ToMemoryFormat("channels_last"),
]


def make(url: str, rows: int = 20_000) -> None:
    """Noisy images [3, 64, 64], each with a bright square in the place of its class."""
    ds = fb.create(url, {"image": fb.Image((3, 64, 64), layout="CHW"), "label": fb.ClassLabel()}, exist_ok=True)
    if len(ds):
        return
    random = np.random.default_rng(0)
    for first in range(0, rows, 2000):
        labels = np.arange(first, min(first + 2000, rows)) % CLASSES
        images = random.integers(0, 160, (len(labels), 3, 64, 64), dtype=np.uint8)
        for image, label in zip(images, labels):
            top, left = 8 + 24 * (label // 5), 4 + 11 * (label % 5)
            image[:, top : top + 16, left : left + 9] += 90
        ds.append({"image": images, "label": labels})
    ds.commit("shapes")


def model() -> torch.nn.Module:
    def block(before: int, after: int) -> torch.nn.Module:
        return torch.nn.Sequential(
            torch.nn.Conv2d(before, after, 3, stride=2, padding=1, bias=False), torch.nn.BatchNorm2d(after), torch.nn.ReLU()
        )

    head = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(128 * 7 * 7, CLASSES))
    return torch.nn.Sequential(block(3, 32), block(32, 64), block(64, 128), head)


if __name__ == "__main__":
    make(sys.argv[1])
