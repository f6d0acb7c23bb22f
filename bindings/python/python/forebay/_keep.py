"""What is done with a lake as a whole: copies, pins, collections of garbage."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _forebay

if TYPE_CHECKING:
    from ._dataset import Credentials, _Handle

#: Called with what is done and what there is to do: bytes of a copy, objects of a collection.
Progress = Callable[[int, int], None]


def _access(storage_options: Mapping[str, Any] | None, credentials: Any) -> Any:
    from ._dataset import _access as access

    return access(storage_options, credentials)


class RowChanges(NamedTuple):
    """Some rows that differ between two versions. A row is named by its fragment and its number in it."""

    added: list[str]
    """Rows that are new."""
    deleted: list[str]
    """Rows that are gone."""
    changed: list[tuple[str, str, list[str]]]
    """Rows that differ: as the version before names them, as the one after does, and the columns."""


class Pin:
    """Keeps a commit whole while it is held, whatever is deleted or collected. Made by :meth:`Dataset.pin`; a context manager."""

    __slots__ = ("_native",)

    def __init__(self, native: _forebay.Pin) -> None:
        self._native = native

    @property
    def held(self) -> bool:
        """Whether it was not released yet."""
        return self._native.held

    def release(self) -> None:
        """Ends it."""
        self._native.release()

    def __enter__(self) -> Pin:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class Keep:
    """What a :class:`Dataset` can do with its whole lake."""

    __slots__ = ()

    _handle: _Handle
    _table: str

    def pin(self, lease: float = 600.0, holder: str | None = None) -> Pin:
        """Keeps the commit that this handle is at, as long as the pin is held: hold one while training on a version that others may
        delete. It is renewed in the background; if the process dies it ends with its lease.

        Parameters
        ----------
        lease : float
            Seconds that it holds after it was last renewed.
        holder : str, optional
            Who holds it, for people; by default the author's name.

        Raises
        ------
        forebay.UnknownVersionError
            If the commit was collected.
        forebay.AccessError
            If the store can't be written to.
        """
        from ._changes import _author

        return Pin(_forebay.Pin(self._handle.session, lease, _author() if holder is None else holder))

    def gc(
        self,
        *,
        grace: float = 24 * 3600.0,
        retention: float = 14 * 24 * 3600.0,
        expire: bool = False,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> dict[str, int]:
        """Deletes what no branch, tag or pin leads to. It may run beside everything else, be stopped, and run again.

        Parameters
        ----------
        grace : float
            Nothing younger than so many seconds is deleted. Appended rows must be committed within it.
        retention : float
            What branches pointed at within so many seconds is kept, also if they were reset or deleted since.
        expire : bool
            Whether the tables of older commits are collected as well. The commits stay in the log, and what is kept still merges.
        dry_run : bool
            Whether to report and delete nothing.
        progress : callable, optional
            Called with the objects deleted and to be deleted; what it raises ends the collection.

        Returns
        -------
        dict
            ``commits``, ``expired``, ``pins``, ``kept``, ``young``, ``garbage``, ``garbage_bytes``, ``deleted``, ``epoch``.

        Raises
        ------
        forebay.ConflictError
            If another collection began meanwhile; nothing was deleted.
        """
        return _forebay.gc(self._handle.session, grace, retention, (expire, dry_run), progress)

    def push(
        self,
        url: str,
        branch: str | None = None,
        *,
        into: str | None = None,
        storage_options: Mapping[str, Any] | None = None,
        credentials: Credentials | None = None,
        progress: Progress | None = None,
    ) -> dict[str, int]:
        """Copies a branch's commits, and what they hold, to another lake, and moves its branch there. What the other lake has already
        isn't copied; a push that was cut goes on where it was.

        Parameters
        ----------
        url : str
            The other lake.
        branch : str, optional
            The branch, by default this handle's.
        into : str, optional
            The other lake's branch, by default of the same name. It is made if it isn't there.
        storage_options, credentials : optional
            As for :func:`create`, for the other lake.
        progress : callable, optional
            Called with the bytes copied and to be copied.

        Returns
        -------
        dict
            ``commits``, ``objects`` and ``bytes`` that were copied.

        Raises
        ------
        forebay.ConflictError
            If the other branch has commits that this one lacks: pull and merge them first.
        """
        return self._copy(True, url, branch, into, _access(storage_options, credentials), progress)

    def pull(
        self,
        url: str,
        branch: str | None = None,
        *,
        into: str | None = None,
        storage_options: Mapping[str, Any] | None = None,
        credentials: Credentials | None = None,
        progress: Progress | None = None,
    ) -> dict[str, int]:
        """Copies a branch's commits from another lake, as :meth:`push` does the other way. Call :meth:`refresh` to see them."""
        return self._copy(False, url, branch, into, _access(storage_options, credentials), progress)

    def _copy(
        self, push: bool, url: str, branch: str | None, into: str | None, access: Any, progress: Progress | None
    ) -> dict[str, int]:
        from ._dataset import _url

        session = self._handle.session
        source = branch or session.branch or "main"
        return _forebay.copy(session, push, (_url(url), access), (source, into or source), progress)

    def diff_rows(self, before: str) -> Iterator[RowChanges]:
        """The rows of this table that differ between another version and this one, some at a time.

        Parameters
        ----------
        before : str
            A branch, or else a tag, or the id of a commit.
        """
        differences = _forebay.Differences(self._handle.session, self._version(before), self._table)
        while (changes := differences.next()) is not None:
            yield RowChanges(*changes)

    def _version(self, name: str) -> tuple[str, str]:
        raise NotImplementedError

    def rename_branch(self, name: str, to: str) -> None:
        """Gives a branch another name: makes one of that name, and deletes the old one.

        Raises
        ------
        forebay.ExistsError
            If there is one of that name.
        """
        self._handle.session.rename_branch(name, to)


def clone(
    source: str,
    target: str,
    *,
    storage_options: Mapping[str, Any] | None = None,
    credentials: Credentials | None = None,
    target_options: Mapping[str, Any] | None = None,
    target_credentials: Credentials | None = None,
    progress: Progress | None = None,
) -> dict[str, int]:
    """Copies a lake with all its branches and tags. A copy that was cut goes on where it was.

    Parameters
    ----------
    source, target : str
        URLs of the lake, and of the copy.
    storage_options, credentials : optional
        As for :func:`create`.
    target_options, target_credentials : optional
        The same for the copy, if it isn't reached as the lake is.
    progress : callable, optional
        Called with the bytes copied and to be copied.

    Returns
    -------
    dict
        ``commits``, ``objects`` and ``bytes`` that were copied.

    Raises
    ------
    forebay.ExistsError
        If there is a lake at the target: push to it instead.
    """
    from ._dataset import _url

    access = _access(storage_options, credentials)
    same = target_options is None and target_credentials is None
    other = access if same else _access(target_options, target_credentials)
    return _forebay.clone_lake((_url(source), access), (_url(target), other), progress)
