"""SQL over lakes. The engine is the package ``forebay-sql``, loaded on first use."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ._computed import Computed
from ._errors import ArgumentError, ClosedError, MissingPackageError, UnsupportedError
from ._rows import View, _column, _view
from ._schema import Schema
from ._tables import Tables

if TYPE_CHECKING:
    import numpy as np

    from . import _forebay
    from ._dataset import Dataset, _Handle
    from ._jax import JaxLoader
    from ._loader import NumpyLoader, Shuffle
    from ._torch import TorchLoader

#: Values that a statement names: ``$1`` by position, ``$name`` by name.
Parameters = Sequence[Any] | Mapping[str, Any] | None


class Result:
    """What a statement did.

    A query's rows are read once, by any library that knows Arrow's C stream (``pyarrow.table(result)``, ``polars.DataFrame(result)``,
    ``duckdb``), or by the methods here; they stream, so that a result need not fit in memory.
    """

    __slots__ = ("_answer", "commit", "rows", "what")

    def __init__(self, what: str, rows: int, commit: str | None, answer: Any) -> None:
        #: ``"SELECT"``, ``"INSERT"``, ``"CREATE TABLE"`` and so on.
        self.what: str = what
        #: Rows inserted, updated, deleted or copied.
        self.rows: int = rows
        #: The commit that the statement made, or None.
        self.commit: str | None = commit
        self._answer = answer

    @property
    def columns(self) -> list[str]:
        """The names of a query's columns."""
        return self._rows().columns

    def _rows(self) -> Any:
        if self._answer is None:
            raise UnsupportedError(f"{self.what} gives no rows")
        return self._answer

    def __arrow_c_schema__(self) -> Any:
        return self._rows().__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._rows().__arrow_c_stream__(requested_schema)

    def to_reader(self) -> Any:
        """The rows as a ``pyarrow.RecordBatchReader``, batch by batch."""
        return _import("pyarrow").RecordBatchReader.from_stream(self)

    def to_arrow(self) -> Any:
        """The rows as a ``pyarrow.Table``."""
        return self.to_reader().read_all()

    def to_pandas(self) -> Any:
        """The rows as a ``pandas.DataFrame``."""
        _import("pandas")
        return self.to_arrow().to_pandas()

    def to_polars(self) -> Any:
        """The rows as a ``polars.DataFrame``."""
        return _import("polars").DataFrame(self)

    def to_list(self) -> list[dict[str, Any]]:
        """The rows as dicts of Python's own values."""
        return self.to_arrow().to_pylist()

    def __repr__(self) -> str:
        if self._answer is not None:
            return f"Result({', '.join(self.columns)})"
        return f"Result({self.what}, {self.rows} rows)"


