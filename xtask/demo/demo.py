"""Real photos -> lake -> commit -> branch -> shuffled batches, with figures. Run by `cargo xtask demo`."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import forebay as fb
import numpy as np
import photos
import sheet
from measure import Memcpy, machine, median, memory_now

BATCH, SEED, ROUNDS = 256, 7, 5
ROW = 3 * 224 * 224


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--tiles", type=int, required=True)
    args = parser.parse_args()
    tiles, lake = args.folder / "tiles", args.folder / "lake"

    head("1  photos", "real photos from scikit-image and scikit-learn, cut into tiles; each photo is a class")
    found = photos.find()
    count = photos.cut(found, tiles, args.tiles, bar)
    say(f"{len(found)} photos, {count:,} JPEG tiles of {photos.TILE} x {photos.TILE} in {short(tiles)}")

    head("2  ingest", "one command: folder of class folders -> uint8 [3,224,224] + label, committed")
    shutil.rmtree(lake, ignore_errors=True)
    ingest(lake, tiles)

    head("3  commit and branch", "the branch gets mirrored copies of some rows; main does not change")
    branch(lake, count)

    head("4  epoch", f"shuffled, batch {BATCH}, every row checked against its checksum and counted")
    epoch(args.folder, lake, count)


def ingest(lake: Path, tiles: Path) -> None:
    program = Path(sys.executable).parent / ("forebay.exe" if sys.platform == "win32" else "forebay")
    command = ["create", short(lake), "--from", short(tiles), "--resize", "256", "--crop", "224"]
    print(f"   $ forebay {' '.join(command)}", flush=True)
    subprocess.run([program, *command], check=True)


def branch(lake: Path, count: int) -> None:
    ds = fb.open(str(lake)).branch("mirrored")
    rows = ds[0:64]
    ds.append(
        {
            "image": np.ascontiguousarray(rows["image"][..., ::-1]),
            "label": rows["label"],
            "path": [f"{path} (mirrored)" for path in rows["path"]],
            "id": rows["id"] + count,
        }
    )
    ds.commit("mirror 64 tiles")
    for name in ("main", "mirrored"):
        at = fb.open(str(lake), branch=name)
        newest = at.log(1)[0]
        say(f"{name:<9} {len(at):>6,} rows   {newest.id[:8]}  {newest.message}")
    if len(fb.open(str(lake))) != count:
        raise SystemExit("main changed with its branch")


def epoch(folder: Path, lake: Path, count: int) -> None:
    before = memory_now()
    start = time.perf_counter()
    ds = fb.open(str(lake))
    loader = ds.numpy(batch_size=BATCH, shuffle=True, seed=SEED, columns=["image", "label", "id"])
    first, most, order, sample = 0.0, before or 0, [], None
    for batch in loader:
        if not first:
            first = time.perf_counter() - start
            sample = {name: np.array(batch[name]) for name in ("image", "label")}
        most = max(most, memory_now() or 0)
        order.append(np.array(batch["id"]))
        bar(sum(map(len, order)), count)
    checked = time.perf_counter() - start
    seen = np.concatenate(order)
    if not np.array_equal(np.sort(seen), np.arange(count)):
        raise SystemExit("a row is missing or came twice")
    say(f"every one of {count:,} rows came exactly once, in the same order for this seed on any machine")

    ours, floors = beside_memcpy(folder, ds, loader, seen)
    size = count * ROW / 1e6
    names = ds.schema["label"].names
    picture = folder / "batch.png"
    title = f"Forebay: the first batch of a shuffled epoch over {count:,} tiles"
    sheet.draw(picture, sample["image"], [names[label] for label in sample["label"]], title, f"48 of {BATCH} rows, as the loader delivered them")

    print(f"\n   on {machine()}")
    table = [
        ("time to first batch", f"{first * 1e3:,.0f} ms", "open, plan, read and check included"),
        ("epoch 1", f"{count / checked:,.0f} rows/s", f"{size / checked:,.0f} MB/s, each block checked on first touch"),
        ("epoch 2 and later", f"{count / ours:,.0f} rows/s", f"{size / ours:,.0f} MB/s, median of {ROUNDS}"),
        ("plain memcpy", f"{count / floors:,.0f} rows/s", f"{size / floors:,.0f} MB/s, 2 threads, same rows, same order, one reused buffer"),
        ("ratio to memcpy", f"{floors / ours:.2f}", "1.00 would be moving each byte once and nothing else"),
        ("peak memory", f"{most / 1e6:,.0f} MB" if before else "unknown", f"{(most - (before or 0)) / 1e6:,.0f} MB of it for the epoch; the data is {size:,.0f} MB"),
        ("contact sheet", short(picture), "one batch as it came"),
    ]
    for name, value, note in table:
        print(f"   {name:<20} {value:>16}   {note}")


def beside_memcpy(folder: Path, ds: fb.Dataset, loader: object, order: np.ndarray) -> tuple[float, float]:
    """Seconds of an epoch and of the memcpy floor, taken in turns; the floor copies from a flat file with the same rows."""
    flat = np.memmap(folder / "flat.bin", np.uint8, "w+", shape=(len(order), ROW))
    for batch in ds.numpy(batch_size=BATCH, shuffle=False, columns=["image", "id"]):
        flat[np.asarray(batch["id"])] = np.asarray(batch["image"]).reshape(-1, ROW)
    memcpy = Memcpy(np.asarray(flat), BATCH)
    memcpy.epoch(order)
    ours, floors = [], []
    for number in range(ROUNDS):
        floors.append(memcpy.epoch(order))
        loader.set_epoch(number + 1)
        start = time.perf_counter()
        rows = sum(len(batch["id"]) for batch in loader)
        ours.append(time.perf_counter() - start)
        if rows != len(order):
            raise SystemExit(f"epoch {number + 1} had {rows} rows")
    del memcpy, flat
    (folder / "flat.bin").unlink()
    return median(ours), median(floors)


# The look


def head(title: str, text: str) -> None:
    print(f"\n{paint(title, '1')}   {paint(text, '2')}", flush=True)


def say(text: str) -> None:
    print(f"   {text}", flush=True)


def paint(text: str, style: str) -> str:
    return f"\x1b[{style}m{text}\x1b[0m" if sys.stdout.isatty() and "NO_COLOR" not in os.environ else text


def bar(done: int, of: int) -> None:
    """A progress bar, where there is a terminal to draw it on."""
    if not sys.stdout.isatty():
        return
    width = 40
    full = width * done // max(1, of)
    end = "\n" if done >= of else ""
    print(f"\r   [{'#' * full}{'.' * (width - full)}] {done:,} of {of:,}", end=end, flush=True)


def short(path: Path) -> str:
    """A path as one would type it from here."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


if __name__ == "__main__":
    main()
