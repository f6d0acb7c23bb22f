"""Changes of a table and of a branch, each in a commit of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ._convert import encode_rows
from ._errors import SchemaError
from ._history import Merge
from ._index import resolve
from ._keep import Keep
from ._rows import Rows
from ._schema import Column, Schema

if TYPE_CHECKING:
    from ._dataset import _Handle

#: What a change has when it says nothing else.
_NO_CHANGE = {"rows": None, "names": None, "column": None, "values": None, "default": None}


class Changes(Keep, Rows):
    """What a :class:`Dataset` can do to its rows, columns and branch beyond appending."""

    __slots__ = ("_handle", "_table")

    _handle: _Handle
    _table: str

    def delete(self, rows: Any, message: str | None = None, author: str | None = None) -> str:
        """Deletes rows and commits that. Older commits keep them.

        Parameters
        ----------
        rows : int, slice, list of int, or boolean mask [rows]
            Rows as this handle numbers them: a number, a slice, a list or a mask. What others committed since stays.
        message, author : str, optional
            As for :meth:`commit`.

        Returns
        -------
        str
            The commit's id.

        Raises
        ------
        forebay.ConflictError
            If others updated one of the rows meanwhile; the error lists rows and columns, and nothing was committed.
        forebay.UncommittedError
            If appended rows wait for a commit.
        """
        found = self._numbers(rows)
        return self._change({"what": "delete", "rows": found}, message or f"delete {len(found)} rows", author)

    def update(self, rows: Any, data: Mapping[str, Any], message: str | None = None, author: str | None = None) -> str:
        """Gives rows new values in some columns and commits that. Only the new values are written.

        Parameters
        ----------
        rows
            As for :meth:`delete`; no row may come twice.
        data : dict
            Values by column, one for each of the rows, as for :meth:`append`. Columns that aren't named stay as they are.
        message, author : str, optional
            As for :meth:`commit`.

        Returns
        -------
        str
            The commit's id.

        Raises
        ------
        forebay.ConflictError
            If others changed one of the cells, or deleted one of the rows, meanwhile.
        forebay.DataError, forebay.DTypeError, forebay.UnknownColumnError
            If the values don't fit.
        """
        found, known = self._numbers(rows), self._known()
        some = Schema({name: known[name] for name in data if name in known})
        change = {"what": "update", "rows": found, "names": list(some), "values": encode_rows(some, data)}
        return self._change(change, message or f"update {len(found)} rows", author)

    def upsert(self, data: Mapping[str, Any], message: str | None = None, author: str | None = None) -> str:
        """Updates the rows whose keys are among those of ``data``, appends the others, and commits that. For tables with a key.

        Raises
        ------
        forebay.ArgumentError
            If the table has no key, or two rows of ``data`` have the same.
        forebay.ConflictError
            If others changed the same cells or inserted one of the keys meanwhile.
        """
        change = {"what": "upsert", "values": encode_rows(self._known(), data)}
        return self._change(change, message or "upsert rows", author)

    def add_column(
        self,
        name: str,
        spec: Any,
        values: Any = None,
        *,
        default: Any = None,
        message: str | None = None,
        author: str | None = None,
    ) -> str:
        """Adds a column and commits that. No other column is read or written.

        Parameters
        ----------
        name : str
            Its name.
        spec : str or Column
            As in a schema.
        values : optional
            One value for each row, as for :meth:`append`; without, all rows have the default.
        default : optional
            The value of rows that have none: all, or those that others append meanwhile. None for null. A column that isn't
            nullable needs one.

        Raises
        ------
        forebay.SchemaError, forebay.ArgumentError
            If there is a column of that name, or one that isn't nullable has no default.
        """
        schema = _schema({name: spec})
        change: dict[str, Any] = {"what": "add_column", "column": schema._native()}
        if values is not None:
            change["values"] = encode_rows(schema, {name: values})
        if default is not None:
            change["default"] = encode_rows(schema, {name: [default]})
        return self._change(change, message or f"add column {name}", author)

    def drop_column(self, name: str, message: str | None = None, author: str | None = None) -> str:
        """Takes a column out of the table and commits that. Older commits keep it."""
        return self._change({"what": "drop_column", "names": [name]}, message or f"drop column {name}", author)

    def rename_column(self, name: str, to: str, message: str | None = None, author: str | None = None) -> str:
        """Gives a column another name and commits that. No data is touched."""
        change = {"what": "rename_column", "names": [name, to]}
        return self._change(change, message or f"rename column {name} to {to}", author)

    def compact(self, message: str | None = None, author: str | None = None) -> str:
        """Writes rows anew where many were deleted or updated or files are small, and commits that. Rows stay as they are, and so do
        merges with branches that weren't compacted.

        Raises
        ------
        forebay.NothingToCommitError
            If there is nothing to gain.
        """
        return self._change({"what": "compact"}, message or "compact", author)

    def _numbers(self, rows: Any) -> list[int]:
        found = resolve(rows, len(self))
        return [found] if isinstance(found, int) else [int(row) for row in found]

    def _change(self, change: dict[str, Any], message: str, author: str | None) -> str:
        who = _author() if author is None else author
        commit = self._handle.session.change(self._table, {**_NO_CHANGE, **change}, message, who)
        self._handle.moved()
        return commit

    def merge(
        self,
        source: str,
        policy: str | Mapping[str, str] = "fail",
        *,
        message: str | None = None,
        author: str | None = None,
        dry_run: bool = False,
    ) -> Merge:
        """Merges another branch, tag or commit into this handle's branch, row by row and cell by cell.

        Rows that were added, deleted or updated on one side are so afterwards. A conflict is a cell that both sides changed
        differently, a row that one deleted and the other updated, or an equal key inserted on both.

        Parameters
        ----------
        source : str
            A branch, or else a tag, or the id of a commit.
        policy : str or dict
            Who has his way in conflicts: ``"fail"`` (nobody), ``"ours"``, ``"theirs"``; or a dict of these by column, with ``"*"`` for
            everything else.
        message, author : str, optional
            As for :meth:`commit`.
        dry_run : bool
            Whether to report conflicts and change nothing.

        Raises
        ------
        forebay.ConflictError
            With all conflicts that the policy leaves open; nothing was merged.
        """
        return self._merge("merge", source, policy, message, author, dry_run)

    def revert(self, commit: str, policy: str | Mapping[str, str] = "fail", *, author: str | None = None) -> Merge:
        """Undoes what a commit changed, as a new commit; what came later stays.

        Raises
        ------
        forebay.ConflictError
            If later commits changed the same cells.
        """
        return self._merge("revert", commit, policy, None, author, False)

    def cherry_pick(self, commit: str, policy: str | Mapping[str, str] = "fail", *, author: str | None = None) -> Merge:
        """Does what a commit changed on this handle's branch, too, as a new commit."""
        return self._merge("cherry_pick", commit, policy, None, author, False)

    def _merge(self, how: str, source: str, policy: Any, message: str | None, author: str | None, dry: bool) -> Merge:
        if isinstance(policy, str):
            sides = [(None, policy)]
        else:
            sides = [(None if name == "*" else name, side) for name, side in policy.items()]
        who = _author() if author is None else author
        found = self._handle.session.merge(how, self._version(source), sides, (message, who, dry))
        self._handle.moved()
        return Merge(*found)

    def _version(self, name: str) -> tuple[str, str]:
        session = self._handle.session
        if name in session.branches():
            return "branch", name
        if name in session.tags():
            return "tag", name
        return ("commit" if len(name) == 32 else "branch"), name

    def reset(self, to: str) -> None:
        """Moves this handle's branch to a branch's, tag's or commit's version. What it pointed at stays in the branch's log."""
        self._handle.session.reset(self._version(to))
        self._handle.moved()

    def diff(self, before: str) -> list[dict[str, Any]]:
        """What differs between another version (a branch, tag or commit) and this one, by table.

        Returns
        -------
        list of dict
            ``before`` and ``after`` (the table's name, or None), ``columns_added``, ``columns_dropped``, ``columns_changed`` (pairs of names),
            ``rows_added``, ``rows_deleted`` and ``rows_changed``. Tables that are equal are left out.
        """
        return self._handle.session.diff(self._version(before))

    def delete_branch(self, name: str) -> None:
        """Deletes a branch. Its log stays, and :meth:`undelete_branch` brings it back."""
        self._handle.session.delete_branch(name)

    def undelete_branch(self, name: str) -> None:
        """Brings a deleted branch back, at the commit that it had."""
        self._handle.session.undelete_branch(name)

    def delete_tag(self, name: str) -> None:
        """Deletes a tag. Its name can't be used again."""
        self._handle.session.delete_tag(name, _author())


def _schema(schema: Any) -> Schema:
    if isinstance(schema, Schema):
        return schema
    if not isinstance(schema, Mapping):
        raise SchemaError(f"a schema is a dict of columns by name, not {type(schema).__name__}")
    for name, spec in schema.items():
        if not isinstance(spec, (str, type, Column)) and not hasattr(spec, "dtype") and type(spec).__name__ == "dict":
            raise SchemaError(f"column '{name}': a dtype or a Column is expected, not a dict")
    return Schema(schema)


def _author() -> str:
    import getpass
    import os

    named = os.environ.get("FOREBAY_AUTHOR")
    if named is not None:
        return named
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return ""  # Containers run as users without a name.
