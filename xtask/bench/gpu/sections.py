"""The sections of the bench: what is measured, beside what."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from clock import Took, copy_rate, epoch
from lakes import ROWS, Lake, check_ids
from report import Report

import forebay as fb

HERE = Path(__file__).resolve().parent
BATCH = 256
EPOCHS = 3


class Bench:
    """What the sections share."""

    def __init__(self, report: Report, folder: Path, bytes_: float) -> None:
        self.report, self.folder, self.bytes = report, folder, bytes_
        self._link: float | None = None

    def lake(self, name: str) -> Lake:
        lake = Lake(self.folder, name, self.bytes if name == "images" else self.bytes / 3)
        lake.make()
        return lake

    @property
    def link(self) -> float:
        """Bytes a second of the largest copy from pinned memory, when it was first asked for."""
        if self._link is None:
            self._link = copy_rate(to_device=True)
            self.report.rate("largest pinned copy", self._link / 1e9, "GB/s", None)
        return self._link

    def beside(self, work: Callable[[], Any]) -> tuple[Any, float]:
        """What `work` gives, and the link's rate beside it: a shared host gives less of the link at times, so the better of the copies
        right before and right after."""
        before = copy_rate(to_device=True)
        done = work()
        link = max(before, copy_rate(to_device=True))
        self.report.say(f"   the link beside it: {link / 1e9:.1f} GB/s")
        return done, link

    def loader(self, lake: Lake, **options: Any) -> Any:
        options = {"batch_size": BATCH, "shuffle": "global", "device": "cuda", "seed": 3, **options}
        return fb.open(lake.url).pytorch(**options)


def gpus() -> str:
    names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return f"{len(names)} x {names[0]}, torch {torch.__version__}, CUDA {torch.version.cuda}"


def images(bench: Bench) -> None:
    """Exact global shuffle of images, all columns; the first epoch of a process checks every block."""
    lake, link = bench.lake("images"), bench.link
    loader = bench.loader(lake)
    first = epoch(loader, 0)[1]
    settle(loader)
    took, beside = bench.beside(lambda: [epoch(loader, number)[1] for number in range(1, EPOCHS + 1)])
    bench.report.say(f"   {loader.stats()}")
    rate = lake.rows / statistics.median(one.seconds for one in took)
    bench.report.rate("images, global shuffle, batch 256", rate, "images/s", beside / (lake.row + 8), bar=0.90)
    bench.report.cost("  cores busy", statistics.median(one.cores for one in took), "cores", 1.5, bar=1)
    bench.report.rate("images, first epoch of the process", lake.rows / first.seconds, "images/s", link / (lake.row + 8))
    bench.report.cost("  cores busy in it", first.cores, "cores", None)
    check(loader, lake)


def check(loader: Any, lake: Lake) -> None:
    """Every byte of an epoch against what it must be, on the device."""
    loader.set_epoch(99)
    wrong, ids = torch.zeros((), dtype=torch.int64, device="cuda"), []
    for batch in loader:
        wrong += lake.wrong(batch)
        ids.append(batch["id"])
    if int(wrong):
        raise AssertionError(f"{int(wrong)} rows of {lake.name} are wrong")
    check_ids(torch.cat(ids).cpu().numpy(), lake.rows)


def finish(bench: Bench) -> None:
    """Images cropped at random, resized, mirrored, normalised, as bfloat16 in channels_last, in the same pass."""
    from forebay import transforms as T

    lake = bench.lake("images")
    train = [
        T.RandomResizedCrop(224), T.RandomHorizontalFlip(), T.ToDtype("bfloat16", scale=True),
        T.Normalize(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225]), T.ToMemoryFormat("channels_last"),
    ]  # fmt: skip
    loader = bench.loader(lake, transforms={"image": train})
    epoch(loader, 0)
    settle(loader)
    took, link = bench.beside(lambda: [epoch(loader, number)[1] for number in range(1, EPOCHS + 1)])
    rate = lake.rows / statistics.median(one.seconds for one in took)
    bench.report.rate("images, cropped, flipped, normalised to bf16", rate, "images/s", link / (lake.row + 8), bar=0.80)
    bench.report.cost("  cores busy", statistics.median(one.cores for one in took), "cores", None)
    loader.set_epoch(0)
    on_host = iter(bench.loader(lake, transforms={"image": train}, device="cpu"))
    for _, ours, theirs in zip(range(4), loader, on_host):
        if not torch.equal(ours["image"].cpu(), theirs["image"]) or not torch.equal(ours["id"].cpu(), theirs["id"]):
            raise AssertionError("the host finishes images differently")


def rows(bench: Bench) -> None:
    """Rows of other sizes, in batches of 256 and of about 16 MB."""
    for name, bar in (("rows-151875", 0.85), ("rows-24576", 0.85), ("rows-1024", 0.5), ("rows-1000", 0.5)):
        lake = bench.lake(name)
        for batch in sorted({BATCH, max(BATCH, 16_000_000 // lake.row // 256 * 256)}):
            loader = bench.loader(lake, batch_size=batch)
            epoch(loader, 0)
            settle(loader)
            took, link = bench.beside(lambda loader=loader: [epoch(loader, number)[1] for number in range(1, EPOCHS + 1)])
            rate = lake.rows * (lake.row + 8) / statistics.median(one.seconds for one in took)
            bench.report.rate(f"rows of {lake.row:,} B, batch {batch:,}", rate / 1e9, "GB/s", link / 1e9, bar=bar)
            bench.report.cost("  cores busy", statistics.median(one.cores for one in took), "cores", None)
        check(loader, lake)


def budget(bench: Bench) -> None:
    """A set that the page cache doesn't hold, and one that may not be registered."""
    lake, link = bench.lake("images"), bench.link
    files = [path for path in Path(lake.url).rglob("*") if path.is_file() and path.stat().st_size > 2**20]
    lake.drop_from_page_cache()
    disk = read_rate(files)
    bench.report.rate("the disk, read in 16 long runs", disk / 1e9, "GB/s", None)
    for shuffle in ("global", True):
        lake.drop_from_page_cache()
        rows_, took = epoch(bench.loader(lake, shuffle=shuffle), 0)
        rate = rows_ * lake.row / took.seconds
        bench.report.rate(f"images, page cache cold, shuffle={shuffle!r}", rate / 1e9, "GB/s", disk / 1e9)
    script = f"""
import sys; sys.path[:0] = {sys.path[:2]!r}
import forebay as fb, torch, json
from clock import epoch
fb.gpu.configure(registered={1 << 30})
loader = fb.open({lake.url!r}).pytorch({BATCH}, shuffle="global", device="cuda")
epoch(loader, 0)
rows, took = epoch(loader, 1)
column = loader.stats()["device"]["columns"]["image"]
print(json.dumps([rows, took.seconds, took.cores, column["route"], column["refused"]]))
"""
    rows_, seconds, cores, route, refused = json.loads(run(script))
    rate = rows_ * lake.row / seconds
    bench.report.rate(f"images, more than may be registered: {route}", rate / 1e9, "GB/s", link / 1e9)
    bench.report.cost("  cores busy", cores, "cores", None)
    bench.report.say(f"   refused: {refused}")
    arena(bench, lake)


