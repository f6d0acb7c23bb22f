"""The part of `cargo xtask bench loader` that is about images: JPEG decoded by the loader, beside libjpeg-turbo's own loop."""

from __future__ import annotations

import io
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from measure import median
from PIL import Image
from report import Report

ROUNDS = 5
#: Pixels to decode in each turn.
PIXELS = 60_000_000
#: The side of what they become where they are made small.
SMALL = 96


def photos() -> dict[str, list[bytes]]:
    """JPEG files of real photos: whole ones, and tiles as a training set has them."""
    import photos as demo

    pictures = []
    for path in demo.find():
        with Image.open(path) as opened:
            pictures.append(opened.convert("RGB"))
    tiles = [picture.crop((x, y, x + 256, y + 256)) for picture in pictures for x, y in demo.grid(*picture.size, 12)]
    return {"whole photos": [_jpeg(picture) for picture in pictures], "tiles of 256 x 256": [_jpeg(tile) for tile in tiles]}


def _jpeg(picture: Image.Image) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, "jpeg", quality=90)
    return buffer.getvalue()


def measure(report: Report, folder: Path) -> None:
    """Images for each second of processor time, on one core, in turns: decoded beside libjpeg-turbo's own loop; and made small, beside
    what that takes of whole images."""
    cores = os.sched_getaffinity(0)
    # The loader decodes two batches at once. Beside each other, on what a virtual machine calls cores, each takes longer.
    os.sched_setaffinity(0, {max(cores)})
    try:
        _measured(report, folder)
    finally:
        os.sched_setaffinity(0, cores)


def _measured(report: Report, folder: Path) -> None:
    import forebay as fb
    import simplejpeg
    from forebay import transforms as T

    for name, files in photos().items():
        pixels = sum(width * height for height, width, _, _ in map(simplejpeg.decode_jpeg_header, files))
        times = max(1, PIXELS // pixels)
        lake = folder / "jpegs.lake"
        shutil.rmtree(lake, ignore_errors=True)
        ds = fb.create(os.fspath(lake), {"photo": "bytes", "id": "int64"})
        ds.append({"photo": files * times, "id": np.arange(len(files) * times)})
        ds.commit("photos")
        options: dict[str, Any] = {"batch_size": 16, "decode": {"photo": "RGB"}, "columns": ["photo"], "num_workers": 1}
        loader = ds.numpy(**options)

        def ours() -> int:
            return sum(int(batch["photo"].offsets[-1]) for batch in loader)

        def theirs() -> int:
            return sum(simplejpeg.decode_jpeg(file, "RGB").nbytes for file in files * times)

        rates = _rates(pixels * times, 3 * pixels * times, ours, theirs)
        report.rate(f"JPEG, {name}", rates[0], "MP/core s", rates[1], bar=0.95)
        small = 3 * SMALL * SMALL
        chain = {"photo": [T.RandomResizedCrop(SMALL)]}
        shrunk, whole = (ds.numpy(transforms=chain, shrink_on_load=shrink, **options) for shrink in (True, False))
        made = [lambda loader=loader: sum(batch["photo"].nbytes for batch in loader) for loader in (shrunk, whole)]
        rates = _rates(pixels * times, small * len(files) * times, *made)
        report.rate(f"JPEG, {name}, a random part of them to {SMALL} x {SMALL}", rates[0], "MP/core s", rates[1])
        shutil.rmtree(lake)


def _rates(pixels: int, total: int, ours: Callable[[], int], theirs: Callable[[], int]) -> list[float]:
    """Megapixels for each second of processor time, the medians of turns."""
    rounds = [(_seconds(ours, total), _seconds(theirs, total)) for _ in range(ROUNDS)]
    return [pixels / 1e6 / median([line[side] for line in rounds]) for side in (0, 1)]


def _seconds(work: Callable[[], int], total: int) -> float:
    start = time.process_time()
    if work() != total:
        raise AssertionError("not every pixel was made")
    return time.process_time() - start
