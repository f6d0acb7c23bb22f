"""A contact sheet: the tiles of one batch with their labels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

SIDE, GAP, CAPTION, HEAD = 132, 10, 18, 60
COLUMNS, ROWS = 8, 6
INK, GREY, PAPER = (34, 38, 46), (120, 126, 138), (250, 250, 248)


def draw(path: Path, images: np.ndarray, names: list[str], title: str, note: str) -> None:
    """Writes the first 48 of ``images``, uint8 [n, 3, height, width], with a name below each."""
    width = COLUMNS * (SIDE + GAP) + GAP
    height = HEAD + ROWS * (SIDE + CAPTION + GAP) + GAP
    sheet = Image.new("RGB", (width, height), PAPER)
    pen = ImageDraw.Draw(sheet)
    pen.text((GAP, 10), title, INK, ImageFont.load_default(20))
    pen.text((GAP, 34), note, GREY, ImageFont.load_default(12))
    for number, (image, name) in enumerate(zip(images[: COLUMNS * ROWS], names)):
        left = GAP + number % COLUMNS * (SIDE + GAP)
        top = HEAD + number // COLUMNS * (SIDE + CAPTION + GAP)
        tile = Image.fromarray(np.ascontiguousarray(image.transpose(1, 2, 0))).resize((SIDE, SIDE), Image.Resampling.LANCZOS)
        sheet.paste(tile, (left, top))
        pen.text((left, top + SIDE + 2), name, GREY, ImageFont.load_default(12))
    sheet.save(path)