def arena(bench: Bench, lake: Lake) -> None:
    """Images on a filesystem that isn't mapped, as one over a network: fetched into registered memory, of which the budget holds a third."""
    with unmapped(bench.folder) as folder:
        if folder is None:
            bench.report.say("   the arena: not measured, it takes root to mount a filesystem")
            return
        remote = Lake(folder, "images", min(bench.bytes, 6 * 2**30))
        remote.make()
        for shuffle in (True, "global"):
            loader = bench.loader(remote, shuffle=shuffle, memory_budget=remote.bytes // 3)
            epoch(loader, 0)
            took = [epoch(loader, number)[1] for number in (1, 2)]
            rate, stats = remote.bytes / statistics.median(one.seconds for one in took), loader.stats()
            bench.report.rate(f"images, {stats['routes']['image']}, thrice the budget, shuffle={shuffle!r}", rate / 1e9, "GB/s", bench.link / 1e9)
            bench.report.cost("  cores busy", statistics.median(one.cores for one in took), "cores", None)
            bench.report.say(f"   {stats['device']['columns']['image']}")
            check(loader, remote)
        loader = bench.loader(remote, shuffle="global", memory_budget=remote.bytes // 3, host_cache=2 * remote.bytes)
        for number in range(2):
            epoch(loader, number)
        took = [epoch(loader, number)[1] for number in range(2, 2 + EPOCHS)]
        rate = remote.bytes / statistics.median(one.seconds for one in took)
        bench.report.rate("images, fetched before and kept in host memory, shuffle='global'", rate / 1e9, "GB/s", bench.link / 1e9)
        bench.report.cost("  cores busy", statistics.median(one.cores for one in took), "cores", None)
        bench.report.say(f"   {loader.stats()['kept_bytes']:,} bytes kept, {loader.stats()['fetched']:,} fetched in the last epoch")
        check(loader, remote)


@contextmanager
def unmapped(folder: Path) -> Iterator[Path | None]:
    """A folder on a filesystem that forebay reads but doesn't map; None where none can be mounted."""
    place = folder / "unmapped"
    place.mkdir(exist_ok=True)
    mounted = subprocess.run(["mount", "-t", "ramfs", "none", str(place)], capture_output=True).returncode == 0
    try:
        yield place if mounted else None
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(place)], check=True)


