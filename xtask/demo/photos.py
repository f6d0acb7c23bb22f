"""Real photos that ship inside two Python packages, cut into labelled tiles. Nothing is downloaded here."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

TILE = 256

#: package -> (folder in it, photos): each photo is a class. Drawings, scans of text and pictures below the size of a tile are left out.
PHOTOS = {
    "skimage": (
        "data",
        "astronaut.png brick.png camera.png cell.png chelsea.png clock_motion.png coffee.png coins.png grass.png gravel.png "
        "hubble_deep_field.jpg ihc.png moon.png motorcycle_left.png retina.jpg rocket.jpg",
    ),
    "sklearn": ("datasets/images", "china.jpg flower.jpg"),
}


def find() -> list[Path]:
    """The photos of the installed packages; the packages themselves are not imported."""
    found = []
    for package, (folder, names) in PHOTOS.items():
        spec = importlib.util.find_spec(package)
        if spec is None or not spec.submodule_search_locations:
            raise SystemExit(f"the package {package}, which holds the photos, is not installed")
        place = Path(spec.submodule_search_locations[0]) / folder
        found += [place / name for name in names.split() if (place / name).exists()]
    return found


def cut(photos: list[Path], folder: Path, tiles: int, progress: Callable[[int, int], None]) -> int:
    """Cuts about ``tiles`` tiles into ``folder/<photo>/<n>.jpg`` and returns how many there are.

    The tiles of a photo are a grid of overlapping squares, as even as its size allows; no two are the same square.
    """
    stamp = folder / ".complete"
    wanted = f"{tiles} tiles of {TILE} from {' '.join(photo.name for photo in photos)}"
    if stamp.exists() and stamp.read_text() == wanted:
        done = sum(1 for _ in folder.glob("*/*.jpg"))
        progress(done, done)
        return done
    shutil.rmtree(folder, ignore_errors=True)
    done, each = 0, max(1, tiles // len(photos))
    for number, photo in enumerate(photos):
        with Image.open(photo) as opened:
            picture = opened.convert("RGB")
        place = folder / photo.stem.replace("_", "-")
        place.mkdir(parents=True)
        for left, top in grid(*picture.size, each):
            picture.crop((left, top, left + TILE, top + TILE)).save(place / f"{done:06}.jpg", quality=90)
            done += 1
            if done % 50 == 0:
                progress(done, each * len(photos))
    stamp.write_text(wanted)
    progress(done, done)
    return done


def grid(width: int, height: int, most: int) -> list[tuple[int, int]]:
    """Corners of at most ``most`` different tiles, evenly spread over a photo."""
    across, down = width - TILE + 1, height - TILE + 1
    columns = min(across, max(1, round((most * across / down) ** 0.5)))
    rows = min(down, max(1, most // columns))
    lefts = np.linspace(0, across - 1, columns).astype(int)
    tops = np.linspace(0, down - 1, rows).astype(int)
    return [(int(left), int(top)) for top in tops for left in lefts]
