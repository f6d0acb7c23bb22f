"""Transforms: the pixels that the list says, for the sample's place in the epoch, whoever makes them."""

from __future__ import annotations

import itertools
import pickle
import sys
from typing import Any

import numpy as np
import pytest
import torch

import forebay as fb
from forebay import transforms as T

ROWS = 90
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
TRAIN = [
    T.RandomResizedCrop(12, scale=(0.08, 1.0), ratio=(3 / 4, 4 / 3)),
    T.RandomHorizontalFlip(0.5),
    T.ToDtype(torch.bfloat16, scale=True),
    T.Normalize(MEAN, STD),
    T.ToMemoryFormat(torch.channels_last),
]


def pixels(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def smooth(rows: int, height: int, width: int) -> np.ndarray:
    """Images [rows, height, width, 3] whose neighbours are alike, as in photos."""
    y, x = np.mgrid[0:height, 0:width]
    waves = [[np.sin(x / (5 + row % 7) + c) * np.cos(y / (6 + row % 5) + row) for c in range(3)] for row in range(rows)]
    return (np.asarray(waves).transpose(0, 2, 3, 1) * 120 + 128).astype(np.uint8)


@pytest.fixture
def lake(tmp_path: Any) -> fb.Dataset:
    """Images of one size in both layouts, photos of free size, and a mask."""
    schema = {
        "id": "int64",
        "image": fb.Image((20, 24, 3)),
        "planes": fb.Image((3, 20, 24), layout="CHW"),
        "photo": fb.Image(),
        "mask": fb.Mask((20, 24)),
        "maybe": fb.Image((4, 4, 3), nullable=True),
        "depth": "float32[20,24]",
    }
    ds = fb.create(str(tmp_path / "lake"), schema)
    images = pixels(ROWS, 20, 24, 3)
    photos = [pixels(5 + row % 30, 7 + row * 3 % 40, 3, seed=row) for row in range(ROWS)]
    for part in (slice(0, 50), slice(50, ROWS)):
        rows = np.arange(ROWS)[part]
        ds.append(
            {
                "id": rows,
                "image": images[part],
                "planes": images[part].transpose(0, 3, 1, 2),
                "photo": photos[part],
                "mask": images[part, :, :, 0],
                "maybe": pixels(len(rows), 4, 4, 3),
                "depth": np.zeros((len(rows), 20, 24), np.float32),
            }
        )
        ds.commit("rows")
    return ds


def epoch(loader: Any, column: str = "image", number: int = 0) -> dict[int, bytes]:
    loader.set_epoch(number)
    found = {}
    for batch in loader:
        for row, image in zip(batch["id"].tolist(), batch[column].float()):
            found[row] = image.contiguous().numpy().tobytes()
    return found


# What comes out


def test_a_batch_has_the_dtype_shape_and_memory_format_that_the_schema_says(lake: fb.Dataset) -> None:
    for name, dtype, channels_last in itertools.product(
        ("image", "planes", "photo"), ("uint8", "float16", "bfloat16", "float32"), (False, True)
    ):
        chain = [T.Resize((9, 7)), T.ToDtype(dtype, scale=True)] + [T.ToMemoryFormat("channels_last")] * channels_last
        loader = lake.pytorch(16, columns=["id", name], transforms={name: chain})
        assert (loader.schema[name].dtype, loader.schema[name].shape) == (dtype, (3, 9, 7))
        assert loader.schema["id"].dtype == "int64" and loader.schema["id"].shape == ()
        batch = next(iter(loader))[name]
        assert batch.shape == (16, 3, 9, 7) and batch.dtype == getattr(torch, dtype)
        assert batch.is_contiguous(memory_format=torch.channels_last if channels_last else torch.contiguous_format)


def test_an_image_that_is_only_cast_is_exact(lake: fb.Dataset) -> None:
    for name in ("image", "planes", "mask"):
        plain = torch.from_numpy(np.asarray(lake[name][:ROWS]))
        if name == "mask":
            plain = plain[:, None]
        elif name == "image":
            plain = plain.permute(0, 3, 1, 2)
        for dtype in (torch.uint8, torch.float16, torch.float32):
            loader = lake.pytorch(ROWS, columns=[name], transforms={name: [T.ToDtype(dtype)]})
            assert torch.equal(next(iter(loader))[name], plain.to(dtype))


def test_scaling_and_normalizing_are_those_of_torch(lake: fb.Dataset) -> None:
    chain = [T.ToDtype("float32", scale=True), T.Normalize(MEAN, STD)]
    found = next(iter(lake.pytorch(ROWS, columns=["planes"], transforms={"planes": chain})))["planes"]
    image = torch.from_numpy(np.asarray(lake["planes"][:ROWS])).double() / 255
    wanted = (image - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(STD).view(3, 1, 1)
    assert (found - wanted).abs().max() < 2e-6
    half = next(iter(lake.pytorch(ROWS, columns=["planes"], transforms={"planes": [*chain, T.ToDtype("bfloat16")]})))
    assert torch.equal(half["planes"], found.to(torch.bfloat16)), "an intermediate dtype doesn't round"


def bilinear(image: np.ndarray, height: int, width: int) -> np.ndarray:
    """The documented resize of [h, w, c] in whole numbers: weights of 1/256, rounded down; the result rounded to nearest."""

    def places(length: int, out: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        step = -((length << 32) // -out)
        at = np.array([max(0, x * step + step // 2 - (1 << 31)) for x in range(out)], np.int64)
        before = np.minimum(at >> 32, length - 1)
        weight = np.where(before == length - 1, 0, at >> 24 & 255)
        return before, np.minimum(before + 1, length - 1), weight

    pixels = image.astype(np.int64)
    above, below, down = places(image.shape[0], height)
    left, right, across = places(image.shape[1], width)
    across, down = across[None, :, None], down[:, None, None]
    lines = pixels[:, left] * (256 - across) + pixels[:, right] * across
    blended = lines[above] * (256 - down) + lines[below] * down
    return ((blended + 32768) >> 16).astype(np.uint8)


@pytest.mark.parametrize("size", [(9, 7), (20, 24), (41, 50), (1, 1)])
def test_resizing_is_the_plain_numpy_model_to_the_bit(lake: fb.Dataset, size: tuple[int, int]) -> None:
    for name in ("image", "photo"):
        loader = lake.numpy(ROWS, columns=[name], transforms={name: [T.Resize(size)]})
        found = next(iter(loader))[name]
        for row, image in enumerate(found):
            assert np.array_equal(image.transpose(1, 2, 0), bilinear(np.asarray(lake[name][row]), *size)), row


@pytest.mark.parametrize("size", [(64, 64), (200, 150), (33, 100)])
def test_resizing_is_close_to_torchs_without_antialiasing(tmp_path: Any, size: tuple[int, int]) -> None:
    ds = fb.create(str(tmp_path / "smooth"), {"image": fb.Image((96, 112, 3))})
    images = smooth(8, 96, 112)
    ds.append({"image": images})
    ds.commit()
    for dtype, near in (("uint8", 2.0), ("float32", 1.0)):
        found = next(iter(ds.pytorch(8, transforms={"image": [T.Resize(size), T.ToDtype(dtype)]})))["image"].float()
        planes = torch.from_numpy(images).permute(0, 3, 1, 2).float()
        wanted = torch.nn.functional.interpolate(planes, size, mode="bilinear", align_corners=False, antialias=False)
        assert (found - wanted).abs().max() < near and (found - wanted).abs().mean() < 0.3


def test_a_mask_takes_the_nearest_pixel_as_torch_does(lake: fb.Dataset) -> None:
    for size in ((9, 7), (33, 41)):
        loader = lake.pytorch(ROWS, columns=["mask", "image"], transforms={"mask": [T.Resize(size)], "image": [T.Resize(size, "nearest-exact")]})
        found = next(iter(loader))
        for name, planes in (("mask", lake["mask"][:ROWS][:, None]), ("image", lake["image"][:ROWS].transpose(0, 3, 1, 2))):
            planes = torch.from_numpy(np.ascontiguousarray(planes))
            assert torch.equal(found[name], torch.nn.functional.interpolate(planes, size, mode="nearest-exact"))


def test_the_shorter_side_is_resized_and_the_middle_taken_as_in_torchvision(lake: fb.Dataset) -> None:
    found = next(iter(lake.numpy(ROWS, columns=["image"], transforms={"image": [T.Resize(15), T.CenterCrop(12)]})))["image"]
    resized = np.stack([bilinear(np.asarray(image), 15, 18) for image in lake["image"][:ROWS]])
    # (15 - 12) / 2 = 1.5 rounds to 2.
    assert np.array_equal(found.transpose(0, 2, 3, 1), resized[:, 2:14, 3:15])


def test_a_random_crop_is_a_part_of_the_image_and_a_flip_turns_it(lake: fb.Dataset) -> None:
    chain = [T.RandomCrop((10, 11)), T.RandomHorizontalFlip(0.5)]
    places = set()
    for batch in lake.numpy(32, columns=["id", "image"], shuffle=True, transforms={"image": chain}):
        for row, part in zip(batch["id"], batch["image"]):
            image = np.asarray(lake["image"][int(row)]).transpose(2, 0, 1)
            windows = np.lib.stride_tricks.sliding_window_view(image, (10, 11), (1, 2))
            for flipped, wanted in ((False, part), (True, part[:, :, ::-1])):
                for y, x in np.argwhere((windows == wanted[:, None, None]).all(axis=(0, 3, 4))):
                    places.add((int(y), int(x), flipped))
    assert len(places) > 60 and len({place[:2] for place in places}) > 50


def test_a_random_resized_crop_of_a_ramp_lies_in_the_image_and_varies(tmp_path: Any) -> None:
    ds = fb.create(str(tmp_path / "ramp"), {"image": fb.Image((100, 100, 1)), "id": "int64"})
    ramp = np.broadcast_to(np.arange(100, dtype=np.uint8)[:, None, None], (100, 100, 1))
    ds.append({"image": np.stack([ramp] * 300), "id": np.arange(300)})
    ds.commit()
    chain = [T.RandomResizedCrop(10, scale=(0.25, 0.25), ratio=(1, 1)), T.ToDtype("float32")]
    found = next(iter(ds.numpy(300, transforms={"image": chain})))["image"]
    # A part of 50 lines: the centres of 10 lines of it are 5 apart and 2 from its ends.
    assert np.allclose(np.diff(found[:, 0, :, 0], axis=1), 5) and 1.9 < found.min() and found.max() < 97.1
    tops = np.unique(found[:, 0, 0, 0])
    assert len(tops) > 40 and tops.min() < 6 and tops.max() > 45


# What is random


@pytest.mark.parametrize("shuffle", [False, True, "global"], ids=str)
@pytest.mark.parametrize("column", ["image", "photo"])
def test_pixels_are_the_same_for_any_number_of_ranks_batch_and_thread(lake: fb.Dataset, shuffle: Any, column: str) -> None:
    def load(number: int = 0, **options: Any) -> dict[int, bytes]:
        options = {"batch_size": 16, "shuffle": shuffle, "seed": 3, **options}
        return epoch(lake.pytorch(columns=["id", column], transforms={column: TRAIN}, **options), column, number)

    first = load()
    assert len(first) == ROWS
    for world in (1, 2, 4):
        merged: dict[int, bytes] = {}
        for rank in range(world):
            merged |= load(rank=rank, world_size=world, batch_size=7, num_workers=1 + rank, prefetch_factor=3)
        assert merged == first
    for other in (load(1), load(seed=4)):
        assert other.keys() == first.keys() and sum(other[row] == first[row] for row in first) < ROWS // 10


def test_an_epoch_that_is_run_again_or_in_another_process_has_the_same_pixels(lake: fb.Dataset) -> None:
    loader = lake.pytorch(16, columns=["id", "image"], shuffle=True, transforms={"image": TRAIN})
    first, second = epoch(loader, number=0), epoch(loader, number=1)
    assert first != second
    assert epoch(loader, number=0) == first
    assert epoch(pickle.loads(pickle.dumps(loader)), number=1) == second


def test_columns_of_a_sample_are_cropped_and_flipped_alike(lake: fb.Dataset) -> None:
    chain = [T.RandomResizedCrop(16, interpolation="bilinear"), T.RandomHorizontalFlip()]
    transforms = {"image": chain, "planes": chain, "mask": chain}
    for batch in lake.pytorch(32, columns=["image", "planes", "mask"], transforms=transforms):
        assert torch.equal(batch["image"], batch["planes"])
        assert torch.equal(batch["image"][:, :1], batch["mask"])


def test_numpy_gives_the_bytes_that_torch_gets(lake: fb.Dataset) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    for chain in (TRAIN, [*TRAIN, T.ToDtype("float16"), T.ToMemoryFormat("contiguous_format")]):
        options = {"columns": ["image"], "shuffle": True, "transforms": {"image": chain}}
        for ours, theirs in zip(lake.numpy(20, **options), lake.pytorch(20, **options)):
            assert ours["image"].dtype in (np.float16, ml_dtypes.bfloat16)
            assert ours["image"].strides == tuple(2 * stride for stride in theirs["image"].stride())
            assert np.array_equal(ours["image"].astype(np.float32), theirs["image"].float().numpy())


def test_bfloat16_for_numpy_without_ml_dtypes_is_refused_when_the_loader_is_made(
    lake: fb.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(fb.DTypeError, match="column 'image': NumPy has no bfloat16"):
        lake.numpy(8, transforms={"image": TRAIN})


def test_a_device_makes_the_pixels_that_the_host_makes(lake: fb.Dataset) -> None:
    if not fb.gpu.info()["devices"]:
        with pytest.raises(fb.LoaderError):
            lake.pytorch(8, transforms={"image": TRAIN}, device="cuda")
        return
    columns = ["image", "planes", "photo", "mask"]
    transforms = {name: TRAIN[:3] + TRAIN[4:] for name in columns}
    options = {"columns": columns, "shuffle": "global", "transforms": transforms}
    for ours, theirs in zip(lake.pytorch(16, **options), lake.pytorch(16, device="cuda", **options)):
        for name in columns:
            assert theirs[name].is_cuda and theirs[name].stride() == ours[name].stride()
            assert torch.equal(ours[name], theirs[name].cpu())


# What is refused


@pytest.mark.parametrize(
    ("column", "chain", "says"),
    [
        ("depth", [T.ToDtype("float32")], "rows are float32"),
        ("maybe", [T.ToDtype("float32")], "may be null"),
        ("id", [T.ToDtype("float32")], "rows are int64"),
        ("image", [T.CenterCrop(21)], "larger than the image of 20 x 24"),
        ("image", [T.Resize(10), T.RandomCrop(11)], "larger than the image of 10 x 12"),
        ("photo", [T.ToDtype("float32")], "resize them to one"),
        ("photo", [T.Resize(10)], "crop them to one size"),
        ("image", [T.ToDtype("float32"), T.Normalize([0.5] * 2, [0.5] * 2)], "2 values of scale for 3 channels"),
        ("image", [T.RandomResizedCrop(8, scale=(0, 1))], "a scale of"),
        ("image", [T.RandomResizedCrop(8, ratio=(2, 1))], "a ratio of"),
        ("image", [T.RandomHorizontalFlip(1.5)], "probability 1.5"),
        ("image", [T.Resize(70_000)], "65535"),
    ],
)
def test_a_transform_that_does_not_fit_its_column_is_refused_when_the_loader_is_made(
    lake: fb.Dataset, column: str, chain: list[Any], says: str
) -> None:
    for make in (lake.pytorch, lake.numpy):
        with pytest.raises(fb.TransformError, match=says) as raised:
            make(8, transforms={column: chain})
        assert f"column '{column}'" in str(raised.value) and isinstance(raised.value, ValueError)


@pytest.mark.parametrize(
    ("chain", "says"),
    [
        ([T.CenterCrop(8), T.Resize(8)], "in this order"),
        ([T.Resize(8), T.RandomResizedCrop(8)], "in this order"),
        ([T.RandomHorizontalFlip(), T.RandomCrop(8)], "in this order"),
        ([T.Normalize(MEAN, STD)], r"put ToDtype\('float32', scale=True\) before it"),
        ([T.ToDtype("float32"), T.Normalize(MEAN, [0.2, 0.2])], "3 values of mean and 2 of std"),
        ([T.ToDtype("float32"), T.Normalize(MEAN, [0.2, 0.2, 0])], "std is 0"),
        ([T.ToDtype("float32"), T.Normalize("half", 1)], "mean = 'half'"),
        ([T.ToDtype("float64")], "float64"),
        ([T.ToDtype("nonsense")], "nonsense"),
        ([T.ToDtype("float32"), T.ToDtype("uint8")], "uint8 again"),
        ([T.ToMemoryFormat(torch.preserve_format)], "channels_last"),
        ([T.Resize(8, "bicubic")], "interpolation = 'bicubic'"),
        ([T.Resize("large")], "size = 'large'"),
        ([T.CenterCrop((1, 2, 3))], "size = "),
        ([T.RandomCrop(0)], "size = 0"),
        ([T.RandomResizedCrop(8, scale=0.5)], "scale = 0.5"),
        ([lambda image: image], "is not a transform of forebay.transforms"),
        ("flip", "'flip' is not a transform"),
    ],
)
def test_a_list_that_makes_no_sense_is_refused_in_words(lake: fb.Dataset, chain: Any, says: str) -> None:
    with pytest.raises(fb.ArgumentError, match=says) as raised:
        lake.pytorch(8, transforms={"image": chain})
    assert "column 'image'" in str(raised.value)


def test_transforms_are_for_columns_that_are_delivered_and_for_loaders_of_batches(lake: fb.Dataset) -> None:
    with pytest.raises(fb.UnknownColumnError, match="nope"):
        lake.pytorch(8, transforms={"nope": TRAIN})
    with pytest.raises(fb.ArgumentError, match="not among the columns to deliver"):
        lake.pytorch(8, columns=["id"], transforms={"image": TRAIN})
    with pytest.raises(fb.ArgumentError, match="batch_size"):
        lake.pytorch(transforms={"image": TRAIN})


def test_a_photo_without_pixels_is_an_error_that_names_its_column(tmp_path: Any) -> None:
    ds = fb.create(str(tmp_path / "empty"), {"photo": fb.Image()})
    ds.append({"photo": [np.zeros((4, 4, 3), np.uint8), np.zeros((0, 4, 3), np.uint8)]})
    ds.commit()
    batches = iter(ds.pytorch(1, transforms={"photo": [T.Resize((4, 4))]}))
    assert next(batches)["photo"].shape == (1, 3, 4, 4)
    with pytest.raises(fb.TransformError, match="column 'photo'.*0 x 4"):
        next(batches)


def test_a_layout_that_could_be_either_is_asked_for(tmp_path: Any) -> None:
    ds = fb.create(str(tmp_path / "odd"), {"image": "uint8[3,9,3]"})
    with pytest.raises(fb.TransformError, match="either layout"):
        ds.pytorch(8, transforms={"image": [T.Resize(8)]})