def read_rate(files: list[Path]) -> float:
    from concurrent.futures import ThreadPoolExecutor

    part = 64 << 20
    parts = [(path, start) for path in files for start in range(0, path.stat().st_size, part)]
    buffer = [bytearray(part) for _ in range(16)]

    def read(job: tuple[int, tuple[Path, int]]) -> int:
        number, (path, start) = job
        with open(path, "rb", buffering=0) as file:
            file.seek(start)
            return file.readinto(buffer[number % 16])

    with ThreadPoolExecutor(16) as pool, Took() as took:
        total = sum(pool.map(read, enumerate(parts)))
    return total / took.seconds


def run(script: str, *arguments: str) -> str:
    """The last line that a script prints."""
    done = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr.strip()[-2000:])
    return done.stdout.strip().splitlines()[-1]


def cache(bench: Bench) -> None:
    """Rows kept in the device's memory, from the second epoch on."""
    lake = bench.lake("images")
    near = copy_rate(to_device=False)
    bench.report.rate("largest copy within the device", near / 1e9, "GB/s", None)
    for batch in (BATCH, 8 * BATCH):
        loader = bench.loader(lake, batch_size=batch, device_cache=lake.bytes + (1 << 30))
        first = epoch(loader, 0)[1]
        settle(loader)
        took = [epoch(loader, number)[1] for number in range(1, 3 * EPOCHS + 1)]
        rate = lake.rows * lake.row / statistics.median(one.seconds for one in took)
        bench.report.rate(f"images in the device cache, batch {batch:,}", rate / 1e9, "GB/s", near / 1e9, bar=0.5)
        bench.report.cost("  cores busy", statistics.median(one.cores for one in took), "cores", None)
        bench.report.say(f"   {first.seconds:.2f} s for the epoch that fills it; {loader.stats()['device']['cache']}")
        bench.report.say(f"   {kernel_rate(loader, lake) / 1e9:,.0f} GB/s while the kernel runs")
        check(loader, lake)
        del loader
        torch.cuda.empty_cache()


def settle(loader: Any) -> None:
    """Waits until no file is being registered any more, which slows what goes on beside it."""
    batches, before = iter(loader), -1
    next(batches)
    while (now := loader.stats()["device"]["registered_bytes"]) != before:
        before = now
        time.sleep(0.5)
    del batches


def kernel_rate(loader: Any, lake: Lake) -> float:
    """Bytes a second of the kernel that gathers from the cache, by itself."""
    rows_ = 0
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _, batch in zip(range(10), loader):
            rows_ += len(batch["id"])
        torch.cuda.synchronize()
    kernels = [event for event in profile.events() if event.name == "forebay_gather"]
    return rows_ * lake.row / (sum(event.time_range.elapsed_us() for event in kernels[: 10]) / 1e6)


