"""PyTorch: native batches as tensors, and a map-style dataset for its own DataLoader."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch.utils.dlpack import from_dlpack

from . import _forebay
from ._errors import AgreementError, ArgumentError, LoaderError
from ._loader import SAMPLE_SEED, SAMPLE_WEIGHT, Loader, to_dict
from ._ragged import Ragged
from ._rows import View, _column


#: Options in which ranks may differ.
_OF_A_RANK = ("rank", "num_workers", "memory_budget", "host_cache", "device", "device_cache", "group_bytes", "stall_timeout", "verify")


#: What small batches are brought together to.
_GROUP_BYTES = 32 << 20

#: What batches out of the device cache are copied together to, at most: what a call costs, the device copies 40 to 100 MiB in.
_CACHED_BYTES = 256 << 20

#: What is said of the rows of a batch, in main memory.
_OF_ROWS = (SAMPLE_WEIGHT, SAMPLE_SEED, "source")


def tensor(native: _forebay.Tensor) -> torch.Tensor:
    """A tensor over native memory, by DLPack: nothing is copied."""
    dtype = native.dtype
    if dtype.startswith("float8"):
        # Older versions of torch don't know the DLPack codes of the 8-bit floats.
        return from_dlpack(native.as_bytes()).view(getattr(torch, dtype))
    return from_dlpack(native)


class TorchLoader(Loader):
    """Batches as dicts of torch tensors. Made by :meth:`Dataset.pytorch`.

    In main memory the tensors lie over the loader's buffers, by DLPack and without a copy; a buffer is used again only after the last
    tensor that refers to it is gone. On a CUDA device they are tensors like any other, of PyTorch's own allocator and of the stream that
    is current when the batch is taken: ``record_stream``, side streams and graphs treat them as usual. Texts, bytes and JSON come as
    lists (None for nulls), columns of free shape as :class:`Ragged`, timestamps as int64 microseconds. Beside a nullable column
    ``name`` comes ``name_valid``, bool [rows]; null rows are zeros. Where rows may be masked comes ``sample_weight``, float32 [rows].

    Iterate it as it is: it needs no ``torch.utils.data.DataLoader``, and no worker processes.
    """

    def __init__(
        self,
        view: View,
        batch_size: int,
        *,
        distributed: bool = False,
        device: Any = None,
        out: Mapping[str, torch.Tensor] | None = None,
        group_bytes: int | str | None = None,
        **options: Any,
    ) -> None:
        if distributed:
            if options.get("rank") is not None or options.get("world_size") is not None:
                raise ArgumentError("distributed=True takes rank and world_size from torch.distributed: leave them out")
            options["rank"], options["world_size"] = _ranks()
            if isinstance(options.get("data_group", 1), torch.distributed.DeviceMesh):
                mesh = options.pop("data_group")
                options["rank"], options["world_size"] = mesh.get_local_rank(), mesh.size()
        ordinal = _ordinal(device)
        if group_bytes is None:
            group_bytes = 0 if ordinal is None or out else _GROUP_BYTES
        elif ordinal is None or out:
            raise ArgumentError("group_bytes brings batches together on a CUDA device: give a device, and no out=")
        super().__init__(view, batch_size, device=ordinal, copied=ordinal is not None, group_bytes=group_bytes, **options)
        self._out = self._targets(out)
        if distributed:
            self._agree()

    def _targets(self, out: Mapping[str, torch.Tensor] | None) -> dict[str, torch.Tensor]:
        """Checks what of fixed buffers can be checked before a batch is there."""
        if out and self._options["device"] is None:
            raise ArgumentError("out= is filled on a CUDA device: give a device, as in device='cuda'")
        targets = dict(out or {})
        for name, target in targets.items():
            if name not in self._options["columns"] and name.removesuffix("_valid") not in self._options["columns"]:
                raise ArgumentError(f"out['{name}']: no column of that name is delivered")
            if name in self._channels_last and target.ndim == 4:
                targets[name] = target = target.permute(0, 2, 3, 1)
            if target.device.type != "cuda" or target.device.index != self._options["device"] or not target.is_contiguous():
                layout = "channels_last" if name in self._channels_last else "contiguous"
                raise ArgumentError(f"out['{name}'] is a {layout} tensor on device {self._options['device']}")
            if target.ndim == 0 or len(target) < self._options["batch_size"]:
                raise ArgumentError(f"out['{name}'] has room for {self._options['batch_size']} rows")
        return targets

    def __reduce__(self) -> tuple[Any, ...]:
        if self._out:
            raise TypeError("a loader with out= can't be pickled: its buffers belong to this process")
        return super().__reduce__()

    def _build(self, views: list[View], epoch: int) -> None:
        super()._build(views, epoch)
        self._out = {}

    def _agree(self) -> None:
        """Checks that all ranks load the same; every rank raises if one doesn't."""
        alike = (name for name in self._options if name not in _OF_A_RANK)
        own = {name: self._options[name] for name in alike}
        own["rows"] = [view._native.digest() for view in self._views]
        everyone: list[Any] = [None] * torch.distributed.get_world_size()
        torch.distributed.all_gather_object(everyone, own)
        for rank, other in enumerate(everyone):
            for name, value in other.items():
                if value != everyone[0][name]:
                    what = "commit, table or rows" if name == "rows" else name
                    raise AgreementError(
                        f"the ranks don't load the same: {what} of rank {rank} is {value!r}, of rank 0 {everyone[0][name]!r}; "
                        "open the lake at one commit on every rank"
                    )

    def _array(self, native: _forebay.Tensor) -> torch.Tensor:
        return tensor(native)

    def _of_numpy(self, array: Any) -> torch.Tensor:
        return torch.from_numpy(array)

    def _channels_first(self, array: torch.Tensor) -> torch.Tensor:
        return array.permute(0, 3, 1, 2)

    def _split(self, columns: list[_forebay.BatchColumn]) -> list[Callable[[], dict[str, Any]]]:
        group = _Group(self, columns)
        return [partial(group.take, number) for number in range(len(group.parts))]

    def _batch(self, columns: list[_forebay.BatchColumn]) -> dict[str, Any]:
        device = self._options["device"]
        if device is None:
            return super()._batch(columns)
        # Everything is copied once more, at the rate of the device's memory, into tensors of PyTorch's allocator. That is some 3% of
        # the time that the link took, and what follows needs no rules of ours.
        stream = torch.cuda.current_stream(device)
        copies: list[tuple[_forebay.Tensor, int, tuple[int, int] | None]] = []

        def placed(native: _forebay.Tensor, name: str | None = None) -> torch.Tensor:
            if not native.on_device:
                return tensor(native)
            target = self._out.get(name) if name is not None else None
            made = _empty_like(native, device) if target is None else _room(name, target, native)
            copies.append((native, made.data_ptr(), None))
            return made

        batch: dict[str, Any] = {}
        try:
            for name, values, offsets, shapes, valid in columns:
                if name in _OF_ROWS and not getattr(values, "on_device", True):
                    batch[name] = tensor(values).to(torch.device("cuda", device))
                elif offsets is not None:
                    made = placed(values)
                    batch[name] = (made, placed(offsets), placed(shapes))
                elif not isinstance(values, list):
                    batch[name] = placed(values, name)
                else:
                    batch.update(to_dict([(name, values, None, None, None)], self._documents, tensor))
                if valid is not None:
                    batch[f"{name}_valid"] = placed(valid, f"{name}_valid")
        except torch.cuda.OutOfMemoryError as error:
            raise _no_memory(error) from error
        _forebay.copy_on_device(copies, stream.cuda_stream)
        for name, parts in batch.items():
            if isinstance(parts, tuple):
                # On a device the native offsets count bytes.
                batch[name] = Ragged(parts[0], parts[1] // parts[0].element_size(), parts[2])
        for name in self._channels_last:
            batch[name] = self._channels_first(batch[name])
        return batch


class _Group:
    """Batches that came together. What is in the device cache is copied a few batches at a time, all else at once; then it is split."""

    def __init__(self, loader: TorchLoader, columns: list[_forebay.BatchColumn]) -> None:
        self.ordinal, self.size = loader._options["device"], loader._options["batch_size"]
        self.device = torch.device("cuda", self.ordinal)
        self.stream = torch.cuda.current_stream(self.device)
        self.handle = self.stream.cuda_stream
        cached = [(name, values) for name, values, *_ in columns if getattr(values, "in_cache", False)]
        #: Name, native rows, shape and dtype of each column that is in the cache.
        self.cached = [(name, native, native.shape, _dtype(native)) for name, native in cached]
        names = [name for name, _ in cached]
        whole = loader._batch([column for column in columns if column[0] not in names])
        self.rows = self.cached[0][2][0] if self.cached else len(next(iter(whole.values())))
        count = -(-self.rows // self.size)
        bytes_ = self.rows * sum(math.prod(shape[1:]) * dtype.itemsize for _, _, shape, dtype in self.cached)
        #: The batches whose rows in the cache are copied together, and how many were copied.
        self.together, self.copied = -(-count // max(1, -(-bytes_ // _CACHED_BYTES))), 0
        #: The columns that aren't, of each batch.
        self.parts = [dict(zip(whole, parts)) for parts in zip(*(_parts(values, self.size) for values in whole.values()))] or [{} for _ in range(count)]
        self.order = [name for name, *_ in columns if name in names or name in whole]
        self.order += [name for name in whole if name not in self.order]

    def take(self, number: int) -> dict[str, Any]:
        """A batch, in the order of the stream that is current; once."""
        handle = _current(self.ordinal)
        if self.cached and number == self.copied:
            if handle == self.handle:
                self._copy()
            else:
                with torch.cuda.stream(self.stream):
                    self._copy()
        batch, self.parts[number] = self.parts[number], {}
        if handle != self.handle:
            stream = torch.cuda.current_stream(self.device)
            stream.wait_stream(self.stream)
            for values in batch.values():
                values.record_stream(stream)
        return {name: batch[name] for name in self.order} if self.cached else batch

    def _copy(self) -> None:
        """Copies the next batches out of the cache, on the group's stream, to a tensor a column of which each batch is a part."""
        first = self.copied * self.size
        rows = min(self.together * self.size, self.rows - first)
        copies: list[tuple[_forebay.Tensor, int, tuple[int, int] | None]] = []
        made = []
        for _, native, shape, dtype in self.cached:
            try:
                made.append(torch.empty((rows, *shape[1:]), dtype=dtype, device=self.device))
            except torch.cuda.OutOfMemoryError as error:
                raise _no_memory(error) from error
            copies.append((native, made[-1].data_ptr(), (first, rows)))
        _forebay.copy_on_device(copies, self.handle)
        for (name, *_), values in zip(self.cached, made):
            for number, part in enumerate(_parts(values, self.size), self.copied):
                self.parts[number][name] = part
        self.copied += self.together


def _parts(values: torch.Tensor, size: int) -> list[torch.Tensor]:
    """Views of `size` rows each, the last perhaps of fewer: ``split``, in less time for many."""
    count = len(values) // size
    parts = list(values[: count * size].view(count, size, *values.shape[1:]).unbind())
    return parts if count * size == len(values) else [*parts, values[count * size :]]


def _handle(device: int) -> int:
    return int(torch.cuda.current_stream(device).cuda_stream)


#: The handle of a device's current stream; without an object for it, since this is asked for every batch.
_current: Callable[[int], int] = getattr(torch._C, "_cuda_getCurrentRawStream", _handle)


def _dtype(native: _forebay.Tensor) -> torch.dtype:
    name = native.dtype
    return torch.int64 if name == "timestamp" else getattr(torch, name)


def _empty_like(native: _forebay.Tensor, device: int) -> torch.Tensor:
    """Memory of the current stream."""
    return torch.empty(native.shape, dtype=_dtype(native), device=torch.device("cuda", device))


def _no_memory(error: BaseException) -> LoaderError:
    return LoaderError(f"no memory is left on the device for the next batch; are earlier ones still held? {error}")


def _room(name: str, target: torch.Tensor, native: _forebay.Tensor) -> torch.Tensor:
    """The rows of a fixed buffer that a batch fills."""
    shape = native.shape
    if target.dtype != _dtype(native) or tuple(target.shape[1:]) != shape[1:]:
        wanted = f"{native.dtype} {[len(target), *shape[1:]]}"
        raise ArgumentError(f"out['{name}'] is {wanted}, not {target.dtype} {list(target.shape)}")
    return target[: shape[0]]


def _ordinal(device: Any) -> int | None:
    """The ordinal of a CUDA device; None for main memory."""
    if device is None:
        return None
    try:
        device = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise ArgumentError(f"device = {device!r}: {error}") from None
    if device.type == "cpu":
        return None
    if device.type != "cuda":
        raise ArgumentError(f"device = {str(device)!r}: batches go to 'cpu' or a 'cuda' device")
    if device.index is not None:
        return int(device.index)
    try:
        return torch.cuda.current_device() if torch.cuda.is_available() else 0
    except RuntimeError as error:  # In a forked child, for one.
        raise LoaderError(str(error)) from None


def _ranks() -> tuple[int, int]:
    import torch.distributed as dist

    if not dist.is_available() or not dist.is_initialized():
        raise LoaderError("distributed=True needs torch.distributed: call init_process_group() first")
    return dist.get_rank(), dist.get_world_size()


class TorchRows(torch.utils.data.Dataset):  # type: ignore[type-arg]
    """Rows as dicts of tensors, for ``torch.utils.data.DataLoader``.

    Made by :meth:`Dataset.pytorch` without a batch size. Works with any number of workers under fork and spawn: each opens the lake
    for itself. Under spawn the storage options are pickled to the workers, with any credentials among them; those in the environment
    are not.

    The default ``collate_fn`` stacks tensors and lists texts. Rows of a nullable column are zeros (empty, for texts) with
    ``name_valid``; columns of free shape need a ``collate_fn`` of your own.
    """

    def __init__(self, view: View, columns: Sequence[str] | None = None) -> None:
        if isinstance(columns, str):
            columns = [columns]
        self._names = list(view.columns if columns is None else columns)
        for name in self._names:
            _column(view.schema, name)
        self._documents = frozenset(view.schema._documents)
        self._view = view

    def __len__(self) -> int:
        return len(self._view)

    def __getitem__(self, row: int) -> dict[str, Any]:
        return self.__getitems__([row])[0]

    def __getitems__(self, rows: Sequence[int]) -> list[dict[str, Any]]:
        """Several rows, read at once."""
        import numpy as np

        numbers = np.asarray(rows, np.int64).reshape(-1)
        batch = to_dict(self._view._native.batch(self._names, numbers), self._documents, tensor)
        parts = {name: _split(values) for name, values in batch.items()}
        for name in self._names:
            if f"{name}_valid" in batch and isinstance(batch[name], list):
                parts[name] = [_empty(self._view.schema[name].dtype) if value is None else value for value in batch[name]]
        return [dict(zip(parts, row)) for row in zip(*parts.values())]

    def __repr__(self) -> str:
        return f"TorchRows({self._view!r})"


def _split(values: torch.Tensor | list[Any] | Ragged) -> Sequence[Any]:
    if isinstance(values, torch.Tensor):
        return values.unbind(0)
    if isinstance(values, list):
        return values
    return list(values.rows())


def _empty(dtype: str) -> Any:
    return {"utf8": "", "bytes": b"", "json": None, "link": b""}[dtype]
