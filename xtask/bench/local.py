"""bench local: epochs, ingest, single rows and import on local disk, each beside its floor. See `--help`."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from measure import Memcpy, in_own_process, median, memory_now, peak, reset_peak
from report import Report
from source import BATCH, ROW, SCHEMA, SHAPE, Source, check_batch, check_ids
from transforms import transformed

ROUNDS = 5
SINGLE_ROWS = 2000
ORDERS = {"shuffled": True, "global": "global", "sequential": False}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="where data and lakes are kept")
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    source = Source(args.folder, args.rows)
    missing = cannot_run(source)
    if missing:
        print(f"this bench cannot run here: {missing}", file=sys.stderr)
        return 2

    report = Report("local", args.json)
    report.say(f"{args.rows:,} rows of uint8 [3,224,224] + int64 label + id: {source.bytes / 1e9:.2f} GB")
    source.make()
    import torch  # noqa: F401  (so that no measured process has to)

    package(report)
    lake = args.folder / "lake"
    ingest(report, source, lake)
    epochs(report, source, lake)
    transformed(report, source, lake)
    single_rows(report, source, args.folder / "lake-single", lake)
    report.finish()
    return 0


def cannot_run(source: Source) -> str | None:
    import psutil

    source.path.parent.mkdir(parents=True, exist_ok=True)
    memory, disk = psutil.virtual_memory().available, shutil.disk_usage(source.path.parent).free
    # Rows in memory, the source and a lake in the page cache; on disk the source, two lakes and the floor's file.
    if memory < 3 * source.bytes + 2**30:
        return f"{memory / 1e9:.1f} GB of memory are available, {(3 * source.bytes + 2**30) / 1e9:.1f} are needed; try --rows"
    if disk < 4 * source.bytes:
        return f"{disk / 1e9:.1f} GB of disk are free, {4 * source.bytes / 1e9:.1f} are needed; try --rows"
    return None


# The package


def package(report: Report) -> None:
    wheel = os.environ.get("FOREBAY_BENCH_WHEEL")
    if wheel:
        report.cost("wheel size", os.path.getsize(wheel) / 1e6, "MB", 20, bar=1)
    command = [sys.executable, "-c"]
    bare, whole = [], []
    for _ in range(2 * ROUNDS + 1):
        bare.append(seconds_of(lambda: subprocess.run([*command, "pass"], check=True)))
        whole.append(seconds_of(lambda: subprocess.run([*command, "import forebay"], check=True)))
    report.cost("import forebay", (median(whole) - median(bare)) * 1e3, "ms", 100, bar=1)


def seconds_of(work: Any) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


# Ingest


def ingest(report: Report, source: Source, lake: Path) -> None:
    report.say("ingest: rows in memory -> lake, beside the same bytes -> one file + fsync")
    ours, floors, memory = in_own_process(ingest_rounds, source, lake)
    size = source.bytes / 1e6
    report.rate("ingest from NumPy", size / median(ours), "MB/s", size / median(floors), bar=0.8)
    report.cost("ingest memory above input", max(memory) / 1e6, "MB", 300, bar=1)


def ingest_rounds(source: Source, lake: Path) -> tuple[list[float], list[float], list[int]]:
    images, labels, ids = source.loaded(), source.labels(), source.ids()
    flat = lake.with_name("flat.bin")
    ours, floors, memory = [], [], []

    def measure_floor() -> None:
        floors.append(seconds_of(lambda: write_flat(flat, images)))
        flat.unlink()

    def measure_ours() -> None:
        shutil.rmtree(lake, ignore_errors=True)
        settle()
        before = reset_peak()
        ours.append(seconds_of(lambda: write_lake(lake, images, labels, ids)))
        memory.append(max(0, peak() - before))

    for number in range(ROUNDS):
        for measure in (measure_floor, measure_ours) if number % 2 == 0 else (measure_ours, measure_floor):
            settle()
            measure()
    return ours, floors, memory


def settle() -> None:
    """Lets no write of one measurement fall into the next."""
    if hasattr(os, "sync"):
        os.sync()


def write_flat(path: Path, images: np.ndarray) -> None:
    view = memoryview(images).cast("B")
    with open(path, "wb", buffering=0) as file:
        done = 0
        while done < len(view):
            done += file.write(view[done : done + (8 << 20)])
        os.fsync(file.fileno())


def write_lake(lake: Path, images: np.ndarray, labels: np.ndarray, ids: np.ndarray) -> None:
    import forebay as fb

    ds = fb.create(str(lake), SCHEMA)
    ds.append({"image": images, "label": labels, "id": ids})
    ds.commit("the rows of the bench")


# Epochs


def epochs(report: Report, source: Source, lake: Path) -> None:
    for name, shuffle in ORDERS.items():
        report.say(f"epochs: {name}, batch {BATCH}, torch tensors, beside a two-thread memcpy in the same order")
        orders = in_own_process(orders_of, lake, shuffle)
        rounds = [in_own_process(epoch_round, source, lake, shuffle, orders) for _ in range(ROUNDS)]
        floor = source.n / median([seconds for line in rounds for seconds in line["floors"]])
        for number in (0, 1):
            value = source.n / median([line["epochs"][number] for line in rounds])
            report.rate(f"epoch {number + 1}, {name}", value, "rows/s", floor, bar=0.85 if number else None)
        checked = in_own_process(checked_epoch, source, lake, shuffle)
        report.cost(f"memory of the loader, {name}", checked / 1e6, "MB", None)


def loader(lake: Path, shuffle: bool | str, **options: Any) -> Any:
    import forebay as fb

    return fb.open(str(lake)).pytorch(batch_size=BATCH, shuffle=shuffle, seed=7, **options)


def orders_of(lake: Path, shuffle: bool | str) -> list[np.ndarray]:
    """The ids of epochs 0 and 1, for the floor to copy in the same order."""
    batches = loader(lake, shuffle, columns=["id"])
    orders = []
    for epoch in (0, 1):
        batches.set_epoch(epoch)
        orders.append(np.concatenate([batch["id"].numpy() for batch in batches]))
    return orders


def epoch_round(source: Source, lake: Path, shuffle: bool | str, orders: list[np.ndarray]) -> dict[str, list[float]]:
    """Floor, epoch 1 (each block is checked), floor, epoch 2, floor; the first pass of the floor is a warm-up."""
    import forebay  # noqa: F401

    memcpy = Memcpy(source.mapped(), BATCH)
    memcpy.epoch(orders[0])
    floors, took = [], []
    batches = None
    for epoch, order in enumerate(orders):
        floors.append(memcpy.epoch(order))
        start = time.perf_counter()
        if batches is None:
            batches = loader(lake, shuffle)
        batches.set_epoch(epoch)
        ids = [batch["id"].clone() for batch in batches]
        took.append(time.perf_counter() - start)
        seen = np.concatenate([part.numpy() for part in ids])
        check_ids(seen, source.n)
        if not np.array_equal(seen, order):
            raise AssertionError("the same seed and epoch came in another order")
    floors.append(memcpy.epoch(orders[-1]))
    return {"floors": floors, "epochs": took}


def checked_epoch(source: Source, lake: Path, shuffle: bool | str) -> int:
    """Compares every byte of an epoch; returns the most memory seen above that at the start."""
    import torch

    rows, labels = source.mapped(), source.labels()
    batches = loader(lake, shuffle)
    before = most = memory_now() or 0
    ids = []
    for batch in batches:
        if not all(isinstance(value, torch.Tensor) for value in batch.values()):
            raise AssertionError("not every column came as a tensor")
        most = max(most, memory_now() or 0)
        ids.append(check_batch(batch, rows, labels).copy())
    check_ids(np.concatenate(ids), source.n)
    return most - before


# Single rows


def single_rows(report: Report, source: Source, single: Path, lake: Path) -> None:
    report.say(f"single rows: {SINGLE_ROWS:,} at random, beside copies of rows of a memmap")
    few = min(source.n, 2 * SINGLE_ROWS)
    in_own_process(write_single, source, single, few)
    for case, path, column, bar in (("ds[i], one column", single, None, 0.3), ('ds["image"][i]', lake, "image", None)):
        ours, floors = in_own_process(single_rounds, source, path, column, few)
        report.rate(case, SINGLE_ROWS / median(ours), "rows/s", SINGLE_ROWS / median(floors), bar=bar)


def write_single(source: Source, single: Path, n: int) -> None:
    import forebay as fb

    shutil.rmtree(single, ignore_errors=True)
    ds = fb.create(str(single), {"image": SCHEMA["image"]})
    ds.append({"image": source.mapped()[:n].reshape(n, *SHAPE)})
    ds.commit("rows of one column")


def single_rounds(source: Source, path: Path, column: str | None, n: int) -> tuple[list[float], list[float]]:
    import forebay as fb

    ds = fb.open(str(path))
    rows = source.mapped()
    wanted = [int(row) for row in np.random.default_rng(3).integers(0, n, SINGLE_ROWS)]
    one = (lambda row: ds[row]["image"]) if column is None else ds[column].__getitem__
    for row in wanted:  # the first touch of a row checks it; a floor has nothing to check
        if not np.array_equal(np.asarray(one(row)).reshape(ROW), rows[row]):
            raise AssertionError(f"row {row} is wrong")
    ours, floors = [], []
    for _ in range(ROUNDS):
        floors.append(seconds_of(lambda: each(wanted, lambda row: rows[row].copy())))
        ours.append(seconds_of(lambda: each(wanted, one)))
    return ours, floors


def each(rows: list[int], take: Any) -> None:
    for row in rows:
        take(row)


if __name__ == "__main__":
    sys.exit(main())