def start(bench: Bench) -> None:
    """From `open` to the first batch, in a fresh process whose CUDA context is there."""
    lake = bench.lake("images")
    script = f"""
import sys; sys.path[:0] = {sys.path[:2]!r}
import time, json, torch, forebay as fb
t = time.perf_counter(); torch.zeros(1, device="cuda"); torch.cuda.synchronize(); context = time.perf_counter() - t
t = time.perf_counter(); ds = fb.open({lake.url!r}); opened = time.perf_counter() - t
loader = ds.pytorch({BATCH}, shuffle="global", device="cuda"); made = time.perf_counter() - t
batches = iter(loader); batch = next(batches); torch.cuda.synchronize(); first = time.perf_counter() - t
for _ in range(20): batch = next(batches)
torch.cuda.synchronize(); more = time.perf_counter() - t
print(json.dumps([first, context, opened, made, more]))
"""
    all_ = [json.loads(run(script)) for _ in range(3)]
    first, context, opened, made, more = (statistics.median(column) for column in zip(*all_))
    bench.report.cost("open -> first batch on the device", first, "s", 0.5, bar=1)
    bench.report.say(f"   opened {opened:.3f} s, loader made {made:.3f} s, first batch {first:.3f} s, 20 more {more:.3f} s")
    bench.report.cost("  the CUDA context, before that", context, "s", None)


def training(bench: Bench) -> None:
    import training as work

    work.run(bench)


def others(bench: Bench) -> None:
    import others as work

    work.run(bench)


def holds(bench: Bench) -> None:
    import holds as work

    work.run(bench)


def ranks(bench: Bench) -> None:
    """One process a GPU, one page cache."""
    lake, count = bench.lake("images"), torch.cuda.device_count()
    if count == 1:
        bench.report.say("   there is one GPU here")
        return
    results = {}
    for world in (1, count):
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={world}"]
        done = subprocess.run([*command, str(HERE / "ranks.py"), lake.url, str(lake.row)], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr.strip()[-3000:])
        results[world] = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))
    one, all_ = results[1], results[count]
    each = ", ".join(f"{rate / 1e9:.1f}" for rate in all_["rates"])
    bench.report.say(f"   GB/s of each rank: {each}; plain copies at once: {all_['copies'] / 1e9:.1f} in all, alone {one['copies'] / 1e9:.1f}")
    bench.report.rate(f"{count} GPUs beside one", sum(all_["rates"]) / 1e9, "GB/s", one["rates"][0] / 1e9, bar=0.95 * count if count == 2 else 0.85 * count)
    bench.report.rate("  whole epochs, their start included", all_["whole"] / 1e9, "GB/s", one["whole"] / 1e9)
    bench.report.rate("  batched copies of the same rows by the driver alone", all_["rows"] / 1e9, "GB/s", one["rows"] / 1e9)
    bench.report.rate(f"  pinned copies of {count} GPUs at once beside one", all_["copies"] / 1e9, "GB/s", one["copies"] / 1e9)
    bench.report.cost(f"ResNet-50 DDP step on {count} GPUs", all_["step"] * 1e3, "ms", all_["synthetic"] * 1e3, bar=1 / 1.03)


def soak(bench: Bench) -> None:
    """200 epochs in one process: what its memory grows by."""
    lake = Lake(bench.folder / "soak", "images", 600e6)
    lake.make()
    script = f"""
import sys; sys.path[:0] = {sys.path[:2]!r}
import json, time, torch, forebay as fb
from clock import epoch
from measure import memory_now
loader = fb.open({lake.url!r}).pytorch({BATCH}, shuffle="global", device="cuda")
seen = []
for number in range(10):  # As far ahead as the loader may be, so that all its places for batches are taken once.
    loader.set_epoch(number)
    for batch in loader:
        torch.cuda.synchronize()
        time.sleep(0.005)
    del batch
for number in range(10, 211):
    epoch(loader, number)
    seen.append((memory_now(), torch.cuda.mem_get_info()[1] - torch.cuda.mem_get_info()[0]))
print(json.dumps([seen[0], seen[-1], torch.cuda.memory_reserved(), loader.stats()["device"]["device_bytes"]]))
"""
    before, after, reserved, own = json.loads(run(script))
    bench.report.say(f"   at the end PyTorch has {reserved / 2**20:.0f} MiB of the device, the loader {own / 2**20:.0f} MiB")
    for name, index in (("host", 0), ("device", 1)):
        bench.report.cost(f"200 epochs: growth of {name} memory", max(0, after[index] - before[index]) / 2**20, "MiB", 16, bar=1)


SECTIONS: dict[str, Callable[[Bench], None]] = {
    "images": images, "finish": finish, "rows": rows, "cache": cache, "budget": budget, "start": start, "training": training, "others": others,
    "ranks": ranks, "holds": holds, "soak": soak,
}  # fmt: skip
