"""Lakes from Python: made, opened, read, appended to, committed, branched, tagged."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Union

from . import _forebay
from ._changes import Changes, _author, _schema
from ._convert import encode_rows
from ._errors import ArgumentError
from ._history import Commit
from ._rows import _describe
from ._schema import Schema
from ._sql import Queries
from ._tables import Tables, _names, _visible

DEFAULT_TABLE = "main"

#: What gives credentials: see :func:`create`.
Credentials = Callable[[], Mapping[str, Any]]

#: Where links may lead: see :func:`create`.
Places = Union[Sequence[str], Mapping[str, "Mapping[str, Any] | None"]]


class _Handle:
    """A session and its tables' rows; shared by the datasets of one opening, which move together."""

    __slots__ = ("engine", "session", "tables")

    def __init__(self, session: _forebay.Session) -> None:
        self.session = session
        #: The engine of SQL that was used last, with what it is for.
        self.engine: tuple[Any, Any] | None = None
        self.tables: dict[str, tuple[_forebay.Rows, Schema]] = {}

    def table(self, name: str) -> tuple[_forebay.Rows, Schema]:
        found = self.tables.get(name)
        if found is None:
            rows = self.session.rows(name)
            found = self.tables[name] = (rows, Schema._from_native(rows.schema()))
        return found

    def moved(self) -> None:
        self.tables.clear()


class Dataset(Changes, Queries, Tables):
    """A table of a lake, opened at a branch, tag or commit.

    Reads see the commit that the handle is at: the one it was opened at, and after :meth:`commit` the one that made. Appended rows
    are written at once and visible after the commit. The datasets that :meth:`table` and :meth:`create_table` give share the handle:
    one commit makes the rows of all of them visible, together.

    Used in a process forked from the one that opened it, a dataset opens the lake again by itself, at the same commit. It can be
    pickled: URL, commit, branch, table and storage options travel, with any credentials among them (a callable if it can be pickled). Neither
    takes along rows that wait for a commit.
    """

    __slots__ = ()

    def __init__(self, handle: _Handle, table: str) -> None:
        self._handle = handle
        self._table = table

    def _rows(self) -> _forebay.Rows:
        return self._handle.table(self._table)[0]

    def _known(self) -> Schema:
        return self._handle.table(self._table)[1]

    # The lake

    @property
    def url(self) -> str:
        """The URL of the lake, as given."""
        return self._handle.session.url

    @property
    def name(self) -> str:
        """The name of the table."""
        return self._table

    @property
    def branch_name(self) -> str | None:
        """The branch that commits go to; None for a handle at a tag or commit."""
        return self._handle.session.branch

    def table(self, name: str) -> Dataset:
        """Another table of the lake at this commit, with the same handle.

        Raises
        ------
        forebay.UnknownTableError
            If there is none of that name.
        """
        self._handle.table(name)
        return Dataset(self._handle, name)

    # Writing

    def append(self, data: Mapping[str, Any]) -> None:
        """Writes rows, which the next :meth:`commit` makes visible. Memory is bounded, whatever is appended in all.

        Parameters
        ----------
        data : dict
            Values by column, one for each row. Numbers: a NumPy array or torch tensor [rows, \\*shape], or a list of rows; dtypes
            that fit without loss are converted. Columns of free shape: a list of arrays. Texts, bytes and JSON values: a list.
            ``None`` in a list is a null, and so is a masked row of a masked array; a nullable column may be left out. Columns of
            kind ``label`` with names also take names. A batch of thousands of rows at once is fastest.

        Raises
        ------
        forebay.DataError, forebay.DTypeError, forebay.UnknownColumnError
            If the rows don't fit; then none of them is taken, and those appended before still are.
        forebay.StorageError
            If writing failed, on a full disk for instance; the rows appended since the last commit are lost, and the handle takes no
            more until :meth:`discard` was called.
        forebay.ReadOnlyError
            If the handle is at a tag or commit.
        """
        self._handle.session.append(self._table, encode_rows(self._known(), data))

    def commit(
        self, message: str = "", author: str | None = None, *, properties: Mapping[str, Any] | None = None
    ) -> str:
        """Makes the appended rows visible, in one step, and moves this handle to that commit.

        Commits that others made to the branch meanwhile stay: these rows follow theirs.

        Parameters
        ----------
        message : str
            Why.
        author : str, optional
            Who; by default the environment's ``FOREBAY_AUTHOR``, or the name of the user that the process runs as.
        properties : dict, optional
            What the commit remembers, as texts: a run's id, metrics.

        Returns
        -------
        str
            The commit's id.

        Raises
        ------
        forebay.NothingToCommitError
            If no row was appended since the last commit.
        forebay.ConflictError
            If the table's columns changed meanwhile; or if the store wouldn't say whether the commit was made: look at the log.
        forebay.StorageError
            If the store failed. What was appended is kept, and another ``commit()`` may succeed.

        After Ctrl-C in a commit, too, only the log tells whether it was made; the rows are not kept for another try.
        """
        texts = {str(name): str(value) for name, value in (properties or {}).items()}
        commit = self._handle.session.commit(message, _author() if author is None else author, texts)
        self._handle.moved()
        return commit

    @property
    def pending(self) -> int:
        """Rows appended, to any table of this handle, since the last commit."""
        return self._handle.session.pending()

    def discard(self) -> None:
        """Forgets the rows appended since the last commit."""
        self._handle.session.discard()

    # Versions

    def refresh(self) -> None:
        """Moves to the newest commit of the branch."""
        self._handle.session.refresh()
        self._handle.moved()

    def log(self, limit: int = 100, *, table: str | None = None) -> list[Commit]:
        """The newest ``limit`` commits up to this one, newest first; with ``table`` those of them that changed that table."""
        if limit < 0:
            raise ArgumentError(f"limit is at least 0, not {limit}")
        commits = [Commit(entry) for entry in self._handle.session.log(limit)]
        return [commit for commit in commits if table is None or table in commit.changed]

    def branch(self, name: str) -> Dataset:
        """Makes a branch at this commit and opens it.

        Raises
        ------
        forebay.ExistsError
            If there is one of that name.
        """
        session = self._handle.session
        session.create_branch(name)
        return Dataset(_Handle(_forebay.Session.open_at(session.url, session.access, branch=name)), self._table)

    def branches(self) -> list[str]:
        """The names of the lake's branches, sorted."""
        return self._handle.session.branches()

    def tag(self, name: str, author: str | None = None) -> None:
        """Names this commit, for good.

        Raises
        ------
        forebay.ExistsError
            If there is a tag of that name: tags never move.
        """
        self._handle.session.create_tag(name, _author() if author is None else author)

    def tags(self) -> list[str]:
        """The names of the lake's tags, sorted."""
        return self._handle.session.tags()

    # The handle

    def close(self) -> None:
        """Closes the handle, for all tables that share it. Rows that wait for a commit are dropped, with a warning."""
        session = self._handle.session
        if session.closed:
            return
        waiting = session.pending()
        session.close()
        self._handle.moved()
        if waiting:
            warnings.warn(f"{waiting} appended rows were never committed and are dropped", RuntimeWarning, stacklevel=2)

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._handle.session.closed

    def __enter__(self) -> Dataset:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._handle.session.discard()
        self.close()

    def __repr__(self) -> str:
        session = self._handle.session
        if session.closed:
            return f"Dataset(table '{self._table}' at {session.url}, closed)"
        at = f"branch '{session.branch}'" if session.branch else f"commit {session.commit_id[:12]}"
        return _describe(f"Dataset: {len(self)} rows of table '{self._table}' on {at}", session.url, self._known())

    def __reduce__(self) -> tuple[Any, ...]:
        session = self._handle.session
        return _reopen, (session.url, session.access, session.branch, session.commit_id, self._table)


