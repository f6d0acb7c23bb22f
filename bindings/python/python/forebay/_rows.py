"""Reading rows: by number, slice, list and mask; by column or all columns at once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ._computed import Beside, Computed, computed_of
from ._errors import ArgumentError, DataError, UnknownColumnError
from ._index import resolve
from ._schema import Column, Schema

if TYPE_CHECKING:
    import numpy as np

    from . import _forebay
    from ._cupy import CupyLoader
    from ._jax import JaxLoader
    from ._buckets import Buckets, Tokens
    from ._collate import Collate
    from ._loader import NumpyLoader, Shuffle, Transforms
    from ._torch import TorchLoader, TorchRows


#: Rows of a view that a filter reads at once.
_BLOCK = 4096


class Rows:
    """Rows of a table at one commit. Base of :class:`Dataset` and :class:`View`.

    ``rows[i]`` is a dict with the values of a row; ``rows[a:b]``, ``rows[[3, 1, 2]]`` and ``rows[mask]`` are dicts of columns;
    ``rows["image"]`` is a column that is indexed in the same ways. Values come as the column's type says:

    ==================== =============================== ==========================================================
    column               one row                         several rows
    ==================== =============================== ==========================================================
    numbers, fixed shape array, or NumPy scalar          array [rows, \\*shape]; a masked array if nullable
    numbers, free shape  array                           list of arrays
    utf8, bytes, json    str, bytes, any JSON value      list
    link                 a :class:`Link`                 list
    null                 None                            masked, or None in the list
    ==================== =============================== ==========================================================

    Every array is the caller's own: writing to it changes nothing in the lake.
    """

    __slots__ = ("__weakref__",)

    def _rows(self) -> _forebay.Rows:
        raise NotImplementedError

    def _known(self) -> Schema:
        raise NotImplementedError

    @property
    def schema(self) -> Schema:
        """The columns by name, in order."""
        return self._known()

    @property
    def columns(self) -> list[str]:
        """The names of the columns, in order."""
        return list(self._known())

    @property
    def commit_id(self) -> str:
        """The commit that is read, 32 hexadecimal digits."""
        return self._rows().commit_id

    def __len__(self) -> int:
        return len(self._rows())

    def __getitem__(self, key: Any) -> Any:
        if type(key) is int:
            return self._row(key)
        if isinstance(key, str):
            return ColumnRows(self, key)
        rows = resolve(key, len(self))
        if isinstance(rows, int):
            return self._row(rows)
        native = self._rows()
        return {name: _read(native, name, column, rows) for name, column in self._known().items()}

    def _row(self, row: int) -> dict[str, Any]:
        values = self._rows().row(row)
        for name in self._known()._documents:
            if values[name] is not None:
                values[name] = json.loads(values[name])
        return values

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """The rows as dicts, in order."""
        return (self._row(row) for row in range(len(self)))

    def filter(self, fn: Callable[[dict[str, Any]], Any], columns: str | Sequence[str] | None = None) -> View:
        """The rows for which ``fn`` says true.

        Parameters
        ----------
        fn : callable
            Takes a dict of columns of some thousand rows, as ``rows[a:b]`` gives them, and returns one truth value for each row: a
            boolean array [rows], or a list. A masked truth value (a comparison with null) is not true.
        columns : str or sequence of str, optional
            The columns that ``fn`` looks at; only they are read, in bounded memory. All by default.

        Returns
        -------
        View
            Reads like a dataset and feeds loaders; it can't be written.

        Raises
        ------
        forebay.DataError
            If ``fn`` returns something else than one truth value a row. What ``fn`` raises is raised as it is.
        """
        import numpy as np

        schema = self._known()
        if isinstance(columns, str):
            columns = [columns]
        chosen = {name: _column(schema, name) for name in (schema if columns is None else columns)}
        if not chosen:
            raise ArgumentError("name at least one column to choose rows by")

        def ask(read: Iterable[tuple[Any, np.ndarray | None]]) -> np.ndarray:
            parts = list(read)
            rows = len(parts[0][0])
            return _mask(fn({name: _finish(column, *part) for (name, column), part in zip(chosen.items(), parts)}), rows)

        native = self._rows()
        if native.whole:
            return View(native.filter(list(chosen), ask), schema)
        # A view's rows are read by number: they may be few, and in any order.
        kept = []
        for start in range(0, len(native), _BLOCK):
            stop = min(start + _BLOCK, len(native))
            kept.append(np.flatnonzero(ask(native.read(name, start, stop) for name in chosen)) + start)
        return self._select(np.concatenate(kept) if kept else np.empty(0, np.int64))

    def select(self, rows: Any) -> View:
        """These rows, in this order: a slice, a list of numbers (a row may come twice), or a boolean mask."""
        import numpy as np

        found = resolve(rows, len(self))
        if isinstance(found, int):
            found = range(found, found + 1)
        return self._select(np.asarray(found, np.int64))

    def _select(self, rows: np.ndarray) -> View:
        import numpy as np

        return View(self._rows().select(np.ascontiguousarray(rows, np.int64)), self._known())

    def pytorch(
        self,
        batch_size: int | None = None,
        *,
        shuffle: Shuffle = False,
        columns: Sequence[str] | None = None,
        decode: Mapping[str, str] | None = None,
        shrink_on_load: bool = True,
        transforms: Transforms | None = None,
        seed: int = 0,
        num_workers: int | None = None,
        prefetch_factor: int | None = None,
        distributed: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
        data_group: Any = 1,
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
        device: Any = None,
        device_cache: int | str | None = None,
        group_bytes: int | str | None = None,
        out: Mapping[str, Any] | None = None,
    ) -> TorchLoader | TorchRows:
        """Batches as torch tensors; or, without a batch size, a dataset for ``torch.utils.data.DataLoader``.

        Parameters
        ----------
        batch_size : int, optional
            Rows of a batch of this rank. None gives the map-style dataset; no other argument but ``columns`` goes with that.
        shuffle : bool, "windowed", "global", Window, Buffer or Weighted
            True and "windowed" mix rows within a moving window of about 1 GiB, which reads in long runs on every store; a
            :class:`Window` says how large. "global" permutes all rows, which reads single rows: for local disks. Each epoch has
            an order of its own, which depends on the commit, the rows, ``seed`` and the epoch alone, never on ranks or threads.
            :class:`Weighted` draws rows by weight, :class:`Buffer` mixes runs of rows in table order.
        columns : sequence of str, optional
            The columns to deliver, and in which order; all by default.
        decode : dict of str to "RGB" or "L", optional
            Columns of encoded images (JPEG, PNG, WebP) that are decoded on the way, to uint8 [H, W, 3] or [H, W, 1], each of its own
            size; ``transforms`` make them one. Photos come upright, as their Exif metadata says. Without transforms the pixels of a
            JPEG are those of Pillow.
        shrink_on_load : bool
            Whether a JPEG whose transforms make it smaller is decoded at the least of 1/8, 1/4 and 1/2 of its size that is as large
            as what it, or the part that is taken, becomes, as Pillow's ``draft`` does, and is resized from there. That takes less time, and pixels are
            averages where every second, fourth or eighth would be taken. Otherwise it is decoded at its full size first.
        transforms : dict of str to list, optional
            For columns of images what is done to them on the way, fused into the pass that makes the batch: a list of
            :mod:`forebay.transforms` each, such as ``{"image": [RandomResizedCrop(224), RandomHorizontalFlip()]}``. A transformed
            column is a tensor ``[N, C, H, W]``.
        seed : int
            Of the shuffle and the transforms, 0 to 2**64 - 1.
        num_workers : int, optional
            Threads that copy rows into batches. They are threads without the GIL, not processes; by default one for each of up to
            4 cores.
        prefetch_factor : int, optional
            Batches that are made ahead.
        distributed : bool
            Takes rank and world size from ``torch.distributed``, and checks there that all ranks load the same.
        rank, world_size : int, optional
            This process among all, if ``distributed`` is not used. The ranks share the batches of each epoch between them.
        data_group : int or DeviceMesh
            How many consecutive ranks receive the same rows, because they share one model by tensor or pipeline parallelism; or, with
            ``distributed``, the mesh dimension over which the data is spread, as in ``mesh["dp"]``.
        drop_last, pad_last : bool
            Whether rows that don't fill a batch of every rank are left out, or their batch is filled up with masked rows; otherwise
            the last batch is shorter. Masked rows are zeros, empty or null, and 0 in the batch's ``sample_weight``, float32 [rows].
        memory_budget : int or str, optional
            Bytes that the loader may hold (``2 << 30`` or ``"2GiB"``); mapped files don't count.
        host_cache : int or str, optional
            Bytes of fetched or decoded rows that this loader keeps for its next epochs, on top of ``memory_budget``, in memory that
            batches are gathered from as from a mapped file (with a CUDA device, in registered memory). Who came first stays.
            ``stats()["kept_bytes"]`` says how many there are.
        verify : "first", "always" or "never"
            When the checksums of mapped local files are checked: once a process, at every use, or not at all. What comes over a
            network or is compressed always is.
        on_fault : "fail", "skip" or "substitute"
            What happens to a row with a value that is damaged, missing or can't be decoded: the epoch ends with an error; the row
            comes masked; or another comes in its place, chosen by its position in the epoch. :meth:`Loader.faults` lists them. A store
            that fails always ends the epoch.
        max_faults, max_fault_rate : int, float, optional
            How many such rows an iteration of this rank puts up with, 1,000 by default, and as a share of its rows.
        stall_timeout : float, optional
            Seconds that a batch waits while no request is answered, 120 by default; then an error lists those in flight.
        digest : str, optional
            What :attr:`Loader.digest` must be: the way to check that ranks load the same without ``torch.distributed``.
        epoch_length : int, optional
            Samples of an epoch, on all ranks together, instead of every row once: rows come again in another order, or are left out.
        buckets : Buckets or Tokens, optional
            Makes batches of rows of similar length, or of at most so many tokens: see :class:`Buckets` and :class:`Tokens`.
        collate : dict of str to Pad or Pack, optional
            What becomes of columns of free shape: :class:`Pad` and :class:`Pack` make arrays of one shape of them.
        map_batches : callable, optional
            What is applied to each batch, a dict of arrays; the loader gives what it returns. It runs in ``map_threads`` threads (1 by
            default; 0 is the caller's), ahead of use, and batches stay in order.
        sample_seeds : bool
            Whether each batch has ``sample_seed``, int64 [rows], for random functions: a hash of seed, epoch and position.
        device : str, int or torch.device, optional
            ``"cuda"`` or ``"cuda:1"`` gives tensors in that device's memory: the GPU fetches the rows itself, while the batches before
            are used. They are tensors of PyTorch's allocator, of the stream that is current when a batch is taken. Texts, bytes and
            JSON stay lists.
        device_cache : int or str, optional
            Bytes of the device's memory (``"40GiB"``) that keep rows: what is there from the first epoch comes from there in the next.
        group_bytes : int or str, optional
            Small batches come to the device together, up to so many bytes (32 MiB by default, 0 for each alone), and are views of one
            tensor each: what is kept of one keeps the memory of its group. Columns of free shape are never grouped. Once ``device_cache`` holds
            all rows, up to 16 batches and 4,096 rows come together, however large, and are copied up to 256 MiB at a time.
        out : dict of tensors, optional
            Fixed buffers on the device, by column, that each batch is copied to, in the order of the stream that is current then: for
            CUDA graphs. They have room for ``batch_size`` rows; a shorter batch comes as their first rows.

        Returns
        -------
        TorchLoader or TorchRows
            An iterable over dicts of tensors with ``len``, ``set_epoch``, ``state_dict``, ``load_state_dict``, ``stats`` and ``faults``;
            or the map-style dataset.

        Raises
        ------
        forebay.UnknownColumnError, forebay.ArgumentError, forebay.TransformError, forebay.LoaderError, ModuleNotFoundError
            If a column isn't there, an option makes no sense or the budget is too small, a transform doesn't fit its column, the
            device can't be used, or torch isn't installed.
        """
        from ._torch import TorchLoader, TorchRows

        if batch_size is None:
            given = (
                shuffle, decode, shrink_on_load, transforms, seed, num_workers, prefetch_factor, distributed, rank, world_size, data_group, drop_last, pad_last,
                memory_budget, host_cache, verify, on_fault, sample_seeds, max_faults, max_fault_rate, stall_timeout, digest, device, device_cache,
                out, epoch_length, buckets, collate, map_batches, map_threads, group_bytes,
            )  # fmt: skip
            defaults = (False, None, True, None, 0, None, None, False, None, None, 1, False, False, None, None, "first", "fail", False, *[None] * 13)
            if given != defaults:
                raise ArgumentError("without a batch_size, pass these options to torch.utils.data.DataLoader instead")
            return TorchRows(self._view(), columns)
        return TorchLoader(
            self._view(), batch_size, shuffle=shuffle, columns=columns, decode=decode, shrink_on_load=shrink_on_load, transforms=transforms,
            seed=seed, num_workers=num_workers, prefetch_factor=prefetch_factor, distributed=distributed, rank=rank, world_size=world_size,
            data_group=data_group, drop_last=drop_last, pad_last=pad_last, memory_budget=memory_budget, host_cache=host_cache, verify=verify,
            on_fault=on_fault, max_faults=max_faults, max_fault_rate=max_fault_rate, stall_timeout=stall_timeout, digest=digest,
            epoch_length=epoch_length, buckets=buckets, collate=collate, map_batches=map_batches, map_threads=map_threads, sample_seeds=sample_seeds,
            device=device, device_cache=device_cache, group_bytes=group_bytes, out=out,
        )  # fmt: skip

    def numpy(
        self,
        batch_size: int,
        *,
        shuffle: Shuffle = False,
        columns: Sequence[str] | None = None,
        decode: Mapping[str, str] | None = None,
        shrink_on_load: bool = True,
        transforms: Transforms | None = None,
        seed: int = 0,
        num_workers: int | None = None,
        prefetch_factor: int | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        data_group: Any = 1,
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
    ) -> NumpyLoader:
        """Batches as NumPy arrays. Arguments and order are those of :meth:`pytorch`.

        The arrays lie in the loader's buffers and are not copied. They are writable and the consumer's own: a buffer is used again
        only after the last array that refers to it is gone. NumPy has a bfloat16 only with the package ``ml_dtypes``: transforms to it
        raise :class:`forebay.DTypeError` here if that isn't installed.
        """
        from ._loader import NumpyLoader

        return NumpyLoader(
            self._view(), batch_size, shuffle=shuffle, columns=columns, decode=decode, shrink_on_load=shrink_on_load, transforms=transforms,
            seed=seed, num_workers=num_workers, prefetch_factor=prefetch_factor, rank=rank, world_size=world_size, data_group=data_group,
            drop_last=drop_last, pad_last=pad_last, memory_budget=memory_budget, host_cache=host_cache, verify=verify, on_fault=on_fault,
            max_faults=max_faults, max_fault_rate=max_fault_rate, stall_timeout=stall_timeout, digest=digest,
            epoch_length=epoch_length, buckets=buckets, collate=collate, map_batches=map_batches, map_threads=map_threads, sample_seeds=sample_seeds,
        )  # fmt: skip

    def jax(self, batch_size: int, *, device: Any = None, **options: Any) -> JaxLoader:
        """Batches as JAX arrays on a CUDA device. Arguments and order are those of :meth:`pytorch`, without ``out``.

        Parameters
        ----------
        device : jax.Device or int, optional
            Which; JAX's default by default. A process may load to several at once, each with its ``rank`` and ``world_size``.
        """
        from ._jax import JaxLoader

        return JaxLoader(self._view(), batch_size, device=device, **options)

    def cupy(self, batch_size: int, *, device: int | None = None, **options: Any) -> CupyLoader:
        """Batches as CuPy arrays over the loader's device memory, by DLPack and without a copy. Arguments and order are those of
        :meth:`pytorch`, without ``out``.

        An array is ready for the stream that is current when its batch is taken. Work of other streams on it must be joined into that
        one before the last array over it is gone.

        Parameters
        ----------
        device : int, optional
            Which; CuPy's current one by default.
        """
        from ._cupy import CupyLoader

        return CupyLoader(self._view(), batch_size, device=device, **options)

    def _view(self) -> View:
        """These rows as they are now: a commit through the handle doesn't move them."""
        return View(self._rows(), self._known())


class View(Rows):
    """Chosen rows of a table at one commit: read-only, and safe to send to other processes.

    A pickled view is small (URL, commit, table, row numbers and storage options) and opens itself again where it arrives. Storage
    options travel with it, credentials among them if they were given there rather than in the environment.
    """

    __slots__ = ("_native", "_schema")

    def __init__(self, native: Any, schema: Schema) -> None:
        self._native = native
        self._schema = schema

    def _rows(self) -> _forebay.Rows:
        return self._native

    def _known(self) -> Schema:
        return self._schema

    def __repr__(self) -> str:
        return _describe(f"View of {len(self)} rows of table '{self._native.table}'", self._native.url, self._schema)

    def __reduce__(self) -> tuple[Any, ...]:
        native = self._native
        what = (native.commit_id, native.table, native.numbers_or_none(), list(self._schema), computed_of(native))
        return _reopen_view, (native.url, native.access, *what)

    def _row(self, row: int) -> dict[str, Any]:
        # Of the table's columns only the view's are read.
        return {name: _decode(column, self._native.value(name, row)) for name, column in self._schema.items()}


def _reopen_view(
    url: str,
    access: _forebay.Access,
    commit: str,
    table: str,
    numbers: np.ndarray | None,
    columns: list[str],
    computed: Mapping[str, Computed],
) -> View:
    from . import _forebay

    return _view(_forebay.Session.open_at(url, access, commit=commit), commit, table, numbers, columns, computed)


def _view(
    session: _forebay.Session,
    commit: str,
    table: str,
    numbers: np.ndarray | None,
    columns: Iterable[str] | None,
    computed: Mapping[str, Computed] | None = None,
) -> View:
    """Rows of a table at a commit of a session's lake; all rows without numbers, all columns without names."""
    import numpy as np

    from . import _forebay

    if session.commit_id != commit:
        session = _forebay.Session.open_at(session.url, session.access, commit=commit)
    native = session.rows(table)
    schema = Schema._from_native(native.schema())
    if numbers is not None:
        native = native.select(np.ascontiguousarray(numbers, np.int64))
    computed = computed or {}
    if columns is not None:
        schema = Schema({name: computed[name].column if name in computed else _column(schema, name) for name in columns})
    return View(Beside(native, computed) if computed else native, schema)


class ColumnRows:
    """One column of some rows: indexed by number, slice, list or mask, and then as NumPy would by further indices."""

    __slots__ = ("_column", "_name", "_owner")

    def __init__(self, owner: Rows, name: str) -> None:
        self._owner = owner
        self._name = name
        self._column = _column(owner._known(), name)

    @property
    def name(self) -> str:
        """Its name."""
        return self._name

    @property
    def dtype(self) -> str:
        """The name of its dtype."""
        return self._column.dtype

    @property
    def shape(self) -> tuple[int | None, ...]:
        """Rows and the dimensions of a row; None for a length that each row chooses."""
        return (len(self), *self._column.shape)

    def __len__(self) -> int:
        return len(self._owner)

    def __getitem__(self, key: Any) -> Any:
        native = self._owner._rows()
        if type(key) is int:
            return _decode(self._column, native.value(self._name, key))
        rest: tuple[Any, ...] = ()
        if isinstance(key, tuple):
            key, rest = (key[0], key[1:]) if key else (slice(None), ())
        rows = resolve(key, len(native))
        if isinstance(rows, int):
            value = _decode(self._column, native.value(self._name, rows))
            return value[rest] if rest else value
        values = _read(native, self._name, self._column, rows)
        if not rest:
            return values
        index = (slice(None), *rest)
        return values[index]

    def fetch(self, key: Any = slice(None)) -> Any:
        """What links lead to: the bytes of a row, or of several as a list; None for nulls.

        Parameters
        ----------
        key : int, slice, list or mask
            The rows, all by default.

        Raises
        ------
        forebay.LinkError
            If what a link leads to changed since it was linked, or is gone.
        forebay.AccessError
            If a link leads to where ``links`` of :func:`open` doesn't let it.
        forebay.ArgumentError, forebay.StorageError
            If the column has no links, or a store fails.
        """
        import numpy as np

        rows = resolve(key, len(self))
        numbers = np.asarray([rows] if isinstance(rows, int) else rows, np.int64)
        found = self._owner._rows().fetch(self._name, np.ascontiguousarray(numbers))
        return found[0] if isinstance(rows, int) else found

    def __iter__(self) -> Iterator[Any]:
        return (self[row] for row in range(len(self)))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        import numpy as np

        if copy is False:
            raise ValueError("a column is not in memory: it can't become an array without a copy")
        return np.asarray(self[:], dtype)

    def __repr__(self) -> str:
        return f"<column {self._name}: {self._column}, {len(self)} rows>"


def _column(schema: Schema, name: str) -> Column:
    try:
        return schema[name]
    except KeyError:
        raise UnknownColumnError(f"no column '{name}'; the table has {', '.join(schema)}") from None


def _decode(column: Column, value: Any) -> Any:
    return json.loads(value) if column.dtype == "json" and value is not None else value


def _read(native: _forebay.Rows, name: str, column: Column, rows: range | np.ndarray) -> Any:
    if isinstance(rows, range) and rows.step == 1:
        return _finish(column, *native.read(name, rows.start, rows.stop))
    import numpy as np

    return _finish(column, *native.take(name, np.asarray(rows, np.int64)))


def _finish(column: Column, values: Any, valid: np.ndarray | None) -> Any:
    """What the native side read, as the user gets it."""
    if valid is not None:
        import numpy as np

        mask = ~valid.reshape((-1,) + (1,) * (values.ndim - 1))
        return np.ma.MaskedArray(values, np.broadcast_to(mask, values.shape))
    if column.dtype == "json":
        return [_decode(column, value) for value in values]
    return values


def _mask(said: Any, rows: int) -> np.ndarray:
    """What a filter said, as one bool a row."""
    import numpy as np

    if isinstance(said, np.ma.MaskedArray):
        said = said.filled(False)
    mask = np.asarray(said)
    if mask.shape != (rows,) or (mask.dtype != bool and rows):
        raise DataError(f"the filter must give one truth value for each of {rows} rows, not {mask.dtype} of shape {list(mask.shape)}")
    return np.ascontiguousarray(mask, bool)


def _describe(what: str, url: str, schema: Mapping[str, Column]) -> str:
    lines = [f"{what} at {url}"]
    width = max((len(name) for name in schema), default=0)
    for name, column in schema.items():
        notes = [note for note in (column.kind, column.compression) if note]
        lines.append(f"  {name:<{width}}  {column}{'  (' + ', '.join(notes) + ')' if notes else ''}")
    return "\n".join(lines)