class Statements:
    """What SQL does with a handle: statements see all tables of the lake, at the handle's commit."""

    __slots__ = ()

    if TYPE_CHECKING:
        _handle: _Handle

    def execute(
        self,
        sql: str,
        params: Parameters = None,
        *,
        tables: Mapping[str, Any] | None = None,
        files: str | os.PathLike[str] | None = None,
        seed: int | None = None,
        probes: int | None = None,
        memory: int | str | None = None,
    ) -> Result:
        """Runs SQL statements and gives what the last one did. ``docs/sql.md`` says which there are.

        Queries see this handle's commit. Changes are made at the end of its branch, each in a commit of its own unless they stand
        between ``BEGIN`` and ``COMMIT``, and move the handle there.

        Parameters
        ----------
        sql : str
            One statement, or several with semicolons.
        params : sequence or dict, optional
            Values for ``$1``, ``$2`` or ``$name``: numbers, texts, bytes, truth values, datetimes, None, and lists or arrays of numbers.
        tables : dict, optional
            Tables to be named in the statement: whatever exports Arrow's C stream (tables and frames of pyarrow, pandas, Polars), or
            the path of a Parquet file.
        files : str, optional
            The folder below which ``COPY`` may read and write. Without it, ``COPY`` is refused, and no statement touches a file.
        seed : int, optional
            What ``random()`` follows from. Drawn anew by default.
        probes : int, optional
            Cells of an index of vectors that a search looks into: more find more of the nearest, and take longer. As the index says
            by default.
        memory : int or str, optional
            Bytes that sorts, groups and joins may hold (``"4GiB"``, 2 GiB by default) before they spill to the temporary folder.

        Raises
        ------
        forebay.SqlError
            If the text is no SQL, names what isn't there (the message has the place and a hint), or fails on a value.
        forebay.ConflictError
            If others changed the same cells meanwhile; nothing was committed.
        forebay.ReadOnlyError
            If a change is asked of a handle at a tag or commit.
        forebay.MissingPackageError
            If ``forebay-sql`` isn't installed.
        """
        inputs = _inputs(params, tables, seed, probes)
        done = Result(*_run(self._handle, lambda engine: engine.execute(sql, inputs), files, memory))
        if done.commit is not None:
            self._handle.session.refresh()
            self._handle.moved()
        return done

    def query(
        self,
        sql: str,
        params: Parameters = None,
        *,
        tables: Mapping[str, Any] | None = None,
        seed: int | None = None,
        probes: int | None = None,
    ) -> View:
        """The rows that a ``SELECT`` selects, to be read, and streamed to a loader, without a copy of them.

        Any query that keeps the rows of its first table does: filters, joins, subqueries, order, limit, samples. Rows come in the
        query's order, or else in the table's; a join may select a row several times. The columns are those that the query names.
        Numbers and truth values may be computed (``label * 2 AS double``, or a column of a table that is joined): they are kept in
        memory, and come with the rows wherever these go. Groups and the like are for :meth:`execute`.

        Parameters
        ----------
        sql, params, tables, seed, probes
            As for :meth:`execute`.

        Raises
        ------
        forebay.UnsupportedError
            If what the query gives are no rows of one table.
        """
        return _select(self._handle, sql, _inputs(params, tables, seed, probes))[0]

    def dataloader(self, sql: str, params: Parameters = None, *, seed: int | None = None) -> Selector:
        """Begins a loader of what a query selects, to be told the rest step by step.

        >>> loader = ds.dataloader("SELECT image, label FROM main WHERE label < 3").batch_size(64).shuffle().to_torch()  # doctest: +SKIP

        ``ORDER BY RANDOM()`` without a limit means ``shuffle("global")``: a new order each epoch.
        """
        return Selector(self._handle, sql, params, seed)


class Queries(Statements):
    """Statements of a :class:`Dataset`, which may leave out its table."""

    __slots__ = ()

    if TYPE_CHECKING:
        _table: str

        def _known(self) -> Schema: ...

    def where(self, condition: str, params: Parameters = None) -> View:
        """The rows for which a condition in SQL is true: ``ds.where("label IN (0, 1) AND score > $1", [0.9])``."""
        return self.query(f"SELECT * FROM {_quoted(self._table)} WHERE (\n{condition}\n)", params)

    def scan(
        self,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        params: Parameters = None,
        *,
        limit: int | None = None,
    ) -> Result:
        """Rows as Arrow, streaming: ``duckdb.from_arrow(ds.scan(["id"], "label = 3").to_reader())``, ``polars.DataFrame(ds.scan(limit=10))``.

        Only the columns that are asked for are read, only chunks that may hold rows of ``where``, and no more than ``limit``. A dataset
        exports Arrow's C stream itself, too, of all that it has: ``pyarrow.table(ds)``.

        Parameters
        ----------
        columns : sequence of str, optional
            The columns to give, in which order; all by default.
        where : str, optional
            A condition in SQL.
        params : sequence or dict, optional
            Values that it names, as for :meth:`execute`.
        limit : int, optional
            Rows to give, at most.
        """
        if columns is not None and not columns:
            raise ArgumentError("name at least one column")
        for name in columns or ():
            _column(self._known(), name)
        chosen = "*" if columns is None else ", ".join(_quoted(name) for name in columns)
        text = f"SELECT {chosen} FROM {_quoted(self._table)}"
        text += f" WHERE (\n{where}\n)" if where is not None else ""
        return self.execute(text + (f" LIMIT {int(limit)}" if limit is not None else ""), params)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.scan().__arrow_c_stream__(requested_schema)

    def dataloader(self, sql: str | None = None, params: Parameters = None, *, seed: int | None = None) -> Selector:
        """Begins a loader, as :meth:`Lake.dataloader`; of all rows of this table if there is no query."""
        return super().dataloader(sql or f"SELECT * FROM {_quoted(self._table)}", params, seed=seed)