def _reopen(url: str, access: _forebay.Access, branch: str | None, commit: str, table: str) -> Dataset:
    return Dataset(_Handle(_forebay.Session.open_at(url, access, branch=branch, commit=commit)), table)


def create(
    url: str,
    schema: Mapping[str, Any],
    *,
    table: str | None = None,
    key: str | Sequence[str] = (),
    storage_options: Mapping[str, Any] | None = None,
    credentials: Credentials | None = None,
    links: Places = (),
    exist_ok: bool = False,
) -> Dataset:
    """Makes a table, and its lake if there is none at the URL.

    Parameters
    ----------
    url : str or os.PathLike
        A folder, ``file:///folder``, ``s3://bucket/prefix``, ``gs://bucket/prefix``, ``az://container/prefix``,
        ``abfss://container@account.dfs.core.windows.net/prefix`` or ``memory://name`` (kept in this process); to read also
        ``https://host/folder``.
    schema : dict
        Columns by name: a dtype with its shape (``"uint8[3,224,224]"``, ``"float32[?,4]"``, ``"utf8"``, ``"int64?"`` for nullable), a
        NumPy dtype, or a :class:`Column`, as :func:`Image`, :func:`ClassLabel` and the like make them.
    table : str, optional
        Its name, ``"main"`` by default.
    key : str or sequence of str
        The columns by which :meth:`Dataset.upsert` finds rows; no two rows have equal values in all of them. They are not nullable.
    storage_options : dict, optional
        Options of the store: ``endpoint``, ``region``, ``access_key_id``, ``secret_access_key``, ``allow_http`` and more, which
        ``docs/storage.md`` lists; what isn't given comes from the usual variables of each cloud.
    credentials : callable, optional
        Called without arguments, on first use and before what it gave expires, on a thread of its own. It gives a dict:
        ``access_key_id`` and ``secret_access_key`` (and ``session_token``) for S3, ``token`` for Google or Azure, ``account_key`` or
        ``sas_token`` for Azure, each with ``expires_at`` (seconds since 1970 or a datetime with a timezone; None for never).
    links : sequence of str, or dict, optional
        URLs below which links of the lake may lead, besides the lake itself: a lake says where its links lead, and so isn't asked where
        they may. They are reached with the options and credentials of the lake; a dict gives each options of its own, or None.
    exist_ok : bool
        Whether to open the table if it exists with the same columns and key.

    Returns
    -------
    Dataset
        Opened at branch ``main``.

    Raises
    ------
    forebay.ExistsError
        If the table exists (and, with ``exist_ok``, has other columns or another key).
    forebay.SchemaError, forebay.ArgumentError
        If the schema or the URL can't be used.
    forebay.AccessError, forebay.StorageError
        If the store refuses or fails.
    """
    name = DEFAULT_TABLE if table is None else table
    native = _schema(schema)._native()
    session = _forebay.Session.create(_url(url), _access(storage_options, credentials, links=links), name, native, _names(key), exist_ok)
    return Dataset(_Handle(session), name)


