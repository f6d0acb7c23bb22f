"""JPEGs come as Pillow decodes them, to the bit; what is damaged is a fault."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image
from skimage import data

import forebay as fb
from forebay import transforms as T


def photo(height: int, width: int) -> Image.Image:
    """A part of a photo."""
    return Image.fromarray(data.astronaut()[90 : 90 + height, 150 : 150 + width])


def encoded(image: Image.Image, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, "JPEG", **options)
    return file.getvalue()


def files() -> list[bytes]:
    """Sizes, colours, codings and samplings of all kinds."""
    made = []
    for height, width in [(1, 1), (3, 2), (8, 8), (17, 33), (100, 31), (129, 257), (300, 350)]:
        image = photo(height, width)
        for progressive in (False, True):
            made += [encoded(image, quality=90, subsampling=sampling, progressive=progressive) for sampling in (0, 1, 2)]
            made += [encoded(image.convert(mode), quality=quality, progressive=progressive) for mode, quality in [("L", 100), ("CMYK", 60)]]
        made.append(encoded(image, quality=30, restart_marker_blocks=3))
        made.append(encoded(image, quality=100, keep_rgb=True))
    return made


def lake(path: Any, photos: list[bytes]) -> fb.Dataset:
    ds = fb.create(str(path), {"photo": fb.Image(encoding="jpeg"), "id": "int64"})
    ds.append({"photo": photos, "id": np.arange(len(photos))})
    ds.commit("photos")
    return ds


@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_pixels_are_those_of_pillow(tmp_path: Any, mode: str) -> None:
    photos = files()
    seen = 0
    for batch in lake(tmp_path / "lake", photos).numpy(batch_size=16, decode={"photo": mode}):
        for place, number in enumerate(batch["id"].tolist()):
            image = Image.open(io.BytesIO(photos[number]))
            if image.mode == "RGB":
                # What a JPEG stores is a brightness and colours: Pillow, too, takes that brightness where it may.
                image.draft(mode, image.size)
            wanted = np.asarray(image.convert(mode))
            assert np.array_equal(batch["photo"].row(place).squeeze(2) if mode == "L" else batch["photo"].row(place), wanted), number
            seen += 1
    assert seen == len(photos) == 84


def test_what_was_cut_or_damaged_is_a_fault_and_the_rest_is_not(tmp_path: Any) -> None:
    whole = encoded(photo(64, 80), quality=90)
    scan = whole.index(b"\xff\xda")
    half = scan + (len(whole) - scan) // 2
    photos = [whole, whole[:half], whole[:half] + b"\xff\xd9", whole[:half] + b"\xff\xd3" + whole[half + 2 :], whole[:scan], whole]
    loader = lake(tmp_path / "lake", photos).numpy(batch_size=6, decode={"photo": "RGB"}, on_fault="skip")
    (batch,) = loader
    assert batch["sample_weight"].tolist() == [1, 0, 0, 0, 0, 1]
    assert np.array_equal(batch["photo"].row(5), np.asarray(Image.open(io.BytesIO(whole))))
    causes = {fault["row"]: fault["cause"] for fault in loader.faults()}
    assert sorted(causes) == [1, 2, 3, 4] and all("the file ends before the picture does" in causes[row] for row in (1, 2, 4))


@pytest.mark.parametrize("shrink", [2, 4, 8])
def test_a_jpeg_that_becomes_smaller_is_decoded_as_pillow_drafts_it(tmp_path: Any, shrink: int) -> None:
    photos = [encoded(photo(304, 352), quality=quality, subsampling=sampling) for quality in (30, 90) for sampling in (0, 1, 2)]
    size = (304 // shrink, 352 // shrink)
    (batch,) = lake(tmp_path / "lake", photos).numpy(batch_size=6, decode={"photo": "RGB"}, transforms={"photo": [T.Resize(size)]})
    for found, file in zip(batch["photo"], photos):
        image = Image.open(io.BytesIO(file))
        image.draft("RGB", size[::-1])
        assert image.size == size[::-1] and np.array_equal(found, np.asarray(image).transpose(2, 0, 1))


def test_decoded_whole_a_jpeg_is_finished_as_its_pixels_are(tmp_path: Any) -> None:
    photos = [encoded(photo(200 + 7 * i, 300 - 9 * i), quality=90) for i in range(20)]
    pixels = [np.asarray(Image.open(io.BytesIO(file))) for file in photos]
    ds = lake(tmp_path / "encoded", photos)
    plain = fb.create(str(tmp_path / "plain"), {"photo": fb.Image(shape=(None, None, 3)), "id": "int64"})
    plain.append({"photo": pixels, "id": np.arange(20)})
    plain.commit("pixels")
    for chain in ([T.RandomResizedCrop(40), T.RandomHorizontalFlip()], [T.Resize(96), T.CenterCrop(80)], [T.Resize(64), T.RandomCrop(64)]):
        options: dict[str, Any] = {"batch_size": 7, "shuffle": "global", "seed": 3, "transforms": {"photo": chain}}
        whole = list(ds.numpy(decode={"photo": "RGB"}, shrink_on_load=False, **options))
        wanted = list(plain.numpy(**options))
        shrunk = list(ds.numpy(decode={"photo": "RGB"}, **options))
        for one, other, small in zip(whole, wanted, shrunk, strict=True):
            assert np.array_equal(one["id"], other["id"]) and np.array_equal(one["photo"], other["photo"])
            # The same parts, whose pixels are averages.
            apart = np.abs(small["photo"].astype(int) - one["photo"])
            assert np.array_equal(small["id"], one["id"]) and 0 < apart.mean() < 12