class Selector:
    """A loader in the making: each step gives a new one, and ``to_torch``, ``to_numpy`` or ``to_jax`` makes the loader."""

    __slots__ = ("_filters", "_handle", "_options", "_params", "_seed", "_sql")

    def __init__(self, handle: _Handle, sql: str, params: Parameters, seed: int | None) -> None:
        self._handle = handle
        self._sql = sql
        self._params = params
        self._seed = seed
        self._filters: tuple[tuple[Callable[..., Any], Any], ...] = ()
        self._options: dict[str, Any] = {}

    def _with(self, **options: Any) -> Selector:
        made = Selector(self._handle, self._sql, self._params, self._seed)
        made._filters = self._filters
        made._options = {**self._options, **options}
        return made

    def batch_size(self, rows: int) -> Selector:
        """Rows of a batch of a rank."""
        return self._with(batch_size=rows)

    def shuffle(self, how: Shuffle = True) -> Selector:
        """As ``shuffle`` of :meth:`Dataset.pytorch`."""
        return self._with(shuffle=how)

    def columns(self, *names: str) -> Selector:
        """The columns to deliver, instead of those that the query names."""
        return self._with(columns=list(names))

    def transforms(self, chains: Mapping[str, Any]) -> Selector:
        """As ``transforms`` of :meth:`Dataset.pytorch`."""
        return self._with(transforms=chains)

    def filter(self, fn: Callable[[dict[str, Any]], Any], columns: str | Sequence[str] | None = None) -> Selector:
        """Keeps the rows for which ``fn`` says true, as :meth:`Dataset.filter`."""
        made = self._with()
        made._filters = (*self._filters, (fn, columns))
        return made

    def options(self, **options: Any) -> Selector:
        """Further options of :meth:`Dataset.pytorch`."""
        return self._with(**options)

    def view(self) -> View:
        """The rows that it will load."""
        return self._chosen(False)[0]

    def to_torch(self, **options: Any) -> TorchLoader:
        """The loader, as :meth:`Dataset.pytorch` makes it. With ``distributed=True`` rank 0 runs the query, for all ranks."""
        view, options = self._ready(options)
        return view.pytorch(**options)

    def to_numpy(self, **options: Any) -> NumpyLoader:
        """The loader, as :meth:`Dataset.numpy` makes it."""
        view, options = self._ready(options)
        return view.numpy(**options)

    def to_jax(self, **options: Any) -> JaxLoader:
        """The loader, as :meth:`Dataset.jax` makes it."""
        view, options = self._ready(options)
        return view.jax(**options)

    def _ready(self, options: dict[str, Any]) -> tuple[View, dict[str, Any]]:
        options = {**self._options, **options}
        if options.get("batch_size") is None:
            raise ArgumentError("say how many rows a batch has: .batch_size(64)")
        view, shuffled = self._chosen(options.get("distributed", False))
        if shuffled:
            options.setdefault("shuffle", "global")
        return view, options

    def _chosen(self, distributed: bool) -> tuple[View, bool]:
        if distributed:
            view, shuffled = _agreed(lambda: _select(self._handle, self._sql, _inputs(self._params, None, self._seed)))
        else:
            view, shuffled = _select(self._handle, self._sql, _inputs(self._params, None, self._seed))
        for fn, columns in self._filters:
            view = view.filter(fn, columns)
        return view, shuffled


def connect(
    url: str,
    *,
    branch: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    credentials: Callable[[], Mapping[str, Any]] | None = None,
    links: Places = (),
    create: bool = False,
) -> Lake:
    """Opens a lake for SQL, whatever tables it has.

    Parameters
    ----------
    url, branch, storage_options, credentials, links
        As for :func:`open`.
    create : bool
        Whether to make an empty lake if there is none.
    """
    from . import _forebay
    from ._dataset import _access, _Handle, _url

    place, access = _url(url), _access(storage_options, credentials, links=links)
    if create:
        _package().create_lake(place, access)
    return Lake(_Handle(_forebay.Session.open_at(place, access, branch=branch)))


