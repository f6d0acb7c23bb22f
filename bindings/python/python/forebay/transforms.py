"""Transforms of image columns, fused into the one pass that gathers a batch.

They have the names and arguments of ``torchvision.transforms.v2``, but run without the GIL where the batch is made: in the loader's
threads, or on the GPU. ``ds.pytorch(...)`` and ``ds.numpy(...)`` take a list of them for a column:

>>> import forebay as fb
>>> from forebay import transforms as T
>>> ds = fb.create("memory://transforms", {"image": fb.Image((8, 8, 3))})
>>> train = [
...     T.RandomResizedCrop(4),
...     T.RandomHorizontalFlip(),
...     T.ToDtype("float32", scale=True),
...     T.Normalize(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225]),
... ]
>>> ds.numpy(256, transforms={"image": train}).schema["image"].shape
(3, 4, 4)

A column of ``uint8`` images, ``[H, W, C]``, ``[C, H, W]`` or ``[H, W]``, of one size or each of its own, becomes a tensor
``[N, C, H, W]``. What is random about a sample depends on the loader's seed, the epoch and the sample's position in it: not on the
batch size, the number of ranks, or whether the pixels are made on the CPU or a GPU, whose results are equal to the bit. The columns
of one sample share it, so that an image and its mask are cropped and flipped alike.

A column of kind ``mask`` is resized by taking the nearest pixel, any other by blending, with the pixel centres of ``torch.nn.functional.interpolate(..., align_corners=False, antialias=False)``;
weights are rounded down to 1/256. It does not smooth what it makes smaller, where torchvision's default does (``antialias=True``).
Then everything is computed in float32 and rounded once, to nearest: an intermediate ``ToDtype`` doesn't round.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Union

from ._errors import ArgumentError, SchemaError
from ._schema import _dtype_name

if TYPE_CHECKING:
    Transform = Union[
        "Resize", "RandomResizedCrop", "CenterCrop", "RandomCrop", "RandomHorizontalFlip", "ToDtype", "Normalize", "ToMemoryFormat"
    ]
    Size = Union[int, Sequence[int]]
    #: What the native loader gets for a column.
    Plain = dict[str, Any]

__all__ = [
    "CenterCrop",
    "Normalize",
    "RandomCrop",
    "RandomHorizontalFlip",
    "RandomResizedCrop",
    "Resize",
    "ToDtype",
    "ToMemoryFormat",
]


@dataclass(frozen=True)
class Resize:
    """Resizes an image.

    Parameters
    ----------
    size : int or (int, int)
        The length of the shorter side, whose ratio to the longer one is kept; or height and width.
    interpolation : {"bilinear", "nearest-exact"}, optional
        Of what pixels are made: a blend of the four around, or the nearest. By default the nearest for a column of kind ``mask``,
        whose numbers name classes, and a blend for any other.
    """

    size: Size
    interpolation: str | None = None


@dataclass(frozen=True)
class RandomResizedCrop:
    """Resizes a part of random size, aspect ratio and place.

    Parameters
    ----------
    size : int or (int, int)
        Height and width of the result.
    scale : (float, float)
        Least and greatest area of the part, as shares of the image's.
    ratio : (float, float)
        Least and greatest ratio of its width to its height.
    interpolation : {"bilinear", "nearest-exact"}, optional
        As of :class:`Resize`.
    """

    size: Size
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    interpolation: str | None = None


@dataclass(frozen=True)
class CenterCrop:
    """Takes the middle of an image, which must be at least as large.

    Parameters
    ----------
    size : int or (int, int)
        Height and width of the part.
    """

    size: Size


@dataclass(frozen=True)
class RandomCrop:
    """Takes a part anywhere in an image, which must be at least as large.

    Parameters
    ----------
    size : int or (int, int)
        Height and width of the part.
    """

    size: Size


@dataclass(frozen=True)
class RandomHorizontalFlip:
    """Mirrors an image, left and right, with probability ``p``."""

    p: float = 0.5


@dataclass(frozen=True)
class ToDtype:
    """Converts pixels.

    Parameters
    ----------
    dtype : str or dtype
        "float32", "float16", "bfloat16" or "uint8"; of NumPy, ml_dtypes or torch as well. The last one counts.
    scale : bool
        Whether 255 becomes 1.0.
    """

    dtype: Any
    scale: bool = False


@dataclass(frozen=True)
class Normalize:
    """Subtracts ``mean`` and divides by ``std``, each with a number for every channel or one for all. Comes after ``ToDtype``."""

    mean: Sequence[float] | float
    std: Sequence[float] | float


@dataclass(frozen=True)
class ToMemoryFormat:
    """Chooses how the tensor ``[N, C, H, W]`` lies in memory.

    Parameters
    ----------
    memory_format : {"contiguous_format", "channels_last"} or torch.memory_format
        "channels_last" has the strides of an array ``[N, H, W, C]``, which convolutions on GPUs like best.
    """

    memory_format: Any = "channels_last"


def _plain(column: str, transforms: Iterable[Transform]) -> Plain:
    """The transforms of a column in plain types, checked as far as they don't depend on the column."""
    if isinstance(transforms, (str, Mapping)) or not isinstance(transforms, Iterable):
        transforms = [transforms]  # type: ignore[list-item]  # One alone; what isn't any is named below.
    fused = _Fused(column)
    for transform in transforms:
        fused.add(transform)
    return fused.plain()


