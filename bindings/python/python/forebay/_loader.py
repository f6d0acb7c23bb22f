"""Loaders: an epoch's batches, in the order of the shuffle, made ahead by native threads."""

from __future__ import annotations

import hashlib
import json
import operator
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from . import _forebay, transforms as _transforms
from ._computed import Delivery, stored
from ._errors import AgreementError, ArgumentError, DTypeError, Error, StateError
from ._orders import Weighted, _shuffle, _whole, parse_bytes
from ._ragged import Ragged
from ._rows import View, _column
from ._stages import Source, Stages
from ._schema import Column

if TYPE_CHECKING:
    from ._buckets import Buckets, Tokens
    from ._collate import Collate
    from ._mix import Mix
    from ._orders import Shuffle as Shuffle
    from .transforms import Transform

    Transforms = Mapping[str, Iterable[Transform]]

#: What the weights of a batch's rows are called: 1 for those that count, 0 for masked ones.
SAMPLE_WEIGHT = "sample_weight"
#: What the seeds of a batch's rows are called.
SAMPLE_SEED = "sample_seed"


class Loader:
    """What :class:`TorchLoader` and :class:`NumpyLoader` have in common.

    Iterating gives the batches of one epoch. The loader starts at epoch 0 and goes to the next when an iteration has come to its end;
    :meth:`set_epoch` says otherwise. With several ranks each must iterate as often, or call ``set_epoch``.
    """

    def __init__(
        self,
        view: View,
        batch_size: int,
        *,
        shuffle: Shuffle = False,
        columns: Sequence[str] | None = None,
        transforms: Transforms | None = None,
        seed: int = 0,
        num_workers: int | None = None,
        prefetch_factor: int | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        data_group: int = 1,
        drop_last: bool = False,
        pad_last: bool = False,
        memory_budget: int | str | None = None,
        host_cache: int | str | None = None,
        verify: str = "first",
        on_fault: str = "fail",
        max_faults: int | None = None,
        max_fault_rate: float | None = None,
        stall_timeout: float | None = None,
        digest: str | None = None,
        epoch_length: int | None = None,
        buckets: Buckets | Tokens | None = None,
        collate: Collate | None = None,
        map_batches: Callable[[dict[str, Any]], Any] | None = None,
        map_threads: int | None = None,
        sample_seeds: bool = False,
        decode: Mapping[str, str] | None = None,
        shrink_on_load: bool = True,
        mix: Mix | None = None,
        device: int | None = None,
        device_cache: int | str | None = None,
        copied: bool = False,
        group_bytes: int | str = 0,
    ) -> None:
        if isinstance(columns, str):
            columns = [columns]
        names = list(view.columns if columns is None else columns)
        for name in names:
            _column(view.schema, name)
        for name in transforms or ():
            _column(view.schema, name)
            if name not in names:
                raise ArgumentError(f"transforms: column '{name}' is not among the columns to deliver, {', '.join(names)}")
        if (rank is None) != (world_size is None):
            raise ArgumentError("rank and world_size go together: give both or none")
        if drop_last and pad_last:
            raise ArgumentError("drop_last leaves the last rows out and pad_last fills their batch up: choose one")
        if (pad_last or on_fault == "skip") and SAMPLE_WEIGHT in names:
            raise ArgumentError(f"masked rows are told by '{SAMPLE_WEIGHT}', and a column has that name: rename it, or leave it out")
        views = [view] if mix is None else mix._views
        extra = {SAMPLE_SEED: sample_seeds, "source": len(views) > 1}
        for name in names:
            if extra.get(name, False):
                raise ArgumentError(f"each batch says '{name}' of its rows, and a column has that name: rename it, or leave it out")
        if buckets is not None and buckets.column not in names:
            raise ArgumentError(f"buckets: column '{buckets.column}' is not among the columns to deliver, {', '.join(names)}")
        for name in collate or ():
            if name not in names:
                raise ArgumentError(f"collate: column '{name}' is not among the columns to deliver, {', '.join(names)}")
        for name in decode or ():
            if name not in names:
                raise ArgumentError(f"decode: column '{name}' is not among the columns to deliver, {', '.join(names)}")
        self._delivery = Delivery([view._native for view in views], names, on_fault, device, {"transforms": transforms, "decode": decode})
        own, world = _group(rank, world_size, data_group)
        self._options: dict[str, Any] = {
            "batch_size": _whole("batch_size", batch_size, 1),
            "shuffle": _shuffle(shuffle),
            "columns": self._delivery.stored,
            "transforms": [_transforms._plain(name, chain) for name, chain in (transforms or {}).items()],
            "seed": _whole("seed", seed, 0, 2**64 - 1),
            "num_workers": None if num_workers is None else _whole("num_workers", num_workers, 0, 1024),
            "prefetch_factor": None if prefetch_factor is None else _whole("prefetch_factor", prefetch_factor, 1),
            "rank": own,
            "world_size": world,
            "tail": "drop" if drop_last else "pad" if pad_last else "short",
            "mix": _mixture(mix, shuffle, epoch_length),
            "sampling": (shuffle.weights, shuffle.replacement, epoch_length) if isinstance(shuffle, Weighted) else None,
            "sample_seeds": bool(sample_seeds),
            "sample_index": bool(self._delivery.computed),
            "decode": [(str(name), str(mode)) for name, mode in (decode or {}).items()],
            "shrink_on_load": bool(shrink_on_load),
            "verify": verify,
            "on_fault": on_fault,
            "max_faults": None if max_faults is None else _whole("max_faults", max_faults, 0, 2**64 - 1),
            "max_fault_rate": None if max_fault_rate is None else float(max_fault_rate),
            "stall_timeout": None if stall_timeout is None else float(stall_timeout),
            "memory_budget": None if memory_budget is None else parse_bytes("memory_budget", memory_budget),
            "host_cache": None if host_cache is None else parse_bytes("host_cache", host_cache),
            "device": device,
            "device_cache": None if device_cache is None else parse_bytes("device_cache", device_cache),
            "copied": copied,
            "group_bytes": parse_bytes("group_bytes", group_bytes),
        }
        if device is None and device_cache is not None:
            raise ArgumentError("device_cache keeps rows in a CUDA device's memory: give a device, as in device='cuda'")
        self._stages = Stages(buckets, collate, map_batches, map_threads, device)
        #: The names of a mixture's sources, by their numbers.
        self.sources = [] if mix is None else mix.names
        self._build(views, 0)
        if digest is not None and digest != self.digest:
            raise AgreementError(f"this rank loads {self.digest}, not {digest}: commit, rows or an option of the order differ")

    def _build(self, views: list[View], epoch: int) -> None:
        self._views = views
        self._view = view = views[0]
        self._documents = frozenset(view.schema._documents)
        self._channels_last = [plain["column"] for plain in self._options["transforms"] if plain["channels_last"]]
        self._native = _forebay.Loader([stored(view._native) for view in views], **self._options)
        self._epoch = epoch
        #: Where the next iteration starts in its epoch (position, and batches of the window of buckets that begins there), and what was
        #: delivered of the one that goes on, or went on last (its epoch first).
        self._start = (0, 0)
        self._progress: tuple[int, int, int] | None = None
        self._current: weakref.ref[_Batches] | None = None
        self._last: dict[str, Any] = {}
        self._last_faults: list[dict[str, Any]] = []

    def __reduce__(self) -> tuple[Any, ...]:
        rest = (self._stages, self.sources, self._delivery)
        return _rebuild, (type(self), self._views, self._options, rest, self._epoch, self._start)

    def __len__(self) -> int:
        """Batches that this rank delivers in an epoch."""
        if not self._stages.counted:
            raise TypeError(f"how many batches {self._stages.buckets} makes depends on the lengths of the rows: count them as they come")
        return len(self._native)

    @property
    def schema(self) -> dict[str, Column]:
        """What every batch holds: for each column the dtype, and the shape of one row, as they are once it was transformed."""
        schema = {}
        for name, dtype, shape, finished in self._native.schema():
            if not finished:
                schema[name] = self._view.schema[name]
                continue
            if name in self._channels_last:
                shape = [shape[2], *shape[:2]]
            transformed = any(name == plain["column"] for plain in self._options["transforms"])
            schema[name] = Column(dtype, shape, kind=self._view.schema[name].kind, layout="CHW" if transformed else "HWC")
        return {name: schema.get(name, self._view.schema[name]) for name in self._delivery.names}

    @property
    def epoch(self) -> int:
        """The epoch that the next iteration delivers."""
        return self._epoch

    def set_epoch(self, epoch: int) -> None:
        """Says which epoch the next iteration delivers. The order depends on it and on the seed.

        After :meth:`load_state_dict` the epoch of that state goes on where it was; any other starts at its start.
        """
        epoch = _whole("epoch", epoch, 0, 2**64 - 1)
        if epoch != self._epoch:
            self._start = (0, 0)
            self._progress = None
        self._epoch = epoch

    def state_dict(self) -> dict[str, Any]:
        """Where the epochs stand: a small dict of texts and whole numbers, the same on every rank, for a checkpoint.

        It counts the samples that were delivered, on all ranks together, never those that were made ahead. In and after an iteration
        it is that iteration's; after the last batch of an epoch it is the start of the next. Take it at the same step on every rank.
        """
        epoch, position, batches = (self._epoch, *self._start) if self._progress is None else self._progress
        state = self._native.state(epoch, position)
        if self._stages.buckets is not None:
            state["window"] = self._window(batches, state)
        return state

    def _window(self, batches: int, state: Mapping[str, Any]) -> dict[str, Any]:
        """How many batches were delivered of the window of buckets that begins at a state's position."""
        rows = self._options["batch_size"] * self._options["world_size"]
        window = {"buckets": self._stages.dealt, "batches": batches, "rows": rows}
        text = json.dumps([window, state["checksum"]], sort_keys=True)
        return {**window, "checksum": hashlib.sha256(text.encode()).hexdigest()[:32]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on where a state was taken: the next iteration delivers the samples that follow, in the same order.

        Ranks, threads, devices and ``batch_size`` may be others than they were.

        Raises
        ------
        forebay.StateError
            If the state was damaged, or is of another commit, other rows, another shuffle or seed; the message names the field.
            Nothing changes then.
        """
        try:
            plain = dict(state)
            window = plain.pop("window", None)
            batches = 0
            if (window is None) != (self._stages.buckets is None):
                raise StateError(f"the state doesn't fit this loader: its window is {window}, here buckets are {self._stages.buckets}")
            if window is not None:
                batches = operator.index(window["batches"])
                expected = self._window(batches, plain)
                if window["buckets"] == expected["buckets"] and batches == 0:
                    expected = {**self._window(0, plain), "rows": window["rows"], "checksum": window["checksum"]}
                if window != expected:
                    raise StateError(f"the state doesn't fit this loader, or was damaged: its window is {window}, here it is {expected}")
            epoch, position = self._native.check(plain)
            self._epoch, self._start = epoch, (position, batches)
        except (TypeError, ValueError, KeyError, OverflowError) as error:
            if isinstance(error, Error):
                raise
            raise StateError(f"this is no state of a loader: {error}") from None
        self._progress = None

    @property
    def digest(self) -> str:
        """A hash of what all ranks must have in common: commit, rows, columns, and everything that the order depends on."""
        state = self._native.state(0, 0)
        shared = ("batch_size", "columns", "transforms", "world_size", "tail", "on_fault", "mix", "decode", "shrink_on_load")
        alike = {name: self._options[name] for name in shared}
        if self._delivery.computed:
            alike["computed"] = self._view._native.digest()
        alike["buckets"] = self._stages.dealt
        text = json.dumps([state["selection"], state["shuffle"], state["seed"], alike], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def faults(self) -> list[dict[str, Any]]:
        """The rows at fault of the iteration that goes on, or else of the last one, in order.

        Each is a dict: ``commit``, ``row`` (its number in the table), ``position`` in the epoch, ``column``, ``cause``, and
        ``substitute``, the row that came instead, or None if it was masked.
        """
        current = self._current() if self._current is not None else None
        return list(self._last_faults) if current is None else current._faults()

    def stats(self) -> dict[str, Any]:
        """Counts of the iteration that goes on, or else of the last one.

        ``batches``, ``rows``, ``bytes`` delivered; ``requests`` and ``fetched`` bytes, blocks that were ``refetched`` because they came
        damaged, and rows that were ``faults``. Blocks that were there already (``hits``) or had to be requested (``misses``). How often
        (``waits``) and long (``waited``, seconds) the consumer waited, and for what: ``waited_for_plans`` (files to open, memory),
        ``waited_for_blocks``, ``waited_for_device``. How long the planning waited, ``short_of_memory`` or far enough ``ahead``. How deep
        the queues are: batches ``planned``, requests ``in_flight``, batches ``ready``. ``gathering`` (seconds), ``peak_bytes`` of
        fetched rows held at once, ``kept_bytes`` of those that ``host_cache`` keeps; ``routes``: how each column's rows come ("mapped", "fetched" or "decoded").
        ``storage`` says by URL what each storage has read in this process so far, for all its readers: ``requests``, ``bytes``,
        ``retries``, answers that ``throttled``, ``timeouts``, second requests (``hedges``, ``hedges_won``, ``hedged_bytes``), requests
        that ``fell_back`` to a mirror, how many may be and are in flight (``limit``, ``in_flight``), the ``pace`` in requests a second
        or None, the counts of the ``cache`` or None, and those of each of the ``mirrors``, beginning with the storage itself.
        With a CUDA device, ``device`` counts what it did for all loaders: ``registered_bytes`` and ``device_bytes`` of memory, seconds
        ``waited`` for it and ``busy`` on the CPU, and for each of ``columns`` its ``route`` ("device-cache", "batch-copy", "kernel",
        "packed" or "slab"), how many bytes the CPU ``copied`` for it, and why some of its memory was ``refused`` for a faster one. With a ``device_cache`` its ``cache`` says how many ``bytes`` of the
        ``budget`` hold how many ``rows``, ``hits`` and ``misses``, and why it is ``full``.
        """
        current = self._current() if self._current is not None else None
        return dict(self._last) if current is None else current._stats()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        batches = _Batches(self)
        self._current = weakref.ref(batches)
        return batches

    def _array(self, tensor: _forebay.Tensor) -> Any:
        raise NotImplementedError

    def _batch(self, columns: list[_forebay.BatchColumn]) -> dict[str, Any]:
        """Native columns as what the consumer gets."""
        batch = to_dict(columns, self._documents, self._array)
        for name in self._channels_last:
            batch[name] = self._channels_first(batch[name])
        return self._delivery.complete(batch, self._of_numpy) if self._delivery.computed else batch

    def _of_numpy(self, array: Any) -> Any:
        """An array of NumPy's as one of the consumer's library, over the same memory."""
        return array

    def _split(self, columns: list[_forebay.BatchColumn]) -> list[Callable[[], dict[str, Any]]]:
        """Native columns of several batches: for each what gives it, as views of the same memory; to be called once, in order."""
        group, size = self._batch(columns), self._options["batch_size"]
        rows = max(len(values) for values in group.values())
        parts = [{name: values[first : first + size] for name, values in group.items()} for first in range(0, rows, size)]
        return [partial(parts.__getitem__, number) for number in range(len(parts))]

    def _channels_first(self, array: Any) -> Any:
        """[N, H, W, C] as [N, C, H, W], over the same memory."""
        raise NotImplementedError


def to_dict(columns: list[_forebay.BatchColumn], documents: frozenset[str], array: Any) -> dict[str, Any]:
    """Native columns as a dict; ``array`` makes an array of the consumer's library from a native tensor."""
    batch: dict[str, Any] = {}
    for name, values, offsets, shapes, valid in columns:
        if offsets is not None:
            batch[name] = Ragged(array(values), array(offsets), array(shapes))
        elif not isinstance(values, list):
            batch[name] = array(values)
        elif name in documents:
            batch[name] = [None if value is None else json.loads(value) for value in values]
        else:
            batch[name] = values
        if valid is not None:
            batch[f"{name}_valid"] = array(valid)
    return batch


def _rebuild(kind: type[Loader], views: list[View], options: dict[str, Any], rest: tuple[Stages, list[str], Delivery], epoch: int, start: tuple[int, int]) -> Loader:
    loader = kind.__new__(kind)
    loader._options = options
    loader._stages, loader.sources, loader._delivery = rest
    loader._build(views, epoch)
    loader._start = start
    return loader


def _mixture(mix: Mix | None, shuffle: Shuffle, epoch_length: int | None) -> tuple[list[float], str, int] | None:
    """How sources are mixed; an epoch of fixed length is a mixture even of one."""
    if epoch_length is not None:
        _whole("epoch_length", epoch_length, 0, 2**63)
    if isinstance(shuffle, Weighted):
        if mix is not None:
            raise ArgumentError("rows are drawn by weight from one dataset only: leave out Weighted, or the mixture")
        return None
    weights = [1.0] if mix is None else mix._weights
    if epoch_length is not None:
        return weights, "rows", epoch_length
    return None if mix is None else (weights, mix._stop, 0)


def _group(rank: int | None, world_size: int | None, data_group: int) -> tuple[int, int]:
    """The number of a rank's data group, and how many there are: consecutive ranks of a group receive the same rows."""
    own = 0 if rank is None else _whole("rank", rank, 0)
    world = 1 if world_size is None else _whole("world_size", world_size, 1)
    size = _whole("data_group", data_group, 1)
    if own >= world:
        raise ArgumentError(f"rank = {own}: ranks count from 0 and stay below world_size = {world}")
    if world % size:
        raise ArgumentError(f"data_group = {size}: it divides world_size = {world}")
    return own // size, world // size


class _Batches(Iterator[dict[str, Any]]):
    """One pass over an epoch. Dropping it stops the threads."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader
        self._epoch = loader._epoch
        position, batches = loader._start
        self._source = Source(loader, loader._native.iter(self._epoch, position))
        loader._progress = start = (loader._epoch, position, batches)
        loader._start = (0, 0)
        #: Whether nothing is done to a batch once it is made.
        self._plain = loader._stages.plain
        self._pipe = loader._stages.pipe(self._source.take, self._source.make, start, loader._options["seed"])

    def __next__(self) -> dict[str, Any]:
        source = self._source
        if source.native is None:
            raise StopIteration
        try:
            if self._plain and source.rest:
                # There may be a hundred thousand of these a second.
                take, progress = source.rest.popleft()
                made = take(), progress
            else:
                made = self._pipe.next()
        except BaseException:
            self.close()  # A batch is lost: what follows it must not pass for the rest of the epoch.
            raise
        if made is None:
            self.close()
            if self._is_newest():
                self._loader._progress = None
            if self._loader._epoch == self._epoch:
                self._loader._epoch += 1
            raise StopIteration
        batch, progress = made
        # Another thread may have come to the end meanwhile.
        if self._is_newest():
            self._loader._progress = progress
        return batch

    def _is_newest(self) -> bool:
        """Whether the loader's state is that of this iteration."""
        current = self._loader._current
        return current is not None and current() is self

    def __len__(self) -> int:
        """Batches that a whole epoch has on this rank."""
        return len(self._loader)

    def close(self) -> None:
        """Stops early."""
        native = self._source.native
        if native is not None:
            self._source.native = None
            self._source.rest.clear()
            self._pipe.close()
            last = native.close()
            if last is not None:
                self._loader._last, self._loader._last_faults = last

    def _faults(self) -> list[dict[str, Any]]:
        native = self._source.native
        return self._loader._last_faults if native is None else native.faults()

    def _stats(self) -> dict[str, Any]:
        native = self._source.native
        return self._loader._last if native is None else native.stats()

    def __del__(self) -> None:
        if hasattr(self, "_pipe"):
            self.close()


class NumpyLoader(Loader):
    """Batches as dicts of NumPy arrays over the loader's buffers, without a copy.

    Made by :meth:`Dataset.numpy`. Texts, bytes and JSON come as lists (None for nulls), columns of free shape as :class:`Ragged`,
    timestamps as ``datetime64[us]``. Beside a nullable column ``name`` comes ``name_valid``, bool [rows]; null rows are zeros. Where rows
    may be masked comes ``sample_weight``, float32 [rows].
    """

    def _build(self, views: list[View], epoch: int) -> None:
        for plain in self._options["transforms"]:
            if plain["dtype"] == "bfloat16":
                try:
                    import ml_dtypes  # noqa: F401
                except ImportError:
                    column = plain["column"]
                    raise DTypeError(
                        f"transforms of column '{column}': NumPy has no bfloat16: install ml_dtypes, or use float32"
                    ) from None
        super()._build(views, epoch)

    def _channels_first(self, array: Any) -> Any:
        return array.transpose(0, 3, 1, 2)

    def _array(self, tensor: _forebay.Tensor) -> Any:
        return tensor.numpy()