class Lake(Statements, Tables):
    """A lake opened for SQL by :func:`connect`: ``execute``, ``query``, ``dataloader`` and tables, as of :class:`Dataset`."""

    __slots__ = ("_handle",)

    def __init__(self, handle: _Handle) -> None:
        self._handle = handle

    def table(self, name: str) -> Dataset:
        """A table, with this handle."""
        from ._dataset import Dataset

        self._handle.table(name)
        return Dataset(self._handle, name)

    @property
    def url(self) -> str:
        """The URL of the lake, as given."""
        return self._handle.session.url

    def close(self) -> None:
        """Closes the handle."""
        self._handle.session.close()
        self._handle.moved()

    def __enter__(self) -> Lake:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        session = self._handle.session
        return f"Lake({session.url}, {'closed' if session.closed else ', '.join(self.tables)})"


def _package() -> Any:
    try:
        from forebay_sql import _sql
    except ImportError as error:
        raise MissingPackageError("SQL needs the package forebay-sql: pip install 'forebay[sql]'") from error
    from . import __version__

    if _sql.__version__ != __version__:
        raise MissingPackageError(
            f"forebay is of version {__version__} and forebay-sql of {_sql.__version__}: pip install 'forebay[sql]=={__version__}'"
        )
    return _sql


def _run(handle: _Handle, work: Callable[[Any], Any], files: Any = None, memory: Any = None) -> Any:
    """Does something with an engine at the handle's commit: the last one, which has files open, if nobody else uses it."""
    from ._changes import _author
    from ._loader import parse_bytes

    session = handle.session
    if session.closed:
        raise ClosedError("this handle was closed")
    most = None if memory is None else parse_bytes("memory", memory)
    folder = None if files is None else os.fspath(files)
    # With a branch, the commit is the one of it that this handle sees. A forked child makes its own engine.
    place = (session.url, session.access, session.branch, None, session.commit_id, most, folder, _author())
    key = (os.getpid(), session.commit_id, most, folder)
    kept, handle.engine = handle.engine, None
    engine = kept[1] if kept is not None and kept[0] == key else _package().Engine(*place)
    done = work(engine)
    handle.engine = (key, engine)
    return done


def _inputs(
    params: Parameters, tables: Mapping[str, Any] | None, seed: int | None, probes: int | None = None
) -> tuple[Any, ...]:
    if params is None:
        named = {}
    elif isinstance(params, Mapping):
        named = {str(name): value for name, value in params.items()}
    elif isinstance(params, (str, bytes)):
        raise ArgumentError("params is a list or a dict of values: write [value] for one")
    else:
        named = {str(place): value for place, value in enumerate(params, 1)}
    streams, files = {}, {}
    for name, table in (tables or {}).items():
        if isinstance(table, (str, os.PathLike)):
            files[name] = os.fspath(table)
        else:
            streams[name] = table
    if probes is not None and probes < 1:
        raise ArgumentError(f"probes is at least 1, not {probes}")
    return named, streams, files, seed, probes


def _select(handle: _Handle, sql: str, inputs: tuple[Any, ...]) -> tuple[View, bool]:
    session = handle.session
    table, commit, rows, columns, shuffled, computed = _run(handle, lambda engine: engine.select(sql, inputs))
    beside = {name: Computed.of_bytes(*values) for name, *values in computed}
    return _view(session, commit, table, rows, columns, beside), shuffled


def _agreed(select: Callable[[], tuple[View, bool]]) -> tuple[View, bool]:
    """What rank 0 selects, on every rank; what it raises, too."""
    import torch.distributed as dist

    if not dist.is_available() or not dist.is_initialized():
        raise ArgumentError("distributed=True needs torch.distributed.init_process_group() first")
    box: list[Any] = [None]
    if dist.get_rank() == 0:
        try:
            box[0] = (True, select())
        except Exception as error:
            box[0] = (False, error)
    dist.broadcast_object_list(box, src=0)
    good, found = box[0]
    if not good:
        raise found
    return found


def _quoted(name: str) -> str:
    """A name as SQL takes it, whatever is in it."""
    text = name.replace('"', '""')
    return f'"{text}"'


def _import(name: str) -> Any:
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingPackageError(f"this needs the package {name}: pip install {name}") from error