class _Fused:
    """A list of transforms, one after another brought into the one form that loaders execute."""

    def __init__(self, column: str) -> None:
        self.column = column
        self.resize: tuple[str, int, int] | None = None
        self.part: tuple[float, float, float, float] | None = None
        self.interpolation: str | None = None
        self.crop: tuple[str, int, int] | None = None
        self.mirror: float | None = None
        self.dtype = "uint8"
        # A pixel x becomes x * factor + offset.
        self.factor: list[float] = [1.0]
        self.offset: list[float] = [0.0]
        self.channels_last = False

    def fail(self, reason: str) -> ArgumentError:
        return ArgumentError(f"transforms of column '{self.column}': {reason}")

    def add(self, transform: Any) -> None:
        if isinstance(transform, (Resize, RandomResizedCrop)):
            self._check_order(self.resize is None and self.crop is None and self.mirror is None, transform)
            self._resize(transform)
        elif isinstance(transform, (CenterCrop, RandomCrop)):
            self._check_order(self.crop is None and self.mirror is None, transform)
            kind = "center" if isinstance(transform, CenterCrop) else "random"
            self.crop = (kind, *self._size(transform.size))
        elif isinstance(transform, RandomHorizontalFlip):
            self._check_order(self.mirror is None, transform)
            self.mirror = float(transform.p)
        elif isinstance(transform, ToDtype):
            self._to_dtype(transform)
        elif isinstance(transform, Normalize):
            self._normalize(transform)
        elif isinstance(transform, ToMemoryFormat):
            name = str(transform.memory_format).rpartition(".")[2]
            if name not in ("contiguous_format", "channels_last"):
                raise self.fail(f"{transform!r}: use 'contiguous_format' or 'channels_last'")
            self.channels_last = name == "channels_last"
        else:
            raise self.fail(f"{transform!r} is not a transform of forebay.transforms")

    def _check_order(self, fits: bool, transform: Any) -> None:
        if not fits:
            raise self.fail(f"{transform!r} can't stand here: one resize, one crop and one flip are fused, in this order")

    def _size(self, size: Any) -> tuple[int, int]:
        sides = (size, size) if isinstance(size, int) else tuple(size) if isinstance(size, (tuple, list)) else ()
        if len(sides) == 1:
            sides *= 2
        if len(sides) != 2 or not all(isinstance(side, int) and 1 <= side < 2**32 for side in sides):
            raise self.fail(f"size = {size!r}: give a number of pixels, or height and width")
        return sides[0], sides[1]

    def _resize(self, transform: Resize | RandomResizedCrop) -> None:
        height, width = self._size(transform.size)
        if transform.interpolation is not None:
            # As torchvision's InterpolationMode has it, too.
            self.interpolation = str(getattr(transform.interpolation, "value", transform.interpolation))
            if self.interpolation not in ("bilinear", "nearest-exact"):
                raise self.fail(f"interpolation = {self.interpolation!r}: use 'bilinear' or 'nearest-exact'")
        if isinstance(transform, RandomResizedCrop):
            self.resize = ("part", height, width)
            (least, most), (narrow, wide) = self._pair("scale", transform.scale), self._pair("ratio", transform.ratio)
            self.part = (least, most, narrow, wide)
        else:
            kind = "shorter" if isinstance(transform.size, int) or len(transform.size) == 1 else "to"
            self.resize = (kind, height, width)

    def _pair(self, what: str, values: Any) -> tuple[float, float]:
        try:
            low, high = values
            return float(low), float(high)
        except (TypeError, ValueError):
            raise self.fail(f"{what} = {values!r}: give the least and the greatest") from None

    def _to_dtype(self, transform: ToDtype) -> None:
        try:
            dtype = _dtype_name(transform.dtype)
        except SchemaError:
            dtype = str(transform.dtype)
        if dtype not in ("uint8", "float16", "bfloat16", "float32"):
            raise self.fail(f"dtype = {dtype!r}: images become uint8, float16, bfloat16 or float32")
        if dtype == "uint8" and self.dtype != "uint8":
            raise self.fail("floats are not made uint8 again")
        # As in torchvision, only whole numbers are scaled: a conversion of floats is one of their type.
        if transform.scale and self.dtype == "uint8" and dtype != "uint8":
            self.factor = [factor / 255 for factor in self.factor]
        self.dtype = dtype

    def _normalize(self, transform: Normalize) -> None:
        if self.dtype == "uint8":
            raise self.fail("Normalize needs floats: put ToDtype('float32', scale=True) before it")
        mean, std = self._numbers("mean", transform.mean), self._numbers("std", transform.std)
        if 0.0 in std:
            raise self.fail("std is 0 in a channel")
        count = max(map(len, (mean, std, self.factor, self.offset)))
        if any(len(values) not in (1, count) for values in (mean, std, self.factor, self.offset)):
            raise self.fail(f"{len(mean)} values of mean and {len(std)} of std: give one for each channel, or one for all")
        mean, std, factor, offset = (
            values if len(values) == count else values * count for values in (mean, std, self.factor, self.offset)
        )
        self.factor = [f / s for f, s in zip(factor, std)]
        self.offset = [(o - m) / s for o, m, s in zip(offset, mean, std)]

    def _numbers(self, what: str, values: Any) -> list[float]:
        try:
            numbers = [float(value) for value in values] if isinstance(values, Iterable) else [float(values)]
        except (TypeError, ValueError):
            numbers = []
        if not numbers:
            raise self.fail(f"{what} = {values!r}: give a number for each channel")
        return numbers

    def plain(self) -> Plain:
        return {
            "column": self.column,
            "resize": self.resize,
            "part": self.part,
            "interpolation": self.interpolation,
            "crop": self.crop,
            "mirror": self.mirror or 0.0,
            "dtype": self.dtype,
            "scale": self.factor,
            "bias": self.offset,
            "channels_last": self.channels_last,
        }
