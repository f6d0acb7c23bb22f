"""The part of `cargo xtask bench loader` that is about images: JPEG decoded by the loader, beside libjpeg-turbo's own loop."""

from __future__ import annotations

import io
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from measure import median
from PIL import Image
from report import Report

ROUNDS = 5
#: Pixels to decode in each turn.
PIXELS = 60_000_000


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
    """Images for each second of processor time, one thread each, in turns."""
    import forebay as fb
    import simplejpeg

    for name, files in photos().items():
        pixels = sum(width * height for height, width, _, _ in map(simplejpeg.decode_jpeg_header, files))
        times = max(1, PIXELS // pixels)
        lake = folder / "jpegs.lake"
        shutil.rmtree(lake, ignore_errors=True)
        ds = fb.create(os.fspath(lake), {"photo": "bytes", "id": "int64"})
        ds.append({"photo": files * times, "id": np.arange(len(files) * times)})
        ds.commit("photos")
        loader = ds.numpy(batch_size=16, decode={"photo": "RGB"}, columns=["photo"], num_workers=1)

        def ours() -> int:
            return sum(int(batch["photo"].offsets[-1]) for batch in loader)

        def theirs() -> int:
            return sum(simplejpeg.decode_jpeg(file, "RGB").nbytes for file in files * times)

        rounds = [(_seconds(ours, pixels * times), _seconds(theirs, pixels * times)) for _ in range(ROUNDS)]
        rates = [pixels * times / 1e6 / median([line[side] for line in rounds]) for side in (0, 1)]
        report.rate(f"JPEG, {name}", rates[0], "MP/core s", rates[1], bar=0.95)
        shutil.rmtree(lake)


def _seconds(work: Callable[[], int], pixels: int) -> float:
    start = time.process_time()
    if work() != 3 * pixels:
        raise AssertionError("not every pixel was decoded")
    return time.process_time() - start