def open(  # noqa: A001 - forebay.open is meant to read like the built-in
    url: str,
    *,
    branch: str | None = None,
    tag: str | None = None,
    commit: str | None = None,
    table: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    credentials: Credentials | None = None,
    mirrors: Sequence[str] = (),
    cache: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    links: Places = (),
) -> Dataset:
    """Opens a table of a lake.

    Parameters
    ----------
    url, storage_options, credentials, links
        As for :func:`create`.
    mirrors : sequence of str, optional
        URLs of copies of the lake, in other regions for instance, reached with the same options and credentials. Data is read from the
        nearest one that works and checked; writes go to ``url``.
    cache : str, os.PathLike or dict, optional
        Keeps what is read across a network: a folder on a local disk, which the processes of a machine share, or a dict of ``dir``,
        ``size`` (of the folder, ``"100GiB"`` by default) and ``memory`` (of this process, none by default), sizes in bytes or as text.
    branch, tag, commit : str, optional
        Which version: at most one of them. By default branch ``main``. At a tag or commit the handle is read-only.
    table : str, optional
        The table, ``"main"`` by default; if there is only one, it need not be named.

    Raises
    ------
    forebay.NotFoundError
        If there is no lake at the URL.
    forebay.UnknownVersionError, forebay.UnknownTableError
        If there is no such branch, tag or commit, or no such table in it.
    forebay.AccessError, forebay.StorageError
        If the store refuses or fails.
    """
    if sum(name is not None for name in (branch, tag, commit)) > 1:
        raise ArgumentError("name at most one of branch, tag and commit")
    session = _forebay.Session.open_at(
        _url(url),
        _access(storage_options, credentials, mirrors, cache, links),
        branch=branch,
        tag=tag,
        commit=commit,
    )
    handle = _Handle(session)
    if table is None:
        names = _visible(session)
        table = names[0] if len(names) == 1 else DEFAULT_TABLE
    handle.table(table)
    return Dataset(handle, table)


def _url(url: Any) -> str:
    found = os.fspath(url)
    if not isinstance(found, str) or not found:
        raise ArgumentError(f"a lake's URL is a text that isn't empty, not {url!r}")
    return found


def _access(
    options: Mapping[str, Any] | None,
    credentials: Credentials | None,
    mirrors: Sequence[str] = (),
    cache: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    links: Places = (),
) -> _forebay.Access:
    def text(value: Any) -> str:
        return str(value).lower() if isinstance(value, bool) else str(value)

    def texts(options: Mapping[str, Any]) -> dict[str, str]:
        return {str(name): text(value) for name, value in options.items() if value is not None}

    if credentials is not None and not callable(credentials):
        raise ArgumentError(f"credentials is a callable that gives a dict, not {credentials!r}; fixed ones go into storage_options")
    if isinstance(mirrors, str):
        raise ArgumentError("mirrors is a list of URLs; put the one that you have into a list")
    if cache is not None and not isinstance(cache, Mapping):
        cache = {"dir": cache}
    named = {"dir": "cache_dir", "size": "cache_size", "memory": "cache_memory"}
    unknown = [name for name in cache or {} if name not in named]
    if unknown:
        raise ArgumentError(f"cache has no {unknown[0]!r}: give a folder, or a dict of dir, size and memory")
    kept = {named[name]: os.fspath(value) if name == "dir" else value for name, value in (cache or {}).items()}
    if isinstance(links, str):
        raise ArgumentError("links is a list of URLs, or a dict of URLs and storage options; put the one that you have into a list")
    places = links if isinstance(links, Mapping) else dict.fromkeys(links)
    return {
        "options": texts({**(options or {}), **kept}),
        "credentials": credentials,
        "mirrors": [_url(mirror) for mirror in mirrors],
        "links": [(_url(place), None if reached is None else texts(reached)) for place, reached in places.items()],
    }
