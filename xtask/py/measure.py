"""What the demo and the benches measure with: the memcpy floor, peak memory, the machine, processes of their own."""

from __future__ import annotations

import multiprocessing
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np


class Memcpy:
    """Copies rows in a given order into one reused buffer, with threads: the most that moving the bytes once can give.

    Parameters
    ----------
    rows : ndarray, uint8 [n, row_bytes]
        Mapped or in memory; its pages are touched first, so that no timed copy meets a page fault.
    batch_size : int
        Rows a batch; each thread copies an equal part of it.
    """

    def __init__(self, rows: np.ndarray, batch_size: int, threads: int = 2) -> None:
        self.rows, self.batch_size, self.threads = rows, batch_size, threads
        self.buffer = np.zeros((batch_size, rows.shape[1]), np.uint8)
        self.pool = ThreadPoolExecutor(threads)
        self.rows[:, ::4096].max()

    def epoch(self, order: np.ndarray) -> float:
        """Seconds that one epoch in this order takes."""
        start = time.perf_counter()
        for first in range(0, len(order), self.batch_size):
            batch = order[first : first + self.batch_size]
            cut = [len(batch) * part // self.threads for part in range(self.threads + 1)]
            list(self.pool.map(lambda a, b: self._copy(batch[a:b], a, b), cut[:-1], cut[1:]))
        return time.perf_counter() - start

    def _copy(self, batch: np.ndarray, start: int, end: int) -> None:
        # One memmove a row, without the GIL; any other mode would go through a buffer of its own.
        np.take(self.rows, batch, axis=0, out=self.buffer[start:end], mode="clip")


def status(*fields: str) -> int | None:
    """The sum of these fields of this process's /proc status in bytes; None where there is no such file."""
    try:
        with open("/proc/self/status") as file:
            lines = [line.split() for line in file]
    except OSError:
        return None
    return sum(int(words[1]) * 1024 for words in lines if words and words[0].rstrip(":") in fields)


def memory_now() -> int | None:
    """Bytes of memory that belong to this process: anonymous and shared, mapped files left out where that is known."""
    own = status("RssAnon", "RssShmem")
    if own is not None:
        return own
    try:
        import psutil
    except ImportError:
        return None
    return psutil.Process().memory_info().rss


def reset_peak() -> int:
    """Begins a new measurement for :func:`peak` where the system can; returns the resident bytes now."""
    if sys.platform == "linux":
        try:
            with open("/proc/self/clear_refs", "w") as file:
                file.write("5")
        except OSError:
            return peak()
        return status("VmRSS") or 0
    return peak()


def peak() -> int:
    """The most resident bytes of this process so far, mapped files included."""
    if sys.platform == "linux":
        return status("VmHWM") or 0
    import psutil

    info = psutil.Process().memory_info()
    if sys.platform == "win32":
        return info.peak_wset
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def in_own_process(work: Callable[..., Any], *arguments: Any) -> Any:
    """Runs ``work(*arguments)`` in a fresh process and returns its result.

    On Linux the process is a fork, so modules that are loaded here cost it nothing. Nothing of Forebay may run in this
    process then.
    """
    context = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    receive, send = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(send, work, arguments))
    process.start()
    send.close()
    try:
        ok, result = receive.recv()
    except EOFError:
        process.join()
        raise RuntimeError(f"{work.__name__} ended with exit code {process.exitcode}") from None
    process.join()
    if not ok:
        raise RuntimeError(f"{work.__name__} failed in its process:\n{result}")
    return result


def _child(send: Any, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    import traceback

    try:
        send.send((True, work(*arguments)))
    except BaseException:
        send.send((False, traceback.format_exc()))


def median(values: list[float]) -> float:
    return statistics.median(values)


def machine() -> str:
    """This machine in a few words."""
    name = platform.processor() or platform.machine()
    memory = ""
    try:
        with open("/proc/cpuinfo") as file:
            name = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), name)
        memory = f", {os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB"
    except (OSError, ValueError, AttributeError):
        pass
    return f"{os.cpu_count()} x {name}{memory}, {platform.system()} {platform.release()}"
