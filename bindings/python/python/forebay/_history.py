"""Commits, as the log shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import datetime


class Commit:
    """A state of the lake, and how it came about.

    Attributes
    ----------
    id : str
        32 hexadecimal digits.
    parents : list of str
        The commits it follows.
    author, message : str
        Who and why.
    tables : dict
        Rows of each table.
    properties : dict
        What the writer wanted to remember.
    changed : list of str
        The tables that it changed.
    """

    __slots__ = ("_microseconds", "author", "changed", "id", "message", "parents", "properties", "tables")

    id: str
    parents: list[str]
    author: str
    message: str
    tables: dict[str, int]
    properties: dict[str, str]
    changed: list[str]

    def __init__(self, entry: dict[str, Any]) -> None:
        self.id = entry["id"]
        self.parents = entry["parents"]
        self.author = entry["author"]
        self.message = entry["message"]
        self.tables = entry["tables"]
        self.properties = entry["properties"]
        self.changed = entry["changed"]
        self._microseconds: int = entry["time"]

    @property
    def time(self) -> datetime.datetime:
        """When, in UTC, by the writer's clock."""
        import datetime

        return datetime.datetime.fromtimestamp(0, datetime.timezone.utc) + datetime.timedelta(microseconds=self._microseconds)

    def __repr__(self) -> str:
        rows = ", ".join(f"{name}: {rows} rows" for name, rows in self.tables.items())
        return f"<commit {self.id[:12]} {self.time:%Y-%m-%d %H:%M:%S} {self.author}: {self.message!r} ({rows})>"


class Merge(NamedTuple):
    """What a merge did, or would do."""

    outcome: str
    """``"merged"``, ``"fast forward"`` or ``"up to date"``."""
    commit_id: str
    """The branch's commit after it; before it for a dry run."""
    conflicts: list[str]
    """What a dry run found, a line for each table and column."""
