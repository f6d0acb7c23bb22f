"""Tables, made with their rows and dropped; and views with names: which rows of which table at which commit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ._changes import _author, _schema
from ._convert import encode_rows
from ._computed import computed_of
from ._errors import ArgumentError, UnknownTableError, UnsupportedError
from ._rows import Rows, View, _view
from ._schema import Column, Schema

if TYPE_CHECKING:
    from . import _forebay
    from ._dataset import Dataset, _Handle

#: Before the names of the tables that keep views.
_PREFIX = "view."
#: Before the names of those that keep indexes, which SQL makes.
_INDEX = "index."
#: Row numbers that are kept in one row.
_BLOCK = 1 << 20
#: Bytes of rows that are copied at once.
_COPIED = 64 << 20


class Tables:
    """What a handle does with tables as a whole, and with views that have names."""

    __slots__ = ()

    if TYPE_CHECKING:
        _handle: _Handle

    @property
    def tables(self) -> list[str]:
        """The names of the lake's tables at this commit, sorted, but for those that keep views and indexes."""
        return _visible(self._handle.session)

    def create_table(
        self,
        name: str,
        schema: Mapping[str, Any],
        *,
        key: str | Sequence[str] = (),
        data: Mapping[str, Any] | Iterable[Mapping[str, Any]] | None = None,
    ) -> Dataset:
        """Adds a table to the lake and commits that. ``key`` is as for :func:`create`.

        ``data`` are the rows that it begins with, as for :meth:`append`, or an iterable of them: they are seen together with the
        table, in one commit, and memory is bounded.

        Raises
        ------
        forebay.ExistsError, forebay.SchemaError, forebay.ReadOnlyError
            If there is a table of that name, the schema breaks a rule, or the handle has no branch.
        forebay.UncommittedError
            If rows wait for a commit.
        forebay.DataError, forebay.DTypeError, forebay.UnknownColumnError
            If the rows don't fit; then there is no table.
        """
        from ._dataset import Dataset

        known, message = _schema(schema), f"create table {name}"
        _create(self._handle, name, known, (_names(key), False), data, message, "")
        return Dataset(self._handle, name)

    def drop_table(self, name: str, message: str | None = None, author: str | None = None) -> str:
        """Takes a table out of the lake and commits that; older commits keep it. Gives the commit's id.

        Raises
        ------
        forebay.UnknownTableError, forebay.ReadOnlyError, forebay.UncommittedError
            If there is none of that name, the handle has no branch, or rows wait for a commit.
        """
        commit = self._handle.session.drop_table(name, message or f"drop table {name}", _author() if author is None else author)
        self._handle.moved()
        return commit

    def save_view(
        self, name: str, view: Rows, message: str | None = None, author: str | None = None, *, replace: bool = False
    ) -> str:
        """Keeps a view in the lake under a name, and commits that.

        What is kept are the row numbers, the columns and the commit that they are of, not the query: whoever opens the view gets
        these rows whatever happened to the table since. A tag on the view's commit keeps :meth:`gc` from expiring it.

        Parameters
        ----------
        name : str
            Its name, on this handle's branch.
        view : View or Dataset
            The rows, of this lake: what ``query``, ``where``, ``filter`` and ``select`` give.
        message, author : str, optional
            As for :meth:`Dataset.commit`.
        replace : bool
            Whether it may take the place of a view of that name.

        Returns
        -------
        str
            The commit's id.

        Raises
        ------
        forebay.ExistsError
            If there is a view of that name.
        forebay.ArgumentError
            If the rows are of another lake.
        forebay.UnsupportedError
            If it has computed columns, which are no rows of the lake.
        """
        native = view._rows()
        for computed in computed_of(native):
            raise UnsupportedError(f"column '{computed}' is computed, and a view with a name keeps rows: materialize() makes a table with it")
        if native.url != self._handle.session.url:
            raise ArgumentError(f"the rows are of {native.url}, and views are kept with their rows, in {self._handle.session.url}")
        numbers = native.numbers_or_none()
        about = {"table": native.table, "commit": native.commit_id, "columns": list(view._known()), "all": numbers is None}

        def blocks() -> Iterator[dict[str, Any]]:
            rows = [] if numbers is None else numbers
            for start in range(0, max(len(rows), 1), _BLOCK):
                yield {"about": [about], "rows": [rows[start : start + _BLOCK]]}

        schema = Schema({"about": Column("json"), "rows": Column("int64", (None,), compression="zstd", byte_shuffle=True)})
        who = _author() if author is None else author
        return _create(self._handle, _PREFIX + name, schema, ((), replace), blocks(), message or f"save view {name}", who)

    def view(self, name: str) -> View:
        """The view of a name, at the commit that it was saved of.

        Raises
        ------
        forebay.UnknownTableError
            If there is none of that name.
        """
        import numpy as np

        if name not in self.views():
            known = ", ".join(self.views()) or "none"
            raise UnknownTableError(f"there is no view '{name}'; there are: {known}")
        kept = View(*self._handle.table(_PREFIX + name))
        about = kept[0]["about"]
        numbers = None if about["all"] else np.concatenate(kept["rows"][:])
        return _view(self._handle.session, about["commit"], about["table"], numbers, about["columns"])

    def views(self) -> list[str]:
        """The names of the views at this commit, sorted."""
        return [table.removeprefix(_PREFIX) for table in self._handle.session.tables() if table.startswith(_PREFIX)]

    def drop_view(self, name: str, message: str | None = None, author: str | None = None) -> str:
        """Forgets a view, and commits that; the rows stay. Gives the commit's id.

        Raises
        ------
        forebay.UnknownTableError
            If there is none of that name.
        """
        who = _author() if author is None else author
        commit = self._handle.session.drop_table(_PREFIX + name, message or f"drop view {name}", who)
        self._handle.moved()
        return commit

    def materialize(
        self, name: str, view: Rows, message: str | None = None, author: str | None = None, *, land: bool = False
    ) -> Dataset:
        """Makes a table of a view's rows, in the view's order, so that they are read in long runs; in one commit and in bounded
        memory.

        Parameters
        ----------
        name : str
            The table to be made.
        view : View or Dataset
            The rows, of any lake.
        message, author : str, optional
            As for :meth:`Dataset.commit`.
        land : bool
            Whether links are followed, and what they lead to is stored in their place; otherwise they stay links.

        Raises
        ------
        forebay.ExistsError
            If there is a table of that name.
        forebay.LinkError, forebay.AccessError
            If a link can't be followed, or may not; then there is no table.
        """
        from ._dataset import Dataset

        known = view._known()
        width = sum(_width(column) for column in known.values())
        step = max(1, min(1 << 16, _COPIED // max(width, 1)))
        links = [name for name, column in known.items() if land and column.dtype == "link"]
        if links:
            known = Schema({name: _landed(column) if name in links else column for name, column in known.items()})
            blocks = _land(view, step, links)
        else:
            blocks = (view[start : start + step] for start in range(0, len(view), step))
        who = _author() if author is None else author
        _create(self._handle, name, known, ((), False), blocks, message or f"make table {name} of {len(view)} rows", who)
        return Dataset(self._handle, name)


def _landed(column: Column) -> Column:
    """A column of what the links of a column lead to."""
    metadata = {key: value for key, value in column.metadata.items() if key != "base"}
    return Column("bytes", nullable=column.nullable, kind=column.kind, **metadata)


def _land(view: Rows, step: int, links: Sequence[str]) -> Iterator[Mapping[str, Any]]:
    """The rows in blocks, with what links lead to in their place: some ``_COPIED`` bytes of it in each."""
    for start in range(0, len(view), step):
        block = view[start : start + step]
        rows, first, taken = min(step, len(view) - start), 0, 0
        for row in range(rows):
            taken += sum(block[name][row].length for name in links if block[name][row] is not None)
            if taken >= _COPIED or row + 1 == rows:
                here, at = slice(first, row + 1), slice(start + first, start + row + 1)
                yield {name: view[name].fetch(at) if name in links else values[here] for name, values in block.items()}
                first, taken = row + 1, 0


def _width(column: Column) -> int:
    """Bytes of a row, about."""
    import math

    sizes = {"utf8": 64, "bytes": 1 << 16, "json": 256, "link": 128}
    free = any(length is None for length in column.shape)
    length = 1 << 16 if free else math.prod(length or 1 for length in column.shape)
    return length * sizes.get(column.dtype, 8)


def _visible(session: _forebay.Session) -> list[str]:
    return [table for table in session.tables() if not table.startswith((_PREFIX, _INDEX))]


def _create(
    handle: _Handle,
    name: str,
    schema: Schema,
    how: tuple[Any, bool],
    data: Mapping[str, Any] | Iterable[Mapping[str, Any]] | None,
    message: str,
    author: str,
) -> str:
    """Makes a table of rows in one commit; ``how`` is its key and whether it replaces another."""
    key, replace = how
    blocks = [data] if isinstance(data, Mapping) else data
    batches = None if blocks is None else (encode_rows(schema, block) for block in blocks)
    commit = handle.session.create_table(name, schema._native(), list(key), batches, (replace, message, author))
    handle.moved()
    return commit


def _names(names: str | Sequence[str]) -> list[str]:
    return [names] if isinstance(names, str) else list(names)
