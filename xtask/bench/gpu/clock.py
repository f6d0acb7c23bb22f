"""Time and processor time of work on a GPU."""

from __future__ import annotations

import resource
import statistics
import time
from collections.abc import Callable, Iterable
from typing import Any

import torch


def processor_seconds() -> float:
    """Of this process and its children that ended."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


class Took:
    """Seconds and cores of a ``with`` block, the GPU's work included."""

    def __enter__(self) -> Took:
        torch.cuda.synchronize()
        self._start, self._busy = time.perf_counter(), processor_seconds()
        return self

    def __exit__(self, *_: object) -> None:
        torch.cuda.synchronize()
        self.seconds = time.perf_counter() - self._start
        self.cores = (processor_seconds() - self._busy) / self.seconds


def epoch(loader: Iterable[dict[str, Any]], number: int) -> tuple[int, Took]:
    """Takes all batches of an epoch and drops them; how many rows, and what it took."""
    loader.set_epoch(number)  # type: ignore[attr-defined]
    rows = 0
    with Took() as took:
        for batch in loader:
            rows += batch["id"].shape[0]
    return rows, took


def copy_rate(to_device: bool, bytes_: int = 1 << 30) -> float:
    """Bytes a second of the largest copy: from pinned memory, or within the device."""
    target = torch.empty(bytes_, dtype=torch.uint8, device="cuda")
    source = torch.empty(bytes_, dtype=torch.uint8).pin_memory() if to_device else torch.zeros_like(target)
    return bytes_ / median_seconds(lambda: target.copy_(source, non_blocking=True), 7)


def median_seconds(work: Callable[[], Any], rounds: int) -> float:
    work()
    times = []
    for _ in range(rounds):
        with Took() as took:
            work()
        times.append(took.seconds)
    return statistics.median(times)
